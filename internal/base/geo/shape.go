package geo

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/golang/geo/r3"
	"github.com/golang/geo/s2"
)

// Shape is an area that rings enclose: polygons, each of an outer ring and the holes in it. It is immutable.
type Shape struct{ polygons [][]ring }

// ring encloses the smaller side of its vertices, which run around it counterclockwise.
type ring struct {
	points   []Point
	vertices []s2.Point
	// area is in square metres; 0 for one that was kept.
	area float64
	// origin reports that the ring encloses the fixed point from which crossings are counted.
	origin bool
	// given is what the ring was read from, nil for one that was kept.
	given *placed
}

// placed is a ring as it was given, and where.
type placed struct {
	points []Point
	path   string
	// origins, if not nil, are where the vertices of a ring were given that was put together of others.
	origins []origin
}

// at returns the path of a vertex.
func (p *placed) at(i int) string {
	if p.origins != nil {
		return indexed(p.origins[i].of.path, p.origins[i].at)
	}
	return indexed(p.path, i)
}

// NewShape returns the area that a ring encloses. The error is a *Fault.
func NewShape(points []Point) (*Shape, error) {
	if n := len(points); n > 1 && points[0].unique() == points[n-1].unique() {
		points = points[:n-1]
	}
	return newShape([][]placed{{{points: points}}})
}

// newShape returns the area of polygons, unless something is wrong with them.
func newShape(polygons [][]placed) (*Shape, error) {
	polygons, err := joined(polygons)
	if err != nil {
		return nil, err
	}

	// Each ring by itself.
	count := 0
	s := &Shape{}
	for _, rings := range polygons {
		var made []ring
		for _, p := range rings {
			if count += len(p.points); count > MaxVertices {
				return nil, tooMany(p.path)
			}
			r, err := newRing(p)
			if err != nil {
				return nil, err
			}
			made = append(made, r)
		}
		s.polygons = append(s.polygons, made)
	}

	// How the rings lie to each other. Rings that cross themselves may enclose as much on one side as on the other, so
	// crossings are checked first.
	if path, at, ok := crossing(s.polygons); ok {
		hint := ""
		if math.Abs(at.Lng) == 180 {
			hint = ": " + uncut
		}
		return nil, faultf(path, "edges of the polygon cross or touch each other near latitude %.6f, longitude %.6f%s", at.Lat, at.Lng, hint)
	}
	for _, rings := range s.polygons {
		for i := range rings {
			if rings[i].area < MinArea {
				return nil, faultf(rings[i].given.path, "the ring encloses less than %g square metre", MinArea)
			}
			if 2*math.Pi-rings[i].area/(EarthRadius*EarthRadius) < halves {
				return nil, faultf(rings[i].given.path, "the ring encloses exactly half of the Earth, and neither side is the smaller one: move a vertex, or draw two areas")
			}
		}
		if len(rings) == 1 {
			continue
		}
		outer := rings[0].inside()
		for _, hole := range rings[1:] {
			if !outer.has(&hole) {
				return nil, faultf(hole.given.path, "the hole is not inside the outer ring of its polygon, which comes first; a second area is a second polygon of a MultiPolygon")
			}
		}
	}
	return s, nil
}

// uncut says how to write areas that cross longitude 180.
const uncut = "an area across longitude 180 is one ring that crosses it, or parts that have the same edge there on both sides"

// newRing checks a ring by itself, and turns it so that it encloses the smaller side.
func newRing(p placed) (ring, error) {
	// The vertices.
	if len(p.points) < 3 {
		return ring{}, faultf(p.path, "a polygon has at least three different vertices, not %d", len(p.points))
	}
	vertices := make([]s2.Point, len(p.points))
	seen := make(map[Point]int, len(p.points))
	for i, point := range p.points {
		u := point.unique()
		if first, ok := seen[u]; ok {
			if point != p.points[first] {
				return ring{}, faultf(p.at(i), "vertex %d of the ring is the same place as vertex %d: %s", i, first, uncut)
			}
			return ring{}, faultf(p.at(i), "vertex %d of the ring is vertex %d once more: each stands once, but for the last one of a closed ring", i, first)
		}
		seen[u], vertices[i] = i, point.vector()
	}

	// The edges: each has a unique shorter arc, and none runs back along the one before it.
	n := len(vertices)
	for i, v := range vertices {
		next := vertices[(i+1)%n]
		if v.Add(next.Vector).Norm() < 1e-9 {
			return ring{}, faultf(p.at(i), "the edge behind vertex %d leads to the other side of the Earth, and no way is the shorter one: put a vertex between", i)
		}
		if folds(vertices[(i+n-1)%n], v, next) {
			return ring{}, faultf(p.at(i), "the ring turns back on itself at vertex %d, so that its edges lie on each other", i)
		}
	}

	// The smaller side of it.
	r := ring{points: p.points, vertices: vertices, given: &p}
	loop := s2.LoopFromPoints(vertices)
	area := loop.Area()
	if area > 2*math.Pi {
		r = r.reversed()
		loop = s2.LoopFromPoints(r.vertices)
		area = loop.Area()
	}
	r.area = area * EarthRadius * EarthRadius
	r.origin = loop.ContainsOrigin()
	return r, nil
}

// halves is by how much, in steradians, the sides of a ring have to differ for one of them to be the smaller: more than
// roundings.
const halves = 1e-12

// folds reports whether the edges ab and bc lie on each other.
func folds(a, b, c s2.Point) bool {
	back, on := a.Sub(b.Vector), c.Sub(b.Vector)
	// The directions in which they leave b: chords of long edges lean towards each other even where the edges go
	// straight on.
	if back.Sub(b.Mul(back.Dot(b.Vector))).Dot(on.Sub(b.Mul(on.Dot(b.Vector)))) <= 0 {
		return false
	}
	return math.Abs(plane(b, a).Dot(on.Normalize())) < 1e-12 || math.Abs(plane(b, c).Dot(back.Normalize())) < 1e-12
}

// plane returns the unit vector that is to the left of the edge ab.
func plane(a, b s2.Point) r3.Vector { return a.Add(b.Vector).Cross(b.Sub(a.Vector)).Normalize() }

func (r ring) reversed() ring {
	n := len(r.points)
	turned := ring{points: make([]Point, n), vertices: make([]s2.Point, n), given: r.given}
	for i := range n {
		turned.points[i], turned.vertices[i] = r.points[n-1-i], r.vertices[n-1-i]
	}
	return turned
}

func (r *ring) loop() *s2.Loop { return s2.LoopFromPoints(r.vertices) }

// inside is the interior of a ring, for callers that compare many rings with it.
type inside struct {
	loop  *s2.Loop
	known map[s2.Point]bool
}

func (r *ring) inside() *inside {
	in := &inside{r.loop(), make(map[s2.Point]bool, len(r.vertices))}
	for _, v := range r.vertices {
		in.known[v] = true
	}
	return in
}

// has reports whether another ring, which does not cross this one, is inside. It tests a point that is no vertex of
// this one.
func (in *inside) has(r *ring) bool {
	for _, v := range r.vertices {
		if !in.known[v] {
			return in.loop.ContainsPoint(v)
		}
	}
	return in.loop.ContainsPoint(s2.Point{Vector: r.vertices[0].Add(r.vertices[1].Vector).Normalize()})
}

// wayTo returns the path to a point from the fixed one, of which each ring counts how often it crosses it. One path
// serves all rings.
func wayTo(p s2.Point) *s2.EdgeCrosser { return s2.NewEdgeCrosser(s2.OriginPoint(), p) }

// encloses counts how often the way from the fixed point crosses the ring.
func (r *ring) encloses(way *s2.EdgeCrosser) bool {
	inside := r.origin
	way.RestartAt(r.vertices[len(r.vertices)-1])
	for _, v := range r.vertices {
		if way.EdgeOrVertexChainCrossing(v) {
			inside = !inside
		}
	}
	return inside
}

// Contains reports whether a point is in one of the polygons and in none of its holes. A point on an edge that two
// areas share is in one of them.
func (s *Shape) Contains(p Point) bool {
	way := wayTo(p.vector())
	for _, rings := range s.polygons {
		if !rings[0].encloses(way) {
			continue
		}
		inside := true
		for i := range rings[1:] {
			inside = inside && !rings[1+i].encloses(way)
		}
		if inside {
			return true
		}
	}
	return false
}

// Vertices returns how many there are, which is about what Contains costs.
func (s *Shape) Vertices() int {
	n := 0
	for _, rings := range s.polygons {
		for i := range rings {
			n += len(rings[i].points)
		}
	}
	return n
}

// maxCells is about how many cells cover a shape: some for each polygon, coarser ones where there are many.
const (
	maxCells    = 32
	cellsOfRing = 8
)

// Cells returns cells that cover the shape.
func (s *Shape) Cells() []Cell {
	var union s2.CellUnion
	each := max(1, min(cellsOfRing, maxCells/len(s.polygons)))
	coverer := s2.RegionCoverer{MaxLevel: s2.MaxLevel, LevelMod: 1, MaxCells: each}
	for _, rings := range s.polygons {
		loop := rings[0].loop()
		if len(s.polygons) > maxCells {
			// The bound is good enough where the cells are joined to larger ones anyway.
			union = append(union, coverer.FastCovering(loop)...)
			continue
		}
		union = append(union, coverer.Covering(loop)...)
	}
	union.Normalize()
	if len(union) > maxCells {
		coverer.MaxCells = maxCells
		union = coverer.Covering(&union)
	}
	return cells(union)
}

// shapeFormat is the first byte of a shape in bytes.
const shapeFormat = 1

// AppendBinary appends the shape in the form that Decode reads.
func (s *Shape) AppendBinary(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, shapeFormat), uint64(len(s.polygons)))
	for _, rings := range s.polygons {
		dst = binary.AppendUvarint(dst, uint64(len(rings)))
		for _, r := range rings {
			origin := byte(0)
			if r.origin {
				origin = 1
			}
			dst = binary.AppendUvarint(append(dst, origin), uint64(len(r.points)))
			for _, p := range r.points {
				dst = AppendPoint(dst, p)
			}
		}
	}
	return dst
}

// errShape reports bytes that are no shape.
var errShape = errors.New("geo: the bytes are no shape")

// DecodeShape reads what AppendBinary has written.
func DecodeShape(src []byte) (*Shape, error) {
	if len(src) == 0 || src[0] != shapeFormat {
		return nil, errShape
	}
	d := decoder{src: src[1:]}
	s := &Shape{}
	for range d.count() {
		var rings []ring
		for range d.count() {
			rings = append(rings, d.ring())
		}
		if len(rings) == 0 {
			return nil, errShape
		}
		s.polygons = append(s.polygons, rings)
	}
	if d.failed || len(d.src) > 0 {
		return nil, errShape
	}
	return s, nil
}

// decoder takes numbers off bytes. Once it has failed, it returns nothing.
type decoder struct {
	src    []byte
	failed bool
}

// count returns a number of things that follow, each of at least a byte.
func (d *decoder) count() int {
	n, width := binary.Uvarint(d.src)
	if width <= 0 || n > uint64(len(d.src)-width) {
		d.src, d.failed = nil, true
		return 0
	}
	d.src = d.src[width:]
	return int(n)
}

func (d *decoder) ring() ring {
	if len(d.src) == 0 {
		d.failed = true
		return ring{}
	}
	r := ring{origin: d.src[0] == 1}
	d.src = d.src[1:]
	n := d.count()
	if n < 3 || len(d.src) < n*pointBytes {
		d.src, d.failed = nil, true
		return r
	}
	r.points, r.vertices = make([]Point, n), make([]s2.Point, n)
	for i := range n {
		r.points[i], d.src = ReadBinary(d.src)
		r.vertices[i] = r.points[i].vector()
	}
	return r
}

const pointBytes = 16

// AppendPoint appends a point in the 16 bytes that ReadBinary reads.
func AppendPoint(dst []byte, p Point) []byte {
	dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(p.Lat))
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(p.Lng))
}

// ReadBinary takes a point off the front of bytes, of which there are enough.
func ReadBinary(src []byte) (Point, []byte) {
	return Point{
		math.Float64frombits(binary.BigEndian.Uint64(src)), math.Float64frombits(binary.BigEndian.Uint64(src[8:])),
	}, src[pointBytes:]
}
