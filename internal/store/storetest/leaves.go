package storetest

import (
	"fmt"
	"slices"

	"j17"
	"j17/internal/store"
)

// testLeaves compares leaf hashes with the events that they are of, from each position on: of events that were written one by one and many
// at a time, by two tenants in turns, rewritten, and loaded.
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
	compare(tenant, "a tenant without events")
	for i := range 12 {
		commit(t, f, tenant, store.Append{Events: events(order(fmt.Sprint(i%3)), `1`)})
		units := []store.Append{{Events: events(order("a"), `1`, `2`, `3`)}, {Events: events(order("b"), `4`)}}
		if _, err := f.Append(t.Context(), other, units); err != nil {
			t.Fatal(err)
		}
		commit(t, f, tenant, store.Append{Side: []store.Side{put("k", fmt.Sprint(i))}})
	}
	compare(tenant, "written")
	compare(other, "written beside it")

	// What was erased has the leaf hash that it had.
	if err := Erase(t.Context(), f, tenant, order("1"), []store.Rewritten{{Version: 2, Type: "was_erased", Data: []byte(`null`), Metadata: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	commit(t, f, tenant, store.Append{Events: events(order("1"), `5`)})
	compare(tenant, "rewritten")

	// What was loaded was not written by anybody.
	const loaded j17.Tenant = "shop/loaded"
	commit(t, f, loaded, store.Append{Side: []store.Side{put("k", "v")}})
	if err := Copy(t.Context(), f, other, f, loaded); err != nil {
		t.Fatal(err)
	}
	compare(loaded, "loaded")
	commit(t, f, loaded, store.Append{Events: events(order("a"), `6`)})
	compare(loaded, "written behind a load")

	// Another tenant may have the name of one that was removed.
	if err := f.DropTenant(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	compare(other, "removed")
	commit(t, f, other, store.Append{Events: events(order("c"), `7`)})
	compare(other, "of a removed name")
}
