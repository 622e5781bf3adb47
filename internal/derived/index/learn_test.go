package index_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"j17"
)

// TestADefinitionLearnsEvents writes events that concern an index, some that do not, and a rewrite between them: before
// rows are asked for, the definition is told of each event that concerns them, in order, and of the count of rewrites.
// Rows that are built are learned from nothing.
func TestADefinitionLearnsEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.write(prod, event("item", "before", `{}`))
		var mu sync.Mutex
		var learned []string
		asked := map[string]bool{}
		d := source{h.disk}.definition(func(_ context.Context, ids []string) error {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				asked[id] = true
				if id != "before" &&
					!slices.ContainsFunc(learned, func(text string) bool { return text == "item:"+id+"@1" }) {
					t.Errorf("the row %s is asked for before its event is told of", id)
				}
			}
			return nil
		})
		d.Learn = func(_ context.Context, of j17.Tenant, events []*j17.Event, rewrites uint64) error {
			mu.Lock()
			defer mu.Unlock()
			if of != prod || rewrites != h.disk.Rewrites() {
				t.Errorf("%s, %d rewrites of %d", of, rewrites, h.disk.Rewrites())
			}
			for _, e := range events {
				learned = append(learned, fmt.Sprintf("%s@%d", e.Key, e.Version))
			}
			return nil
		}
		p := h.start(h.disk)
		h.ready(p, prod, d)
		var want []string
		for i := range 5 {
			id := fmt.Sprintf("i%d", i)
			h.write(prod, event("item", id, `{}`), event("other", "x", `{}`), event("shop", id, `{}`))
			want = append(want, "item:"+id+"@1", "shop:"+id+"@1")
			h.at(p, prod)
			if i == 2 {
				h.rewrite(prod, "before", `{"name":"anew"}`)
				h.at(p, prod)
			}
		}
		p.stop()
		if fmt.Sprint(learned) != fmt.Sprint(want) || len(asked) != 6 {
			t.Errorf("told of %v, want %v; %d rows", learned, want, len(asked))
		}
	})
}
