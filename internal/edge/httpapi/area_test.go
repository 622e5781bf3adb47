package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"j17"
	"j17/internal/plane/control"
)

// reader returns a key that only reads.
func (f *fixture) reader(tb testing.TB) string {
	tb.Helper()
	_, token, err := f.registry.Keys.Create(tb.Context(), control.NewKey{
		Instance: f.instance.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "r",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// ring writes a ring of GeoJSON of so many vertices around a point, and the first once more.
func ring(vertices int, lat, lng, size float64) string {
	var at []string
	for i := range vertices + 1 {
		sin, cos := math.Sincos(2 * math.Pi * float64(i%vertices) / float64(vertices))
		at = append(at, fmt.Sprintf("[%.9f, %.9f]", lng+size*cos, lat+size*sin))
	}
	return "[\n" + strings.Join(at, ",\n") + "]"
}

// TestAreasInBodies asks for what is in areas that the body has: it is what GET says of the same area.
func TestAreasInBodies(t *testing.T) {
	f := newRows(t, placesSpec)
	var shops []string
	for n := range 4 {
		shops = append(shops, f.post(t, "shop", n+1, "was_opened", fmt.Sprintf(`{"at":{"lat":40.70,"lng":%d}}`, n-74)))
	}
	row := func(n int) string { return fmt.Sprintf(`{"id":"%s","location":{"lat":40.7,"lng":%d}}`, shops[n], n-74) }
	polygon := `{"type":"Polygon","coordinates":[[[-75,40],[-71.5,40],[-71.5,41],[-75,41],[-75,40]],[[-73.1,40.6],[-72.9,40.6],[-72.9,40.8],[-73.1,40.6]]]}`
	for name, c := range map[string]struct{ body, media, want string }{
		"a polygon":   {`{"type":"Polygon","coordinates":[[[-75,40],[-72.5,40,7],[-72.5,41],[-75,41],[-75,40]]],"bbox":[1]}`, "application/json", row(0) + "," + row(1)},
		"with a hole": {polygon, "application/geo+json", row(0) + "," + row(2)},
		"several":     {`{"type":"MultiPolygon","coordinates":[[` + ring(4, 40.7, -74, 0.1) + `],[` + ring(5, 40.7, -71, 0.1) + `]]}`, "application/geo+json; charset=utf-8", row(0) + "," + row(3)},
		"a feature":   {`{"type":"Feature","id":7,"properties":{"type":"Polygon"},"geometry":` + polygon + `}`, "application/geo+json", row(0) + "," + row(2)},
		"as large as ever": {
			`{"type":"Polygon","coordinates":[` + ring(10_000, 40.7, -74, 1.5) + `]}`, "application/json",
			row(0) + "," + row(1),
		},
	} {
		got := f.do(t, "POST", "/shop/within?data=false", c.body, "Content-Type: "+c.media)
		if is := rowsOf(t, got); is != `{"ok":true,"rows":[`+c.want+"]" || got.header.Get("ETag") != "" ||
			got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v %s", name, got.header, got.body)
		}
	}

	// Pages, of the same area however it is written; and what a map shows.
	type page struct{ Next *string }
	var first page
	got := f.do(t, "POST", "/shop/within?count=1&data=false", polygon)
	if err := json.Unmarshal([]byte(got.body), &first); err != nil || first.Next == nil {
		t.Fatalf("%v %s", err, got.body)
	}
	rest := "/shop/within?count=1&data=false&start=" + url.QueryEscape(*first.Next)
	if is := rowsOf(
		t, f.do(t, "POST", rest, `{"type": "Feature", "geometry": `+strings.ReplaceAll(polygon, ",", " , ")+`}`),
	); is != `{"ok":true,"rows":[`+row(2)+"]" {
		t.Error(is)
	}
	if got := f.do(
		t, "POST", rest, strings.Replace(polygon, "40.8", "40.81", 1),
	); got.member(t, "code") != "invalid_parameter" || got.member(t, "path") != "start" {
		t.Errorf("the page of another area: %s", got.body)
	}
	if got := f.do(
		t, "POST", "/shop/within?count=1&data=false", polygon, "Accept: application/geo+json", "If-None-Match: *",
	); got.status != http.StatusOK || got.header.Get("Content-Type") != "application/geo+json" ||
		!strings.HasPrefix(got.body, `{"type":"FeatureCollection","features":[{"type":"Feature","id":"`+shops[0]+`","geometry":{"type":"Point","coordinates":[-74,40.7]}`) {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}

	// It reads, so that a key that reads is enough.
	if got := f.do(
		t, "POST", "/shop/within", polygon, "Authorization: Bearer "+f.reader(t),
	); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestRefusedAreas sends what is no area in every way that is documented: each is told what is wrong, and where.
func TestRefusedAreas(t *testing.T) {
	f := newRows(t, placesSpec)
	polygon := func(rings string) string { return `{"type":"Polygon","coordinates":` + rings + `}` }
	const square = `[[0,0],[1,0],[1,1],[0,1],[0,0]]`
	for name, c := range map[string]struct{ target, media, body, want string }{
		"nothing":               {"", "", "", "400 invalid_json <nil>"},
		"no JSON":               {"", "", `{"type":`, "400 invalid_json <nil>"},
		"no object":             {"", "", square, "400 invalid_field <nil>"},
		"no type":               {"", "", `{"coordinates":[` + square + `]}`, "400 invalid_field <nil>"},
		"another type":          {"", "", `{"type":"Point","coordinates":[0,0]}`, "400 invalid_field type"},
		"a collection":          {"", "", `{"type":"FeatureCollection","features":[]}`, "400 invalid_field type"},
		"a type that is none":   {"", "", `{"type":7}`, "400 invalid_field type"},
		"no coordinates":        {"", "", `{"type":"Polygon"}`, "400 invalid_field coordinates"},
		"no polygons":           {"", "", `{"type":"MultiPolygon","coordinates":[]}`, "400 invalid_field coordinates"},
		"no geometry":           {"", "", `{"type":"Feature"}`, "400 missing_field geometry"},
		"a geometry of nothing": {"", "", `{"type":"Feature","geometry":null}`, "400 invalid_field geometry"},
		"a geometry of another": {"", "", `{"type":"Feature","geometry":{"type":"Feature"}}`, "400 invalid_field geometry.type"},
		"a wrong place in it":   {"", "", `{"type":"Feature","geometry":` + polygon(`[[[0,0],[1,0],[1,91],[0,0]]]`) + `}`, "400 invalid_field geometry.coordinates[0][2][1]"},
		"beyond all numbers":    {"", "", polygon(`[[[0,0],[1,0],[1,1e400],[0,0]]]`), "400 invalid_field coordinates[0][2][1]"},
		"no number":             {"", "", polygon(`[[[0,0],[1,0],[1,NaN],[0,0]]]`), "400 invalid_json <nil>"},
		"a text":                {"", "", polygon(`[[[0,0],[1,0],[1,"1"],[0,0]]]`), "400 invalid_field coordinates[0][2][1]"},
		"open": {
			"", "", polygon(`[[[0,0],[1,0],[1,1],[0,1]]]`), "400 invalid_field coordinates[0][3]",
		},
		"crossing": {
			"", "", polygon(`[[[0,0],[1,1],[1,0],[0,1],[0,0]]]`), "400 invalid_field coordinates[0][2]",
		},
		"a hole outside": {
			"", "", polygon(`[` + square + `,[[2,2],[3,2],[3,3],[2,2]]]`), "400 invalid_field coordinates[1]",
		},
		"no area": {"", "", polygon(`[[[0,0],[1,0],[0,0]]]`), "400 invalid_field coordinates[0]"},
		"a vertex too many": {
			"", "", polygon(`[` + ring(10_001, 40, -74, 1) + `]`), "400 invalid_field coordinates[0]",
		},
		"many rings of many": {
			"", "", polygon(`[` + ring(9_000, 40, -74, 1) + `,` + ring(9_000, 40, -74, 0.5) + `]`),
			"400 invalid_field coordinates",
		},
		"a member twice": {"", "", `{"type":"Polygon","type":"Polygon","coordinates":[` + square + `]}`, "400 invalid_json <nil>"},
		"too deep": {
			"", "", polygon(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), "400 invalid_json <nil>",
		},
		"deep, and no position": {
			"", "", polygon(strings.Repeat("[", 50) + strings.Repeat("]", 50)), "400 invalid_field coordinates[0][0]",
		},
		"too large": {
			"", "", polygon(`[` + square + strings.Repeat(" ", 2<<20) + `]`), "413 payload_too_large <nil>",
		},
		"another kind of body": {"", "text/plain", polygon(`[` + square + `]`), "400 invalid_content_type <nil>"},
		"another alphabet": {
			"", "application/geo+json; charset=latin1", polygon(`[` + square + `]`), "400 invalid_content_type <nil>",
		},
		"a box beside it":       {"?box=0,0,1,1", "", polygon(`[` + square + `]`), "400 invalid_parameter box"},
		"a wrong count":         {"?count=0", "", polygon(`[` + square + `]`), "400 invalid_parameter count"},
		"a start of nothing":    {"?start=x", "", polygon(`[` + square + `]`), "400 invalid_parameter start"},
		"a type that has areas": {"/area/within", "", polygon(`[` + square + `]`), "404 no_geo <nil>"},
		"a type without places": {"/note/within", "", polygon(`[` + square + `]`), "404 no_geo <nil>"},
		"a type that is not one": {
			"/ghost/within", "", polygon(`[` + square + `]`), "404 unknown_aggregate_type <nil>",
		},
	} {
		target := c.target
		if !strings.HasPrefix(target, "/") {
			target = "/shop/within" + target
		}
		if c.media == "" {
			c.media = "application/geo+json"
		}
		got := f.do(t, "POST", target, c.body, "Content-Type: "+c.media)
		if is := fmt.Sprint(got.status, " ", got.member(t, "code"), " ", got.member(t, "path")); is != c.want {
			t.Errorf("%s: %s, want %s: %s", name, is, c.want, got.body)
		}
	}
	if got := f.do(t, "POST", "/shop/within", "{}", "Content-Type: text/html"); !strings.Contains(got.body, "application/json or application/geo+json") {
		t.Error(got.body)
	}

	// Where there are no places an aggregate may be called so, and its events take a key that writes.
	f = newRows(t, `{"agent_types":["user"],"singletons":["within"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`)
	events := `{"events":[{"type":"was_written","data":{"n":1}}],` + actor + `}`
	for _, c := range []struct{ method, target, key, want string }{
		{"POST", "/note/within?data=false", f.key, "400"},
		{"POST", "/note/within", f.reader(t), "403"},
		{"POST", "/note/within?dry_run=true", f.key, "200"},
		{"POST", "/note/within", f.key, "201"},
		{"GET", "/note/within", f.key, "200"},
	} {
		r := httptest.NewRequestWithContext(
			t.Context(), c.method, "http://app.j17.example"+c.target, strings.NewReader(events),
		)
		r.Header.Set("Authorization", "Bearer "+c.key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if f.handler.ServeHTTP(w, r); strconv.Itoa(w.Code) != c.want {
			t.Errorf("%s %s: %d, want %s: %s", c.method, c.target, w.Code, c.want, w.Body)
		}
	}
}
