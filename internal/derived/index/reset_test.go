package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// spoiled is a store of which a space cannot be read any longer until it is emptied.
type spoiled struct {
	store.Store

	space atomic.Pointer[store.Space]
}

func (s *spoiled) damaged(space store.Space) error {
	if of := s.space.Load(); of == nil || *of != space {
		return nil
	}
	return &store.CorruptionError{Where: string(space), Err: errors.New("its checksum is wrong")}
}

func (s *spoiled) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if err := s.damaged(space); err != nil {
		return store.Item{}, err
	}
	return s.Store.Get(ctx, t, space, key)
}

func (s *spoiled) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if err := s.damaged(space); err != nil {
		return nil, err
	}
	return s.Store.Scan(ctx, t, space, keys, limit)
}

func (s *spoiled) Empty(
	ctx context.Context, t j17.Tenant, spaces []store.Space, side []store.Side, fences ...store.Fence,
) error {
	err := s.Store.Empty(ctx, t, spaces, side, fences...)
	if of := s.space.Load(); err == nil && of != nil && slices.Contains(spaces, *of) {
		s.space.Store(nil)
	}
	return err
}

// garble replaces what is stored under all keys of a space.
func (h *house) garble(space store.Space) {
	h.tb.Helper()
	items, err := h.disk.Scan(h.tb.Context(), prod, space, store.Range{}, 10)
	if err != nil || len(items) == 0 {
		h.tb.Fatal(items, err)
	}
	for _, it := range items {
		if err := h.disk.Write(h.tb.Context(), prod, []store.Side{
			{Op: store.Put, Space: space, Key: it.Key, Value: []byte(`{"`)},
		}); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// bare fails where something of an index is stored.
func (h *house) bare() {
	h.tb.Helper()
	for _, space := range []store.Space{
		"index.heads", "index.slots", "index.counts", "index.entries", "index.rows", "index.sources",
	} {
		if items, err := h.disk.Scan(h.tb.Context(), prod, space, store.Range{}, 10); err != nil || len(items) > 0 {
			h.tb.Errorf("%s has %d items, %v", space, len(items), err)
		}
	}
}

// TestDamagedHeadsAndSlots: it cannot be read which slots there are, or how far one is. Whoever finds that, a reader, a
// comparison, an erasure, a build that goes on, has all indexes of the environment thrown away; they are rebuilt when
// somebody asks for them, and nothing is left of what was there.
func TestDamagedHeadsAndSlots(t *testing.T) {
	for name, find := range map[string]func(h *house, p *process) error{
		"reader": func(h *house, p *process) error {
			_, err := p.At(h.tb.Context(), prod, "one", h.end(prod))
			return err
		},
		"list": func(h *house, p *process) error {
			if _, err := p.List(h.tb.Context(), prod); err != nil {
				return err
			}
			_, err := p.Status(h.tb.Context(), prod, "one")
			return err
		},
		"comparison": func(h *house, p *process) error {
			_, err := p.Verify(h.tb.Context(), prod, "one", nil)
			return err
		},
		"erasure": func(h *house, p *process) error {
			// An erasure waits for what it does not know about.
			if err := p.Erase(h.tb.Context(), prod, part.Erased{Note: h.end(prod)}); err != nil {
				return err
			}
			_, err := p.Status(h.tb.Context(), prod, "one")
			return err
		},
	} {
		for what, damage := range map[string]func(h *house, st *spoiled){
			"garbled slots":    func(h *house, _ *spoiled) { h.garble("index.slots") },
			"garbled heads":    func(h *house, _ *spoiled) { h.garble("index.heads") },
			"unreadable slots": func(_ *house, st *spoiled) { st.space.Store(new(store.Space("index.slots"))) },
			"unreadable heads": func(_ *house, st *spoiled) { st.space.Store(new(store.Space("index.heads"))) },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					st := &spoiled{Store: h.disk}
					p := h.start(st)
					h.write(
						prod, event("shop", "s0", some("shop", 0)), event("item", "i00", some("item", 0)),
						event("item", "i01", some("item", 1)),
					)
					d := source{h.disk}.definition(nil)
					h.ready(p, prod, d)
					damage(h, st)
					if err := find(h, p); !errors.Is(err, store.ErrNotFound) || p.Stats().Differences != 1 {
						t.Errorf("who finds it: %v, %+v", err, p.Stats())
					}
					h.bare()
					h.write(prod, event("item", "i02", some("item", 2)), event("item", "i00", some("item", 3)))
					h.ready(p, prod, d)
					h.mended(p)
					h.pass(time.Minute)
					if n := p.Stats().Differences; n != 1 {
						t.Errorf("it was found %d times", n)
					}
					p.stop()
				})
			})
		}
	}
}

// TestUpkeepMeetsADamagedSlot: it cannot be read how far a slot is that events are to be brought into. That is mended
// though nobody asks for the index, which is rebuilt when somebody does.
func TestUpkeepMeetsADamagedSlot(t *testing.T) {
	for what, damage := range map[string]func(h *house, st *spoiled){
		"garbled":    func(h *house, _ *spoiled) { h.garble("index.slots") },
		"unreadable": func(_ *house, st *spoiled) { st.space.Store(new(store.Space("index.slots"))) },
	} {
		for _, when := range []string{"before", "in the middle"} {
			t.Run(what+" "+when, func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					st := &spoiled{Store: h.disk}
					p := h.start(st)
					p.Bulk(1, 7)
					const items = 1100 // more than change in one commit
					events := []store.NewEvent{event("shop", "s", `{}`)}
					for i := range items {
						events = append(events, event("item", fmt.Sprintf("i%04d", i), `{}`))
					}
					h.write(prod, events...)
					var middle atomic.Bool
					d := source{h.disk}.wide("one", func(int) {
						if middle.CompareAndSwap(true, false) {
							damage(h, st)
						}
					})
					h.ready(p, prod, d)
					if when == "before" {
						damage(h, st)
					} else {
						middle.Store(true)
					}
					h.write(prod, event("shop", "s", `{"name":"n"}`))
					h.pass(time.Minute)
					if n := p.Stats().Differences; n != 1 {
						t.Errorf("it was found %d times", n)
					}
					h.bare()
					h.ready(p, prod, d)
					h.verify(p, prod)
					h.pass(time.Minute)
					if n := p.Stats().Differences; n != 1 {
						t.Errorf("it was found %d times", n)
					}
					p.stop()
				})
			})
		}
	}
}

// TestADamagedSlotThatIsBuilt: a build cannot read its own slot any longer. It ends, and nothing of what it has made is
// left.
func TestADamagedSlotThatIsBuilt(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		p := h.start(h.disk)
		h.write(prod, event("item", "i00", some("item", 0)), event("item", "i01", some("item", 1)))
		var held atomic.Bool
		held.Store(true)
		d := heldBuilds(h, &held)
		if _, err := p.Ensure(t.Context(), prod, d); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Second)
		h.garble("index.slots")
		if _, err := p.At(t.Context(), prod, "one", h.end(prod)); err == nil {
			t.Error("it is read")
		}
		held.Store(false)
		h.pass(time.Minute)
		if _, err := p.Status(t.Context(), prod, "one"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("it is there: %v", err)
		}
		if items, err := h.disk.Scan(t.Context(), prod, "index.rows", store.Range{}, 10); err != nil || len(items) > 0 {
			t.Errorf("%d rows are left, %v", len(items), err)
		}
		h.ready(p, prod, d)
		h.mended(p)
		p.stop()
	})
}

var _ index.Storage = (*spoiled)(nil)
