package index_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/feed"
	"j17/internal/index"
	"j17/internal/store"
	"j17/internal/value"
)

// behindHand is a store whose feed ends earlier for who reads it here, as long as end is set.
type behindHand struct {
	store.Store

	end atomic.Pointer[j17.StreamID]
}

// ReadChanges ends behind the end.
func (s *behindHand) ReadChanges(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range s.Store.ReadChanges(ctx, t, after, limit) {
			if end := s.end.Load(); err == nil && end != nil && e.Event != nil && e.Event.StreamID.Compare(*end) > 0 {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestWhoHasLostTheUpkeepKnowsNothing: a process has handled two events that together change nothing, so that it has written nothing, and is
// taken over by one that goes on between them. What the first one knows of its own is not true of what the index shows then.
func TestWhoHasLostTheUpkeepKnowsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i1", `{"label":"a"}`))
		first := h.start(h.disk)
		h.ready(first, prod, d)
		h.at(first, prod)
		h.write(prod, event("item", "i2", `{"label":"ab"}`))
		h.at(first, prod)

		// The label goes away and comes back in one unit.
		h.write(prod, event("item", "i1", `{"label":1}`), event("item", "i1", `{"label":"a"}`))
		h.at(first, prod)
		if held := first.feed.Counts().Held; held != 1 {
			t.Fatalf("the first process holds %d tenants", held)
		}

		// Whoever takes over has got as far as the first of the two.
		st := &behindHand{Store: h.disk}
		var between j17.StreamID
		for e, err := range h.disk.ReadStream(t.Context(), prod, j17.Key{Type: "item", ID: "i1"}, 2, 2) {
			if err != nil {
				t.Fatal(err)
			}
			between = e.StreamID
			break
		}
		st.end.Store(&between)
		second := h.start(st, func(o *feed.Options) { o.Sole = true }) // which waits for nobody's lease
		second.Know(t.Context(), prod, d)
		h.pass(100 * time.Millisecond)
		if taken := second.feed.Counts().Taken; taken != 1 {
			t.Fatalf("the second process has taken %d leases", taken)
		}
		v, err := second.At(t.Context(), prod, "one", j17.StreamID{})
		if err != nil {
			t.Fatal(err)
		}
		h.check(prod, v)
		if at := v.Position(); at != between {
			t.Errorf("the second process has got as far as %s, want %s", at, between)
		}
		v.Close()
		if held := first.feed.Counts().Held; held != 1 {
			t.Fatalf("the first process holds %d tenants: the test is too slow", held)
		}

		// The first one waits for the second one, and shows nothing meanwhile that is not so.
		moment, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		v, err = first.At(moment, prod, "one", h.end(prod))
		if err == nil {
			hits, err := v.Scan(plenty(), index.Query{Lanes: [][]index.Range{{index.All(labels, 2).Equal(value.StringValue("a"))}}}, "", 10)
			t.Errorf("there is a view as of %s, of %s; %v have the label, %v", v.Position(), h.end(prod), hits, err)
			v.Close()
		}
		st.end.Store(nil)
		h.write(prod, event("item", "i3", `{}`))
		h.at(first, prod)
		h.at(second, prod)
		second.stop()
		first.stop()
	})
}
