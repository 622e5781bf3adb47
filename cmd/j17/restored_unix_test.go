//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
)

// bookingSpec has events with tags, and names that one guest alone may have.
const bookingSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"guest": {"events": {
		"was_seated": {"schema": {"type": "object"}, "handler": [], "tags": {"seat": "$.data.seat"}, "unique": {"name": {"value": "$.data.name"}}}
	}}}
}`

// TestDecisionsAfterARestore makes a backup and restores it. The first requests to the new server are judged by what is
// in it: a value that somebody has is taken, and an event that must not have happened is seen, as soon as the tags of
// the restored events are there again. Until then such a write is asked to come again.
func TestDecisionsAfterARestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, restored, specFile := filepath.Join(dir, "data"), filepath.Join(dir, "restored"),
		filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(bookingSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) *process {
		t.Helper()
		p, err := startDev(t, dir, args...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	type answer struct {
		StreamID string   `json:"stream_id"`
		Code     j17.Code `json:"code"`
		Details  struct {
			Matched  []string `json:"matched"`
			Position string   `json:"position"`
		} `json:"details"`
	}
	guests := 0
	seat := func(p *process, name, seat, conditions string) (status int, a answer) {
		t.Helper()
		guests++
		path := fmt.Sprintf("/guest/550e8400-e29b-41d4-a716-4466554400%02d/was_seated", guests)
		body := fmt.Sprintf(`{"data":{"name":%q,"seat":%q},%s"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440000"}}}`, name, seat, conditions)
		return requested(t, p, "POST", "prod", path, p.ready.Keys["prod"].Write, body, &a), a
	}
	free := func(seat, after string) string {
		return fmt.Sprintf(`"conditions":[{"fail_if_events_match":{"tags":["seat:%s"]}%s}],`, seat, after)
	}

	// One guest sits somewhere, and that is backed up.
	p := start(specFile, "--data", data)
	status, first := seat(p, "Ada", "1", free("1", ""))
	if status != http.StatusCreated {
		t.Fatalf("a seat that is free: %d, %+v", status, first)
	}
	token := operatorToken(t, p)
	if b := endOfBackup(t, p, token, askBackup(t, p, token)); b.Status != "completed" {
		t.Fatalf("%+v", b)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, out := backupCommand(t, "restore", data+"-backups", "--data", restored); code != exitOK {
		t.Fatal(code, out)
	}

	// The name is taken there from the first moment on.
	p = start("--data", restored)
	if status, a := seat(p, "Ada", "2", ""); status != http.StatusConflict || a.Code != j17.CodeNotUnique {
		t.Errorf("a name that another guest has: %d, %+v", status, a)
	}

	// So is the seat.
	system := clock.System{}
	var a answer
	for deadline := system.Now().Add(patience); ; {
		if status, a = seat(p, "Ben", "1", free("1", "")); a.Code != j17.CodeIndexNotReady ||
			system.Now().After(deadline) {
			break
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if status != http.StatusConflict || a.Code != j17.CodeConditionFailed ||
		!slices.Equal(a.Details.Matched, []string{first.StreamID}) {
		t.Fatalf("a seat that is taken: %d, %+v; the first guest is at %s", status, a, first.StreamID)
	}

	// What nothing speaks against is stored, behind what was restored.
	if status, a = seat(p, "Ben", "1", free("1", `,"after":"`+a.Details.Position+`"`)); status != http.StatusCreated {
		t.Errorf("under a condition that holds: %d, %+v", status, a)
	}
	if status, a = seat(p, "Cid", "3", free("3", "")); status != http.StatusCreated {
		t.Errorf("another seat: %d, %+v", status, a)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// listedSpec has a list whose rows are kept in an index.
const listedSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"guest": {"events": {
		"was_seated": {"schema": {"type": "object"}, "handler": {"set": {"target": "", "value": "$.data"}}}
	}}},
	"projections": {"seats": {"for_each": "guest", "sources": {"guest": "$key"}, "select": {"name": "$.guest.name"}, "index": ["name"]}}
}`

// TestErasureBehindAnIndex erases an aggregate after a backup whose index shows it. The backup can be verified and
// restored, where nobody keeps indexes up to date, and the restored list does not show what was erased.
func TestErasureBehindAnIndex(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, restored, specFile := filepath.Join(dir, "data"), filepath.Join(dir, "restored"),
		filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(listedSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, specFile, "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	const erased, kept = "/guest/550e8400-e29b-41d4-a716-446655440001", "/guest/550e8400-e29b-41d4-a716-446655440002"
	for path, name := range map[string]string{erased: "Quetzalcoatl", kept: "Ben"} {
		body := fmt.Sprintf(`{"data":{"name":%q},"metadata":{"actor":{"type":"user","id":"global"}}}`, name)
		if s := requested(
			t, p, "POST", "prod", path+"/was_seated", p.ready.Keys["prod"].Write, body, nil,
		); s != http.StatusCreated {
			t.Fatalf("a write: %d", s)
		}
	}
	type list struct {
		Rows []struct {
			Data struct{ Name any } `json:"data"`
		} `json:"rows"`
	}
	system := clock.System{}
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := system.Now().Add(patience); !done(); {
			if system.Now().After(deadline) {
				t.Fatal(what)
			}
			if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
	}
	listed := func(query string) (all list) {
		t.Helper()
		until("the list is not there", func() bool {
			s := requested(t, p, "GET", "prod", "/_projections/seats"+query, p.ready.Keys["prod"].Read, "", &all)
			if s != http.StatusOK && s != http.StatusServiceUnavailable {
				t.Fatalf("the list %s: %d", query, s)
			}
			return s == http.StatusOK
		})
		return all
	}
	if all := listed("?name=Quetzalcoatl"); len(all.Rows) != 1 {
		t.Fatalf("before the erasure: %+v", all)
	}

	// A backup has the index as it is, and the erasure is noted beside it.
	token := operatorToken(t, p)
	if b := endOfBackup(t, p, token, askBackup(t, p, token)); b.Status != "completed" {
		t.Fatalf("%+v", b)
	}
	askErasure(t, p, token, erased)
	until("the erasure is not noted", func() bool {
		noted, err := filepath.Glob(filepath.Join(data+"-backups", "erasures", "*", "*", "*"))
		return err == nil && len(noted) > 0
	})
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if code, out := backupCommand(t, "verify", data+"-backups"); code != exitOK {
		t.Fatal(code, out)
	}
	if code, out := backupCommand(t, "restore", data+"-backups", "--data", restored); code != exitOK {
		t.Fatal(code, out)
	}
	if inFolder(t, restored, "Quetzalcoatl") {
		t.Error("what was erased is in the restored folder")
	}
	if p, err = startDev(t, dir, "--data", restored); err != nil {
		t.Fatal(err)
	}
	if all := listed("?name=Quetzalcoatl"); len(all.Rows) != 0 {
		t.Errorf("what was erased is found: %+v", all)
	}
	if all := listed(""); len(all.Rows) != 2 {
		t.Errorf("the list is not whole: %+v", all)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestRepeatedRequestsAfterARestore erases an aggregate after a backup and restores that, as it was and as of a moment
// before its end. A client that repeats the request by which the aggregate came to its data does not bring them back;
// one whose data are there gets its first reply.
func TestRepeatedRequestsAfterARestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, specFile := filepath.Join(dir, "data"), filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(listedSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, specFile, "--data", data)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		StreamID string   `json:"stream_id"`
		Code     j17.Code `json:"code"`
	}
	write := func(path, key, name string) (int, answer) {
		t.Helper()
		body := fmt.Sprintf(`{"data":{"name":%q},"metadata":{"actor":{"type":"user","id":"global"}}}`, name)
		req, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, p.url+path+"/was_seated", strings.NewReader(body),
		)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = strings.TrimPrefix(p.ready.URLs["prod"], "http://")
		req.Header.Set("Authorization", "Bearer "+p.ready.Keys["prod"].Write)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it is decoded
		var a answer
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, a
	}
	const erased, kept, later = "/guest/550e8400-e29b-41d4-a716-446655440001", "/guest/550e8400-e29b-41d4-a716-446655440002", "/guest/550e8400-e29b-41d4-a716-446655440003"
	var first answer
	for _, w := range []struct{ path, key, name string }{
		{erased, "one", "Quetzalcoatl"}, {kept, "two", "Ben"}, {later, "three", "Cid"},
	} {
		s, a := write(w.path, w.key, w.name)
		if s != http.StatusCreated {
			t.Fatalf("a write: %d, %+v", s, a)
		}
		if w.path == kept {
			first = a
		}
	}

	// The erasure is noted beside the backup.
	token := operatorToken(t, p)
	if b := endOfBackup(t, p, token, askBackup(t, p, token)); b.Status != "completed" {
		t.Fatalf("%+v", b)
	}
	at := askErasure(t, p, token, erased)
	awaitErasure(t, p, token, at)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	for name, args := range map[string][]string{"whole": nil, "earlier": {"--position", first.StreamID}} {
		restored := filepath.Join(dir, name)
		if code, out := backupCommand(
			t, append([]string{"restore", data + "-backups", "--data", restored}, args...)...,
		); code != exitOK {
			t.Fatal(name, code, out)
		}
		if p, err = startDev(t, dir, "--data", restored); err != nil {
			t.Fatal(err)
		}
		if s, a := write(erased, "one", "Quetzalcoatl"); s != http.StatusConflict ||
			a.Code != j17.CodeIdempotencyErased {
			t.Errorf("%s: what was erased, once more: %d, %+v", name, s, a)
		}
		if s, a := write(kept, "two", "Ben"); s != http.StatusCreated || a != first {
			t.Errorf("%s: what is there, once more: %d, %+v; the first reply was %+v", name, s, a, first)
		}

		// What is not there at the earlier moment is written.
		if s, a := write(later, "three", "Cid"); s != http.StatusCreated {
			t.Errorf("%s: what came later: %d, %+v", name, s, a)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if inFolder(t, restored, "Quetzalcoatl") {
			t.Errorf("%s: what was erased is in the folder", name)
		}
	}
}
