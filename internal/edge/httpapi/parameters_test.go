package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestMoments asks for states and values at times in all forms. The clock of the fixture is at 1,700,000,000, which is
// 2023-11-14T22:13:20Z.
func TestMoments(t *testing.T) {
	f := newRows(t, rowsSpec)
	now := f.clock.Now().Unix()
	f.write(t, noteA+"/was_written", `{"text":"first"}`)
	f.clock.Advance(100 * time.Second)
	f.write(t, noteA+"/was_written", `{"text":"second"}`)
	for at, want := range map[string]string{
		fmt.Sprint(now):               "first",
		fmt.Sprint(now + 99):          "first",
		fmt.Sprint(now + 100):         "second",
		fmt.Sprint(now + 86_000):      "second",
		"2023-11-14T22:13:20Z":        "first",
		"2023-11-14t22:13:20.99z":     "first",
		"2023-11-15T00:13:20+02:00":   "first",
		"2023-11-14T17:15:00-05:00":   "second",
		"2023-11-15T20:00:00Z":        "second",
		"":                            "must be a time in Unix seconds",
		"soon":                        "must be a time in Unix seconds",
		"1.5":                         "must be a time in Unix seconds",
		"-1":                          "not before 1970",
		"1969-12-31T23:59:59Z":        "not before 1970",
		"2023-13-01T00:00:00Z":        "must be a time in Unix seconds",
		"2023-11-14":                  "must be a time in Unix seconds",
		"2023-11-15T00:13:20 02:00":   `The \"+\" of an offset is written as %2B`,
		fmt.Sprint(now * 1000):        "milliseconds",
		"9223372036854775807":         "milliseconds",
		"92233720368547758070":        "milliseconds",
		fmt.Sprint(now + 86_501):      "at most a day ahead: the time is 2023-11-14T22:15:00Z here",
		"2023-11-15T22:15:01Z":        "at most a day ahead",
		"2300-01-01T00:00:00Z":        "at most a day ahead",
		"9999-12-31T23:59:59.999999Z": "at most a day ahead",
	} {
		for _, path := range []string{
			"/note/" + noteA, "/_projections/notes/" + noteA, "/_projections/by_id?note=" + noteA,
		} {
			sep := "?"
			if strings.Contains(path, sep) {
				sep = "&"
			}
			got := f.do(t, http.MethodGet, path+sep+"at="+url.QueryEscape(at), "")
			status := http.StatusOK
			if want != "first" && want != "second" {
				status = http.StatusBadRequest
			}
			if got.status != status || !strings.Contains(got.body, want) {
				t.Errorf("%s at %q: %d %s, want %s", path, at, got.status, got.body, want)
			}
		}
	}
}

// TestParametersOfOtherSystems asks with names of parameters that other systems have.
func TestParametersOfOtherSystems(t *testing.T) {
	f := newRows(t, rowsSpec)
	for target, says := range map[string]string{
		"/note?limit=5":                              "did you mean 'count'?",
		"/note/global/events?per_page=5":             "did you mean 'count'?",
		"/note/global/events?after=1":                "did you mean 'start'?",
		"/note/global?asOf=5":                        "did you mean 'at'?",
		"/note/global?version=5":                     "did you mean 'length'?",
		"/_events?limit=1":                           "did you mean 'count'?",
		"/note/nearby?lat=1&lon=1&radius=5":          "did you mean 'lng'?",
		"/note/nearby?latitude=1&lng=1&radius=5":     "did you mean 'lat'?",
		"/_projections/notes?sort=due":               "Did you mean the parameter 'order' of lists?",
		"/_projections/notes?limit=5":                "Did you mean the parameter 'count' of lists?",
		"/_projections/notes?note.text=5":            "No index of the projection",
		"/_projections/by_id?note=global&as_of=2023": "did you mean 'at'?",
	} {
		if got := f.do(t, http.MethodGet, target, ""); got.status != http.StatusBadRequest ||
			!strings.Contains(got.member(t, "detail"), says) {
			t.Errorf("%s: %d %s, want %q", target, got.status, got.body, says)
		}
	}
}

// TestEmptyElementsOfLists sends headers that are lists as proxies make them that join several: empty elements mean
// nothing.
func TestEmptyElementsOfLists(t *testing.T) {
	f := newRows(t, rowsSpec)
	f.write(t, noteA+"/was_written", `{"text":"first"}`)
	tag := f.do(t, http.MethodGet, "/note/"+noteA, "").header.Get("ETag")
	for list, want := range map[string]int{
		", " + tag: 304, `"x",,` + tag: 304, `"x" , , ` + tag + ",": 304, ",," + tag: 304, " \t" + tag + "\t,": 304,
		`, "x",`: 200,
		",":      400, " , ,": 400, `"x" "y"`: 400, ", *": 400, "*": 304,
	} {
		if got := f.do(t, http.MethodGet, "/note/"+noteA, "", "If-None-Match: "+list); got.status != want {
			t.Errorf("If-None-Match: %s: %d %s, want %d", list, got.status, got.body, want)
		}
	}
	write := func(list string) int {
		return f.do(
			t, http.MethodPost, "/note/"+noteA+"/was_written", `{"data":{},`+actor+`}`, "If-Match: "+list,
		).status
	}
	if got := write(`, "x",`); got != http.StatusConflict && got != http.StatusPreconditionFailed {
		t.Errorf("If-Match with another tag: %d", got)
	}
	if got := write(`,, ` + tag + `, "x"`); got != http.StatusCreated {
		t.Errorf("If-Match with the tag: %d", got)
	}
}

// TestPathsThatAreAlmostRight asks for a path with a slash at its end, and deploys where specs are read.
func TestPathsThatAreAlmostRight(t *testing.T) {
	f := newRows(t, rowsSpec)
	for _, path := range []string{"/note/", "/note/" + noteA + "/", "/_events/", "/_projections/notes/"} {
		if got := f.do(t, http.MethodGet, path, ""); got.status != http.StatusNotFound ||
			!strings.Contains(got.body, "it ends with a slash") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := f.do(t, http.MethodPost, "/_admin/spec", "{}"); got.status != http.StatusMethodNotAllowed ||
		!strings.Contains(got.body, "POST /api/instances/{instance}/spec") {
		t.Errorf("%d %s", got.status, got.body)
	}
}
