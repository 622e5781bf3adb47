package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"j17/internal/store"
)

// testEntries checks that entries are there as long as their item lists them, whoever writes it and however often in one commit.
func testEntries(s *suite) {
	t := s.t
	f := s.fixture(t)
	const entries store.Space = "entries"
	list := func(key, rest string, keys ...string) store.Side {
		return store.Side{Op: store.Put, Space: space, Key: key, Value: append(store.AppendEntries(nil, keys...), rest...), Entries: entries}
	}
	gone := func(key string) store.Side {
		return store.Side{Op: store.Delete, Space: space, Key: key, Entries: entries}
	}
	wanted := func(when string, want ...string) {
		t.Helper()
		items, err := f.Scan(t.Context(), tenant, entries, store.Range{}, 1000)
		if got := keysOf(items); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s the entries are %q (%v), want %q", when, got, err, want)
		}
	}

	// They follow the item.
	write(t, f, tenant, list("a", "rest", "1/a", "2/a"), list("b", "", "2/b"))
	wanted("at first", "1/a", "2/a", "2/b")
	keys, rest, err := store.ReadEntries(get(t, f, tenant, space, "a").Value)
	if err != nil || !slices.Equal(keys, []string{"1/a", "2/a"}) || string(rest) != "rest" {
		t.Errorf("the value has %q and %q: %v", keys, rest, err)
	}
	kept := get(t, f, tenant, entries, "2/a").Rev
	write(t, f, tenant, list("a", strings.Repeat("long", 10_000), "2/a", "3/a"))
	wanted("after it moved", "2/a", "2/b", "3/a")
	if get(t, f, tenant, entries, "2/a").Rev != kept {
		t.Error("an entry that stays was written anew")
	}
	f.reopen(t, t)
	write(t, f, tenant, list("a", "", "4/a"), list("a", "", "5/a"), gone("b"))
	wanted("after two moves in one unit", "5/a")
	write(t, f, tenant, list("a", "", "6/a"), gone("a"), gone("none"))
	wanted("without an item")

	// A unit that does not commit changes none of them.
	write(t, f, tenant, list("a", "", "1/a"))
	bad := list("a", "", "2/a")
	bad.Cond = store.IfAbsent
	if _, conflict := errors.AsType[*store.SideConflict](f.Write(t.Context(), tenant, []store.Side{bad})); !conflict {
		t.Error("there is no conflict")
	}
	wanted("after a conflict", "1/a")

	// Writers do not see each other, and leave nothing behind.
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 20 {
				if err := f.Write(t.Context(), tenant, []store.Side{list("a", "", fmt.Sprintf("%d/%d", w, i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	keys, _, err = store.ReadEntries(get(t, f, tenant, space, "a").Value)
	if err != nil {
		t.Fatal(err)
	}
	wanted("after many writes at once", keys...)

	// What is no list is refused.
	stamped, expiring, other := list("a", "", "x"), list("a", "", "x"), list("a", "", "x")
	stamped.Stamps, expiring.Expires, other.Op = []int{0}, f.clock.Now(), store.Add
	for name, bad := range map[string]store.Side{
		"no list": {Op: store.Put, Space: space, Key: "a", Value: []byte{2, 1, 'x'}, Entries: entries}, "no key": list("a", "", ""), "NUL": list("a", "", "\x00"),
		"too many": list("a", "", make([]string, store.MaxEntries+1)...), "stamped": stamped, "expiring": expiring, "added": other,
	} {
		if err := f.Write(t.Context(), tenant, []store.Side{bad}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wanted("after what was refused", keys...)
}
