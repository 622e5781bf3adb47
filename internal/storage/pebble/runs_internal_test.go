package pebble

import (
	"fmt"
	"slices"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// entriesOf returns how many keys of a kind a tenant has.
func entriesOf(tb testing.TB, s *Store, t j17.Tenant, kind byte) (n int) {
	tb.Helper()
	r, err := s.read(t)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.close()
	prefix := appendPrefix(nil, r.tenant, kind)
	it, err := r.iterate(prefix, after(prefix))
	if err != nil {
		tb.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if err := it.Close(); err != nil {
		tb.Fatal(err)
	}
	return n
}

// smallUnits returns units of one event each, in streams of their own, half of which have a second tag.
func smallUnits(from, n int) []store.Append {
	units := make([]store.Append, n)
	for i := range units {
		tags := []string{"actor:user:1"}
		if (from+i)%2 == 0 {
			tags = append(tags, "even:yes")
		}
		units[i].Events = []store.NewEvent{{
			Key: j17.Key{Type: "order", ID: fmt.Sprint(from + i)}, Type: "was_placed",
			Data: []byte(fmt.Sprint(from + i)), Metadata: []byte(`{}`), Tags: tags,
		}}
	}
	return units
}

// TestUnitsOfABatchShareEntries: units that are committed together have entries of the feed and of tags together, of
// each tenant its own, and every event is found from every position on.
func TestUnitsOfABatchShareEntries(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	const first, second = j17.Tenant("a/prod"), j17.Tenant("b/prod")
	err := s.queue.Do(t.Context(), queue.Always, func(b *batch) error {
		for _, part := range []struct {
			tenant  j17.Tenant
			from, n int
		}{{first, 0, 70}, {second, 0, 3}, {first, 70, 130}, {second, 3, 1}} {
			c := &call{Tenant: part.tenant, Units: smallUnits(part.from, part.n), Results: make([]store.Result, part.n)}
			if !b.stageUnits(c) || c.Err() != nil {
				return fmt.Errorf("%d of %d units are not staged: %w", len(c.Waiting()), part.n, c.Err())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	// 70 events are a run of 64 and one of 6, then 130 are two of 64 and one of 2. Each run has an entry of either tag.
	for of, want := range map[j17.Tenant][2]int{first: {5, 10}, second: {2, 3}} {
		if got := [2]int{entriesOf(t, s, of, kindFeed), entriesOf(t, s, of, kindTag)}; got != want {
			t.Errorf("%s has %v entries of the feed and of tags, want %v", of, got, want)
		}
	}

	// What is read is what was written, in order.
	for of, n := range map[j17.Tenant]int{first: 200, second: 4} {
		var all []j17.StreamID
		for e, err := range s.ReadFeed(t.Context(), of, j17.StreamID{}, n+1) {
			if err != nil || string(e.Data) != fmt.Sprint(len(all)) {
				t.Fatal(string(e.Data), err)
			}
			all = append(all, e.StreamID)
		}
		if len(all) != n || !slices.IsSortedFunc(all, j17.StreamID.Compare) {
			t.Fatalf("%s has %d events", of, len(all))
		}
		for i, at := range all {
			for e, err := range s.ReadFeed(t.Context(), of, at, 1) {
				if err != nil || e.StreamID != all[i+1] {
					t.Fatal(at, err)
				}
			}
		}
		even := 0
		for e, err := range s.ReadTagged(
			t.Context(), of, store.Tagged{Tags: []string{"even:yes", "actor:user:1"}}, j17.StreamID{}, n+1, nil,
		) {
			if err != nil || 2*even >= n || e.StreamID != all[2*even] {
				t.Fatal(even, err)
			}
			even++
		}
		if even != n/2 {
			t.Errorf("%s has %d events of a tag that every other has", of, even)
		}
	}
}

// TestOneEventOfARunIsLookedUpAlone: whoever wants one event does not pay for those that stand in one entry with it.
func TestOneEventOfARunIsLookedUpAlone(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	if _, err := s.Append(t.Context(), "a/prod", smallUnits(0, maxRun)); err != nil {
		t.Fatal(err)
	}
	r, err := s.read("a/prod")
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	l, err := newLookup(r.snapshot, r.tenant, &record.TypeNames{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(&err)
	var g gathering
	g.begin(l, r, false)
	if !l.feed.First() {
		t.Fatal("there is no entry")
	}
	if _, err := g.gather(j17.StreamID{}, minGathered, 1); err != nil || len(g.refs) != 1 {
		t.Errorf("%d events are looked up for one: %v", len(g.refs), err)
	}
}

// TestLatestEventsAreFoundInMemory: whoever follows the feed does not read blocks of older events of the same
// aggregates.
func TestLatestEventsAreFoundInMemory(t *testing.T) {
	t.Parallel()
	s, _ := opened(t, clock.System{})
	const older, latest = 4000, 32
	units := smallUnits(0, older)
	for some := range slices.Chunk(units, 500) {
		if _, err := s.Append(t.Context(), "a/prod", some); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	written := make([]store.Append, latest)
	for i := range written {
		written[i] = units[i*older/latest]
		written[i].Events = slices.Clone(written[i].Events)
		written[i].Events[0].Data = []byte(`"again"`)
	}
	results, err := s.Append(t.Context(), "a/prod", written)
	if err != nil {
		t.Fatal(err)
	}

	blocks := func() int64 {
		m := s.db.Metrics()
		return m.BlockCache.Hits + m.BlockCache.Misses
	}
	before, seen := blocks(), 0
	for e, err := range s.ReadChanges(t.Context(), "a/prod", results[0].IDs[0], 10*latest) {
		if err != nil || string(e.Event.Data) != `"again"` {
			t.Fatal(e, err)
		}
		seen++
	}
	if read := blocks() - before; seen != latest-1 || read > latest/2 {
		t.Errorf("%d blocks were read for %d events", read, seen)
	}
}
