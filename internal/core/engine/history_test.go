package engine_test

import (
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/engine"
)

// TestHistoryOfCustomCode asks what made the versions of an aggregate whose handler is custom code, before and after
// others: the handler as a whole.
func TestHistoryOfCustomCode(t *testing.T) {
	f := newFixture(t, engine.Options{})
	deployCoded(t, f, map[string]coded{"sum.wasm": summing("", 1)})
	f.Post(t, "order/"+id+"/was_seen", line("0"))
	f.Post(t, "order/"+id+"/had_line", line("2"))
	f.Post(t, "order/"+id+"/had_line", line("3"))
	var got []string
	b := work.New(t.Context(), work.Command)
	length, err := f.History(t.Context(), tenant, "order", id, 1, 10, b, func(m engine.Made) error {
		for _, step := range m.Steps {
			got = append(got, string(step.At)+" "+string(step.State.Get("total").AppendJSON(nil)))
		}
		return nil
	})
	if err != nil || length != 3 || len(got) != 3 {
		t.Fatal(got, length, err)
	}
	for i, want := range []string{"was_seen/handler/0 ", "had_line/handler 2", "had_line/handler 5"} {
		if got[i] != "/aggregate_types/order/events/"+want {
			t.Errorf("version %d is by %s, want %s", i+1, got[i], want)
		}
	}
	if b.Spent() == 0 {
		t.Error("it has cost nothing")
	}

	// A budget that is used up ends it.
	if _, err := f.History(
		t.Context(), tenant, "order", id, 1, 10, work.Counted(5), func(engine.Made) error { return nil },
	); j17.CodeOf(err) != j17.CodeWorkLimit {
		t.Error(err)
	}
}
