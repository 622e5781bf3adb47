package geo

import (
	"cmp"
	"math"
	"slices"

	"github.com/golang/geo/r3"
	"github.com/golang/geo/s2"
)

// crossing finds edges of rings that cross each other or, within one ring, touch. It returns a path to one of them, and
// the point.
//
// A meridian sweeps over the sphere, which was turned so that the poles are nowhere special, and meets edges in order
// from south to north. Edges that cross are neighbours just before, so that only neighbours are compared (Shamos and
// Hoey): for n vertices that takes n log n. Rings may share vertices in which they do not cross.
func crossing(polygons [][]ring) (path string, at Point, found bool) {
	s := newSweep(polygons)
	if i, ok := s.meeting(); ok {
		return s.edges[i].path(), s.edges[i].where(), true
	}
	if i, ok := s.run(); ok {
		return s.edges[i].path(), s.edges[i].where(), true
	}
	return "", Point{}, false
}

// rounding is how far from the plane of an edge a point is taken to be on it: some six nanometres.
const rounding = 1e-15

// edge is an edge from its western to its eastern vertex.
type edge struct {
	west, east int // of sweep.vertices
	// ring numbers the rings.
	ring int
	// given is the ring as it was given, first the number of the vertex in it from which the edge was drawn.
	given *placed
	first int
	// left is to the north of the edge.
	left r3.Vector
}

func (e *edge) path() string { return e.given.at(e.first) }
func (e *edge) where() Point { return e.given.points[e.first] }

// vertex is a vertex, once for all the rings that have it.
type vertex struct {
	at  s2.Point
	lng float64
	// ends are the edges that the vertex has.
	ends []int32
}

// sweep is the state of one search.
type sweep struct {
	vertices []vertex
	edges    []edge
	tree     tree
	// steps counts comparisons.
	steps int
}

// newSweep turns the sphere and finds out which end of each edge is the western one.
func newSweep(polygons [][]ring) *sweep {
	s := &sweep{}
	known := map[Point]int{}
	// The axes are arbitrary, so that no chart has them.
	z := r3.Vector{X: 0.2673912, Y: -0.5617033, Z: 0.7829358}.Normalize()
	x := z.Cross(r3.Vector{X: 0.8017837, Y: 0.2672612, Z: -0.5345224}).Normalize()
	y := z.Cross(x)
	numbered := 0
	for _, rings := range polygons {
		for _, r := range rings {
			numbered++
			n := len(r.points)
			ids := make([]int, n)
			for k, p := range r.points {
				id, ok := known[p.unique()]
				if !ok {
					id = len(s.vertices)
					known[p.unique()] = id
					v := r.vertices[k]
					turned := s2.Point{Vector: r3.Vector{X: v.Dot(x), Y: v.Dot(y), Z: v.Dot(z)}}
					s.vertices = append(s.vertices, vertex{at: turned, lng: math.Atan2(turned.Y, turned.X)})
				}
				ids[k] = id
			}
			ahead := r.points[0] == r.given.points[0]
			for k := range n {
				e := edge{ring: numbered, first: k, given: r.given}
				if !ahead {
					e.first = n - 1 - k
				}
				s.add(ids[k], ids[(k+1)%n], e)
			}
		}
	}
	return s
}

// add adds an edge between two vertices.
func (s *sweep) add(a, b int, e edge) {
	by := s.vertices[b].lng - s.vertices[a].lng
	if by > math.Pi {
		by -= 2 * math.Pi
	} else if by < -math.Pi {
		by += 2 * math.Pi
	}
	e.west, e.east = a, b
	if by < 0 || by == 0 && s.vertices[a].at.Z > s.vertices[b].at.Z {
		e.west, e.east = b, a
	}
	e.left = plane(s.vertices[e.west].at, s.vertices[e.east].at)
	n := int32(len(s.edges))
	s.edges = append(s.edges, e)
	s.vertices[a].ends, s.vertices[b].ends = append(s.vertices[a].ends, n), append(s.vertices[b].ends, n)
}

// meeting finds a vertex in which rings cross each other: going around it, the two edges of one ring enclose those of
// another one, or none of them.
func (s *sweep) meeting() (int, bool) {
	for id := range s.vertices {
		v := &s.vertices[id]
		if len(v.ends) <= 2 {
			continue
		}

		// The edges in their order around the vertex.
		north := v.at.Ortho()
		east := v.at.Cross(north)
		type spoke struct {
			edge  int32
			angle float64
		}
		spokes := make([]spoke, len(v.ends))
		for i, n := range v.ends {
			e := &s.edges[n]
			to := s.vertices[e.west+e.east-id].at.Sub(v.at.Vector)
			spokes[i] = spoke{n, math.Atan2(to.Dot(north), to.Dot(east))}
		}
		slices.SortFunc(spokes, func(a, b spoke) int { return cmp.Compare(a.angle, b.angle) })

		// Two edges of a ring are a pair of brackets.
		var open []int
		for i, sp := range spokes {
			if i > 0 && sp.angle-spokes[i-1].angle < 1e-12 {
				return int(sp.edge), true
			}
			ring := s.edges[sp.edge].ring
			switch n := len(open); {
			case n > 0 && open[n-1] == ring:
				open = open[:n-1]
			case slices.Contains(open, ring) || n > maxMeeting:
				return int(sp.edge), true
			default:
				open = append(open, ring)
			}
		}
	}
	return 0, false
}

// maxMeeting is how many rings may enclose each other in one vertex.
const maxMeeting = 100

// run lets the meridian go around once. It returns an edge that crosses another one.
func (s *sweep) run() (int, bool) {
	s.tree.init(len(s.edges))

	// The edges that it meets at first, from south to north.
	type start struct {
		edge int32
		lat  float64
	}
	var first []start
	for i := range s.edges {
		if e := &s.edges[i]; s.passes(e) {
			first = append(first, start{int32(i), e.left.X / e.left.Z})
		}
	}
	slices.SortFunc(first, func(a, b start) int { return cmp.Compare(a.lat, b.lat) })
	for i := range first {
		s.tree.insert(first[i].edge, s.tree.last(), none)
		if i > 0 && s.cross(first[i-1].edge, first[i].edge) {
			return int(first[i].edge), true
		}
	}

	// The vertices, from west to east.
	order := make([]int, len(s.vertices))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(
			cmp.Compare(s.vertices[a].lng, s.vertices[b].lng), cmp.Compare(s.vertices[a].at.Z, s.vertices[b].at.Z),
		)
	})
	for _, id := range order {
		for _, n := range s.vertices[id].ends {
			if s.edges[n].east != id {
				continue
			}
			below, above := s.tree.remove(n)
			if below != none && above != none && s.cross(below, above) {
				return int(below), true
			}
		}
		for _, n := range s.vertices[id].ends {
			if s.edges[n].west != id {
				continue
			}
			below, above := s.place(n)
			s.tree.insert(n, below, above)
			if below != none && s.cross(below, n) || above != none && s.cross(n, above) {
				return int(n), true
			}
		}
	}
	return 0, false
}

// passes reports whether an edge crosses the meridian at which the sweep begins.
func (s *sweep) passes(e *edge) bool { return s.vertices[e.west].lng > s.vertices[e.east].lng }

// place finds the neighbours of an edge whose western vertex the sweep has come to.
func (s *sweep) place(n int32) (below, above int32) {
	below, above = none, none
	e := &s.edges[n]
	for at := s.tree.root; at != none; {
		s.steps++
		if s.isAbove(e, n, at) {
			below, at = at, s.tree.nodes[at].right
		} else {
			above, at = at, s.tree.nodes[at].left
		}
	}
	return below, above
}

// isAbove reports whether an edge begins to the north of another one.
func (s *sweep) isAbove(e *edge, n, other int32) bool {
	o := &s.edges[other]
	side := 0.0
	if e.west != o.west && e.west != o.east {
		side = s.side(o, e.west)
	}
	if math.Abs(side) <= rounding {
		side = s.side(o, e.east) // it begins on it
	}
	if side == 0 {
		return n > other
	}
	return side > 0
}

// side returns how far north of the plane of an edge a vertex is: of the near end, for exactness.
func (s *sweep) side(e *edge, id int) float64 {
	p, w, o := s.vertices[id].at, s.vertices[e.west].at, s.vertices[e.east].at
	if p.Sub(w.Vector).Norm2() > p.Sub(o.Vector).Norm2() {
		w = o
	}
	return e.left.Dot(p.Sub(w.Vector))
}

// cross reports whether two edges cross, or whether a vertex of one is on the other one of the same ring.
func (s *sweep) cross(i, j int32) bool {
	s.steps++
	a, b := &s.edges[i], &s.edges[j]
	if a.west == b.west || a.west == b.east || a.east == b.west || a.east == b.east {
		return false
	}
	w, e := s.side(a, b.west), s.side(a, b.east)
	x, y := s.side(b, a.west), s.side(b, a.east)
	if math.Abs(w) <= rounding || math.Abs(e) <= rounding || math.Abs(x) <= rounding || math.Abs(y) <= rounding {
		return a.ring == b.ring &&
			(s.on(a, b.west, w) || s.on(a, b.east, e) || s.on(b, a.west, x) || s.on(b, a.east, y))
	}
	// All four triangles have the same orientation, so that the arcs themselves meet, and not their continuations
	// around the sphere.
	return w < 0 && e > 0 && x > 0 && y < 0 || w > 0 && e < 0 && x < 0 && y > 0
}

// on reports whether a vertex that is so far from the plane of an edge is on the edge.
func (s *sweep) on(e *edge, id int, side float64) bool {
	p, w, o := s.vertices[id].at, s.vertices[e.west].at, s.vertices[e.east].at
	return math.Abs(side) <= rounding && p.Sub(w.Vector).Dot(p.Sub(o.Vector)) <= 0
}

// none is no node of a tree.
const none int32 = -1

// tree holds edges from south to north: a treap, whose nodes are numbered like the edges.
type tree struct {
	root  int32
	nodes []node
	seed  uint64
}

type node struct {
	left, right, parent int32
	below, above        int32
	priority            uint64
}

func (t *tree) init(n int) {
	t.root, t.nodes, t.seed = none, make([]node, n), 0x9e3779b97f4a7c15
}

// last returns the northernmost edge.
func (t *tree) last() int32 {
	at := t.root
	for at != none && t.nodes[at].right != none {
		at = t.nodes[at].right
	}
	return at
}

// insert puts an edge between two neighbours, of which one has a free place on that side.
func (t *tree) insert(n, below, above int32) {
	t.seed ^= t.seed << 13
	t.seed ^= t.seed >> 7
	t.seed ^= t.seed << 17
	t.nodes[n] = node{left: none, right: none, parent: none, below: below, above: above, priority: t.seed}
	if below != none {
		t.nodes[below].above = n
	}
	if above != none {
		t.nodes[above].below = n
	}
	switch {
	case below != none && t.nodes[below].right == none:
		t.nodes[below].right, t.nodes[n].parent = n, below
	case above != none:
		t.nodes[above].left, t.nodes[n].parent = n, above
	default:
		t.root = n
	}
	for p := t.nodes[n].parent; p != none && t.nodes[p].priority < t.nodes[n].priority; p = t.nodes[n].parent {
		t.lift(n)
	}
}

// lift rotates a node above its parent.
func (t *tree) lift(n int32) {
	p := t.nodes[n].parent
	g := t.nodes[p].parent
	var moved int32
	if t.nodes[p].left == n {
		moved = t.nodes[n].right
		t.nodes[p].left, t.nodes[n].right = moved, p
	} else {
		moved = t.nodes[n].left
		t.nodes[p].right, t.nodes[n].left = moved, p
	}
	if moved != none {
		t.nodes[moved].parent = p
	}
	t.nodes[p].parent = n
	t.replace(g, p, n)
}

// replace makes n the child of p that old was, or the root.
func (t *tree) replace(p, old, n int32) {
	if n != none {
		t.nodes[n].parent = p
	}
	switch {
	case p == none:
		t.root = n
	case t.nodes[p].left == old:
		t.nodes[p].left = n
	default:
		t.nodes[p].right = n
	}
}

// remove takes an edge out and returns its neighbours.
func (t *tree) remove(n int32) (below, above int32) {
	for t.nodes[n].left != none && t.nodes[n].right != none {
		left, right := t.nodes[n].left, t.nodes[n].right
		if t.nodes[left].priority > t.nodes[right].priority {
			t.lift(left)
		} else {
			t.lift(right)
		}
	}
	child := t.nodes[n].left
	if child == none {
		child = t.nodes[n].right
	}
	t.replace(t.nodes[n].parent, n, child)
	below, above = t.nodes[n].below, t.nodes[n].above
	if below != none {
		t.nodes[below].above = above
	}
	if above != none {
		t.nodes[above].below = below
	}
	return below, above
}
