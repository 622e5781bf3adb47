package httpapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	shapes "j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// holding is a part that keeps something of streams, and does this when it is to remove it.
func holding(do func() error) part.Part {
	return part.Part{Erase: part.Erase{Streams: func(context.Context, j17.Tenant, part.Erased) error { return do() }}}
}

// TestErasedPlacesGo follows what is around a point while an aggregate there is erased. Its events are replaced first,
// which its followers are told; that its place is let go of after that is no event, and they hear of it all the same.
func TestErasedPlacesGo(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		compiled, found := spec.Compile([]byte(geofenceSpec))
		if compiled == nil {
			t.Fatal(found)
		}
		var a *administration
		var views []*client
		a = administerWith(t, func(o *httpapi.Options) {
			st, ok := o.Store.(store.Store)
			if !ok {
				t.Fatal("the fixture's store is not whole")
			}
			app, _ := o.Registry.Instances.ByName("app")
			o.Engine.Deploy(j17.TenantOf(app.ID, j17.Prod), compiled, nil)
			o.Erasures = erasing(o, st, o.Engine, o.Engine.Part(), holding(func() error {
				for _, c := range views {
					if got := c.nextRow(t); got != "row "+noteA {
						t.Errorf("once the events are replaced: %s", got)
					}
				}
				return nil
			}), part.Part{Erase: part.Erase{Streams: o.Places.Erase}})
		})
		for _, id := range []string{noteA, noteB} {
			a.write(t, id+"/was_written", `{"text":"a","place":{"lat":50,"lng":10}}`)
		}
		p := a.serve(t)
		for _, path := range []string{"/note/nearby/stream?lat=50&lng=10&radius=5000", "/note/within/stream?box=49.9,9,50.1,11", "/_projections/vans/_stream?near=50,10&radius=5000"} {
			c := a.stream(t, p, path)
			if got := []string{c.nextRow(t), c.nextRow(t), c.nextRow(t)}; !slices.Equal(got, []string{
				"row " + noteA, "row " + noteB, "ready",
			}) {
				t.Fatalf("%s: %q", path, got)
			}
			views = append(views, c)
		}

		var made shapes.TombstoneShown
		if err := json.Unmarshal([]byte(a.ops(t, "POST", "tombstone/note/"+noteA, "").body), &made); err != nil {
			t.Fatal(err)
		}
		a.ops(t, "POST", "tombstones/"+made.Tombstone.ID+"/execute", `{"force":true}`).wants(t, 202)
		if err := a.Erasures.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended, machine := make(chan error, 1), clock.System{}
		go func() { // after a minute of the bubble what has not come does not
			ended <- machine.Wait(t.Context(), machine.Now().Add(time.Minute))
			a.Drain()
		}()
		for i, c := range views {
			if got := c.nextRow(t); got != "gone "+noteA {
				t.Errorf("view %d: %s", i, got)
			}
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// TestTombstones goes through the life of tombstones by HTTP, and through what is refused.
func TestTombstones(t *testing.T) {
	t.Parallel()
	a := administer(t)
	const who = "550e8400-e29b-41d4-a716-446655440009"
	if got := a.do(t, "POST", "/note/"+who+"/was_written", `{"data":{"text":"x"},"metadata":{"actor":{"type":"user","id":"`+who+`"}}}`); got.status != 201 {
		t.Fatal(got)
	}
	ask := func(method, target, body string, status int) shapes.Tombstone {
		got := a.ops(t, method, target, body)
		var shown shapes.TombstoneShown
		if got.status != status || json.Unmarshal([]byte(got.body), &shown) != nil {
			t.Fatalf("%s %s: %d %s, want %d", method, target, got.status, got.body, status)
		}
		return shown.Tombstone
	}

	// A dry run, and what is no request.
	dry := a.ops(t, "POST", "tombstone/note/"+who+"?dry_run=true", "")
	if want := `{"ok":true,"dry_run":true,"affected_streams":[{"key":"note:` + who + `","event_count":1,"action":"tombstoned"}]}`; dry.body != want {
		t.Errorf("%d %s\nwant %s", dry.status, dry.body, want)
	}
	for body, path := range map[string]string{
		`{"grace_period_days":-1}`: "grace_period_days", `{"grace_period_days":"7"}`: "grace_period_days",
		`{"legal_basis":5}`: "legal_basis",
		`{"nonsense":1}`:    "nonsense", `{"requested_by":"me"}`: "requested_by", `{"again":1}`: "again",
	} {
		if got := a.ops(t, "POST", "tombstone/note/"+who, body); got.status != 400 || got.member(t, "path") != path {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}

	for body, want := range map[string]string{
		`{"grace_period_days":1000.0}`:               "'grace_period_days' must be a whole number in digits alone, and not too large, not 1000.0",
		`{"grace_period_days":[3]}`:                  "'grace_period_days' must be a whole number in digits alone, and not too large, not an array",
		`{"legal_basis":5}`:                          "'legal_basis' must be a string, not a number",
		`{"request_id":{}}`:                          "'request_id' must be a string, not an object",
		`{"again":"yes"}`:                            "'again' must be true or false, not a string",
		`{"legal_basis":true}`:                       "'legal_basis' must be a string, not true or false",
		`{"grace_period_days":99999999999999999999}`: "'grace_period_days' must be a whole number in digits alone, and not too large, not 99999999999999999999",
	} {
		if got := a.ops(t, "POST", "tombstone/note/"+who, body); got.member(t, "error") != want {
			t.Errorf("%s: %s", body, got.member(t, "error"))
		}
	}

	// Its life.
	made := ask("POST", "tombstone/note/"+who, `{"request_id":"R1"}`, 201)
	if got := a.ops(t, "POST", "tombstone/note/"+who, ""); got.status != 409 || got.member(t, "code") != "conflict" ||
		!strings.Contains(got.body, made.ID) {
		t.Errorf("%d %s", got.status, got.body)
	}
	early := a.ops(t, "POST", "tombstones/"+made.ID+"/execute", "")
	if raw, _ := json.Marshal(made.ExecutableAt); early.status != 409 || early.member(t, "code") != "grace_period" ||
		!strings.Contains(early.body, string(raw)) {
		t.Errorf("%d %s", early.status, early.body)
	}
	if got := a.ops(t, "GET", "tombstones/"+made.ID+"/certificate", ""); got.status != 409 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for query, want := range map[string]int{"": 409, "?force=false": 409, "?force=perhaps": 400} {
		if got := a.ops(t, "POST", "tombstones/"+made.ID+"/execute"+query, ""); got.status != want {
			t.Errorf("%q: %d %s", query, got.status, got.body)
		}
	}
	if begun := ask("POST", "tombstones/"+made.ID+"/execute?force=true", "", 202); begun.Status != "executing" ||
		!begun.Forced {
		t.Errorf("begun is %+v", begun)
	}
	if err := a.Erasures.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := ask("GET", "tombstones/"+made.ID, "", 200); done.Status != "completed" || *done.RequestID != "R1" {
		t.Errorf("done is %+v", done)
	}
	note := a.ops(t, "GET", "tombstones/"+made.ID+"/certificate", "")
	if note.status != 200 || note.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
		!strings.HasPrefix(note.body, "j17 erasure certificate\n{") {
		t.Errorf("%d %v %s", note.status, note.header, note.body)
	}
	if got := a.ops(t, "GET", "tombstones/"+made.ID+"/streams", ""); !strings.Contains(got.body, `{"ok":true,"streams":[{"key":"note:`+who+`","event_count":1,"action":"tombstoned","root_before":"`) || !strings.HasSuffix(got.body, `"next":null}`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := a.ops(t, "DELETE", "tombstones/"+made.ID, ""); got.status != 409 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, query := range []string{
		"event=_was_tombstoned", "type=note&event=_was_tombstoned", "types=note._was_tombstoned",
	} {
		// no spec mentions it
		if got := a.do(t, "GET", "/_events?"+query, ""); got.status != 200 || strings.Count(got.body, made.ID) != 1 {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}

	// Lists, and what is not there.
	if got := a.ops(t, "GET", "tombstones?status=completed", ""); !strings.Contains(got.body, made.ID) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "tombstones?status=nonsense", ""); got.status != 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, at := range []string{
		"GET tombstones/x", "DELETE tombstones/x", "POST tombstones/x/execute", "GET tombstones/x/certificate",
		"GET tombstones/x/streams", "POST tombstone/note/" + strings.Replace(who, "9", "8", 1),
	} {
		method, target, _ := strings.Cut(at, " ")
		if got := a.ops(t, method, target, ""); got.status != 404 {
			t.Errorf("%s: %d %s", at, got.status, got.body)
		}
	}
}
