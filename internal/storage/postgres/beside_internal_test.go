package postgres

import (
	"runtime"
	"slices"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// openBeside opens n stores that share a schema, one after the other.
func openBeside(t *testing.T, n int) []*Store {
	t.Helper()
	all := []*Store{openOnServer(t, func(o *Options) { o.Shared = true })}
	for len(all) < n {
		all = append(all, openOnServer(t, func(o *Options) { o.Shared, o.Schema = true, all[0].o.Schema }))
	}
	return all
}

// append1 appends one event to a feed.
func append1(t *testing.T, s *Store, name j17.Tenant) {
	t.Helper()
	results, err := s.Append(t.Context(), name, []store.Append{{Events: []store.NewEvent{{
		Key: order("a"), Type: "was_changed", Data: []byte(`1`), Metadata: []byte(`{}`),
	}}}})
	if err != nil || results[0].Outcome != store.Committed {
		t.Fatal(results, err)
	}
}

// TestChangesOfStoresOpenedLater follows changes of stores that were opened later, of which the last one writes first.
func TestChangesOfStoresOpenedLater(t *testing.T) {
	t.Parallel()
	all := openBeside(t, 3)
	first, second, third := all[0], all[1], all[2]
	since := uint64(0)
	changed := func(want ...j17.Tenant) {
		t.Helper()
		list, err := first.Changed(t.Context(), since, 9)
		if err != nil {
			t.Fatal(err)
		}
		var got []j17.Tenant
		for _, c := range list {
			got = append(got, c.Tenant)
			since = c.Number
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%v have changed, want %v", got, want)
		}
	}
	changed()
	append1(t, third, "c")
	changed("c")
	append1(t, second, "b")
	changed("b")
	for range 2 * laneCount {
		append1(t, second, "b")
		append1(t, third, "d")
	}
	append1(t, first, "a")
	changed("a", "b", "d")
	changed()

	// The numbers of changes of another store mean nothing to this one.
	if list, err := third.Changed(t.Context(), since, 9); err != nil || len(list) != 4 {
		t.Errorf("%v, %v for a number of another store", list, err)
	}
}

// TestFeedRemovedBeside waits for a feed that another store removes and creates again.
func TestFeedRemovedBeside(t *testing.T) {
	t.Parallel()
	all := openBeside(t, 2)
	one, other := all[0], all[1]
	append1(t, other, shop)
	if err := one.AwaitFeed(t.Context(), shop, j17.StreamID{}); err != nil {
		t.Fatal(err)
	}
	if err := other.DropTenant(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- one.AwaitFeed(t.Context(), shop, j17.StreamID{}) }()
	for one.beside.waiting.Load() == 0 {
		select {
		case err := <-woken:
			t.Fatalf("a feed without events was awaited: %v", err)
		default:
			runtime.Gosched()
		}
	}
	append1(t, other, shop)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
}

// TestRewritesNotKnown checks that the count of rewrites grows while the database cannot be asked.
func TestRewritesNotKnown(t *testing.T) {
	t.Parallel()
	s := openBeside(t, 1)[0]
	before := s.Rewrites()
	if again := s.Rewrites(); again != before {
		t.Fatalf("%d rewrites and then %d, without any", before, again)
	}
	s.beside.asked.Store(nil)
	s.shut()
	if after := s.Rewrites(); after == before {
		t.Error("nothing was rewritten, says a store that does not know")
	}
}
