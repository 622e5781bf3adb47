package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const space store.Space = "test.work"

// house is a store in a bubble of its own time, with kits over it.
type house struct {
	store.Store
	tb  testing.TB
	log *logged
	kit *worker.Kit
}

// inBubble runs a test with a store whose time is made up.
func inBubble(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	inBubbleOn(t, testopen.NewData(t), test)
}

// inBubbleOn is inBubble for a store on data that are there.
func inBubbleOn(t *testing.T, data *testopen.Data, test func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k, log := kit()
		test(t, &house{Store: data.Open(t, clock.System{}), tb: t, log: log, kit: k})
	})
}

// put makes an item due after a while.
func (h *house) put(t j17.Tenant, key string, after time.Duration) {
	h.tb.Helper()
	side := store.Side{
		Op: store.Put, Space: space, Key: key, Value: []byte("value of " + key), Due: time.Now().Add(after),
	}
	if err := h.Write(h.tb.Context(), t, []store.Side{side}); err != nil {
		h.tb.Fatal(err)
	}
}

// item returns an item, and whether there is one.
func (h *house) item(t j17.Tenant, key string) (store.Item, bool) {
	h.tb.Helper()
	it, err := h.Get(h.tb.Context(), t, space, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		h.tb.Fatal(err)
	}
	return it, err == nil
}

// queue returns a queue whose fields that a test does not care about are set.
func (h *house) queue(w worker.Work) *worker.Queue {
	w.Name, w.Space = "test", space
	if w.Store == nil {
		w.Store = h.Store
	}
	if w.Lease == 0 {
		w.Lease = time.Minute
	}
	if w.Do == nil {
		w.Do = func(ctx context.Context, c *worker.Claim) error { return h.finish(ctx, c) }
	}
	return h.kit.Queue(w)
}

// finish removes an item for good.
func (h *house) finish(ctx context.Context, c *worker.Claim) error {
	return h.Write(ctx, c.Tenant, []store.Side{c.Remove()})
}

// run runs a queue until the returned function is called.
func (h *house) run(q *worker.Queue) (stop func()) {
	ctx, cancel := context.WithCancel(h.tb.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	return func() {
		h.tb.Helper()
		cancel()
		if err := <-done; err != nil {
			h.tb.Error(err)
		}
	}
}

// TestOrder checks that the items of a tenant are handled one after the other, in order of their due times.
func TestOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		begin := time.Now()
		var got []string
		q := h.queue(worker.Work{AtOnce: 4, Do: func(ctx context.Context, c *worker.Claim) error {
			got = append(got, fmt.Sprintf("%s %s %d %s", c.Key, c.Value, c.Attempt, time.Since(begin)))
			return h.finish(ctx, c)
		}})
		h.put("a/prod", "third", 2*time.Second)
		h.put("a/prod", "second", time.Second)
		h.put("a/prod", "first", time.Second-1)
		stop := h.run(q)
		pass(t, time.Minute)
		stop()
		want := []string{
			"first value of first 1 999.999999ms", "second value of second 1 1s", "third value of third 1 2s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, ok := h.item("a/prod", "first"); ok {
			t.Error("a finished item is still there")
		}
		if c := h.kit.Counts(); c[0].Name != "test" || c[0].Done != 3 || c[0].Failed != 0 || c[0].Running != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestBatches checks that items are handled together, in order and no more than a batch of one tenant at once, and that
// what panics over several items fails the item that it is about and no other.
func TestBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var calls []string
		q := h.queue(worker.Work{
			AtOnce: 4, Batch: 3, Retry: worker.Backoff{First: time.Hour},
			DoAll: func(ctx context.Context, claims []*worker.Claim) []error {
				keys, errs := "", make([]error, len(claims))
				for i, c := range claims {
					keys += c.Key
					if c.Key == "e" && c.Attempt == 1 {
						calls = append(calls, keys+"!")
						panic("e")
					}
					if errs[i] = h.finish(ctx, c); c.Key == "b" {
						errs[i] = errors.New("late")
					}
				}
				calls = append(calls, keys)
				if keys == "ghi" {
					return nil // all of them are finished
				}
				return errs
			},
		})
		for i, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			h.put("a/prod", key, time.Second+time.Duration(i))
		}
		pass(t, 2*time.Second)
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		// "d" was finished by the call that broke off, so that what it is told alone is that its claim is lost.
		if diff := cmp.Diff([]string{"abc", "de!", "d", "e!", "f", "ghi", "j"}, calls); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if it, ok := h.item("a/prod", "e"); !ok {
			t.Error("the item that panicked is gone")
		} else if a, value, err := worker.ReadAttempts(it.Value); err != nil || a.Failed != 1 ||
			string(value) != "value of e" {
			t.Errorf("%+v %q %v", a, value, err)
		}
		for _, key := range []string{"a", "d", "f", "j"} {
			if _, ok := h.item("a/prod", key); ok {
				t.Errorf("%s is still there", key)
			}
		}
		if c := h.kit.Counts(); c[0].Done != 7 || c[0].Failed != 1 || c[0].Lost != 2 || c[0].Running != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestAttempts follows an item that fails, panics, and is given up.
func TestAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		begin := time.Now()
		var at []time.Duration
		q := h.queue(worker.Work{
			Retry: worker.Backoff{First: 5 * time.Second, Factor: 5, Longest: time.Hour, Attempts: 4},
			Do: func(_ context.Context, c *worker.Claim) error {
				at = append(at, time.Since(begin))
				if c.Attempt != len(at) {
					t.Errorf("attempt %d is called %d", len(at), c.Attempt)
				}
				c.Value = append(c.Value, '!')
				if c.Attempt == 2 {
					panic("poison")
				}
				return errors.New("refused")
			},
		})
		h.put("a/prod", "bad", 0)
		stop := h.run(q)
		pass(t, time.Hour)
		stop()
		want := []time.Duration{0, 5 * time.Second, 30 * time.Second, 155 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		it, _ := h.item("a/prod", "bad")
		a, value, err := worker.ReadAttempts(it.Value)
		if err != nil || a.Failed != 4 || a.Error != "refused" || time.Time.Sub(a.DeadAt, begin) != 155*time.Second ||
			string(value) != "value of bad!!!!" || !it.Due.IsZero() {
			t.Errorf("%+v, %q, due %v: %v", a, value, it.Due, err)
		}
		for text, n := range map[string]int{"an item failed": 3, "an item was given up": 1, "stack=": 1} {
			if got := h.log.count(text); got != n {
				t.Errorf("%d lines with %q, want %d", got, text, n)
			}
		}
		if c := h.kit.Counts(); c[0].Failed != 4 || c[0].Dead != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// TestOnePoisonedTenantHoldsUpNobody has a tenant with many items, all of which take all the time there is, and one
// whose claims fail.
func TestOnePoisonedTenantHoldsUpNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for i := range 50 {
			h.put("a/prod", fmt.Sprint(i), 0)
		}
		for _, tenant := range []j17.Tenant{"b/prod", "c/prod", "d/prod"} {
			h.put(tenant, "one", 0)
			h.put(tenant, "two", 0)
		}
		var mu sync.Mutex
		most, running, done := map[j17.Tenant]int{}, map[j17.Tenant]int{}, map[j17.Tenant]int{}
		note := func(c *worker.Claim, n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, t := range []j17.Tenant{c.Tenant, ""} {
				running[t] += n
				most[t] = max(most[t], running[t])
			}
		}
		q := h.queue(worker.Work{
			Store: &faulty{Store: h.Store, tenant: "d/prod"}, AtOnce: 4, Each: 3,
			Do: func(ctx context.Context, c *worker.Claim) error {
				note(c, 1)
				defer note(c, -1)
				if c.Tenant == "a/prod" {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				mu.Lock()
				done[c.Tenant]++
				mu.Unlock()
				return h.finish(ctx, c)
			},
		})
		stop := h.run(q)
		pass(t, 10*time.Second)
		stop()
		if diff := cmp.Diff(map[j17.Tenant]int{"b/prod": 2, "c/prod": 2}, done); diff != "" {
			t.Errorf("done (-want +got):\n%s", diff)
		}
		if most["a/prod"] != 3 || most[""] > 4 { // whether those of the others meet three of its own is chance
			t.Errorf("at once: %v", most)
		}
		if n := h.log.count("could not be claimed"); n != 1 {
			t.Errorf("the fault of a tenant is told %d times", n)
		}
	})
}

// faulty is a store where the items of one tenant cannot be claimed.
type faulty struct {
	store.Store
	tenant j17.Tenant
}

// ClaimDue fails for the tenant.
func (f *faulty) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) ([]store.Item, error) {
	if t == f.tenant {
		return nil, &store.CorruptionError{Where: "here", Err: errors.New("made up")}
	}
	return f.Store.ClaimDue(ctx, t, c)
}

// sudden is a store to which something is written that is due at once, just before it says what is due next.
type sudden struct {
	store.Sides
	put func()
}

func (s *sudden) NextDue(ctx context.Context, space store.Space) (time.Time, error) {
	if put := s.put; put != nil {
		s.put = nil
		put()
	}
	return s.Sides.NextDue(ctx, space)
}

// TestNothingThatComesBetweenTwoLooksWaits writes an item that is due at once between a look at what is due and the
// question when to look next: it is handled at once, though there was nothing to be done before.
func TestNothingThatComesBetweenTwoLooksWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		begin, handled := time.Now(), make(chan time.Duration, 1)
		q := h.queue(worker.Work{
			Store: &sudden{h.Store, func() { h.put("a/prod", "k", 0) }},
			Do: func(ctx context.Context, c *worker.Claim) error {
				handled <- time.Since(begin)
				return h.finish(ctx, c)
			},
		})
		stop := h.run(q)
		if took := <-handled; took != 0 {
			t.Errorf("it has waited for %s", took)
		}
		stop()
	})
}

// TestTenantsTakeTurns checks that a place that is free goes from tenant to tenant.
func TestTenantsTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for i := range 3 {
			for _, tenant := range []j17.Tenant{"a/prod", "b/prod", "c/prod"} {
				h.put(tenant, fmt.Sprint(i), 0)
			}
		}
		var got []j17.Tenant
		q := h.queue(worker.Work{AtOnce: 1, Do: func(ctx context.Context, c *worker.Claim) error {
			got = append(got, c.Tenant)
			return h.finish(ctx, c)
		}})
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, tenant := range got {
			if i >= 3 && tenant != got[i-3] || i < 3 && slices.Contains(got[:i], tenant) {
				t.Fatalf("turns: %v", got)
			}
		}
		if len(got) != 9 {
			t.Errorf("%d items were handled", len(got))
		}
	})
}

// TestLease lets a try take longer than its lease: its context ends, another one takes over, and the first cannot
// finish.
func TestLease(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var late error
		tries, slow := 0, make(chan struct{})
		do := func(ctx context.Context, c *worker.Claim) error {
			if tries++; tries == 1 {
				<-ctx.Done()
				if text := context.Cause(ctx).Error(); text != "the lease of the item is over" {
					t.Errorf("cause: %s", text)
				}
				<-slow // It does not care.
				late = h.finish(context.WithoutCancel(ctx), c)
				return late
			}
			return h.finish(ctx, c)
		}
		h.put("a/prod", "x", 0)
		first, second := h.queue(worker.Work{Do: do}), h.queue(worker.Work{Do: do})
		stopFirst := h.run(first)
		synctest.Wait()
		stopSecond := h.run(second)
		pass(t, 2*time.Minute)
		close(slow)
		stopFirst()
		stopSecond()
		if _, conflict := errors.AsType[*store.SideConflict](late); !conflict || tries != 2 {
			t.Errorf("%d tries; the first one, late: %v", tries, late)
		}
		if c := h.kit.Counts(); c[0].Lost != 1 || c[0].Done != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// TestDrain checks what becomes of items under way when a queue ends: they may go on for a while, what is cut off is
// nobody's failure and due at once, and nothing is claimed any more.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		h.put("a/prod", "short", 0)
		h.put("a/prod", "long", 0)
		h.put("a/prod", "late", time.Second)
		q := h.queue(worker.Work{AtOnce: 3, Each: 3, Do: func(ctx context.Context, c *worker.Claim) error {
			wait := 2 * time.Second
			if c.Key == "long" {
				wait = time.Hour
			}
			if err := (clock.System{}).Wait(ctx, time.Now().Add(wait)); err != nil {
				return err
			}
			return h.finish(ctx, c)
		}})
		stop := h.run(q)
		synctest.Wait()
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("the end took %v", took)
		}
		if _, ok := h.item("a/prod", "short"); ok {
			t.Error("what was nearly done was cut off")
		}
		for _, key := range []string{"long", "late"} {
			if it, _ := h.item("a/prod", key); string(it.Value) != "value of "+key || it.Due.After(time.Now()) {
				t.Errorf("%s: %q, due in %v", key, it.Value, time.Until(it.Due))
			}
		}
		if n := h.log.count("level"); n != 0 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// TestAClockThatJumps moves a development server's clock over several moments at which something is due: all of it is
// handled at once, in order, and a queue that sleeps is woken by an item that is due before the one that it sleeps for.
func TestAClockThatJumps(t *testing.T) {
	data := testopen.NewData(t)
	synctest.Test(t, func(t *testing.T) {
		c := clock.NewMovable(clock.System{})
		h := &house{Store: data.Open(t, c), tb: t, kit: worker.New(c, slog.New(slog.DiscardHandler))}
		var got []string
		q := h.queue(worker.Work{Do: func(ctx context.Context, c *worker.Claim) error {
			got = append(got, c.Key)
			return h.finish(ctx, c)
		}})
		stop := h.run(q)
		for _, day := range []int{30, 10, 20} {
			h.put("a/prod", fmt.Sprint(day), time.Duration(day)*24*time.Hour)
			synctest.Wait()
		}
		h.put("a/prod", "now", 0)
		synctest.Wait()
		if diff := cmp.Diff([]string{"now"}, got); diff != "" {
			t.Errorf("before the jump (-want +got):\n%s", diff)
		}
		c.Advance(25 * 24 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff([]string{"now", "10", "20"}, got); diff != "" {
			t.Errorf("after the jump (-want +got):\n%s", diff)
		}
		stop()
	})
}

// jumping is a clock that is set forward once, between a look at it and the next thing that is done.
type jumping struct {
	*clock.Manual
	armed atomic.Bool
}

// Now returns the time before the jump.
func (j *jumping) Now() time.Time {
	now := j.Manual.Now()
	if j.armed.CompareAndSwap(true, false) {
		j.Advance(time.Hour)
	}
	return now
}

// looked is a store after whose first answer about what is due next the clock jumps.
type looked struct {
	store.Sides
	once sync.Once
	then func()
}

// NextDue tells when the next item is due.
func (l *looked) NextDue(ctx context.Context, s store.Space) (time.Time, error) {
	at, err := l.Sides.NextDue(ctx, s)
	l.once.Do(l.then)
	return at, err
}

// TestAClockThatJumpsBeforeARest moves the clock while a queue works out how long to rest.
func TestAClockThatJumpsBeforeARest(t *testing.T) {
	j := &jumping{Manual: clock.NewManual(time.Unix(1e9, 0))}
	st := testopen.Open(t, j.Manual)
	side := store.Side{Op: store.Put, Space: space, Key: "a", Due: j.Manual.Now().Add(time.Minute)}
	if err := st.Write(t.Context(), "ins_1/prod", []store.Side{side}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	handled := false
	q := worker.New(j, slog.New(slog.DiscardHandler)).Queue(worker.Work{
		Name: "test", Space: space, Lease: time.Minute, Store: &looked{Sides: st, then: func() { j.armed.Store(true) }},
		Do: func(ctx context.Context, c *worker.Claim) error {
			defer cancel()
			handled = true
			return st.Write(ctx, c.Tenant, []store.Side{c.Remove()})
		},
	})
	if err := q.Run(ctx); err != nil || !handled {
		t.Errorf("handled %v, %v", handled, err)
	}
}

// TestFullDisk checks that work that makes room goes on while the disk is full, and only that. The disk is that of the
// embedded store, which alone knows how much room it has left.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	inBubbleOn(t, testopen.Embedded(disk), func(t *testing.T, h *house) {
		t.Helper()
		free := func(bytes uint64) { disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 30}) }
		free(1 << 30)
		for i := range 250 {
			h.put("a/prod", fmt.Sprintf("%03d", i), 0)
		}
		h.put("a/prod", "later", 3*time.Hour)
		free(100)
		pass(t, time.Hour) // until the store has noticed
		done := 0
		do := func(ctx context.Context, c *worker.Claim) error {
			if done++; done == 2 {
				return errors.New("refused")
			}
			return h.finish(ctx, c)
		}
		if err := h.queue(worker.Work{Do: do}).Settle(t.Context()); !errors.Is(err, store.ErrFull) || done != 0 {
			t.Errorf("work that makes no room: %d items, %v", done, err)
		}
		freeing := h.queue(worker.Work{Do: do, Freeing: true})
		if err := freeing.Settle(t.Context()); err != nil || done != 250 {
			t.Errorf("%d items, %v", done, err)
		}
		pass(t, time.Second)
		if err := freeing.Settle(t.Context()); err != nil || done != 251 {
			t.Errorf("%d items after the pause, %v", done, err)
		}
		if items, err := h.Scan(t.Context(), "a/prod", space, store.Range{}, 10); err != nil || len(items) != 1 ||
			items[0].Key != "later" {
			t.Errorf("%d items are left: %v", len(items), err)
		}
	})
}

// TestDamagedAttempts gives up what cannot be read, and keeps it.
func TestDamagedAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for key, value := range map[string]string{"no end": "\x01{}", "no JSON": "\x01{\nx"} {
			if err := h.Write(t.Context(), "a/prod", []store.Side{
				{Op: store.Put, Space: space, Key: key, Value: []byte(value), Due: time.Now()},
			}); err != nil {
				t.Fatal(err)
			}
		}
		q := h.queue(worker.Work{Do: func(context.Context, *worker.Claim) error { panic("never") }})
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		it, _ := h.item("a/prod", "no end")
		if a, value, err := worker.ReadAttempts(it.Value); err != nil || string(value) != "\x01{}" ||
			a.DeadAt.IsZero() || !it.Due.IsZero() {
			t.Errorf("%+v, %q: %v", a, value, err)
		}
		if c := h.kit.Counts(); c[0].Dead != 2 {
			t.Errorf("%+v", c)
		}
	})
}

// TestHistory runs several nodes over one store for hours. Their tries fail, panic, outlive their leases and are cut
// off by restarts; what they cause is an event in the commit that finishes the item. In the end each item was handled
// at least once and caused exactly one event.
func TestHistory(t *testing.T) {
	seeds := 1
	if os.Getenv("J17_SOAK") != "" {
		seeds = 20
	}
	for seed := range uint64(seeds) {
		inBubble(t, func(t *testing.T, h *house) {
			t.Helper()
			const nodes, tenants, items = 3, 5, 20
			tries := make([]atomic.Int64, tenants*items)
			var conflicts atomic.Int64
			do := func(ctx context.Context, c *worker.Claim) error {
				var n int
				if _, err := fmt.Sscan(c.Key, &n); err != nil {
					return err
				}
				tries[n].Add(1)
				chance := rand.New(rand.NewPCG(seed, uint64(n)<<32|uint64(tries[n].Load())))
				switch chance.IntN(6) {
				case 0:
					return errors.New("refused")
				case 1:
					panic("poison")
				case 2:
					// It goes on after its lease, and may commit when another has the item.
					_ = (clock.System{}).Wait(
						context.WithoutCancel(ctx), time.Now().Add(time.Duration(chance.IntN(200))*time.Second),
					)
				case 3:
					if err := (clock.System{}).Wait(
						ctx, time.Now().Add(time.Duration(chance.IntN(100))*time.Second),
					); err != nil {
						return err
					}
				}
				unit := store.Append{Side: []store.Side{c.Remove()}, Events: []store.NewEvent{{
					Key: j17.Key{Type: "done", ID: c.Key}, Type: "was_done", Data: []byte("{}"), Metadata: []byte("{}"),
				}}}
				results, err := h.Append(context.WithoutCancel(ctx), c.Tenant, []store.Append{unit})
				if err == nil && results[0].Outcome == store.Conflict {
					conflicts.Add(1)
					return &results[0].Sides[0]
				}
				if err == nil && chance.IntN(4) == 0 {
					return errors.New("it was committed, and nobody heard of it")
				}
				return err
			}
			for i := range tenants * items {
				h.put(j17.Tenant(fmt.Sprintf("t%d/prod", i%tenants)), fmt.Sprint(i), time.Duration(i)*time.Second)
			}

			// Each node is stopped and started again now and then.
			var ended sync.WaitGroup
			for n := range nodes {
				ended.Go(func() {
					chance := rand.New(rand.NewPCG(seed, uint64(n)))
					for range 25 {
						q := h.kit.Queue(worker.Work{
							Name: "test", Store: h.Store, Space: space, Do: do, Lease: time.Minute, AtOnce: 4, Each: 2,
							Retry: worker.Backoff{First: time.Second, Longest: time.Minute},
						})
						stop := h.run(q)
						pass(t, time.Duration(30+chance.IntN(200))*time.Second)
						stop()
					}
				})
			}
			ended.Wait()

			repeated := 0
			for i := range tenants * items {
				tenant, id := j17.Tenant(fmt.Sprintf("t%d/prod", i%tenants)), fmt.Sprint(i)
				heads, err := h.Heads(t.Context(), tenant, []j17.Key{{Type: "done", ID: id}})
				if err != nil {
					t.Fatal(err)
				}
				if _, left := h.item(tenant, id); left || heads[0].Length != 1 {
					t.Errorf("seed %d, item %s: %d events, still there: %v, %d tries", seed, id, heads[0].Length, left, tries[i].Load())
				}
				if tries[i].Load() > 1 {
					repeated++
				}
			}
			if repeated == 0 || conflicts.Load() == 0 {
				t.Errorf("the history was too quiet: %d items were tried again, %d commits came too late", repeated, conflicts.Load())
			}
		})
	}
}

// endless is a store in which an item is due whenever somebody looks.
type endless struct {
	store.Store
	claims int
}

// DueTenants is part of store.Store.
func (e *endless) DueTenants(context.Context, store.Space, int) ([]j17.Tenant, error) {
	return []j17.Tenant{"i_prod"}, nil
}

// ClaimDue is part of store.Store.
func (e *endless) ClaimDue(context.Context, j17.Tenant, store.Claim) ([]store.Item, error) {
	e.claims++
	return []store.Item{{Key: "k", Rev: 1, Due: time.Now().Add(time.Hour)}}, nil
}

// TestSettleEnds handles what makes itself due again, as often as Settle allows.
func TestSettleEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) { //nolint:thelper // it is the test itself
		e := &endless{Store: h.Store}
		var done atomic.Int64
		q := h.queue(worker.Work{Store: e, Do: func(context.Context, *worker.Claim) error {
			done.Add(1)
			return nil
		}})
		if err := q.Settle(t.Context()); !errors.Is(err, worker.ErrUnsettled) || done.Load() < worker.MaxRounds ||
			int64(e.claims) != done.Load() {
			t.Errorf("after %d claims and %d tries: %v", e.claims, done.Load(), err)
		}
	})
}

// TestKeep lets a try take longer than its lease: it goes on alone while the lease is renewed, with the failed attempts
// of before, and ends when the item is another's.
func TestKeep(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		var q *worker.Queue
		tries := 0
		var lost error
		do := func(ctx context.Context, all []*worker.Claim) []error {
			if tries++; tries == 1 {
				return []error{errors.New("no luck"), errors.New("no luck")}
			}
			system := clock.System{}
			err := q.Keep(ctx, all, func(ctx context.Context) error {
				return system.Wait(ctx, system.Now().Add(10*time.Minute))
			})
			if err != nil || all[0].Attempt != 2 {
				return []error{err, err}
			}
			err = errors.Join(h.finish(ctx, all[0]), h.Write(ctx, all[1].Tenant, nil, all[1].Fence()))
			if err != nil {
				return []error{err, err}
			}
			lost = q.Keep(ctx, all[1:], func(ctx context.Context) error {
				it, _ := h.item("a/prod", "second")
				side := store.Side{Op: store.Delete, Space: space, Key: "second", Cond: store.IfRev, Rev: it.Rev}
				if err := h.Write(ctx, "a/prod", []store.Side{side}); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			})
			return nil
		}
		q = h.queue(worker.Work{Lease: time.Minute, Batch: 2, DoAll: do})
		h.put("a/prod", "first", 0)
		h.put("a/prod", "second", 0)
		stop := h.run(q)
		pass(t, time.Hour)
		stop()
		if tries != 2 || lost == nil {
			t.Errorf("%d tries, the end of the last one: %v", tries, lost)
		}
		for _, key := range []string{"first", "second"} {
			if it, there := h.item("a/prod", key); there {
				t.Errorf("%s is left: %+v", key, it)
			}
		}
	})
}
