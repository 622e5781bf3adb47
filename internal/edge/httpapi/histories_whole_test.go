//go:build !race

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	shapes "j17/internal/base/wire"
	"j17/internal/storage/store"
)

// made is an operation with an event that makes it change something.
type made struct {
	state, operation, data, pointer string
}

// operations are all that handlers have, by their names.
func operations() map[string]made {
	return map[string]made{
		"set":           {`{"a":{"c":0}}`, `{"set":{"target":"a.b","value":"$.data.v"}}`, `{"v":1}`, "/a/b"},
		"merge":         {`{"p":{"x":1}}`, `{"merge":{"target":"p","value":"$.data"}}`, `{"y":2}`, "/p/y"},
		"append":        {`{"l":[1]}`, `{"append":{"target":"l","value":"$.data.v"}}`, `{"v":2}`, "/l/1"},
		"remove":        {`{"l":[1,2]}`, `{"remove":{"target":"l","value":"$.data.v"}}`, `{"v":2}`, "/l/1"},
		"increment":     {`{"n":1}`, `{"increment":{"target":"n","by":1}}`, `{}`, "/n"},
		"decrement":     {`{"n":1}`, `{"decrement":{"target":"n","by":1}}`, `{}`, "/n"},
		"filter":        {`{"l":[{"n":1},{"n":2}]}`, `{"filter":{"target":"l","as":"$x","keep":{"equals":["$x.n",1]}}}`, `{}`, "/l/1"},
		"map":           {`{"l":[{"n":1}]}`, `{"map":{"target":"l","as":"$x","apply":[{"set":{"target":"m","value":3}},{"increment":{"target":"n","by":1}}]}}`, `{}`, "/l/0/n"},
		"update_where":  {`{"l":[{"id":1},{"id":2}]}`, `{"update_where":{"target":"l","match":{"id":2},"merge":{"ok":true}}}`, `{}`, "/l/1/ok"},
		"upsert":        {`{"l":[{"id":1,"n":1}]}`, `{"upsert":{"target":"l","match":{"id":1},"value":"$.data"}}`, `{"id":1,"n":5}`, "/l/0/n"},
		"append_unique": {`{"l":[1]}`, `{"append_unique":{"target":"l","value":2}}`, `{}`, "/l/1"},
		"set_at":        {`{"o":{}}`, `{"set_at":{"target":"o","key":"$.data.k","value":1}}`, `{"k":"a/b~c"}`, "/o/a~1b~0c"},
		"merge_at":      {`{"o":{"a":{"x":1}}}`, `{"merge_at":{"target":"o","key":"a","value":{"y":2}}}`, `{}`, "/o/a/y"},
		"remove_at":     {`{"o":{"a":1}}`, `{"remove_at":{"target":"o","key":"a"}}`, `{}`, "/o/a"},
		"increment_at":  {`{"o":{"a":1}}`, `{"increment_at":{"target":"o","key":"a","by":1}}`, `{}`, "/o/a"},
		"decrement_at":  {`{"o":{"a":1}}`, `{"decrement_at":{"target":"o","key":"a","by":1}}`, `{}`, "/o/a"},
		"if":            {`{}`, `{"if":{"exists":"$.data.v"},"then":[{"set":{"target":"b","value":1}},{"set":{"target":"a","value":"$.data.v"}}]}`, `{"v":1}`, "/a"},
		"let":           {`{"l":[{"id":7,"n":"x"}]}`, `{"let":{"name":"$f","find":{"in":"l","where":{"id":7}}}},{"set":{"target":"a","value":"$f.n"}}`, `{}`, "/a"},
	}
}

// changes returns the changes of versions.
func (p *plane) changes(tb testing.TB, path string) shapes.AggregateChanges {
	tb.Helper()
	got := p.control(tb, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/"+path, "", p.admin)
	var all shapes.AggregateChanges
	if err := json.Unmarshal([]byte(got.body), &all); err != nil || got.status != http.StatusOK {
		tb.Fatal(got.status, got.body, err)
	}
	return all
}

// blame returns what set each leaf of a state, as pointers with versions.
func (p *plane) blame(tb testing.TB, path string) map[string]uint64 {
	tb.Helper()
	got := p.control(tb, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/"+path, "", p.admin)
	var all shapes.Blame
	if err := json.Unmarshal([]byte(got.body), &all); err != nil || got.status != http.StatusOK {
		tb.Fatal(got.status, got.body, err)
	}
	by := map[string]uint64{}
	for _, leaf := range all.Blame {
		by[leaf.Pointer] = leaf.Length
	}
	return by
}

// TestEachOperationIsNamed has each operation change something, alone and behind others: a change leads to the one that
// has made it.
func TestEachOperationIsNamed(t *testing.T) {
	p := newPlane(t, nil)
	tenant := j17.TenantOf(p.instance.ID, j17.Prod)
	var events []string
	all := operations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		events = append(events,
			fmt.Sprintf(`"was_%s":{"schema":{},"handler":[{"set":{"target":"first","value":1}},%s,{"set":{"target":"last","value":1}}]}`, name, all[name].operation))
		if name != "let" {
			events = append(events, fmt.Sprintf(`"was_only_%s":{"schema":{},"handler":%s}`, name, all[name].operation))
		}
	}
	events = append(events, `"was_begun":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}`,
		`"was_twice":{"schema":{},"handler":[{"set":{"target":"n","value":1}},{"set":{"target":"n","value":2}},{"set":{"target":"n","value":2}}]}`, `"was_idle":{"schema":{},"handler":[]}`)
	p.Engine.Deploy(tenant, specOf(t, `{"agent_types":["user"],"aggregate_types":{"thing":{"events":{`+strings.Join(events, ",")+`}}}}`), nil)
	post := func(id, event, data string) {
		t.Helper()
		if got := p.do(
			t, "POST", "/thing/"+id+"/"+event, `{"data":`+data+`,`+actor+`}`,
		); got.status != http.StatusCreated {
			t.Fatal(event, got.status, got.body)
		}
	}
	made := func(id, pointer string, version int) string {
		t.Helper()
		of := p.changes(t, "thing/"+id+"/changes?from="+fmt.Sprint(version)).Changes[0]
		for _, c := range of.Changes {
			if c.Pointer == pointer {
				return c.Operation
			}
		}
		t.Errorf("%s has not changed in %+v", pointer, of)
		return ""
	}
	n := 0
	for name, op := range all {
		for _, event := range []string{"was_" + name, "was_only_" + name} {
			if event == "was_only_let" {
				continue
			}
			n++
			id := fmt.Sprintf("550e8400-e29b-41d4-a716-4466554%05d", n)
			post(id, "was_begun", op.state)
			post(id, event, op.data)
			want := "/aggregate_types/thing/events/" + event + "/handler"
			switch {
			case name == "let":
				want += "/2"
			case event == "was_"+name:
				want += "/1"
			}
			if got := made(id, op.pointer, 2); got != want {
				t.Errorf("%s: %s, want %s", event, got, want)
			}
			if event == "was_"+name {
				if got := made(id, "/first", 2); !strings.HasSuffix(got, "/handler/0") {
					t.Errorf("%s: /first is by %s", event, got)
				}
			}
		}
	}
	const id = "550e8400-e29b-41d4-a716-446655499999"
	post(id, "was_begun", `{}`)
	post(id, "was_twice", `{}`)
	post(id, "was_idle", `{}`)
	if got := made(id, "/n", 2); !strings.HasSuffix(got, "/handler/1") { // the last that has changed it
		t.Error(got)
	}
	if of := p.changes(t, "thing/"+id+"/changes?from=3").Changes; len(of) != 1 || len(of[0].Changes) != 0 {
		t.Errorf("an event that changes nothing: %+v", of)
	}
}

// append writes events of a note past the API, which is faster.
func (p *plane) append(tb testing.TB, id string, data ...string) {
	tb.Helper()
	for part := range slices.Chunk(data, 500) {
		var unit store.Append
		for _, d := range part {
			unit.Events = append(unit.Events, store.NewEvent{Key: j17.Key{Type: "note", ID: id}, Type: "was_written", Data: []byte(d), Metadata: []byte(`{"actor":{"type":"user","id":"global"}}`)})
		}
		results, err := p.store.Append(tb.Context(), j17.TenantOf(p.instance.ID, j17.Prod), []store.Append{unit})
		if err != nil || results[0].Outcome != store.Committed {
			tb.Fatal(results, err)
		}
	}
}

// TestHistoriesOfHostileStates asks for the changes and the blame of states that are deep, wide, full of elements, or
// have names of all kinds. Each is answered, or refused for its work.
func TestHistoriesOfHostileStates(t *testing.T) {
	p := newPlane(t, nil)
	wide := func(n, from int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":%d`, i, i+from)
		}
		return "{" + b.String()[1:] + "}"
	}
	deep := func(leaf string) string {
		return strings.Repeat(`{"d":`, 100) + leaf + strings.Repeat("}", 100)
	}
	lists := func(n int, leaf string) string {
		return `{"l":[` + strings.Repeat(leaf+",", n) + leaf + `]}`
	}
	for i, data := range [][]string{
		{wide(20_000, 0), wide(20_000, 1), wide(20_000, 2)},
		{deep("1"), deep("2"), deep(wide(1000, 0)), deep(wide(1000, 1))},
		{lists(50_000, "1"), lists(50_000, "2"), lists(10, "3")},
		{lists(300, deep("1")), lists(300, deep("2"))},
		{`{"":1,"/":2,"~":3,"~1":4,"a/b":{"":{"":5}},"__proto__":6}`, `{"":2,"/":3,"~":4,"~1":5,"a/b":{"":{"":6}},"__proto__":7}`},
		{
			`{"a":1}`, `{"a":{"b":1}}`, `{"a":[{"b":1}]}`, `{"a":{"b":1}}`, `{"a":{}}`, `{"a":{}}`, `{"a":[1,2]}`,
			`{"a":[]}`, `{"a":null}`,
		},
		{`{"t":"` + strings.Repeat("x", 400_000) + `"}`, `{"t":"` + strings.Repeat("x", 400_000) + `y"}`},
	} {
		id := fmt.Sprintf("550e8400-e29b-41d4-a716-44665550%04d", i)
		p.append(t, id, data...)
		path := "/api/instances/" + p.instance.ID + "/ops/prod/aggregates/note/" + id
		for _, what := range []string{"/changes", "/blame"} {
			began := time.Now()
			got := p.control(t, http.MethodGet, path+what, "", p.admin)
			switch {
			case got.status == http.StatusOK && len(got.body) < 4<<20:
			case got.status == http.StatusUnprocessableEntity && got.member(t, "code") == "work_limit":
			default:
				t.Errorf("%d, %s: %d %.300s", i, what, got.status, got.body)
			}
			t.Logf("%d%s: %d, %d bytes, %s", i, what, got.status, len(got.body), time.Since(began))
		}
	}

	// What all members of a hundred large states were set to is too much for one page.
	const large = "550e8400-e29b-41d4-a716-446655500099"
	var many []string
	for i := range 100 {
		many = append(many, wide(20_000, i))
	}
	for part := range slices.Chunk(many, 10) {
		p.append(t, large, part...)
	}
	path := "/api/instances/" + p.instance.ID + "/ops/prod/aggregates/note/" + large
	if got := p.control(
		t, http.MethodGet, path+"/changes", "", p.admin,
	); got.status != http.StatusUnprocessableEntity || got.member(t, "code") != "work_limit" {
		t.Errorf("%d %.300s", got.status, got.body)
	}
	p.control(t, http.MethodGet, path+"/changes?from=99&count=2", "", p.admin).wants(t, http.StatusOK, `"more":19800`)

	const odd = "550e8400-e29b-41d4-a716-446655500004"
	want := map[string]uint64{"/": 2, "/~1": 2, "/~0": 2, "/~01": 2, "/a~1b//": 2, "/__proto__": 2}
	if got := p.blame(t, "note/"+odd+"/blame"); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	const turned = "550e8400-e29b-41d4-a716-446655500005"
	for length, want := range []map[string]uint64{
		{"/a": 1},
		{"/a/b": 2},
		{"/a/0/b": 3},
		{"/a/b": 4},
		{"/a": 5},
		{"/a": 5},
		{"/a/0": 7, "/a/1": 7},
		{"/a": 8},
		{"/a": 9},
	} {
		got := p.blame(t, fmt.Sprintf("note/%s/blame?length=%d", turned, length+1))
		if !maps.Equal(got, want) {
			t.Errorf("at %d: %v, want %v", length+1, got, want)
		}
	}
	of := p.changes(t, "note/550e8400-e29b-41d4-a716-446655500000/changes").Changes
	if len(of) != 3 || len(of[1].Changes) != 200 || of[1].More != 20_000-200 {
		t.Errorf("%d versions", len(of))
	}
}

// TestHistoriesOfTenThousandVersions asks for the changes and the blame of a long history: whatever set a leaf, lately
// or at first, is found within the budget of a read.
func TestHistoriesOfTenThousandVersions(t *testing.T) {
	p := newPlane(t, nil)
	const id, n = "550e8400-e29b-41d4-a716-446655440000", 10_000
	data := make([]string, n)
	for i := range data {
		data[i] = fmt.Sprintf(`{"first":1,"second":%t,"third":{"deep":[%d,1]},"n":%d}`, i > 0, i/5000, i)
	}
	p.append(t, id, data...)
	began := time.Now()
	want := map[string]uint64{"/first": 1, "/second": 2, "/third/deep/0": 5001, "/third/deep/1": 1, "/n": n}
	if got := p.blame(t, "note/"+id+"/blame"); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	t.Logf("a blame of %d versions takes %s", n, time.Since(began))
	want = map[string]uint64{"/first": 1, "/second": 2, "/third/deep/0": 1, "/third/deep/1": 1, "/n": 5000}
	if got := p.blame(t, "note/"+id+"/blame?length=5000"); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for _, from := range []int{1, 4951, 9901} {
		of := p.changes(t, fmt.Sprintf("note/%s/changes?from=%d", id, from))
		if len(of.Changes) != 100 || of.Length != n || of.Changes[99].Length != uint64(from)+99 ||
			len(of.Changes[99].Changes) == 0 {
			t.Errorf("from %d: %d versions of %d", from, len(of.Changes), of.Length)
		}
	}

	// What is too much is said to be.
	const wide = "550e8400-e29b-41d4-a716-446655440001"
	for i := range data {
		data[i] = fmt.Sprintf(`{"n":%d,"l":[%s0]}`, i, strings.Repeat(fmt.Sprint(i, ","), 60))
	}
	p.append(t, wide, data...)
	got := p.control(
		t, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/note/"+wide+"/blame", "", p.admin,
	)
	if got.status != http.StatusOK && got.member(t, "code") != "work_limit" {
		t.Errorf("%d %.300s", got.status, got.body)
	}
}

// TestHistoriesOfErasedEvents erases what an aggregate was: its versions stay, and have nothing to tell.
func TestHistoriesOfErasedEvents(t *testing.T) {
	p := newPlane(t, nil)
	const id, private = "550e8400-e29b-41d4-a716-446655440000", "hunter2"
	p.write(t, id+"/was_written", `{"name":"`+private+`"}`)
	p.write(t, id+"/was_written", `{"name":"`+private+`2"}`)
	if _, err := p.store.Rewrite(t.Context(), j17.TenantOf(p.instance.ID, j17.Prod),
		store.Rewrite{Streams: []store.RewrittenStream{{
			Key: j17.Key{Type: "note", ID: id}, Events: []store.Rewritten{
				{Version: 1, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
				{Version: 2, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
			},
		}}}); err != nil {
		t.Fatal(err)
	}
	p.write(t, id+"/was_written", `{"later":1}`)
	for _, what := range []string{"/changes", "/blame", "/blame?length=2"} {
		got := p.control(
			t, http.MethodGet, "/api/instances/"+p.instance.ID+"/ops/prod/aggregates/note/"+id+what, "", p.admin,
		)
		if got.status >= http.StatusInternalServerError || strings.Contains(got.body, private) {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
		t.Log(what, got.status, got.body)
	}
}
