package build_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

const (
	prod    = j17.Tenant("ins_test/prod")
	staging = j17.Tenant("ins_test/staging")
	made    = store.Space("made")
	kind    = "thing"
)

// house is a store at a time that stands still.
type house struct {
	tb    testing.TB
	clock *clock.Manual
	store store.Store
}

func newHouse(tb testing.TB) *house {
	tb.Helper()
	h := &house{tb: tb, clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	h.store = testopen.Open(tb, h.clock)
	return h
}

// service is a process over a store.
func (h *house) service(st build.Storage, k build.Kind) *build.Service {
	log := slog.New(slog.DiscardHandler)
	s := build.New(build.Options{Store: st, Clock: h.clock, Worker: worker.New(h.clock, log), Logger: log, Parallel: 3})
	k.Name = kind
	s.Handle(k)
	return s
}

// streams gives a tenant streams of one event each.
func (h *house) streams(t j17.Tenant, typ string, n int) {
	h.tb.Helper()
	var events []store.NewEvent
	for i := range n {
		events = append(events, store.NewEvent{
			Key: j17.Key{Type: typ, ID: fmt.Sprintf("%06d", i)}, Type: "was_made", Data: []byte(`{}`),
			Metadata: []byte(`{}`),
		})
	}
	if _, err := h.store.Append(h.tb.Context(), t, []store.Append{{Events: events}}); err != nil {
		h.tb.Fatal(err)
	}
}

// adding is a kind that counts how often each stream is written down.
func adding(size int) build.Kind {
	return build.Kind{PageSize: size, Page: func(_ context.Context, p *build.Page) (sides []store.Side, err error) {
		for _, id := range p.IDs {
			sides = append(sides, store.Side{
				Op: store.Add, Space: made, Key: p.Name + "/" + p.Type + ":" + id, Value: []byte("1"),
			})
		}
		return sides, nil
	}}
}

// written returns what a build has written.
func (h *house) written(t j17.Tenant) (all []string) {
	h.tb.Helper()
	items, err := h.store.Scan(h.tb.Context(), t, made, store.Range{}, 1_000_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, it := range items {
		all = append(all, it.Key+" "+string(it.Value))
	}
	return all
}

func (h *house) begin(s *build.Service, t j17.Tenant, name string, types ...string) {
	h.tb.Helper()
	if err := s.Begin(h.tb.Context(), kind, &build.Job{
		Tenant: t, Name: name, Types: types, At: j17.StreamID{Ms: 7, Seq: 3},
	}); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *house) status(s *build.Service, name string) build.Status {
	h.tb.Helper()
	status, err := s.Status(h.tb.Context(), prod, kind, name)
	if err != nil {
		h.tb.Fatal(err)
	}
	return status
}

// expected is what adding writes of n streams of types.
func expected(name string, n int, types ...string) (all []string) {
	for _, typ := range types {
		for i := range n {
			all = append(all, fmt.Sprintf("%s/%s:%06d 1", name, typ, i))
		}
	}
	slices.Sort(all)
	return all
}

// TestBuild goes through all streams of the types, and of no others, once.
func TestBuild(t *testing.T) {
	h := newHouse(t)
	for _, typ := range []string{"a", "b", "c"} {
		h.streams(prod, typ, 25)
	}
	h.streams(staging, "a", 3)
	k := adding(10)
	asked := 0
	k.Done = func(_ context.Context, j *build.Job) ([]store.Side, error) {
		if j.At != (j17.StreamID{Ms: 7, Seq: 3}) || j.Name != "one" || !slices.Equal(j.Types, []string{"a", "c"}) {
			t.Errorf("asked of %+v", j)
		}
		if asked++; asked == 1 {
			return nil, build.Later{For: time.Minute}
		}
		return []store.Side{{Op: store.Put, Space: "ends", Key: j.Name, Value: []byte("ended")}}, nil
	}
	s := h.service(h.store, k)
	h.begin(s, prod, "one", "a", "c")
	if got := h.status(s, "one"); got != (build.Status{State: build.Running}) {
		t.Errorf("before: %+v", got)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected("one", 25, "a", "c"), h.written(prod)); diff != "" {
		t.Error(diff)
	}
	if got := h.status(s, "one"); got != (build.Status{State: build.Running, Done: 50, Total: 50}) {
		t.Errorf("before the end: %+v", got)
	}
	h.clock.Advance(time.Minute)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Await(t.Context(), prod, kind, "one"); err != nil ||
		got != (build.Status{State: build.Done, Done: 50, Total: 50}) {
		t.Errorf("at the end: %+v, %v", got, err)
	}
	if it, err := h.store.Get(t.Context(), prod, "ends", "one"); err != nil || string(it.Value) != "ended" ||
		len(h.written(staging)) > 0 {
		t.Errorf("%q, %v", it.Value, err)
	}
	if next, err := s.NextDue(t.Context()); err != nil || !next.IsZero() {
		t.Errorf("due again at %v, %v", next, err)
	}
	if err := h.store.Write(t.Context(), prod, s.Forget(kind, "one")); err != nil {
		t.Fatal(err)
	}
	if status, err := s.Status(t.Context(), prod, kind, "one"); err != nil || status.State != "" {
		t.Errorf("forgotten: %+v, %v", status, err)
	}
}

// TestCrashes ends the process before and after each of its writes: what is built then is what is built without that,
// each stream once, and what is removed is gone.
func TestCrashes(t *testing.T) {
	for _, late := range []bool{false, true} {
		crashes := 0
		for left := 0; ; left++ {
			h := newHouse(t)
			h.streams(prod, "a", 23)
			h.streams(prod, "b", 7)
			m := storetest.NewCrashing(h.store, left, late)
			s := h.service(m, adding(5))
			alive := h.service(h.store, adding(5))
			h.begin(alive, prod, "one", "a", "b")
			old := []store.Side{alive.Remove(
				"old", build.Range{Space: "old", Keys: store.Prefix("x/")}, build.Range{Space: "older"},
				build.Range{Space: "plain", Keys: store.Prefix("x"), Plain: true},
			)}
			for i := range 40 {
				old = append(old, store.Side{Op: store.Put, Space: "old", Key: fmt.Sprintf("x/%d", i)},
					store.Side{Op: store.Put, Space: "older", Key: fmt.Sprint(i)},
					store.Side{Op: store.Put, Space: "plain", Key: fmt.Sprintf("x%d", i), Plain: true})
			}
			if err := h.store.Write(t.Context(), prod, append(old, store.Side{
				Op: store.Put, Space: "old", Key: "y",
			})); err != nil {
				t.Fatal(err)
			}
			_ = s.Settle(t.Context()) // it may be the last that the process does

			// Another one takes over what was leased.
			for range 2 {
				h.clock.Advance(time.Minute)
				if err := alive.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(
				append(expected("one", 23, "a"), expected("one", 7, "b")...), h.written(prod),
			); diff != "" {
				t.Fatalf("the process ends at write %d, stored: %v:\n%s", left, late, diff)
			}
			if got := h.status(alive, "one"); got != (build.Status{State: build.Done, Done: 30, Total: 30}) {
				t.Fatalf("the process ends at write %d, stored: %v: %+v", left, late, got)
			}
			for space, want := range map[store.Space]int{
				"old": 1, "older": 0, "plain": 0, "build.jobs": 0, "build.removals": 0,
			} {
				if n, err := h.store.Count(t.Context(), prod, space, store.Range{}, 100); err != nil || n != want {
					t.Fatalf("the process ends at write %d, stored: %v: %d items in %s, %v", left, late, n, space, err)
				}
			}
			if !m.IsDead() {
				break
			}
			crashes++
		}
		if crashes < 8 {
			t.Errorf("it has ended %d times only", crashes)
		}
	}
}

// TestConflicts lets somebody change what a page was made with: the page is rebuilt, and others are not.
func TestConflicts(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 30)
	var calls atomic.Int64
	once := sync.Once{}
	s := h.service(h.store,
		build.Kind{PageSize: 10, Page: func(ctx context.Context, p *build.Page) (sides []store.Side, err error) {
			calls.Add(1)
			for _, id := range p.IDs {
				it, err := h.store.Get(ctx, prod, made, id)
				side := store.Side{
					Op: store.Put, Space: made, Key: id, Value: append(it.Value, 'b'), Cond: store.IfRev, Rev: it.Rev,
				}
				if errors.Is(err, store.ErrNotFound) {
					side.Cond = store.IfAbsent
				} else if err != nil {
					return sides, err
				}
				sides = append(sides, side)
			}
			if p.IDs[0] == "000010" {
				once.Do(func() {
					err = h.store.Write(ctx, prod, []store.Side{
						{Op: store.Put, Space: made, Key: "000015", Value: []byte("a")},
					})
				})
			}
			return sides, err
		}})
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := h.written(prod)
	if len(all) != 30 || all[14] != "000014 b" || all[15] != "000015 ab" || calls.Load() < 4 {
		t.Errorf("%d calls, %v", calls.Load(), all)
	}
}

// TestTries: an error is told and tried again with smaller pages, a panic too; a Failure is the end.
func TestTries(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 16)
	largest := 0
	var mu sync.Mutex
	k := adding(8)
	page := k.Page
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		mu.Lock()
		defer mu.Unlock()
		switch n := len(p.IDs); {
		case p.Name == "bad":
			return nil, &build.Failure{Err: errors.New("it is bad")}
		case n > 4:
			panic("too many")
		case n > 2:
			return nil, errors.New("still too many")
		default:
			largest = max(largest, n)
			return page(ctx, p)
		}
	}
	s := h.service(h.store, k)
	h.begin(s, prod, "one", "a")
	h.begin(s, prod, "bad", "a")
	var errs []string
	for range 3 {
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		what, _, _ := strings.Cut(h.status(s, "one").Error, ", in ") // where a panic came from
		errs = append(errs, what)
		h.clock.Advance(time.Minute)
	}
	if diff := cmp.Diff([]string{"panic: too many", "still too many", ""}, errs); diff != "" || largest != 2 {
		t.Errorf("pages of %d:\n%s", largest, diff)
	}
	if got := h.status(s, "one"); got.State != build.Done || len(h.written(prod)) != 16 {
		t.Errorf("%+v", got)
	}
	if got := h.status(s, "bad"); got != (build.Status{State: build.Failed, Total: 16, Error: "it is bad"}) {
		t.Errorf("%+v", got)
	}
	if got := s.Stats(); got.Streams != 16 || got.Ended != 1 || got.Failed != 1 || got.Running != 0 {
		t.Errorf("%+v", got)
	}
}

// TestWhatIsForgottenDoesNotFail: a build that finds out that it cannot go on since nobody wants it any longer has not
// failed.
func TestWhatIsForgottenDoesNotFail(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 1)
	var s *build.Service
	k := adding(1)
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		if err := h.store.Write(ctx, prod, s.Forget(kind, p.Name)); err != nil {
			return nil, err
		}
		return nil, &build.Failure{Err: errors.New("what it is for is gone")}
	}
	s = h.service(h.store, k)
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.Failed != 0 {
		t.Errorf("%+v", got)
	}
	if status, err := s.Status(t.Context(), prod, kind, "one"); err != nil || status.State != "" {
		t.Errorf("%+v, %v", status, err)
	}
}

// full is a store whose disk is full for a while.
type full struct {
	store.Store
	left atomic.Int64
}

// Write is part of store.Store.
func (f *full) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if f.left.Add(-1) < 0 {
		return store.ErrFull
	}
	return f.Store.Write(ctx, t, side, fences...)
}

// Status is part of store.Store.
func (f *full) Status() store.Status {
	if f.left.Load() < 0 {
		return store.Status{Readable: true, Reason: "the disk is full"}
	}
	return f.Store.Status()
}

// TestFullDisk: a build waits while the disk is full, and goes on where it was.
func TestFullDisk(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 5000)
	f := &full{Store: h.store}
	s := h.service(f, adding(10))
	f.left.Store(2)
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.status(s, "one"); got.State != build.Running || got.Done == 0 || got.Done == 5000 ||
		got.Error != "the disk is full" {
		t.Errorf("%+v", got)
	}
	f.left.Store(1_000_000)
	h.clock.Advance(time.Minute)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(expected("one", 5000, "a"), h.written(prod)); diff != "" {
		t.Error(diff)
	}
}

// TestCancel ends a build in the middle: nothing of it is committed any longer.
func TestCancel(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 100)
	k := adding(1)
	page := k.Page
	reached := make(chan struct{})
	reach := sync.OnceFunc(func() { close(reached) })
	release := make(chan struct{})
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		if p.IDs[0] == "000050" {
			reach()
			<-release
		}
		return page(ctx, p)
	}
	s := h.service(h.store, k)
	if err := s.Cancel(t.Context(), prod, kind, "one"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
	h.begin(s, prod, "one", "a")
	ended := make(chan error, 1)
	go func() { ended <- s.Settle(t.Context()) }()
	<-reached
	if err := s.Cancel(t.Context(), prod, kind, "one"); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	status, err := s.Await(t.Context(), prod, kind, "one")
	if err != nil || status.State != build.Failed || status.Error != build.Canceled || len(h.written(prod)) > 50 {
		t.Errorf("%+v, %v, %d written", status, err, len(h.written(prod)))
	}
	if next, err := s.NextDue(t.Context()); err != nil || !next.IsZero() {
		t.Errorf("due again at %v, %v", next, err)
	}
}

// TestProcesses lets two sets of workers build for two tenants at once while streams begin. No more pages are made at
// once than may be.
func TestProcesses(t *testing.T) {
	h := newHouse(t)
	for _, tenant := range []j17.Tenant{prod, staging} {
		h.streams(tenant, "a", 600)
	}
	var running, most atomic.Int64
	k := adding(7)
	page := k.Page
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); {
			seen = most.Load()
		}
		return page(ctx, p)
	}
	ctx, stop := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	var last *build.Service
	for range 2 {
		s := h.service(h.store, k)
		last = s
		processes.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for _, tenant := range []j17.Tenant{prod, staging} {
		for i := range 3 {
			h.begin(last, tenant, fmt.Sprintf("n%d", i), "a")
		}
	}
	for i := range 20 {
		h.streams(prod, fmt.Sprintf("other%d", i), 1)
	}
	for _, tenant := range []j17.Tenant{prod, staging} {
		var want []string
		for i := range 3 {
			name := fmt.Sprintf("n%d", i)
			if got, err := last.Await(t.Context(), tenant, kind, name); err != nil || got.State != build.Done {
				t.Errorf("%s of %s: %+v, %v", name, tenant, got, err)
			}
			want = append(want, expected(name, 600, "a")...)
		}
		if diff := cmp.Diff(want, h.written(tenant)); diff != "" {
			t.Error(diff)
		}
	}
	stop()
	processes.Wait()
	if n := most.Load(); n > 2*3 {
		t.Errorf("%d pages were made at once", n)
	}
}

// TestUnknownKind: a build that nothing here can make is left to those who can.
func TestUnknownKind(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 1)
	s := h.service(h.store, adding(1))
	if err := s.Begin(t.Context(), "other", &build.Job{Tenant: prod, Name: "one", Types: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Status(t.Context(), prod, "other", "one"); err != nil || got.State != build.Running ||
		!strings.Contains(got.Error, "other/one") {
		t.Errorf("%+v, %v", got, err)
	}
}
