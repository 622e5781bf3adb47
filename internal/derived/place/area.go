package place

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"j17/internal/base/geo"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// Within yields the aggregates whose points are in an area as of a moment, by id, behind a mark. Now and then it yields
// a mark.
func (k *Kinds) Within(ctx context.Context, m store.Moment, area geo.Area, after Mark) iter.Seq2[Found, error] {
	return k.guarded(ctx, m, k.within(ctx, m, area, after))
}

func (k *Kinds) within(ctx context.Context, m store.Moment, area geo.Area, after Mark) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		q := &sieve{looking: k.look(ctx, m), after: after}
		defer q.end()

		// Where the area has few points they are put in order, else the ids are gone through in theirs: of so many,
		// enough are in it.
		rows, whole, err := q.inside(area)
		switch {
		case err != nil:
			yield(Found{}, err)
		case whole:
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
		default:
			q.byID(area, yield)
		}
	}
}

// sieve looks for places in areas, or areas around a place.
type sieve struct {
	looking

	after Mark
	// compared is what it took to compare points with the area, in units of work.
	compared int
}

const (
	// verticesOfUnit is how many vertices of an area a point is compared with for one unit of work.
	verticesOfUnit = 4
	// fewCompared is what it may take to compare points with an area before they are put in order, in units of work,
	// and mostCompared what it may take before a mark is passed on. With both of them a page that ends at the first
	// mark stays below half of a turn on a processor, and what lies between two marks below the budget.
	fewCompared  = 1 << 19
	mostCompared = 3 << 20
)

// contains reports whether an area has a point, and counts what that takes.
func (q *sieve) contains(area geo.Area, p geo.Point) (bool, error) {
	n := area.Vertices() / verticesOfUnit
	if q.compared += n; !q.budget.Spend(n) {
		return false, q.budget.Err()
	}
	return area.Contains(p), nil
}

// inside returns what is in an area, in order, unless its cells have too many points.
func (q *sieve) inside(area geo.Area) (rows []Found, whole bool, err error) {
	// The points of all cells that are in it.
	cells := area.Cells()
	for _, sl := range q.kinds.slots {
		for _, c := range cells {
			if rows, whole, err = q.insideCell(rows, area, sl, c); err != nil || !whole {
				return nil, false, err
			}
		}
	}

	// In order, and with what entries do not say.
	slices.SortFunc(rows, func(a, b Found) int { return a.Mark.compare(b.Mark) })
	for i := range rows {
		if sl := q.slot(rows[i].Mark.Slot); !sl.plain() {
			l, err := q.location(sl, rows[i].ID)
			if err != nil {
				return nil, false, err
			}
			rows[i] = sl.found(rows[i].ID, l, 0)
		}
	}
	return rows, true, nil
}

// insideCell adds what a slot has in an area and one of its cells, unless there are too many points in it.
func (q *sieve) insideCell(rows []Found, area geo.Area, sl *slot, c geo.Cell) (_ []Found, whole bool, err error) {
	const chunk = 1000
	for keys := sl.keysIn(c); ; {
		some, err := q.keys(keys, chunk)
		if err != nil {
			return nil, false, err
		}
		for _, key := range some {
			e, err := readEntry(key)
			if err != nil {
				return nil, false, err
			}
			if mark := (Mark{ID: e.id, Slot: sl.ID}); mark.compare(q.after) <= 0 {
				continue
			}
			in, err := q.contains(area, e.point)
			if err != nil || q.compared > fewCompared {
				return nil, false, err
			}
			if in {
				rows = append(rows, sl.found(e.id, &decider.Location{Point: &e.point}, 0))
			}
		}
		if len(some) < chunk {
			return rows, true, nil
		}
		keys = keys.After(some[len(some)-1])
		if q.scanned > q.kinds.s.few {
			return nil, false, nil
		}
	}
}

func (q *sieve) slot(id string) *slot {
	i := slices.IndexFunc(q.kinds.slots, func(sl *slot) bool { return sl.ID == id })
	if i < 0 {
		return nil
	}
	return q.kinds.slots[i]
}

// location returns where an aggregate is that has entries.
func (q *sieve) location(sl *slot, id string) (*decider.Location, error) {
	item, err := q.get(sl.key(id))
	if err == nil {
		var l *decider.Location
		if l, err = readRecord(&item); l != nil || err != nil {
			return l, err
		}
		err = errRecord
	}
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, errRecord) {
		err = &store.CorruptionError{Where: "the place of " + sl.key(id), Err: err}
	}
	return nil, err
}

// byID goes through the records of the type in the order of ids.
func (q *sieve) byID(area geo.Area, yield func(Found, error) bool) {
	// From where the last page has ended.
	const chunk = 500
	typ := q.kinds.slots[0].typ + ":"
	keys := store.Prefix(typ)
	if q.after.ID != "" {
		keys.From = typ + q.after.ID
	}

	told, compared := q.scanned, q.compared
	for {
		items, err := q.scan(keys, chunk)
		if err != nil {
			yield(Found{}, err)
			return
		}
		for i := range items {
			// Which aggregate it is, and in which of the kinds that are looked for.
			keys = keys.After(items[i].Key)
			cut := strings.LastIndexByte(items[i].Key, '/')
			sl := q.slot(items[i].Key[cut+1:])
			if sl == nil {
				continue
			}
			mark := Mark{ID: items[i].Key[len(typ):cut], Slot: sl.ID}
			if mark.compare(q.after) <= 0 {
				continue
			}

			// Whether it is in the area, and now and then how far this is.
			l, err := readRecord(&items[i])
			if err != nil {
				yield(Found{}, err)
				return
			}
			in := false
			if l != nil && l.Point != nil {
				if in, err = q.contains(area, *l.Point); err != nil {
					yield(Found{}, err)
					return
				}
			}
			if in && !yield(sl.found(mark.ID, l, 0), nil) {
				return
			}
			if q.scanned-told > q.kinds.s.enough || q.compared-compared > mostCompared {
				told, compared = q.scanned, q.compared
				if !q.passOn(mark, yield) {
					return
				}
			}
		}
		if len(items) < chunk {
			return
		}
	}
}

// Containing yields the aggregates whose areas have a point as of a moment, by id, behind a mark. Now and then it
// yields a mark.
func (k *Kinds) Containing(ctx context.Context, m store.Moment, p geo.Point, after Mark) iter.Seq2[Found, error] {
	return k.guarded(ctx, m, k.containing(ctx, m, p, after))
}

func (k *Kinds) containing(ctx context.Context, m store.Moment, p geo.Point, after Mark) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		q := &sieve{looking: k.look(ctx, m), after: after}
		defer q.end()
		lanes, err := q.around(p)
		if err != nil {
			yield(Found{}, err)
			return
		}

		// What the cells have is taken in the order of ids, and looked at exactly.
		told := q.scanned
		for {
			var next *lane
			for _, l := range lanes {
				if len(l.ids) > 0 && (next == nil || l.mark().compare(next.mark()) < 0) {
					next = l
				}
			}
			if next == nil {
				return
			}

			// Where it is, and what that takes.
			mark := next.mark()
			l, err := q.location(next.slot, mark.ID)
			if err == nil {
				err = q.pass(next)
			}
			if err != nil || l.Shape == nil {
				yield(Found{}, cmp.Or(err, error(&store.CorruptionError{
					Where: "the place of " + next.slot.key(mark.ID), Err: errRecord,
				})))
				return
			}
			if err := q.count(l.Shape.Vertices() / 20); err != nil {
				yield(Found{}, err)
				return
			}

			// Whether it has the point, and now and then how far this is.
			if l.Shape.Contains(p) && !yield(next.slot.found(mark.ID, l, 0), nil) {
				return
			}
			if q.scanned-told > q.kinds.s.enough {
				told = q.scanned
				if !q.passOn(mark, yield) {
					return
				}
			}
		}
	}
}

// lane is the areas that one cell is a part of the cover of, in the order of their ids.
type lane struct {
	slot   *slot
	prefix string
	ids    []string
	more   bool
}

func (l *lane) mark() Mark { return Mark{ID: l.ids[0], Slot: l.slot.ID} }

// around returns the lanes of the cells around a point that have something in them, behind the mark. The cells are
// asked in the order of their names: what follows the entries of one shows which of the others have none, and most of
// them have none.
func (q *sieve) around(p geo.Point) ([]*lane, error) {
	names := make([]string, 0, geo.MaxAround)
	for _, c := range p.Cell().Around() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	var lanes []*lane
	for _, sl := range q.kinds.slots {
		after := q.after.ID
		if after != "" && sl.ID <= q.after.Slot {
			after += "\x00"
		}
		last := &lane{slot: sl, prefix: sl.prefix(names[len(names)-1])}
		behind := ""
		for _, name := range names {
			l := &lane{slot: sl, prefix: sl.prefix(name)}
			if l.end() <= behind {
				continue
			}
			var err error
			if behind, err = q.load(l, after, last.end()); err != nil {
				return nil, err
			}
			if len(l.ids) > 0 {
				lanes = append(lanes, l)
			}
			if behind == "" && !l.more {
				break // there is nothing up to the end of the last one
			}
		}
	}
	return lanes, nil
}

// prefix is what the keys of the entries of areas in a cell begin with.
func (sl *slot) prefix(cell string) string { return sl.ID + "/" + cell + "//" }

// end is behind the keys of the lane.
func (l *lane) end() string { return l.prefix + "\xff" }

// pass goes on behind the first id of a lane.
func (q *sieve) pass(l *lane) error {
	last := l.ids[0]
	if l.ids = l.ids[1:]; len(l.ids) > 0 || !l.more {
		return nil
	}
	_, err := q.load(l, last+"\x00", l.end())
	return err
}

// load gets the next ids of a lane. Where it has none it returns the first key behind them, "" if there is none before
// the end.
func (q *sieve) load(l *lane, from, end string) (behind string, err error) {
	n := 0
	err = q.each(store.Range{From: l.prefix + from, To: end}, func(key []byte) bool {
		if len(key) < len(l.prefix) || string(key[:len(l.prefix)]) != l.prefix {
			behind = string(key)
			return false
		}
		l.ids = append(l.ids, string(key[len(l.prefix):]))
		n++
		return n < page
	})
	l.more = n == page
	return behind, err
}
