package geo_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/geo"
	"j17/internal/base/value"
)

// geoJSON writes polygons as GeoJSON.
func geoJSON(polygons [][][]geo.Point) string {
	var b strings.Builder
	b.WriteString(`{"type":"MultiPolygon","coordinates":[`)
	for i, rings := range polygons {
		b.WriteString(strings.Repeat(",", min(i, 1)) + "[")
		for j, ring := range rings {
			b.WriteString(strings.Repeat(",", min(j, 1)) + "[")
			for k, p := range ring {
				b.WriteString(strings.Repeat(",", min(k, 1)) + "[" + strconv.FormatFloat(p.Lng, 'f', -1, 64) + "," +
					strconv.FormatFloat(p.Lat, 'f', -1, 64) + "]")
			}
			b.WriteString("]")
		}
		b.WriteString("]")
	}
	return b.String() + "]}"
}

func read(text string) (*geo.Shape, error) {
	v, err := value.ParseString(text)
	if err != nil {
		return nil, err
	}
	return geo.ReadShape(v)
}

// onMap reports whether polygons on a map have a point, by straight lines.
func onMap(polygons [][][]geo.Point, p geo.Point) (in bool) {
	for _, rings := range polygons {
		for _, ring := range rings {
			for i, a := range ring[:len(ring)-1] {
				b := ring[i+1]
				if a.Lat > p.Lat != (b.Lat > p.Lat) && p.Lng < a.Lng+(p.Lat-a.Lat)/(b.Lat-a.Lat)*(b.Lng-a.Lng) {
					in = !in
				}
			}
		}
	}
	return in
}

// turns returns twice the area of a ring on a map: less than 0 where it runs clockwise.
func turns(ring []geo.Point) (area float64) {
	for i, a := range ring[:len(ring)-1] {
		area += a.Lng*ring[i+1].Lat - ring[i+1].Lng*a.Lat
	}
	return area
}

// wellDrawn fails unless polygons are on a map as RFC 7946 has them.
func wellDrawn(t *rapid.T, polygons [][][]geo.Point) {
	for _, rings := range polygons {
		for i, ring := range rings {
			if len(ring) < 4 || ring[0] != ring[len(ring)-1] {
				t.Fatalf("a ring is not closed: %v", ring)
			}
			if turns(ring) > 0 != (i == 0) {
				t.Fatalf("ring %d of a polygon runs the wrong way: %v", i, ring)
			}
			for k := range ring {
				if !ring[k].Valid() || k > 0 && ring[k] == ring[k-1] {
					t.Fatalf("vertex %d of %v is beside the map, or there twice", k, ring)
				}
			}
		}
	}
}

// fine returns a ring with so many vertices that straight lines on a map are close to arcs.
func fine(ring []geo.Point, most float64) (all []geo.Point) {
	for i, a := range ring {
		u, v := unit(a), unit(ring[(i+1)%len(ring)])
		n := int(math.Acos(min(1, u.dot(v)))/most) + 1
		all = append(all, a)
		for k := 1; k < n; k++ {
			f := float64(k) / float64(n)
			all = append(all, degrees(vector{u[0] + f*(v[0]-u[0]), u[1] + f*(v[1]-u[1]), u[2] + f*(v[2]-u[2])}))
		}
	}
	return all
}

// TestAreasAreCutAndJoined draws areas on a map and reads them from there: what is cut at longitude 180 and at poles is
// what it was when it is joined again, and what is on the map is what is in the area.
func TestAreasAreCutAndJoined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// An area around a place, which may have a hole, and one far from there.
		center := anywhere().Draw(t, "center")
		size := math.Pow(10, rapid.Float64Range(-3, 0).Draw(t, "size"))
		outer := star(t, center, size)
		rings := [][]geo.Point{fine(outer, 0.03)}
		if rapid.Bool().Draw(t, "hole") {
			rings = append(rings, fine(star(t, center, size/5), 0.03))
		}
		for i, ring := range rings {
			rings[i] = append(slices.Clone(ring), ring[0])
		}
		polygons := [][][]geo.Point{rings}
		if rapid.Bool().Draw(t, "another") && size < 0.5 {
			other := star(t, away(center, 1, math.Pi-size), size/2)
			polygons = append(polygons, [][]geo.Point{append(slices.Clone(other), other[0])})
		}
		text := geoJSON(polygons)
		s, err := read(text)
		if err != nil {
			t.Skip(err) // a hole that crosses its ring
		}

		cut := s.Cut()
		wellDrawn(t, cut)
		again, err := read(geoJSON(cut))
		if err != nil {
			t.Fatalf("%v; %s\n cut as %s", err, text, geoJSON(cut))
		}
		for range 20 {
			p := away(
				center, rapid.Float64Range(0, 2*math.Pi).Draw(t, "direction"),
				size*rapid.Float64Range(0, 1.5).Draw(t, "how far"),
			)
			clearOf, far := true, true
			for _, rings := range polygons {
				for _, ring := range rings {
					clearOf = clearOf && clear(ring[:len(ring)-1], p)
					for _, q := range ring {
						far = far && p.Distance(q) > geo.EarthRadius*0.04
					}
				}
			}
			if !clearOf || math.Abs(p.Lng) == 180 {
				continue
			}
			want := s.Contains(p)
			if got := again.Contains(p); got != want {
				t.Fatalf("%v in %s: %t, and %t when it was cut as %s", p, text, want, got, geoJSON(cut))
			}
			if far && math.Abs(p.Lat) < 70 && len(polygons) == 1 {
				if got := onMap(cut, p); got != want {
					t.Fatalf("%v in %s: %t, and %t on the map: %s", p, text, want, got, geoJSON(cut))
				}
			}
		}
	})
}

// tiles are fields of a map of 20 degrees, by column and row, that an area has.
type tiles [18][9]bool

// rings traces what bounds the tiles on the map: outer rings run counterclockwise, holes clockwise. Where four tiles
// meet and two of them are there, across, each has a corner of its own.
func (a *tiles) rings() (rings [][]geo.Point) {
	has := func(x, y int) bool { return x >= 0 && x < 18 && y >= 0 && y < 9 && a[x][y] }
	type spot struct{ x, y int }
	type step struct{ from, to spot }
	next := map[spot][]spot{}
	var all []step
	for x := range 18 {
		for y := range 9 {
			if !has(x, y) {
				continue
			}
			corners := [...]spot{{x, y}, {x + 1, y}, {x + 1, y + 1}, {x, y + 1}}
			for i, beside := range [...]bool{has(x, y-1), has(x+1, y), has(x, y+1), has(x-1, y)} {
				if from, to := corners[i], corners[(i+1)%4]; !beside {
					all = append(all, step{from, to})
					next[from] = append(next[from], to)
				}
			}
		}
	}
	done := map[step]bool{}
	for _, first := range all {
		var ring []geo.Point
		for s := first; ; {
			// A hole that touches its ring is a ring of its own.
			p := geo.Point{Lat: float64(20*s.from.y - 90), Lng: float64(20*s.from.x - 180)}
			if at := slices.Index(ring, p); at >= 0 {
				rings = append(rings, append(slices.Clone(ring[at:]), p))
				ring = ring[:at]
			}
			if done[s] {
				break
			}
			done[s] = true
			ring = append(ring, p)
			to := next[s.to]
			at := s.to
			turn := to[0]
			for _, other := range to[1:] {
				// The way to the left.
				if (s.to.x-s.from.x)*(other.y-s.to.y)-(s.to.y-s.from.y)*(other.x-s.to.x) > 0 {
					turn = other
				}
			}
			s = step{at, turn}
		}
	}
	return rings
}

// TestAreasOfAMapAreJoined reads areas as maps have them, cut at longitude 180 and followed along the poles, whichever
// way round their rings are: a point is in the area where its tile is.
func TestAreasOfAMapAreJoined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Tiles on both sides of longitude 180, so that no ring encloses half of the Earth, and all or none of those
		// around a pole and beside it.
		var a tiles
		rows := [2]int{rapid.IntRange(1, 4).Draw(t, "first"), rapid.IntRange(4, 7).Draw(t, "last")}
		wide := rapid.IntRange(1, 3).Draw(t, "wide")
		most := rapid.Float64Range(0.3, 1).Draw(t, "how many")
		for x := -wide; x < wide; x++ {
			for y := rows[0]; y <= rows[1]; y++ {
				a[(x+18)%18][y] = rapid.Float64Range(0, 1).Draw(t, "tile") < most
			}
		}
		for y, name := range []string{7: "band", 8: "pole"} {
			if name != "" && rapid.Bool().Draw(t, name) {
				for x := range 18 {
					a[x][y] = true
				}
			}
		}
		var outer, holes [][]geo.Point
		for _, ring := range a.rings() {
			if turns(ring) > 0 {
				outer = append(outer, ring)
			} else {
				holes = append(holes, ring)
			}
		}
		if len(outer) == 0 {
			t.Skip("no tiles")
		}
		polygons := make([][][]geo.Point, len(outer))
		for i, ring := range outer {
			polygons[i] = [][]geo.Point{ring}
		}
		for _, hole := range holes {
			// The tile to the left of the hole's first edge is in the area.
			v, w := hole[0], hole[1]
			in := geo.Point{Lat: (v.Lat+w.Lat)/2 + (w.Lng-v.Lng)/2, Lng: (v.Lng+w.Lng)/2 - (w.Lat-v.Lat)/2}
			for i, ring := range outer {
				if onMap([][][]geo.Point{{ring}}, in) {
					polygons[i] = append(polygons[i], hole)
				}
			}
		}
		for _, rings := range polygons {
			for _, ring := range rings {
				if rapid.Bool().Draw(t, "backward") {
					slices.Reverse(ring)
				}
			}
		}

		text := geoJSON(polygons)
		s, err := read(text)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		wellDrawn(t, s.Cut())
		for x := range 18 {
			for y := range 9 {
				p := geo.Point{Lat: float64(20*y - 80), Lng: float64(20*x - 170)}
				if s.Contains(p) != a[x][y] {
					t.Fatalf("%v in %s: %t", p, text, s.Contains(p))
				}
			}
		}
	})
}
