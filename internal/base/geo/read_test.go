package geo_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"j17/internal/base/geo"
	"j17/internal/base/value"
)

func parse(tb testing.TB, text string) value.Value {
	tb.Helper()
	v, err := value.ParseString(text)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestReadPoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]geo.Point{
		`{"lat": 40.7, "lng": -74.0}`:                              {Lat: 40.7, Lng: -74},
		`{"lat": 90, "lng": 180, "name": "x"}`:                     {Lat: 90, Lng: 180},
		`{"lat": 1e-9, "lng": -0.0, "type": "home"}`:               {Lat: 1e-9},
		`{"type": "Point", "coordinates": [100.5, 13.75]}`:         {Lat: 13.75, Lng: 100.5},
		`{"type": "Point", "coordinates": [-180, -90, 4807.2]}`:    {Lat: -90, Lng: -180},
		`{"type": "Point", "bbox": null, "coordinates": [1e1, 2]}`: {Lat: 2, Lng: 10},
	} {
		if got, err := geo.ReadPoint(parse(t, text)); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestWrongPointsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, path, says string }{
		{`{"lat": 90.0001, "lng": 0}`, "lat", "between -90 and 90"},
		{`{"lat": 0, "lng": -180.5}`, "lng", "between -180 and 180"},
		{`{"lat": 1e400, "lng": 0}`, "lat", "between -90 and 90"},
		{`{"lat": "40.7", "lng": 0}`, "lat", "not a text"},
		{`{"lat": 1, "lng": null}`, "lng", "not null"},
		{`{"lat": 1}`, "", "longitude is missing"},
		{`{"lng": 1}`, "", "latitude is missing"},
		{`{}`, "", "neither"},
		{`[1, 2]`, "", "array of 2"},
		{`"40.7,-74"`, "", "text"},
		{`null`, "", "null"},
		{`{"type": "Point", "coordinates": [0, 91]}`, "coordinates[1]", "comes second"},
		{`{"type": "Point", "coordinates": [181, 0]}`, "coordinates[0]", "comes first"},
		{`{"type": "Point", "coordinates": [1]}`, "coordinates", "[longitude, latitude]"},
		{`{"type": "Point", "coordinates": [1, 2, "3"]}`, "coordinates[2]", "altitude"},
		{`{"type": "Point"}`, "coordinates", "nothing"},
		{`{"coordinates": [1, 2]}`, "type", "not null"},
		{`{"type": "Polygon", "coordinates": []}`, "type", "Polygon"},
	} {
		_, err := geo.ReadPoint(parse(t, c.text))
		refused(t, c.text, err, c.path, c.says)
	}
}

func refused(t *testing.T, text string, err error, path, says string) {
	t.Helper()
	f, ok := errors.AsType[*geo.Fault](err)
	if !ok || f.Path != path || !strings.Contains(f.Error(), says) {
		t.Errorf("%.200s: %#v", text, err)
	}
}

// ring is a ring of points in text.
func ring(points ...float64) string {
	var b strings.Builder
	for i := 0; i < len(points); i += 2 {
		fmt.Fprintf(&b, `,{"lat":%g,"lng":%g}`, points[i], points[i+1])
	}
	return "[" + strings.TrimPrefix(b.String(), ",") + "]"
}

// square is a square of positions, closed.
func square(lat, lng, half float64) string {
	return fmt.Sprintf("[[%[3]g,%[1]g],[%[4]g,%[1]g],[%[4]g,%[2]g],[%[3]g,%[2]g],[%[3]g,%[1]g]]", lat-half, lat+half, lng-half, lng+half)
}

func polygon(rings ...string) string {
	return `{"type":"Polygon","coordinates":[` + strings.Join(rings, ",") + `]}`
}

func multi(polygons ...string) string {
	return `{"type":"MultiPolygon","coordinates":[` + strings.Join(polygons, ",") + `]}`
}

func TestReadShape(t *testing.T) {
	t.Parallel()
	at := func(lat, lng float64) geo.Point { return geo.Point{Lat: lat, Lng: lng} }
	for _, c := range []struct {
		name, text string
		in, out    []geo.Point
	}{
		{"a square", ring(9, 9, 9, 11, 11, 11, 11, 9), []geo.Point{at(10, 10)}, []geo.Point{at(12, 10), at(-10, -170)}},
		{"backward", ring(9, 9, 11, 9, 11, 11, 9, 11), []geo.Point{at(10, 10)}, []geo.Point{at(12, 10)}},
		{"closed", ring(9, 9, 9, 11, 11, 11, 11, 9, 9, 9), []geo.Point{at(10, 10)}, []geo.Point{at(12, 10)}},
		{
			"over the date line", ring(-31, 179, -31, -179, -29, -179, -29, 179), []geo.Point{
				at(-30, 179.5), at(-30, -179.5), at(-30, 180), at(-30, -180),
			}, []geo.Point{at(-30, 0), at(-30, 178)},
		},
		{
			"long edges", ring(0, -100, 0, 0, 0, 100, 60, 180),
			[]geo.Point{at(60, 0), at(90, 0), at(1, 20)},
			[]geo.Point{at(-1, 20), at(20, 180), at(-90, 0)},
		},
		{"over the date line in GeoJSON", polygon("[[170,40],[-170,40],[-170,50],[170,50],[170,40]]"), []geo.Point{at(45, 175), at(45, -175), at(45, 180)}, []geo.Point{at(45, 0), at(45, 169)}},
		{"around a pole in GeoJSON", polygon("[[-180,-60],[-60,-65],[60,-62],[-180,-60]]"), []geo.Point{at(-90, 0), at(-70, 180)}, []geo.Point{at(90, 0), at(-50, 180)}},
		{"cut at the date line", multi("[[[170,40],[180,40],[180,50],[170,50],[170,40]]]", "[[[-170,40],[-170,50],[-180,50],[-180,40],[-170,40]]]"), []geo.Point{at(45, 175), at(45, -175), at(45, 180)}, []geo.Point{at(45, 0), at(45, 169)}},
		{"cut, with other vertices on both sides", multi("[[[170,40],[180,40],[180,42],[180,50],[170,50],[170,40]]]", "[[[-170,40],[-170,50],[-180,50],[-180,47],[-180,40],[-170,40]]]"), []geo.Point{at(45, 175), at(45, -175), at(45, 180)}, []geo.Point{at(45, 0), at(45, 169)}},
		{"cut, with roundings", multi("[[[170,40],[180,40.00000000000021],[180,49.99999999999979],[170,50],[170,40]]]", "[[[-170,40],[-170,50],[-180,50],[-180,40],[-170,40]]]"), []geo.Point{at(45, 175), at(45, -175), at(45, 180)}, []geo.Point{at(45, 0), at(45, 169)}},
		{"cut, one part longer than the other", multi("[[[170,40],[180,40],[180,50],[170,50],[170,40]]]", "[[[-170,45],[-170,55],[-180,55],[-180,45],[-170,45]]]"), []geo.Point{at(42, 175), at(53, -175), at(47, 180), at(42, 179.9)}, []geo.Point{at(42, -179.9), at(53, 179.9)}},
		{"cut, with a hole on the line", multi("[[[170,40],[180,40],[180,44],[175,44],[175,46],[180,46],[180,50],[170,50],[170,40]]]", "[[[-170,40],[-170,50],[-180,50],[-180,46],[-175,46],[-175,44],[-180,44],[-180,40],[-170,40]]]"), []geo.Point{at(42, 180), at(48, 180), at(45, -174)}, []geo.Point{at(45, 180), at(45, 176), at(45, -176)}},
		{"cut, with a hole beside the line", multi("[[[170,40],[180,40],[180,50],[170,50],[170,40]],[[172,44],[174,44],[174,46],[172,46],[172,44]]]", "[[[-170,40],[-170,50],[-180,50],[-180,40],[-170,40]]]"), []geo.Point{at(45, 180), at(45, 171)}, []geo.Point{at(45, 173)}},
		{"crossing the date line with a vertex on each side", polygon("[[170,40],[180,41],[-180,41],[-170,40],[-170,50],[-180,49],[180,49],[170,50],[170,40]]"), []geo.Point{at(45, 175), at(45, 180)}, []geo.Point{at(45, 0)}},
		{"Fiji, as Natural Earth has it", multi("[[[178.3736,-17.33992],[178.71806,-17.62846],[178.55271,-18.15059],[177.93266,-18.28799],[177.38146,-18.16432],[177.28504,-17.72465],[177.67087000000012,-17.38114],[178.12557,-17.50481],[178.3736,-17.33992]]]",
			"[[[179.36414266196428,-16.80135407694685],[178.7250593629971,-17.01204167436802],[178.59683859511708,-16.63915],[179.09660936299716,-16.433984277547424],[179.41350936299713,-16.379054277547397],[180,-16.06713266364244],[180,-16.55521656663916],[179.36414266196428,-16.80135407694685]]]",
			"[[[-179.91736938476527,-16.50178313564936],[-180,-16.55521656663916],[-180,-16.06713266364244],[-179.7933201090486,-16.02088225674123],[-179.91736938476527,-16.50178313564936]]]"), []geo.Point{at(-16.3, 180), at(-16.3, -179.95), at(-17.8, 178)}, []geo.Point{at(-17, 180), at(-16.3, 0)}},
		{"up to the date line", polygon("[[170,40],[180,40],[180,50],[170,50],[170,40]]"), []geo.Point{at(45, 175)}, []geo.Point{at(45, -175)}},
		{"along the edge of a map", polygon("[[-180,-90],[-180,-60],[-60,-65],[60,-62],[180,-60],[180,-90],[0,-90],[-180,-90]]"), []geo.Point{at(-90, 0), at(-70, 180), at(-89, 90)}, []geo.Point{at(90, 0), at(-50, 180)}},
		{"a ring around a pole, cut", polygon("[[-180,60],[-90,60],[0,60],[90,60],[180,60],[180,80],[90,80],[0,80],[-90,80],[-180,80],[-180,60]]"), []geo.Point{at(75, 180), at(75, 10)}, []geo.Point{at(90, 0), at(85, 180), at(50, 180)}},
		{"to a pole", polygon("[[0,80],[40,80],[40,90],[0,90],[0,80]]"), []geo.Point{at(85, 20), at(89.9, 20)}, []geo.Point{at(85, 60), at(85, -20)}},
		{
			"around a pole", ring(80, 0, 80, 120, 80, -120),
			[]geo.Point{at(90, 0), at(90, 17), at(89, -60)},
			[]geo.Point{at(-90, 0), at(79, 0)},
		},
		{
			"with a hole", polygon(square(10, 10, 2), square(10, 10, 0.5)),
			[]geo.Point{at(11, 10)},
			[]geo.Point{at(10, 10), at(13, 10)},
		},
		{
			"a hole that touches", polygon(square(10, 10, 2), "[[8,8],[9,8.5],[9,9],[8,8]]"),
			[]geo.Point{at(11, 10)},
			[]geo.Point{at(8.6, 8.8)},
		},
		{
			"two", multi("["+square(0, 0, 1)+"]", "["+square(5, 5, 1)+","+square(5, 5, 0.5)+"]"),
			[]geo.Point{at(0, 0), at(5.7, 5)},
			[]geo.Point{at(5, 5), at(3, 3)},
		},
		{
			"two that touch", multi("["+square(0, 0, 1)+"]", "["+square(2, 2, 1)+"]"),
			[]geo.Point{at(0, 0), at(2, 2)},
			[]geo.Point{at(0, 2)},
		},
		{
			"an island in a hole", multi("["+square(5, 5, 2)+","+square(5, 5, 1)+"]", "["+square(5, 5, 0.5)+"]"),
			[]geo.Point{at(5, 5), at(6.5, 5)},
			[]geo.Point{at(5.7, 5)},
		},
	} {
		s, err := geo.ReadShape(parse(t, c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, p := range c.in {
			if !s.Contains(p) || !covered(s.Cells(), p) {
				t.Errorf("%s: %v is not in it, or in none of its cells", c.name, p)
			}
		}
		for _, p := range c.out {
			if s.Contains(p) {
				t.Errorf("%s: %v is in it", c.name, p)
			}
		}
	}
}

func TestWrongShapesAreRefused(t *testing.T) {
	t.Parallel()
	var many []float64
	for i := range geo.MaxVertices + 1 {
		many = append(many, math.Sin(float64(i)/1600), math.Cos(float64(i)/1600))
	}
	bow := ring(0, 0, 1, 1, 1, 0, 0, 1)
	for _, c := range []struct{ text, path, says string }{
		{ring(0, 0, 1, 1), "", "three"},
		{ring(0, 0, 0, 0, 0, 0), "", "three"},
		{ring(0, 0, 0, 0, 0, 1, 1, 1), "[1]", "once more"},
		{ring(0, 0, 1, 1, 0, 0), "", "three"},
		{ring(0, 180, 1, 170, 0, -180, 5, 5), "[2]", "the same place as vertex 0: an area across longitude 180"},
		{ring(90, 0, 80, 0, 90, 5, 80, 90), "[2]", "the same place as vertex 0"},
		{ring(90, 0, 80, 0, 90, 0, 80, 90), "[2]", "once more"},
		// Parts that do not fit together at longitude 180, or go around the Earth when they do.
		{multi("[[[180,40],[180,50],[170,50],[170,40],[180,40]]]", "[[[180,45],[180,55],[170,52],[180,45]]]"), "coordinates[0][0][1]", "cross or touch"},
		{polygon("[[-180,-10],[-90,-10],[0,-10],[90,-10],[180,-10],[180,10],[90,10],[0,10],[-90,10],[-180,10],[-180,-10]]"), "coordinates[0]", "none of its rings encloses it"},
		{polygon("[[-180,-90],[180,-90],[180,90],[-180,90],[-180,-90]]"), "coordinates[0]", "none of its rings encloses it"},
		{polygon("[[-180,-90],[180,-90],[180,90],[-180,90],[-180,-90]]", square(0, 0, 1)), "coordinates[1]", "none of its rings encloses it"},
		// What is wrong with the parts is told where it was given.
		{multi("[[[180,40],[180,50],[170,50],[175,42],[170,40],[180,40]]]", "[[[-170,40],[-175,48],[-170,50],[-180,50],[-180,40],[-170,52],[-170,40]]]"), "coordinates[1][0][4]", "cross"},
		{bow, "[3]", "cross"},
		{ring(0, 0, 1, 1, 0, 1, 1, 0), "[2]", "cross"}, // as large on one side as on the other
		{polygon("[[0,0],[1,1],[0,1],[1,0],[0,0]]"), "coordinates[0][3]", "cross"},
		{ring(0, 0, 0, 1, 91, 1), "[2].lat", "between"},
		{ring(0, 0, 0, 181, 1, 1), "[1].lng", "between"},
		{ring(0, 0, 0, 1, 0, 2), "[0]", "turns back"},
		{ring(0, 0, 0, 10, 5, 10, 0, 5), "[0]", "turns back"},
		{ring(0, 0, 0, 10, 5, 10, 0, 5, 5, 0), "[3]", "touch"},
		{ring(0, 0, 0, 1e-6, 1e-6, 1e-6), "", "square metre"},
		{ring(0, -120, 0, 0, 0, 120), "", "half of the Earth"},
		{ring(0, 0, 0, 90, 0, 180, 0, -90), "", "half of the Earth"},
		{ring(90, 0, 0, 17, -90, 0, 0, -163), "", "half of the Earth"},
		{ring(0, -100, 0, 0, 0, -160), "[1]", "turns back"},
		{ring(0, 0, 0, 100, 0, 20, 40, 10), "[1]", "turns back"},
		{ring(0, 0, 0, 180, 10, 10), "[0]", "other side of the Earth"},
		{ring(many...), "", "10000"},
		{"[]", "", "three"},
		{"{}", "", "no type"},
		{`"x"`, "", "text"},
		{`{"lat": 1, "lng": 1}`, "", "no type"},
		{"[1,2,3]", "[0]", "a point is"},
		{polygon(), "coordinates", "rings"},
		{`{"type":"Polygon"}`, "coordinates", "nothing"},
		{`{"type":"Polygon","coordinates":[5]}`, "coordinates[0]", "a ring is"},
		{multi(), "coordinates", "polygons"},
		{multi("5"), "coordinates[0]", "rings"},
		{`{"type":"Circle","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}`, "type", "Circle"},
		{polygon("[[0,0],[1,0],[1,1]]"), "coordinates[0][2]", "repeats the first"},
		{polygon(square(0, 0, 1), square(5, 5, 1)), "coordinates[1]", "not inside"},
		{polygon(square(0, 0, 1), square(0, 0, 2)), "coordinates[1]", "not inside"},
		{polygon(square(0, 0, 1), square(1, 1, 0.5)), "coordinates[1][0]", "cross"},
		{polygon(square(0, 0, 1), square(0, 0, 1)), "coordinates[1][0]", "cross"},
		{multi("["+square(0, 0, 1)+"]", "["+square(0, 2, 1)+"]"), "coordinates[1][0][3]", "touch"},
	} {
		_, err := geo.ReadShape(parse(t, c.text))
		refused(t, c.text, err, c.path, c.says)
	}
}

// BenchmarkReadShape is what a polygon costs before it is written.
func BenchmarkReadShape(b *testing.B) {
	for _, n := range []int{20, geo.MaxVertices} {
		points := make([]float64, 0, 2*n)
		for i := range n {
			a := 2 * math.Pi * float64(i) / float64(n)
			points = append(points, 48+0.01*math.Sin(a), 11+0.01*math.Cos(a))
		}
		v := parse(b, ring(points...))
		s, err := geo.ReadShape(v)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("read/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := geo.ReadShape(v); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("cells/%d", n), func(b *testing.B) {
			for b.Loop() {
				s.Cells()
			}
		})
		b.Run(fmt.Sprintf("contains/%d", n), func(b *testing.B) {
			for b.Loop() {
				s.Contains(geo.Point{Lat: 48, Lng: 11})
			}
		})
	}
}

// BenchmarkReadHoles is what an area with as many holes as there can be costs before it is written.
func BenchmarkReadHoles(b *testing.B) {
	const outer = geo.MaxVertices / 2
	rings := make([]string, 0, outer)
	points := make([]string, 0, outer+1)
	for i := range outer + 1 {
		a := 2 * math.Pi * float64(i%outer) / outer
		points = append(points, fmt.Sprintf("[%v,%v]", 11+5*math.Cos(a), 48+5*math.Sin(a)))
	}
	rings = append(rings, "["+strings.Join(points, ",")+"]")
	for i := range outer / 3 {
		x, y := 9+float64(i%40)/10, 46+float64(i/40)/10
		rings = append(rings, fmt.Sprintf("[[%v,%v],[%v,%v],[%v,%v],[%v,%v]]", x, y, x+0.05, y, x, y+0.05, x, y))
	}
	v := parse(b, polygon(rings...))
	for b.Loop() {
		if _, err := geo.ReadShape(v); err != nil {
			b.Fatal(err)
		}
	}
}
