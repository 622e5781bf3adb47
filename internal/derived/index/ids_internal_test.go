package index

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestIDsInMemory adds ids, some of them twice, and marks some: they are there once, in the order in which they came,
// up to the bound.
func TestIDsInMemory(t *testing.T) {
	const n = 5000
	held := newIDs(n)
	name := func(i int) string { return fmt.Sprintf("id-%0*d", i%40, i*7919%n) }
	for i := range n {
		if held.full() || held.has(name(i)) {
			t.Fatalf("%s is there already, or there is no room", name(i))
		}
		if !held.add(name(i)) || held.add(name(i/2)) {
			t.Fatalf("%s is new, and %s is not", name(i), name(i/2))
		}
		if i%3 == 0 {
			held.mark(name(i))
		}
	}
	held.mark("nobody")
	if !held.full() || held.has("nobody") {
		t.Error("there is room for more, or one that was never added")
	}
	at := 0
	held.each(func(id string, marked bool) bool {
		if id != name(at) || marked != (at%3 == 0) {
			t.Fatalf("%d is %s, marked: %t", at, id, marked)
		}
		at++
		return true
	})
	if at != n {
		t.Errorf("%d ids", at)
	}
}

// TestUUIDs: what is read from a UUID has its order and is written as it, and nothing else is one.
func TestUUIDs(t *testing.T) {
	form := rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(form, 2, 20).Draw(t, "ids")
		list := make([]uuid, len(texts))
		for i, text := range texts {
			var ok bool
			if list[i], ok = uuidOf(text); !ok || list[i].String() != text {
				t.Fatalf("%s is read as %s, %t", text, list[i], ok)
			}
		}
		slices.Sort(texts)
		slices.SortFunc(list, uuid.compare)
		for i := range list {
			if list[i].String() != texts[i] {
				t.Fatalf("%s stands in the place of %s", list[i], texts[i])
			}
		}
	})
	for _, text := range []string{
		"", "global", "0B6E9D4E-6f0a-4f3c-8c53-000000000001", "0b6e9d4e06f0a-4f3c-8c53-000000000001",
		"0b6e9d4e-6f0a-4f3c-8c53-00000000000", "0b6e9d4e-6f0a-4f3c-8c53-00000000000g",
	} {
		if u, ok := uuidOf(text); ok {
			t.Errorf("%q is taken for the UUID %s", text, u)
		}
	}
}
