package index_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// holds reports whether any item of an index holds what is erased.
func (h *house) holds(p *process) bool {
	h.tb.Helper()
	const text = "axolotl"
	for _, d := range part.Declared(p.Part().Spaces) {
		items, err := h.disk.Scan(h.tb.Context(), prod, d.Space, store.Range{}, 100_000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range items {
			if bytes.Contains([]byte(it.Key), []byte(text)) || bytes.Contains(it.Value, []byte(text)) {
				return true
			}
		}
	}
	return false
}

// TestErasure erases what an index shows, and what a build has made already while it is in the middle of others. When
// Erase has returned nothing is left of it, though neither the build nor anybody else was waited for in vain.
func TestErasure(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for i := range 600 {
			h.write(prod, event("item", fmt.Sprintf("i%03d", i), fmt.Sprintf(`{"label":"quetzal %d"}`, i%3)))
		}
		h.write(prod, event("item", "i001", `{"label":"axolotl"}`))
		h.write(prod, event("item", "i599", `{"label":"axolotl"}`))
		wait, first := make(chan struct{}), make(chan struct{}, 1)
		d := source{h.disk}.definition(func(ctx context.Context, ids []string) error {
			if ids[0] < "i512" {
				return ctx.Err() // pages are made side by side: the last one alone waits, so that the others find room
			}
			select {
			case first <- struct{}{}:
			default:
			}
			select {
			case <-wait:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		p := h.start(h.disk)
		if _, err := p.Ensure(t.Context(), prod, d); err != nil {
			t.Fatal(err)
		}
		<-first
		h.pass(6 * time.Second) // what is made commits when the turn is over, at the latest
		if !h.holds(p) {
			t.Fatal("nothing is there to be erased: the test shows nothing")
		}

		// In the middle of the build.
		erase := func(id string) {
			t.Helper()
			h.erase(prod, id)
			e := part.Erased{Keys: []j17.Key{{Type: "item", ID: id}}, Note: h.end(prod)}
			for range 2 {
				if err := p.Erase(t.Context(), prod, e); err != nil {
					t.Fatal(err)
				}
			}
		}
		erase("i001")
		if h.holds(p) {
			t.Error("a build that was under way has left something")
		}
		close(wait)
		h.ready(p, prod, d)
		h.at(p, prod)

		// What is read: the last page has the other one.
		if !h.holds(p) {
			t.Error("the index lacks a row")
		}
		erase("i599")
		if h.holds(p) {
			t.Error("the index has left something")
		}
		h.at(p, prod)
		h.verify(p, prod)
		p.stop()
	})
}

// TestErasureOfWhatIsReadAndFollowsNothing erases what an index shows that does not follow the feed, as after a crash
// in the middle of its removal, while another one is built in its place: nobody is told that it can be read.
func TestErasureOfWhatIsReadAndFollowsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.write(prod, event("item", "i001", `{"label":"axolotl"}`))
		var slow atomic.Bool
		wait, reached := make(chan struct{}), make(chan struct{}, 64)
		d := source{h.disk}.definition(func(ctx context.Context, _ []string) error {
			if !slow.Load() {
				return ctx.Err()
			}
			reached <- struct{}{}
			select {
			case <-wait:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		p := h.start(h.disk)
		h.ready(p, prod, d)
		slow.Store(true)
		if err := p.Rebuild(t.Context(), prod, d.ID); err != nil {
			t.Fatal(err)
		}
		<-reached
		item, err := h.disk.Get(t.Context(), prod, "index.heads", d.ID)
		var head struct{ Serving, Building string }
		if err != nil || json.Unmarshal(item.Value, &head) != nil || head.Serving == "" ||
			head.Serving == head.Building {
			t.Fatalf("%+v, %v", head, err)
		}
		if err := p.feed.Unsubscribe(t.Context(), prod, "index", head.Serving); err != nil {
			t.Fatal(err)
		}
		h.erase(prod, "i001")
		if err := p.Erase(t.Context(), prod, part.Erased{
			Keys: []j17.Key{{Type: "item", ID: "i001"}}, Note: h.end(prod),
		}); err != nil {
			t.Fatal(err)
		}
		if status, err := p.Status(t.Context(), prod, d.ID); err != nil || status.Ready || h.holds(p) {
			t.Errorf("%+v, %v", status, err)
		}
		close(wait)
		h.ready(p, prod, d)
		h.at(p, prod)
		h.verify(p, prod)
		p.stop()
	})
}
