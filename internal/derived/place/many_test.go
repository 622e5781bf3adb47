//go:build !race

package place_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/geo"
	"j17/internal/core/engine/enginetest"
	"j17/internal/derived/place"
)

// TestManyPointsInOneSquare pages through many points in a square of a centimetre, some of which have many aggregates,
// from near, from afar and from where all are equally far away; also where few of them are held at a time. What a page
// looks at does not grow with the pages before it.
func TestManyPointsInOneSquare(t *testing.T) {
	h := newHouse(t, shops)
	const side, n = 40, 40*40 + 300
	points := map[int]geo.Point{}
	for i := range n {
		p := geo.Point{Lat: 48.137, Lng: 11.575}
		switch {
		case i < side*side:
			p.Lat += 1e-9 * float64(i%side)
			p.Lng += 1e-9 * float64(i*7919%(side*side)/side)
		default:
			p.Lng += 5e-9 * float64(i%2)
		}
		points[i] = p
	}
	h.fill("shop", "was_opened", n, func(i int) string { return at(points[i]) })
	for _, center := range []geo.Point{{Lat: 48.137, Lng: 11.575}, {Lat: 48.14, Lng: 11.6}, {Lat: 90}} {
		// A page does not end behind the look at the square: what was found there comes first.
		near := func() (rows int, looked uint64) {
			some, looked := h.page(&place.Ask{
				Type: "shop", Near: &place.Near{Center: center, Radius: math.Inf(1)}, Count: 10, Bare: true,
			})
			return len(some), looked
		}
		_, looked := near()
		h.places.Bound(8000, int(looked)-n/2)
		if rows, _ := near(); rows != 10 {
			t.Errorf("around %v: %d rows on the first page", center, rows)
		}
		h.places.Bound(8000, 20_000)
		for crowd, most := range map[int]uint64{16 << 10: 3 * n, 500: 6 * n, 150: 20 * n} {
			h.places.Crowded(crowd, 1<<20)
			want, pages := naive(points, center, math.Inf(1)), 0
			var got []int
			for ask := (&place.Ask{
				Type: "shop", Near: &place.Near{Center: center, Radius: math.Inf(1)}, Count: 400, Bare: true,
			}); pages == 0 || ask.Start != ""; pages++ {
				some, looked := h.page(ask)
				if looked > most {
					t.Fatalf("a page has looked at %d entries of %d", looked, n)
				}
				got = append(got, some...)
			}
			if !slices.Equal(got, want) || pages != 5 && crowd > 150 { // a page that has looked at much ends early
				t.Errorf("around %v, %d at a time: %d aggregates in %d pages, or they are not in order", center, crowd, len(got), pages)
			}
		}
	}
}

// TestManyAtOneAddress has very many aggregates at one point, and asks for the nearest ten and the first hundred: what
// is looked at does not depend on how many there are.
func TestManyAtOneAddress(t *testing.T) {
	h := newHouse(t, shops)
	const n = 20_000
	spot := geo.Point{Lat: 48.137, Lng: 11.575}
	h.fill("shop", "was_opened", n, func(int) string { return at(spot) })
	for _, center := range []geo.Point{spot, {Lat: 48.137, Lng: 11.6}} {
		for _, count := range []int{10, 100} {
			ask := &place.Ask{
				Type: "shop", Near: &place.Near{Center: center, Radius: math.Inf(1)}, Count: count, Bare: true,
			}
			for page := range 3 {
				got, looked := h.page(ask)
				if len(got) != count || got[0] != page*count || !slices.IsSorted(got) {
					t.Errorf("page %d: %v", page, got)
				}
				if looked > 3000 {
					t.Errorf("page %d of %d has looked at %d entries of %d", page, count, looked, n)
				}
			}
		}
	}
}

// TestSearchesAreGivenUp puts more points where they are equally far away than may be compared: a search that needs all
// of them is refused, and tells what to do. Those that do not are answered.
func TestSearchesAreGivenUp(t *testing.T) {
	h := newHouse(t, shops)
	const n = 3000
	h.fill("shop", "was_opened", n, func(i int) string { return at(geo.Point{Lat: 60, Lng: 0.01 * float64(i)}) })
	h.places.Crowded(100, 5*n)
	ask := func(center geo.Point) error {
		_, err := h.places.Page(t.Context(), enginetest.Tenant, &place.Ask{
			Type: "shop", Near: &place.Near{Center: center, Radius: math.Inf(1)}, Count: 10, Bare: true,
		})
		return err
	}
	pole := geo.Point{Lat: 90}
	if err := ask(pole); err != nil {
		t.Errorf("as many as may be compared: %v", err)
	}
	h.places.Crowded(100, n/2)
	if err := ask(pole); j17.CodeOf(err) != j17.CodeWorkLimit || !strings.Contains(err.Error(), "smaller radius") {
		t.Errorf("more than may be compared: %v", err)
	}
	if err := ask(geo.Point{Lat: 60.1, Lng: 5}); err != nil {
		t.Errorf("around a point with few that are nearest: %v", err)
	}
}
