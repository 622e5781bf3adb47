package listener

import (
	"strings"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/lang/spec"
)

// TestAPageOfEventsCostsWhatItMay has a condition that takes long for each event: what is looked at in one go is
// bounded, the rest has its turn later, and turns on processors are given back.
func TestAPageOfEventsCostsWhatItMay(t *testing.T) {
	compiled, found := spec.Compile([]byte(`{"agent_types": ["user"],
		"aggregate_types": {"order": {"events": {"was_placed": {"schema": {"type": "object"}, "handler": []}}}},
		"listeners": {"hook": {"url": "https://example.com", "events": ["*"], "condition": {"not": {"some": {"in": "$.data.list", "as": "$a", "match":
			{"some": {"in": "$.data.list", "as": "$b", "match": {"equals": ["$b", -1]}}}}}}}}}`))
	if compiled == nil {
		t.Fatal(found)
	}
	s := &Service{turns: work.NewPool(2, 1), o: Options{
		Spec: func(j17.Tenant) *spec.Compiled { return compiled },
		Name: func(j17.Tenant) (string, j17.Environment) { return "shop", j17.Prod },
	}}
	data := []byte(`{"list": [0` + strings.Repeat(",1", 99) + `]}`)
	events := make([]*j17.Event, 400)
	for i := range events {
		ev := &j17.Event{
			StreamID: j17.StreamID{Ms: int64(i + 1)}, Key: j17.Key{Type: "order", ID: "a"}, Type: "was_placed",
		}
		raw, layout := j17.AppendEvent(nil, ev.StreamID, ev.Key, ev.Type, data, []byte("{}"), 0)
		ev.Raw, ev.Data, ev.Metadata = raw, layout.DataOf(raw), layout.MetadataOf(raw)
		events[i] = ev
	}
	pages := 0
	for left := events; len(left) > 0; pages++ {
		wanted, err := s.filter(t.Context(), "shop/prod", "hook", left)
		if err != nil || len(wanted) == 0 {
			t.Fatalf("%d events of %d: %v", len(wanted), len(left), err)
		}
		for i, is := range wanted {
			if !is {
				t.Fatalf("event %d is not wanted", i)
			}
		}
		left = left[len(wanted):]
		if s.turns.Used() != 0 {
			t.Fatal("a turn was not given back")
		}
	}
	if pages < 2 || pages > 100 {
		t.Errorf("%d pages", pages)
	}
}
