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

// Search goes through the rows that a query finds, a page at a time. It is for one goroutine, and only as long as its
// view is open.
//
// It reads entries in their order and leaves out those whose row has an earlier one in the query. Where most of what it
// reads is left out, as at the end of an index of lists of tags, it goes through the records of all rows instead: that
// takes as long as there are rows, however many entries they have.
type Search struct {
	v *View
	b *work.Budget
	q Query
	// most is how many rows are kept of one pass through the records.
	most int

	lanes []*lane
	seen  firsts
	// hits are those behind the start of the latest page; last is the cursor of the last one that was found, or where
	// the search has begun.
	hits []Hit
	last string
	// wasted is what entries have cost that were left out, in units of work; bound is how much that may be, 0 until it
	// is known.
	wasted, bound int64
	// byRecord reports that the records are gone through, ended that there are no further rows.
	byRecord, ended bool
}

// Search begins a search for rows behind a cursor, "" for the first one, of which the caller wants about most.
func (v *View) Search(b *work.Budget, q Query, after string, most int) *Search {
	s := &Search{v: v, b: b, q: q, most: most, lanes: v.lanes(&q), seen: firsts{}, last: after}
	for _, l := range s.lanes {
		l.seek(after, q.Backward)
	}
	return s
}

// SearchWord is Search for the rows that have a word in index n which begins with a text.
func (v *View) SearchWord(b *work.Budget, n int, word, after string, most int) *Search {
	return v.Search(b, wordQuery(n, word), after, most)
}

// Scan returns up to limit rows behind a cursor, from the first one on for "". Its errors are those of Next.
func (v *View) Scan(b *work.Budget, q Query, after string, limit int) ([]Hit, error) {
	return v.Search(b, q, after, limit).Next(after, limit)
}

// Next returns up to limit rows behind the cursor of one of the page before, or from where the search has begun. What
// is looked at is work of the budget. The error is a *NotReadyError where what is stored is damaged: the index is
// rebuilt then, and is not read before that is done.
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

// read reads entries until there are enough rows, or until that has cost too much for nothing.
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
	// leastWaste is how much may be spent on such entries, however few records there are.
	leastWaste = 1 << 14
)

// tooMuch reports whether entries that were left out have cost as much as all records would.
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

// number reads one of the numbers of the slot, 0 where it has none.
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

// sweptCost is what it takes to go on to the next record, whatever it holds.
const sweptCost = 8

// sweep goes through the records of all rows and keeps the first rows behind the last one that was found.
func (s *Search) sweep(limit int) error {
	// The best hits so far, up to twice as many as are wanted; worst is the last one that can still be among them.
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

	// All records of the definition.
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

	// The first of what was found; less than was wanted is all there is.
	cut()
	if s.ended = len(found) < most; len(found) > 0 {
		s.last = found[len(found)-1].Cursor
	}
	s.hits = append(s.hits, found...)
	return nil
}

// ranges is how many ranges the lanes have together.
func (q *Query) ranges() (n int) {
	for _, lane := range q.Lanes {
		n += len(lane)
	}
	return n
}

// firsts remembers, of rows that have several entries, which is the first that a question finds: who has a thousand of
// them is looked up once.
type firsts map[string]foundAt

// foundAt is the place of an entry among those of all lanes.
type foundAt struct {
	tail string
	lane int
}

// before reports whether a stands before b in the ascending order.
func (a foundAt) before(b foundAt) bool {
	return a.tail < b.tail || a.tail == b.tail && a.lane < b.lane
}

// maxFirsts bounds how many rows are remembered.
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

// cost is what it takes to find the record and to compare it with some ranges, in units of work.
func (r *record) cost(ranges int) int {
	return recordCost + len(r.stored)/work.BytesPerUnit + len(r.entries)*(1+ranges) + len(r.names)
}

// recordCost is what it takes to find a record, whatever it holds.
const recordCost = 150

// firstOf returns the first entry of the record that a query finds. Entries are in order, and so are those of each
// lane.
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
