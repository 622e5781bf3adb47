package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// testLeaves compares leaf hashes with their events, from each position on: events that were written one by one and
// many at a time, in two tenants in turns, rewritten, and loaded.
func testLeaves(s *suite) {
	t := s.t
	f := s.fixture(t)
	compare := func(tn j17.Tenant, when string) {
		t.Helper()
		var want []store.Leaf
		for e, err := range f.ReadFeed(t.Context(), tn, j17.StreamID{}, 10_000) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, store.Leaf{Position: e.StreamID, Hash: e.Leaf()})
		}
		for i := 0; i <= len(want); i++ {
			var after j17.StreamID
			if i > 0 {
				after = want[i-1].Position
			}
			for _, limit := range []int{1, 3, 10_000} {
				var got []store.Leaf
				for leaf, err := range f.ReadLeaves(t.Context(), tn, after, limit) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, leaf)
				}
				if expected := want[i:min(i+limit, len(want))]; !slices.Equal(got, expected) {
					t.Fatalf("%s: %d leaf hashes after %s, want %d: %v, want %v", when, len(got), after, len(expected), got, expected)
				}
			}
		}
	}
	others := func(tn j17.Tenant, when string) (found int) {
		t.Helper()
		return compareOthers(t, f, tn, when)
	}
	compare(tenant, "a tenant without events")
	others(tenant, "a tenant without events")
	for i := range 12 {
		commit(t, f, tenant, store.Append{Events: events(order(fmt.Sprint(i%3)), `1`)})
		cart := j17.Key{Type: "cart", ID: "c"}
		units := []store.Append{
			{Events: events(order("a"), `1`, `2`, `3`)},
			{Events: events(cart, `4`, `5`)},
			{Events: events(order("b"), `6`)},
		}
		if _, err := f.Append(t.Context(), other, units); err != nil {
			t.Fatal(err)
		}
		commit(t, f, tenant, store.Append{Side: []store.Side{put("k", fmt.Sprint(i))}})
	}
	compare(tenant, "written")
	compare(other, "written beside it")
	others(tenant, "written")
	if found := others(other, "written beside it"); found == 0 {
		t.Fatal("no event of another type was found in memory: the comparison shows nothing")
	}

	// An erased event keeps its leaf hash.
	if err := Erase(t.Context(), f, tenant, order("1"), []store.Rewritten{
		{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)},
	}); err != nil {
		t.Fatal(err)
	}
	commit(t, f, tenant, store.Append{Events: events(order("1"), `5`)})
	compare(tenant, "rewritten")
	others(tenant, "rewritten")

	// Loaded events were not appended.
	const loaded j17.Tenant = "shop/loaded"
	commit(t, f, loaded, store.Append{Side: []store.Side{put("k", "v")}})
	if err := Copy(t.Context(), f, other, f, loaded); err != nil {
		t.Fatal(err)
	}
	compare(loaded, "loaded")
	commit(t, f, loaded, store.Append{Events: events(order("a"), `6`)})
	compare(loaded, "written behind a load")
	others(loaded, "written behind a load")

	// Another tenant may have the name of one that was removed.
	if err := f.DropTenant(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	compare(other, "removed")
	commit(t, f, other, store.Append{Events: events(order("c"), `7`)})
	compare(other, "of a removed name")
	others(other, "of a removed name")
}

// compareOthers compares ReadOthers, from each position on, with the feed: it may return fewer events, but must not
// skip any. The result is how many events ReadOthers has returned.
func compareOthers(t *testing.T, f store.Store, tn j17.Tenant, when string) (found int) {
	t.Helper()

	// Read the feed and its leaf hashes.
	var all []store.Entry
	places := []j17.StreamID{{}}
	for e, err := range f.ReadChanges(t.Context(), tn, j17.StreamID{}, 10_000) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event == nil {
			all, places = append(all, e), append(places, e.Note.Position)
			continue
		}
		own := *e.Event
		own.Key.Type = strings.Clone(own.Key.Type)
		all, places = append(all, store.Entry{Event: &own}), append(places, own.StreamID)
	}
	leaves := map[j17.StreamID]store.Leaf{}
	for leaf, err := range f.ReadLeaves(t.Context(), tn, j17.StreamID{}, 10_000) {
		if err != nil {
			t.Fatal(err)
		}
		leaves[leaf.Position] = leaf
	}

	// Compare what follows each position.
	for i, after := range places {
		for _, types := range [][]string{nil, {"order"}, {"cart", "none"}, {"order", "cart"}} {
			for _, limit := range []int{2, 10_000} {
				got, more := f.ReadOthers(tn, after, types, limit)
				found += len(got)
				if len(got) > limit || len(got) > len(all)-i {
					t.Fatalf("%s: %d events after %s, of %d", when, len(got), after, len(all)-i)
				}
				for n, leaf := range got {
					e := all[i+n].Event
					if e == nil || slices.Contains(types, e.Key.Type) || leaf != leaves[e.StreamID] {
						t.Fatalf("%s: %s is among the events after %s that are not of %v", when, leaf.Position, after, types)
					}
				}
				compareRecent(t, f, tn, after, types, all[i:], when)
				if !more && len(got) < len(all)-i {
					t.Fatalf("%s: nothing but %d events after %s, where %d entries are", when, len(got), after, len(all)-i)
				}
			}
		}
	}
	return found
}

// compareRecent compares what CountRecent returns for the events after a position with the feed. An event of another
// type may be counted, so of none of the types there is hardly any.
func compareRecent(
	t *testing.T, f store.Store, tn j17.Tenant, after j17.StreamID, types []string, behind []store.Entry, when string,
) {
	t.Helper()
	n, last, upTo, ok := f.CountRecent(tn, after, types)
	if !ok {
		return
	}
	want, wantLast, wantUpTo := uint64(0), after, after
	for _, e := range behind {
		if e.Event == nil {
			t.Fatalf("%s: events are counted behind %s, where a note is", when, after)
		}
		if wantUpTo = e.Event.StreamID; slices.Contains(types, e.Event.Key.Type) {
			want, wantLast = want+1, e.Event.StreamID
		}
	}
	if n != want || last != wantLast || upTo != wantUpTo {
		t.Fatalf("%s: %d events of %v behind %s, the last one %s of up to %s, want %d, %s and %s", when, n, types, after, last, upTo, want, wantLast, wantUpTo)
	}
}
