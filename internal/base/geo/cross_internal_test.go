package geo

import (
	"math"
	"testing"
)

// TestTheSearchForCrossingsIsBounded counts the comparisons for rings that have as many vertices as are allowed, the
// worst that come to mind among them.
func TestTheSearchForCrossingsIsBounded(t *testing.T) {
	t.Parallel()
	const n = MaxVertices
	rings := map[string]func(i int) Point{
		"a circle": func(i int) Point {
			a := 2 * math.Pi * float64(i) / n
			return Point{math.Sin(a), math.Cos(a)}
		},
		"a star of long rays": func(i int) Point {
			a, r := 2*math.Pi*float64(i)/n, 1+40*float64(i%2)
			return Point{r * math.Sin(a), r * math.Cos(a)}
		},
		"a comb": func(i int) Point {
			if i >= n-2 {
				return Point{-5, 20 * float64(n-1-i)}
			}
			return Point{20 * float64(i/2%2), 20 * float64(i) / n}
		},
		"a slanting comb": func(i int) Point {
			x := 20 * float64(i) / n
			switch {
			case i == n-2:
				return Point{-20, 40}
			case i == n-1:
				return Point{-20, -1}
			case i%2 == 0:
				return Point{x/3 + 1, x}
			}
			return Point{x/3 + 30, x + 30.7}
		},
		"a spiral": func(i int) Point {
			a, r := 80*math.Pi*float64(i)/(n/2), 1+20*float64(i)/(n/2)
			if i >= n/2 {
				a, r = 80*math.Pi*float64(n-1-i)/(n/2), 0.75+20*float64(n-1-i)/(n/2)
			}
			return Point{r * math.Sin(a), r * math.Cos(a)}
		},
		"along a meridian": func(i int) Point {
			if i == n-1 {
				return Point{0, 1}
			}
			return Point{80 * float64(i) / n, 0}
		},
	}
	for name, at := range rings {
		points := make([]Point, n)
		for i := range points {
			points[i] = at(i)
		}
		r, err := newRing(placed{points: points})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s := newSweep([][]ring{{r}})
		if e, found := s.run(); found {
			t.Errorf("%s: edges cross at %v", name, s.edges[e].where())
		}
		if most := 60 * n; s.steps > most {
			t.Errorf("%s: %d comparisons, of at most %d", name, s.steps, most)
		}
		t.Logf("%s: %d comparisons", name, s.steps)
	}
}
