package place_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"j17/internal/base/geo"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
)

// TestNearbyAtAPole asks for what is near from centimetres beside a pole, in small pages: cells a quarter of the Earth
// away come in their turn.
func TestNearbyAtAPole(t *testing.T) {
	t.Parallel()
	h := newHouse(t, shops)
	rnd := rand.New(rand.NewPCG(1, 2))
	points := map[int]geo.Point{}
	add := func(p geo.Point) {
		n := len(points)
		points[n] = p
		h.put("shop", n, "was_opened", at(p))
	}
	for range 80 {
		add(geo.Point{Lat: rnd.Float64()*60 - 30, Lng: 50 + rnd.Float64()*80})
	}
	for _, lng := range []float64{90, 45, 180, 0} {
		for range 3 {
			add(geo.Point{Lng: lng})
		}
	}
	for _, center := range []geo.Point{
		{Lat: -89.99999978601896, Lng: 129.85248788903868}, {Lat: 89.99999999, Lng: 13}, {Lat: -90},
	} {
		want := naive(points, center, math.Inf(1))
		for size := 1; size <= 3; size++ {
			if got := h.near(center, math.Inf(1), size); !slices.Equal(got, want) {
				t.Errorf("%v in pages of %d: %v, want %v", center, size, got, want)
			}
		}
	}
}

// TestBoxesAtAPole asks for what is in boxes that are wide and end centimetres before a pole.
func TestBoxesAtAPole(t *testing.T) {
	t.Parallel()
	h := newHouse(t, shops)
	for n, p := range []geo.Point{
		{Lat: -89.99999986956556, Lng: -67.36464196622033}, {Lat: -89.9999998432952, Lng: 123.26546293448888},
	} {
		h.put("shop", n, "was_opened", at(p))
	}
	k, m := h.kinds("shop", spec.Point), h.moment()
	defer m.Close()
	for _, box := range []geo.Box{
		{South: -89.99999988205522, West: -100, North: -89.99999979863412, East: 130},
		{South: -89.99999988205522, West: 63.98, North: -89.99999979863412, East: 41.67},
		{South: -90, West: -180, North: 20, East: 180},
	} {
		got := h.pages(1, func(after place.Mark) func(func(place.Found, error) bool) {
			return k.Within(t.Context(), m, box, after)
		})
		if !slices.Equal(got, []int{0, 1}) {
			t.Errorf("in %v: %v", box, got)
		}
	}
}
