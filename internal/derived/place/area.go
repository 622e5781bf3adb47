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

// Within yields the aggregates whose points are in an area as of a moment, by ID, after a mark. At intervals it yields
// a mark alone.
func (k *Kinds) Within(ctx context.Context, m store.Moment, area geo.Area, after Mark) iter.Seq2[Found, error] {
	return k.guarded(ctx, m, k.within(ctx, m, area, after))
}

func (k *Kinds) within(ctx context.Context, m store.Moment, area geo.Area, after Mark) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		q := &sieve{looking: k.look(ctx, m), after: after}
		defer q.end()

		// If the area has few points, they are sorted; otherwise the records are read in the order of IDs: with so many
		// points, enough of them are in the area.
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

// sieve searches for places in areas, or areas around a place.
type sieve struct {
	looking

	after Mark
	// compared is the cost of the comparisons of points with the area so far, in units of work.
	compared int
}

const (
	// verticesOfUnit is how many vertices of an area one unit of work covers in a comparison with a point.
	verticesOfUnit = 4
	// fewCompared is the cost of comparisons, in units of work, up to which points are sorted; mostCompared is the cost
	// at which a mark is passed on. With both of them a page that ends at the first mark stays below half of a turn on
	// a processor, and the cost between two marks stays below the budget.
	fewCompared  = 1 << 19
	mostCompared = 3 << 20
)

// contains reports whether an area has a point, and charges the comparison.
func (q *sieve) contains(area geo.Area, p geo.Point) (bool, error) {
	n := area.Vertices() / verticesOfUnit
	if q.compared += n; !q.budget.Spend(n) {
		return false, q.budget.Err()
	}
	return area.Contains(p), nil
}

// inside returns the aggregates in an area, sorted, unless its cells have too many points.
func (q *sieve) inside(area geo.Area) (rows []Found, whole bool, err error) {
	// The points of all its cells.
	cells := area.Cells()
	for _, sl := range q.kinds.slots {
		for _, c := range cells {
			if rows, whole, err = q.insideCell(rows, area, sl, c); err != nil || !whole {
				return nil, false, err
			}
		}
	}

	// Sorted, and completed from their records.
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

// insideCell adds the aggregates that a slot has in an area and one of its cells, unless the cell has too many points.
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

// location returns the location of an aggregate that has entries.
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

// byID reads the records of the type in the order of IDs.
func (q *sieve) byID(area geo.Area, yield func(Found, error) bool) {
	// After the end of the last page.
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
			// The aggregate, and whether the slot is one of the requested kinds.
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

			// Whether it is in the area; at intervals the progress.
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

// Containing yields the aggregates whose areas have a point as of a moment, by ID, after a mark. At intervals it yields
// a mark alone.
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

		// The lanes are merged by ID, and each area is tested exactly.
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

			// Its location, and the cost of that.
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

			// Whether it has the point; at intervals the progress.
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

// lane has the areas that are covered in part by one cell, in the order of their IDs.
type lane struct {
	slot   *slot
	prefix string
	ids    []string
	more   bool
}

func (l *lane) mark() Mark { return Mark{ID: l.ids[0], Slot: l.slot.ID} }

// around returns the lanes of the cells around a point that have entries after the mark. The cells are read in the
// order of their names: the key found behind the entries of one shows which of the following cells have none, as most
// of them do.
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
				break // there is nothing up to the end of the last lane
			}
		}
	}
	return lanes, nil
}

// prefix returns the prefix of the keys of the areas in a cell.
func (sl *slot) prefix(cell string) string { return sl.ID + "/" + cell + "//" }

// end returns a key behind those of the lane.
func (l *lane) end() string { return l.prefix + "\xff" }

// pass moves past the first ID of a lane.
func (q *sieve) pass(l *lane) error {
	last := l.ids[0]
	if l.ids = l.ids[1:]; len(l.ids) > 0 || !l.more {
		return nil
	}
	_, err := q.load(l, last+"\x00", l.end())
	return err
}

// load loads the next IDs of a lane. If there are none left, it returns the first key behind the lane, "" if there is
// none before the end.
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
