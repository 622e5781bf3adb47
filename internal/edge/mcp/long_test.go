//go:build !race

package mcp_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"j17/internal/edge/mcp"
)

func TestDryRunEvents(t *testing.T) {
	o := options(t, &running{})
	o.Files = fstest.MapFS{"events.jsonl": {
		Data: []byte(event("was_counted", `{"by":1}`) + "\n" + event("was_counted", `{"by":2}`) + "\n"),
	}}
	o.Spec = func() ([]byte, error) { return []byte(counter), nil }
	s := connect(t, o)
	got := answer[dryRun](
		t, s, "dry_run_events",
		`{"events":[`+event("was_counted", `{"by":0.10}`)+`,`+event("was_counted", `{"by":"x"}`)+`]}`,
	)
	if !got.SpecValid || got.Events != 2 || got.Accepted != 1 || len(got.States) != 1 || len(got.Faults) != 0 ||
		len(got.Findings) != 1 {
		t.Fatalf("%+v", got)
	}
	if f := got.Findings[0]; f.Event != 2 || f.Code != "validation_failed" || f.Pointer != "/data/by" {
		t.Errorf("finding %+v", f)
	}
	if st := got.States[0]; st.Key != "counter:global" || st.Length != 1 ||
		string(st.State) != `{"last":0.10,"all":[0.10],"created_at":1795300000,"updated_at":1795300000}` {
		t.Errorf("state %s", st.State)
	}
	got = answer[dryRun](
		t, s, "dry_run_events", `{"events":[`+event("was_broken", `{}`)+`,`+event("was_counted", `{"by":1}`)+`]}`,
	)
	if len(got.Faults) != 1 || got.Faults[0].Event != 2 || got.Faults[0].Line == 0 || got.Faults[0].Pointer != "/aggregate_types/counter/events/was_counted/handler/1" {
		t.Errorf("faults %+v", got.Faults)
	}
	if got := answer[dryRun](t, s, "dry_run_events", `{"events_file":"events.jsonl"}`); got.Accepted != 2 {
		t.Errorf("a file: %+v", got)
	}
	if got := answer[dryRun](t, s, "dry_run_events", `{"spec":{},"events":[]}`); got.SpecValid || got.Spec == nil ||
		len(got.Spec.Findings) == 0 {
		t.Errorf("a spec that is not valid: %+v", got)
	}
	refused := strings.Repeat(event("was_counted", `{}`)+",", 300)
	if got := answer[dryRun](
		t, s, "dry_run_events", `{"events":[`+strings.TrimSuffix(refused, ",")+`]}`,
	); len(got.Findings) != 100 || got.Omitted != 200 {
		t.Errorf("%d findings, %d omitted", len(got.Findings), got.Omitted)
	}
	large := event("was_counted", `{"by":1,"text":"`+strings.Repeat("x", 9<<20)+`"}`)
	for arguments, want := range map[string]string{
		`{}`: "either",
		`{"events":[],"events_file":"events.jsonl"}`: "either",
		`{"events":{}}`:                                        "must be an array",
		`{"events_file":"../events"}`:                          "only files within",
		`{"events":[` + large + `]}`:                           "more than",
		`{"events":[{}` + strings.Repeat(",{}", 10_000) + `]}`: "10000 can be tried",
	} {
		refusal(t, s, "dry_run_events", arguments, want)
	}
}

func TestDryRunTakesBoundedTime(t *testing.T) {
	o := options(t, &running{})
	o.Clock = hasty{o.Clock}
	o.Spec = func() ([]byte, error) { return []byte(counter), nil }
	s := connect(t, o)
	many := `{"events":[` + event("was_counted", `{"by":1}`) + strings.Repeat(
		","+event("was_counted", `{"by":1}`), 9_999,
	) + `]}`
	refusal(t, s, "dry_run_events", many, "took more than 10 seconds")
}

// TestMalformedMessages sends one bad line after the other, and a good one in the end.
func TestMalformedMessages(t *testing.T) {
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` +
		"\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	for name, tc := range map[string]struct{ line, id, code string }{
		"no JSON":         {"GET / HTTP/1.1\r", "null", "-32700"},
		"JSON that ends":  {`{"jsonrpc":"2.0","id":1`, "null", "-32700"},
		"two on a line":   {`{"jsonrpc":"2.0","id":1,"method":"ping"}{}`, "null", "-32700"},
		"invalid UTF-8":   {"\xff\xfe", "null", "-32700"},
		"a number":        {"17", "null", "-32600"},
		"null":            {"null", "null", "-32600"},
		"no method":       {`{"jsonrpc":"2.0","id":7}`, "7", "-32600"},
		"another version": {`{"jsonrpc":"1.0","id":"a","method":"ping"}`, `"a"`, "-32600"},
		"an object as id": {`{"jsonrpc":"1.0","id":{"a":1},"method":"ping"}`, `{"a":1}`, "-32600"},
		"an empty batch":  {"[]", "null", "-32600"},
		"too long": {
			`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 17<<20) + `"}`, "null", "-32600",
		},
		"an array":          {`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[]}`, "8", "-32602"},
		"a name of numbers": {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}`, "9", "-32602"},
		"no such method":    {`{"jsonrpc":"2.0","id":10,"method":"nope"}`, "10", "-32601"},
		"level":             {`{"jsonrpc":"2.0","id":11,"method":"resources/read","params":{"uri":[]}}`, "11", "-32602"},
		"a pointless init":  {`{"jsonrpc":"2.0","id":12,"method":"initialize","params":{"protocolVersion":7}}`, "12", "-32602"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			in := initialize + tc.line + "\n" + `{"jsonrpc":"2.0","id":99,"method":"ping"}`
			if err := mcp.New(options(t, &running{})).Run(t.Context(), strings.NewReader(in), &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), `{"jsonrpc":"2.0","id":99,"result":{}}`) {
				t.Errorf("what follows is not answered: %s", out.String())
			}
			answered := false
			for line := range strings.Lines(out.String()) {
				var answer struct {
					ID    json.RawMessage
					Error struct {
						Code    json.Number
						Message string
					}
				}
				if err := json.Unmarshal([]byte(line), &answer); err != nil {
					t.Fatal(err)
				}
				if answer.Error.Code == "" {
					continue
				}
				answered = true
				if string(answer.ID) != tc.id || answer.Error.Code.String() != tc.code {
					t.Errorf("id %s and code %s: %s", tc.id, tc.code, line)
				}
				for _, own := range []string{"mcp.", "Go ", "unmarshal", "jsonrpc2"} {
					if strings.Contains(answer.Error.Message, own) {
						t.Errorf("the message shows its inside: %s", answer.Error.Message)
					}
				}
			}
			if !answered {
				t.Errorf("no error: %s", out.String())
			}
		})
	}
}
