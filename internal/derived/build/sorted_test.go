package build_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// things is the space of what sorted builds make.
const things store.Space = "things"

// sorting is a kind that puts three items for each stream, and counts the streams.
func sorting() build.Kind {
	return build.Kind{
		PageSize: 5, Sorted: true,
		Page: func(_ context.Context, p *build.Page) (sides []store.Side, err error) {
			for _, id := range p.IDs {
				for _, part := range []string{"c", "a", "b"} {
					sides = append(sides, store.Side{
						Op: store.Put, Space: things, Key: part + "/" + p.Type + id, Value: []byte(p.Name), Plain: true,
					})
				}
			}
			return append(sides, store.Side{
				Op: store.Add, Space: made, Key: "n", Value: fmt.Append(nil, len(p.IDs)),
			}), nil
		},
	}
}

// sorted returns what a sorted build has put, and what is expected of n streams of the type a.
func (h *house) sorted(n int) (got, want []string) {
	h.tb.Helper()
	items, err := h.store.Scan(h.tb.Context(), prod, things, store.Range{}, 10_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	for _, it := range items {
		got = append(got, it.Key+" "+string(it.Value))
	}
	for _, part := range []string{"a", "b", "c"} {
		for i := range n {
			want = append(want, fmt.Sprintf("%s/a%06d one", part, i))
		}
	}
	return got, want
}

// TestSortedCrashes ends the process before and after each of its writes, with parts that are held in memory, and with
// bulk writes: whatever happens everything is there in the end, and what is counted is counted once.
func TestSortedCrashes(t *testing.T) {
	for _, bound := range [][2]int{{1000, 1 << 20}, {1000, 200}, {4, 200}, {4, 1 << 20}} {
		for _, late := range []bool{false, true} {
			crashes := 0
			for left := 0; ; left++ {
				h := newHouse(t)
				h.streams(prod, "a", 23)
				m := storetest.NewCrashing(h.store, left, late)
				s := h.service(m, sorting())
				alive := h.service(h.store, sorting())
				s.Bound(bound[0], bound[1])
				alive.Bound(bound[0], bound[1])
				h.begin(alive, prod, "one", "a")
				_ = s.Settle(t.Context()) // it may be the last that the process does
				for range 2 {
					h.clock.Advance(time.Minute)
					if err := alive.Settle(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				what := fmt.Sprintf("bounds %v, the process ends at write %d, stored: %v", bound, left, late)
				if got, want := h.sorted(23); !slices.Equal(got, want) {
					t.Fatalf("%s: %q", what, got)
				}
				if got := h.written(prod); !slices.Equal(got, []string{"n 23"}) {
					t.Fatalf("%s: counted %q", what, got)
				}
				if got := h.status(alive, "one"); got != (build.Status{State: build.Done, Done: 23, Total: 23}) {
					t.Fatalf("%s: %+v", what, got)
				}
				if !m.IsDead() {
					break
				}
				crashes++
			}
			if crashes < 3 {
				t.Errorf("it has ended %d times only", crashes)
			}
		}
	}
}

// ending is a store whose first bulk writes are ended by somebody else before they are written.
type ending struct {
	store.Store
	left int
}

// BulkWrite is part of store.Store.
func (e *ending) BulkWrite(ctx context.Context, t j17.Tenant) (store.BulkWrite, error) {
	p, err := e.Store.BulkWrite(ctx, t)
	if e.left--; err != nil || e.left < 0 {
		return p, err
	}
	return endedBulkWrite{p}, nil
}

type endedBulkWrite struct{ store.BulkWrite }

// Write is part of store.BulkWrite.
func (p endedBulkWrite) Write(context.Context, []store.Side, ...store.Fence) error {
	p.Discard()
	return store.ErrEnded
}

// TestAnErasureEndsAPile: the build goes on at once from what is committed, and that is no failure.
func TestAnErasureEndsAPile(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 40)
	s := h.service(&ending{h.store, 3}, sorting())
	s.Bound(4, 500)
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.status(s, "one"); got != (build.Status{State: build.Done, Done: 40, Total: 40}) {
		t.Errorf("%+v", got)
	}
	if got, want := h.sorted(40); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// roomless is a store without room for some bulk writes: the first may not begin, the second gather, and the third be
// written.
type roomless struct {
	store.Store
	asked int
}

// BulkWrite is part of store.Store.
func (r *roomless) BulkWrite(ctx context.Context, t j17.Tenant) (store.BulkWrite, error) {
	if r.asked++; r.asked == 1 {
		return nil, store.ErrFull
	}
	p, err := r.Store.BulkWrite(ctx, t)
	return roomlessBulkWrite{p, r.asked}, err
}

type roomlessBulkWrite struct {
	store.BulkWrite
	number int
}

// Put is part of store.BulkWrite.
func (p roomlessBulkWrite) Put(space store.Space, key string, value []byte) error {
	if p.number == 2 {
		return store.ErrFull
	}
	return p.BulkWrite.Put(space, key, value)
}

// Write is part of store.BulkWrite.
func (p roomlessBulkWrite) Write(ctx context.Context, side []store.Side, fences ...store.Fence) error {
	if p.number == 3 {
		return store.ErrFull
	}
	return p.BulkWrite.Write(ctx, side, fences...)
}

// TestSortedBuildsWaitForRoom: a build for which there is no room on disk waits, and is made as a whole when there is.
func TestSortedBuildsWaitForRoom(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 40)
	st := &roomless{Store: h.store}
	s := h.service(st, sorting())
	s.Bound(4, 1<<20)
	h.begin(s, prod, "one", "a")
	for range 3 {
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.status(s, "one"); got.State != build.Running ||
			!strings.Contains(got.Error, store.ErrFull.Error()) {
			t.Errorf("without room for bulk write %d: %+v", st.asked, got)
		}
		h.clock.Advance(time.Minute)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.status(s, "one"); got != (build.Status{State: build.Done, Done: 40, Total: 40}) {
		t.Errorf("%+v", got)
	}
	if got, want := h.sorted(40); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := h.written(prod); !slices.Equal(got, []string{"n 40"}) {
		t.Errorf("counted %q", got)
	}
}

// TestACancelledPartIsDropped cancels a build from within one of its pages: no later page is made, and nothing of the
// part is written.
func TestACancelledPartIsDropped(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 400)
	k := sorting()
	page := k.Page
	var s *build.Service
	pages := make(chan string, 400)
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		pages <- p.IDs[0]
		if p.IDs[0] == "000050" {
			if err := s.Cancel(ctx, prod, kind, "one"); err != nil {
				t.Error(err)
			}
		}
		return page(ctx, p)
	}
	s = h.service(h.store, k)
	s.Bound(4, 1<<20)
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := h.sorted(0); got != nil || len(pages) > 20 {
		t.Errorf("%d pages were made, and %d items are left", len(pages), len(got))
	}
	if got := h.status(s, "one"); got.State != build.Failed || got.Error != build.Canceled {
		t.Errorf("%+v", got)
	}
}

// TestWhatIsToldOfABuildBeforeItsFirstCommit: from the first page on it is known how many streams there are, so that
// nobody is told of a part of nothing.
func TestWhatIsToldOfABuildBeforeItsFirstCommit(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 23)
	var s *build.Service
	k := sorting()
	page := k.Page
	k.Page = func(ctx context.Context, p *build.Page) ([]store.Side, error) {
		if status, err := s.Status(ctx, prod, kind, "one"); err != nil || status.Total != 23 {
			t.Errorf("a page is told %+v, %v", status, err)
		}
		return page(ctx, p)
	}
	s = h.service(h.store, k)
	h.begin(s, prod, "one", "a")
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.status(s, "one"); got != (build.Status{State: build.Done, Done: 23, Total: 23}) {
		t.Errorf("%+v", got)
	}
}
