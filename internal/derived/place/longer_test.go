//go:build !race

package place_test

import (
	"math"
	"testing"

	"j17/internal/base/geo"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/place"
)

// Of the areas as many points are looked at as take long to compare, around a point as many as are passed over quickly.
const fewLooked, manyLooked = 5000, 15_000

// TestPagesThatLookForLonger ask for more than a page looks at, up to all there is: each ends early or with the last
// row, also where more is compared than one page may compare. Where it ends the next page goes on.
func TestPagesThatLookForLonger(t *testing.T) {
	none := many{geo.MaxVertices, func(geo.Point) bool { return false }}
	last := many{geo.MaxVertices, func(p geo.Point) bool { return p.Lat > 10+(fewLooked-1.5)/1e5 }}
	for _, ask := range []struct {
		name  string
		n     int
		of    place.Ask
		bound func(*place.Service)
		rows  int
	}{
		{"an area of many vertices without a point", fewLooked, place.Ask{In: none}, func(*place.Service) {}, 0},
		{"an area of many vertices with the last point", fewLooked, place.Ask{In: last}, func(*place.Service) {}, 1},
		{
			"around a point, where many points are held", manyLooked,
			place.Ask{Near: &place.Near{Center: geo.Point{Lat: 9.9, Lng: 10}, Radius: math.Inf(1)}},
			func(s *place.Service) { s.Bound(8000, 200); s.Crowded(16<<10, 10_000) }, manyLooked,
		},
	} {
		h := newHouse(t, shops)
		h.fill(
			"shop", "was_opened", ask.n, func(i int) string { return at(geo.Point{Lat: 10 + float64(i)/1e5, Lng: 10}) },
		)
		ask.bound(h.places)
		pages := map[int]int{}
		for _, longer := range []int{0, 1, 4, 100} {
			a := ask.of
			a.Type, a.Count, a.Bare, a.Longer = "shop", ask.n+1, true, longer
			rows := 0
			for more := true; more; pages[longer]++ {
				page, err := h.places.Page(t.Context(), enginetest.Tenant, &a)
				if err != nil {
					t.Errorf("%s, %d times longer: %v", ask.name, longer, err)
					break
				}
				rows += len(page.Rows)
				if more, a.Start = page.Next != "", page.Next; page.Early != more {
					t.Errorf("%s, %d times longer: early %v, next %q", ask.name, longer, page.Early, page.Next)
				}
			}
			if rows != ask.rows {
				t.Errorf("%s, %d times longer: %d rows, want %d", ask.name, longer, rows, ask.rows)
			}
		}
		if pages[0] < 3 || pages[1] >= pages[0] || pages[4] >= pages[1] || pages[100] != 1 {
			t.Errorf("%s: pages by how much longer they look: %v", ask.name, pages)
		}
	}
}
