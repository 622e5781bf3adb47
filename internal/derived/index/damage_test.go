package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// rotten is a store in which what a slot has in some spaces cannot be read.
type rotten struct {
	store.Store

	harm atomic.Pointer[harm]
}

// harm is what cannot be read.
type harm struct {
	slot   string
	spaces []store.Space
}

// damaged returns the error of what begins with a key.
func (r *rotten) damaged(space store.Space, key string) error {
	h := r.harm.Load()
	if h == nil || !slices.Contains(h.spaces, space) || !strings.HasPrefix(key, h.slot+"/") {
		return nil
	}
	return &store.CorruptionError{Where: string(space), Err: errors.New("its checksum is wrong")}
}

// rot damages the only slot that there is but for some, and returns its name.
func (r *rotten) rot(tb testing.TB, but []string, spaces ...store.Space) string {
	tb.Helper()
	items, err := r.Scan(tb.Context(), prod, "index.slots", store.Range{}, 10)
	items = slices.DeleteFunc(items, func(it store.Item) bool { return slices.Contains(but, it.Key) })
	if err != nil || len(items) != 1 {
		tb.Fatal(items, err)
	}
	r.harm.Store(&harm{items[0].Key, spaces})
	return items[0].Key
}

func (r *rotten) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	if err := r.damaged(space, key); err != nil {
		return store.Item{}, err
	}
	return r.Store.Get(ctx, t, space, key)
}

func (r *rotten) GetEach(
	ctx context.Context, t j17.Tenant, space store.Space, keys []string, do func(i int, value []byte) error,
) error {
	for _, key := range keys {
		if err := r.damaged(space, key); err != nil {
			return err
		}
	}
	return r.Store.GetEach(ctx, t, space, keys, do)
}

func (r *rotten) Scan(
	ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if err := r.damaged(space, keys.From); err != nil {
		return nil, err
	}
	return r.Store.Scan(ctx, t, space, keys, limit)
}

func (r *rotten) Count(ctx context.Context, t j17.Tenant, space store.Space, keys store.Range, limit int) (int, error) {
	if err := r.damaged("count of "+space, keys.From); err != nil {
		return 0, err
	}
	return r.Store.Count(ctx, t, space, keys, limit)
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

func (m rottenMoment) Scan(space store.Space, keys store.Range, limit int) ([]store.Item, error) {
	if err := m.of.damaged(space, keys.From); err != nil {
		return nil, err
	}
	return m.Moment.Scan(space, keys, limit)
}

func (m rottenMoment) Each(space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	if err := m.of.damaged(space, keys.From); err != nil {
		return err
	}
	return m.Moment.Each(space, keys, do)
}

// rotten starts a process on a store of its own kind, with two rows.
func (h *house) rotten() (*rotten, *process) {
	h.tb.Helper()
	st := &rotten{Store: h.disk}
	p := h.start(st)
	h.write(prod, event("item", "i00", some("item", 0)), event("item", "i01", some("item", 1)))
	return st, p
}

// mended checks that the index is as it should be again.
func (h *house) mended(p *process) {
	h.tb.Helper()
	h.at(p, prod)
	h.verify(p, prod)
	h.accounted(p)
}

// TestDamageIsMended: whoever finds that something of an index cannot be read, a reader or the upkeep, has it rebuilt.
// Nobody is told that there are no rows, and nobody waits for the next look through all indexes.
func TestDamageIsMended(t *testing.T) {
	all := index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}}
	for name, find := range map[string]func(h *house, p *process, v *index.View) error{
		"scan": func(_ *house, _ *process, v *index.View) error {
			_, err := v.Scan(plenty(), all, "", 10)
			return err
		},
		"count": func(_ *house, _ *process, v *index.View) error { _, err := v.Count(plenty(), all); return err },
		"words": func(_ *house, _ *process, v *index.View) error {
			_, err := v.Words(plenty(), titles, []string{"red", "gr"}, "", 10)
			return err
		},
		"counted words": func(_ *house, _ *process, v *index.View) error {
			_, err := v.CountWords(plenty(), titles, []string{"red", "gr"})
			return err
		},
		"comparison": func(h *house, p *process, _ *index.View) error {
			difference, err := p.Verify(h.tb.Context(), prod, "one", nil)
			if err != nil || difference == nil || difference.What != index.Unreadable {
				return fmt.Errorf("%+v, %w", difference, err)
			}
			return &index.NotReadyError{}
		},
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
					h.write(
						prod, event("item", "i"+string(rune('0'+n/10))+string(rune('0'+n%10)), some("item", n)),
						event("shop", "s0", some("shop", n)),
					)
				}
				h.ready(p, prod, source{h.disk}.definition(nil))
				v, err := p.At(t.Context(), prod, "one", h.end(prod))
				if err != nil {
					t.Fatal(err)
				}
				st.rot(t, nil, "index.entries", "index.rows", "index.sources")
				err = find(h, p, v)
				v.Close()
				if _, is := errors.AsType[*index.NotReadyError](err); !is || p.Stats().Differences == 0 {
					t.Errorf("%v, %+v", err, p.Stats())
				}
				h.pass(time.Minute)
				h.mended(p)
				p.stop()
			})
		})
	}
}

// heldBuilds is a definition whose builds wait as long as they are held: a build makes several rows at a time, the
// upkeep one of a test's.
func heldBuilds(h *house, held *atomic.Bool) *index.Definition {
	return source{h.disk}.definition(func(ctx context.Context, ids []string) error {
		for len(ids) > 1 && held.Load() && ctx.Err() == nil {
			_ = clock.System{}.Wait(ctx, time.Now().Add(10*time.Millisecond)) // either way it is looked at again
		}
		return ctx.Err()
	})
}

// TestDamageOfWhatServesDuringABuild: the upkeep of what serves meets damage while another build runs. What serves is
// dropped, and not read as if it had what it could not handle; the build that runs is the one that mends it.
func TestDamageOfWhatServesDuringABuild(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		st, p := h.rotten()
		var held atomic.Bool
		h.ready(p, prod, heldBuilds(h, &held))
		held.Store(true)
		st.rot(t, nil, "index.rows")
		if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Second)
		h.write(prod, event("item", "i00", some("item", 5)))
		h.pass(time.Second)

		// Nobody reads it, and it is said once.
		for range 3 {
			v, err := p.At(t.Context(), prod, "one", h.end(prod))
			if err == nil {
				h.check(prod, v)
				v.Close()
			}
			if _, is := errors.AsType[*index.NotReadyError](err); !is {
				t.Errorf("it is read: %v", err)
			}
		}
		if stats := p.Stats(); stats.Differences != 1 || stats.Lag != 0 {
			t.Errorf("%+v", stats)
		}
		held.Store(false)
		h.pass(time.Minute)
		h.mended(p)
		if ended := p.build.Stats().Ended; ended != 2 || p.Stats().Differences != 1 {
			t.Errorf("%d builds, %+v", ended, p.Stats())
		}
		p.stop()
	})
}

// TestDamageOfWhatIsBuilt: what is being built meets damage when it catches up. It begins again, and what serves goes
// on to.
func TestDamageOfWhatIsBuilt(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		st, p := h.rotten()
		var held atomic.Bool
		h.ready(p, prod, heldBuilds(h, &held))
		serving := st.rot(t, nil)
		held.Store(true)
		if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Second)
		building := st.rot(t, []string{serving}, "index.rows")

		// So much is written that it does not serve at once.
		for range 11 {
			var events []store.NewEvent
			for n := range 100 {
				events = append(events, event("item", "i00", some("item", n)))
			}
			h.write(prod, events...)
		}
		h.at(p, prod)
		held.Store(false)
		for range 1000 {
			if p.Stats().Differences > 0 {
				break
			}
			h.pass(5 * time.Millisecond)
			h.at(p, prod)
		}
		h.pass(time.Minute)
		h.mended(p)
		items, err := h.disk.Scan(t.Context(), prod, "index.slots", store.Range{}, 10)
		if err != nil || len(items) != 1 || items[0].Key == building || items[0].Key == serving ||
			p.Stats().Differences != 1 {
			t.Errorf("%v, %v, %+v", items, err, p.Stats())
		}
		p.stop()
	})
}

// TestDamageOfWhatDoesNotServeAnyMore: a reader who has an old view meets damage when another build serves already,
// which is left alone.
func TestDamageOfWhatDoesNotServeAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		st, p := h.rotten()
		h.ready(p, prod, source{h.disk}.definition(nil))
		v, err := p.At(t.Context(), prod, "one", h.end(prod))
		if err != nil {
			t.Fatal(err)
		}
		st.rot(t, nil, "index.entries")
		if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Await(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		_, err = v.Scan(plenty(), index.Query{Lanes: [][]index.Range{{index.All(all, 0)}}}, "", 10)
		v.Close()
		if _, is := errors.AsType[*index.NotReadyError](err); !is {
			t.Error(err)
		}
		if status, err := p.Status(t.Context(), prod, "one"); err != nil || !status.Ready ||
			p.Stats().Differences != 0 {
			t.Errorf("%+v, %v, %+v", status, err, p.Stats())
		}
		h.at(p, prod)
		h.pass(time.Minute)
		if ended := p.build.Stats().Ended; ended != 2 {
			t.Errorf("%d builds", ended)
		}
		p.stop()
	})
}

// TestDamageBehindTheFirstRows: a change concerns more rows than are computed for one commit, and only what names the
// ones behind them is damaged.
func TestDamageBehindTheFirstRows(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		st := &rotten{Store: h.disk}
		p := h.start(st)
		h.write(prod, event("shop", "s0", some("shop", 0)))
		for n := range 3 {
			h.write(prod, event("item", "i0"+strconv.Itoa(n), some("item", n)))
		}
		var fails atomic.Bool
		h.ready(p, prod, source{h.disk}.definition(func(context.Context, []string) error {
			if fails.Load() {
				return errors.New("broken")
			}
			return nil
		}))

		// After tries that fail a commit has fewer rows than the shop concerns.
		st.rot(t, nil, "count of index.sources")
		fails.Store(true)
		h.write(prod, event("shop", "s0", some("shop", 1)))
		h.pass(time.Hour)
		fails.Store(false)
		h.pass(time.Hour)
		if n := p.Stats().Differences; n != 1 {
			t.Errorf("%d differences", n)
		}
		h.mended(p)
		p.stop()
	})
}

// TestDamagedEventsAreNoDamageOfTheIndex: the look through all indexes comes upon an event that cannot be read. The
// index is as it should be, could not be rebuilt either, and serves on.
func TestDamagedEventsAreNoDamageOfTheIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.scrub = time.Minute
		var asked, damaged atomic.Int64
		d := source{h.disk}.definition(func(context.Context, []string) error {
			if damaged.Load() == 0 {
				return nil
			}
			asked.Add(1)
			return &store.CorruptionError{Where: "an event", Err: errors.New("its checksum is wrong")}
		})
		p := h.start(h.disk)
		h.write(prod, event("item", "i00", some("item", 1)), event("shop", "s0", some("shop", 1)))
		h.ready(p, prod, d)
		damaged.Store(1)
		for asked.Load() == 0 {
			h.pass(time.Minute)
		}
		h.at(p, prod)
		if n := p.Stats().Differences; n != 0 {
			t.Errorf("%d differences", n)
		}
		damaged.Store(0)
		h.pass(2 * time.Minute)
		h.verify(p, prod)
		p.stop()
	})
}
