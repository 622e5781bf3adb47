package index_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/index"
	"j17/internal/store"
)

// rotten is a store in which what a slot has in some spaces cannot be read.
type rotten struct {
	store.Store

	slot   atomic.Pointer[string]
	spaces []store.Space
}

// damaged returns the error of what begins with a key.
func (r *rotten) damaged(space store.Space, key string) error {
	slot := r.slot.Load()
	for _, s := range r.spaces {
		if slot != nil && s == space && strings.HasPrefix(key, *slot+"/") {
			return &store.CorruptionError{Where: string(space), Err: errors.New("its checksum is wrong")}
		}
	}
	return nil
}

// rot damages what serves an index.
func (r *rotten) rot(tb testing.TB, spaces ...store.Space) {
	tb.Helper()
	items, err := r.Scan(tb.Context(), prod, "index.slots", store.Range{}, 10)
	if err != nil || len(items) != 1 {
		tb.Fatal(items, err)
	}
	r.spaces = spaces
	r.slot.Store(&items[0].Key)
}

func (r *rotten) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if err := r.damaged(space, key); err != nil {
		return store.Item{}, err
	}
	return r.Store.Get(ctx, t, space, key)
}

func (r *rotten) Scan(ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int) ([]store.Item, error) {
	if err := r.damaged(space, keys.From); err != nil {
		return nil, err
	}
	return r.Store.Scan(ctx, t, space, keys, limit)
}

func (r *rotten) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	m, err := r.Store.Moment(ctx, t)
	return rottenMoment{m, r}, err
}

type rottenMoment struct {
	store.Moment

	of *rotten
}

func (m rottenMoment) Get(space store.Space, key string) (store.Item, error) {
	if err := m.of.damaged(space, key); err != nil {
		return store.Item{}, err
	}
	return m.Moment.Get(space, key)
}

func (m rottenMoment) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	if err := m.of.damaged(space, keys.From); err != nil {
		return err
	}
	return m.Moment.Each(space, keys, do)
}

// TestDamageIsMended: whoever finds that something of an index cannot be read, a reader or the upkeep, has it built anew. Nobody is told
// that there are no rows, and nobody waits for the next look through all indexes.
func TestDamageIsMended(t *testing.T) {
	all := index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}}
	for name, find := range map[string]func(h *house, p *process, v *index.View) error{
		"scan":  func(_ *house, _ *process, v *index.View) error { _, err := v.Scan(plenty(), all, "", 10); return err },
		"count": func(_ *house, _ *process, v *index.View) error { _, err := v.Count(plenty(), all); return err },
		"words": func(_ *house, _ *process, v *index.View) error {
			_, err := v.Words(plenty(), titles, []string{"red", "gr"}, "", 10)
			return err
		},
		"counted words": func(_ *house, _ *process, v *index.View) error {
			_, err := v.CountWords(plenty(), titles, []string{"red", "gr"})
			return err
		},
		"row": func(_ *house, _ *process, v *index.View) error { _, _, err := v.Row("i00"); return err },
		"upkeep": func(h *house, p *process, _ *index.View) error {
			h.write(prod, event("item", "i00", some("item", 5)))
			h.pass(time.Second)
			return &index.NotReadyError{Done: p.Stats().Differences}
		},
		"upkeep of a source": func(h *house, p *process, _ *index.View) error {
			h.write(prod, event("shop", "s0", some("shop", 5)))
			h.pass(time.Second)
			return &index.NotReadyError{Done: p.Stats().Differences}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				st := &rotten{Store: h.disk}
				p := h.start(st)
				for n := range 20 {
					h.write(prod, event("item", "i"+string(rune('0'+n/10))+string(rune('0'+n%10)), some("item", n)), event("shop", "s0", some("shop", n)))
				}
				h.ready(p, prod, source{h.disk}.definition(nil))
				v, err := p.At(t.Context(), prod, "one", h.end(prod))
				if err != nil {
					t.Fatal(err)
				}
				st.rot(t, "index.entries", "index.rows", "index.sources")
				err = find(h, p, v)
				v.Close()
				if _, is := errors.AsType[*index.NotReadyError](err); !is || p.Stats().Differences == 0 {
					t.Errorf("%v, %+v", err, p.Stats())
				}
				h.pass(time.Minute)
				h.at(p, prod)
				h.verify(p, prod)
				h.accounted(p)
				p.stop()
			})
		})
	}
}
