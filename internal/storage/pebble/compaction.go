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
	// mostStale is the number of stale keys that a scan may meet before their range is merged, provided they are most
	// of the keys it met: some milliseconds.
	mostStale = 16 << 10
	// thinEvery is how many bytes are written between two such merges, so that these do not become most of what the
	// store writes.
	thinEvery = 16 << 20
	// thinTables is how many tables of the lowest level, of at most 8 MiB each, are merged at a time: other merges get
	// their turn in between, above all those that writes wait for.
	thinTables = 8
)

// compactor merges the tables of ranges in which scans meet little but stale keys: those of items that were removed or
// written again, and their removals. Tables hold them until they reach the lowest level, and each scan has to step over
// them: the first page of a list of pending work would step over all finished work.
//
// Pebble by itself merges every table with many removals early, whether it is read or not. In an index that is kept
// with writes every second key is a removal, and most are far apart, where they slow down nobody: these merges took
// more processor time than all others together.
type compactor struct {
	*core

	// running counts the merge that is under way.
	running sync.WaitGroup

	// turn guards the fields below.
	turn sync.Mutex
	busy bool
	// next is the value of core.logged from which on there may be another merge, and done counts the merges.
	next, done uint64
}

// footing is the step counts of an iterator when a scan began.
type footing struct{ own, all int }

// stand returns how many keys an iterator has handed out, and how many it has met in tables.
func stand(it *pebble.Iterator) footing {
	s := it.Stats()
	return footing{
		own: s.ForwardStepCount[pebble.InterfaceCall] + s.ReverseStepCount[pebble.InterfaceCall],
		all: s.ForwardStepCount[pebble.InternalIterCall] + s.ReverseStepCount[pebble.InternalIterCall],
	}
}

// thin starts a merge of a range if a scan of it, whose step counts at the beginning are began, has met too many stale
// keys. The iterator is where the scan ended; the rest of the range is left alone. A merge writes the range again
// before the old tables are removed, so there is none while space is short: reads must not fill the disk.
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

// beginThinning starts a merge of a range if one is allowed now. Close waits for it, so it is started under mu, while
// the store cannot be closed.
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

// parted splits a range into parts that overlap up to each tables. Tables are in order, each from its first to its last
// key inclusive.
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
