package index_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// random writes some events at random.
func (h *house) random(rng *rand.Rand, t j17.Tenant, n int) {
	h.tb.Helper()
	var events []store.NewEvent
	for range n {
		typ, id := "item", fmt.Sprintf("i%02d", rng.IntN(12))
		switch rng.IntN(8) {
		case 0, 1:
			typ, id = "shop", fmt.Sprintf("s%d", rng.IntN(3))
		case 2, 3:
			typ, id = "note", fmt.Sprintf("n%d", rng.IntN(4))
		case 4:
			typ, id = "other", "o"
		}
		events = append(events, event(typ, id, some(typ, rng.IntN(100))))
	}
	h.write(t, events...)
}

// erase takes what the events of an item say.
func (h *house) erase(t j17.Tenant, id string) {
	h.tb.Helper()
	h.rewrite(t, id, `{}`)
}

// rewrite gives all events of an item other data.
func (h *house) rewrite(t j17.Tenant, id, data string) {
	h.tb.Helper()
	key := j17.Key{Type: "item", ID: id}
	heads, err := h.disk.Heads(h.tb.Context(), t, []j17.Key{key})
	if err != nil {
		h.tb.Fatal(err)
	}
	r := store.Rewrite{Streams: []store.RewrittenStream{{Key: key}}}
	for n := range heads[0].Length {
		r.Streams[0].Events = append(r.Streams[0].Events, store.Rewritten{
			Version: n + 1, Type: "was_erased", Data: []byte(data), Metadata: []byte(`{}`),
		})
	}
	if len(r.Streams[0].Events) == 0 {
		return
	}
	if _, err := h.disk.Rewrite(h.tb.Context(), t, r); err != nil {
		h.tb.Fatal(err)
	}
}

// TestHistories makes up histories of writes, erasures, rebuilds, restarts and new indexes, and of times in which
// nobody asks. Every view is what a look at all aggregates at its position gives, also where upkeep rests and works in
// bulk after a handful of events.
func TestHistories(t *testing.T) {
	seeds := 2
	if os.Getenv("J17_SOAK") != "" {
		seeds = 100
	}
	for seed := range seeds {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			h.hasty = seed%2 == 1
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			d := source{h.disk}.definition(nil)
			p := h.start(h.disk)
			h.random(rng, prod, rng.IntN(40)+1)
			h.ready(p, prod, d)
			for range 40 {
				switch rng.IntN(14) {
				case 12, 13:
					h.pass(11 * time.Second)
					for range rng.IntN(10) {
						h.random(rng, prod, rng.IntN(40))
						h.pass(time.Duration(rng.IntN(70)) * time.Millisecond)
						if rng.IntN(5) == 0 {
							h.rewrite(prod, fmt.Sprintf("i%02d", rng.IntN(12)), `{}`)
						}
					}
				case 0:
					h.erase(prod, fmt.Sprintf("i%02d", rng.IntN(12)))
				case 1:
					p.stop()
					h.random(rng, prod, rng.IntN(300))
					p = h.start(h.disk)
					h.ready(p, prod, d)
				case 2:
					if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
						t.Fatal(err)
					}
				case 3:
					if err := p.Remove(t.Context(), prod, "one"); err != nil {
						t.Fatal(err)
					}
					h.ready(p, prod, d)
				case 4:
					h.pass(10 * time.Second) // the lease of the tenant is given back
				default:
					h.random(rng, prod, rng.IntN(10))
				}
				h.at(p, prod)
				v, err := p.At(t.Context(), prod, "one", h.end(prod))
				if err != nil {
					t.Fatal(err)
				}
				h.sameAhead(p, prod, v)
				v.Close()
			}
			h.pass(time.Minute)
			h.verify(p, prod)
			h.accounted(p)
			p.stop()
		})
	}
}

// accounted checks the numbers of the only index, and that nothing is left of what was removed.
func (h *house) accounted(p *process) {
	h.tb.Helper()
	ctx := h.tb.Context()
	status, err := p.Status(ctx, prod, "one")
	if err != nil {
		h.tb.Fatal(err)
	}
	counts := map[store.Space]int{}
	bytes := 0
	for _, space := range []store.Space{"index.entries", "index.rows", "index.sources"} {
		items, err := h.disk.Scan(ctx, prod, space, store.Range{}, 1_000_000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range items {
			bytes += len(it.Key) + len(it.Value)
		}
		counts[space] = len(items)
	}
	if status.Rows != uint64(counts["index.rows"]) || status.Entries != uint64(counts["index.entries"]) ||
		status.Bytes != uint64(bytes) {
		h.tb.Errorf("%+v, and there are %v in %d bytes", status, counts, bytes)
	}
	for space, want := range map[store.Space]int{
		"index.slots": 1, "index.heads": 1, "index.counts": 3, "build.jobs": 0, "build.removals": 0,
		"feed.subscriptions": 1,
	} {
		if n, err := h.disk.Count(ctx, prod, space, store.Range{}, 100); err != nil || n != want {
			h.tb.Errorf("%d items in %s, %v, want %d", n, space, err, want)
		}
	}
}

// TestCrashes ends the process before and after each of its writes while an index is built, follows events and is
// rebuilt: what the next one has is exact, and nothing is left over. Outside of soaks it is some of the writes.
func TestCrashes(t *testing.T) {
	stride := 13
	if os.Getenv("J17_SOAK") != "" {
		stride = 1
	}
	for _, late := range []bool{false, true} {
		crashes := 0
		for left, over := 0, false; !over; left += stride {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				h.hasty = left%2 == 1
				rng := rand.New(rand.NewPCG(7, 7))
				h.random(rng, prod, 300)
				d := source{h.disk}.definition(nil)
				m := storetest.NewCrashing(h.disk, left, late)
				first := h.start(m)
				done := make(chan struct{})
				go func() {
					defer close(done)
					live(t.Context(), first, d)
				}()
				for range 5 {
					h.pass(200 * time.Millisecond)
					h.random(rng, prod, 20)
				}
				h.pass(20 * time.Second)
				for range 5 {
					h.random(rng, prod, 20) // nobody has asked for a while
					h.pass(30 * time.Millisecond)
				}
				h.pass(time.Second)
				over = !m.IsDead()
				if !over {
					crashes++
				}
				first.stop()
				<-done

				// The next one goes on.
				next := h.start(h.disk)
				h.pass(time.Minute) // the lease of one that has ended late is over
				h.ready(next, prod, d)
				h.at(next, prod)
				h.pass(2 * time.Minute)
				h.at(next, prod)
				h.verify(next, prod)
				h.accounted(next)
				next.stop()
			})
		}
		if crashes < 2 {
			t.Errorf("it has ended %d times only", crashes)
		}
	}
}

// live does what a process does with an index, until its store is gone.
func live(ctx context.Context, p *process, d *index.Definition) {
	if _, err := p.Ensure(ctx, prod, d); err != nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := p.Await(short, prod, d.ID); err != nil {
		return
	}
	if err := p.Rebuild(ctx, prod, d.ID); err != nil {
		return
	}
	_, _ = p.Await(short, prod, d.ID) // it ends with the store at the latest
}

// TestUnderWriters reads an index while events are written, from two processes that share its upkeep. One of them ends
// in between.
func TestUnderWriters(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		a, b := h.start(h.disk), h.start(h.disk)
		for _, tenant := range []j17.Tenant{prod, staging} {
			d := source{h.disk}.definition(nil)
			h.ready(a, tenant, d)
			h.ready(b, tenant, d)
		}
		stop := make(chan struct{})
		var writing sync.WaitGroup
		for i, tenant := range []j17.Tenant{prod, staging} {
			writing.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 3))
				for range 100 {
					h.random(rng, tenant, 3)
					h.pause(2 * time.Millisecond)
				}
			})
		}
		go func() {
			writing.Wait()
			close(stop)
		}()
		for n := 0; ; n++ {
			tenant := []j17.Tenant{prod, staging}[n%2]
			h.at([]*process{a, b}[n/2%2], tenant)
			h.pause(time.Millisecond)
			if n == 20 {
				a.stop()
				a = b
			}
			select {
			case <-stop:
				h.pass(40 * time.Second) // what the first process held is free by then
				for _, tenant := range []j17.Tenant{prod, staging} {
					h.at(b, tenant)
					h.verify(b, tenant)
				}
				b.stop()
				return
			default:
			}
		}
	})
}

// pause waits without looking whether others are at rest.
func (h *house) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// TestFanout changes what thousands of rows are made from: they are worked off in parts, which a crash does not lose,
// while another index is not held up, and nobody sees some rows before the others.
func TestFanout(t *testing.T) {
	const rows = 2200
	definition := func(h *house, id string) *index.Definition {
		s := source{h.disk}
		return &index.Definition{
			ID: id, Type: "item", Types: []string{"shop"},
			Rows: func(ctx context.Context, t j17.Tenant, at j17.StreamID, ids []string) (rows []index.Row, err error) {
				shop := j17.Key{Type: "shop", ID: "s"}
				of, err := s.state(ctx, t, at, shop)
				for _, id := range ids {
					rows = append(rows, index.Row{
						ID: id, Entries: []index.Entry{index.NewEntry(0), index.NewEntry(1, of.Get("name"))},
						Sources: []j17.Key{shop},
					})
				}
				return rows, err
			},
		}
	}
	named := func(name string) index.Query {
		return index.Query{Lanes: [][]index.Range{{index.All(1, 1).Prefix(name)}}}
	}
	for _, left := range []int{-1, 3} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			events := []store.NewEvent{event("shop", "s", `{"name":"first"}`)}
			for i := range rows {
				events = append(events, event("item", fmt.Sprintf("i%05d", i), `{}`))
			}
			h.write(prod, events...)
			p := h.start(h.disk)
			h.ready(p, prod, definition(h, "wide"))
			if left >= 0 {
				p.stop()
				m := storetest.NewCrashing(h.disk, left+2, false)
				p = h.start(m)
				if _, err := p.Ensure(t.Context(), prod, definition(h, "wide")); err != nil {
					t.Fatal(err)
				}
				h.write(prod, event("shop", "s", `{"name":"second"}`))
				<-m.Died()
				p.stop()
				p = h.start(h.disk)
				h.ready(p, prod, definition(h, "wide"))
			} else {
				h.write(prod, event("shop", "s", `{"name":"second"}`))
			}
			v, err := p.At(t.Context(), prod, "wide", h.end(prod))
			for errors.As(err, new(*index.NotReadyError)) {
				// Until the lease of the one that has ended is over.
				v, err = p.At(t.Context(), prod, "wide", h.end(prod))
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]uint64{"first": 0, "second": rows} {
				if n, err := v.Count(plenty(), named(name)); err != nil || n != want {
					t.Errorf("%d rows with the %s name, %v, want %d", n, name, err, want)
				}
			}
			v.Close()
			h.same(p, prod, "wide")
			if !strings.Contains(h.log.String(), "rows=2200") {
				t.Errorf("the change is not told of: %s", h.log)
			}
			p.stop()
		})
	}
}

// TestFanoutIsNotSeenInPart waits in the middle of a change of many rows: the index is not read then, says how far it
// is, and goes on.
func TestFanoutIsNotSeenInPart(t *testing.T) {
	testFanoutIsNotSeenInPart(t, 3000, 2048, 128) // in bulk
	testFanoutIsNotSeenInPart(t, 2999, 1024, 16)  // too many rows for that
}

// testFanoutIsNotSeenInPart has 3000 rows of which so many change in bulk; it waits behind the first commit of so many
// of them, which are computed in slices.
func testFanoutIsNotSeenInPart(t *testing.T, most int, commit uint64, slice int64) {
	t.Helper()
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var events []store.NewEvent
		for i := range 3000 {
			events = append(events, event("item", fmt.Sprintf("i%05d", i), `{}`))
		}
		h.write(prod, events...)
		var calls, hold atomic.Int64
		held := make(chan struct{})
		shop := j17.Key{Type: "shop", ID: "s"}
		d := &index.Definition{
			ID: "wide", Type: "item", Types: []string{"shop"},
			Rows: func(ctx context.Context, _ j17.Tenant, _ j17.StreamID, ids []string) (rows []index.Row, err error) {
				if hold.Load() > 0 && calls.Add(1) == int64(commit)/slice+1 {
					<-held
				}
				for _, id := range ids {
					rows = append(rows, index.Row{
						ID: id, Entries: []index.Entry{index.NewEntry(0)}, Sources: []j17.Key{shop},
					})
				}
				return rows, ctx.Err()
			},
		}
		p := h.start(h.disk)
		p.Bulk(most, 2048)
		h.ready(p, prod, d)
		h.pass(time.Second)
		hold.Store(1)
		h.write(prod, event("shop", "s", `{}`))
		h.pass(time.Second)
		_, err := p.At(t.Context(), prod, "wide", j17.StreamID{})
		notReady, is := errors.AsType[*index.NotReadyError](err)
		if !is || notReady.Done != commit || notReady.Total != 3000 {
			t.Errorf("%+v, %v", notReady, err)
		}
		close(held)
		h.pass(time.Second)
		if status, err := p.Status(t.Context(), prod, "wide"); err != nil || status.Fanout != nil || status.Lag != 0 ||
			status.Rows != 3000 {
			t.Errorf("%+v, %v", status, err)
		}
		p.stop()
	})
}

// TestQuietTypes: events of types that an index is not about make nobody wait and move nothing.
func TestQuietTypes(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		p := h.start(h.disk)
		h.write(prod, event("item", "i", `{}`))
		h.ready(p, prod, source{h.disk}.definition(nil))
		h.at(p, prod)
		before := p.Stats()
		for range 50 {
			h.write(prod, event("other", "o", `{}`))
			h.at(p, prod)
		}
		after := p.Stats()
		if after.Batches != before.Batches || after.Waited != before.Waited || after.Views != before.Views+50 {
			t.Errorf("%+v, before %+v", after, before)
		}
		keys, ok, err := p.Touched(t.Context(), prod, []string{"other"}, j17.StreamID{}, h.end(prod), 1000)
		if err != nil || !ok || len(keys) != 1 {
			t.Errorf("%v, %v, %v", keys, ok, err)
		}
		if _, ok, err := p.Touched(t.Context(), prod, nil, j17.StreamID{}, h.end(prod), 10); ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		p.stop()
	})
}

// TestNotReady: an index that was not built yet says how far it is; one that cannot be built says why; one that does
// not get on is waited for and then not served.
func TestNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for i := range 600 {
			h.write(prod, event("item", fmt.Sprintf("i%03d", i), `{}`))
		}
		wait, broken := make(chan struct{}), errors.New("broken")
		var fails atomic.Bool
		d := source{h.disk}.definition(func(ctx context.Context, ids []string) error {
			if fails.Load() {
				return broken
			}
			if ids[0] >= "i256" {
				select {
				case <-wait:
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		})
		p := h.start(h.disk)
		if _, err := p.At(t.Context(), prod, "one", j17.StreamID{}); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		if _, err := p.Ensure(t.Context(), prod, d); err != nil {
			t.Fatal(err)
		}
		h.notReady(
			p, "at the second page", func(e *index.NotReadyError) bool { return e.Done == 256 && e.Total == 600 },
		)
		if status, err := p.Status(t.Context(), prod, "one"); err != nil || status.Ready ||
			status.Build.State != build.Running {
			t.Errorf("%+v, %v", status, err)
		}

		// It is cancelled, and begun again.
		if err := p.Cancel(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		h.notReady(p, "canceled", func(e *index.NotReadyError) bool { return e.Failed == build.Canceled })
		close(wait)
		if err := p.Rebuild(t.Context(), prod, "one"); err != nil {
			t.Fatal(err)
		}
		h.ready(p, prod, d)
		h.at(p, prod)

		// It does not get on.
		fails.Store(true)
		h.write(prod, event("item", "i000", `{"label":1}`))
		begin := time.Now()
		_, err := p.At(t.Context(), prod, "one", h.end(prod))
		if notReady, is := errors.AsType[*index.NotReadyError](err); !is || notReady.Total == 0 ||
			time.Since(begin) < 5*time.Second || time.Since(begin) > 10*time.Second {
			t.Errorf("behind by %+v: %v after %v", notReady, err, time.Since(begin))
		}
		v, err := p.At(t.Context(), prod, "one", j17.StreamID{})
		if err != nil {
			t.Fatal(err)
		}
		h.check(prod, v)
		v.Close()
		fails.Store(false)
		h.pass(time.Minute)
		h.at(p, prod)
		h.pass(time.Minute)
		h.accounted(p)
		p.stop()
	})
}

// TestVerify changes what is stored of an index in all ways: each is noticed.
func TestVerify(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		p := h.start(h.disk)
		for n := range 30 {
			h.write(
				prod, event("item", fmt.Sprintf("i%02d", n), some("item", n)),
				event("shop", fmt.Sprintf("s%d", n%3), some("shop", n)),
			)
		}
		d := source{h.disk}.definition(nil)
		h.ready(p, prod, d)
		h.verify(p, prod)

		// It says how far it is.
		status, err := p.Status(t.Context(), prod, "one")
		if err != nil {
			t.Fatal(err)
		}
		var said []uint64
		if _, err := p.Verify(t.Context(), prod, "one", func(done, total uint64) {
			if said = append(said, done); total != status.Rows+status.Entries {
				t.Errorf("%d of %d are compared, and there are %+v", done, total, status)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if first, last := said[0],
			said[len(said)-1]; !slices.IsSorted(said) || first != 0 || last != status.Rows+status.Entries {
			t.Errorf("it was at %v of %+v", said, status)
		}

		// And notices everything; what differs is rebuilt.
		for _, space := range []store.Space{"index.entries", "index.rows", "index.sources"} {
			put := func(key string, v []byte) store.Side {
				return store.Side{Op: store.Put, Space: space, Key: key, Value: v}
			}
			for what, harm := range map[string]func(it *store.Item) store.Side{
				"removed": func(it *store.Item) store.Side {
					return store.Side{Op: store.Delete, Space: space, Key: it.Key}
				},
				"added":   func(it *store.Item) store.Side { return put(it.Key+"x", it.Value) },
				"changed": func(it *store.Item) store.Side { return put(it.Key, append([]byte("s"), it.Value...)) },
			} {
				if what == "changed" && space == "index.sources" {
					continue // they have no value
				}
				items, err := h.disk.Scan(t.Context(), prod, space, store.Range{}, 1000)
				if err != nil {
					t.Fatal(err)
				}
				it := items[len(items)/2]
				if err := h.disk.Write(t.Context(), prod, []store.Side{harm(&it)}); err != nil {
					t.Fatal(err)
				}
				difference, err := p.Verify(t.Context(), prod, "one", nil)
				if err != nil || difference == nil || !strings.HasPrefix(difference.ID, "i") || difference.What == "" {
					t.Errorf("%s %q: %+v, %v", what, it.Key, difference, err)
				}
				h.pass(time.Minute)
			}
		}
		h.verify(p, prod)
		p.stop()
	})
}

// TestScrub: an index that was changed is noticed in the background, not read from then on, and rebuilt.
func TestScrub(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.scrub = 10 * time.Second
		p := h.start(h.disk)
		h.write(prod, event("item", "i00", some("item", 1)), event("item", "i01", some("item", 2)))
		var wait atomic.Bool
		let := make(chan struct{})
		d := source{h.disk}.definition(func(ctx context.Context, _ []string) error {
			if wait.Load() && h.unreadable(p, prod, "one") {
				<-let
			}
			return ctx.Err()
		})
		h.ready(p, prod, d)
		h.pass(11 * time.Second)
		if n := p.Stats().Differences; n != 0 {
			t.Fatalf("%d differences", n)
		}
		items, err := h.disk.Scan(t.Context(), prod, "index.entries", store.Range{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.disk.Write(t.Context(), prod, []store.Side{
			{Op: store.Delete, Space: "index.entries", Key: items[0].Key},
		}); err != nil {
			t.Fatal(err)
		}
		wait.Store(true)
		h.pass(11 * time.Second)
		if gone := h.unreadable(p, prod, "one"); !gone || p.Stats().Differences != 1 {
			t.Errorf("it cannot be read: %t, %+v", gone, p.Stats())
		}
		close(let)
		h.pass(time.Minute)
		h.at(p, prod)
		h.verify(p, prod)
		h.accounted(p)
		p.stop()
	})
}

// TestKnow: after a start, events wait until somebody makes the definition known, and then go on at once.
func TestKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		d := source{h.disk}.definition(nil)
		h.write(prod, event("item", "i00", `{}`))
		p := h.start(h.disk)
		h.ready(p, prod, d)
		p.stop()
		p = h.start(h.disk)
		h.write(prod, event("item", "i01", `{}`))
		h.pass(time.Second)
		_, err := p.At(t.Context(), prod, "one", h.end(prod))
		if notReady, is := errors.AsType[*index.NotReadyError](err); !is || notReady.Total != 1 {
			t.Errorf("%+v, %v", notReady, err)
		}
		begin := time.Now()
		p.Know(t.Context(), prod, d)
		h.at(p, prod)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
		p.stop()
	})
}

// TestTotals: what all indexes have together is what each says, and how far the last one is behind while nobody keeps
// it up to date.
func TestTotals(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for n := range 20 {
			h.write(prod, event("item", fmt.Sprint("i", n), some("item", n)))
		}
		p := h.start(h.disk)
		d, other := source{h.disk}.definition(nil), source{h.disk}.titled()
		other.ID = "two"
		h.ready(p, prod, d)
		h.ready(p, prod, other)
		h.at(p, prod)
		var want index.Totals
		for _, id := range []string{"one", "two"} {
			status, err := p.Status(t.Context(), prod, id)
			if err != nil || status.Rows == 0 || status.Entries == 0 || status.Bytes == 0 {
				t.Fatalf("%+v, %v", status, err)
			}
			want.Rows, want.Entries, want.Bytes = want.Rows+status.Rows, want.Entries+status.Entries,
				want.Bytes+status.Bytes
		}
		if got, err := p.Totals(t.Context()); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}

		p.stop()
		for n := range 5 {
			h.write(prod, event("item", fmt.Sprint("j", n), some("item", n)))
		}
		want.Behind = 5
		if got, err := p.Totals(t.Context()); err != nil || got != want {
			t.Errorf("behind: %+v, %v, want %+v", got, err, want)
		}
	})
}

// TestNobodyWaitsForWhatIsGone: events that wait for a slot do so no longer when another one has taken its place, or
// when the index or the environment is removed.
func TestNobodyWaitsForWhatIsGone(t *testing.T) {
	for name, goes := range map[string]func(ctx context.Context, h *house, p *process) error{
		"replaced": func(ctx context.Context, _ *house, p *process) error { return p.Rebuild(ctx, prod, "one") },
		"removed":  func(ctx context.Context, _ *house, p *process) error { return p.Remove(ctx, prod, "one") },
		"dropped": func(ctx context.Context, h *house, p *process) error {
			defer p.Forget(prod)
			return h.disk.DropTenant(ctx, prod)
		},
	} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			var failing atomic.Bool
			p := h.start(h.disk)
			h.write(prod, event("item", "i1", `{}`))
			h.ready(p, prod, source{h.disk}.definition(func(context.Context, []string) error {
				if failing.Load() {
					return errors.New("it cannot be computed")
				}
				return nil
			}))
			failing.Store(true)
			h.write(prod, event("item", "i2", `{}`))
			h.pass(10 * time.Minute)
			if lag := p.Stats().Lag; lag < 9*time.Minute {
				t.Fatalf("an event waits for %s", lag)
			}
			failing.Store(false)
			if err := goes(t.Context(), h, p); err != nil {
				t.Fatal(err)
			}
			h.pass(10 * time.Second)
			if lag := p.Stats().Lag; lag != 0 {
				t.Errorf("%s: an event waits for %s", name, lag)
			}
			p.stop()
		})
	}
}
