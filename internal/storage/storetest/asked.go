package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"j17/internal/storage/store"
)

// testAskedBefore reads items again after they were changed in every possible way: what was read before does not count.
func testAskedBefore(s *suite) {
	t := s.t
	f := s.fixture(t)
	const entries store.Space = "entries"

	// holds reports whether a fence holds, in a unit that writes something.
	n := 0
	holds := func(of store.Space, key string, rev uint64) bool {
		t.Helper()
		n++
		u := store.Append{
			Fences: []store.Fence{{Space: of, Key: key, Rev: rev}}, Events: events(order("a"), `1`),
			Pre: []store.Pre{pre(order("a"), uint64(n-1))},
		}
		r := appendUnit(t, f, tenant, u)
		if r.Outcome != store.Committed {
			n--
		}
		return r.Outcome == store.Committed
	}
	check := func(how string, of store.Space, key string, before uint64) uint64 {
		t.Helper()
		now := revisionOf(t, f, of, key)
		if now == before {
			t.Fatalf("%s: the item has not changed", how)
		}
		if holds(of, key, before) {
			t.Errorf("%s: a fence on what was there before holds", how)
		}
		if !holds(of, key, now) {
			t.Errorf("%s: a fence on what is there does not hold", how)
		}
		return now
	}

	// Change an item by writes, a claim and a removal, and another one by plain writes.
	due := put("due", "1")
	due.Due = f.clock.Now().Add(-time.Second)
	write(t, f, tenant, due)
	rev := check("written", space, "due", 0)
	if got, err := f.ClaimDue(t.Context(), tenant, store.Claim{
		Space: space, Limit: 1, Lease: time.Hour,
	}); err != nil || len(got) != 1 {
		t.Fatalf("claimed %v, %v", got, err)
	}
	rev = check("claimed", space, "due", rev)
	write(t, f, tenant, put("due", "2"))
	rev = check("written anew", space, "due", rev)
	write(t, f, tenant, store.Side{Op: store.Delete, Space: space, Key: "due"})
	check("removed", space, "due", rev)
	write(t, f, tenant, store.Side{Op: store.Put, Plain: true, Space: space, Key: "plain"})
	rev = check("plain", space, "plain", 0)
	write(t, f, tenant, store.Side{Op: store.Put, Plain: true, Space: space, Key: "plain"})
	check("plain and written anew", space, "plain", rev)

	// Change an item with entries. Its bytes belong to the caller again after the write.
	list := func(value []byte, behind int, keys ...string) {
		t.Helper()
		value = append(store.AppendEntries(value[:0], keys...), make([]byte, behind)...)
		write(t, f, tenant, store.Side{Op: store.Put, Space: space, Key: "list", Value: value, Entries: entries})
		clear(value)
		var got []string
		for _, item := range scan(t, f, entries) {
			got = append(got, item.Key)
		}
		if !slices.Equal(got, keys) {
			t.Errorf("entries %q, want %q", got, keys)
		}
	}
	room := make([]byte, 0, 64)
	list(room, 0, "x", "y")
	list(room, 0, "y", "z")
	rev = check("an entry", entries, "z", 0)
	list(room, 0, "w")
	check("an entry that is gone", entries, "z", rev)
	list(room, 0, "t")
	list(room, 4*store.MaxNameBytes, "u")
	list(room, 0, "v")

	// Items of a removed tenant do not exist under its name.
	rev = revisionOf(t, f, space, "plain")
	if err := f.DropTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if n = 0; holds(space, "plain", rev) || !holds(space, "plain", 0) {
		t.Error("an item of a tenant that was removed is there")
	}
}

// revisionOf returns the revision of an item, 0 if there is none.
func revisionOf(t *testing.T, f *fixture, of store.Space, key string) uint64 {
	t.Helper()
	item, err := f.Get(t.Context(), tenant, of, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	return item.Rev
}

func scan(t *testing.T, f *fixture, of store.Space) []store.Item {
	t.Helper()
	items, err := f.Scan(t.Context(), tenant, of, store.Range{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return items
}
