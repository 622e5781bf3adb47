package geo_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/geo"
	"j17/internal/base/value"
)

// vector is a place as a unit vector, computed without the package.
type vector [3]float64

func unit(p geo.Point) vector {
	lat, lng := p.Lat*math.Pi/180, p.Lng*math.Pi/180
	return vector{math.Cos(lat) * math.Cos(lng), math.Cos(lat) * math.Sin(lng), math.Sin(lat)}
}

func (a vector) dot(b vector) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

func (a vector) cross(b vector) vector {
	return vector{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
}

func (a vector) norm() float64 { return math.Sqrt(a.dot(a)) }

func degrees(v vector) geo.Point {
	return geo.Point{
		Lat: math.Atan2(v[2], math.Hypot(v[0], v[1])) * 180 / math.Pi, Lng: math.Atan2(v[1], v[0]) * 180 / math.Pi,
	}
}

// away returns the place so far from p, in radians, in a direction.
func away(p geo.Point, direction, angle float64) geo.Point {
	v := unit(p)
	axis := vector{0, 0, 1}
	if math.Abs(v[2]) > 0.9 {
		axis = vector{1, 0, 0}
	}
	east := axis.cross(v)
	n := east.norm()
	east = vector{east[0] / n, east[1] / n, east[2] / n}
	north := v.cross(east)
	var out vector
	for i := range out {
		out[i] = v[i]*math.Cos(angle) + math.Sin(angle)*(east[i]*math.Cos(direction)+north[i]*math.Sin(direction))
	}
	return degrees(out)
}

// winding counts how often a ring runs around p, seen from p.
func winding(ring []geo.Point, p geo.Point) int {
	v := unit(p)
	axis := vector{0, 0, 1}
	if math.Abs(v[2]) > 0.9 {
		axis = vector{1, 0, 0}
	}
	east := axis.cross(v)
	north := v.cross(east)
	sum, n := 0.0, len(ring)
	direction := func(q geo.Point) float64 {
		w := unit(q)
		return math.Atan2(w.dot(north)*east.norm(), w.dot(east)*north.norm())
	}
	for i := range ring {
		by := direction(ring[(i+1)%n]) - direction(ring[i])
		sum += math.Remainder(by, 2*math.Pi)
	}
	return int(math.Round(sum / (2 * math.Pi)))
}

// clear reports whether p is at least some millimetres away from each edge of a ring.
func clear(ring []geo.Point, p geo.Point) bool {
	v := unit(p)
	for i := range ring {
		a, b := unit(ring[i]), unit(ring[(i+1)%len(ring)])
		n := a.cross(b)
		if math.Abs(n.dot(v))/n.norm() < 1e-9 {
			return false
		}
	}
	return true
}

// anywhere draws a place, more often than not where something is special: at the poles, the date line, borders of
// cells.
func anywhere() *rapid.Generator[geo.Point] {
	return rapid.Custom(func(t *rapid.T) geo.Point {
		lat := rapid.SampledFrom([]float64{
			90, -90, 89.9999, -89.9, 0, 45, 35.264389682754654, rapid.Float64Range(-90, 90).Draw(t, "lat"),
		}).Draw(t, "a lat")
		lng := rapid.SampledFrom([]float64{
			180, -180, 179.9999, -179.9999, 0, 45, -135, 90, rapid.Float64Range(-180, 180).Draw(t, "lng"),
		}).Draw(t, "a lng")
		p := geo.Point{Lat: lat, Lng: lng}
		if rapid.Bool().Draw(t, "beside") {
			p = away(
				p, rapid.Float64Range(0, 2*math.Pi).Draw(t, "direction"),
				math.Pow(10, rapid.Float64Range(-7, -0.5).Draw(t, "how far")),
			)
		}
		return p
	})
}

// star draws a ring around a place in which every ray from there meets it once: no edges cross.
func star(t *rapid.T, center geo.Point, size float64) []geo.Point {
	n := rapid.IntRange(3, 60).Draw(t, "vertices")
	ring := make([]geo.Point, n)
	for i := range ring {
		direction := 2 * math.Pi * (float64(i) + rapid.Float64Range(0, 0.6).Draw(t, "turn")) / float64(n)
		ring[i] = away(center, direction, size*rapid.Float64Range(0.4, 1).Draw(t, "reach"))
	}
	return ring
}

func covered(cells []geo.Cell, p geo.Point) bool {
	leaf := p.Cell().Name()
	for _, c := range cells {
		if first, last := c.Range(); first <= leaf && leaf <= last {
			return true
		}
	}
	return false
}

// TestContainsAgreesWithAWindingNumber compares shapes with a naive evaluator, on both sides of their edges, and sees
// that the cells of a shape have all that is in it, whichever way round it was drawn.
func TestContainsAgreesWithAWindingNumber(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		center := anywhere().Draw(t, "center")
		size := math.Pow(10, rapid.Float64Range(-5.5, 0).Draw(t, "size"))
		ring := star(t, center, size)
		backward := make([]geo.Point, len(ring))
		for i := range ring {
			backward[len(ring)-1-i] = ring[i]
		}
		s, err := geo.NewShape(ring)
		b, err2 := geo.NewShape(backward)
		if err != nil || err2 != nil {
			t.Fatalf("%v, %v: %v", ring, err, err2)
		}
		kept, err := geo.DecodeShape(s.AppendBinary(nil))
		if err != nil {
			t.Fatal(err)
		}
		cells := s.Cells()
		if len(cells) > 40 {
			t.Errorf("%d cells", len(cells))
		}
		for range 20 {
			p := away(
				center, rapid.Float64Range(0, 2*math.Pi).Draw(t, "direction"),
				size*rapid.Float64Range(0, 1.5).Draw(t, "how far"),
			)
			if !clear(ring, p) {
				continue
			}
			want := winding(ring, p) != 0
			if got := s.Contains(p); got != want || b.Contains(p) != want || kept.Contains(p) != want {
				t.Fatalf("%v in %v: %t, backward %t, kept %t; the winding number says %t", p, ring, got, b.Contains(p), kept.Contains(p), want)
			}
			if want && !covered(cells, p) {
				t.Fatalf("%v in %v is in none of the cells", p, ring)
			}
		}
	})
}

// TestCrossingEdgesAreFound compares with the look at all pairs of edges.
func TestCrossingEdgesAreFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		center := anywhere().Draw(t, "center")
		size := math.Pow(10, rapid.Float64Range(-4, -0.2).Draw(t, "size"))
		ring := star(t, center, size)
		for range rapid.IntRange(0, 3).Draw(t, "swaps") {
			i, j := rapid.IntRange(0, len(ring)-1).Draw(t, "i"), rapid.IntRange(0, len(ring)-1).Draw(t, "j")
			ring[i], ring[j] = ring[j], ring[i]
		}
		want, near := crosses(ring)
		_, err := geo.NewShape(ring)
		if near {
			return
		}
		if (err != nil) != want {
			t.Fatalf("%v: %v, but crossing edges: %t", ring, err, want)
		}
	})
}

// crosses looks at all pairs of edges; near reports that one is too close a case for it.
func crosses(ring []geo.Point) (found, near bool) {
	n := len(ring)
	side := func(a, b, p vector) float64 { c := a.cross(b); return c.dot(p) / c.norm() }
	for i := range ring {
		for j := i + 2; j < n; j++ {
			if i == 0 && j == n-1 {
				continue
			}
			a, b, c, d := unit(ring[i]), unit(ring[i+1]), unit(ring[j]), unit(ring[(j+1)%n])
			x, y, z, w := side(a, b, c), side(a, b, d), side(c, d, a), side(c, d, b)
			near = near || min(math.Abs(x), math.Abs(y), math.Abs(z), math.Abs(w)) < 1e-11
			if x < 0 && y > 0 && z > 0 && w < 0 || x > 0 && y < 0 && z < 0 && w > 0 {
				found = true
			}
		}
	}
	return found, near
}

// TestAreasAreCovered sees that the cells of boxes and discs have all that is in them.
func TestAreasAreCovered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anywhere().Draw(t, "a"), anywhere().Draw(t, "b")
		box := geo.Box{South: min(a.Lat, b.Lat), North: max(a.Lat, b.Lat), West: a.Lng, East: b.Lng}
		disc := geo.Disc{Center: a, Radius: math.Pow(10, rapid.Float64Range(0, 7.4).Draw(t, "radius"))}
		in, on := box.Cells(), disc.Cells()
		for i := range 20 {
			p := anywhere().Draw(t, "p")
			if i%2 == 0 {
				p = away(
					a, rapid.Float64Range(0, 2*math.Pi).Draw(t, "direction"),
					disc.Radius/geo.EarthRadius*rapid.Float64Range(0.9, 1.01).Draw(t, "how far"),
				)
			}
			if box.Contains(p) && !covered(in, p) {
				t.Fatalf("%v is in %v, and in none of its cells", p, box)
			}
			if disc.Contains(p) && !covered(on, p) {
				t.Fatalf("%v is in %v, and in none of its cells", p, disc)
			}
		}
	})
}

func TestBoxes(t *testing.T) {
	t.Parallel()
	across := geo.Box{South: -10, North: 10, West: 170, East: -170}
	narrow := geo.Box{South: 50, North: 60, West: 179, East: 180}
	top := geo.Box{South: 80, North: 90, West: 10, East: 20}
	for _, c := range []struct {
		box  geo.Box
		p    geo.Point
		want bool
	}{
		{across, geo.Point{Lat: 0, Lng: 175}, true},
		{across, geo.Point{Lat: 10, Lng: -170}, true},
		{across, geo.Point{Lat: 0, Lng: 0}, false},
		{across, geo.Point{Lat: 10.001, Lng: 180}, false},
		{narrow, geo.Point{Lat: 55, Lng: -180}, true},
		{narrow, geo.Point{Lat: 55, Lng: 178}, false},
		{geo.Box{South: 0, North: 45, West: 180, East: -180}, geo.Point{Lat: 1, Lng: 180}, true},
		{geo.Box{South: 0, North: 45, West: 0, East: -180}, geo.Point{Lat: 1, Lng: -180}, true},
		{top, geo.Point{Lat: 90, Lng: -100}, true},
		{top, geo.Point{Lat: 85, Lng: 21}, false},
		// The sides are parallels: the arc between the upper corners is farther north than they are.
		{geo.Box{South: 40, North: 50, West: 0, East: 90}, geo.Point{Lat: 51, Lng: 45}, false},
	} {
		if got := c.box.Contains(c.p); got != c.want {
			t.Errorf("%v in %v: %t", c.p, c.box, got)
		}
		if c.want && !covered(c.box.Cells(), c.p) {
			t.Errorf("%v is in none of the cells of %v", c.p, c.box)
		}
	}
}

// TestDistancesOfOnePoint writes one point in two ways: each is as far away as the other, and nothing is between them.
func TestDistancesOfOnePoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ p, q geo.Point }{
		{geo.Point{Lat: 0, Lng: 180}, geo.Point{Lat: 0, Lng: -180}},
		{geo.Point{Lat: -33.3, Lng: 180}, geo.Point{Lat: -33.3, Lng: -180}},
		{geo.Point{Lat: 90, Lng: 0}, geo.Point{Lat: 90, Lng: 90}},
		{geo.Point{Lat: -90, Lng: 13}, geo.Point{Lat: -90, Lng: -180}},
		{geo.Point{Lat: 0, Lng: 0}, geo.Point{Lat: math.Copysign(0, -1), Lng: math.Copysign(0, -1)}},
	} {
		if d := c.p.Distance(c.q); d != 0 {
			t.Errorf("%v is %g m from %v", c.q, d, c.p)
		}
		for _, from := range []geo.Point{
			{Lat: 50, Lng: 10}, {Lat: 0.001, Lng: 179.999}, {Lat: -89, Lng: -100}, {Lat: 90, Lng: 1},
		} {
			if a, b := from.Distance(c.p), from.Distance(c.q); a != b || a != c.q.Distance(from) {
				t.Errorf("%v is %g m from %v, and %v %g", c.p, a, from, c.q, b)
			}
		}
	}

	// What is on one parallel is as far from the pole.
	for lng := -180.0; lng <= 180; lng += 0.5 {
		if a, b := (geo.Point{Lat: 90}).Distance(geo.Point{
			Lat: 12.34, Lng: lng,
		}), (geo.Point{Lat: 90}).Distance(geo.Point{Lat: 12.34}); a != b {
			t.Errorf("%g is %g m from the pole, not %g", lng, a, b)
		}
	}
}

// TestReachBounds sees that what is in a cell is as far away as is said of the cell.
func TestReachBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, q := anywhere().Draw(t, "p"), anywhere().Draw(t, "q")
		if rapid.IntRange(0, 3).Draw(t, "opposite") == 0 {
			p = geo.Point{Lat: -q.Lat, Lng: q.Lng - math.Copysign(180, q.Lng)}
		}
		d := p.Distance(q)
		around := q.Cell().Around()
		if len(around) != 31 || around[30] != q.Cell() {
			t.Fatalf("%d cells", len(around))
		}
		for _, c := range around {
			near, far := c.Reach(p)
			if d < near || d > far {
				t.Fatalf("%v is %g m from %v, and its cell %s from %g to %g", q, d, p, c.Name(), near, far)
			}
			if named, ok := geo.CellNamed(c.Name()); !ok || named != c {
				t.Fatalf("%s is not the cell of its name", c.Name())
			}
		}
		if near, far := q.Cell().Reach(p); far-near > 3 {
			t.Errorf("the bounds of the smallest cell are %g and %g", near, far)
		}
		a, b := unit(p), unit(q)
		if want := geo.EarthRadius * math.Atan2(a.cross(b).norm(), a.dot(b)); math.Abs(want-d) > 1+want*1e-9 {
			t.Errorf("%v is %g m from %v, not %g", q, d, p, want)
		}
	})
}

// TestReachBoundsAQuarterOfTheEarthAway does so with points that are as far from a pole as cells whose edges run along
// meridians: there the distance to an edge is least exact.
func TestReachBoundsAQuarterOfTheEarthAway(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pole := geo.Point{Lat: rapid.SampledFrom([]float64{90, -90}).Draw(t, "pole")}
		p := away(
			pole, rapid.Float64Range(0, 2*math.Pi).Draw(t, "direction"),
			rapid.Float64Range(0.01, 1).Draw(t, "metres")/geo.EarthRadius,
		)
		for range 20 {
			q := geo.Point{Lat: rapid.Float64Range(-30, 30).Draw(t, "lat"), Lng: rapid.SampledFrom([]float64{
				0, 45, 90, -180, rapid.Float64Range(-180, 180).Draw(t, "lng"),
			}).Draw(t, "a lng")}
			d := p.Distance(q)
			for _, c := range q.Cell().Around() {
				if near, far := c.Reach(p); !(near <= d && d <= far) {
					t.Fatalf("%v is %.9f m from %v, and its cell %s from %.9f to %.9f", q, d, p, c.Name(), near, far)
				}
			}
		}
	})
}

// TestBoxesAtPolesAreCovered sees that the cells of boxes have what is in them, centimetres to metres away from a pole.
func TestBoxesAtPolesAreCovered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lat := func(name string) float64 {
			return rapid.SampledFrom([]float64{
				90, 90 - math.Pow(10, rapid.Float64Range(-9, -1).Draw(t, name)), 0,
			}).Draw(t, "a "+name)
		}
		a, b := lat("a"), lat("b")
		box := geo.Box{
			South: min(a, b), North: max(a, b), West: rapid.Float64Range(-180, 180).Draw(t, "west"),
			East: rapid.Float64Range(-180, 180).Draw(t, "east"),
		}
		south := rapid.Bool().Draw(t, "southern")
		if south {
			box.South, box.North = -box.North, -box.South
		}
		all := box.Cells()
		known := map[string]bool{}
		for _, c := range all {
			if first, _ := c.Range(); known[first] {
				t.Fatalf("%v has the cell %s twice", box, c.Name())
			} else {
				known[first] = true
			}
		}
		for range 20 {
			p := geo.Point{
				Lat: rapid.Float64Range(box.South, box.North).Draw(t, "lat"),
				Lng: rapid.Float64Range(-180, 180).Draw(t, "lng"),
			}
			if box.Contains(p) && !covered(all, p) {
				t.Fatalf("%v is in %v, and in none of its cells", p, box)
			}
		}
	})

	wide := geo.Box{South: -89.99999988205522, West: -100, North: -89.99999979863412, East: 130}
	turned := geo.Box{South: -89.99999988205522, West: 63.98, North: -89.99999979863412, East: 41.67}
	for _, p := range []geo.Point{
		{Lat: -89.99999986956556, Lng: -67.36464196622033}, {Lat: -89.9999998432952, Lng: 123.26546293448888},
	} {
		for _, box := range []geo.Box{wide, turned} {
			if !box.Contains(p) || !covered(box.Cells(), p) {
				t.Errorf("%v is in none of the cells of %v", p, box)
			}
		}
	}
}

// TestManyPolygonsTakeNoMemory compares a point with thousands of triangles, none of which needs memory of its own: a
// look at one is no dearer than one at as many vertices of a large ring.
func TestManyPolygonsTakeNoMemory(t *testing.T) {
	const n = 3000
	triangles := make([]string, n)
	for i := range triangles {
		lng, lat := 13+float64(i%60)/60, 52+float64(i/60)/60
		triangles[i] = fmt.Sprintf(
			"[[[%f,%f],[%f,%f],[%f,%f],[%f,%f]]]", lng, lat, lng+0.01, lat, lng, lat+0.01, lng, lat,
		)
	}
	v, err := value.ParseString(`{"type":"MultiPolygon","coordinates":[` + strings.Join(triangles, ",") + `]}`)
	if err != nil {
		t.Fatal(err)
	}
	area, err := geo.ReadShape(v)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[geo.Point]bool{
		{Lat: 52.001, Lng: 13.001}: true, {Lat: 52.009, Lng: 13.009}: false,
		{Lat: 52 + 49./60 + 0.001, Lng: 13 + 59./60 + 0.001}: true,
	} {
		if area.Contains(p) != want {
			t.Errorf("%v is in it: %v", p, !want)
		}
		if got := testing.AllocsPerRun(10, func() { area.Contains(p) }); got > 2 {
			t.Errorf("comparing %v with %d triangles allocates %v times", p, n, got)
		}
	}
}
