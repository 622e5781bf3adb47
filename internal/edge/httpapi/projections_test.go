package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine/enginetest"
	"j17/internal/edge/httpapi"
)

// basketSpec has a projection of four sources, one of which is an array.
const basketSpec = `{"agent_types":["user"],"aggregate_types":{
	"basket":{"identity":{"handle":"bsk"},"events":{"was_made":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]}}},
	"item":{"events":{"was_made":{"schema":{},"allow_skip_occ":true,"handler":[{"merge":{"target":"","value":"$.data"}}]}}}},
	"projections":{
		"basket":{"for_each":"basket","sources":{"basket":"$key","customer":{"type":"item","id":"$.basket.customer_id"},"shop":{"type":"item","id":"$.basket.shop_id"},
			"products":{"type":"item","id":"$.basket.lines[*].product_id","mode":"array"}},
			"select":{"customer":"$.customer.name","shop":"$.shop.name","names":"$.products[*].name","total":"$.basket.total"}},
		"pair":{"sources":[{"aggregate":"item","as":"a","id":"$.one"},{"aggregate":"item","as":"b","id":"$.other"}]}}}`

func itemID(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012x", n) }

// newBaskets returns a server with a basket, noteID, of ten products.
func newBaskets(tb testing.TB) (*fixture, string) {
	tb.Helper()
	f := newFixture(tb, nil)
	f.Engine.Deploy(j17.TenantOf(f.instance.ID, j17.Prod), enginetest.Compiled(tb, basketSpec), nil)
	var lines []string
	for i := range 12 {
		f.handled(
			tb, http.StatusCreated, http.MethodPost, "/item/"+itemID(i)+"/was_made",
			`{"data":{"name":"item `+fmt.Sprint(i)+`"},`+actor+`}`,
		)
		if i >= 2 {
			lines = append(lines, `{"product_id":"`+itemID(i)+`"}`)
		}
	}
	handle := f.do(tb, http.MethodPost, "/basket/"+noteID+"/was_made",
		`{"data":{"customer_id":"`+itemID(0)+`","shop_id":"`+itemID(1)+`","total":12.50,"lines":[`+
			strings.Join(lines, ",")+`]},`+actor+`}`).member(tb, "handle")
	return f, handle
}

// BenchmarkProjection measures the public handler alone with a projection of four sources, one of them an array of ten:
// kept, and with one write to a source in a hundred requests.
func BenchmarkProjection(b *testing.B) {
	f, _ := newBaskets(b)
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.handled(b, http.StatusOK, http.MethodGet, "/_projections/basket/"+noteID, "")
		}
	})
	b.Run("written", func(b *testing.B) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if n%100 == 0 {
				f.handled(
					b, http.StatusCreated, http.MethodPost, "/item/"+itemID(5)+"/was_made",
					`{"data":{"n":1},`+actor+`}`,
				)
			}
			f.handled(b, http.StatusOK, http.MethodGet, "/_projections/basket/"+noteID, "")
		}
	})
}

// TestProjectionsAreRead asks for values in all ways.
func TestProjectionsAreRead(t *testing.T) {
	f, handle := newBaskets(t)
	const path = "/_projections/basket/"
	data := `{"customer":"item 0","shop":"item 1","names":["item 2","item 3","item 4","item 5","item 6","item 7","item 8","item 9","item 10","item 11"],"total":12.50}`
	last := func() string { return f.feed(t, "?count=1000").Position }

	// What a value looks like.
	at := last()
	want := `{"ok":true,"data":` + data + `,"cached_at":1700000000,"metadata":{"id":"` + noteID + `","handle":"` + handle + `","position":"` + at + `"}}`
	first := f.do(t, http.MethodGet, path+noteID, "")
	if first.status != http.StatusOK || first.body != want || first.header.Get("Content-Type") != "application/json" ||
		first.header.Get("Etag") == "" {
		t.Errorf("%d %v\n%s\nwant\n%s", first.status, first.header, first.body, want)
	}
	for _, same := range []string{handle, strings.ToUpper(noteID), noteID + "?synchronous", noteID + "?synchronous=1"} {
		if got := f.do(t, http.MethodGet, path+same, ""); got.body != want {
			t.Errorf("%s: %s", same, got.body)
		}
	}
	past := strings.Replace(want, `,"position":"`+at+`"`, "", 1)
	if got := f.do(t, http.MethodGet, path+noteID+"?at=1700000000", ""); got.body != past {
		t.Errorf("in the past: %s", got.body)
	}
	if got := f.do(t, http.MethodHead, path+noteID, ""); got.status != http.StatusOK || got.body != "" ||
		got.header.Get("Content-Length") != fmt.Sprint(len(want)) {
		t.Errorf("HEAD: %d %q %v", got.status, got.body, got.header)
	}
	pair := f.do(t, http.MethodGet, "/_projections/pair?one="+itemID(1)+"&other="+itemID(99), "")
	if !strings.Contains(pair.body, `"b":null},"cached_at":1700000000,"metadata":{"position":"`+at+`"}}`) {
		t.Errorf("%s", pair.body)
	}
	if got := f.do(
		t, http.MethodGet, "/_projections/pair?at=1700000000&one="+itemID(1)+"&other="+itemID(99), "",
	); !strings.HasSuffix(got.body, `"metadata":{}}`) {
		t.Errorf("%s", got.body)
	}

	// The entity tag is that of the data.
	tag := "If-None-Match: " + first.header.Get("Etag")
	f.handled(
		t, http.StatusCreated, http.MethodPost, "/item/"+itemID(0)+"/was_made", `{"data":{"nickname":"x"},`+actor+`}`,
	)
	if got := f.do(t, http.MethodGet, path+noteID, "", tag); got.status != http.StatusNotModified || got.body != "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := f.do(t, http.MethodGet, path+noteID, ""); !strings.Contains(got.body, last()) {
		t.Errorf("%s is not as of %s", got.body, last())
	}
	f.handled(t, http.StatusCreated, http.MethodPost, "/item/"+itemID(0)+"/was_made", `{"data":{"name":"y"},`+actor+`}`)
	if got := f.do(t, http.MethodGet, path+noteID, "", tag); got.status != http.StatusOK ||
		!strings.Contains(got.body, `"customer":"y"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestProjectionsRefuse asks for what there is not, and in ways that are not known.
func TestProjectionsRefuse(t *testing.T) {
	f, _ := newBaskets(t)
	id := itemID(1)
	for target, want := range map[string]string{
		"/_projections/basket/" + id:                                  "404 aggregate_not_found",
		"/_projections/nothing/" + id:                                 "404 unknown_projection",
		"/_projections/nothing":                                       "404 unknown_projection",
		"/_projections/basket/abc":                                    "422 invalid_identifier key",
		"/_projections/basket/" + id + "?sync=1":                      "400 invalid_parameter sync",
		"/_projections/basket/" + id + "?synchronous=maybe":           "400 invalid_parameter synchronous",
		"/_projections/basket/" + id + "?synchronous&synchronous":     "400 invalid_parameter synchronous",
		"/_projections/basket/" + id + "?at=yesterday":                "400 invalid_parameter at",
		"/_projections/basket/" + id + "?at=1":                        "404 aggregate_not_found",
		"/_projections/basket/" + id + "?=":                           "400 invalid_parameter",
		"/_projections/pair/" + id:                                    "400 invalid_parameter key",
		"/_projections/pair?one=" + id:                                "400 invalid_parameter other",
		"/_projections/pair?one=" + id + "&one=" + id:                 "400 invalid_parameter one",
		"/_projections/pair?one=x&other=" + id:                        "422 invalid_identifier one",
		"/_projections/pair?one=" + id + "&other=" + id + "&length=1": "400 invalid_parameter length",
		"/_projections/pair?one=%zz":                                  "400 invalid_parameter",
		"/_projections/":                                              "404 not_found",
		"/_projections/a/b/c":                                         "404 not_found",
		"/_projections":                                               "404 not_found",
	} {
		got := f.do(t, http.MethodGet, target, "")
		said := fmt.Sprint(got.status, " ", got.member(t, "code"))
		if path := got.member(t, "path"); path != "<nil>" {
			said += " " + path
		}
		if said != want {
			t.Errorf("%s: %s, want %s: %s", target, said, want, got.body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if got := f.do(t, method, "/_projections/basket/"+noteID, ""); got.status != http.StatusMethodNotAllowed ||
			got.header.Get("Allow") != "GET, HEAD, OPTIONS" {
			t.Errorf("%s: %d %v", method, got.status, got.header)
		}
	}
	if got := f.do(
		t, http.MethodGet, "/_projections/nothing/x", "", "Authorization: Bearer nonsense",
	); got.status != http.StatusUnauthorized {
		t.Errorf("%d without a key", got.status)
	}
}

// TestReservedPaths asks for paths that only the server itself could have something at, with every method.
func TestReservedPaths(t *testing.T) {
	f, _ := newBaskets(t)
	for target, says := range map[string]string{
		"/_feed":                      "The feed is at '/_events'",
		"/_feed/stream":               "The feed is at '/_events'",
		"/_projections":               "A projection is at '/_projections/{name}'",
		"/_event":                     "Did you mean '/_events'?",
		"/%5Fevent":                   "Did you mean '/_events'?",
		"/_transactions":              "Did you mean '/_transaction'?",
		"/_zzz":                       "",
		"/_zzz/" + noteID:             "",
		"/_zzz/" + noteID + "/x":      "",
		"/_zzz/" + noteID + "/length": "",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			got := f.do(t, method, target, "")
			detail := got.member(t, "detail")
			if got.status != http.StatusNotFound || got.member(t, "code") != "not_found" ||
				!strings.Contains(detail, says) {
				t.Errorf("%s %s: %d %s, want %q", method, target, got.status, got.body, says)
			}
			if says == "" && detail != "There is nothing at this path" {
				t.Errorf("%s %s: %q", method, target, detail)
			}
		}
	}

	// What is there for other methods still says so, and what has a name of its own.
	if got := f.do(t, http.MethodGet, "/_transaction", ""); got.status != http.StatusMethodNotAllowed {
		t.Errorf("GET /_transaction: %d %s", got.status, got.body)
	}
	if got := f.do(t, http.MethodGet, "/feed", ""); got.member(t, "code") != "unknown_aggregate_type" {
		t.Errorf("GET /feed: %s", got.body)
	}
}

// TestPathsOfRows asks for the paths of rows without their underscore, where an id stands.
func TestPathsOfRows(t *testing.T) {
	f, _ := newBaskets(t)
	for target, says := range map[string]string{
		"basket/stream":  "Did you mean '/_projections/basket/_stream'?",
		"basket/count":   "Did you mean '/_projections/basket/_count'?",
		"basket/streams": "",
		"pair/stream":    "",
		"ghost/stream":   "",
	} {
		got := f.do(t, http.MethodGet, "/_projections/"+target, "")
		if meant := strings.Contains(got.member(t, "detail"), "/_"); meant != (says != "") ||
			!strings.Contains(got.member(t, "detail"), says) {
			t.Errorf("%s: %s, want %q", target, got.body, says)
		}
		if says != "" &&
			(got.status != http.StatusUnprocessableEntity || got.member(t, "code") != "invalid_identifier") {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
}

// TestOpenAPIOfProjections looks for the paths and the parameters of each projection, those that it needs with a mark.
func TestOpenAPIOfProjections(t *testing.T) {
	raw, err := httpapi.OpenAPI(httpapi.InstanceDocument, "test", "https://shop.example", enginetest.Compiled(t, strings.Replace(basketSpec, `"pair":`, `
		"listed":{"for_each":"item","sources":{"item":"$key"},"select":{"name":"$.item.name","n":"$.item.n"},"index":["n",{"words":"name"}]},
		"found":{"sources":[{"aggregate":"item","query":"name = $.name"}]},"of_key":{"sources":[{"aggregate":"item","id":"$key"}]},
		"of_both":{"sources":[{"aggregate":"item","id":"$key"},{"aggregate":"item","as":"others","query":"name = $.name"}]},"pair":`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	type parameter struct {
		Name, In string
		Ref      string `json:"$ref"`
		Required bool
	}
	var doc struct {
		Paths map[string]struct {
			Get struct{ Parameters []parameter }
		}
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for path, item := range doc.Paths {
		if !strings.HasPrefix(path, "/_projections/") || strings.HasSuffix(path, "/_stream") {
			continue
		}
		var names []string
		for _, p := range item.Get.Parameters {
			if p.Ref != "" {
				p = doc.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			}
			switch {
			case p.In == "query" && p.Required:
				names = append(names, p.Name+"!")
			case p.In == "query":
				names = append(names, p.Name)
			}
		}
		slices.Sort(names)
		got[strings.TrimPrefix(path, "/_projections/")] = strings.Join(names, " ")
	}
	for path, want := range map[string]string{
		"basket/{id}": "at synchronous", "listed/{id}": "at synchronous", "of_key/{id}": "at synchronous",
		"found/{id}": "synchronous",
		"pair":       "at one! other! synchronous", "found": "name! synchronous", "of_both/{id}": "name! synchronous",
		"of_both/{id}/stream": "heartbeat name!", "found/{id}/stream": "heartbeat",
	} {
		if given, ok := got[path]; !ok || given != want {
			t.Errorf("%s takes %q, want %q", path, given, want)
		}
	}
	for _, path := range []string{"pair/{id}", "of_key", "pair/_count", "{name}", "{name}/{id}"} {
		if _, ok := got[path]; ok {
			t.Errorf("%s is described", path)
		}
	}
	for _, name := range []string{"count", "n", "n.gte", "n.in", "name.words", "order", "start"} {
		if !slices.Contains(strings.Fields(got["listed"]), name) {
			t.Errorf("the list takes %s and not %s", got["listed"], name)
		}
	}
}

// TestValuesOfPathsAreNotKept: the record of a failure and the log have the id of an aggregate, which an erasure finds,
// and no value that a projection looks for.
func TestValuesOfPathsAreNotKept(t *testing.T) {
	const spec = `{"agent_types":["user"],"aggregate_types":{"item":{"events":{"was_made":{"schema":{},"handler":%s}}}},"projections":{
		"each":{"for_each":"item","sources":{"item":"$key"},"select":{"name":"$.item.name"}},
		"found":{"sources":[{"aggregate":"item","as":"one","id":"$.one"}]}}}`
	p := newPlane(t, func(o *httpapi.Options) { o.DefaultInstance = "app" })
	tenant := j17.TenantOf(p.instance.ID, j17.Prod)
	p.Engine.Deploy(tenant, enginetest.Compiled(t, fmt.Sprintf(spec, `[{"merge":{"target":"","value":"$.data"}}]`)), nil)
	p.handled(t, http.StatusCreated, http.MethodPost, "/item/"+itemID(1)+"/was_made", `{"data":{},`+actor+`}`)
	p.Engine.Deploy(tenant, enginetest.Compiled(t, fmt.Sprintf(spec, `{"wasm":"gone.wasm"}`)), nil)

	for path, want := range map[string]string{
		"/_projections/each/" + itemID(1):              "/_projections/each/" + itemID(1),
		"/_projections/found/" + itemID(1):             "/_projections/found/{id}",
		"/_projections/found/" + itemID(1) + "/stream": "/_projections/found/{id}/stream",
	} {
		got := p.do(t, http.MethodGet, path, "")
		f, err := p.registry.Faults.ByID(t.Context(), got.member(t, "error_id"))
		if err != nil || got.status != http.StatusInternalServerError {
			t.Fatalf("%s: %d %s: %v", path, got.status, got.body, err)
		}
		if f.Path != want {
			t.Errorf("%s is kept as %s", path, f.Path)
		}
		if !strings.Contains(p.log.String(), `"path":"`+want+`"`) {
			t.Errorf("%s is not in the log", want)
		}
		for line := range strings.Lines(p.log.String()) {
			if want != path && strings.Contains(line, `"path":"`+path+`"`) {
				t.Errorf("the log has %s", line)
			}
		}
	}

	// Nor what somebody takes for an id.
	if got := p.do(t, http.MethodGet, "/item/anna@example.org", ""); got.status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if log := p.log.String(); strings.Contains(log, "anna") || !strings.Contains(log, `"path":"/{type}/{id}"`) {
		t.Error("the log has what was no id, or not that there was a request")
	}
}
