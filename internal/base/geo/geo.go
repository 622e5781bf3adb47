// Package geo is the geometry of places: points and areas on the sphere that stands for the Earth. It is pure: it reads
// places out of JSON values (read.go), refuses invalid ones (shape.go, cross.go), and computes what contains what, how
// far apart things are, and which cells cover an area. Cells are those of S2: squares of six levels of detail and more,
// whose order on a line makes areas ranges of keys.
//
// Coordinates are degrees of WGS84, distances are metres. Edges of areas are the shorter arcs of great circles.
//
// The decisions behind it are in docs/internals/base.md.
package geo

import (
	"math"

	"github.com/golang/geo/r1"
	"github.com/golang/geo/r3"
	"github.com/golang/geo/s1"
	"github.com/golang/geo/s2"
)

// EarthRadius is the mean radius of the Earth in metres.
const EarthRadius = 6_371_008.8

// MaxVertices is how many vertices an area may have, in all its rings.
const MaxVertices = 10_000

// MinArea is how large a ring must be at least, in square metres.
const MinArea = 1.0

// Point is a place in degrees: latitude from -90 to 90, longitude from -180 to 180.
type Point struct{ Lat, Lng float64 }

// Valid reports whether the coordinates are in their ranges.
func (p Point) Valid() bool { return math.Abs(p.Lat) <= 90 && math.Abs(p.Lng) <= 180 }

// Distance returns how far q is from p over the sphere, in metres. Two ways to write one point are the same distance
// from everything, 0 from each other.
func (p Point) Distance(q Point) float64 {
	const radian = math.Pi / 180
	p, q = p.unique(), q.unique()
	lat, lng := math.Sin((q.Lat-p.Lat)*radian/2), math.Sin((q.Lng-p.Lng)*radian/2)
	h := lat * lat
	if math.Abs(p.Lat) != 90 && math.Abs(q.Lat) != 90 {
		// at a pole all longitudes are one; math.Cos is not quite 0 there
		h += math.Cos(p.Lat*radian) * math.Cos(q.Lat*radian) * lng * lng
	}
	return 2 * EarthRadius * math.Asin(math.Sqrt(min(1, h)))
}

// Cell returns the smallest cell that has the point.
func (p Point) Cell() Cell { return Cell{s2.CellIDFromLatLng(p.latLng())} }

// unique returns the one form of the point among those that mean the same: the date line is 180, a pole has the
// longitude 0.
func (p Point) unique() Point {
	if math.Abs(p.Lat) == 90 {
		p.Lng = 0
	}
	if p.Lng == -180 {
		p.Lng = 180
	}
	return Point{p.Lat + 0, p.Lng + 0} // there is one zero
}

func (p Point) latLng() s2.LatLng {
	p = p.unique()
	return s2.LatLngFromDegrees(p.Lat, p.Lng)
}

func (p Point) vector() s2.Point { return s2.PointFromLatLng(p.latLng()) }

// Area is a part of the sphere.
type Area interface {
	// Contains reports whether a point is in it.
	Contains(p Point) bool
	// Cells returns cells, at most some 40, that cover it.
	Cells() []Cell
	// Vertices returns how many there are, which is about what Contains costs.
	Vertices() int
}

// slack is an angle that makes up for roundings: 0.6 millimetres.
const slack = 1e-10

// Disc is the set of points at most so many metres away from a point.
type Disc struct {
	Center Point
	Radius float64
}

// Contains reports whether a point is in the disc.
func (d Disc) Contains(p Point) bool { return d.Center.Distance(p) <= d.Radius }

// Vertices returns 0.
func (Disc) Vertices() int { return 0 }

// Cells returns cells that cover the disc.
func (d Disc) Cells() []Cell {
	angle := s1.Angle(d.Radius / EarthRadius)
	// Close to the other side of the Earth distances are less exact.
	if angle += slack; angle > math.Pi-1e-6 {
		return World()
	}
	return cover(s2.CapFromCenterAngle(d.Center.vector(), angle), 8)
}

// Box is what lies between two parallels and two meridians, them included. It crosses the date line where West is
// greater than East.
type Box struct{ South, West, North, East float64 }

// Valid reports whether the sides are in their ranges, and south is not north of north.
func (b Box) Valid() bool {
	return Point{b.South, b.West}.Valid() && Point{b.North, b.East}.Valid() && b.South <= b.North
}

// Vertices returns 0: its sides are parallels and meridians.
func (Box) Vertices() int { return 0 }

// Contains reports whether a point is in the box. A pole is on all meridians, and the date line has two longitudes.
func (b Box) Contains(p Point) bool {
	if p.Lat < b.South || p.Lat > b.North {
		return false
	}
	if math.Abs(p.Lat) == 90 || b.has(p.Lng) {
		return true
	}
	return math.Abs(p.Lng) == 180 && b.has(-p.Lng)
}

// has reports whether a meridian passes through the box.
func (b Box) has(lng float64) bool {
	if b.West > b.East {
		return lng >= b.West || lng <= b.East
	}
	return lng >= b.West && lng <= b.East
}

// polar is an angle around a pole, of some 60 metres, in which the edges of boxes along parallels are not exact enough
// to be compared with cells.
const polar = 1e-5

// Cells returns cells that cover the box.
func (b Box) Cells() []Cell {
	const radian = math.Pi / 180
	east := b.East
	if east == -180 && b.West > 0 {
		east = 180 // from 180 to -180 is the date line, not nothing
	}
	rect := s2.Rect{
		Lat: r1.Interval{Lo: b.South * radian, Hi: b.North * radian}.Expanded(slack),
		Lng: s1.IntervalFromEndpoints(b.West*radian, east*radian).Expanded(slack),
	}

	// Where the box comes close to a pole all that is around the pole, and the rest of the box.
	var union s2.CellUnion
	if rect.Lat.Hi > math.Pi/2-polar {
		union, rect.Lat.Hi = append(union, around(1)...), math.Pi/2-polar
	}
	if rect.Lat.Lo < polar-math.Pi/2 {
		union, rect.Lat.Lo = append(union, around(-1)...), polar-math.Pi/2
	}
	if !rect.Lat.IsEmpty() {
		union = append(union, covering(rect, 16)...)
	}
	union.Normalize() // no cell stands twice
	return cells(union)
}

// around returns cells that cover what is around a pole.
func around(z float64) s2.CellUnion {
	return covering(s2.CapFromCenterAngle(s2.Point{Vector: r3.Vector{Z: z}}, 2*polar), 4)
}

// cover returns about so many cells, at most, that cover a region.
func cover(region s2.Region, most int) []Cell { return cells(covering(region, most)) }

func covering(region s2.Region, most int) s2.CellUnion {
	coverer := s2.RegionCoverer{MaxLevel: s2.MaxLevel, LevelMod: 1, MaxCells: most}
	return coverer.Covering(region)
}

func cells(union s2.CellUnion) []Cell {
	all := make([]Cell, len(union))
	for i, id := range union {
		all[i] = Cell{id}
	}
	return all
}
