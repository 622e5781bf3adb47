package index

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// Search goes through the rows that a query finds, a page at a time. It is for one goroutine, and only valid while its
// view is open.
//
// It reads entries in their order and skips those whose row has an earlier one in the query. Where it skips most of
// what it reads, as at the end of an index of lists of tags, it scans the records of all rows instead: the cost of that
// depends on the number of rows, not of entries.
type Search struct {
	v *View
	b *work.Budget
	q Query
	// most is how many rows one scan of the records keeps.
	most int

	lanes []*lane
	seen  firsts
	// hits are the rows found after the start of the latest page; last is the cursor of the last row found, or where
	// the search began.
	hits []Hit
	last string
	// wasted is the cost of skipped entries, in units of work; bound is the cost at which records are scanned instead,
	// 0 until it is known.
	wasted, bound int64
	// byRecord reports that the records are scanned, ended that there are no further rows.
	byRecord, ended bool
}

// Search begins a search for rows after a cursor, "" for the beginning. The caller wants about most of them.
func (v *View) Search(b *work.Budget, q Query, after string, most int) *Search {
	s := &Search{v: v, b: b, q: q, most: most, lanes: v.lanes(&q), seen: firsts{}, last: after}
	for _, l := range s.lanes {
		l.seek(after, q.Backward)
	}
	return s
}

// SearchWord is Search for the rows that have in index n a word with the given beginning.
func (v *View) SearchWord(b *work.Budget, n int, word, after string, most int) *Search {
	return v.Search(b, WordQuery(n, word), after, most)
}

// Scan returns up to limit rows after a cursor, "" for the beginning. Its errors are those of Next.
func (v *View) Scan(b *work.Budget, q Query, after string, limit int) ([]Hit, error) {
	return v.Search(b, q, after, limit).Next(after, limit)
}

// Next returns up to limit rows after the cursor of a row of the previous page, or from where the search began. Its
// reads are charged to the budget. The error is a *NotReadyError if stored data are damaged: the index is then rebuilt,
// and cannot be read until that is done.
func (s *Search) Next(after string, limit int) ([]Hit, error) {
	if i := slices.IndexFunc(s.hits, func(h Hit) bool { return h.Cursor == after }); i >= 0 {
		s.hits = s.hits[i+1:]
	}
	for len(s.hits) < limit && !s.ended {
		step := s.read
		if s.byRecord {
			step = s.sweep
		}
		if err := step(limit); err != nil {
			return nil, s.v.told(err)
		}
	}
	return s.hits[:min(limit, len(s.hits))], nil
}

// read reads entries until there are enough rows, or until skipped entries have cost too much.
func (s *Search) read(limit int) error {
	for len(s.hits) < limit {
		best, err := first(s.b, s.v, s.lanes, s.q.Backward)
		if err != nil {
			return err
		}
		if s.ended = best == nil; s.ended {
			return nil
		}
		found, before := best.head(), s.b.Spent()
		best.pop()
		is, err := s.v.isFirst(s.b, s.seen, &s.q, found)
		switch {
		case err != nil:
			return err
		case is:
			s.last = found.tail
			s.hits = append(s.hits, Hit{ID: found.id, Cursor: found.tail})
			continue
		}
		s.wasted += s.b.Spent() - before + leftOutCost
		if s.byRecord, err = s.tooMuch(); err != nil || s.byRecord {
			s.lanes, s.seen = nil, nil
			return err
		}
	}
	return nil
}

const (
	// leftOutCost is about what it takes to read an entry that is left out.
	leftOutCost = 8
	// leastWaste is how much skipped entries may cost in any case, however few records there are.
	leastWaste = 1 << 14
)

// tooMuch reports whether skipped entries have cost as much as a scan of all records.
func (s *Search) tooMuch() (bool, error) {
	if s.wasted < max(leastWaste, s.bound) {
		return false, nil
	}
	if s.bound == 0 {
		rows, err := s.v.number(countRows)
		if err != nil {
			return false, err
		}
		entries, err := s.v.number(countEntries)
		if err != nil {
			return false, err
		}
		const entryBytes = 24 // of an entry in a record, about
		s.bound = rows*sweptCost + entries*int64(1+s.q.ranges()+entryBytes/work.BytesPerUnit)
	}
	return s.wasted >= s.bound, nil
}

// number reads one of the counters of the slot, 0 if it does not exist.
func (v *View) number(name string) (int64, error) {
	it, err := v.moment.Get(countSpace, v.slot.name+"/"+name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(it.Value), 10, 64)
}

// sweptCost is the cost of advancing to the next record, whatever it holds.
const sweptCost = 8

// sweep scans the records of all rows and keeps the first rows after the last one found.
func (s *Search) sweep(limit int) error {
	// found has the best hits so far, up to twice as many as wanted; worst is the cursor from which on hits no longer
	// count.
	most, ranges := max(s.most, limit), s.q.ranges()
	order := func(a, b string) int {
		if s.q.Backward {
			return strings.Compare(b, a)
		}
		return strings.Compare(a, b)
	}
	var found []Hit
	worst := ""
	cut := func() {
		slices.SortFunc(found, func(a, b Hit) int { return order(a.Cursor, b.Cursor) })
		if len(found) >= most {
			found = found[:most]
			worst = found[most-1].Cursor
		}
	}

	// All records of the slot.
	var failed error
	head := s.v.slot.name + "/"
	err := s.v.eachIn(s.b, rowSpace, store.Prefix(head), func(key, stored []byte) bool {
		id := string(key[len(head):])
		rec, err := parseRecord(stored)
		if err != nil {
			failed = recordDamage(s.v.slot.name, id, err)
			return false
		}
		if !s.b.Spend(sweptCost + len(rec.entries)*(1+ranges)) {
			return false
		}
		at, ok := rec.firstOf(&s.q, id)
		if !ok || s.last != "" && order(at.tail, s.last) <= 0 || worst != "" && order(at.tail, worst) >= 0 {
			return true
		}
		if found = append(found, Hit{ID: id, Cursor: at.tail}); len(found) == 2*most {
			cut()
		}
		return true
	})
	if err = cmp.Or(failed, err); err != nil {
		return err
	}

	// The best hits; if there are fewer than wanted, there are no more.
	cut()
	if s.ended = len(found) < most; len(found) > 0 {
		s.last = found[len(found)-1].Cursor
	}
	s.hits = append(s.hits, found...)
	return nil
}

// ranges returns the number of ranges in all lanes.
func (q *Query) ranges() (n int) {
	for _, lane := range q.Lanes {
		n += len(lane)
	}
	return n
}

// firsts caches, for rows that have several entries, the first entry that a query finds: a row with a thousand entries
// is looked up once.
type firsts map[string]foundAt

// foundAt is the position of an entry among those of all lanes.
type foundAt struct {
	tail string
	lane int
}

// before reports whether a comes before b in ascending order.
func (a foundAt) before(b foundAt) bool {
	return a.tail < b.tail || a.tail == b.tail && a.lane < b.lane
}

// maxFirsts bounds how many rows are cached.
const maxFirsts = 4096

// isFirst reports whether an entry is the first of its row that a query finds.
func (v *View) isFirst(b *work.Budget, seen firsts, q *Query, f *found) (bool, error) {
	if !f.many {
		return true, nil
	}
	at, ok := seen[f.id]
	if !ok {
		rec, err := readRecord(v.moment.Get, v.slot.name, f.id)
		if err != nil || rec == nil {
			return false, err
		}
		if !b.Spend(rec.cost(q.ranges())) {
			return false, b.Err()
		}
		if at, ok = rec.firstOf(q, f.id); !ok {
			return false, nil
		}
		if len(seen) == maxFirsts {
			clear(seen)
		}
		seen[f.id] = at
	}
	return at == foundAt{f.tail, f.lane}, nil
}

// cost is the cost of finding the record and comparing it with some ranges, in units of work.
func (r *record) cost(ranges int) int {
	return recordCost + len(r.stored)/work.BytesPerUnit + len(r.entries)*(1+ranges) + len(r.names)
}

// recordCost is the cost of finding a record, whatever it holds.
const recordCost = 150

// firstOf returns the first entry of the record that a query finds. It relies on the order of the record's entries, and
// of the ranges of each lane.
func (r *record) firstOf(q *Query, id string) (at foundAt, ok bool) {
	for n, ranges := range q.Lanes {
		for i := range r.entries {
			of := rangeWith(ranges, &r.entries[i])
			if of == nil {
				continue
			}
			if found := (foundAt{r.entries[i].text[len(of.head):] + end + id, n}); !ok || found.before(at) {
				at, ok = found, true
			}
			break
		}
	}
	return at, ok
}

// rangeWith returns the range that an entry is in, nil for none.
func rangeWith(ranges []Range, e *Entry) *Range {
	for i := range ranges {
		if ranges[i].has(e.text, e.whole) {
			return &ranges[i]
		}
	}
	return nil
}
