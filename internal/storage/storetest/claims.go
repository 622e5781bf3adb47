package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"j17/internal/storage/store"
)

// testReleaseClaims ends a process that holds claims: the next one gives them back, and nothing else is due earlier
// than it was.
func testReleaseClaims(s *suite) {
	// Write work to claim, work that a writer has claimed, and work that waits: due within a lease, due later, never
	// due.
	t := s.t
	f := s.fixture(t)
	start := f.clock.Now()
	job := func(key string, due time.Duration) store.Side {
		return store.Side{Op: store.Put, Space: "work", Key: key, Value: []byte("do " + key), Due: start.Add(due)}
	}
	const many = 2100 // more than are given back at a time
	var sides []store.Side
	var keys []string
	for n := range many {
		sides = append(sides, job(fmt.Sprintf("%05d", many-n), time.Duration(n/3)*time.Millisecond))
	}
	slices.SortFunc(sides, func(a, b store.Side) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	for i := range sides {
		keys = append(keys, sides[i].Key)
	}
	write(t, f, tenant, sides...)
	write(t, f, tenant, job("pause", 3*time.Second+30*time.Second), job("later", 3*store.MaxLease), store.Side{
		Op: store.Put, Space: "work", Key: "never",
	})
	own := job("own", 2*time.Second+time.Minute)
	own.Claimed = start.Add(2 * time.Second)
	write(t, f, tenant, own)
	write(t, f, other, job("theirs", 0))
	f.clock.Advance(3 * time.Second)
	claimed := claim(t, f, many/2, time.Minute)
	claimed = append(claimed, claim(t, f, many, store.MaxLease)...)
	if !slices.Equal(keysOf(claimed), keys) {
		t.Fatalf("%d items were claimed, not in the order in which they are due", len(claimed))
	}
	if got, err := f.ClaimDue(t.Context(), other, store.Claim{
		Space: "work", Limit: 9, Lease: time.Minute,
	}); err != nil || len(got) != 1 {
		t.Fatalf("claimed %v, %v", keysOf(got), err)
	}

	// One is finished, one is postponed, and one is claimed a second time because its lease has ended.
	write(t, f, tenant, store.Side{
		Op: store.Delete, Space: "work", Key: keys[0], Cond: store.IfRev, Rev: claimed[0].Rev,
	})
	again := job(keys[1], time.Hour)
	again.Cond, again.Rev = store.IfRev, claimed[1].Rev
	write(t, f, tenant, again)
	f.clock.Advance(29 * time.Second)
	if _, err := f.ClaimDue(t.Context(), tenant, store.Claim{Space: "work", Limit: 1, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}

	// Another process releases the claims: their holders can no longer finish.
	f.reopen(t, t)
	if n, err := f.ReleaseClaims(t.Context()); err != nil || n != many-2+2 {
		t.Fatalf("%d claims were given back, %v", n, err)
	}
	lost := store.Side{Op: store.Delete, Space: "work", Key: keys[2], Cond: store.IfRev, Rev: claimed[2].Rev}
	if err := f.Write(t.Context(), tenant, []store.Side{lost}); err == nil {
		t.Fatal("a claim that was given back is finished")
	}
	if item := get(t, f, tenant, "work", keys[2]); !item.Due.Equal(start) || string(item.Value) != "do "+keys[2] {
		t.Fatalf("given back was %+v", item)
	}
	if due := dueTenants(t, f, 9); len(due) != 2 {
		t.Fatalf("due are items of %v", due)
	}
	if n, err := f.ReleaseClaims(t.Context()); err != nil || n != 0 {
		t.Fatalf("%d claims were given back once more, %v", n, err)
	}

	// All of it is claimed in the order in which it was due; waiting work still waits.
	want := append(slices.Clone(keys[2:]), "own")
	if got := keysOf(claim(t, f, 2*many, time.Minute)); !slices.Equal(got, want) {
		t.Fatalf("%d items are due, want the %d that were claimed, in their order", len(got), len(want))
	}
	f.clock.Advance(time.Second)
	if got := keysOf(claim(t, f, 9, time.Minute)); !slices.Equal(got, []string{"pause"}) {
		t.Fatalf("due is %v, want what was to be tried again", got)
	}
}

// testClaimedTwice lets the lease of a claim end, and gives back the claim that follows: the item is due at its first
// time.
func testClaimedTwice(s *suite) {
	t := s.t
	f := s.fixture(t)
	start := f.clock.Now()
	write(t, f, tenant, store.Side{Op: store.Put, Space: "work", Key: "x", Due: start})
	for range 2 {
		if got := claim(t, f, 9, time.Minute); len(got) != 1 {
			t.Fatalf("claimed %v", keysOf(got))
		}
		f.clock.Advance(time.Minute)
	}
	if _, err := f.ReleaseClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	if item := get(t, f, tenant, "work", "x"); !item.Due.Equal(start) {
		t.Fatalf("the item is due at %s, want %s", item.Due, start)
	}

	// Leases longer than MaxLease are refused.
	if _, err := f.ClaimDue(t.Context(), tenant, store.Claim{
		Space: "work", Limit: 1, Lease: store.MaxLease + 1,
	}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("a lease that is too long: %v", err)
	}
	for name, side := range map[string]store.Side{
		"of a removal":  {Op: store.Delete, Claimed: start},
		"without a due": {Claimed: start},
		"too long":      {Claimed: start, Due: start.Add(store.MaxLease + 1)},
		"backward":      {Claimed: start, Due: start.Add(-1)},
	} {
		side.Space, side.Key = "work", "y"
		if err := f.Write(t.Context(), tenant, []store.Side{side}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a claim %s: %v", name, err)
		}
	}
}
