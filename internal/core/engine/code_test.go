package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"j17"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/spec"
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
	f.Deploy(tenant, c, functionsOf(c, functions))
}

// functionsOf returns the functions of a spec's custom code, of those blobs that there are.
func functionsOf(c *spec.Compiled, blobs map[string]coded) decider.Functions {
	functions := decider.Functions{}
	for _, u := range c.CodeUses() {
		if fn, ok := blobs[u.Artifact]; ok {
			functions[u.Code] = fn
		}
	}
	return functions
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
		case amount == 16:
			return "", &sandbox.Fault{Kind: sandbox.Busy, Detail: "others are there", Hint: "Wait."}
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
		_, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id+"/"+event, body))
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
		"16": {j17.CodeUnavailable, "could not run now: others are there"},
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
	_, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id, body))
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
	if _, err := f.Load(
		t.Context(), tenant, "order", id, engine.LoadOptions{},
	); j17.CodeOf(err) != j17.CodeCustomCodeFailed {
		t.Errorf("a read without a function: %v", err)
	}
}

// TestStoredEventsThatCodeRefuses: whoever asks for a state is not to blame for code that no longer accepts the events
// there are.
func TestStoredEventsThatCodeRefuses(t *testing.T) {
	f := newFixture(t, engine.Options{})
	deployCoded(t, f, map[string]coded{"sum.wasm": summing("v1", 1)})
	for _, amount := range []string{"2", "3"} {
		f.Post(t, "order/"+id+"/had_line", line(amount))
	}
	for name, code := range map[string]coded{
		"refuses": {"no", func(map[string]any) (string, error) {
			return `{"error":{"type":"closed","message":"Not any more"}}`, nil
		}},
		"traps": {"trap", func(map[string]any) (string, error) {
			return "", &sandbox.Fault{Kind: sandbox.Trap, Detail: "unreachable"}
		}},
	} {
		deployCoded(t, f, map[string]coded{"sum.wasm": code})
		_, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{})
		e, ok := errors.AsType[*j17.Error](err)
		if !ok || e.Code != j17.CodeCustomCodeFailed || !strings.Contains(e.Message, "of its stored event number 1, had_line,") || strings.Contains(e.Message, "Nothing was changed") {
			t.Fatalf("%s: %v", name, err)
		}
		raw, err := json.Marshal(e.Details)
		if err != nil || !strings.Contains(string(raw), `"key":"order:`+id+`","event_type":"had_line","length":1`) {
			t.Errorf("%s: %s %v", name, raw, err)
		}
		// Events whose handlers do not need the state go on.
		f.Post(t, "order/"+id+"/was_seen", `{"data":{},`+meta+`}`)
	}
	deployCoded(t, f, map[string]coded{"sum.wasm": summing("v1", 1)})
	if got := f.State(t, "order/"+id, engine.LoadOptions{}); !strings.Contains(got, `"total":5`) {
		t.Error(got)
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
		return f.Execute(
			t.Context(),
			enginetest.Command(t, "order/"+id+"/"+event, `{"data":{"answer":`+string(quoted)+`},`+meta+`}`),
		)
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
		`{"actions":[{"emit":{"key":"review","event_type":"was_opened"}}]}`:                                j17.CodeCustomCodeFailed,
		`{"actions":[{"key":"review:global","id":"other","event_type":"was_opened"}]}`:                     j17.CodeCustomCodeFailed,
		`{"actions":[{"key":"review:global","aggregate_type":"order","event_type":"was_opened"}]}`:         j17.CodeCustomCodeFailed,
		`{"actions":{}}`:  j17.CodeCustomCodeFailed,
		`{"actions":[1]}`: j17.CodeCustomCodeFailed,
		`nonsense`:        j17.CodeCustomCodeFailed,
	} {
		if _, err := post("was_judged", answer); j17.CodeOf(err) != want {
			t.Errorf("%s: %v", answer, err)
		}
	}
	// In a batch, the refusal names the event that it goes back to.
	batch := `{"events":[{"type":"was_seen"},{"type":"was_judged","data":{"answer":"{\"actions\":[{\"key\":\"review:global\",\"event_type\":\"was_opened\",\"data\":{\"level\":\"high\"}}]}"}}],` + meta + `}`
	_, err := f.Execute(t.Context(), enginetest.Command(t, "order/"+id, batch))
	if e, ok := errors.AsType[*j17.Error](err); !ok || e.Code != j17.CodeImplicationFailed || e.EventIndex == nil ||
		*e.EventIndex != 1 {
		t.Errorf("the batch: %v", err)
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
	if err != nil || len(list) != 12 || list[0].Trigger.EventType != "was_judged" {
		t.Error(len(list), list, err)
	}
}

// TestStepsOfAPipelineAddToOneContext: what a later step says of a member replaces what an earlier one has said, for
// the paths and conditions behind it as for the code.
func TestStepsOfAPipelineAddToOneContext(t *testing.T) {
	const src = `{"agent_types": ["user"], "aggregate_types": {
	  "order": {"events": {"was_enriched": {"schema": {}, "handler": [], "implications": [{"pipeline": [
	    {"wasm": {"blob_name": "one.wasm", "mode": "transform"}},
	    {"wasm": {"blob_name": "two.wasm", "mode": "transform"}},
	    {"wasm": {"blob_name": "echo.wasm", "mode": "transform"}},
	    {"condition": {"equals": ["$.level", 2]}, "emit": {"aggregate_type": "review", "id": "global", "event_type": "was_opened",
	      "data": {"level": "$.level", "desk": "$.desk", "seen": "$.seen", "all": "$"}}}]}]}}},
	  "review": {"events": {"was_opened": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}}}}`
	c, found := spec.Compile([]byte(src))
	if c == nil {
		t.Fatal(found)
	}
	answering := func(text string) coded {
		return coded{text, func(map[string]any) (string, error) { return text, nil }}
	}
	echo := coded{"echo", func(in map[string]any) (string, error) {
		raw, err := json.Marshal(map[string]any{"seen": in["context"]})
		return string(raw), err
	}}
	f := newFixture(t, engine.Options{})
	f.Deploy(tenant, c, functionsOf(c, map[string]coded{
		"one.wasm": answering(`{"context":{"level":1,"desk":"a"}}`), "two.wasm": answering(`{"context":{"level":2}}`),
		"echo.wasm": echo,
	}))
	if r := f.Post(t, "order/"+id+"/was_enriched", `{"data":{},`+meta+`}`); r.Implied != 1 {
		t.Fatal(r)
	}
	s, err := f.Load(t.Context(), tenant, "review", "global", engine.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Data.Get("seen").String(); got != `{"desk":"a","level":2}` {
		t.Errorf("the third step has seen %s", got)
	}
	if got := s.Data.Get("level").String() + s.Data.Get("desk").String() +
		s.Data.Get("all").Get("level").String(); got != `2"a"2` {
		t.Errorf("the event has %s", s.JSON)
	}
}
