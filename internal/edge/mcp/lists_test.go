package mcp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"j17"
	"j17/internal/edge/client"
)

// page returns the first rows as far as count says, the rest after them.
func (r *running) page(what string, q url.Values) (client.RowPage, error) {
	r.listed = append(r.listed, what+" "+q.Encode())
	count, err := strconv.Atoi(q.Get("count"))
	if err = cmp.Or(r.err, err); err != nil {
		return client.RowPage{}, err
	}
	p := client.RowPage{Rows: r.rows[:min(count, len(r.rows))], Position: "1795300000000-0"}
	if len(p.Rows) < len(r.rows) {
		p.Next = strconv.Itoa(count)
	}
	return p, nil
}

func (r *running) ProjectionRows(_ context.Context, name string, q url.Values) (client.RowPage, error) {
	return r.page(name, q)
}

func (r *running) CountRows(_ context.Context, name string, q url.Values) (uint64, error) {
	r.listed = append(r.listed, name+" "+q.Encode())
	return uint64(len(r.rows)), r.err
}

func (r *running) Places(_ context.Context, aggregateType, question string, q url.Values) (client.RowPage, error) {
	return r.page(aggregateType+" "+question, q)
}

// TestLists reads rows of projections, and what is somewhere.
func TestLists(t *testing.T) {
	r := &running{rows: []json.RawMessage{[]byte(`{"id":"a","data":{"n":1.50}}`), []byte(`{"id":"b","data":{"n":2}}`)}}
	s := connect(t, options(t, r))
	for _, c := range []struct{ tool, arguments, asked, answer string }{
		{"list_rows", `{"name":"tickets"}`, "tickets count=20", `{"rows":[{"id":"a","data":{"n":1.50}},{"id":"b","data":{"n":2}}],"next":null,"position":"1795300000000-0"}`},
		{
			"list_rows", `{"name":"tickets","filters":{"team":"red","n.gte":"1e400"},"order":"-n","count":1,"start":"x"}`,
			"tickets count=1&n.gte=1e400&order=-n&start=x&team=red", `{"rows":[{"id":"a","data":{"n":1.50}}],"next":"1","position":"1795300000000-0"}`,
		},
		{"list_rows", `{"name":"shops","lat":40.70,"lng":-74,"radius":5e3}`, "shops count=20&near=40.70%2C-74&radius=5e3", `"next":null`},
		{"count_rows", `{"name":"tickets","filters":{"title.words":"blue ki"}}`, "tickets title.words=blue+ki", `{"projection":"tickets","count":2}`},
		{"find_nearby", `{"type":"shop","lat":0,"lng":-179.5}`, "shop nearby count=20&lat=0&lng=-179.5", `"next":null`},
		{"find_nearby", `{"type":"shop","lat":1e-400,"lng":0,"radius":1,"data":false,"start":null}`, "shop nearby count=20&data=false&lat=1e-400&lng=0&radius=1", `"next":null`},
		{"find_within", `{"type":"shop","box":[1,2,3.0,4],"data":true}`, "shop within box=1%2C2%2C3.0%2C4&count=20&data=true", `"next":null`},
		{"find_within", `{"type":"shop","polygon":[1,2,3,4,5,6]}`, "shop within count=20&polygon=1%2C2%2C3%2C4%2C5%2C6", `"next":null`},
		{"find_containing", `{"type":"zone","lat":1,"lng":2,"count":2}`, "zone containing count=2&lat=1&lng=2", `"next":null`},
	} {
		r.listed = nil
		text, failed := call(t, s, c.tool, c.arguments)
		if failed || !strings.Contains(text, c.answer) || !slices.Equal(r.listed, []string{c.asked}) {
			t.Errorf("%s %s: %s, asked for %q", c.tool, c.arguments, text, r.listed)
		}
	}

	// What is wrong is said without asking the server.
	r.listed = nil
	for _, c := range []struct{ tool, arguments, want string }{
		{"list_rows", `{}`, `needs the argument "name"`},
		{"list_rows", `{"name":""}`, "must not be empty"},
		{"list_rows", `{"name":"x","count":201}`, "fit its schema: count: The number must be at most 200, but it is 201."},
		{"list_rows", `{"name":"x","filters":{"count":"5"}}`, `"count" is no filter`},
		{"list_rows", `{"name":"x","count":-1}`, "count: The number must be at least 1"},
		{"list_rows", `{"name":"x","count":"5"}`, "count: The value must be an integer, but it is a string."},
		{"list_rows", `{"name":"x","count":5.0}`, "cannot be the number 5.0"},
		{"list_rows", `{"name":null}`, `needs the argument "name"`},
		{"list_rows", `{"name":"x","filters":{"n":5}}`, "filters.n: The value must be a string, but it is a number (5)."},
		{"list_rows", `{"name":"x","filters":{"n":null}}`, "filters.n: The value must be a string, but it is null."},
		{"list_rows", `{"name":"x","filter":{}}`, `Did you mean "filters"?`},
		{"list_rows", `{"name":"x","lat":1,"lng":2}`, `"radius"`},
		{"list_rows", `{"name":"x","lat":"NaN"}`, "lat: The value must be a number"},
		{"count_rows", `{"name":"x","order":"n"}`, "no argument"},
		{"find_nearby", `{"type":"","lat":1,"lng":2}`, "must not be empty"},
		{"find_nearby", `{"type":"shop","lat":1}`, `needs the argument "lng"`},
		{"find_within", `{"type":"shop"}`, `either "box" or "polygon"`},
		{"find_within", `{"type":"shop","box":[1,2,3,4],"polygon":[1,2,3,4,5,6]}`, `either "box" or "polygon"`},
		{"find_nearby", `{"type":"shop","lat":1e400,"lng":2}`, "lat: The number must be at most 90, but it is 1e400."},
		{"find_nearby", `{"type":"shop","lat":1,"lng":2,"radius":0}`, "radius: The number must be greater than 0"},
		{"find_within", `{"type":"shop","box":[1,2,3]}`, "box: "},
		{"find_within", `{"type":"shop","box":["a",2,3,4]}`, "box[0]: The value must be a number"},
		{"find_within", `{"type":"shop","polygon":[0` + strings.Repeat(",0", 20_000) + `]}`, "polygon: "},
		{"find_containing", `{"type":"shop","lat":"1","lng":2}`, "lat: The value must be a number"},
	} {
		refusal(t, s, c.tool, c.arguments, c.want)
	}
	if len(r.listed) > 0 {
		t.Errorf("the server was asked for %q", r.listed)
	}

	// What the server refuses is told as it says it.
	r.err = &client.Error{Problem: j17.Errorf(j17.CodeNotIndexed, "No index serves this list"), Status: 400}
	for _, tool := range []string{"list_rows", "count_rows"} {
		refusal(t, s, tool, `{"name":"x"}`, "No index serves this list", "Code: not_indexed")
	}
	refusal(t, s, "find_containing", `{"type":"zone","lat":1,"lng":2}`, "Code: not_indexed")

	// Where it sends its readers elsewhere, the tool that goes there is named.
	r.err = &client.Error{Problem: j17.Errorf(j17.CodeInvalidParameter, "The projection 'x' has no rows: read it").At("count"), Status: 400}
	for _, tool := range []string{"list_rows", "count_rows"} {
		refusal(t, s, tool, `{"name":"x"}`, "The projection 'x' has no rows: it is not for each aggregate of a type. read_projection reads it, with its parameters.", "Code: invalid_parameter")
		if text, _ := call(t, s, tool, `{"name":"x"}`); strings.Contains(text, "count") {
			t.Errorf("%s tells of a parameter that nobody has given: %s", tool, text)
		}
	}
	r.err = &client.Error{
		Problem: j17.Errorf(j17.CodeInvalidParameter, "Say which one, or ask for its rows."), Status: 200,
	}
	refusal(t, s, "read_projection", `{"name":"x"}`, "or ask for its rows. list_rows lists them.")
}

// TestLargeRows: a page has as many rows as an answer has room for, and the next one goes on behind them.
func TestLargeRows(t *testing.T) {
	large := json.RawMessage(`{"id":"a","data":"` + strings.Repeat("x", 100<<10) + `"}`)
	r := &running{rows: []json.RawMessage{large, large, large, large, large, large, large}}
	s := connect(t, options(t, r))
	text, failed := call(t, s, "list_rows", `{"name":"x"}`)
	if want := []string{"x count=20", "x count=5"}; failed || !strings.HasSuffix(text, `"next":"5","position":"1795300000000-0"}`) || !slices.Equal(r.listed, want) {
		t.Errorf("%.100s, asked for %q", text, r.listed)
	}

	// One that has none for a single row says so.
	r.rows = []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", 600<<10) + `"`)}
	refusal(t, s, "list_rows", `{"name":"x"}`, "Ask for less")
}
