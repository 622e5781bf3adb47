package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// link is the way of a set to the store. It can be frozen, and cut.
type link struct {
	store.Store
	mu     sync.Mutex
	thawed chan struct{} // nil unless frozen
	err    error
}

// freeze lets calls wait until the returned function is called.
func (l *link) freeze() (thaw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	thawed := make(chan struct{})
	l.thawed = thawed
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.thawed = nil
		close(thawed)
	}
}

// cut lets calls fail; nil ends it.
func (l *link) cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *link) pass() error {
	l.mu.Lock()
	thawed := l.thawed
	l.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) Get(ctx context.Context, t j17.Tenant, s store.Space, key string) (store.Item, error) {
	if err := l.pass(); err != nil {
		return store.Item{}, err
	}
	return l.Store.Get(ctx, t, s, key)
}

func (l *link) Scan(
	ctx context.Context, t j17.Tenant, s store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	return l.Store.Scan(ctx, t, s, keys, limit)
}

func (l *link) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if err := l.pass(); err != nil {
		return err
	}
	return l.Store.Write(ctx, t, side, fences...)
}

func (l *link) Changed(ctx context.Context, since uint64, limit int) ([]store.Change, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	return l.Store.Changed(ctx, since, limit)
}

func (l *link) DueTenants(ctx context.Context, s store.Space, limit int) ([]j17.Tenant, error) {
	if err := l.pass(); err != nil {
		return nil, err
	}
	return l.Store.DueTenants(ctx, s, limit)
}

func linked(l *link) func(*feed.Options) { return func(o *feed.Options) { o.Store = l } }

// TestCheckpointBehindUnhandled crashes at random moments while batches are under way, some of which fail, and looks
// whether all that was not handled by then comes after a restart: a checkpoint that stands ahead of events that nobody
// has acknowledged skips them. It is the disk of the embedded store, of which copies can be taken.
func TestCheckpointBehindUnhandled(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 2))
		disk := vfs.NewCrashableMem()
		h.Store = testopen.Embedded(disk).Open(t, clock.System{})
		type crash struct {
			fs      *vfs.MemFS
			handled int
		}
		var crashes []crash
		calls := 0
		var handled []string
		var g heard
		s := h.set(feed.Kind{Batch: 10, Do: func(ctx context.Context, b *feed.Batch) error {
			if rng.IntN(10) == 0 {
				return errors.New("the client has gone away")
			}
			if calls++; calls%12 == 5 {
				crashes = append(crashes, crash{
					disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}), len(handled),
				})
			}
			rest(ctx, 100*time.Millisecond)
			if err := g.take(ctx, b); err != nil {
				return err
			}
			handled = g.of(shop, "x")
			return nil
		}})
		stop := h.run(s)
		h.append(shop, 600)
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, 10*time.Minute)
		stop()
		all := h.all(shop)
		same(t, "handed out", all, handled)

		// What a restart hands out begins at the first event that was not handled, or before.
		for _, c := range crashes {
			var g heard
			h.Store = testopen.Embedded(c.fs).Open(t, clock.System{})
			again := h.set(feed.Kind{Do: g.take})
			stop := h.run(again)
			pass(t, time.Minute)
			stop()
			got := g.of(shop, "x")
			if first := len(all) - len(got); first > c.handled || !slices.Equal(all[first:], got) {
				t.Errorf("%d events were handled before the crash; after the restart come %d of %d", c.handled, len(got), len(all))
			}
		}
		if len(crashes) < 3 {
			t.Errorf("%d crashes", len(crashes))
		}
	})
}

// TestCatchUpUnderChanges lets a long catch-up go on while events arrive, leases are renewed and checkpoints stored by
// the clock: none of that may make the reader jump to where the news are.
func TestCatchUpUnderChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.append(shop, 2500)
		var g heard
		s := h.set(feed.Kind{Batch: 50, Do: func(ctx context.Context, b *feed.Batch) error {
			rest(ctx, 700*time.Millisecond)
			return g.take(ctx, b)
		}})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		for range 60 {
			pass(t, 500*time.Millisecond)
			h.append(shop, 10)
		}
		if got := len(g.of(shop, "x")); got >= 2500 {
			t.Errorf("the reader has caught up with %d events before the last one came; the test is too slow", got)
		}
		pass(t, 5*time.Minute)
		stop()
		same(t, "handed out", h.all(shop), g.of(shop, "x"))
		if status := h.status(s, "x"); status.Lag != 0 || status.Checked != 3072 {
			t.Errorf("%+v", status)
		}
	})
}

// TestNeverStandsStill lets a subscription meet what has made others stop until somebody restarted them: erased events
// at the checkpoint and behind it, a store that fails for a while in each of its ways, a handler that fails, panics, or
// never returns.
func TestNeverStandsStill(t *testing.T) {
	broken := errors.New("the disk has hiccups")
	for name, trouble := range map[string]func(t *testing.T, h *house, l *link) (end func()){
		"erased events": func(t *testing.T, h *house, _ *link) func() {
			t.Helper()
			erase(t, h, "o0", 1, 2, 3)
			erase(t, h, "o1", 1, 2, 3, 4)
			return func() {}
		},
		"a store that fails": func(_ *testing.T, _ *house, l *link) func() {
			l.cut(broken)
			return func() { l.cut(nil) }
		},
		"a full disk": func(_ *testing.T, _ *house, l *link) func() {
			l.cut(store.ErrFull)
			return func() { l.cut(nil) }
		},
		"outcomes unknown": func(_ *testing.T, _ *house, l *link) func() {
			l.cut(store.ErrUnknown)
			return func() { l.cut(nil) }
		},
		"a store that hangs": func(_ *testing.T, _ *house, l *link) func() { return l.freeze() },
	} {
		for _, after := range []time.Duration{0, 10 * time.Second} {
			t.Run(name+" after "+after.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					l := &link{Store: h.Store}
					var g heard
					s := h.set(feed.Kind{Notes: true, Do: g.take}, linked(l))
					stop := h.run(s)
					h.append(shop, 10)
					h.subscribe(s, shop, "x", feed.Beginning())
					pass(t, after)
					end := trouble(t, h, l)
					h.append(shop, 10)
					pass(t, 2*time.Minute)
					h.append(shop, 10)
					pass(t, time.Minute)
					end()
					pass(t, 2*time.Minute)
					h.append(shop, 1)
					pass(t, time.Second)
					stop()
					got := slices.DeleteFunc(
						slices.Clone(g.of(shop, "x")), func(s string) bool { return s == "note" || s == "null" },
					)
					want := slices.DeleteFunc(h.all(shop), func(s string) bool { return s == "null" })
					if !contains(got, want) {
						t.Errorf("handed out %v of %v\n%s", g.of(shop, "x"), want, h.log)
					}
					if status := h.status(s, "x"); status.Lag != 0 {
						t.Errorf("%+v", status)
					}
				})
			})
		}
	}
}

// contains reports whether events were handed out at least once, and each for the first time after those before it.
func contains(got, want []string) bool {
	next := 0
	seen := map[string]bool{}
	for _, g := range got {
		switch {
		case seen[g]:
		case next < len(want) && want[next] == g:
			next++
			seen[g] = true
		case slices.Contains(want[next:], g):
			return false // before its turn
		}
	}
	return next == len(want)
}

// erase replaces events of an aggregate.
func erase(t *testing.T, h *house, id string, versions ...uint64) {
	t.Helper()
	r := store.Rewrite{Streams: []store.RewrittenStream{{Key: j17.Key{Type: "order", ID: id}}}}
	for _, v := range versions {
		r.Streams[0].Events = append(r.Streams[0].Events, store.Rewritten{
			Version: v, Type: "was_erased", Data: []byte("null"), Metadata: []byte("{}"),
		})
	}
	if result, err := h.Rewrite(t.Context(), shop, r); err != nil || result.Outcome != store.Committed {
		t.Fatalf("%+v, %v", result, err)
	}
}

// TestFaultyHandlers checks that handlers which fail, panic or never return hold nothing but themselves up, that an
// event which cannot be handled stands alone in the end, and that all go on by themselves.
func TestFaultyHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		var healed atomic.Bool
		hang := make(chan struct{})
		var poison []int
		s := h.set(feed.Kind{Batch: 16, Do: func(ctx context.Context, b *feed.Batch) error {
			if healed.Load() || b.Name == "good" ||
				!slices.ContainsFunc(b.Entries, func(e store.Entry) bool { return string(e.Event.Data) == "11" }) {
				return g.take(ctx, b)
			}
			switch b.Name {
			case "hangs":
				<-hang // whatever its context says
			case "panics":
				panic("a fault")
			case "slow":
				<-ctx.Done()
			case "fails":
				poison = append(poison, len(b.Entries))
			}
			return errors.New(b.Name)
		}})
		stop := h.run(s)
		names := []string{"good", "hangs", "panics", "slow", "fails"}
		for _, name := range names {
			h.subscribe(s, shop, name, feed.Beginning())
		}
		h.append(shop, 16)
		pass(t, 10*time.Minute)
		h.append(shop, 16)
		pass(t, time.Second)
		same(t, "good", h.all(shop), g.of(shop, "good"))
		for _, name := range names[1:] {
			status := h.status(s, name)
			if len(g.of(shop, name)) > 10 || status.Failures == 0 || status.Error == "" || status.RetryAt.IsZero() ||
				status.Lag < 16 {
				t.Errorf("%s: %d handed out, %+v", name, len(g.of(shop, name)), status)
			}
		}
		if len(poison) == 0 || poison[len(poison)-1] != 1 || !slices.Equal(g.of(shop, "fails"), h.all(shop)[:10]) {
			t.Errorf("the event that fails is handed out among %v entries, after %v", poison, g.of(shop, "fails"))
		}

		// All go on when the reason is gone.
		healed.Store(true)
		close(hang)
		pass(t, 10*time.Minute)
		for _, name := range names {
			if !contains(g.of(shop, name), h.all(shop)) {
				t.Errorf("%s: %v", name, g.of(shop, name))
			}
			if status := h.status(s, name); status.Lag != 0 || status.Failures != 0 {
				t.Errorf("%s: %+v", name, status)
			}
		}
		if c := s.Counts(); c.LeftBehind == 0 || c.LeftBehind > 3 || c.Gaps > 0 {
			t.Errorf("%+v", c)
		}
		stop()
	})
}

// TestPaused checks that a paused subscription is told nothing, loses nothing, and costs nothing.
func TestPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		s, far := h.set(feed.Kind{Do: g.take}), h.set(feed.Kind{Do: g.take})
		stop := h.run(s)
		h.subscribe(s, shop, "x", feed.Beginning())
		h.append(shop, 5)
		for _, by := range []*feed.Subscriptions{s, far} {
			pass(t, time.Second)
			if err := by.Pause(t.Context(), shop, "test", "x"); err != nil {
				t.Fatal(err)
			}
			before := len(g.of(shop, "x"))
			h.append(shop, 5)
			pass(t, time.Minute)
			if got := len(g.of(shop, "x")); got != before {
				t.Errorf("%d events were handed out during the pause", got-before)
			}
			if status := h.status(s, "x"); !status.Paused || status.Lag != 5 {
				t.Errorf("%+v", status)
			}
			if err := by.Resume(t.Context(), shop, "test", "x"); err != nil {
				t.Fatal(err)
			}
			pass(t, time.Second)
			same(t, "after the pause", h.all(shop), g.of(shop, "x"))
		}
		if err := s.Pause(t.Context(), shop, "test", "y"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("pausing what is not there: %v", err)
		}
		if err := s.Subscribe(t.Context(), shop, "test", "a/b", feed.End()); err == nil ||
			!strings.Contains(err.Error(), `"a/b"`) {
			t.Errorf("a name with a slash: %v", err)
		}

		// One that is removed hears nothing more; one of its name begins again.
		if err := s.Unsubscribe(t.Context(), shop, "test", "x"); err != nil {
			t.Fatal(err)
		}
		h.append(shop, 5)
		pass(t, time.Second)
		same(t, "after the end", h.all(shop)[:15], g.of(shop, "x"))
		h.subscribe(s, shop, "x", feed.Beginning())
		pass(t, time.Second)
		same(t, "after the end", append(h.all(shop)[:15], h.all(shop)...), g.of(shop, "x"))
		stop()
		synctest.Wait()
	})
}

// damaged cannot read the subscriptions of a tenant.
type damaged struct {
	store.Store
	of j17.Tenant
}

func (d damaged) Scan(
	ctx context.Context, t j17.Tenant, s store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	if t == d.of && s == "feed.subscriptions" {
		return nil, &store.CorruptionError{Where: "a side item", Err: errors.New("bits have flipped")}
	}
	return d.Store.Scan(ctx, t, s, keys, limit)
}

// TestDamagedTenant checks that a tenant whose subscriptions cannot be read holds up no other.
func TestDamagedTenant(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var g heard
		s := h.set(feed.Kind{Do: g.take}, func(o *feed.Options) { o.Store = damaged{h.Store, shop} })
		h.subscribe(s, shop, "x", feed.Beginning())
		h.append(shop, 1)
		stop := h.run(s)
		pass(t, 10*time.Minute)
		h.subscribe(s, other, "x", feed.Beginning())
		h.append(other, 5)
		pass(t, time.Second)
		same(t, "the other tenant", h.all(other), g.of(other, "x"))
		if n := strings.Count(h.log.String(), "bits have flipped"); n == 0 || n > 30 {
			t.Errorf("the damage is told %d times", n)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// TestSoleSet lets a set end without giving back its leases. Who may be one of several waits until they are over, who
// is the only one does not.
func TestSoleSet(t *testing.T) {
	for _, sole := range []bool{false, true} {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			l := &link{Store: h.Store}
			var g heard
			first := h.set(feed.Kind{Do: g.take}, linked(l))
			stop := h.run(first)
			h.subscribe(first, shop, "x", feed.Beginning())
			h.append(shop, 3)
			pass(t, time.Second)
			l.cut(errors.New("the process has ended"))
			stop()
			if n := len(g.of(shop, "x")); n != 3 {
				t.Fatalf("the first set has handled %d events", n)
			}

			var next heard
			stop = h.run(h.set(feed.Kind{Do: next.take}, func(o *feed.Options) { o.Sole = sole }))
			h.append(shop, 1)
			pass(t, time.Second)
			if got := len(next.of(shop, "x")) > 0; got != sole {
				t.Errorf("sole: %v, handled at once: %v", sole, got)
			}
			pass(t, time.Minute)
			if len(next.of(shop, "x")) == 0 {
				t.Error("nothing is handled when the leases are over")
			}
			stop()
		})
	}
}
