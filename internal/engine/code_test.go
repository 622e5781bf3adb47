package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"j17"
	"j17/internal/engine"
	"j17/internal/sandbox"
	"j17/internal/spec"
)

// coded is custom code written in Go.
type coded struct {
	name string
	run  func(input map[string]any) (string, error)
}

func (c coded) Call(_ context.Context, input []byte) ([]byte, error) {
	var in map[string]any
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	out, err := c.run(in)
	return []byte(out), err
}

func (c coded) Digest() [32]byte { return sha256.Sum256([]byte(c.name)) }

const codedSpec = `{"agent_types": ["user"], "aggregate_types": {
  "order": {"events": {
    "had_line": {"schema": {"type": "object"}, "handler": {"wasm": "sum.wasm"}},
    "was_seen": {"schema": {"type": "object"}, "handler": [{"set": {"target": "seen", "value": true}}]},
    "was_judged": {"schema": {"type": "object"}, "handler": [], "implications": [{"wasm": "judge.wasm"}]},
    "was_enriched": {"schema": {"type": "object"}, "handler": [], "implications": [{"pipeline": [
      {"wasm": {"blob_name": "enrich.wasm", "mode": "transform"}},
      {"emit": {"aggregate_type": "review", "id": "$.desk", "event_type": "was_opened", "data": {"level": "$.level", "order": "$.key"}}}]}]}
  }},
  "review": {"events": {"was_opened": {"schema": {"type": "object", "properties": {"level": {"type": "integer"}}}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}}
}}`

// deployCoded deploys codedSpec with functions for its custom code by the name of their blob.
func deployCoded(t *testing.T, f *fixture, functions map[string]coded) {
	t.Helper()
	c, found := spec.Compile([]byte(codedSpec))
	if c == nil {
		t.Fatal(found)
	}
	loaded := engine.Functions{}
	add := func(code *spec.Code) {
		if fn, ok := functions[code.Artifact]; ok {
			loaded[code] = fn
		}
	}
	for _, et := range c.Types["order"].Events {
		if et.Code != nil {
			add(et.Code)
		}
		for _, imp := range et.Implications {
			for _, step := range append(imp.Pipeline, imp) {
				if step.Code != nil {
					add(step.Code)
				}
			}
		}
	}
	f.Deploy(tenant, c, loaded)
}

// summing adds up amounts and refuses those below zero.
func summing(version string, factor float64) coded {
	return coded{"sum" + version, func(in map[string]any) (string, error) {
		event, _ := in["event"].(map[string]any)
		data, _ := event["data"].(map[string]any)
		state, _ := in["state"].(map[string]any)
		amount, _ := data["amount"].(float64)
		switch {
		case amount < 0:
			return `{"error":{"type":"business_rule","message":"Amounts are not negative","code":"NEGATIVE","context":{"amount":-1}}}`, nil
		case amount == 13:
			return "", &sandbox.Fault{Kind: sandbox.Trap, Detail: "unreachable", Hint: "Look at the log."}
		case amount == 14:
			return `{"stat":{}}`, nil
		case amount == 15:
			return `{"state":`, nil
		}
		total, _ := state["total"].(float64)
		out, err := json.Marshal(map[string]any{"state": map[string]any{"total": total + amount*factor}})
		return string(out), err
	}}
}

func line(amount string) string { return `{"data":{"amount":` + amount + `},` + meta + `}` }

func TestHandlersInCustomCode(t *testing.T) {
	f := newFixture(t, engine.Options{})
	deployCoded(t, f, map[string]coded{"sum.wasm": summing("v1", 1)})
	post := func(event, body string) error {
		_, err := f.Execute(t.Context(), command(t, "order/"+id+"/"+event, body))
		return err
	}
	state := func(replay bool) string {
		t.Helper()
		s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{Replay: replay})
		if err != nil {
			t.Fatal(err)
		}
		return s.Data.Get("total").String()
	}
	for _, amount := range []string{"2", "3"} {
		if err := post("had_line", line(amount)); err != nil {
			t.Fatal(err)
		}
	}
	if state(false) != "5" || state(true) != "5" {
		t.Errorf("the total is %s, replayed %s", state(false), state(true))
	}
	for amount, want := range map[string]struct {
		code j17.Code
		text string
	}{
		"-1": {j17.CodeHandlerRejected, "Amounts are not negative"},
		"13": {j17.CodeCustomCodeFailed, "unreachable"},
		"14": {j17.CodeCustomCodeFailed, `neither the key "state"`},
		"15": {j17.CodeCustomCodeFailed, "not valid JSON"},
	} {
		err := post("had_line", line(amount))
		if j17.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", amount, err)
		}
		if e, ok := errors.AsType[*j17.Error](err); !ok || e.Details == nil {
			t.Errorf("%s: no details", amount)
		}
	}
	if n, err := f.Length(t.Context(), tenant, "order", id); n != 2 || err != nil {
		t.Errorf("%d events after refusals, %v", n, err)
	}
	// A batch is refused as a whole, and the refusal names the event.
	body := `{"events":[{"type":"had_line","data":{"amount":1}},{"type":"had_line","data":{"amount":-1}}],` + meta + `}`
	_, err := f.Execute(t.Context(), command(t, "order/"+id, body))
	if e, ok := errors.AsType[*j17.Error](err); !ok || e.EventIndex == nil || *e.EventIndex != 1 {
		t.Errorf("the batch: %v", err)
	}
	// Another version of the code makes another state; a missing one fails, for reads too.
	deployCoded(t, f, map[string]coded{"sum.wasm": summing("v2", 10)})
	if state(false) != "50" {
		t.Errorf("the total of the second version is %s", state(false))
	}
	deployCoded(t, f, nil)
	if err := post("had_line", line("1")); j17.CodeOf(err) != j17.CodeCustomCodeFailed {
		t.Errorf("without a function: %v", err)
	}
	if _, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{}); j17.CodeOf(err) != j17.CodeCustomCodeFailed {
		t.Errorf("a read without a function: %v", err)
	}
}

func TestImplicationsInCustomCode(t *testing.T) {
	f := newFixture(t, engine.Options{})
	judge := coded{"judge", func(in map[string]any) (string, error) {
		event, _ := in["event"].(map[string]any)
		data, _ := event["data"].(map[string]any)
		answer, _ := data["answer"].(string)
		return answer, nil
	}}
	enrich := coded{"enrich", func(map[string]any) (string, error) { return `{"context":{"desk":"global","level":3}}`, nil }}
	deployCoded(t, f, map[string]coded{"judge.wasm": judge, "enrich.wasm": enrich})
	post := func(event, answer string) (engine.Receipt, error) {
		quoted, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		return f.Execute(t.Context(), command(t, "order/"+id+"/"+event, `{"data":{"answer":`+string(quoted)+`},`+meta+`}`))
	}
	for answer, implied := range map[string]int{
		`{"actions":[]}`: 0,
		`{"actions":[{"emit":{"key":"review:global","event_type":"was_opened","data":{"level":1}}}]}`:                                      1,
		`[{"aggregate_type":"review","id":"global","event_type":"was_opened"},{"emit":{"key":"review:global","event_type":"was_opened"}}]`: 2,
	} {
		if r, err := post("was_judged", answer); err != nil || r.Implied != implied {
			t.Errorf("%s: %d implied, %v", answer, r.Implied, err)
		}
	}
	before, _ := f.Length(t.Context(), tenant, "order", id)
	for answer, want := range map[string]j17.Code{
		`{"error":{"type":"precondition","message":"Not today"}}`:                                          j17.CodeImplicationFailed,
		`{"actions":[{"emit":{"key":"review:global","event_type":"was_opened","data":{"level":"high"}}}]}`: j17.CodeImplicationFailed,
		`{"actions":[{"emit":{"key":"review:nobody","event_type":"was_opened"}}]}`:                         j17.CodeImplicationFailed,
		`{"actions":[{"emit":{"key":"ghost:global","event_type":"was_opened"}}]}`:                          j17.CodeCustomCodeFailed,
		`{"actions":[{"emit":{"key":"review:global","event_type":"_was_tombstoned"}}]}`:                    j17.CodeCustomCodeFailed,
		`{"actions":{}}`:  j17.CodeCustomCodeFailed,
		`{"actions":[1]}`: j17.CodeCustomCodeFailed,
		`nonsense`:        j17.CodeCustomCodeFailed,
	} {
		if _, err := post("was_judged", answer); j17.CodeOf(err) != want {
			t.Errorf("%s: %v", answer, err)
		}
	}
	if after, _ := f.Length(t.Context(), tenant, "order", id); after != before {
		t.Errorf("%d events were written by refused requests", after-before)
	}
	if r, err := post("was_enriched", ""); err != nil || r.Implied != 1 {
		t.Fatal(r, err)
	}
	s, err := f.Load(t.Context(), tenant, "review", "global", engine.LoadOptions{})
	if err != nil || s.Data.Get("level").String() != "3" || s.Data.Get("order").Str() != "order:"+id {
		t.Error(s.Data, err)
	}
	list, _, err := f.ImplicationFailures(t.Context(), tenant, 0, 100)
	if err != nil || len(list) != 8 || list[0].Trigger.EventType != "was_judged" {
		t.Error(len(list), list, err)
	}
}
