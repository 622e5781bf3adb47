package pebble

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/clock"
	"j17/internal/store"
)

// unfiltered returns which of some tags the filter of the tenant says to be on no event.
func unfiltered(t *testing.T, s *Store, tags ...string) (lacked []string) {
	t.Helper()
	r, err := s.read(taggedTenant)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for _, tag := range tags {
		if r.tagging.filter.lacks(r.tenant, []tagID{idOfTag([]byte(tag))}) {
			lacked = append(lacked, tag)
		}
	}
	return lacked
}

// TestFiltersHaveAllTags makes filters while events are written: each has the tags of those before, of those meanwhile, and of those that come
// later or get other tags.
func TestFiltersHaveAllTags(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	tagged(t, s, "before:0", "before:1")
	tagged(t, s, "before:0", "before:2")
	tags := []string{"before:0", "before:1", "before:2", "later", "retagged"}
	const writers, each, rounds = 4, 10, 3
	for round := range rounds {
		var all sync.WaitGroup
		for w := range writers {
			for n := range each {
				tags = append(tags, fmt.Sprint("meanwhile:", round, w, n))
			}
			all.Go(func() {
				for n := range each {
					tagged(t, s, fmt.Sprint("meanwhile:", round, w, n), "all")
				}
			})
		}
		f := newTagFilter(s.tenants[taggedTenant].number, minFiltered)
		if err := s.makeFilter(taggedTenant, f); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if s.TagBytes() != uint64(f.size()) || !f.whole.Load() {
			t.Errorf("filters have %d bytes, this one has %d, whole is %t", s.filterBytes, f.size(), f.whole.Load())
		}
	}

	// What comes when it is whole.
	if got := unfiltered(t, s, "later", "retagged"); len(got) != 2 {
		t.Errorf("of what is not there yet the filter knows %q", got)
	}
	tagged(t, s, "later")
	if err := s.Retag(t.Context(), taggedTenant, []store.Retagged{{Key: j17.Key{Type: "order", ID: "1"}, Version: 1, Tags: []string{"retagged"}}}); err != nil {
		t.Fatal(err)
	}
	if got := unfiltered(t, s, tags...); len(got) != 0 {
		t.Errorf("the filter does not have %q", got)
	}

	// A tenant of the same name has nothing of it.
	if err := s.DropTenant(t.Context(), taggedTenant); err != nil {
		t.Fatal(err)
	}
	tagged(t, s, "again")
	if got := unfiltered(t, s, "again", "none"); len(got) != 0 || s.filterBytes != 0 {
		t.Errorf("filters have %d bytes, and lack %q", s.filterBytes, got)
	}
}

// TestFiltersAreMadeWhereTheyHelp: who finds nothing by tags where there are many events makes a filter, which grows with them.
func TestFiltersAreMadeWhereTheyHelp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := opened(t, clock.System{})
		const unit = 512
		written := 0
		write := func(upTo int) {
			t.Helper()
			for written < upTo {
				var events []store.NewEvent
				for range unit {
					events = append(events, store.NewEvent{
						Key: j17.Key{Type: "order", ID: "1"}, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`), Tags: []string{fmt.Sprint("n:", written)},
					})
					written++
				}
				if _, err := s.Append(t.Context(), taggedTenant, []store.Append{{Events: events}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		made := func() *tagFilter {
			t.Helper()
			for e, err := range s.ReadTagged(t.Context(), taggedTenant, store.Tagged{Tags: []string{"n:0", "n:1"}}, j17.StreamID{}, 1, nil) {
				t.Fatal(e, err)
			}
			synctest.Wait()
			return s.tenants[taggedTenant].filter.Load()
		}
		write(minFiltered - unit)
		if made() != nil {
			t.Error("a small tenant has a filter")
		}
		write(minFiltered)
		f := made()
		if f == nil || !f.whole.Load() || made() != f {
			t.Fatalf("a large tenant has no filter, or one that is made again: %+v", f)
		}

		// Few tags that are not there pass, and none that is there is lacking.
		var there, absent []string
		for n := range written {
			there, absent = append(there, fmt.Sprint("n:", n)), append(absent, fmt.Sprint("no:", n))
		}
		if got := unfiltered(t, s, there...); len(got) != 0 {
			t.Errorf("the filter does not have %d of %d tags: %q", len(got), written, got[0])
		}
		if passed := written - len(unfiltered(t, s, absent...)); passed > written/20 {
			t.Errorf("%d of %d tags that are not there pass the filter", passed, written)
		}

		// It grows with the tenant, and there is room for so many.
		s.filterBytes += allFilterBytes
		write(2 * minFiltered)
		if made() != f {
			t.Error("a filter was made for which there is no room")
		}
		s.filterBytes -= allFilterBytes
		if larger := made(); larger == f || larger.size() != 2*f.size() || s.filterBytes != larger.size() {
			t.Errorf("twice as many events have a filter of %d bytes, where it was %d, and all have %d", larger.size(), f.size(), s.filterBytes)
		}
	})
}
