package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"j17/internal/storage/store"
)

// testEntries checks that entries exist as long as their item lists them, regardless of who writes it and how often in
// one commit.
func testEntries(s *suite) {
	t := s.t
	f := s.fixture(t)
	const entries store.Space = "entries"
	list := func(key, rest string, keys ...string) store.Side {
		return store.Side{
			Op: store.Put, Space: space, Key: key, Value: append(store.AppendEntries(nil, keys...), rest...),
			Entries: entries,
		}
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

	read := func(key string) (keys []string, rest string) {
		t.Helper()
		value := get(t, f, tenant, space, key).Value
		some, after, err := store.ReadEntries(value)
		behind, other := store.BehindEntries(value)
		if err != nil || other != nil || !bytes.Equal(after, behind) {
			t.Fatalf("the value of %s has %q and %q (%v), behind its entries %q (%v)", key, some, after, err, behind, other)
		}
		for _, key := range some {
			keys = append(keys, string(key))
		}
		return keys, string(after)
	}

	// They follow the item.
	write(t, f, tenant, list("a", "rest", "1/a", "2/a"), list("b", "", "2/b"))
	wanted("at first", "1/a", "2/a", "2/b")
	if keys, rest := read("a"); !slices.Equal(keys, []string{"1/a", "2/a"}) || rest != "rest" {
		t.Errorf("the value has %q and %q", keys, rest)
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

	// Those of an item that belongs to a stream follow it as well, from its first event on.
	for n, keys := range [][]string{{"1/s", "2/s"}, {"2/s", "3/s"}, {}} {
		side := list("s", "", keys...)
		side.Stream = 1
		commit(t, f, tenant, store.Append{
			Pre: []store.Pre{pre(order("s"), uint64(n))}, Events: events(order("s"), `{}`), Side: []store.Side{side},
		})
		wanted("after its event", keys...)
	}

	// A unit that does not commit changes none of them.
	write(t, f, tenant, list("a", "", "1/a"))
	bad := list("a", "", "2/a")
	bad.Cond = store.IfAbsent
	if _, conflict := errors.AsType[*store.SideConflict](f.Write(t.Context(), tenant, []store.Side{bad})); !conflict {
		t.Error("there is no conflict")
	}
	wanted("after a conflict", "1/a")

	// Concurrent writers leave only the entries of the last write.
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 20 {
				if err := f.Write(t.Context(), tenant, []store.Side{
					list("a", "", fmt.Sprintf("%d/%d", w, i)),
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	keys, _ := read("a")
	wanted("after many writes at once", keys...)

	// Invalid lists are refused.
	stamped, expiring, other, alone := list("a", "", "x"), list("a", "", "x"), list("a", "", "x"), list("a", "", "x")
	stamped.Stamps, expiring.Expires, other.Op, alone.Stream = []int{0}, f.clock.Now(), store.Add, 1
	for name, bad := range map[string]store.Side{
		"no list": {Op: store.Put, Space: space, Key: "a", Value: []byte{2, 1, 'x'}, Entries: entries},
		"no key":  list("a", "", ""), "NUL": list("a", "", "\x00"),
		"too many": list("a", "", make([]string, store.MaxEntries+1)...), "stamped": stamped, "expiring": expiring,
		"added": other, "of no stream": alone,
	} {
		if err := f.Write(t.Context(), tenant, []store.Side{bad}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wanted("after what was refused", keys...)
}
