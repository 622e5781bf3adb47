package geo

import (
	"cmp"
	"math"
	"slices"

	"github.com/golang/geo/s2"
)

// joined rejoins areas that were cut along longitude 180, as section 3.1.9 of RFC 7946 describes: edges that two parts
// have there, on both sides and in opposite directions, bound nothing on the sphere. They are removed, and the others
// make rings that cross that meridian or run around a pole. Areas that were not cut are returned unchanged, and so are
// parts that do not match, which are refused later.
func joined(polygons [][]placed) ([][]placed, error) {
	j := joining{}
	switch cut := j.look(polygons); {
	case !cut, len(j.edges) > 0 && !j.cancel():
		return polygons, nil
	case !slices.Contains(j.opened, true):
		return unrepeated(polygons), nil
	}
	loops, ok := j.loops()
	if !ok {
		return polygons, nil
	}
	return j.nest(polygons, loops)
}

// origin is where a vertex was given.
type origin struct {
	of *placed
	at int
}

// joining is the state of putting one area together.
type joining struct {
	// rings are all rings in the order in which they were given, and edges those of their edges that lie on the seam. A
	// ring is opened where a part of one of these goes with its opposite, or where it meets itself there.
	rings  []*mapped
	edges  []seamEdge
	opened []bool
	// lats are the latitudes between which edges lie on the seam, sides what lies between each and the next one at
	// longitude 180 and -180.
	lats  []float64
	sides [2][]seamPart
}

// mapped is a ring as it lies on a map from longitude -180 to 180.
type mapped struct {
	placed *placed
	outer  bool
	// turned reports that the area is to the right of its edges as they were given.
	turned bool
}

// seamEdge is an edge along longitude 180 or -180, between two of the latitudes. north reports that it leads north
// where the area is to its left.
type seamEdge struct {
	ring, first int
	side        int
	low, high   float64
	north       bool
}

// seamPart is what an edge covers between two latitudes that follow each other.
type seamPart struct {
	edge int // from 1; 0 for none
	gone bool
}

// sideOf returns the side of the seam that an edge lies on, -1 for one that does not.
func sideOf(a, b Point) int {
	switch {
	case a.Lng != b.Lng || a.Lat == b.Lat:
		return -1
	case a.Lng == 180:
		return 0
	case a.Lng == -180:
		return 1
	default:
		return -1
	}
}

// look records what is at the seam. It reports false where there is nothing to do: no edges on it, and no place with
// two names.
func (j *joining) look(polygons [][]placed) (cut bool) {
	for _, rings := range polygons {
		for i := range rings {
			cutRing, possible := j.lookAt(&mapped{placed: &rings[i], outer: i == 0})
			if !possible {
				return false
			}
			cut = cut || cutRing
		}
	}
	return cut || len(j.edges) > 0
}

// lookAt records what one ring has at the seam. It reports whether the ring has a place with two names, and false for
// one that both crosses the seam and has edges on it, which cannot be joined.
func (j *joining) lookAt(r *mapped) (cut, possible bool) {
	n, on := len(j.rings), len(j.edges)
	j.rings = append(j.rings, r)
	area, around, meets := 0.0, false, false
	seam := map[Point]Point{}
	points := r.placed.points
	for k, a := range points {
		before, b := points[(k+len(points)-1)%len(points)], points[(k+1)%len(points)]
		area += a.Lng*b.Lat - b.Lng*a.Lat
		if math.Abs(a.Lng) == 180 && math.Abs(a.Lat) != 90 {
			other, known := seam[a.unique()]
			meets = meets || known && other != a && !repeats(a, before) && !repeats(a, b)
			seam[a.unique()] = a
		}
		if side := sideOf(a, b); side >= 0 {
			j.edges = append(j.edges, seamEdge{n, k, side, min(a.Lat, b.Lat), max(a.Lat, b.Lat), a.Lat < b.Lat})
		} else if repeats(a, b) {
			cut = true
		} else if math.Abs(a.Lng-b.Lng) > 180 && math.Abs(a.Lat) != 90 && math.Abs(b.Lat) != 90 {
			around = true // it crosses the seam
		}
	}
	if around && len(j.edges) > on {
		return false, false
	}

	// On a map an outer ring runs counterclockwise, a hole clockwise.
	r.turned = area > 0 != r.outer
	for e := range j.edges[on:] {
		j.edges[on+e].north = j.edges[on+e].north != r.turned
	}
	opened := meets && !around
	j.opened = append(j.opened, opened)
	return cut || opened, true
}

// repeats reports whether two points are one place with different names: all longitudes of a pole, or both of the seam.
func repeats(a, b Point) bool { return a != b && a.unique() == b.unique() }

// cancel removes what is on the seam twice. It reports false where edges there overlap in another way.
func (j *joining) cancel() bool {
	for i := range j.edges {
		j.lats = append(j.lats, j.edges[i].low, j.edges[i].high)
	}
	slices.Sort(j.lats)
	n := 1
	for _, lat := range j.lats {
		if lat-j.lats[n-1] >= seamWidth {
			j.lats[n] = lat
			n++
		}
	}
	j.lats = j.lats[:n]
	for side := range j.sides {
		j.sides[side] = make([]seamPart, len(j.lats)-1)
	}
	for i := range j.edges {
		e := &j.edges[i]
		for n, to := j.parts(e); n < to; n++ {
			part := &j.sides[e.side][n]
			if part.edge != 0 {
				return false
			}
			part.edge = i + 1
		}
	}
	for n := range j.sides[0] {
		east, west := &j.sides[0][n], &j.sides[1][n]
		if east.edge == 0 || west.edge == 0 {
			continue
		}
		a, b := &j.edges[east.edge-1], &j.edges[west.edge-1]
		if a.north == b.north {
			return false
		}
		east.gone, west.gone = true, true
		j.opened[a.ring], j.opened[b.ring] = true, true
	}
	return true
}

// parts returns between which latitudes an edge lies, by their numbers.
func (j *joining) parts(e *seamEdge) (from, to int) {
	return j.last(e.low), j.last(e.high)
}

// last returns the number of the last of the latitudes up to one that is not before the first.
func (j *joining) last(lat float64) int {
	n, _ := slices.BinarySearch(j.lats, math.Nextafter(lat, 91))
	return n - 1
}

// snapped returns a vertex of the seam at the latitude that stands for its own.
func (j *joining) snapped(p Point) Point {
	if math.Abs(p.Lng) == 180 && len(j.lats) > 0 && p.Lat >= j.lats[0] {
		if lat := j.lats[j.last(p.Lat)]; p.Lat-lat < seamWidth {
			p.Lat = lat
		}
	}
	return p
}

// unrepeated returns the areas, with each place once where it was repeated in a row.
func unrepeated(polygons [][]placed) [][]placed {
	all := make([][]placed, len(polygons))
	for i, rings := range polygons {
		all[i] = make([]placed, len(rings))
		for k := range rings {
			all[i][k] = once(&rings[k])
		}
	}
	return all
}

// once returns a ring, with each place once where it was repeated in a row by different names.
func once(p *placed) placed {
	before := func(i int) Point { return p.points[(i+len(p.points)-1)%len(p.points)] }
	if !slices.ContainsFunc(
		p.points, func(at Point) bool { return math.Abs(at.Lng) == 180 || math.Abs(at.Lat) == 90 },
	) {
		return *p
	}
	ring := placed{path: p.path}
	for i, at := range p.points {
		if !repeats(before(i), at) {
			ring.points, ring.origins = append(ring.points, at), append(ring.origins, origin{p, i})
		}
	}
	return ring
}

// directed is an edge that has the area to its left.
type directed struct {
	from, to Point
	origin   origin
}

// left returns what is left of the rings that were opened.
func (j *joining) left() (edges []directed) {
	seam := map[origin]*seamEdge{}
	for i := range j.edges {
		e := &j.edges[i]
		seam[origin{j.rings[e.ring].placed, e.first}] = e
	}
	for n, r := range j.rings {
		if !j.opened[n] {
			continue
		}
		points := r.placed.points
		for i, a := range points {
			a, b, at := j.snapped(a), j.snapped(points[(i+1)%len(points)]), origin{r.placed, i}
			if r.turned {
				a, b = b, a
			}
			e := seam[at]
			switch {
			case e != nil:
				for from, to := j.parts(e); from < to; from++ {
					if j.sides[e.side][from].gone {
						continue
					}
					low, high := Point{j.lats[from], a.Lng}, Point{j.lats[from+1], a.Lng}
					if !e.north {
						low, high = high, low
					}
					edges = append(edges, directed{low, high, at})
				}
			case a.unique() != b.unique(): // the same place by two names is not an edge
				edges = append(edges, directed{a, b, at})
			}
		}
	}
	return edges
}

// loops joins what is left of rings. Where several edges meet, each is followed by the one with which it encloses a
// part of the area. It reports false where they do not make loops.
func (j *joining) loops() (loops []placed, ok bool) {
	edges := j.left()
	ends, begins := map[Point][]int{}, map[Point][]int{}
	for i := range edges {
		from, to := edges[i].from.unique(), edges[i].to.unique()
		begins[from], ends[to] = append(begins[from], i), append(ends[to], i)
	}
	next := make([]int, len(edges))
	for at, in := range ends {
		out := begins[at]
		if len(in) != len(out) {
			return nil, false
		}
		if len(in) > 1 && !pair(edges, at.vector(), in, out) {
			return nil, false
		}
		for i := range in {
			next[in[i]] = out[i]
		}
	}

	done := make([]bool, len(edges))
	for first := range edges {
		if done[first] {
			continue
		}
		var line []int
		on := map[Point]int{}
		for i := first; ; i = next[i] {
			// A way that returns to a vertex is a loop of its own, such as a hole that touches its ring.
			from := edges[i].from.unique()
			if at, again := on[from]; again {
				loops = append(loops, loop(edges, line[at:]))
				for _, n := range line[at:] {
					delete(on, edges[n].from.unique())
				}
				line = line[:at]
			}
			if done[i] {
				break
			}
			done[i], on[from] = true, len(line)
			line = append(line, i)
		}
	}
	return loops, true
}

// loop returns a ring of edges that follow each other.
func loop(edges []directed, line []int) placed {
	ring := placed{path: edges[line[0]].origin.of.path}
	for _, i := range line {
		ring.points, ring.origins = append(ring.points, edges[i].from), append(ring.origins, edges[i].origin)
	}
	return ring
}

// pair puts the edges that begin in a vertex into the order of those that end there and are continued by them: each by
// the first one clockwise from where it comes from, since the area between the two is to the left of both.
func pair(edges []directed, at s2.Point, in, out []int) bool {
	x := at.Ortho()
	y := at.Cross(x)
	angle := func(p Point) float64 {
		to := p.vector().Sub(at.Vector)
		return math.Atan2(to.Dot(y), to.Dot(x))
	}
	type spoke struct {
		edge  int
		angle float64
	}
	var spokes []spoke
	for _, i := range out {
		spokes = append(spokes, spoke{i, angle(edges[i].to)})
	}
	slices.SortFunc(spokes, func(a, b spoke) int { return cmp.Compare(a.angle, b.angle) })
	used := make([]bool, len(spokes))
	for i, n := range in {
		from := angle(edges[n].from)
		k, _ := slices.BinarySearchFunc(
			spokes, from, func(s spoke, angle float64) int { return cmp.Compare(s.angle, angle) },
		)
		k = (k + len(spokes) - 1) % len(spokes)
		if used[k] {
			return false
		}
		used[k], out[i] = true, spokes[k].edge
	}
	return true
}

// nest makes polygons of loops, and of the other rings of the polygons that they come from: a loop that has the area on
// its smaller side is an outer ring, and one that has it on the larger side a hole. Polygons that were not cut stay as
// they are.
func (j *joining) nest(polygons [][]placed, loops []placed) (all [][]placed, err error) {
	// Polygons that were not cut are done. Of the others, the rings that were not cut stay as they are.
	var outer []ring
	var holes []placed
	n := 0
	for _, rings := range polygons {
		first := n
		n += len(rings)
		if !slices.Contains(j.opened[first:n], true) {
			all = append(all, unrepeated([][]placed{rings})[0])
			continue
		}
		for i := range rings {
			switch p := once(&rings[i]); {
			case j.opened[first+i]:
			case i == 0:
				r, err := newRing(p)
				if err != nil {
					return nil, err
				}
				outer = append(outer, r)
			default:
				holes = append(holes, p)
			}
		}
	}

	// A loop that newRing has not turned has the area on its smaller side.
	for _, loop := range loops {
		r, err := newRing(loop)
		switch {
		case err != nil:
			return nil, err
		case r.points[0] == loop.points[0]:
			outer = append(outer, r)
		default:
			holes = append(holes, loop)
		}
	}

	// Each hole belongs to the smallest ring around it.
	made := make([][]placed, len(outer))
	around := make([]*inside, len(outer))
	for i := range outer {
		made[i], around[i] = []placed{*outer[i].given}, outer[i].inside()
	}
	for _, hole := range holes {
		r, err := newRing(hole)
		if err != nil {
			return nil, err
		}
		in := -1
		for i := range outer {
			if (in < 0 || outer[i].area < outer[in].area) && around[i].has(&r) {
				in = i
			}
		}
		if in < 0 {
			return nil, largerSide(hole.path)
		}
		made[in] = append(made[in], hole)
	}
	if len(made) == 0 {
		return nil, largerSide(j.rings[0].placed.path)
	}
	return append(all, made...), nil
}

// largerSide is the fault of an area that goes around the Earth.
func largerSide(path string) error {
	return faultf(path, "joined at longitude 180 the area goes around the Earth, and none of its rings encloses it: an area is on the smaller side of its outer ring")
}
