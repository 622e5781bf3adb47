package postgres

import (
	"testing"

	"j17"
	"j17/internal/storage/store"
)

// TestKnownHeads looks up heads that are known: what the store itself, another store, and a new tenant of the same name
// have written since counts, and a head is asked for only then.
func TestKnownHeads(t *testing.T) {
	t.Parallel()
	all := openBeside(t, 2)
	s, other := all[0], all[1]
	keys := []j17.Key{order("a"), order("none"), {Type: "order"}}
	known := func(want bool) {
		t.Helper()
		if heads, _ := s.known.heads("a", s.changeOf("a"), keys); (heads != nil) != want {
			t.Errorf("the heads are known: %v", heads != nil)
		}
	}
	want := func(length uint64) {
		t.Helper()
		heads, err := s.Heads(t.Context(), "a", keys)
		if err != nil {
			t.Fatal(err)
		}
		if heads[0].Length != length || heads[1].Length != 0 || heads[2].Length != 0 {
			t.Errorf("heads of lengths %d, %d, %d, want %d, 0, 0", heads[0].Length, heads[1].Length, heads[2].Length, length)
		}
	}
	want(0)
	append1(t, s, "a")
	known(false)
	want(1)
	known(true)
	want(1)
	append1(t, s, "a")
	known(false)
	want(2)

	// The store does not know yet of the other one's write, but the tenant's row shows it.
	unheard := func() { s.known.tenants["a"].change = s.changeOf("a") }
	append1(t, other, "a")
	unheard()
	want(3)

	// Writes to another tenant do not matter.
	unheard()
	append1(t, s, "b")
	known(true)

	// A new tenant of the same name has a row of its own.
	if err := other.DropTenant(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	append1(t, other, "a")
	unheard()
	want(1)

	// Another server may have given the same version to other changes.
	s.known.tenants["a"].server = &server{}
	s.known.cache = cache{}
	s.known.cache.putHead(s.known.tenants["a"].headKey(keys[0]), store.Head{Length: 7})
	s.known.cache.putHead(s.known.tenants["a"].headKey(keys[1]), store.Head{Length: 8})
	unheard()
	want(1)
}
