//go:build !race

package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
)

var (
	freeze = flag.String("freeze", "", "write the data folder of this `version` into testdata/frozen")
	update = flag.Bool("update", false, "write what servers answer about frozen data into testdata/frozen")
)

// frozenFolder has, for each version that was released, a data folder with its backups, and what a server answers about
// it.
const frozenFolder = "testdata/frozen"

// TestFrozenData opens the data folders of all released versions and reads all kinds of data in them: answers are, byte
// for byte, those of the version that has written them. 'make frozen-data' writes that of a version that is about to be
// released. With -update the answers are written that there are now, for a change that adds something to them; what the
// diff may not have is another root, proof, hash, chain or export.
func TestFrozenData(t *testing.T) {
	if *freeze != "" {
		t.Run("write", func(t *testing.T) { writeFrozen(t, *freeze) })
	}
	archives, err := filepath.Glob(filepath.Join(frozenFolder, "*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatal("there is no frozen data", err)
	}
	for _, file := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			answers, err := filepath.Abs(strings.TrimSuffix(file, ".tar.gz") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir()) // what is stored has names of folders
			unpack(t, raw)
			got := readFrozen(t)
			if *update {
				if err := os.WriteFile(answers, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(answers)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("what a server answers about %s is other than it was:\n%s", file, diff)
			}
		})
	}
}

// past is a clock that runs some time behind, so that what waits for a time in frozen data still waits.
type past struct {
	clock.System

	behind time.Duration
}

func (p past) Now() time.Time { return p.System.Now().Add(-p.behind) }

func (p past) Wait(ctx context.Context, t time.Time) error {
	return p.System.Wait(ctx, t.Add(p.behind))
}

// pastOf is a clock that shows a time now.
func pastOf(at time.Time) past { return past{behind: clock.System{}.Now().Sub(at)} }

// frozenAt is when frozen data begins, and readAt the time for which it is read: within the time for which answers to
// repeated writes are kept.
func frozenAt() time.Time { return time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC) }
func readAt() time.Time   { return frozenAt().Add(20 * time.Hour) }

// house is a development server on a data folder, and an operator who has logged in.
type house struct {
	t     *testing.T
	dev   *server.Dev
	ready server.Ready
	token string
}

// moveIn starts a server on a data folder at a time, and returns what ends it.
func moveIn(t *testing.T, dir string, at time.Time) (h *house, moveOut func()) {
	t.Helper()
	return moveInto(t, dir, at, server.StoreOptions{})
}

// moveInto is moveIn for a server whose store may be on PostgreSQL.
func moveInto(t *testing.T, dir string, at time.Time, on server.StoreOptions) (h *house, moveOut func()) {
	t.Helper()
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: dir, Store: on, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: pastOf(at),
		Logger:           slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		PrivateListeners: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx) }()
	h = &house{t: t, dev: dev, ready: dev.Ready()}
	h.logIn()
	return h, func() {
		t.Helper()
		stop()
		if err := errors.Join(<-ended, dev.Close()); err != nil {
			t.Error(err)
		}
	}
}

// logIn gets the operator a token.
func (h *house) logIn() {
	h.t.Helper()
	var login struct{ Token string }
	h.decode(h.ask(
		"POST", "control", "/api/login",
		fmt.Sprintf(`{"email":%q,"password":%q}`, h.ready.Operator.Email, h.ready.Operator.Password),
	), &login)
	h.token = login.Token
}

// ask sends a request to a site, as an operator or, for what is not administration of an environment, with its key, and
// returns the answer, which must not be a refusal.
func (h *house) ask(method, site, path, body string) []byte {
	h.t.Helper()
	status, answer := h.try(method, site, path, "application/json", body)
	if status >= 300 {
		h.t.Fatalf("%s %s of %s: %d %s", method, path, site, status, answer)
	}
	return answer
}

func (h *house) try(method, site, path, contentType, body string) (status int, answer []byte) {
	h.t.Helper()
	return h.send(method, site, path, contentType, body, "")
}

// send sends a request with a key by which a write can be repeated, "" for none.
func (h *house) send(method, site, path, contentType, body, key string) (status int, answer []byte) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.dev.URL()+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Host = strings.TrimPrefix(h.ready.URLs[site], "http://")
	r.Header.Set("Content-Type", contentType)
	token := h.token
	for env, keys := range h.ready.Keys {
		if string(env) == site && !strings.HasPrefix(path, "/_admin/") && !strings.HasPrefix(path, "/_dev/") {
			token = keys.Write
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if answer, err = io.ReadAll(resp.Body); err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// repeatable writes an event whose answer is kept, and returns the answer.
func (h *house) repeatable() []byte {
	h.t.Helper()
	status, answer := h.send(
		"POST", "prod", "/order/"+numbered(21)+"/was_noted", "application/json", by(ada, `{"text":"once"}`),
		"repeated-1",
	)
	if status >= http.StatusBadRequest {
		h.t.Fatalf("%s", answer)
	}
	return answer
}

func (h *house) decode(answer []byte, into any) {
	h.t.Helper()
	if err := json.Unmarshal(answer, into); err != nil {
		h.t.Fatalf("%v: %.500s", err, answer)
	}
}

// advance moves the clock, and does what is due until then.
func (h *house) advance(by string) { h.ask("POST", "prod", "/_dev/clock/advance", `{"by":"`+by+`"}`) }

// completed waits for a backup.
func (h *house) completed(answer []byte, path string) {
	h.t.Helper()
	var asked, shown struct{ Backup struct{ ID, Status string } }
	for h.decode(answer, &asked); shown.Backup.Status != "completed"; {
		if h.decode(h.ask("GET", "prod", path+"/"+asked.Backup.ID, ""), &shown); shown.Backup.Status == "failed" ||
			h.t.Context().Err() != nil {
			h.t.Fatalf("%s", answer)
		}
		h.advance("100ms")
	}
}

// readFrozen returns what servers answer about the data folder and the backups in the present folder.
func readFrozen(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	h, moveOut := moveIn(t, "data", readAt())
	h.advance("1s")
	h.read(&b)
	fmt.Fprintf(&b, "a repeated write: %s\n", h.repeatable())
	for _, env := range []string{"prod", "staging", "test"} { // what is written behind all that
		var written struct{ Length int }
		h.decode(h.ask("POST", env, "/desk/main_desk/had_ticket", `{"data":{"ticket":"new"},"metadata":{"actor":{"type":"robot","id":"global"}}}`), &written)
		fmt.Fprintf(&b, "%s: an event more, number %d of its aggregate\n", env, written.Length)
	}
	moveOut()

	// Its backups, and the events on a restored server, whose log has a key of its own.
	quiet := slog.New(slog.DiscardHandler)
	repo := repository.OpenFolder(server.DefaultBackups("data"), clock.System{})
	verified, err := server.Verify(t.Context(), server.VerifyOptions{
		Repository: repo, Temp: t.TempDir(), Clock: clock.System{}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%d backups are verified\n", len(verified))
	if _, err := server.Restore(t.Context(), server.RestoreOptions{
		Repository: repo, Dir: "restored", Clock: pastOf(readAt()), Logger: quiet,
	}); err != nil {
		t.Fatal(err)
	}
	h, moveOut = moveIn(t, "restored", readAt())
	exported, _, _ := bytes.Cut(h.ask("GET", "prod", "/_admin/export", ""), []byte(`{"checkpoint":`))
	fmt.Fprintf(&b, "restored: %d bytes, SHA-256 %x\n", len(exported), sha256.Sum256(exported))
	moveOut()
	return b.String()
}

// read writes what there is: the lists of everything, each item of them, and files by their digests.
func (h *house) read(b *strings.Builder) {
	h.t.Helper()

	// The control plane. What is done to read it is no part of it.
	for _, path := range []string{"/api/instances", "/api/operators", "/api/plans", "/api/backups", "/api/backup_settings", "/api/audit?limit=1000&to=2026-12-02T00:00:00Z"} {
		h.show(b, "control", path)
	}
	var instances struct{ Instances []struct{ ID string } }
	h.decode(h.ask("GET", "control", "/api/instances", ""), &instances)
	for _, i := range instances.Instances {
		for _, path := range []string{
			"", "/operators", "/usage?from=2026-11-30&to=2026-12-02", "/keys", "/backup_settings", "/spec/history",
			"/spec",
		} {
			h.show(b, "control", "/api/instances/"+i.ID+path)
		}
	}

	for _, env := range []string{"prod", "staging", "test"} {
		h.readEnvironment(b, env)
	}
}

func (h *house) readEnvironment(b *strings.Builder, env string) {
	h.t.Helper()

	// Events, states, and their proofs.
	h.show(b, env, "/_admin/export")
	h.show(b, env, "/_admin/export?of=aggregates")
	h.show(b, env, "/_audit/checkpoint")
	h.show(b, env, "/_audit/keys")
	h.show(b, env, "/_audit/proof/inclusion?index=3")
	h.show(b, env, "/_audit/proof/consistency?from=3")
	h.show(b, env, "/_events?count=5&tags=tier:gold")
	h.show(b, env, "/_events?count=5&tags=actor:user:"+ada)
	for line := range strings.Lines(string(h.ask("GET", env, "/_admin/export?of=aggregates", ""))) {
		var aggregate struct{ Key string }
		h.decode([]byte(line), &aggregate)
		path := "/" + strings.Replace(aggregate.Key, ":", "/", 1)
		h.show(b, env, path)
		h.show(b, env, path+"/events?count=2")
		h.show(b, env, path+"/audit/merkle-root")
		h.show(b, env, path+"/audit/merkle-proof/0")
		h.show(b, env, path+"/audit/verify-chain")
	}

	// What is derived from events, and whether it is what it has to be.
	for _, path := range []string{
		"/_projections/board?order=author&count=10", "/_projections/board?status=escalated", "/_projections/board?title.words=pump", "/_projections/board/_count",
		"/_projections/of_tier?tier=gold", "/_projections/posted?order=name", "/ticket/nearby?lat=52.5&lng=13.4&radius=5000", "/desk/containing?lat=52.5&lng=13.4",
	} {
		h.show(b, env, path)
	}
	for _, path := range []string{
		"/_admin/projections/board/verify", "/_admin/projections/posted/verify", "/_admin/places/verify",
	} {
		status, answer := h.try("POST", env, path, "application/json", "")
		fmt.Fprintf(b, "%s %s: %d %s\n", env, path, status, bytes.TrimSpace(answer))
	}
	_, answer := h.try(
		"POST", env, "/user/"+numbered(99)+"/was_registered", "application/json",
		registered(ada, "ADA@example.com", "Eve", "gold"),
	)
	var refused struct{ Code string }
	h.decode(answer, &refused)
	fmt.Fprintf(b, "%s: an address of somebody else: %s\n", env, refused.Code)

	// What is kept beside events, item by item.
	for _, list := range [][2]string{
		{"tags"},
		{"spec"},
		{"spec/history"},
		{"projections", "name"},
		{"places"},
		{"blobs", "name"},
		{"listeners"},
		{"deliveries", "id"},
		{"sagas", "saga_id"},
		{"scheduled"},
		{"scheduled/dead_letters"},
		{"implications/failed"},
		{"tombstones", "id"},
		{"checkpoints", "id"},
		{"root-checkpoints", "id"},
		{"root-checkpoint-settings"},
		{"backups", "id"},
		{"audit/keys"},
	} {
		h.show(b, env, "/_admin/"+list[0])
		if list[1] == "" {
			continue
		}
		var shown map[string]json.RawMessage
		h.decode(h.ask("GET", env, "/_admin/"+list[0], ""), &shown)
		var rows []map[string]any
		h.decode(shown[strings.ReplaceAll(list[0], "-", "_")], &rows)
		for _, row := range rows {
			path := fmt.Sprintf("/_admin/%s/%v", list[0], row[list[1]])
			h.show(b, env, path)
			if list[0] == "tombstones" {
				h.show(b, env, path+"/certificate")
				h.show(b, env, path+"/streams")
			}
		}
	}
}

// show writes the answer to a request, of a refusal its code.
func (h *house) show(b *strings.Builder, site, path string) {
	h.t.Helper()
	status, answer := h.try("GET", site, path, "application/json", "")
	short := string(stable(answer))
	var refused struct{ Code string }
	if status >= http.StatusBadRequest {
		h.decode(answer, &refused)
		short = refused.Code
	}
	if len(short) > 20_000 || strings.Contains(short, "\x00") {
		short = fmt.Sprintf("%d bytes, SHA-256 %x", len(short), sha256.Sum256([]byte(short)))
	}
	fmt.Fprintf(b, "%s %s: %d %s\n", site, path, status, strings.TrimSpace(short))
}

// stable takes out of an answer when something was used last or was computed, and puts digests in the place of secrets.
func stable(answer []byte) []byte {
	answer = regexp.MustCompile(`"(last_used_at|cached_at)":\s*("[^"]*"|\w+),?`).ReplaceAll(answer, nil)
	return regexp.MustCompile(`whsec_[\w+/=]+`).ReplaceAllFunc(
		answer, func(secret []byte) []byte { return fmt.Appendf(nil, "digest %x", sha256.Sum256(secret)) },
	)
}

// unpack writes the files of an archive into the present folder.
func unpack(t *testing.T, raw []byte) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zip); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err := errors.Join(
			err, os.MkdirAll(filepath.Dir(header.Name), 0o700), os.WriteFile(header.Name, content, 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
}
