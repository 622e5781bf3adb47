package geo

import (
	"cmp"
	"math"
	"slices"
)

// Cut returns the vertices of the polygons as GeoJSON has them on a map from longitude -180 to 180: each ring closed,
// the outer ones counterclockwise and holes clockwise, with polygons cut along longitude 180 that cross it, and
// followed along the upper or lower edge of the map where they have a pole (section 3.1.9 of RFC 7946).
func (s *Shape) Cut() [][][]Point {
	var all [][][]Point
	for _, rings := range s.polygons {
		c := cutting{}
		for i := range rings {
			c.draw(&rings[i], i == 0)
		}
		all = append(all, c.polygons()...)
	}
	return all
}

// cutting draws one polygon on a map.
type cutting struct {
	// outer and holes are the rings that lie on the map as they are, lines what others become that leave it: each
	// begins and ends at the edge of the map, and has the area to its left.
	outer, holes, lines [][]Point
}

// draw adds a ring: the outer one, or a hole.
func (c *cutting) draw(r *ring, outer bool) {
	points := r.points
	if !outer {
		points = r.reversed().points
	}
	var lines [][]Point
	var line []Point
	add := func(from, to Point) {
		if n := len(line); n > 0 && line[n-1] != from {
			lines, line = append(lines, line), nil
		}
		if len(line) == 0 {
			line = append(line, from)
		}
		line = append(line, to)
	}
	for i, a := range points {
		eachDrawn(onSeam(a), onSeam(points[(i+1)%len(points)]), add)
	}

	// The last line goes on with the first one, unless the ring begins at the edge of the map.
	first := line
	if len(lines) > 0 {
		first = lines[0]
	}
	switch {
	case line[len(line)-1] != first[0]:
		lines = append(lines, line)
	case len(lines) == 0:
		// Where longitude 180 is in the ring, all of it, the ring has the outside of what it encloses on the map.
		if outer != r.encloses(wayTo(Point{Lng: 180}.vector())) {
			c.outer = append(c.outer, line)
		} else {
			c.holes = append(c.holes, line)
		}
		return
	default:
		lines[0] = append(line, first[1:]...)
	}
	c.lines = append(c.lines, lines...)
}

// seamWidth is how far from longitude 180, in degrees, a vertex is taken to lie on it, and how far two of them are
// taken to be one: 0.1 millimetres. Programs that cut areas compute each side by itself.
const seamWidth = 1e-9

// onSeam returns a vertex at longitude 180 or -180 where it is close to that.
func onSeam(p Point) Point {
	if math.Abs(p.Lng) > 180-seamWidth {
		p.Lng = math.Copysign(180, p.Lng)
	}
	return p
}

// eachDrawn calls do with the edges that an edge is on the map: two where it crosses longitude 180 or a pole.
func eachDrawn(a, b Point, do func(from, to Point)) {
	switch poleA, poleB := math.Abs(a.Lat) == 90, math.Abs(b.Lat) == 90; {
	case poleA:
		a.Lng = b.Lng
	case poleB:
		b.Lng = a.Lng
	}
	seamA, seamB := math.Abs(a.Lng) == 180, math.Abs(b.Lng) == 180
	switch across := math.Abs(a.Lng - b.Lng); {
	case seamA && seamB:
		// The area is to the west of what leads north, and to the east of what leads south.
		a.Lng = math.Copysign(180, b.Lat-a.Lat)
		b.Lng = a.Lng
	case across == 180:
		pole := math.Copysign(90, a.Lat+b.Lat)
		eachDrawn(a, Point{pole, a.Lng}, do)
		eachDrawn(Point{pole, b.Lng}, b, do)
		return
	case seamA:
		a.Lng = math.Copysign(180, b.Lng)
	case seamB:
		b.Lng = math.Copysign(180, a.Lng)
	case across > 180:
		// Where the plane of the edge meets the half plane of longitude 180.
		n := plane(a.vector(), b.vector())
		lat := math.Atan(n.X/n.Z) * 180 / math.Pi
		do(a, Point{lat, math.Copysign(180, a.Lng)})
		do(Point{lat, math.Copysign(180, b.Lng)}, b)
		return
	}
	do(a, b)
}

// corners are those of the map, in the order in which its edge runs with the map to the left.
var corners = [...]Point{{-90, -180}, {-90, 180}, {90, 180}, {90, -180}} //nolint:gochecknoglobals // a constant

// edgeAt returns how far along the edge of the map a point of the edge is, from the first corner on.
func edgeAt(p Point) float64 {
	switch {
	case p.Lat == -90:
		return p.Lng + 180
	case p.Lng == 180 && p.Lat < 90:
		return 360 + p.Lat + 90
	case p.Lat == 90:
		return 540 + 180 - p.Lng
	default:
		return 900 + 90 - p.Lat
	}
}

// polygons returns what was drawn: lines are closed along the edge of the map, with the area to their left as well.
func (c *cutting) polygons() [][][]Point {
	outer := append(c.outer, c.closed()...)
	if len(outer) == 0 {
		outer = append(outer, append(slices.Clone(corners[:]), corners[0])) // all of the map but for the holes
	}

	made := make([][][]Point, len(outer))
	for i := range outer {
		made[i] = [][]Point{outer[i]}
	}
	for _, hole := range c.holes {
		in := 0
		for in < len(outer)-1 && !surrounds(outer[in], hole[0]) {
			in++
		}
		made[in] = append(made[in], hole)
	}

	// Long edges are not straight on a map, so a ring may run the other way round there.
	for _, rings := range made {
		for i, ring := range rings {
			if signed(ring) > 0 != (i == 0) {
				slices.Reverse(ring)
			}
		}
	}
	return made
}

// closed returns the rings that the lines make with the edge of the map.
func (c *cutting) closed() (rings [][]Point) {
	type begin struct {
		line int
		at   float64
	}
	begins := make([]begin, len(c.lines))
	for i, line := range c.lines {
		begins[i] = begin{i, edgeAt(line[0])}
	}
	slices.SortFunc(begins, func(a, b begin) int { return cmp.Compare(a.at, b.at) })

	// A line is followed by the first one that begins after its end.
	next := make([]int, len(c.lines))
	used := make([]bool, len(c.lines))
	for i, line := range c.lines {
		n, _ := slices.BinarySearchFunc(
			begins, edgeAt(line[len(line)-1]), func(b begin, at float64) int { return cmp.Compare(b.at, at) },
		)
		for used[n%len(begins)] {
			n++
		}
		used[n%len(begins)], next[i] = true, begins[n%len(begins)].line
	}

	done := make([]bool, len(c.lines))
	for first := range c.lines {
		var made []Point
		for i := first; !done[i]; i = next[i] {
			done[i] = true
			if made == nil {
				made = slices.Clone(c.lines[i])
			} else {
				made = append(made, c.lines[i][1:]...) // which begins where the way along the edge has ended
			}
			made = along(made, c.lines[next[i]][0])
		}
		if made != nil {
			rings = append(rings, made)
		}
	}
	return rings
}

// along follows the edge of the map to a point.
func along(line []Point, to Point) []Point {
	last := line[len(line)-1]
	from, end := edgeAt(last), edgeAt(to)
	if end < from {
		end += 1080
	}
	for round := range 2 {
		for _, corner := range corners {
			if at := edgeAt(corner) + float64(1080*round); from < at && at < end {
				line = append(line, corner)
			}
		}
	}
	if line[len(line)-1] != to {
		line = append(line, to)
	}
	return line
}

// signed returns twice the area that a closed ring has on the map, in square degrees: less than 0 where it runs
// clockwise.
func signed(ring []Point) (area float64) {
	for i, a := range ring[:len(ring)-1] {
		area += a.Lng*ring[i+1].Lat - ring[i+1].Lng*a.Lat
	}
	return area
}

// surrounds reports whether a closed ring on the map has a point in it.
func surrounds(ring []Point, p Point) (in bool) {
	for i, a := range ring[:len(ring)-1] {
		b := ring[i+1]
		if a.Lat > p.Lat != (b.Lat > p.Lat) && p.Lng < a.Lng+(p.Lat-a.Lat)/(b.Lat-a.Lat)*(b.Lng-a.Lng) {
			in = !in
		}
	}
	return in
}
