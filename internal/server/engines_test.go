//go:build !race

package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/server"
	"j17/internal/storage/postgres/pgtest"
)

// TestFromOneEngineToTheOther fills a server on the embedded store with all kinds of data, restores its backup to
// PostgreSQL, goes on there, and restores the backup of that to an embedded store again. Each time events, roots,
// chains and positions are what they were, byte for byte.
func TestFromOneEngineToTheOther(t *testing.T) {
	db := pgtest.Shared(t)
	on := server.StoreOptions{
		Address: db.Address(), Schema: db.Schema(t), Plain: true, AllowSingle: true, Connections: 12,
	}
	source, err := os.ReadFile(filepath.Join(frozenFolder, "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../examples/wasm/orderlines-c.wasm")
	if err != nil {
		t.Fatal(err)
	}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // whoever sends it reports it
	}))
	defer hook.Close()
	t.Chdir(t.TempDir())

	// On the embedded store.
	h, moveOut := moveIn(t, "first", frozenAt())
	instance := "/api/instances/" + h.ready.Instance.ID
	h.upload("prod", "readme.txt", []byte("A text."))
	h.upload("prod", "lines.wasm", module)
	h.ask("POST", "control", instance+"/spec?environment=prod", strings.ReplaceAll(string(source), `"LISTENER`,
		`"`+hook.URL))
	h.events()
	h.workflows()
	h.custody(instance)
	was := h.bytes()
	moveOut()

	// On PostgreSQL. Nothing is lost on the way, and what comes next is the same as it would be on the other one.
	restored(t, "first", "second", on)
	h, moveOut = moveInto(t, "second", frozenAt().Add(5*time.Hour), on)
	if diff := cmp.Diff(was, h.bytes()); diff != "" {
		t.Errorf("on PostgreSQL there is something else:\n%s", diff)
	}
	h.repeatable()
	h.ask("POST", "prod", "/user/"+numbered(90)+"/was_registered", registered(numbered(90), "new@example.com", "New",
		"gold"))
	if status, answer := h.try(
		"POST", "prod", "/user/"+numbered(91)+"/was_registered", "application/json",
		registered(numbered(91), "ADA@example.com", "Eve", "gold"),
	); status != http.StatusConflict {
		t.Errorf("a value that is taken: %d %s", status, answer)
	}
	h.backedUp()
	was = h.bytes()
	moveOut()

	// On an embedded store again.
	restored(t, "second", "third", server.StoreOptions{})
	h, moveOut = moveIn(t, "third", frozenAt().Add(10*time.Hour))
	defer moveOut()
	if diff := cmp.Diff(was, h.bytes()); diff != "" {
		t.Errorf("on the embedded store there is something else:\n%s", diff)
	}
}

// restored restores the newest backup of the server in a folder.
func restored(t *testing.T, from, to string, on server.StoreOptions) {
	t.Helper()
	if _, err := server.Restore(t.Context(), server.RestoreOptions{
		Repository: repository.OpenFolder(server.DefaultBackups(from), clock.System{}), Dir: to, Store: on,
		Clock: pastOf(frozenAt().Add(4 * time.Hour)), Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
}

// backedUp makes a backup of the whole server.
func (h *house) backedUp() {
	h.t.Helper()
	var whole struct{ Backup struct{ ID, Status string } }
	h.decode(h.ask("POST", "control", "/api/backups", `{"kind":"full"}`), &whole)
	for whole.Backup.Status != "completed" {
		h.advance("100ms")
		h.decode(h.ask("GET", "control", "/api/backups/"+whole.Backup.ID, ""), &whole)
	}
}

// bytes returns what must be the same on every engine: all events with their positions, the root of the log, the state,
// root and chain of each aggregate, and what was found, waits and was derived.
func (h *house) bytes() (lines []string) {
	h.t.Helper()
	exported, _, _ := bytes.Cut(h.ask("GET", "prod", "/_admin/export", ""), []byte(`{"checkpoint":`))
	lines = strings.Split(string(exported), "\n")
	note, _, _ := strings.Cut(string(h.ask("GET", "prod", "/_audit/checkpoint", "")), "\n\n") // without its signatures
	lines = append(lines, note)
	for line := range strings.Lines(string(h.ask("GET", "prod", "/_admin/export?of=aggregates", ""))) {
		var aggregate struct{ Key string }
		h.decode([]byte(line), &aggregate)
		path := "/" + strings.Replace(aggregate.Key, ":", "/", 1)
		for _, of := range []string{"", "/audit/merkle-root", "/audit/verify-chain"} {
			status, answer := h.try("GET", "prod", path+of, "", "")
			lines = append(lines, fmt.Sprintf("%s%s: %d %s", path, of, status, answer))
		}
	}
	for _, path := range []string{
		"/_events?count=5&tags=tier:gold", "/_admin/scheduled?status=pending", "/_projections/of_tier?tier=gold",
	} {
		answer := regexp.MustCompile(`"cached_at":\d+,`).ReplaceAll(h.ask("GET", "prod", path, ""), nil)
		lines = append(lines, path+": "+string(answer))
	}
	return lines
}
