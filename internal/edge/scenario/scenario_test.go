package scenario_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/clock"
	"j17/internal/edge/client"
	"j17/internal/edge/scenario"
)

// TestParse checks what is said about texts that are no scenarios: line, column and message of each finding.
func TestParse(t *testing.T) {
	for src, want := range map[string][]string{
		`{`:                                   {"1:2: this is no JSON"},
		`7`:                                   {"1:1: this must be an object"},
		`[{}]`:                                {`1:2: "name" is missing`, `1:2: "then" is missing`},
		`{"name":"","then":{}}`:               {`1:9: "name" must be a text`},
		`{"name":"n","then":[]}`:              {"1:20: this must be an object"},
		`{"name":"n","then":{"error":"x"}}`:   {`1:29: an error can only be that of "when"`},
		`{"name":"n","then":{"refused":"x"}}`: {`1:31: only "when" can be refused`},
		`{"name":"n","actor":"u:u","when":{"key":"a:b","type":"x"},"then":{"refused":7}}`:               {`1:77: "refused" must be a text`},
		`{"name":"n","actor":"u:u","when":{"key":"a:b","type":"x"},"then":{"refused":"x","error":"y"}}`: {`1:77: "refused" and "error" exclude each other`},
		`{"name":"n","then":{"implied":7}}`: {
			`1:31: "implied" must be an array`, `1:31: events can only be implied`,
		},
		`{"name":"n","actor":"u:u","when":{"writes":[]},"then":{}}`: {`1:44: "writes" must be an array of writes`},
		`{"name":"n","actor":"u:u","when":{"writes":[{"key":"a","as":1},{"key":"a:b","typ":"x"},7],"key":"a:b","conditions":7},"then":{}}`: {
			`1:91: unknown key "key"`, `1:61: "as" must be a text`, `1:52: "a" is no aggregate`,
			`1:45: "type" is missing`, `1:77: unknown key "typ"`, `1:64: "type" is missing`,
			"1:88: this must be an object", `1:116: "conditions" must be an array`,
		},
		`{"name":"n","then":{"state":{"order":{}}}}`: {`1:30: "order" is no aggregate`},
		`{"name":"n","then":{"exact":1}}`: {
			`1:29: "exact" must be true or false`,
		},
		`{"name":"n","actor":"ada","given":{},"then":{}}`:                                        {`1:21: "ada" does not have the form type:id`, `1:35: "given" must be an array`},
		"{\"name\":\"n\",\n\"when\":{\"key\":\"a:b\",\"type\":\"x\",\"events\":[]},\"then\":{}}": {`2:8: "events" stands in the place`, `2:8: there is no "actor"`},
		`{"name":"n","actor":"u:{{u}}","when":{"key":"a:b","events":[],"previous_length":-1,"skip_occ":0},"then":{}}`: {
			`1:60: "events" must be an array of events`, `1:81: "previous_length" must be`, `1:95: "skip_occ" must be true or false`,
		},
	} {
		all, found := scenario.Parse("f.json", src)
		if len(all) > 0 || len(found) != len(want) {
			t.Errorf("%s: %v, %v", src, all, found)
			continue
		}
		for i, d := range found {
			if got := fmt.Sprintf("%d:%d: %s", d.Line, d.Column, d.Message); !strings.HasPrefix(got, want[i]) {
				t.Errorf("%s: %s; want %s", src, got, want[i])
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`[{"name":"n","actor":"u:{{u}}","given":[{"key":"a:{{a}}","type":"x","data":{"{{a}}":1}}],"when":{"key":"a:b","events":[{"type":"y"}]},"then":{"state":{"a:{{a}}":{"$absent":true}},"implied":[],"exact":true}}]`)
	f.Fuzz(func(t *testing.T, src string) {
		all, found := scenario.Parse("f.json", src)
		for _, d := range found {
			if d.Line < 1 || d.Column < 1 || d.Message == "" {
				t.Errorf("%+v", d)
			}
		}
		if len(all) > 0 && len(found) > 0 {
			t.Error("scenarios that are not valid")
		}
	})
}

// TestCompare checks what counts as the same, by the failures of a scenario whose state a server answers with.
func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		name, expected, got string
		exact               bool
		want                []scenario.Failure
	}{
		{name: "numbers by what they are worth", expected: `{"a":0.30,"b":1e2}`, got: `{"a":0.3,"b":100}`},
		{
			name: "numbers beyond those of machines", expected: `{"a":12345678901234567890.1}`,
			got: `{"a":12345678901234567890.2}`, want: []scenario.Failure{
				{Message: "the state of a:{{a}}, a, is not as expected", Expected: "12345678901234567890.1", Got: "12345678901234567890.2"},
			},
		},
		{name: "a number is no text", expected: `{"a":1}`, got: `{"a":"1"}`, want: []scenario.Failure{{Message: "the state of a:{{a}}, a, is not as expected", Expected: "1", Got: `"1"`}}},
		{name: "more members, at every depth", expected: `{"a":[{"x":1}]}`, got: `{"a":[{"x":1,"y":2}],"z":3}`},
		{
			name: "not when exact", exact: true, expected: `{"a":[{"x":1}]}`,
			got: `{"a":[{"x":1,"y":2}],"created_at":5}`,
			want: []scenario.Failure{
				{Message: "the state of a:{{a}}, a.0.y, is not as expected", Expected: "nothing", Got: "2"},
			},
		},
		{name: "the length of arrays", expected: `{"a":[1]}`, got: `{"a":[1,2]}`, want: []scenario.Failure{
			{Message: "the state of a:{{a}}, a, is not as expected", Expected: "1 elements: [1]", Got: "2: [1,2]"},
		}},
		{name: "null is something", expected: `{"a":null,"b":{"$any":true},"c":{"$absent":true}}`, got: `{"a":null,"b":null}`},
		{name: "matchers that do not", expected: `{"b":{"$any":true},"c":{"$absent":true}}`, got: `{"c":0}`, want: []scenario.Failure{
			{Message: "the state of a:{{a}}, b, is not as expected", Expected: "any value", Got: "nothing"},
			{Message: "the state of a:{{a}}, c, is not as expected", Expected: "nothing", Got: "0"},
		}},
		{name: "missing", expected: `{"a":null}`, got: `{}`, want: []scenario.Failure{{Message: "the state of a:{{a}}, a, is not as expected", Expected: "null", Got: "nothing"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"ok":true,"data":`+tc.got+`,"metadata":{"length":1}}`)
			}))
			defer server.Close()
			exact, err := json.Marshal(tc.exact)
			if err != nil {
				t.Fatal(err)
			}
			got := runOne(
				t, server.URL, `{"name":"n","then":{"exact":`+string(exact)+`,"state":{"a:{{a}}":`+tc.expected+`}}}`,
			)
			for i := range tc.want {
				tc.want[i].Line = 1
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProjections expects what projections yield, by id and by parameters.
// TestTransactions writes to several aggregates, with their identifiers and conditions, and compares what follows.
func TestTransactions(t *testing.T) {
	ids := map[string]string{}
	bodies := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method+" "+r.URL.Path != "POST /_transaction" {
			_, _ = io.WriteString(w, `{"ok":true,"data":{},"metadata":{"length":1}}`)
			return
		}
		var sent struct {
			Writes []struct {
				Key, As        string
				Events         []struct{ Data struct{ To string } }
				PreviousLength *int `json:"previous_length"`
			}
			Conditions []struct{ Tag string }
			Metadata   struct{ Actor, Target struct{ ID string } }
		}
		if err := json.Unmarshal(body, &sent); err != nil || len(sent.Writes) != 2 || sent.Writes[0].As != "n" ||
			*sent.Writes[1].PreviousLength != 0 || len(sent.Writes[1].Events) != 2 {
			t.Errorf("%s: %v", body, err)
			return
		}
		ids["b"] = strings.TrimPrefix(sent.Writes[1].Key, "a:")
		if to := sent.Writes[0].Events[0].Data.To; sent.Writes[0].Key != "a:_new" || to != ids["b"] ||
			sent.Conditions[0].Tag != "t:"+to || sent.Metadata.Actor.ID != to || sent.Metadata.Target.ID != to {
			t.Errorf("%s", body)
		}
		if bodies++; bodies == 1 {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"ok":true,"writes":[{"key":"a:x","id":"x","stream_ids":["1-0"],"count":1,"length":1}],"count":1}`)
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"ok":false,"code":"condition_failed","error":"No"}`)
	}))
	defer server.Close()
	const write = `{"writes":[{"key":"a:_new","as":"n","type":"x","data":{"to":"{{b}}"}},{"key":"a:{{b}}","events":[{"type":"x"},{"type":"y"}],"previous_length":0}],` +
		`"conditions":[{"tag":"t:{{b}}"}],"actor":"u:{{b}}","target":"u:{{b}}"}`
	if got := runOne(t, server.URL, `{"name":"n","given":[`+write+`],"when":`+write+`,"then":{"refused":"condition_failed","state":{"a:{{b}}":{}}}}`); got != nil || bodies != 2 {
		t.Errorf("%+v, %d requests", got, bodies)
	}
}

// TestRefused compares what refusals are called: as the guard declares it, or by the code of the error.
func TestRefused(t *testing.T) {
	guarded := `{"ok":false,"error":"No money","code":"requirement_failed","details":{"key":"a:b","requirement":"insufficient_funds"}}`
	for _, tc := range []struct {
		status          int
		reply, expected string
		want            []scenario.Failure
	}{
		{422, guarded, "insufficient_funds", nil},
		{422, `{"ok":false,"error":"No","code":"requirement_failed","details":{"key":"a:b"}}`, "requirement_failed", nil},
		{409, `{"ok":false,"error":"No","code":"conflict"}`, "conflict", nil},
		{409, `{"ok":false,"error":"No","code":"already_exists","details":{"requirement":7}}`, "already_exists", nil},
		{422, guarded, "requirement_failed", []scenario.Failure{
			{Line: 1, Message: "the write was refused for another reason: No money", Expected: `"requirement_failed"`, Got: `"insufficient_funds"`},
		}},
		{201, `{"ok":true,"stream_id":"1-0","length":1}`, "closed", []scenario.Failure{{Line: 1, Message: "the write was to be refused, and was not", Expected: `"closed"`}}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.reply)
		}))
		got := runOne(t, server.URL, `{"name":"n","actor":"u:global","when":{"key":"a:global","type":"x"},"then":{"refused":"`+tc.expected+`"}}`)
		server.Close()
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", tc.reply, diff)
		}
	}
}

func TestProjections(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := strings.TrimPrefix(r.URL.Path, "/_projections/")
		name, id, _ := strings.Cut(asked, "/")
		switch name {
		case "nothing":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"ok":false,"error":"There is no projection 'nothing'","code":"unknown_projection"}`)
		case "gone":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"ok":false,"error":"Aggregate not found","code":"aggregate_not_found"}`)
		default:
			raw, err := json.Marshal(map[string]any{"id": id, "team": r.URL.Query()["team"], "sum": 1.5})
			if err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, `{"ok":true,"data":`+string(raw)+`,"cached_at":1,"metadata":{}}`)
		}
	}))
	defer server.Close()
	for then, want := range map[string][]scenario.Failure{
		`"receipt/{{a}}":{"sum":1.50,"id":"{{a}}"}`:   nil,
		`"board?team=red%20one":{"team":["red one"]}`: nil,
		`"gone/{{a}}":{"$absent":true}`:               nil,
		`"receipt/{{a}}":{"sum":2}`:                   {{Message: "what the projection receipt/{{a}} yields, sum, is not as expected", Expected: "2", Got: "1.5"}},
		`"nothing/{{a}}":{}`:                          {{Message: "There is no projection 'nothing'"}},
	} {
		for i := range want {
			want[i].Line = 1
		}
		if diff := cmp.Diff(want, runOne(t, server.URL, `{"name":"n","then":{"projection":{`+then+`}}}`)); diff != "" {
			t.Errorf("%s: %s", then, diff)
		}
	}
	for _, wrong := range []string{
		`"a/":{}`, `"":{}`, `"/x":{}`, `"a/b/c":{}`, `"a?b=1&b=2":{}`, `"a?":{}`, `"a?b=%zz":{}`,
	} {
		if _, found := scenario.Parse("f.json", `{"name":"n","then":{"projection":{`+wrong+`}}}`); len(found) != 1 {
			t.Errorf("%s: %v", wrong, found)
		}
	}
	if _, found := scenario.Parse("f.json", `{"name":"n","then":{"projection":[]}}`); len(found) != 1 {
		t.Errorf("%v", found)
	}
}

func runOne(t *testing.T, url, src string) []scenario.Failure {
	t.Helper()
	all, found := scenario.Parse("f.json", src)
	if len(found) > 0 || len(all) != 1 {
		t.Fatal(found)
	}
	c, err := client.New(client.Options{URL: url, Key: "k", Clock: clock.System{}, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	failures, err := all[0].Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return failures
}

// TestIdentifiers checks that a name stands for one identifier in a run, and for another one in the next.
func TestIdentifiers(t *testing.T) {
	var ids []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		id := strings.Split(r.URL.Path, "/")[2]
		ids = append(ids, id)
		if want := `{"data":{"` + id + `":["` + id + `"]},"metadata":{"actor":{"type":"u","id":"` + id + `"}}}`; string(body) != want {
			t.Errorf("%s; want %s", body, want)
		}
		_, _ = io.WriteString(w, `{"ok":true,"stream_id":"1-0","length":1}`)
	}))
	defer server.Close()
	for _, name := range []string{"x", "the x", "code:x", "uuid7:x"} {
		text := strings.ReplaceAll(`{"name":"n","when":{"key":"a:{{x}}","type":"y","data":{"{{ x }}":["{{x}}"]},"actor":"u:{{x}}"},"then":{}}`, "x", name)
		for range 2 {
			if failures := runOne(t, server.URL, text); len(failures) > 0 {
				t.Error(failures)
			}
		}
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			t.Error(id, "was used twice")
		}
		seen[id] = true
	}
	if len(ids) != 8 || ids[0][14] != '4' || len(ids[4]) != 9 || ids[6][14] != '7' {
		t.Error(ids)
	}
}

// TestServersThatCannotBeUsed checks that what has nothing to do with a scenario is an error and no failure.
func TestServersThatCannotBeUsed(t *testing.T) {
	for _, answer := range []struct {
		status int
		body   string
	}{{401, `{"code":"unauthorized","error":"No."}`}, {503, `{"code":"unavailable","error":"No."}`}, {404, "<html>"}, {403, `{"code":"insufficient_scope","error":"No."}`}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		c, err := client.New(client.Options{URL: server.URL, Key: "k", Clock: clock.System{}, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := scenario.Parse("f", `{"name":"n","actor":"u:global","when":{"key":"a:global","type":"x"},"then":{"error":{"status":`+"503"+`}}}`)
		if failures, err := all[0].Run(t.Context(), c, nil); err == nil {
			t.Error(answer, failures)
		}
		server.Close()
	}
}
