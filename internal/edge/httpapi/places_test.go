package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// placesSpec has shops, which are at points, areas and notes, which are nowhere.
const placesSpec = `{
	"agent_types": ["user"],
	"geo_types": {"zone": {"type": "polygon", "properties": ["name", "fee"]}},
	"aggregate_types": {
		"shop": {"events": {
			"was_opened": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.at"}},
			"was_named": {"schema": {}, "handler": [{"merge": {"target": "", "value": "$.data"}}]}}},
		"area": {"events": {"was_drawn": {"schema": {}, "handler": [{"set": {"target": "name", "value": "$.data.name"}}], "geo": {"type": "zone", "path": "$.data.area"}}}},
		"note": {"events": {"was_written": {"schema": {}, "handler": []}}}
	}
}`

// post writes an event of an aggregate whose id has a number.
func (f *fixture) post(tb testing.TB, typ string, n int, event, data string) string {
	tb.Helper()
	id := fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", n)
	if got := f.do(
		tb, "POST", "/"+typ+"/"+id+"/"+event, `{"data":`+data+`,`+actor+`}`,
	); got.status != http.StatusCreated {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return id
}

// rowsOf returns the rows of an answer without its end.
func rowsOf(tb testing.TB, got answer) string {
	tb.Helper()
	at := strings.LastIndex(got.body, `,"next"`)
	if got.status != http.StatusOK || at < 0 {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return withoutTimes(got.body[:at])
}

// withoutTimes leaves out when states were made and changed.
func withoutTimes(s string) string {
	return strings.ReplaceAll(s, `,"created_at":1700000000,"updated_at":1700000000`, "")
}

// TestPlaces reads places as a client does.
func TestPlaces(t *testing.T) {
	f := newRows(t, placesSpec)
	empty := f.do(t, "GET", "/shop/nearby?lat=1&lng=2", "")
	if empty.status != http.StatusOK || empty.body != `{"ok":true,"rows":[],"next":null,"metadata":{"position":"0"}}` {
		t.Errorf("%d %s", empty.status, empty.body)
	}
	a := f.post(t, "shop", 1, "was_opened", `{"at":{"lat":40.70,"lng":-74}}`)
	b := f.post(t, "shop", 2, "was_opened", `{"at":{"type":"Point","coordinates":[-74,40.71]},"n":1.50}`)
	z := f.post(t, "area", 3, "was_drawn", `{"name":"North","area":[{"lat":40,"lng":-75},{"lat":40,"lng":-73},{"lat":41,"lng":-73},{"lat":41,"lng":-75}]}`)

	// What is near, in an area, or has a point in it.
	for target, want := range map[string]string{
		"/shop/nearby?lat=40.7&lng=-74&radius=2000": `{"ok":true,"rows":[{"id":"` + a + `","distance":0,"location":{"lat":40.7,"lng":-74},"data":{"at":{"lat":40.70,"lng":-74}}},` +
			`{"id":"` + b + `","distance":1111.950802335108,"location":{"lat":40.71,"lng":-74},"data":{"at":{"type":"Point","coordinates":[-74,40.71]},"n":1.50}}]`,
		"/shop/nearby?lat=40.7&lng=-74&radius=1&data=false":               `{"ok":true,"rows":[{"id":"` + a + `","distance":0,"location":{"lat":40.7,"lng":-74}}]`,
		"/shop/within?box=40.705,-75,41,-73&data=false":                   `{"ok":true,"rows":[{"id":"` + b + `","location":{"lat":40.71,"lng":-74}}]`,
		"/shop/within?polygon=40,-75,40,-73,40.705,-73,40.705,-75&data=0": `{"ok":true,"rows":[{"id":"` + a + `","location":{"lat":40.7,"lng":-74}}]`,
		"/area/containing?lat=40.5&lng=-74":                               `{"ok":true,"rows":[{"id":"` + z + `","geo":"zone","properties":{"name":"North","fee":null},"data":{"name":"North"}}]`,
	} {
		if got := rowsOf(t, f.do(t, "GET", target, "")); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", target, got, want)
		}
	}

	// Pages.
	first := f.do(t, "GET", "/shop/nearby?lat=40.7&lng=-74&count=1&data=false", "")
	next := first.member(t, "next")
	second := f.do(t, "GET", "/shop/nearby?lat=40.7&lng=-74&count=1&data=false&start="+url.QueryEscape(next), "")
	if !strings.Contains(second.body, b) || second.member(t, "next") != "<nil>" {
		t.Errorf("%d %s", second.status, second.body)
	}
	if got := f.do(
		t, "GET", "/shop/nearby?lat=40.8&lng=-74&start="+url.QueryEscape(next), "",
	); got.status != http.StatusBadRequest || got.member(t, "path") != "start" {
		t.Errorf("the cursor of another question: %d %s", got.status, got.body)
	}

	// What does not change the rows leaves the entity tag.
	f.post(t, "note", 4, "was_written", `{}`)
	if got := f.do(t, "GET", "/shop/nearby?lat=40.7&lng=-74&count=1&data=false", "", "If-None-Match: "+first.header.Get("ETag")); got.status != http.StatusNotModified {
		t.Errorf("%d %s", got.status, got.body)
	}

	// A state of the same position goes along.
	f.post(t, "shop", 1, "was_named", `{"name":"other"}`)
	if got := rowsOf(t, f.do(t, "GET", "/shop/nearby?lat=40.7&lng=-74&radius=1", "")); !strings.Contains(got, `"name":"other"`) {
		t.Error(got)
	}
}

// TestWrongPlaces writes events whose places are none, and is told what there is in place of one.
func TestWrongPlaces(t *testing.T) {
	f := newRows(t, placesSpec)
	for _, c := range [][2]string{
		{`{"at":{"lat":520,"lng":13}}`, `{"field":"at.lat","constraint":"geo","expected":"point","received":520}`},
		{`{"at":{"lat":52}}`, `{"field":"at","constraint":"geo","expected":"point","received":{"lat":52}}`},
		{`{"at":"` + strings.Repeat("x", 300) + `"}`, `{"field":"at","constraint":"geo","expected":"point","received":"` + strings.Repeat("x", 200) + `..."}`},
		{`{"at":{"type":"Point"}}`, `{"field":"at.coordinates","constraint":"geo","expected":"point","received":null}`},
		{`{"at":{"type":"Point","coordinates":[13,[]]}}`, `{"field":"at.coordinates[1]","constraint":"geo","expected":"point","received":[]}`},
		{`{"area":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}}`, `{"field":"area.coordinates[0][2]","constraint":"geo","expected":"zone","received":[1,0]}`},
		{`{"area":[{"lat":0,"lng":0},{"lat":0,"lng":1},{"lat":1,"lng":1},{"lat":1,"lng":"east"}]}`, `{"field":"area[3].lng","constraint":"geo","expected":"zone","received":"east"}`},
	} {
		data, want := c[0], c[1]
		target := "/shop/0b6e9d4e-6f0a-4f3c-8c53-000000000001/was_opened"
		if strings.HasPrefix(data, `{"area"`) {
			target = "/area/0b6e9d4e-6f0a-4f3c-8c53-000000000001/was_drawn"
		}
		got := f.do(t, "POST", target, `{"data":`+data+`,`+actor+`}`)
		var is struct{ Details json.RawMessage }
		if err := json.Unmarshal([]byte(got.body), &is); err != nil || got.status != http.StatusBadRequest ||
			string(is.Details) != want {
			t.Errorf("%s: %d %s, want %s", data, got.status, got.body, want)
		}
	}
}

// TestFeatures reads places as a map does.
func TestFeatures(t *testing.T) {
	f := newRows(t, placesSpec)
	f.post(t, "shop", 1, "was_opened", `{"at":{"lat":40.7,"lng":-74}}`)
	f.post(t, "area", 2, "was_drawn", `{"name":"N","area":{"type":"Polygon","coordinates":[[[-1,-1],[-1,1],[1,1],[1,-1],[-1,-1]],[[0,0],[0.5,0],[0.5,0.5],[0,0]]]}}`)
	f.post(t, "area", 3, "was_drawn", `{"fee":2.50,"area":{"type":"MultiPolygon","coordinates":[[[[-1,-1],[1,-1],[1,1],[-1,-1]]],[[[5,5],[6,5],[6,6],[5,5]]]]}}`)
	type collection struct {
		Type     string
		Features []struct {
			Type, ID   string
			Geometry   json.RawMessage
			Properties json.RawMessage
		}
		Next     *string
		Metadata struct{ Position string }
	}
	read := func(target string) collection {
		t.Helper()
		got := f.do(t, "GET", target, "", "Accept: application/geo+json, application/json;q=0.5")
		if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/geo+json" ||
			!strings.Contains(strings.Join(got.header.Values("Vary"), ","), "Accept") {
			t.Fatalf("%d %v %s", got.status, got.header, got.body)
		}
		var c collection
		if err := json.Unmarshal([]byte(got.body), &c); err != nil || c.Type != "FeatureCollection" ||
			c.Metadata.Position == "" {
			t.Fatalf("%v %s", err, got.body)
		}
		return c
	}
	near := read("/shop/nearby?lat=40.7&lng=-74")
	if got := withoutTimes(string(near.Features[0].Geometry) + string(near.Features[0].Properties)); got != `{"type":"Point","coordinates":[-74,40.7]}{"geo":"point","distance":0,"data":{"at":{"lat":40.7,"lng":-74}}}` {
		t.Error(got)
	}
	areas := read("/area/containing?lat=-0.5&lng=0&data=false")
	if len(areas.Features) != 2 {
		t.Fatalf("%d areas", len(areas.Features))
	}
	for i, want := range []string{
		`{"type":"Polygon","coordinates":[[[1,-1],[1,1],[-1,1],[-1,-1],[1,-1]],[[0.5,0.5],[0.5,0],[0,0],[0.5,0.5]]]}{"geo":"zone","properties":{"name":"N","fee":null}}`,
		`{"type":"MultiPolygon","coordinates":[[[[-1,-1],[1,-1],[1,1],[-1,-1]]],[[[5,5],[6,5],[6,6],[5,5]]]]}{"geo":"zone","properties":{"name":null,"fee":2.50}}`,
	} {
		if got := string(areas.Features[i].Geometry) + string(areas.Features[i].Properties); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestRefusedPlaces asks for places in wrong ways, and for those that there are not.
func TestRefusedPlaces(t *testing.T) {
	f := newRows(t, placesSpec)
	for target, want := range map[string]string{
		"/shop/nearby?lng=1": "invalid_parameter lat", "/shop/nearby?lat=1": "invalid_parameter lng",
		"/shop/nearby?lat=90.1&lng=0": "invalid_parameter lat",
		"/shop/nearby?lat=0&lng=-181": "invalid_parameter lng", "/shop/nearby?lat=NaN&lng=0": "invalid_parameter lat",
		"/shop/nearby?lat=1e400&lng=0": "invalid_parameter lat",
		"/shop/nearby?lat=0x1p3&lng=0": "invalid_parameter lat", "/shop/nearby?lat=&lng=0": "invalid_parameter lat",
		"/shop/nearby?lat=0&lng=0&radius=0":     "invalid_parameter radius",
		"/shop/nearby?lat=0&lng=0&radius=Inf":   "invalid_parameter radius",
		"/shop/nearby?lat=0&lng=0&radius=1e400": "invalid_parameter radius",
		"/shop/nearby?lat=0&lng=0&radius=-1":    "invalid_parameter radius",
		"/shop/nearby?lat=0&lng=0&count=0":      "invalid_parameter count",
		"/shop/nearby?lat=0&lng=0&start=x":      "invalid_parameter start",
		"/shop/nearby?lat=0&lng=0&zoom=3":       "invalid_parameter zoom",
		"/shop/nearby?lat=0&lng=0&lat=1":        "invalid_parameter lat",
		"/shop/nearby?lat=0&lng=0&data=maybe":   "invalid_parameter data",
		"/area/containing?lat=0&lng=0&radius=1": "invalid_parameter radius",
		"/shop/within":                          "invalid_parameter box",
		"/shop/within?box=1,2,3":                "invalid_parameter box",
		"/shop/within?box=1,2,3,4,5":            "invalid_parameter box",
		"/shop/within?box=2,0,1,1":              "invalid_parameter box",
		"/shop/within?box=0,0,1,181":            "invalid_parameter box", "/shop/within?box=0,0,1,x": "invalid_parameter box", "/shop/within?box=0,0,1,1&polygon=0,0,0,1,1,1": "invalid_parameter polygon",
		"/shop/within?polygon=0,0,1,1":         "invalid_parameter polygon",
		"/shop/within?polygon=0,0,1,1,1,0,0,1": "invalid_parameter polygon",
		"/shop/within?polygon=0,0,0,1,1":       "invalid_parameter polygon",
		"/shop/within?polygon=0,0,0,1,91,1":    "invalid_parameter polygon",
		"/shop/within?polygon=":                "invalid_parameter polygon",
		"/note/nearby?lat=0&lng=0":             "no_geo <nil>", "/area/nearby?lat=0&lng=0": "no_geo <nil>",
		"/shop/containing?lat=0&lng=0": "no_geo <nil>", "/area/within?box=0,0,1,1": "no_geo <nil>",
		"/ghost/nearby?lat=0&lng=0": "unknown_aggregate_type <nil>",
	} {
		got := f.do(t, "GET", target, "")
		if is := got.member(t, "code") + " " + got.member(t, "path"); is != want {
			t.Errorf("%s: %s, want %s: %s", target, is, want, got.body)
		}
	}
	if got := f.do(t, "DELETE", "/shop/nearby", ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", got.status, got.body)
	}

	// A singleton may be called so where there are no places.
	f = newRows(t, `{"agent_types":["user"],"singletons":["nearby"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`)
	if got := f.do(
		t, "POST", "/note/nearby/was_written", `{"data":{"n":1},`+actor+`}`,
	); got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://app.j17.example/note/nearby?length=1", nil)
	r.Header.Set("Authorization", "Bearer "+f.key)
	w := httptest.NewRecorder()
	if f.handler.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"data":{"n":1,`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := f.do(t, "GET", "/note/nearby?lat=1", ""); got.status != http.StatusBadRequest {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestLongPolygons asks with as many vertices as events may have, and with one more: both are answered as everything
// else is. Nothing but a polygon is as long.
func TestLongPolygons(t *testing.T) {
	f := newRows(t, placesSpec)
	in := f.post(t, "shop", 1, "was_opened", `{"at":{"lat":40.70,"lng":-74}}`)
	f.post(t, "shop", 2, "was_opened", `{"at":{"lat":42,"lng":-74}}`)
	circle := func(vertices int) string {
		var at []string
		for i := range vertices {
			sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(vertices))
			at = append(at, fmt.Sprintf("%.9f%%2C%.9f", 40.7+sin, -74+cos))
		}
		return strings.Join(at, "%2C")
	}
	got := f.do(t, "GET", "/shop/within?data=false&polygon="+circle(10_000), "")
	if want := `{"ok":true,"rows":[{"id":"` + in + `","location":{"lat":40.7,"lng":-74}}]`; rowsOf(t, got) != want {
		t.Errorf("%s, want %s", got.body, want)
	}

	long := strings.Repeat("x", 40<<10)
	for name, c := range map[string]struct {
		method, target, header, want string
	}{
		"a vertex too many": {
			"GET", "/shop/within?polygon=" + circle(10_001), "", "400 invalid_parameter polygon",
		},
		"a long question": {
			"GET", "/shop/nearby?lat=0&lng=0&start=" + long, "", "431 header_too_large <nil>",
		},
		"a long path": {"GET", "/" + long + "/within?box=0,0,1,1", "", "431 header_too_large <nil>"},
		"a long polygon of a stream": {
			"GET", "/shop/within/stream?polygon=" + circle(10_000), "", "431 header_too_large <nil>",
		},
		"a long write": {"POST", "/shop/within?x=" + long, "", "431 header_too_large <nil>"},
		"a long field": {
			"GET", "/shop/nearby?lat=0&lng=0", "X-Note: " + long, "431 header_too_large <nil>",
		},
		"a long field with a polygon": {
			"GET", "/shop/within?polygon=" + circle(10_000), "X-Note: " + long, "431 header_too_large <nil>",
		},
	} {
		var headers []string
		if c.header != "" {
			headers = append(headers, c.header)
		}
		got := f.do(t, c.method, c.target, "", headers...)
		if is := fmt.Sprint(got.status, " ", got.member(t, "code"), " ", got.member(t, "path")); is != c.want {
			t.Errorf("%s: %s, want %s", name, is, c.want)
		}
		if says := got.member(t, "error"); strings.HasPrefix(c.target, "/shop/within/stream") &&
			(strings.Contains(says, "POST") || !strings.Contains(says, "fewer vertices")) {
			t.Errorf("%s: %s", name, says)
		}
	}
}
