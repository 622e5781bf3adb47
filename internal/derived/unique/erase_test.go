package unique_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/derived/unique"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// erase replaces the events that a user has by markers, and lets the service let go of what it has of them.
func (h *house) erase(n int) {
	h.tb.Helper()
	h.rewrite(n)
	h.told(n)
}

// told tells the service that the events of a user were replaced.
func (h *house) told(n int) {
	h.tb.Helper()
	if err := h.unique.Erase(h.tb.Context(), enginetest.Tenant, part.Erased{
		Keys: []j17.Key{{Type: "user", ID: id(n)}},
	}); err != nil {
		h.tb.Fatal(err)
	}
}

// rewrite replaces the events that a user has by markers.
func (h *house) rewrite(n int) {
	h.tb.Helper()
	key := j17.Key{Type: "user", ID: id(n)}
	heads, err := h.Store.Heads(h.tb.Context(), enginetest.Tenant, []j17.Key{key})
	if err != nil {
		h.tb.Fatal(err)
	}
	var gone []store.Rewritten
	for v := range heads[0].Length {
		gone = append(gone, store.Rewritten{
			Version: v + 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	if len(gone) == 0 {
		return
	}
	if err := storetest.Erase(h.tb.Context(), h.Store, enginetest.Tenant, key, gone); err != nil {
		h.tb.Fatal(err)
	}
}

// traces returns the items that name a user.
func (h *house) traces(n int) (all []string) {
	for _, space := range []store.Space{"unique.value", "unique.held", "unique.waiting"} {
		for key, value := range h.items(space) {
			if strings.Contains(key+value, id(n)) {
				all = append(all, string(space)+" "+key)
			}
		}
	}
	return all
}

// TestErasuresGiveBack erases users who hold something, in sets that are in force, that are being filled and that
// nobody needs any longer.
func TestErasuresGiveBack(t *testing.T) {
	h := newHouse(t, unlike)
	h.must(1, "was_registered", `{"email":"a","house":1,"badge":1}`)
	h.must(2, "was_registered", `{"email":"b"}`)
	h.erase(1)
	if left := h.traces(1); len(left) > 0 {
		t.Fatalf("of somebody who was erased there is %v", left)
	}
	h.must(3, "was_registered", `{"email":"a","house":1,"badge":1}`)
	h.check(map[string]int{"a": 3, "b": 2}, "after the erasure")

	// What is taken behind the markers stays, whenever somebody is told of them.
	h.rewrite(2)
	h.must(2, "was_registered", `{"email":"c"}`)
	for range 2 {
		h.told(2)
		h.check(map[string]int{"a": 3, "c": 2}, "after a late erasure")
	}

	// What nobody needs any more goes away too, while it is removed.
	if err := h.deploy(plain, false); err != nil {
		t.Fatal(err)
	}
	h.erase(3)
	if left := h.traces(3); len(left) > 0 {
		t.Fatalf("of somebody who was erased there is %v", left)
	}
}

// TestErasuresWhileSetsAreFilled erases users at random moments of a filling, and compares what comes of it with a list
// of who holds what.
func TestErasuresWhileSetsAreFilled(t *testing.T) {
	compiled, _ := spec.Compile([]byte(unlike))
	after := decider.New(compiled, nil)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 6))
		h := newHouse(t, plain)
		h.unique.Pages(1, 1)
		l := &line{held: map[string]int{}, waiting: map[string][]int{}, has: map[int]string{}}
		take := func(n int, email string) {
			h.must(n, "was_registered", `{"email":"`+email+`"}`)
			l.take(n, email)
		}
		write := func(events int) {
			for range events {
				take(r.IntN(8), fmt.Sprint("a", r.IntN(4)))
			}
		}
		write(60 + r.IntN(30)) // a turn of a filling is shorter
		var late []int
		for range 1 + r.IntN(4) {
			for range 1 + r.IntN(2) {
				if _, err := h.unique.Ready(t.Context(), enginetest.Tenant, after); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range late {
				h.told(n)
			}
			late = nil
			n := r.IntN(8)
			l.give(n)
			switch r.IntN(3) {
			case 0: // who is told of it only after the deployment, if at all
				h.rewrite(n)
			case 1: // who is told of it when more was written, and perhaps gone through
				h.rewrite(n)
				late = append(late, n)
				take(n, fmt.Sprint("a", r.IntN(6)))
			default:
				h.erase(n)
				if left := h.traces(n); len(left) > 0 {
					t.Fatalf("seed %d: of somebody who was erased there is %v", seed, left)
				}
			}
			write(r.IntN(10))
		}
		if err := h.deploy(unlike, true); err != nil {
			t.Fatal(err)
		}
		h.settle()
		h.check(l.held, fmt.Sprint("seed ", seed))
		for _, space := range []store.Space{"unique.waiting", "unique.fillings"} {
			if left := h.items(space); len(left) > 0 {
				t.Fatalf("seed %d: %s has %v", seed, space, left)
			}
		}
	}
}

// TestLateErasuresOfFillings tells of an erasure when the filling has come past its note already: what is taken behind
// the markers stays with who has taken it, also before somebody who waits for it.
func TestLateErasuresOfFillings(t *testing.T) {
	compiled, _ := spec.Compile([]byte(unlike))
	after := decider.New(compiled, nil)
	for _, restarted := range []bool{false, true} {
		h := newHouse(t, plain)
		h.must(2, "was_registered", `{"email":"b"}`)
		h.rewrite(2)
		h.must(2, "was_registered", `{"email":"c"}`)
		h.must(3, "was_registered", `{"email":"c"}`)
		if p, err := h.unique.Ready(t.Context(), enginetest.Tenant, after); err != nil || !p.Done {
			t.Fatal(p, err)
		}
		if restarted { // nobody has said yet what it is filled for
			h.open()
		}
		h.told(2)
		if again := len(h.items("unique.fillings")) == 0; again != restarted {
			t.Errorf("restarted: %v, and the filling begins anew: %v", restarted, again)
		}
		if err := h.deploy(unlike, true); err != nil {
			t.Fatal(err)
		}
		h.settle()
		h.check(map[string]int{"c": 2}, fmt.Sprint("restarted: ", restarted))
		for _, n := range []int{3, 9} {
			if holder, no := refused(t, h.post(n, "was_registered", `{"email":"c"}`)); !no || holder != "user:"+id(2) {
				t.Errorf("restarted: %v: %d takes what another one has: refused for %q", restarted, n, holder)
			}
		}
	}
}

// meddled is a store where something happens between what a filling reads first and its end, and before its first page
// is written.
type meddled struct {
	unique.Storage

	read, write func()
}

func (m *meddled) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range m.Storage.ReadChanges(ctx, t, after, limit) {
			if !yield(e, err) {
				return
			}
		}
		if do := m.read; do != nil {
			m.read = nil
			do()
		}
	}
}

func (m *meddled) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	if do := m.write; do != nil && sides[0].Space == "unique.fillings" {
		m.write = nil
		do()
	}
	return m.Storage.Write(ctx, t, sides, fences...)
}

// TestErasureBeforeTheFirstPage erases a user when a filling has read what he has taken, and has written nothing yet.
func TestErasureBeforeTheFirstPage(t *testing.T) {
	h := newHouse(t, plain)
	m := &meddled{Storage: h.Store}
	m.read = func() { h.must(1, "was_registered", `{"email":"a"}`) }
	m.write = func() { h.erase(1) }
	h.unique = unique.New(unique.Options{
		Store: m, Builds: h.builds, Engine: h.Engine, Logger: slog.New(slog.DiscardHandler),
	})
	h.Use(h.part())
	if err := h.deploy(unlike, false); err != nil {
		t.Fatal(err)
	}
	h.settle()
	if left := h.traces(1); len(left) > 0 {
		t.Errorf("of somebody who was erased there is %v", left)
	}
	h.must(2, "was_registered", `{"email":"a"}`)
}
