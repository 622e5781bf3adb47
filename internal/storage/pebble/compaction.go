package pebble

import (
	"bytes"
	"log/slog"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/base/panics"
)

const (
	// mostStale is how many stale keys a scan may meet until their range is merged, where they are most of what it has
	// met: some milliseconds.
	mostStale = 16 << 10
	// thinEvery is how much is written between two such merges, in bytes, so that they do not become most of what the
	// store writes.
	thinEvery = 16 << 20
	// thinTables is how many tables of the lowest level are merged at a time, at most 8 MiB each: others have their
	// turn behind them, above all the merges that writes wait for.
	thinTables = 8
)

// compactor merges the tables of ranges in which scans meet little but stale keys: those of items that were removed or
// written again, and their removals. Tables hold them until they have come to the lowest level, and each scan has to
// step over them: the first page of a list of what is to be done would step over all that was done.
//
// Pebble merges each table that has many removals early, read or not. Of an index that follows writes every second key
// is a removal, and most of them are far apart, where they are in nobody's way: these merges took more processor time
// than all others together.
type compactor struct {
	*core

	// running counts the merge that is under way.
	running sync.WaitGroup

	// turn guards what follows.
	turn sync.Mutex
	busy bool
	// next is how much is to be written until there is another one, as core.logged counts it, and done how many there
	// were.
	next, done uint64
}

// footing is how far an iterator had come when a scan began.
type footing struct{ own, all int }

// stand returns how many keys an iterator has passed to those who use it, and has met in tables.
func stand(it *pebble.Iterator) footing {
	s := it.Stats()
	return footing{
		own: s.ForwardStepCount[pebble.InterfaceCall] + s.ReverseStepCount[pebble.InterfaceCall],
		all: s.ForwardStepCount[pebble.InternalIterCall] + s.ReverseStepCount[pebble.InternalIterCall],
	}
}

// thin has a range merged if a scan of it, which began where the iterator stood, has met too many stale keys there.
// Where the scan has not come to the end of the range, the rest is left alone. The iterator stands where the scan has
// ended. A merge writes the range once more before the old tables go, so there is none while there is little space: a
// read does not fill the disk for those who write.
func (s *compactor) thin(it *pebble.Iterator, began footing, r keyRange, backward bool) {
	now := stand(it)
	passed := now.own - began.own
	if stale := now.all - began.all - passed; stale <= max(mostStale, passed) {
		return
	}
	if it.Valid() {
		if at := bytes.Clone(it.Key()); backward {
			r.lower = at
		} else {
			r.upper = at
		}
	}
	if bytes.Compare(r.lower, r.upper) < 0 && !s.disk.tight() {
		s.beginThinning(r)
	}
}

// beginThinning has a range merged if that may be now. Close waits for it: so it begins under mu, where nobody closes
// meanwhile.
func (s *compactor) beginThinning(r keyRange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.disk.short.Load() {
		return
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.busy || s.logged.Load() < s.next {
		return
	}
	s.busy = true
	s.running.Add(1)
	s.background.Go(func() { s.endThinning(panics.Caught(func() error { return s.merge(r) })) })
}

// merge merges the tables of a range, down to the lowest level, some of them at a time.
func (s *compactor) merge(r keyRange) error {
	tables, err := s.lowest()
	if err != nil {
		return err
	}
	for _, part := range parted(r, tables, thinTables) {
		if s.disk.tight() {
			return nil
		}
		if err := s.inBackground(
			s.life, func() error { return s.db.Compact(s.life, part.lower, part.upper, false) },
		); err != nil {
			return err
		}
	}
	return nil
}

// parted returns the parts of a range that reach into so many tables each. Tables are in order, each from its first to
// its last key.
func parted(r keyRange, tables []keyRange, each int) (parts []keyRange) {
	first := sort.Search(len(tables), func(i int) bool { return bytes.Compare(tables[i].upper, r.lower) >= 0 })
	for i := first + each - 1; i < len(tables) && bytes.Compare(tables[i].upper, r.upper) < 0; i += each {
		parts = append(parts, keyRange{r.lower, tables[i].upper})
		r.lower = next(tables[i].upper)
	}
	return append(parts, r)
}

func (s *compactor) endThinning(err error) {
	if err != nil && !s.ending.Load() {
		s.logger.Warn("a range of removed items could not be merged, so that lists of it take longer than they might", slog.Any("error", err))
	}
	defer s.running.Done()
	s.turn.Lock()
	defer s.turn.Unlock()
	s.busy, s.next, s.done = false, s.logged.Load()+thinEvery, s.done+1
}
