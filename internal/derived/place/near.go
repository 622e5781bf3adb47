package place

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sort"
	"strings"

	"j17/internal/base/geo"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

const (
	// page is how many entries one step reads, and how many points a cell may have before its quarters are searched
	// instead.
	page = 64
	// ofScan is the cost of a scan, in entries.
	ofScan = 8
	// ofEntry is the cost of an entry, in units of work: finding, reading and comparing it.
	ofEntry = 8
	// mostEntries is the cost of a search without a mark, in entries, at which it is given up.
	mostEntries = 1 << 20
	// manyLooks is by how much more is searched before a mark is passed on if points were found: usually they come
	// next.
	manyLooks = 16
	// crowd is how many groups of points are held at a time: the nearest ones.
	crowd = 16 << 10
	// groupsAtOnce is how many groups are allocated together.
	groupsAtOnce = 16
)

// The rings in which a search expands: the radius of the first one, in metres, and the factor from each to the next.
const (
	firstRing = 1000
	widening  = 8
)

// everyID sorts after the IDs of all aggregates.
const everyID = "\xff"

// Near is a query for what is around a point.
type Near struct {
	Center geo.Point
	// Radius is the maximum distance of a place, in metres; +Inf for any distance.
	Radius float64
	// After is where to continue, the zero Mark for the beginning.
	After Mark
}

// Nearby yields the aggregates around a point as of a moment, by distance and then by ID. At intervals it yields a mark
// alone. It searches rings of increasing radius: once the wanted rows are found, everything farther is left alone. The
// error is one of CodeWorkLimit if too many points have to be compared to determine which come next.
func (k *Kinds) Nearby(ctx context.Context, m store.Moment, n Near) iter.Seq2[Found, error] {
	return k.guarded(ctx, m, k.nearby(ctx, m, n))
}

func (k *Kinds) nearby(ctx context.Context, m store.Moment, n Near) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		q := &search{looking: k.look(ctx, m), center: n.Center, after: n.After, last: n.After, begin: n.After}
		defer q.end()
		for ring := float64(firstRing); ; {
			last := ring >= n.Radius || ring > math.Pi*geo.EarthRadius
			if last {
				ring = n.Radius
			}
			if ring < q.after.Distance && !last {
				ring *= widening
				continue
			}
			q.limit, q.crowded = Mark{Distance: ring, ID: everyID}, false
			if !q.run(yield) || last && !q.crowded {
				return
			}
			q.after = q.limit
			if !q.crowded { // otherwise the rest of the ring follows
				ring *= widening
			}
		}
	}
}

// search looks for the nearest points. It holds the cells and groups of points still to be searched, by their minimum
// distance.
type search struct {
	looking

	center geo.Point
	// after is where the search continues; limit is the last place that may be found for now: the end of the ring, or a
	// place before it if the ring is crowded, which means that it has more groups than are held.
	after, limit Mark
	crowded      bool

	// open has the steps still to be taken; groups is how many of them are groups. room is memory for groups.
	open   steps
	groups int
	room   []group
	// last is the position of the search, begin its position at the start or at the last mark passed on.
	last, begin Mark
	// told is the value of scanned at the last mark.
	told int
}

// run yields the points of the ring between after and limit. It reports false if the caller wants no more, or after an
// error.
func (q *search) run(yield func(Found, error) bool) bool {
	// The cells that cover the ring.
	start := geo.Disc{Center: q.center, Radius: min(q.limit.Distance, math.Pi*geo.EarthRadius)}.Cells()
	for _, sl := range q.kinds.slots {
		for _, c := range start {
			q.add(sl, c, nil)
		}
	}

	for len(q.open) > 0 {
		next := q.open.pop()

		// A cell. Before more is read a mark may be passed on, so that a page that ends here has made progress.
		if next.group == nil {
			if mark, due := q.due(next.near); due && !q.passOn(mark, yield) {
				return false
			}
			if err := q.enter(next); err != nil {
				yield(Found{}, err)
				return false
			}
			continue
		}

		// A group of points at one place: the next of them.
		q.groups--
		row, err := q.found(next)
		if err == nil {
			err = q.advance(next)
		}
		if !yield(row, err) || err != nil {
			return false
		}
		q.last = row.Mark
	}
	return true
}

// due returns the position of the search before a cell at a distance, and whether to pass it on: enough was read since
// the last mark.
func (q *search) due(near float64) (mark Mark, due bool) {
	mark = q.last
	if near > mark.Distance {
		mark = Mark{Distance: near}
	}
	looked, enough := q.scanned-q.told, q.kinds.s.enough
	if q.groups > 0 {
		enough *= manyLooks
	}
	if looked < enough || mark == q.begin {
		return mark, false
	}
	q.told, q.begin = q.scanned, mark
	return mark, true
}

// enter searches a cell, by its entries if they are known.
func (q *search) enter(cell step) error {
	if cell.keys != nil {
		return q.take(cell.slot, cell.keys)
	}
	return q.expand(cell.slot, cell.cell)
}

// found returns the next aggregate of a group.
func (q *search) found(next step) (Found, error) {
	l := &decider.Location{Point: &next.point}
	id := next.ids[0]
	if !next.slot.plain() {
		item, err := q.get(next.slot.key(id))
		if err != nil {
			return Found{}, err
		}
		if l, err = readRecord(&item); err != nil {
			return Found{}, err
		}
		if l == nil || l.Point == nil || *l.Point != next.point {
			return Found{}, &store.CorruptionError{Where: "the place of " + item.Key, Err: errRecord}
		}
	}
	return next.slot.found(id, l, next.near), nil
}

// advance removes the first ID of a group and puts the group back.
func (q *search) advance(next step) error {
	last := next.ids[0]
	if next.ids = next.ids[1:]; len(next.ids) == 0 && next.more {
		if err := q.load(next.group, last+"\x00"); err != nil {
			return err
		}
	}
	q.push(next)
	return nil
}

// add adds a cell to the steps, unless nothing in it can be wanted. keys are the keys of all its entries if they are
// known.
func (q *search) add(sl *slot, c geo.Cell, keys []string) {
	near, far := c.Reach(q.center)
	if near > q.limit.Distance || far < q.after.Distance {
		return
	}
	q.open.push(step{near: max(near, q.after.Distance), slot: sl, cell: c, keys: keys})
}

// expand searches a cell: its points, or its quarters if it has many.
func (q *search) expand(sl *slot, c geo.Cell) error {
	keys := sl.keysIn(c)
	some, err := q.keys(keys, page)
	if err != nil {
		return err
	}
	if len(some) < page {
		return q.take(sl, some)
	}
	quarters := c.Quarters()
	if quarters == nil {
		return q.takeAll(sl, c, keys)
	}

	// The entries are sorted by quarter. The last quarter that is reached may have more entries than were read.
	for _, quarter := range quarters {
		behind := sl.keysIn(quarter).To
		if some[len(some)-1] >= behind {
			n := sort.SearchStrings(some, behind)
			if n > 0 {
				q.add(sl, quarter, some[:n])
			}
			some = some[n:]
			continue
		}
		q.add(sl, quarter, nil)
	}
	return nil
}

// keysIn returns the range of the keys of the points in a cell.
func (sl *slot) keysIn(c geo.Cell) store.Range {
	first, last := c.Range()
	return store.Range{From: sl.ID + "/" + first, To: sl.ID + "/" + last + "\xff"}
}

// wanted returns the distance of a point, and whether it can be between after and limit.
func (q *search) wanted(p geo.Point) (float64, bool) {
	d := q.center.Distance(p)
	return d, d >= q.after.Distance && d <= q.limit.Distance
}

// take adds the points of a cell, given the keys of all its entries.
func (q *search) take(sl *slot, keys []string) error {
	for len(keys) > 0 {
		e, err := readEntry(keys[0])
		if err != nil {
			return err
		}
		n := 0
		for n < len(keys) && strings.HasPrefix(keys[n], e.group) {
			n++
		}
		if d, ok := q.wanted(e.point); ok {
			g := q.group(group{point: e.point, prefix: e.group, ids: keys[:n:n]})
			for i := range g.ids {
				g.ids[i] = g.ids[i][len(e.group):]
			}
			q.put(sl, g, d)
		}
		keys = keys[n:]
	}
	return nil
}

// group stores a group; many share one allocation.
func (q *search) group(g group) *group {
	if len(q.room) == cap(q.room) {
		q.room = make([]group, 0, groupsAtOnce)
	}
	q.room = append(q.room, g)
	return &q.room[len(q.room)-1]
}

// takeAll adds the points of one of the smallest cells, a square of a centimetre, which has many. The entries of one
// point are consecutive; those behind the first few are skipped.
func (q *search) takeAll(sl *slot, c geo.Cell, keys store.Range) error {
	head := len(sl.ID) + len("/") + len(c.Name()) + len("/") // of the prefix of the point
	for again := true; again; {
		// A page of entries, in groups of one point each.
		var prefix []byte // of the entries of the point
		var g *group      // nil where it is not wanted
		var d float64
		var damaged error
		n := 0
		again = false
		err := q.each(keys, func(key []byte) bool {
			if prefix == nil || !bytes.HasPrefix(key, prefix) { // another point: the previous group is complete
				q.put(sl, g, d)
				var p geo.Point
				if p, damaged = pointIn(key[min(head, len(key)):]); damaged != nil {
					return false
				}
				prefix, g, n = append(prefix[:0], key[:head+pointDigits+len("/")]...), nil, 0
				var wanted bool
				if d, wanted = q.wanted(p); wanted {
					g = &group{point: p, prefix: string(prefix)}
				}
			}
			if g != nil {
				g.ids = append(g.ids, string(key[len(prefix):]))
			}
			n++
			again = n == page
			return !again
		})
		if err = cmp.Or(err, damaged); err != nil {
			return err
		}

		// The page ends within a point: its group has more entries, and the next page begins behind the point.
		if again {
			keys.From = string(prefix) + "\xff"
		}
		if again && g != nil {
			if g.more = true; d == q.after.Distance { // where only what is behind the mark is wanted
				g.ids = nil
				if err := q.load(g, q.after.ID); err != nil {
					return err
				}
			}
		}
		q.put(sl, g, d)
	}
	return nil
}

// put adds a group, from the mark on, if it is not nil.
func (q *search) put(sl *slot, g *group, d float64) {
	if g == nil {
		return
	}
	s := step{near: d, slot: sl, group: g}
	for len(g.ids) > 0 && s.mark().compare(q.after) <= 0 {
		g.ids = g.ids[1:]
	}
	q.push(s)
}

// push adds a group that is not exhausted. If there are too many groups then, the farther half is dropped with all
// steps beyond the rest: they are searched again when the nearer half is done.
func (q *search) push(s step) {
	if len(s.ids) == 0 || s.mark().compare(q.limit) > 0 {
		return
	}
	q.open.push(s)
	if q.groups++; q.groups <= q.kinds.s.crowd {
		return
	}
	slices.SortFunc(q.open, func(a, b step) int { return a.mark().compare(b.mark()) })
	q.groups /= 2
	kept := 0
	for at := 0; at < q.groups; kept++ {
		if q.open[kept].group != nil {
			at++
		}
	}
	q.limit, q.crowded = q.open[kept-1].mark(), true
	clear(q.open[kept:])
	q.open = q.open[:kept]
}

// load loads the next IDs of a group, from one of them on.
func (q *search) load(g *group, from string) error {
	keys, err := q.keys(store.Range{From: g.prefix + from, To: g.prefix + "\xff"}, page)
	if err != nil {
		return err
	}
	for _, key := range keys {
		g.ids = append(g.ids, key[len(g.prefix):])
	}
	g.more = len(keys) == page
	return nil
}
