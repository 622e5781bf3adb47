package projection

import (
	"fmt"
	"testing"

	"j17"
)

// TestAScanDrivesNothingOut keeps more values than there is room for: the room is never exceeded, and what is asked for again and again
// stays while many others are asked for once.
func TestAScanDrivesNothingOut(t *testing.T) {
	const room = 1 << 20
	k := newKeptValues(room)
	put := func(name string, bytes int) { k.put(subject{of: name}, &Value{Data: make([]byte, bytes)}) }
	get := func(name string) bool { return k.get(subject{of: name}) != nil }
	bounded := func() {
		t.Helper()
		if used := k.once.used + k.often.used; used > room || len(k.all) != k.once.Len()+k.often.Len() {
			t.Fatalf("%d bytes are used of %d, by %d values of which %d and %d are in line", used, room, len(k.all), k.once.Len(), k.often.Len())
		}
	}

	// Some are asked for again, and a hundred times as many once.
	for i := range 100 {
		put(fmt.Sprint("often ", i), 4<<10)
		get(fmt.Sprint("often ", i))
	}
	for i := range 10_000 {
		put(fmt.Sprint("once ", i), 4<<10)
		bounded()
	}
	for i := range 100 {
		if !get(fmt.Sprint("often ", i)) {
			t.Errorf("value %d was driven out", i)
		}
	}
	if !get("once 9999") || get("once 1") {
		t.Error("of those that were asked for once, the latest are to stay")
	}

	// What is asked for again later takes the place of what is not any more; what is too large is never kept.
	for round := range 3 {
		for i := range 300 {
			name := fmt.Sprint("later ", i)
			if !get(name) {
				put(name, 4<<10)
			}
			get(name)
			bounded()
		}
		if k.often.used > room-room/onceShare {
			t.Errorf("round %d: %d bytes are often used", round, k.often.used)
		}
	}
	if get("often 0") {
		t.Error("what is not asked for any more stays for ever")
	}
	put("large", room/onceShare)
	if get("large") {
		t.Error("a value that would drive out many others is kept")
	}

	// A value in the place of another one is charged once.
	for range 100 {
		put("same", 10<<10)
		bounded()
	}
	put("same", room)
	if get("same") {
		t.Error("a value that cannot be kept leaves the one before in its place")
	}
	bounded()
}

// TestWhatIsChargedGrowsWithSources: a value of many sources takes more than its data.
func TestWhatIsChargedGrowsWithSources(t *testing.T) {
	few, many := &Value{}, &Value{Sources: make([]j17.Key, 1000)}
	if many.charge()-few.charge() < 64*1000 {
		t.Errorf("%d and %d bytes", few.charge(), many.charge())
	}
}
