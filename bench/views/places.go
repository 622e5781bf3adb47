package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"j17/bench/devserver"
)

const placesSpec = `{"agent_types": ["user"], "geo_types": {"zone": {"type": "polygon"}}, "aggregate_types": {
	"spot": {"events": {"was_placed": {"schema": {"type": "object"}, "handler": [{"merge": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.at"}}}},
	"area": {"events": {"was_drawn": {"schema": {"type": "object"}, "handler": [], "geo": {"type": "zone", "path": "$.data.area"}}}}}}`

const (
	// asking is how many clients ask about places at a time, areaEach of how many points there is one area, with so
	// many corners.
	asking   = 4
	areaEach = 10
	corners  = 20
	// Of a million points over a square with sides of so many kilometres, some 900 are within 5 km; fewer ones have a
	// smaller square. Its south west corner is at so many degrees.
	million      = 1_000_000
	side         = 300.0
	south, west  = 48.0, 9.0
	kmOfDegree   = 111.195
	nearbyMetres = 5000
)

// square is what the points lie in, in degrees.
type square struct{ lat, lng float64 }

func squareOf(points int) square {
	lat := side * math.Sqrt(float64(points)/million) / kmOfDegree
	return square{lat, lat / math.Cos((south+lat/2)*math.Pi/180)}
}

// point is some point of the square.
func (q square) point(r *rand.Rand) (lat, lng float64) {
	return south + q.lat*r.Float64(), west + q.lng*r.Float64()
}

// places measures questions about places, of a server that has nothing else.
func places(ctx context.Context, bin string, out io.Writer, points int, each time.Duration) error {
	server, err := devserver.Start(ctx, bin, placesSpec)
	if err != nil {
		return err
	}
	defer server.End()
	t := newTarget(server)
	t.rows, t.out = points, out
	q := squareOf(points)
	if err := errors.Join(t.loadPlaces(ctx, q), t.rest(ctx)); err != nil {
		return err
	}
	areas := max(points/areaEach, 1)
	for _, question := range []struct {
		what, path, bar string
	}{
		{fmt.Sprintf("the first 100 of some 900 of %d points within 5 km, without states, %d clients, 99th percentile", points, asking), fmt.Sprintf("/spot/nearby?lat=%%.6f&lng=%%.6f&radius=%d&count=100&data=false", nearbyMetres), "10 ms"},
		{fmt.Sprintf("the nearest 10 of %d points, without states, %d clients, 99th percentile", points, asking), "/spot/nearby?lat=%.6f&lng=%.6f&count=10&data=false", "10 ms"},
		{fmt.Sprintf("which of %d areas of %d corners have a point, without states, %d clients, 99th percentile", areas, corners, asking), "/area/containing?lat=%.6f&lng=%.6f&data=false", "5 ms"},
	} {
		before, err := t.Processor()
		if err != nil {
			return err
		}
		asked := repeat(ctx, each, asking, func(ctx context.Context, n int) (time.Duration, bool) {
			lat, lng := q.point(rand.New(rand.NewPCG(2, uint64(n)))) //nolint:gosec // any will do
			d, status, err := t.ask(ctx, http.MethodGet, fmt.Sprintf(question.path, lat, lng), "")
			return d, err == nil && status == http.StatusOK
		})
		after, err := t.Processor()
		if err != nil {
			return err
		}
		_, text := asked.p99()
		t.row(question.what, fmt.Sprintf(
			"%s, %.2f ms of a processor each", text,
			float64((after-before).Microseconds())/1000/float64(max(len(asked.all), 1)),
		), question.bar)
	}
	return ctx.Err()
}

// loadPlaces fills the environment with points and areas.
func (t *target) loadPlaces(ctx context.Context, q square) error {
	from, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // any will do
		event := func(typ string, n int, name, data string) {
			_, _ = fmt.Fprintf(w, `{"key":"%s:%s","type":"%s","data":%s,"metadata":{"actor":{"type":"user","id":"global"},"timestamp":1600000000}}`+"\n", typ, id(n), name, data)
		}
		for n := range t.rows {
			lat, lng := q.point(r)
			event("spot", n, "was_placed", fmt.Sprintf(`{"at":{"lat":%.6f,"lng":%.6f}}`, lat, lng))
		}
		for n := range max(t.rows/areaEach, 1) {
			// Between half a kilometre and three around a point.
			lat, lng := q.point(r)
			radius := 0.005 + 0.02*r.Float64()
			var ring strings.Builder
			for i := range corners {
				a := 2 * math.Pi * float64(i) / corners
				_, _ = fmt.Fprintf(&ring, `,{"lat":%.6f,"lng":%.6f}`, lat+radius*math.Sin(a), lng+radius*math.Cos(a))
			}
			event("area", n, "was_drawn", `{"area":[`+ring.String()[1:]+`]}`)
		}
		_ = to.CloseWithError(w.Flush())
	}()
	return t.admin(ctx, http.MethodPost, "cold_start", from)
}
