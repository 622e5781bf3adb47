//go:build !race

package place_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/geo"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
)

// TestPlacesAgreeWithANaiveEvaluator moves shops about, often to where others are, and asks for them in pages of all
// sizes.
func TestPlacesAgreeWithANaiveEvaluator(t *testing.T) {
	h := newHouse(t, shops)
	placed := map[int]bool{}
	check := func(t *rapid.T) {
		for n := range placed {
			h.put("shop", n, "was_opened", `{"at":null}`)
		}
		clear(placed)
		lats, lngs := []float64{90, -90, 89.9, 0, 45}, []float64{180, -180, 179.99, 0, 45}
		spot := rapid.Custom(func(t *rapid.T) geo.Point {
			return geo.Point{
				Lat: rapid.SampledFrom(append(lats, rapid.Float64Range(-90, 90).Draw(t, "lat"))).Draw(t, "a lat"),
				Lng: rapid.SampledFrom(append(lngs, rapid.Float64Range(-180, 180).Draw(t, "lng"))).Draw(t, "a lng"),
			}
		})
		points := map[int]geo.Point{}
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			n := rapid.IntRange(0, 20).Draw(t, "shop")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				h.put("shop", n, "was_opened", `{"at":null}`)
				delete(points, n)
			case 1:
				h.put("shop", n, "was_named", `{}`)
			default:
				p := spot.Draw(t, "place")
				h.put("shop", n, "was_opened", at(p))
				points[n], placed[n] = p, true
			}
		}
		size := rapid.IntRange(1, 12).Draw(t, "size")
		center := spot.Draw(t, "center")
		for _, radius := range []float64{1, 20_000, 1e6, 1.9e7, math.Inf(1)} {
			if want, got := naive(points, center, radius), h.near(center, radius, size); !slices.Equal(got, want) {
				t.Fatalf("%g m around %v: %v, want %v; %v", radius, center, got, want, points)
			}
		}
		a, b := spot.Draw(t, "a"), spot.Draw(t, "b")
		box := geo.Box{South: min(a.Lat, b.Lat), North: max(a.Lat, b.Lat), West: a.Lng, East: b.Lng}
		var want []int
		for n, p := range points {
			if box.Contains(p) {
				want = append(want, n)
			}
		}
		slices.Sort(want)
		k, m := h.kinds("shop", spec.Point), h.moment()
		defer m.Close()
		got := h.pages(size, func(after place.Mark) func(func(place.Found, error) bool) {
			return k.Within(t.Context(), m, box, after)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("in %v: %v, want %v", box, got, want)
		}
	}
	rapid.Check(t, check)
}
