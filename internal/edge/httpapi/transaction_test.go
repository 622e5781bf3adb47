package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	shapes "j17/internal/base/wire"
	"j17/internal/lang/spec"
)

const ledgerSpec = `{
	"agent_types": ["user"], "project_key": "LED",
	"aggregate_types": {
		"account": {"identity": {"sequence": true, "handle": "acc"}, "events": {
			"was_opened": {"schema": {"type": "object"}, "handler": [{"set": {"target": "", "value": "$.data"}}]},
			"had_move": {"schema": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}, "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}],
				"implications": [{"emit": {"aggregate_type": "journal", "id": "global", "event_type": "had_entry", "data": {"of": "$.key"}}}]}}},
		"journal": {"events": {"had_entry": {"schema": {"type": "object"}, "handler": [{"append": {"target": "entries", "value": "$.data.of"}}]}}}
	}
}`

func newLedger(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb, nil)
	compiled, found := spec.Compile([]byte(ledgerSpec))
	if compiled == nil {
		tb.Fatal(found)
	}
	f.Engine.Deploy(j17.TenantOf(f.instance.ID, j17.Prod), compiled, nil)
	return f
}

// transact sends a transaction whose writes are those of the text.
func (f *fixture) transact(tb testing.TB, writes string, headers ...string) answer {
	tb.Helper()
	return f.do(tb, "POST", "/_transaction", `{"writes":[`+writes+`],`+actor+`}`, headers...)
}

const (
	anAccount      = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	anotherAccount = "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"
)

func TestTransactions(t *testing.T) {
	f := newLedger(t)

	// All of it is written, in the order given, and a retry gets the same answer.
	writes := `{"key":"account:_new","as":"a","events":[{"type":"was_opened"},{"type":"had_move","data":{"amount":2}}]},
		{"key":"account:` + anAccount + `","previous_length":0,"events":[{"type":"was_opened","data":{"by":"$.new.a"}}]},
		{"key":"journal:$.new.a","events":[{"type":"had_entry","data":{"of":["$.new.a"]}}]}`
	first := f.transact(t, writes, "Idempotency-Key: k")
	var got shapes.TransactionWritten
	if err := json.Unmarshal([]byte(first.body), &got); err != nil || first.status != 201 {
		t.Fatal(first, err)
	}
	if len(got.Writes) != 3 || got.Count != 4 || got.ImpliedCount != 1 {
		t.Fatalf("%+v", got)
	}
	made, other, journal := got.Writes[0], got.Writes[1], got.Writes[2]
	if made.Key != "account:"+made.ID || made.As != "a" || made.PublicID != "LED-1" || made.Handle == "" ||
		made.Count != 2 || made.Length != 2 || len(made.StreamIDs) != 2 {
		t.Errorf("%+v", made)
	}
	if other.ID != anAccount || other.As != "" || other.PublicID != "LED-2" || other.Count != 1 || other.Length != 1 {
		t.Errorf("%+v", other)
	}
	if journal.Key != "journal:"+made.ID || journal.Names != (shapes.Names{}) {
		t.Errorf("%+v", journal)
	}
	again := f.transact(t, writes, "Idempotency-Key: k")
	if diff := cmp.Diff(first.body, again.body); diff != "" || again.header.Get("X-Idempotency-Replayed") != "true" {
		t.Error(diff, again.header)
	}
	if reused := f.transact(t, writes+" ", "Idempotency-Key: k"); reused.status != 422 ||
		reused.member(t, "code") != "idempotency_key_reused" {
		t.Error(reused)
	}
	for path, want := range map[string]string{
		"/account/" + anAccount: `"data":{"by":"` + made.ID + `"`,
		"/journal/" + made.ID:   `"entries":[["` + made.ID + `"]]`,
		"/journal/global":       `"entries":["account:` + made.ID + `"]`,
	} {
		if state := f.do(t, "GET", path, ""); !strings.Contains(state.body, want) {
			t.Errorf("%s: %s", path, state.body)
		}
	}

	// Names lead to what is there.
	move := `[{"type":"had_move","data":{"amount":1}}]`
	named := f.transact(
		t, `{"key":"account:LED-2","events":`+move+`},{"key":"account:`+made.Handle+`","events":`+move+`}`,
	)
	if err := json.Unmarshal([]byte(named.body), &got); err != nil || named.status != 201 ||
		got.Writes[0].ID != anAccount || got.Writes[1].ID != made.ID || got.Writes[1].Length != 3 {
		t.Errorf("%v %s", err, named.body)
	}
}

// TestRefusedTransactions checks what each fault is answered with, and that nothing is written.
func TestRefusedTransactions(t *testing.T) {
	f := newLedger(t)
	opened, move := `[{"type":"was_opened"}]`, `[{"type":"was_opened"},{"type":"had_move","data":{"amount":"x"}}]`
	if a := f.transact(t, `{"key":"account:`+anAccount+`","events":`+opened+`}`); a.status != 201 {
		t.Fatal(a)
	}
	fresh := `{"key":"account:_new","events":` + opened + `},`
	for _, tc := range []struct {
		writes string
		want   string // status, code, path, number of the write, number of the event
	}{
		{
			fresh + `{"key":"account:` + anotherAccount + `","events":` + move + `}`,
			"400 validation_failed data.amount 1 1",
		},
		{
			fresh + `{"key":"account:` + anotherAccount + `","events":[{"type":"nothing"}]}`,
			"404 unknown_event_type type 1 0",
		},
		{fresh + `{"key":"nothing:` + anotherAccount + `","events":` + opened + `}`, "404 unknown_aggregate_type writes[1].key <nil> <nil>"},
		{fresh + `{"key":"account:no id","events":` + opened + `}`, "422 invalid_identifier writes[1].key <nil> <nil>"},
		{fresh + `{"key":"account:LED-99","events":` + opened + `}`, "404 aggregate_not_found writes[1].key <nil> <nil>"},
		{
			fresh + `{"key":"account:` + anAccount + `","previous_length":0,"events":` + opened + `}`,
			"409 conflict <nil> 1 <nil>",
		},
		{`{"key":"account:` + anAccount + `","events":` + opened + `},{"key":"account:LED-1","events":` + opened + `}`, "400 invalid_field writes[1].key <nil> <nil>"},
		{`{"key":"account:` + anAccount + `","events":` + opened + `},{"key":"account:` + strings.ToUpper(anAccount) + `","events":` + opened + `}`, "400 invalid_field writes[1].key <nil> <nil>"},
	} {
		a := f.transact(t, tc.writes)
		var m map[string]any
		if err := json.Unmarshal([]byte(a.body), &m); err != nil {
			t.Fatal(err)
		}
		got := strings.Join([]string{
			a.member(t, "status"), a.member(t, "code"), a.member(t, "path"), a.member(t, "write_index"),
			a.member(t, "event_index"),
		}, " ")
		if got != tc.want {
			t.Errorf("%s: %s, want %s\n%s", tc.writes, got, tc.want, a.body)
		}
	}
	for _, header := range []string{`If-Match: "x"`, `If-None-Match: *`} {
		if a := f.transact(t, fresh[:len(fresh)-1], header); a.status != 400 ||
			a.member(t, "code") != "invalid_header" {
			t.Error(header, a)
		}
	}
	if a := f.do(t, "GET", "/account", ""); !strings.Contains(a.body, `"ids":["`+anAccount+`"]`) {
		t.Error(a.body)
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		if a := f.do(t, method, "/_transaction", ""); a.status != 405 || a.header.Get("Allow") != "OPTIONS, POST" {
			t.Error(method, a.status, a.header)
		}
	}
}

// TestTriedTransactions tries what would be written, and what would not.
func TestTriedTransactions(t *testing.T) {
	f := newLedger(t)
	try := func(writes string) answer {
		t.Helper()
		return f.do(t, "POST", "/_transaction?dry_run=true", `{"writes":[`+writes+`],`+actor+`}`)
	}
	fresh := `{"key":"account:_new","as":"a","events":[{"type":"was_opened"}]}`
	good := try(fresh + `,{"key":"account:` + anAccount + `","events":[{"type":"was_opened","data":{"by":"$.new.a"}}]}`)
	var tried shapes.WriteDryRun
	if err := json.Unmarshal([]byte(good.body), &tried); err != nil || good.status != 200 || !tried.Accepted ||
		len(tried.States) != 2 || len(tried.Events) != 2 {
		t.Fatalf("%v %s", err, good.body)
	}
	_, id, _ := strings.Cut(tried.Events[0].Key, ":")
	if string(tried.Events[1].Data) != `{"by":"`+id+`"}` {
		t.Errorf("%s and %s", tried.Events[0].Key, tried.Events[1].Data)
	}
	bad := try(fresh + `,{"key":"account:` + anAccount + `","previous_length":3,"events":[{"type":"was_opened"}]}`)
	if bad.status != 200 || !strings.Contains(bad.body, `"accepted":false`) ||
		!strings.Contains(bad.body, `"code":"conflict"`) || !strings.Contains(bad.body, `"write_index":1`) {
		t.Error(bad.body)
	}
	if a := f.do(t, "GET", "/account", ""); !strings.Contains(a.body, `"ids":[]`) {
		t.Error(a.body)
	}
}
