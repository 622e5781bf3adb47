package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/storage/postgres/pgtest"
)

// erasing is a server for others on PostgreSQL that is killed while it erases.
type erasing struct {
	*process

	database *database
	// flags are those of the server beside those of the database.
	flags []string
	// key and token are those of somebody who writes, and of the operator.
	key, token string
}

// eraser starts such a server for the first time.
func eraser(t *testing.T) *erasing {
	t.Helper()
	e := &erasing{database: newDatabaseOn(t, pgtest.Start(t))}
	password := filepath.Join(t.TempDir(), "operator")
	if err := os.WriteFile(password, []byte("a long password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.flags = []string{
		"--data", t.TempDir(), "--erasure-every", "24h", "--operator-email", "ann@example.com",
		"--operator-password-file", password,
	}
	e.start(t)

	// An instance with a spec and a key.
	var instance, key struct{ ID, Key string }
	spec := `{"agent_types":["user"],"aggregate_types":{"user":{"events":{"had_visit":{"schema":{"type":"object"},"handler":[{"increment":{"target":"visits","value":1}}]}}}}}`
	for _, ask := range []struct {
		path, body string
		into       any
	}{
		{"", `{"name":"shop"}`, &instance},
		{"/%s/spec", `{"spec":` + spec + `}`, nil},
		{"/%s/keys", `{"name":"k","scope":"write","environment":"prod"}`, &key},
	} {
		path := "/api/instances" + strings.ReplaceAll(ask.path, "%s", instance.ID)
		if s := requested(t, e.process, "POST", "control", path, e.token, ask.body, ask.into); s >= 300 {
			t.Fatalf("%s: %d", path, s)
		}
	}
	e.key = key.Key
	return e
}

// start starts the server.
func (e *erasing) start(t *testing.T) {
	t.Helper()
	e.process, _ = e.database.serveOn(t, e.flags...)
	e.ready.URLs = map[string]string{"control": "http://control.example.test", "prod": "http://shop.example.test"}
	e.ready.Operator.Email, e.ready.Operator.Password = "ann@example.com", "a long password"
	e.token = operatorToken(t, e.process)
}

// write writes events with a word to an aggregate.
func (e *erasing) write(t *testing.T, id, word string) {
	t.Helper()
	event := `{"type":"had_visit","data":{"word":"` + word + `","fill":"` + strings.Repeat("x", 200) + `"}}`
	body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event+",", visits), ",") + `],"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`
	if s := requested(t, e.process, "POST", "prod", "/user/"+id, e.key, body, nil); s != http.StatusCreated {
		t.Fatalf("a write: %d", s)
	}
}

// visits is how many events an aggregate has.
const visits = 500

// shows checks the events of an aggregate and its state: all of them have a word, or all are erased.
func (e *erasing) shows(t *testing.T, id, word string) {
	t.Helper()
	var page struct{ Events []json.RawMessage }
	var state struct{ Data struct{ Visits int } }
	for path, into := range map[string]any{"/events?count=1000": &page, "": &state} {
		if s := requested(t, e.process, "GET", "prod", "/user/"+id+path, e.key, "", into); s != http.StatusOK {
			t.Fatalf("/user/%s%s: %d", id, path, s)
		}
	}
	with, erased := 0, 0
	for _, event := range page.Events {
		if word != "" && strings.Contains(string(event), word) {
			with++
		}
		if strings.Contains(string(event), `"_was_tombstoned"`) {
			erased++
		}
	}
	want := [3]int{visits, 0, visits}
	if word == "" {
		want = [3]int{0, visits, 0}
	}
	if got := [3]int{with, erased, state.Data.Visits}; len(page.Events) != visits || got != want {
		t.Errorf("of %d events of %s %d have %q and %d are erased; the state counts %d", len(page.Events), id, with, word, erased, state.Data.Visits)
	}
}

// tombstone returns an erasure.
func (e *erasing) tombstone(t *testing.T, at string) wire.Tombstone {
	t.Helper()
	var shown wire.TombstoneShown
	if s := requested(t, e.process, "GET", "prod", at, e.token, "", &shown); s != http.StatusOK {
		t.Fatalf("%s: %d", at, s)
	}
	return shown.Tombstone
}

// waits waits until an erasure waits for the rewrite of tables, and returns until when.
func (e *erasing) waits(t *testing.T, at string) time.Time {
	t.Helper()
	system := clock.System{}
	for deadline := system.Now().Add(patience); ; {
		shown := e.tombstone(t, at)
		if p := shown.Progress; shown.Status == "executing" && p != nil && p.Until != nil {
			return *p.Until
		}
		if shown.Status == "completed" || system.Now().After(deadline) {
			t.Fatalf("it does not wait: %+v\n%s", shown, e.err.String())
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// kill kills the server.
func (e *erasing) kill(t *testing.T) {
	t.Helper()
	if err := e.end(syscall.SIGKILL); err == nil {
		t.Fatal("the server has ended by itself")
	}
}

// cut starts the server, and kills it some time after it has begun to rewrite tables, ready or not. It reports whether
// that had not ended; done says that there is nothing to rewrite any longer.
func (e *erasing) cut(t *testing.T, after time.Duration) (halfway, done bool) {
	t.Helper()
	cmd, system := e.database.serving(t, e.flags...), clock.System{}
	runs := func() int { return ask[int](t, e, "SELECT sum(run)::int FROM $.cells") }
	before := runs()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := system.Now().Add(patience); !done && runs() == before; {
		done = ask[bool](t, e, "SELECT bool_and(wanted = copied) FROM $.cells")
		if system.Now().After(deadline) {
			t.Fatal("no table is rewritten")
		}
	}
	if err := system.Wait(t.Context(), system.Now().Add(after)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it ends by the signal
	return ask[bool](t, e, "SELECT bool_or(holder <> 0) FROM $.cells"), done
}

// ask returns the one value that a query finds in the tables of the server, which are those of the schema $.
func ask[T any](t *testing.T, e *erasing, sql string) T {
	t.Helper()
	return pgtest.Ask[T](t, e.database.server, strings.ReplaceAll(sql, "$.", e.database.schema+"."))
}

// What a day that passes is for erasures: the last rewrite of tables was a day earlier, and so is what is due.
const (
	dayOfCells = `UPDATE $.cells SET rewritten = rewritten - 86400 * 1000000000::bigint WHERE rewritten > 0`
	dayOfItems = `UPDATE $.items SET due = due - 86400 * 1000000000::bigint
		WHERE due > 0 AND space = (SELECT space FROM $.spaces WHERE name = 'erasure.executions')`
)

// TestKillEndsNoErasureOnPostgres kills a server while an erasure waits for the rewrite of tables, and again and again
// while they are rewritten. The erasure goes on by itself: it waits until the same time, what was erased stays erased,
// and what others have written is whole. At its end there is a certificate, and nothing of what was erased is in the
// files of the database.
func TestKillEndsNoErasureOnPostgres(t *testing.T) {
	t.Parallel()
	e := eraser(t)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	const kept, stays = "00000000-0000-4000-8000-000000000000", "Tezcatlipoca"
	e.write(t, kept, stays)

	// The first erasure waits for nothing. The others would wait for a day after it.
	id := func(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n) }
	e.write(t, id(1), "first")
	at := askErasure(t, e.process, e.token, "/user/"+id(1))
	awaitErasure(t, e.process, e.token, at)
	files := pgtest.Ask[string](t, e.database.server, "SHOW data_directory")
	cuts, halfway := 0, 0
	for round := range rounds(2, 20) {
		id, word := id(round+2), fmt.Sprintf("Quetzalcoatl%016x", rng.Uint64())
		e.write(t, id, word)
		e.shows(t, id, word)
		at := askErasure(t, e.process, e.token, "/user/"+id)
		until := e.waits(t, at)
		e.kill(t)
		e.start(t)
		e.shows(t, id, "")
		e.shows(t, kept, stays)
		if again := e.waits(t, at); !again.Equal(until) {
			t.Errorf("it waits until %v, and did until %v", again, until)
		}
		if s := requested(
			t, e.process, "GET", "prod", at+"/certificate", e.token, "", nil,
		); s != http.StatusConflict {
			t.Errorf("its certificate while it waits: %d", s)
		}
		if !inFolder(t, files, word) {
			t.Error("the word is nowhere, although it waits")
		}

		// The day is over, and the rewrite begins. Kill the server at some moments of it.
		e.kill(t)
		for _, sql := range []string{dayOfCells, dayOfItems} {
			e.database.server.Exec(t, strings.ReplaceAll(sql, "$.", e.database.schema+"."))
		}
		for done := false; cuts < 3*(round+1) && !done; cuts++ {
			var half bool
			if half, done = e.cut(t, time.Duration(rng.IntN(100))*time.Millisecond); half {
				halfway++
			}
		}
		e.start(t)
		e.shows(t, id, "")
		e.shows(t, kept, stays)
		awaitErasure(t, e.process, e.token, at)
		e.shows(t, id, "")
		e.shows(t, kept, stays)
		if s := requested(t, e.process, "GET", "prod", at+"/certificate", e.token, "", nil); s != http.StatusOK {
			t.Errorf("its certificate: %d", s)
		}
		if inFolder(t, files, word) {
			t.Error("erased data are in the files of the database")
		}
	}
	if t.Logf("%d of %d times a rewrite was half done when the server was killed", halfway, cuts); halfway == 0 {
		t.Error("no rewrite was cut short")
	}
	if err := e.end(syscall.SIGTERM); err != nil {
		t.Error(err, e.err.String())
	}
}
