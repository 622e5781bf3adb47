package feed_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

const results store.Space = "test.results"

// ledger keeps what was handled in the store, in the same commit as the checkpoint.
type ledger struct {
	mu sync.Mutex
	// by tells which sets have committed something.
	by map[string]int
	// refused counts the commits that did not hold.
	refused int
}

// handler returns the handler of a set. before is called before each commit.
func (g *ledger) handler(
	set string, to store.Sides, before func(context.Context, *feed.Batch),
) func(context.Context, *feed.Batch) error {
	return func(ctx context.Context, b *feed.Batch) error {
		var sides []store.Side
		for _, e := range b.Entries {
			// What is done twice is there twice.
			key := fmt.Sprintf("%s/%09s/%s", b.Name, e.Event.Data, rand.Text())
			sides = append(sides, store.Side{Op: store.Put, Space: results, Key: key, Value: e.Event.Data})
		}
		sides = append(sides, b.Done(len(b.Entries))...)
		if before != nil {
			before(ctx, b)
		}
		err := to.Write(context.WithoutCancel(ctx), b.Tenant, sides)
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.by == nil {
			g.by = map[string]int{}
		}
		if err == nil {
			g.by[set]++
		}
		if _, conflict := errors.AsType[*store.SideConflict](err); conflict {
			g.refused++
		}
		return err
	}
}

// results returns what was handled of a tenant.
func (h *house) results(t j17.Tenant, name string) (data []string) {
	h.tb.Helper()
	items, err := h.Scan(h.tb.Context(), t, results, store.Prefix(name+"/"), 1<<20)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, it := range items {
		data = append(data, string(it.Value))
	}
	return data
}

// TestSets lets two sets share many tenants: each is worked on by one of them at a time, and both work.
func TestSets(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g ledger
		var mu sync.Mutex
		at := map[j17.Tenant]int{}
		busy := func(ctx context.Context, b *feed.Batch) {
			mu.Lock()
			at[b.Tenant]++
			if at[b.Tenant] > 1 {
				t.Errorf("tenant %s is worked on twice at a time", b.Tenant)
			}
			mu.Unlock()
			rest(ctx, 10*time.Millisecond)
			mu.Lock()
			at[b.Tenant]--
			mu.Unlock()
		}
		few := func(o *feed.Options) { o.AtOnce, o.Tenants = 4, 8 }
		a, b := h.set(feed.Kind{Do: g.handler("a", h.Store, busy), Batch: 5}, few),
			h.set(feed.Kind{Do: g.handler("b", h.Store, busy), Batch: 5}, few)
		stopA, stopB := h.run(a), h.run(b)
		var tenants []j17.Tenant
		for i := range 20 {
			tenants = append(tenants, j17.Tenant(fmt.Sprintf("i%d/prod", i)))
			h.subscribe(a, tenants[i], "x", feed.Beginning())
		}
		for range 6 {
			for _, t := range tenants {
				h.append(t, 10)
			}
			pass(t, 500*time.Millisecond)
		}
		pass(t, 2*time.Minute)
		stopA()
		stopB()
		for _, tenant := range tenants {
			same(t, string(tenant), h.all(tenant), h.results(tenant, "x"))
		}
		if g.by["a"] < 10 || g.by["b"] < 10 {
			t.Errorf("%v", g.by)
		}
		if h.log.Len() > 0 {
			t.Error(h.log)
		}
	})
}

// TestFenced freezes a set before it commits, or cuts its way to the store, until the other one has taken its tenant
// over and gone on. What the first one still does when it comes back does not count.
func TestFenced(t *testing.T) {
	for name, stop := range map[string]func(l *link) (end func()){
		"frozen":  (*link).freeze,
		"cut off": func(l *link) func() { l.cut(errors.New("no route")); return func() { l.cut(nil) } },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				var g ledger
				l := &link{Store: h.Store}
				first := true
				thawed := make(chan struct{})
				var end func()
				a := h.set(feed.Kind{Batch: 10, Do: g.handler("a", h.Store, func(context.Context, *feed.Batch) {
					if first {
						first = false
						end = stop(l)
						<-thawed
					}
				})}, linked(l))
				b := h.set(feed.Kind{Batch: 10, Do: g.handler("b", h.Store, nil)})
				stopA := h.run(a)
				h.append(shop, 100)
				h.subscribe(b, shop, "x", feed.Beginning())
				pass(t, time.Second)
				stopB := h.run(b)
				pass(t, 20*time.Second)
				if got := len(h.results(shop, "x")); got != 0 {
					t.Errorf("%d results while the first set has the lease", got)
				}
				pass(t, 30*time.Second)
				same(t, "by the second set", h.all(shop), h.results(shop, "x"))

				// The first one comes back and finds that all is done.
				end()
				close(thawed)
				h.append(shop, 10)
				pass(t, time.Minute)
				h.append(shop, 10)
				pass(t, time.Minute)
				stopA()
				stopB()
				same(t, "in the end", h.all(shop), h.results(shop, "x"))
				if g.refused == 0 {
					t.Errorf("no commit was refused, %v", g.by)
				}
				if status := h.status(b, "x"); status.Lag != 0 {
					t.Errorf("%+v", status)
				}
			})
		})
	}
}

// TestIdle checks that tenants in which nothing happens are neither held nor looked at.
func TestIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		calls := &counted{Store: h.Store}
		s := h.set(feed.Kind{Do: g.take}, func(o *feed.Options) { o.Store = calls })
		for i := range 100 {
			tenant := j17.Tenant(fmt.Sprintf("i%d/prod", i))
			h.append(tenant, 1)
			h.subscribe(s, tenant, "x", feed.Beginning())
			h.append(j17.Tenant(fmt.Sprintf("none%d/prod", i)), 1)
		}
		stop := h.run(s)
		pass(t, time.Minute)
		if c := s.Counts(); c.Held != 0 || c.Handled != 100 || c.Taken != 100 {
			t.Errorf("%+v", c)
		}
		before := calls.n()
		pass(t, 10*time.Minute)
		if n := calls.n() - before; n > 0 {
			t.Errorf("%d calls of the store in ten minutes in which nothing happened", n)
		}
		h.append("i7/prod", 1)
		h.append("none7/prod", 1)
		pass(t, time.Minute)
		if n := calls.n() - before; n > 60 {
			t.Errorf("%d calls of the store for one event", n)
		}
		stop()

		// A restart looks once, and writes nothing.
		again := h.set(feed.Kind{Do: g.take}, func(o *feed.Options) { o.Store = calls })
		writes := calls.writes
		stop = h.run(again)
		pass(t, time.Minute)
		if calls.writes != writes || again.Counts().Taken != 0 {
			t.Errorf("%d writes at a restart, %+v", calls.writes-writes, again.Counts())
		}
		stop()
	})
}

// counted counts calls.
type counted struct {
	store.Store
	mu     sync.Mutex
	calls  int
	writes int
}

func (c *counted) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func (c *counted) call(writes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.writes += writes
}

func (c *counted) Get(ctx context.Context, t j17.Tenant, s store.Space, key string) (store.Item, error) {
	c.call(0)
	return c.Store.Get(ctx, t, s, key)
}

func (c *counted) Scan(
	ctx context.Context, t j17.Tenant, s store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	c.call(0)
	return c.Store.Scan(ctx, t, s, keys, limit)
}

func (c *counted) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	c.call(1)
	return c.Store.Write(ctx, t, side, fences...)
}

func (c *counted) Changed(ctx context.Context, since uint64, limit int) ([]store.Change, error) {
	c.call(0)
	return c.Store.Changed(ctx, since, limit)
}

func (c *counted) DueTenants(ctx context.Context, s store.Space, limit int) ([]j17.Tenant, error) {
	c.call(0)
	return c.Store.DueTenants(ctx, s, limit)
}

// TestShared checks that subscriptions of one position are served from one page, and that a slow one holds up no other.
func TestShared(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		reads := &readers{Store: h.Store}
		var mu sync.Mutex
		come, together := 0, make(chan struct{})
		s := h.set(feed.Kind{Do: func(ctx context.Context, b *feed.Batch) error {
			if b.Name == "slow" {
				rest(ctx, 10*time.Second)
				return g.take(ctx, b)
			}
			// The others wait for each other.
			mu.Lock()
			all := together
			if come++; come == 4 {
				come, together = 0, make(chan struct{})
				close(all)
			}
			mu.Unlock()
			<-all
			return g.take(ctx, b)
		}}, func(o *feed.Options) { o.Store = reads })
		names := []string{"slow", "a", "b", "c", "d"}
		for _, name := range names {
			h.subscribe(s, shop, name, feed.Beginning())
		}
		h.append(shop, 5000)
		stop := h.run(s)
		pass(t, time.Second)
		for _, name := range names[1:] {
			same(t, name, h.all(shop), g.of(shop, name))
		}
		if len(g.of(shop, "slow")) > 0 {
			t.Error("the slow one is done already")
		}
		if n := reads.n.Load(); n > 14 { // for each alone they were more than 24
			t.Errorf("%d pages were read", n)
		}
		pass(t, 5*time.Minute)
		same(t, "slow", h.all(shop), g.of(shop, "slow"))
		stop()
	})
}

// readers counts pages.
type readers struct {
	store.Store
	n atomic.Int64
}

func (r *readers) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	r.n.Add(1)
	return r.Store.ReadChanges(ctx, t, after, limit)
}

// TestLater checks that what could not be taken comes again after the pause, or at once when somebody says that there
// is room.
func TestLater(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		room := 0
		do := func(ctx context.Context, b *feed.Batch) error {
			if room == 0 {
				return feed.Later{For: time.Minute}
			}
			n := min(room, len(b.Entries))
			room -= n
			if err := h.Write(ctx, b.Tenant, b.Done(n)); err != nil {
				return err
			}
			b.Entries = b.Entries[:n]
			return g.take(ctx, b)
		}
		s, far := h.set(feed.Kind{Do: do}), h.set(feed.Kind{Do: do})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		h.append(shop, 30)
		pass(t, time.Second)
		room = 3
		pass(t, 30*time.Second)
		if got := len(g.of(shop, "x")); got != 0 {
			t.Errorf("%d before the pause is over", got)
		}
		pass(t, 30*time.Second)
		want := 3
		for _, by := range []*feed.Subscriptions{s, far, s, far} {
			if got := len(g.of(shop, "x")); got != want {
				t.Errorf("%d handed out, not %d", got, want)
			}
			pass(t, time.Second)
			room, want = 2, want+2
			if err := by.Wake(t.Context(), shop, "test", "x"); err != nil {
				t.Fatal(err)
			}
			pass(t, time.Second)
		}
		pass(t, 20*time.Second) // the tenant is given back meanwhile
		room, want = 4, want+4
		if err := s.Wake(t.Context(), shop, "test", "x"); err != nil {
			t.Fatal(err)
		}
		pass(t, time.Second)
		if got := g.of(shop, "x"); !slices.Equal(got, h.all(shop)[:want]) {
			t.Errorf("%v", got)
		}
		if status := h.status(s, "x"); status.Failures != 0 || status.Lag != uint64(30-want) {
			t.Errorf("%+v", status)
		}
		stop()
	})
}

// TestSettled steps a clock through what is tried again.
func TestSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		failures := 3
		s := h.set(feed.Kind{Do: func(ctx context.Context, b *feed.Batch) error {
			if failures--; failures >= 0 {
				return errors.New("not yet")
			}
			return g.take(ctx, b)
		}})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		h.append(shop, 5)
		begin := time.Now()
		var steps []time.Duration
		for {
			if err := s.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			next, err := s.NextDue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if next.IsZero() {
				break
			}
			steps = append(steps, next.Sub(begin))
			pass(t, time.Until(next))
		}
		same(t, "steps", []time.Duration{time.Second, 3 * time.Second, 7 * time.Second}, steps)
		same(t, "handed out", h.all(shop), g.of(shop, "x"))
		stop()
	})
}

// deaf hears nothing of what is due while it is told so.
type deaf struct {
	store.Store
	mu   sync.Mutex
	ends chan struct{} // nil while it hears
}

// cover lets it hear nothing until the returned function is called.
func (d *deaf) cover() (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ends := make(chan struct{})
	d.ends = ends
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends = nil
		close(ends)
	}
}

func (d *deaf) wait(ctx context.Context) error {
	d.mu.Lock()
	ends := d.ends
	d.mu.Unlock()
	if ends == nil {
		return nil
	}
	select {
	case <-ends:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *deaf) DueTenants(ctx context.Context, s store.Space, limit int) ([]j17.Tenant, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	return d.Store.DueTenants(ctx, s, limit)
}

// TestAskedWhileGivenBack asks for something in the moment before a tenant is given back, or its lease is renewed: that
// must not be written over.
func TestAskedWhileGivenBack(t *testing.T) {
	for name, busy := range map[string]bool{"given back": false, "renewed": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				var g heard
				d := &deaf{Store: h.Store}
				s := h.set(feed.Kind{Do: g.take}, func(o *feed.Options) { o.Store = d })
				far := h.set(feed.Kind{})
				stop := h.run(s)
				h.subscribe(s, shop, "x", feed.Beginning())
				h.subscribe(s, shop, "y", feed.Beginning())
				if err := far.Pause(t.Context(), shop, "test", "x"); err != nil {
					t.Fatal(err)
				}
				h.append(shop, 10)
				pass(t, time.Second)
				end := d.cover()
				if err := far.Resume(t.Context(), shop, "test", "x"); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					pass(t, time.Second)
					if busy {
						h.append(shop, 1)
					}
				}
				end()
				pass(t, time.Minute)
				stop()
				same(t, "the one that was resumed", h.all(shop), g.of(shop, "x"))
			})
		})
	}
}
