//go:build !race

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// overfullShopsSpec has shops with places, and a projection with two arrays in one index.
const overfullShopsSpec = `{
	"agent_types": ["user"],
	"aggregate_types": {"shop": {"events": {"was_opened": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.at"}}}}},
	"projections": {"shops": {"for_each": "shop", "sources": {"shop": "$key"}, "select": {"title": "$.shop.title", "a": "$.shop.a", "b": "$.shop.b"}, "index": ["title", ["a", "b"]]}}
}`

// TestOverfullRowsAroundAPoint: around a point a row that has more entries than a row may have is found as if all of
// its fields were null, and has an error.
func TestOverfullRowsAroundAPoint(t *testing.T) {
	f := newRows(t, overfullShopsSpec)
	open := func(n int, title string, items int) string {
		var all []string
		for i := range items {
			all = append(all, strconv.Itoa(i))
		}
		numbers := "[" + strings.Join(all, ",") + "]"
		return f.post(t, "shop", n, "was_opened", `{"at":{"lat":50,"lng":10},`+title+`"a":`+numbers+`,"b":`+numbers+`}`)
	}
	large, small, untitled := open(1, `"title":"large",`, 101), open(2, `"title":"small",`, 99), open(3, ``, 99)
	for filter, want := range map[string][]string{
		"title=large": nil, "title=small": {small}, "title=null": {large, untitled}, "title=ghost": nil,
		"a=5": {small, untitled}, "a=null": {large}, "a=null&b=null": {large}, "a=5&b=null": nil,
	} {
		got := f.do(t, "GET", "/_projections/shops?near=50,10&radius=1000&"+filter, "")
		var page struct {
			Rows []struct {
				ID    string
				Data  json.RawMessage
				Error struct{ Code string }
			}
		}
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatalf("%s: %v in %.200s", filter, err, got.body)
		}
		var ids []string
		for _, row := range page.Rows {
			ids = append(ids, row.ID)
			if (row.ID == large) != (row.Error.Code == "projection_limit") || (row.Data == nil) != (row.ID == large) {
				t.Errorf("%s: %s is %.80s, %v", filter, row.ID, row.Data, row.Error)
			}
		}
		if strings.Join(ids, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %q, not %q: %.200s", filter, ids, want, got.body)
		}
	}
}

// TestPagesAroundAPointReadAsMuchAsOthers: a page around a point ends where the aggregates are read that may be for
// one, also those of rows that filters leave out, and the next one goes on.
func TestPagesAroundAPointReadAsMuchAsOthers(t *testing.T) {
	const shops, sources, most = 60, 1000, 50_000
	f := newRows(t, `{
		"agent_types": ["user"],
		"aggregate_types": {
			"shop": {"events": {"was_opened": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.at"}}}},
			"item": {"events": {"was_made": {"schema": {}, "handler": []}}}},
		"projections": {"shops": {"for_each": "shop", "sources": {"shop": "$key", "items": {"type": "item", "id": "$.shop.items", "mode": "array"}},
			"select": {"title": "$.shop.title", "items": "$.items"}, "index": ["title"]}}
	}`)
	var items []string
	for n := range sources {
		items = append(items, fmt.Sprintf(`"0b6e9d4e-6f0a-4f3c-8c53-%012d"`, n))
	}
	for n := range shops {
		f.post(t, "shop", n, "was_opened", `{"at":{"lat":50,"lng":10},"items":[`+strings.Join(items, ",")+`]}`)
	}
	for filter, all := range map[string]int{"": shops, "&title=null": shops, "&title=x": 0} {
		rows, pages := 0, 0
		for start := ""; pages == 0 || start != "<nil>"; pages++ {
			if pages > 0 {
				start = "&start=" + start
			}
			got := f.do(t, "GET", "/_projections/shops?near=50,10&radius=1000&count=1000"+filter+start, "")
			start = got.member(t, "next")
			n := strings.Count(got.body, `{"id":`)
			if rows += n; n*(sources+1) > most {
				t.Errorf("%s: a page has %d rows of %d aggregates each", filter, n, sources+1)
			}
			if pages > shops {
				t.Fatalf("%s: no end: %.200s", filter, got.body)
			}
		}
		if want := shops*(sources+1)/most + 1; rows != all || pages != want {
			t.Errorf("%s: %d rows on %d pages, not %d", filter, rows, pages, want)
		}
	}
}
