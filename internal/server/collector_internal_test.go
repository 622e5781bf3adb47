package server

import (
	"slices"
	"testing"
)

// TestTheCollectorLeavesABusyServerRoom goes through the life of a server second by second: what is in use, what was
// allocated since, and what the collector was told.
func TestTheCollectorLeavesABusyServerRoom(t *testing.T) {
	const MB = 1 << 20
	var live, allocated uint64
	var told []int
	c := &collector{
		usage: func() (uint64, uint64) { return live, allocated }, set: func(p int) { told = append(told, p) },
		percent: gcPercent,
	}
	for i, s := range []struct {
		live, more uint64
		want       []int
	}{
		{20 * MB, 1 * MB, nil},
		{20 * MB, 500 * MB, []int{533}},
		{25 * MB, 500 * MB, nil}, // it would be 512
		{36 * MB, 500 * MB, []int{355}},
		{80 * MB, 500 * MB, []int{160}},
		{159 * MB, 500 * MB, []int{100}},
		{300 * MB, 500 * MB, nil}, // by itself from here on
		{40 * MB, 500 * MB, []int{320}},
		{40 * MB, 1 * MB, []int{100}}, // at rest
		{0, 500 * MB, []int{533}},     // never without a bound
		{0, 0, []int{100}},
	} {
		told = nil
		live, allocated = s.live, allocated+s.more
		if c.look(); !slices.Equal(told, s.want) {
			t.Errorf("second %d: told %v, want %v", i, told, s.want)
		}
		// What the heap may come to is hardly ever more than twice what is in use, or than that and the room.
		if most := live + live*uint64(c.percent)/100; most > max(2*live, live+busyRoom*5/4) {
			t.Errorf("second %d: the heap may come to %d MB", i, most/MB)
		}
	}
}

// TestHeapUsage: the runtime knows both numbers by their names.
func TestHeapUsage(t *testing.T) {
	_, before := heapUsage()
	live := make([]byte, 1<<20)
	_, after := heapUsage()
	if before == 0 || after < before+uint64(len(live)) {
		t.Errorf("%d bytes were allocated before, %d after a megabyte more", before, after)
	}
}
