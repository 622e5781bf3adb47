package upcast_test

import (
	"errors"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// TestStream reads events that were tried and others as handlers do, one after the other.
func TestStream(t *testing.T) {
	s := compile(t)
	typ, key := s.Types["order"], "order:o"
	tried := &upcast.Tried{}
	tell := func(at j17.StreamID) {
		upTo := map[*tick.Plan]j17.StreamID{}
		for _, name := range []string{"was_placed", "was_ordered", "was_wanted", "was_counted"} {
			for _, number := range typ.Events[name].Numbers() {
				if plan := typ.Events[name].Plan(number); plan != nil {
					upTo[plan] = at
				}
			}
		}
		tried.Set(upTo)
	}
	var l diag.List
	handler, err := value.ParseString(
		`{"set":{"target":"","value":["$.data.total","$.data.by","$.type","$.metadata.generation"]}}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	h := tick.CompileHandler(handler, "", &l)
	b := work.New(t.Context(), work.Replay)
	stream := upcast.NewStream(typ, tried)
	state := func(ev *j17.Event) (string, error) {
		seen := tick.Event{Key: key}
		b.Renew(work.Replay)
		if err := stream.Read(ev, &seen, b); err != nil {
			return "", err
		}
		v, err := h.Apply(value.NewEditor(), value.NullValue(), &seen, b, nil)
		return v.String(), err
	}

	// Both ways lead to the same.
	same := []struct{ typ, data, generation, want string }{
		{"was_placed", `{"total":"7.50"}`, ``, `[7.50,"u","was_placed",3]`},
		{"was_placed", `{"total":8}`, `,"generation":2`, `[8,null,"was_placed",3]`},
		{"was_placed", `{"total":9}`, `,"generation":3`, `[9,null,"was_placed",3]`},
		{"was_wanted", `{"sum":"7"}`, ``, `[7,"u","was_placed",3]`},
		{"was_read", `{"total":1}`, ``, `[1,null,"was_read",null]`},
	}
	for _, at := range []j17.StreamID{{}, {Ms: 1, Seq: 2}} {
		tell(at)
		for _, c := range same {
			if got, err := state(stored(c.typ, c.data, c.generation)); err != nil || got != c.want {
				t.Errorf("tried up to %s, %s %s is read as %s, %v", at, c.typ, c.data, got, err)
			}
		}
	}

	// What does not fit the schema fails, unless it is known to fit. One that does not fit a step fails all the same.
	misfit, wrong := stored("was_counted", `{}`, `,"generation":2`), stored("was_placed", `{"total":"x"}`, ``)
	if _, err := state(misfit); err != nil {
		t.Error("it was checked", err)
	}
	if _, err := state(wrong); !isMisfit(err) {
		t.Error(err)
	}
	tell(j17.StreamID{Ms: 1, Seq: 1})
	for _, ev := range []*j17.Event{misfit, wrong} {
		if _, err := state(ev); upcast.Failure(err) == nil {
			t.Error("it was not checked", err)
		}
	}

	// Lists do the same.
	r := upcast.NewReader(func(j17.Tenant) (*spec.Compiled, *upcast.Tried) { return s, tried })
	if _, err := r.Show(t.Context(), "t", misfit); upcast.Failure(err) == nil {
		t.Error("it was not checked", err)
	}
	tell(j17.StreamID{Ms: 1, Seq: 2})
	if ev, err := r.Show(t.Context(), "t", misfit); err != nil || string(ev.Data) != "{}" {
		t.Error("it was checked", err)
	}
}

func isMisfit(err error) bool {
	_, is := errors.AsType[*tick.Misfit](err)
	return is
}
