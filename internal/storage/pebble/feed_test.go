//go:build !race

package pebble_test

import (
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// TestFeedOfLongUnits reads the feed from every position and with every limit, over units of one event, of as many as
// one entry holds, and of more, in one stream and in several.
func TestFeedOfLongUnits(t *testing.T) {
	t.Parallel()
	s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem()})
	defer closeStore(t, s)
	var want []j17.StreamID
	for n, size := range []int{1, 2, 63, 64, 65, 1, 128, 200, 3} {
		var list []store.NewEvent
		for i := range size {
			list = append(list, events(key(strconv.Itoa(i%(n+1))), strconv.Itoa(i))...)
		}
		results, err := s.Append(t.Context(), tenant, []store.Append{{Events: list}})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, results[0].IDs...)
	}
	read := func(after j17.StreamID, limit int) (got []j17.StreamID) {
		for e, err := range s.ReadFeed(t.Context(), tenant, after, limit) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.StreamID)
		}
		return got
	}
	after := j17.StreamID{}
	for i := range want {
		for _, limit := range []int{1, 2, 64, len(want)} {
			got := read(after, limit)
			if len(got) != min(limit, len(want)-i) {
				t.Fatalf("after %s, limit %d: %d events", after, limit, len(got))
			}
			for j, id := range got {
				if id != want[i+j] {
					t.Fatalf("after %s, limit %d: %s in place %d, want %s", after, limit, id, j, want[i+j])
				}
			}
		}
		after = want[i]
	}
	if got := read(after, 1); len(got) != 0 {
		t.Errorf("%d events after the last", len(got))
	}
}

// TestFeedOfLargeEvents reads events that do not go into a page together, among small ones, and counts what looking at
// the first takes.
func TestFeedOfLargeEvents(t *testing.T) { //nolint:paralleltest // it counts what is allocated
	s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem()})
	defer closeStore(t, s)
	var want []string
	for i := range 60 {
		data := strconv.Itoa(i)
		if i%7 != 5 {
			data = `"` + strings.Repeat("x", 400_000) + data + `"`
		}
		want = append(want, data)
		if _, err := s.Append(t.Context(), tenant, []store.Append{
			{Events: events(key(strconv.Itoa(i%5)), data)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 3, 1000} {
		got, after := 0, j17.StreamID{}
		for more := true; more; {
			more = false
			for e, err := range s.ReadFeed(t.Context(), tenant, after, limit) {
				if err != nil {
					t.Fatal(err)
				}
				if got >= len(want) || string(e.Data) != want[got] {
					t.Fatalf("limit %d: event %d is not the one that was written", limit, got)
				}
				got, after, more = got+1, e.StreamID, true
			}
		}
		if got != len(want) {
			t.Errorf("limit %d: %d events", limit, got)
		}
	}

	// What the engine still does with what was written allocates too, so the least of many times counts.
	const most = 12 << 20
	least := uint64(math.MaxUint64)
	for try := 0; try < 100 && least > most; try++ {
		var before, then runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, err := range s.ReadFeed(t.Context(), tenant, j17.StreamID{}, 1000) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		runtime.ReadMemStats(&then)
		least = min(least, then.TotalAlloc-before.TotalAlloc)
	}
	if least > most {
		t.Errorf("%d bytes were allocated to look at one event of 400 kB, of 60", least)
	}
}
