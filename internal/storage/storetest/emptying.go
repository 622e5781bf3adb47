package storetest

import (
	"errors"
	"slices"
	"testing"

	"j17/internal/storage/store"
)

// testEmptying removes whole spaces together with writes to another one, and then writes items that the committer has
// just used.
func testEmptying(s *suite) {
	t := s.t
	f := s.fixture(t)
	const entries store.Space = "entries"
	list := func(key string, keys ...string) store.Side {
		return store.Side{
			Op: store.Put, Space: space, Key: key, Value: store.AppendEntries(nil, keys...), Entries: entries,
		}
	}
	wanted := func(t *testing.T, in store.Space, want ...string) {
		t.Helper()
		items, err := f.Scan(t.Context(), tenant, in, store.Range{}, 100)
		if got := keysOf(items); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has %q (%v), want %q", in, got, err, want)
		}
	}
	state := func(value string) store.Side {
		return store.Side{Op: store.Put, Space: space + "2", Key: "state", Value: []byte(value)}
	}
	write(t, f, tenant, list("a", "1/a", "2/a"), list("b", "1/b"), state("1"))
	write(t, f, other, list("a", "1/a"))
	before := moment(t, f, tenant)
	both := []store.Space{space, entries}

	// A failed fence or a contradiction changes nothing.
	err := f.Empty(t.Context(), tenant, both, []store.Side{state("2")}, store.Fence{
		Space: space + "2", Key: "state", Rev: 1 << 60,
	})
	if _, conflict := errors.AsType[*store.SideConflict](err); !conflict {
		t.Errorf("with a fence that does not hold: %v", err)
	}
	if err := f.Empty(t.Context(), tenant, both, []store.Side{list("c")}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("with a write to what is emptied: %v", err)
	}
	wanted(t, space, "a", "b")
	wanted(t, entries, "1/a", "1/b", "2/a")

	// All items are removed, in this tenant only, and not from earlier moments.
	fence := store.Fence{Space: space + "2", Key: "state", Rev: get(t, f, tenant, space+"2", "state").Rev}
	if err := f.Empty(t.Context(), tenant, both, []store.Side{state("2")}, fence); err != nil {
		t.Fatal(err)
	}
	wanted(t, space)
	wanted(t, entries)
	if it := get(t, f, tenant, space+"2", "state"); string(it.Value) != "2" {
		t.Errorf("beside it is written %q", it.Value)
	}
	if n, err := before.Count(entries, store.Range{}, 9); err != nil || n != 3 {
		t.Errorf("a moment from before has %d entries, %v", n, err)
	}
	before.Close()
	if n, err := f.Count(t.Context(), other, entries, store.Range{}, 9); err != nil || n != 1 {
		t.Errorf("another tenant has %d entries, %v", n, err)
	}

	// Later writes find no earlier item: entries that an item had are written again.
	write(t, f, tenant, list("a", "2/a"))
	created := list("b", "1/b")
	created.Cond = store.IfAbsent
	write(t, f, tenant, created)
	wanted(t, entries, "1/b", "2/a")
	f.reopen(t, t)
	wanted(t, space, "a", "b")
	wanted(t, entries, "1/b", "2/a")

	// Emptying a tenant that holds nothing is no error.
	if err := f.Empty(t.Context(), "no/prod", both, nil); err != nil {
		t.Error(err)
	}
}
