package index

import (
	"reflect"
	"strings"
	"testing"

	"j17/internal/storage/store"
)

// What several have gathered is written in the order in which the store has it, and counted together.
func TestMergedChanges(t *testing.T) {
	t.Parallel()
	a, b := &changes{slot: "s", rows: 1, entries: 2, bytes: 30, size: 4},
		&changes{slot: "s", rows: 1, entries: -1, bytes: 3, size: 5}
	a.put(inRows, "s/2", []byte("two"))
	a.put(inEntries, "s/y\x012", nil)
	a.remove(inEntries, "s/x\x012")
	b.put(inSources, "s/q\x013", nil)
	b.put(inEntries, "s/a\x013", []byte("value"))
	b.remove(inRows, "s/1")

	all := &changes{slot: "s"}
	all.merge([]*changes{a, b})
	var got []string
	for _, side := range all.writes()[:all.len()] {
		got = append(got, string(side.Space)+" "+side.Key+" "+string(side.Value))
		if (side.Op == store.Delete) != (side.Key == "s/x\x012" || side.Key == "s/1") {
			t.Errorf("%s: operation %v", side.Key, side.Op)
		}
	}
	want := "index.entries s/a\x013 value|index.entries s/x\x012 |index.entries s/y\x012 |index.rows s/1 |index.rows s/2 two|index.sources s/q\x013 "
	if got := strings.Join(got, "|"); got != want {
		t.Errorf("in order:\n%q, not\n%q", got, want)
	}
	if all.rows != 2 || all.entries != 1 || all.bytes != 33 || all.size != a.size+b.size {
		t.Errorf("numbers: %d rows, %d entries, %d bytes, size %d", all.rows, all.entries, all.bytes, all.size)
	}
}

// TestRoomForChangesIsBounded: behind rows with as many entries as a row may have, no more room is made for the next
// ones than for what one commit takes. Where rows are small all of it is made at once.
func TestRoomForChangesIsBounded(t *testing.T) {
	c := &changes{slot: "s"}
	c.grow(mostSlice, [allSpaces]int{inEntries: MaxRowEntries, inRows: 1, inSources: 100})
	room := 0
	for _, writes := range c.of {
		room += cap(writes) * int(reflect.TypeFor[write]().Size())
	}
	if room > maxBytes*5/4 {
		t.Errorf("%d MiB of room for at most %d MiB", room>>20, maxBytes>>20)
	}
	if n := cap(c.of[inRows]); n < mostSlice {
		t.Errorf("room for %d rows, of %d", n, mostSlice)
	}

	c = &changes{slot: "s"}
	c.grow(bulkSlice, [allSpaces]int{inEntries: 20, inRows: 1, inSources: 2})
	if n := cap(c.of[inEntries]); n < 20*bulkSlice {
		t.Errorf("room for %d entries, of %d", n, 20*bulkSlice)
	}
}
