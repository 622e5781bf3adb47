package place

import (
	"bytes"
	"cmp"
	"container/heap"
	"iter"
	"math"
	"slices"
	"strings"

	"j17/internal/decider"
	"j17/internal/geo"
	"j17/internal/store"
)

const (
	// page is how many entries are looked at in one step, and how many points a cell may have that is not looked at by its quarters.
	page = 64
	// ofScan is what a scan costs, in entries.
	ofScan = 8
	// crowd is how many of the points in one of the smallest cells are kept at a time: the nearest ones that are wanted.
	crowd = 1024
)

// The rings in which a search goes outward: the first one, in metres, and how many times larger each is than the one before it.
const (
	firstRing = 1000
	widening  = 8
)

// Near is what lies around a point.
type Near struct {
	Center geo.Point
	// Radius is how far away a place may be, in metres; +Inf for however far.
	Radius float64
	// After is where to go on, the zero Mark for the beginning.
	After Mark
}

// Nearby yields the aggregates around a point as of a moment, by their distance and then by id. Now and then it yields a mark. What it
// looks at lies in rings that widen: where the rows that are wanted are found, everything farther is left alone.
func (k *Kinds) Nearby(m store.Moment, n Near) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		k.s.counts.queries.Add(1)
		q := &search{kinds: k, m: m, center: n.Center, after: n.After, last: n.After, begin: n.After}
		defer func() { k.s.counts.scanned.Add(uint64(q.scanned)) }()
		for ring := float64(firstRing); ; ring *= widening {
			last := ring >= n.Radius || ring > math.Pi*geo.EarthRadius
			if last {
				ring = n.Radius
			}
			if ring < q.after.Distance && !last {
				continue
			}
			if q.limit = ring; !q.run(yield) || last {
				return
			}
			q.after, q.beyond = Mark{Distance: ring}, true
		}
	}
}

// search looks for the nearest points. It holds cells and groups of points that are still to be looked at, by how near they can be.
type search struct {
	kinds  *Kinds
	m      store.Moment
	center geo.Point
	// limit is how far away a place may be; after is where the search goes on, behind that distance altogether if beyond is set.
	limit  float64
	after  Mark
	beyond bool

	open steps
	// last is where the search is, begin where it was when it began, or at the last mark that it passed on.
	last, begin Mark
	// scanned counts what was looked at, told how much that was at the last mark.
	scanned, told int
}

// step is something to look at: a cell, or a group of points at one place, from its next id on.
type step struct {
	near float64
	slot *slot
	cell geo.Cell
	*group
}

// group is the aggregates that are at one point, in the order of their ids.
type group struct {
	point geo.Point
	// prefix is what their keys begin with. ids are the next ones; more tells that there are others behind them.
	prefix string
	ids    []string
	more   bool
}

// steps is a heap: what is nearest first, cells before points, points by id.
type steps []step

func (s steps) Len() int      { return len(s) }
func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s steps) Less(i, j int) bool {
	a, b := &s[i], &s[j]
	if a.near != b.near {
		return a.near < b.near
	}
	if a.group == nil || b.group == nil {
		return a.group == nil && b.group != nil
	}
	return cmp.Or(strings.Compare(a.ids[0], b.ids[0]), strings.Compare(a.slot.ID, b.slot.ID)) < 0
}

// Push adds a step, for package heap.
func (s *steps) Push(x any) { *s = append(*s, x.(step)) } //nolint:errcheck,forcetypeassert // there are only steps

// Pop removes the last step, for package heap.
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// run yields what is in the ring between after and limit. It reports false when that was all that was wanted.
func (q *search) run(yield func(Found, error) bool) bool {
	start := geo.Disc{Center: q.center, Radius: min(q.limit, math.Pi*geo.EarthRadius)}.Cells()
	for _, sl := range q.kinds.slots {
		for _, c := range start {
			q.add(sl, c)
		}
	}
	for len(q.open) > 0 {
		next, _ := heap.Pop(&q.open).(step)
		if next.group == nil {
			// What was found is passed on before more is looked at, and a page that ends here has got on.
			mark := q.last
			if next.near > mark.Distance {
				mark = Mark{Distance: next.near}
			}
			if q.scanned-q.told >= q.kinds.s.enough && mark != q.begin {
				q.told, q.begin = q.scanned, mark
				if !yield(Found{Mark: mark}, nil) {
					return false
				}
			}
			if err := q.expand(next.slot, next.cell, next.near); err != nil {
				yield(Found{}, err)
				return false
			}
			continue
		}
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

// found makes a row of the next aggregate of a group.
func (q *search) found(next step) (Found, error) {
	l := &decider.Location{Point: &next.point}
	id := next.ids[0]
	if !next.slot.plain() {
		item, err := q.m.Get(places, next.slot.key(id))
		if err != nil {
			return Found{}, err
		}
		q.scanned++
		if l, err = readRecord(&item); err != nil {
			return Found{}, err
		}
		if l == nil || l.Point == nil || *l.Point != next.point {
			return Found{}, &store.CorruptionError{Where: "the place of " + item.Key, Err: errRecord}
		}
	}
	return next.slot.found(id, l, next.near), nil
}

// advance puts a group back behind its first id.
func (q *search) advance(next step) error {
	last := next.ids[0]
	if next.ids = next.ids[1:]; len(next.ids) == 0 && next.more {
		if err := q.load(next.group, last+"\x00"); err != nil {
			return err
		}
	}
	if len(next.ids) > 0 {
		heap.Push(&q.open, next)
	}
	return nil
}

// add puts a cell among what is to be looked at, if there can be something in it that is wanted.
func (q *search) add(sl *slot, c geo.Cell) {
	near, far := c.Reach(q.center)
	if near > q.limit || far < q.after.Distance {
		return
	}
	heap.Push(&q.open, step{near: max(near, q.after.Distance), slot: sl, cell: c})
}

// expand looks at a cell: at the points in it, of which those that are wanted are not nearer than near, or at its quarters where there are
// many.
func (q *search) expand(sl *slot, c geo.Cell, near float64) error {
	first, last := c.Range()
	keys := store.Range{From: sl.ID + "/" + first, To: sl.ID + "/" + last + "\xff"}
	items, err := q.scan(keys, page)
	if err != nil {
		return err
	}
	if len(items) < page {
		return q.take(sl, items)
	}
	if quarters := c.Quarters(); quarters != nil {
		for _, quarter := range quarters {
			q.add(sl, quarter)
		}
		return nil
	}

	// Many in a square of a centimetre: the nearest of them, and the others when these are done.
	for most := crowd; ; most *= 2 {
		groups, beyond, err := q.nearest(keys, near, most)
		if err != nil {
			return err
		}
		if len(groups) == 0 && !math.IsInf(beyond, 1) {
			continue // so many are equally far away
		}
		for _, g := range groups {
			q.put(sl, g.group, g.distance)
		}
		if !math.IsInf(beyond, 1) {
			heap.Push(&q.open, step{near: beyond, slot: sl, cell: c})
		}
		return nil
	}
}

// distant is a group and how far away it is.
type distant struct {
	*group
	distance float64
}

// nearest goes through the entries of one of the smallest cells once and returns the nearest points that are wanted and are not nearer than
// near, up to so many of them: all that are nearer than beyond, which is +Inf where these are all.
func (q *search) nearest(keys store.Range, near float64, most int) (groups []distant, beyond float64, err error) {
	beyond = math.Inf(1)
	fewer := func() {
		slices.SortFunc(groups, func(a, b distant) int { return cmp.Compare(a.distance, b.distance) })
		if len(groups) > most {
			beyond = groups[most].distance
			groups = slices.DeleteFunc(groups, func(g distant) bool { return g.distance >= beyond })
		}
	}

	// The entries of one point follow each other. Those behind the first few are passed over.
	g, n, kept := (*group)(nil), 0, false
	for again := true; again; {
		again = false
		q.scanned += ofScan
		failed := q.m.Each(cells, keys, func(key, _ []byte) bool {
			q.scanned++
			if g == nil || !bytes.HasPrefix(key, []byte(g.prefix)) {
				var e entry
				if e, err = readEntry(string(key)); err != nil {
					return false
				}
				d, ok := q.wanted(e.point)
				g, n, kept = &group{point: e.point, prefix: e.group}, 0, ok && d >= near && d < beyond
				if kept {
					groups = append(groups, distant{g, d})
				}
				if len(groups) == 2*most {
					fewer()
				}
			}
			if kept {
				g.ids = append(g.ids, string(key[len(g.prefix):]))
			}
			if n++; n < page {
				return true
			}
			g.more, again = true, true
			keys.From = g.prefix + "\xff"
			return false
		})
		if err = cmp.Or(err, failed); err != nil {
			return nil, 0, err
		}
	}
	fewer()

	// At the mark itself only what is behind it is wanted.
	for _, g := range groups {
		if g.distance == q.after.Distance && g.more {
			g.ids = nil
			if err := q.load(g.group, q.after.ID); err != nil {
				return nil, 0, err
			}
		}
	}
	return groups, beyond, nil
}

func (q *search) scan(keys store.Range, limit int) ([]store.Item, error) {
	items, err := q.m.Scan(cells, keys, limit)
	q.scanned += ofScan + len(items)
	return items, err
}

// wanted returns how far away a point is, and whether it is in the ring.
func (q *search) wanted(p geo.Point) (float64, bool) {
	d := q.center.Distance(p)
	return d, d <= q.limit && (d > q.after.Distance || d == q.after.Distance && !q.beyond)
}

// take adds the points of a cell, of which these are all entries.
func (q *search) take(sl *slot, items []store.Item) error {
	for len(items) > 0 {
		e, err := readEntry(items[0].Key)
		if err != nil {
			return err
		}
		n := 0
		for n < len(items) && strings.HasPrefix(items[n].Key, e.group) {
			n++
		}
		if d, ok := q.wanted(e.point); ok {
			g := &group{point: e.point, prefix: e.group}
			for i := range items[:n] {
				g.ids = append(g.ids, items[i].Key[len(e.group):])
			}
			q.put(sl, g, d)
		}
		items = items[n:]
	}
	return nil
}

// put adds a group, from the mark on.
func (q *search) put(sl *slot, g *group, d float64) {
	if d == q.after.Distance {
		for len(g.ids) > 0 && cmp.Or(strings.Compare(g.ids[0], q.after.ID), strings.Compare(sl.ID, q.after.Slot)) <= 0 {
			g.ids = g.ids[1:]
		}
	}
	if len(g.ids) > 0 {
		heap.Push(&q.open, step{near: d, slot: sl, group: g})
	}
}

// load gets the next ids of a group, from one of them on.
func (q *search) load(g *group, from string) error {
	items, err := q.scan(store.Range{From: g.prefix + from, To: g.prefix + "\xff"}, page)
	if err != nil {
		return err
	}
	for i := range items {
		g.ids = append(g.ids, items[i].Key[len(g.prefix):])
	}
	g.more = len(items) == page
	return nil
}
