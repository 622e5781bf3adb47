//go:build !race

package pebble

import (
	"bytes"
	"fmt"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// TestWidePages reads a feed of which no page holds much, so long that its pages grow, by several at a time.
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
			u.Events = append(u.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: id}, Type: "was_made", Data: data, Metadata: []byte(`{}`),
			})
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
			t.Fatal(err)
		}
	}

	// Each reader looks whether the next one gets what he does not.
	const readers = 3
	var read func(depth int)
	read = func(depth int) {
		n, wide := 0, int64(0)
		for e, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, units*each) {
			if want := fmt.Sprint(n * 7919 % (units * each)); err != nil || e.Key.ID != want ||
				len(e.Data) != len(data) {
				t.Fatalf("event %d of reader %d: %+v, %v", n, depth, e, err)
			}
			if n++; n == units*each-1 && depth < readers {
				wide = s.pages.wide.Load()
				read(depth + 1)
			}
		}
		if n != units*each || depth < readers && wide < int64(depth*growBy*pageBytes) {
			t.Errorf("reader %d has read %d events, and those that read have pages of %d bytes", depth, n, wide)
		}
	}
	read(1)
	if n := s.pages.wide.Load(); n != 0 {
		t.Errorf("wide pages have %d bytes at the end", n)
	}
}

// TestPagesOfAnIterationAreBounded grows pages more often than there is room, which is as large as before when they are
// given back.
func TestPagesOfAnIterationAreBounded(t *testing.T) {
	t.Parallel()
	var all pages
	for range 3 {
		var some [4]page
		sum := 0
		for range 20 {
			for i := range some {
				all.grow(&some[i], i == 1)
			}
		}
		for i := range some {
			sum += some[i].room
			most := maxPageBytes
			if i == 1 {
				most = maxWindowBytes
			}
			if size := some[i].size(); size > most || size < pageBytes {
				t.Errorf("page %d has %d bytes", i, size)
			}
		}
		if int64(sum) != all.wide.Load() || sum > allPageBytes || sum <= allPageBytes/2 {
			t.Errorf("all pages have %d bytes, and %d are counted", sum, all.wide.Load())
		}
		all.shrink(&some[0])
		for i := range some {
			all.put(&some[i])
		}
		if all.wide.Load() != 0 || some[0].size() != pageBytes || some[1].size() != pageBytes {
			t.Errorf("%d bytes are counted at the end", all.wide.Load())
		}
	}
	var one page
	for range 20 {
		all.grow(&one, false)
	}
	if one.size() != maxPageBytes {
		t.Errorf("one alone has %d bytes", one.size())
	}
}

// TestErasureAheadOfAReader erases events of the pages that a feed is read by on and on: they are handed out as they
// are after that, and all others are, once each.
func TestErasureAheadOfAReader(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	const units, each = 20, 100
	data := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 1500)...), '"')
	for i := range units {
		var u store.Append
		for j := range each {
			u.Events = append(u.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: fmt.Sprint(i*each + j)}, Type: "was_made", Data: data,
				Metadata: []byte(`{}`),
			})
		}
		if _, err := s.Append(t.Context(), "a/prod", []store.Append{u}); err != nil {
			t.Fatal(err)
		}
	}
	n, erased := 0, 0
	for e, err := range s.ReadFeed(t.Context(), "a/prod", j17.StreamID{}, units*each) {
		if err != nil || e.Key.ID != fmt.Sprint(n) || e.Erased() != (n%each == 0 && n > 0) {
			t.Fatalf("event %d: %+v, %v", n, e, err)
		}
		if e.Erased() {
			erased++
		}

		// The first one of the next unit.
		if n++; n%each == 1 && n+each-1 < units*each {
			key := j17.Key{Type: "order", ID: fmt.Sprint(n + each - 1)}
			marker := store.Rewritten{Version: 1, Type: "was_erased", Data: []byte(`{}`), Metadata: []byte(`{}`)}
			if r, err := s.Rewrite(t.Context(), "a/prod", store.Rewrite{
				Streams: []store.RewrittenStream{{Key: key, Events: []store.Rewritten{marker}}},
			}); err != nil || r.Outcome != store.Committed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	if n != units*each || erased != units-1 {
		t.Errorf("%d events, of which %d are erased", n, erased)
	}
}
