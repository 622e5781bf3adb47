package unique_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"j17"
	"j17/internal/decider"
	"j17/internal/engine/enginetest"
	"j17/internal/erasure"
	"j17/internal/spec"
	"j17/internal/store"
	"j17/internal/store/storetest"
)

// erase replaces the events that a user has by markers, and lets the service let go of what it has of them.
func (h *house) erase(n int) {
	h.tb.Helper()
	key := j17.Key{Type: "user", ID: id(n)}
	h.rewrite(key)
	if err := h.unique.Erase(h.tb.Context(), enginetest.Tenant, erasure.Erased{Keys: []j17.Key{key}}); err != nil {
		h.tb.Fatal(err)
	}
}

func (h *house) rewrite(key j17.Key) {
	h.tb.Helper()
	heads, err := h.Store.Heads(h.tb.Context(), enginetest.Tenant, []j17.Key{key})
	if err != nil {
		h.tb.Fatal(err)
	}
	var gone []store.Rewritten
	for v := range heads[0].Length {
		gone = append(gone, store.Rewritten{Version: v + 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)})
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

// TestErasuresGiveBack erases users who hold something, in sets that are in force, that are being filled and that nobody needs any more.
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
	key := j17.Key{Type: "user", ID: id(2)}
	h.rewrite(key)
	h.must(2, "was_registered", `{"email":"c"}`)
	for range 2 {
		if err := h.unique.Erase(t.Context(), enginetest.Tenant, erasure.Erased{Keys: []j17.Key{key}}); err != nil {
			t.Fatal(err)
		}
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

// TestErasuresWhileSetsAreFilled erases users at random moments of a filling, and compares what comes of it with a list of who holds what.
func TestErasuresWhileSetsAreFilled(t *testing.T) {
	compiled, _ := spec.Compile([]byte(unlike))
	after := decider.New(compiled, nil)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 6))
		h := newHouse(t, plain)
		h.unique.Pages(1, 1)
		l := &line{held: map[string]int{}, waiting: map[string][]int{}, has: map[int]string{}}
		write := func(events int) {
			for range events {
				n, email := r.IntN(8), fmt.Sprint("a", r.IntN(4))
				h.must(n, "was_registered", `{"email":"`+email+`"}`)
				l.take(n, email)
			}
		}
		write(60 + r.IntN(30)) // a turn of a filling is shorter
		for range 1 + r.IntN(3) {
			if _, err := h.unique.Ready(t.Context(), enginetest.Tenant, after); err != nil {
				t.Fatal(err)
			}
			n := r.IntN(8)
			l.give(n)
			if r.IntN(2) == 0 { // who is told of it only after the deployment, if at all
				h.rewrite(j17.Key{Type: "user", ID: id(n)})
			} else {
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
