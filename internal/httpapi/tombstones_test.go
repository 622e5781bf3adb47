package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	shapes "j17/internal/wire"
)

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
		`{"grace_period_days":-1}`: "grace_period_days", `{"grace_period_days":"7"}`: "grace_period_days", `{"legal_basis":5}`: "legal_basis",
		`{"nonsense":1}`: "nonsense", `{"requested_by":"me"}`: "requested_by", `{"again":1}`: "again",
	} {
		if got := a.ops(t, "POST", "tombstone/note/"+who, body); got.status != 400 || got.member(t, "path") != path {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}

	// Its life.
	made := ask("POST", "tombstone/note/"+who, `{"request_id":"R1"}`, 201)
	if got := a.ops(t, "POST", "tombstone/note/"+who, ""); got.status != 409 || got.member(t, "code") != "conflict" || !strings.Contains(got.body, made.ID) {
		t.Errorf("%d %s", got.status, got.body)
	}
	early := a.ops(t, "POST", "tombstones/"+made.ID+"/execute", "")
	if raw, _ := json.Marshal(made.ExecutableAt); early.status != 409 || early.member(t, "code") != "grace_period" || !strings.Contains(early.body, string(raw)) {
		t.Errorf("%d %s", early.status, early.body)
	}
	if got := a.ops(t, "GET", "tombstones/"+made.ID+"/certificate", ""); got.status != 409 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if begun := ask("POST", "tombstones/"+made.ID+"/execute", `{"force":true}`, 202); begun.Status != "executing" || !begun.Forced {
		t.Errorf("begun is %+v", begun)
	}
	if err := a.Erasures.Queue().Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := ask("GET", "tombstones/"+made.ID, "", 200); done.Status != "completed" || *done.RequestID != "R1" {
		t.Errorf("done is %+v", done)
	}
	note := a.ops(t, "GET", "tombstones/"+made.ID+"/certificate", "")
	if note.status != 200 || note.header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasPrefix(note.body, "j17 erasure certificate\n{") {
		t.Errorf("%d %v %s", note.status, note.header, note.body)
	}
	if got := a.ops(t, "GET", "tombstones/"+made.ID+"/streams", ""); !strings.Contains(got.body, `{"ok":true,"streams":[{"key":"note:`+who+`","event_count":1,"action":"tombstoned","root_before":"`) || !strings.HasSuffix(got.body, `"next":null}`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := a.ops(t, "DELETE", "tombstones/"+made.ID, ""); got.status != 409 {
		t.Errorf("%d %s", got.status, got.body)
	}

	// Lists, and what is not there.
	if got := a.ops(t, "GET", "tombstones?status=completed", ""); !strings.Contains(got.body, made.ID) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := a.ops(t, "GET", "tombstones?status=nonsense", ""); got.status != 400 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, at := range []string{"GET tombstones/x", "DELETE tombstones/x", "POST tombstones/x/execute", "GET tombstones/x/certificate", "GET tombstones/x/streams", "POST tombstone/note/" + strings.Replace(who, "9", "8", 1)} {
		method, target, _ := strings.Cut(at, " ")
		if got := a.ops(t, method, target, ""); got.status != 404 {
			t.Errorf("%s: %d %s", at, got.status, got.body)
		}
	}
}
