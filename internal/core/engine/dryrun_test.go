package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/trial"
	"j17/internal/lang/spec"
)

func dryRun(t *testing.T, c *spec.Compiled, src string, now int64) trial.DryRunResult {
	t.Helper()
	r, err := trial.DryRun(t.Context(), c, nil, src, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDryRunIsWhatTheEngineDoes writes events to an engine, feeds what it has stored to a dry run and compares the
// states.
func TestDryRunIsWhatTheEngineDoes(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for _, e := range [][3]string{
		{"global", "was_counted", `{"by":2}`},
		{"main", "was_named", `{"name":"x","other":1.50}`},
		{"global", "was_counted", `{"by":40}`},
		{id, "was_named", `{"name":"y"}`},
	} {
		c := enginetest.Command(t, "counter/"+e[0]+"/"+e[1], `{"data":`+e[2]+`,`+meta+`}`)
		c.CorrelationID = "0193a1b2-0000-7000-8000-000000000001"
		if _, err := f.Execute(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(60_000_000_000)
	}
	var lines []string
	want := map[string]string{}
	for _, key := range []string{id, "global", "main"} {
		s, err := f.Load(t.Context(), tenant, "counter", key, engine.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want[s.Key.String()] = s.EntityTag + string(s.JSON)
		events, err := f.Events(t.Context(), tenant, "counter", key, j17.StreamID{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(ev.Raw))
		}
	}
	sortLines(lines) // by stream id, which comes first
	r := dryRun(t, enginetest.Compiled(t, enginetest.CounterSpec), strings.Join(lines, "\n"), 0)
	if len(r.Findings) > 0 || r.Accepted != 4 {
		t.Fatalf("%+v", r.Findings)
	}
	got := map[string]string{}
	for _, s := range r.States {
		got[s.Key.String()] = s.EntityTag + string(s.JSON)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func sortLines(lines []string) {
	for i := range lines {
		for j := i; j > 0 && lines[j] < lines[j-1]; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
}

func TestDryRunRunsCustomCode(t *testing.T) {
	c := enginetest.Compiled(t, strings.Replace(codedSpec, `"was_judged": {`, `"was_doubled": {"schema": {"type": "object"}, "handler": [{"increment": {"target": "seen", "by": 1}}], "implications": [
		{"emit": {"aggregate_type": "review", "id": "global", "event_type": "was_opened", "data": {"level": 1}}},
		{"emit": {"aggregate_type": "order", "id": "$.key", "event_type": "had_line", "data": "$.data"}}]}, "was_judged": {`, 1))
	functions := functionsOf(c, map[string]coded{"sum.wasm": summing("v1", 1)})
	event := func(key, typ, amount string) string {
		return `{"key":"` + key + `","type":"` + typ + `","data":{"amount":` + amount + `},` + meta + "}\n"
	}
	r, err := trial.DryRun(t.Context(), c, functions,
		event("order:global", "had_line", "2")+event("order:global", "had_line", "-1")+
			event("order:global", "was_doubled", "-1")+event("order:"+id, "was_doubled", "13")+event(
			"order:global", "was_doubled", "3",
		)+event("order:global", "was_seen", "0"), 1_700_000_000)
	if err != nil || r.Accepted != 3 || len(r.Findings) != 3 || len(r.Implied) != 2 || len(r.Faults) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []j17.Code{j17.CodeHandlerRejected, j17.CodeImplicationFailed, j17.CodeCustomCodeFailed} {
		if f := r.Findings[i]; f.Code != want || f.Event != i+2 {
			t.Errorf("finding %d is %+v, want %s", i, f, want)
		}
	}
	var states []string
	for _, s := range r.States {
		states = append(states, fmt.Sprintf("%s %d %s", s.Key, s.Length, s.JSON))
	}
	const stamps = `"created_at":1700000000,"updated_at":1700000000`
	want := []string{
		`order:global 4 {"total":5,` + stamps + `,"seen":true}`, `review:global 1 {"level":1,` + stamps + `}`,
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
}
