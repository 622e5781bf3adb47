package pebble

import (
	"bytes"
	"fmt"
	"testing"

	"j17"
	"j17/internal/clock"
	"j17/internal/store"
)

// TestWidePages reads a feed of which no page holds much, so long that its pages grow, more often at a time than may have such pages.
func TestWidePages(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	const units, each = 30, 100
	data := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 1500)...), '"')
	for i := range units {
		var u store.Append
		for j := range each {
			n := i*each + j
			id := fmt.Sprint(n * 7919 % (units * each)) // ids are in another order than positions
			u.Events = append(u.Events, store.NewEvent{Key: j17.Key{Type: "order", ID: id}, Type: "was_made", Data: data, Metadata: []byte(`{}`)})
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
			t.Fatal(err)
		}
	}

	// Each reader looks whether the next one gets what he does not.
	var read func(depth int)
	read = func(depth int) {
		n, wide := 0, int32(0)
		for e, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, units*each) {
			if want := fmt.Sprint(n * 7919 % (units * each)); err != nil || e.Key.ID != want || len(e.Data) != len(data) {
				t.Fatalf("event %d of reader %d: %+v, %v", n, depth, e, err)
			}
			if n++; n == units*each-1 && depth < widePages+1 {
				wide = s.pages.wide.Load()
				read(depth + 1)
			}
		}
		if n != units*each || depth <= widePages && int(wide) != min(depth, widePages) {
			t.Errorf("reader %d has read %d events, and %d had wide pages", depth, n, wide)
		}
	}
	read(1)
	if n := s.pages.wide.Load(); n != 0 {
		t.Errorf("%d have wide pages at the end", n)
	}
}

// TestPagesOfAnIterationAreBounded grows pages more often than there is room.
func TestPagesOfAnIterationAreBounded(t *testing.T) {
	t.Parallel()
	var all pages
	var some [widePages + 1]page
	for range 20 {
		for i := range some {
			all.grow(&some[i])
		}
	}
	for i := range some {
		want := maxPageBytes
		if i == widePages {
			want = pageBytes
		}
		if some[i].size() != want {
			t.Errorf("page %d has %d bytes, want %d", i, some[i].size(), want)
		}
		all.put(&some[i])
	}
	if all.wide.Load() != 0 || some[0].size() != pageBytes {
		t.Errorf("%d pages are wide at the end", all.wide.Load())
	}
}
