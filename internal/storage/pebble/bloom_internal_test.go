package pebble

import (
	"fmt"
	"hash/maphash"
	"sync"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// numberOf returns the number of the tenant, while others write.
func numberOf(s *Store) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numberLocked(taggedTenant)
}

// unfiltered returns which of some tags the filter of the tenant says to be on no event.
func unfiltered(t *testing.T, s *Store, tags ...string) (lacked []string) {
	t.Helper()
	r, err := s.read(taggedTenant)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for _, tag := range tags {
		if r.tagging.filter.lacks(r.tenant, idOfTag([]byte(tag)).filtered()) {
			lacked = append(lacked, tag)
		}
	}
	return lacked
}

// TestFiltersHaveAllTags makes filters while events are written: each has the tags of those before, of those meanwhile,
// and of those that come later or get other tags.
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
		f := newFilter(numberOf(s), minFiltered)
		if err := s.fillFilter(tagFilters(), taggedTenant, f); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if s.FilterBytes() != uint64(f.size()) || !f.whole.Load() {
			t.Errorf("filters have %d bytes, this one has %d, whole is %t", s.held, f.size(), f.whole.Load())
		}
	}

	// What comes when it is whole.
	if got := unfiltered(t, s, "later", "retagged"); len(got) != 2 {
		t.Errorf("of what is not there yet the filter knows %q", got)
	}
	tagged(t, s, "later")
	if err := s.Retag(t.Context(), taggedTenant, []store.Retagged{
		{Key: j17.Key{Type: "order", ID: "1"}, Version: 1, Tags: []string{"retagged"}},
	}); err != nil {
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
	if got := unfiltered(t, s, "again", "none"); len(got) != 0 || s.held != 0 {
		t.Errorf("filters have %d bytes, and lack %q", s.held, got)
	}
}

// TestFiltersAreMadeWhereTheyHelp: who finds nothing by tags where there are many events makes a filter, which grows
// with them.
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
						Key: j17.Key{Type: "order", ID: "1"}, Type: "was_made", Data: []byte(`1`),
						Metadata: []byte(`{}`), Tags: []string{fmt.Sprint("n:", written)},
					})
					written++
				}
				if _, err := s.Append(t.Context(), taggedTenant, []store.Append{{Events: events}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		made := func() *filter {
			t.Helper()
			for e, err := range s.ReadTagged(
				t.Context(), taggedTenant, store.Tagged{Tags: []string{"n:0", "n:1"}}, j17.StreamID{}, 1, nil,
			) {
				t.Fatal(e, err)
			}
			synctest.Wait()
			return s.tenants[taggedTenant].tagFilter.Load()
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
		s.held += allFilterBytes
		write(2 * minFiltered)
		if made() != f {
			t.Error("a filter was made for which there is no room")
		}
		s.held -= allFilterBytes
		if larger := made(); larger == f || larger.size() != 2*f.size() || s.held != larger.size() {
			t.Errorf("twice as many events have a filter of %d bytes, where it was %d, and all have %d", larger.size(), f.size(), s.held)
		}
	})
}

// appendStreams appends an event to streams, and returns what became of each. Where expect is set they must not be
// there.
func appendStreams(t *testing.T, s *Store, expect bool, ids ...string) (outcomes []store.Outcome) {
	t.Helper()
	units := make([]store.Append, len(ids))
	for i, id := range ids {
		key := j17.Key{Type: "order", ID: id}
		units[i].Events = []store.NewEvent{{Key: key, Type: "was_made", Data: []byte(`1`), Metadata: []byte(`{}`)}}
		if expect {
			units[i].Pre = []store.Pre{{Key: key}}
		}
	}
	results, err := s.Append(t.Context(), taggedTenant, units)
	if err != nil {
		t.Fatal(err)
	}
	for i := range results {
		outcomes = append(outcomes, results[i].Outcome)
	}
	return outcomes
}

// lacked returns which of some streams the filter of the tenant says not to be there.
func lacked(s *Store, ids ...string) (lacks []string) {
	tenant := s.tenants[taggedTenant]
	for _, id := range ids {
		if tenant.streamFilter.Load().lacks(
			tenant.number, s.filteredStream(appendHeadKey(nil, tenant.number, j17.Key{Type: "order", ID: id})),
		) {
			lacks = append(lacks, id)
		}
	}
	return lacks
}

// forgetHeads lets every head be looked for anew.
func forgetHeads(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads = newHeadCache()
}

// TestFiltersHaveAllStreams makes filters while streams begin: those before, those meanwhile and those that come later
// are in it, so that none begins anew.
func TestFiltersHaveAllStreams(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	appendStreams(t, s, true, "before", "before 2")
	ids := []string{"before", "before 2", "later"}
	const writers, each, rounds = 4, 10, 3
	for round := range rounds {
		var all sync.WaitGroup
		for w := range writers {
			for n := range each {
				ids = append(ids, fmt.Sprint("meanwhile", round, w, n))
			}
			all.Go(func() {
				for n := range each {
					appendStreams(t, s, true, fmt.Sprint("meanwhile", round, w, n))
				}
			})
		}
		f := newFilter(numberOf(s), minFiltered)
		if err := s.fillFilter(streamFilters(), taggedTenant, f); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if s.FilterBytes() != uint64(f.size()) || !f.whole.Load() {
			t.Errorf("filters have %d bytes, this one has %d, whole is %t", s.FilterBytes(), f.size(), f.whole.Load())
		}
	}
	if got := lacked(s, ids...); len(got) != 1 || got[0] != "later" {
		t.Errorf("the filter lacks %q", got)
	}
	appendStreams(t, s, true, "later")

	// None of them begins anew, and each goes on where it was.
	forgetHeads(s)
	for i, outcome := range appendStreams(t, s, true, ids...) {
		if outcome != store.Conflict {
			t.Errorf("the stream %s begins anew", ids[i])
		}
	}
	forgetHeads(s)
	appendStreams(t, s, false, ids...)
	for _, id := range ids {
		heads, err := s.Heads(t.Context(), taggedTenant, []j17.Key{{Type: "order", ID: id}})
		if err != nil || heads[0].Length != 2 {
			t.Errorf("the stream %s has %d events: %v", id, heads[0].Length, err)
		}
	}

	// A tenant of the same name has nothing of it.
	if err := s.DropTenant(t.Context(), taggedTenant); err != nil {
		t.Fatal(err)
	}
	if outcomes := appendStreams(t, s, true, "before"); outcomes[0] != store.Committed {
		t.Error("a tenant of the same name has a stream of the one before")
	}
	if got := lacked(s, "before", "none"); len(got) != 0 || s.FilterBytes() != 0 {
		t.Errorf("filters have %d bytes, and lack %q", s.FilterBytes(), got)
	}
}

// TestStreamFiltersAreMadeWhereTheyHelp: a tenant in which many streams begin has a filter over them, which is made
// anew when too many new ones pass.
func TestStreamFiltersAreMadeWhereTheyHelp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := opened(t, clock.System{})
		const unit = 512
		var ids []string
		write := func(upTo int) {
			t.Helper()
			for len(ids) < upTo {
				for range unit {
					ids = append(ids, fmt.Sprint(len(ids)))
				}
				appendStreams(t, s, true, ids[len(ids)-unit:]...)
			}
			synctest.Wait()
		}
		write(minFiltered - unit)
		if s.tenants[taggedTenant].streamFilter.Load() != nil {
			t.Error("a small tenant has a filter")
		}
		write(minFiltered + unit)
		f := s.tenants[taggedTenant].streamFilter.Load()
		if f == nil || !f.whole.Load() {
			t.Fatalf("a tenant with many streams has no filter: %+v", f)
		}
		var absent []string
		for _, id := range ids {
			absent = append(absent, "no "+id)
		}
		if got := lacked(s, ids...); len(got) != 0 {
			t.Errorf("the filter lacks %d of %d streams", len(got), len(ids))
		}
		if passed := len(absent) - len(lacked(s, absent...)); passed > len(absent)/100 {
			t.Errorf("%d of %d streams that are not there pass the filter", passed, len(absent))
		}

		// Others pass when it is full, and then it is made anew.
		write(2 * minFiltered)
		if s.tenants[taggedTenant].streamFilter.Load() != f {
			t.Error("a filter is made anew of which few new streams pass")
		}
		write(16 * minFiltered)
		if larger := s.tenants[taggedTenant].streamFilter.Load(); larger.size() < 2*f.size() ||
			s.held != larger.size() {
			t.Errorf("many more streams have a filter of %d bytes, where it was %d, and all have %d", larger.size(), f.size(), s.held)
		}
		if got := lacked(s, ids...); len(got) != 0 {
			t.Errorf("the larger filter lacks %d of %d streams", len(got), len(ids))
		}
	})
}

// TestFewNewStreamsPass fills a filter as far as one is filled before a larger one would be made: of new streams next
// to none pass.
func TestFewNewStreamsPass(t *testing.T) {
	t.Parallel()
	s := &filters{streamSeed: maphash.MakeSeed()}
	const streams, others, most = 1<<16 - 1, 100_000, 1000
	f := newFilter(1, streams)
	f.whole.Store(true)
	stream := func(id string) filtered {
		return s.filteredStream(appendHeadKey(nil, 1, j17.Key{Type: "order", ID: id}))
	}
	for n := range streams {
		f.add(1, stream(fmt.Sprint(n)))
	}
	passed := 0
	for n := range others {
		if !f.lacks(1, stream(fmt.Sprint("no ", n))) {
			passed++
		}
	}
	if passed > most {
		t.Errorf("%d of %d new streams pass", passed, others)
	}
}

// TestFiltersThatCannotBeFilled: a filter of a tenant that could not be read just now is taken away, so that another
// one is made; where what is stored is damaged it stays, so that this is not read again and again.
func TestFiltersThatCannotBeFilled(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	appendStreams(t, s, true, "one")
	f := newFilter(numberOf(s), minFiltered)
	if err := s.fillFilter(streamFilters(), taggedTenant, f); err != nil {
		t.Fatal(err)
	}
	s.dropFilter(streamFilters(), taggedTenant, f, &store.CorruptionError{})
	if s.FilterBytes() != uint64(f.size()) {
		t.Errorf("filters have %d bytes where one cannot be filled", s.FilterBytes())
	}
	for range 2 { // the second one finds nothing to take away
		s.dropFilter(streamFilters(), taggedTenant, f, store.ErrBusy)
		if left := lacked(s, "none"); s.FilterBytes() != 0 || len(left) != 0 {
			t.Errorf("filters have %d bytes, and lack %q", s.FilterBytes(), left)
		}
	}
}
