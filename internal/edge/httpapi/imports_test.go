package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"

	"j17"
)

// importing is an administration whose staging environment has the spec of production.
func importing(tb testing.TB, change func(*httpapi.Options)) *administration {
	tb.Helper()
	tb.Setenv("TMPDIR", tb.TempDir())
	a := administerWith(tb, change)
	c, found := spec.Compile([]byte(apiSpec))
	if c == nil {
		tb.Fatal(found)
	}
	for _, env := range []j17.Environment{j17.Staging, j17.Test} {
		a.Engine.Deploy(j17.TenantOf(a.instance.ID, env), c, nil)
	}
	return a
}

func note(id, text, more string) string {
	return fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"text":%q},"metadata":{%s%s}}`, id, text, strings.Trim(actor, "{}")[len(`"metadata":{`):]+"}", more)
}

func TestEventsMoveBetweenEnvironments(t *testing.T) {
	a := importing(t, nil)
	const staging = "app-staging.j17.example"
	for i := range 3 {
		a.do(t, "POST", "/note/global/was_written", fmt.Sprintf(`{"data":{"text":"<%d>"},%s}`, i, actor))
	}
	exported := a.ops(t, "GET", "export", "")
	if exported.status != 200 || exported.header.Get("Content-Type") != "application/x-ndjson" ||
		strings.Count(exported.body, "\n") != 3 {
		t.Fatalf("%d %v %s", exported.status, exported.header, exported.body)
	}
	if at := exported.header.Get("X-J17-Position"); at == "" || exported.header.Get("Trailer") != "X-J17-Position" ||
		!strings.Contains(exported.body[strings.LastIndex(exported.body[:len(exported.body)-1], "\n")+1:], at) {
		t.Errorf("the export ends at %q: %s", at, exported.body)
	}
	one := a.ops(t, "GET", "export?format=json&type=note", "")
	var document struct {
		OK     bool
		Events []json.RawMessage
	}
	if err := json.Unmarshal([]byte(one.body), &document); err != nil || !document.OK || len(document.Events) != 3 ||
		one.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v: %s", err, one.body)
	}
	if got := a.ops(t, "GET", "export?of=aggregates", ""); !strings.HasPrefix(got.body, `{"key":"note:global","length":3,"state":{`) || strings.Count(got.body, "\n") != 1 {
		t.Errorf("aggregates: %s", got.body)
	}
	if got := a.ops(t, "GET", "export?of=aggregates&format=json&type=other", ""); got.body != `{"ok":true,"aggregates":[]}` && got.status != 400 {
		t.Errorf("no aggregates: %d %s", got.status, got.body)
	}

	for name, tc := range map[string]struct{ route, contentType, body string }{
		"lines":    {"import_jsonl", "application/x-ndjson", exported.body},
		"again":    {"import", "application/jsonl; charset=utf-8", exported.body},
		"document": {"cold_start", "application/json", one.body},
	} {
		host := staging
		if tc.route == "cold_start" {
			host = "app-test.j17.example"
		}
		got := a.ask(t, a.admin, "POST", host, "/_admin/"+tc.route, tc.body, "Content-Type: "+tc.contentType)
		if got.status != 200 || got.member(t, "events") != "3" || got.member(t, "aggregates") != "1" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if there := a.ask(
			t, a.admin, "GET", host, "/_admin/export?of=aggregates", "",
		); !strings.Contains(there.body, `"length":3,"state":{`) {
			t.Errorf("%s: %s", name, there.body)
		}
	}
	if got := a.ask(t, a.admin, "POST", staging, "/_admin/cold_start", note("ABC123XYZ", "x", "")); got.status != 409 {
		t.Errorf("an environment with events is loaded for the first time: %d %s", got.status, got.body)
	}
	records, _, err := a.registry.Audit.List(
		t.Context(), control.AuditQuery{Instance: a.instance.ID, Action: "events"}, 10,
	)
	if err != nil || len(records) != 3 ||
		records[0].Action != "events.cold_start" && records[0].Outcome != control.Refused {
		t.Errorf("the audit log: %+v, %v", records, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("files were left: %v, %v", left, err)
	}
}

func TestWhatCannotBeLoaded(t *testing.T) {
	a := importing(t, func(o *httpapi.Options) { o.MaxImportBytes = 1000 })
	good := note("ABC123XYZ", "x", `,"timestamp":1600000000`)
	for name, tc := range map[string]struct {
		token, env, route, contentType, body string
		want                                 int
		in                                   string
	}{
		"by an auditor":   {a.viewer, "", "import", "application/json", good, 403, "operate"},
		"by a stranger":   {a.stranger, "", "import", "application/json", good, 403, ""},
		"with an API key": {a.key, "", "import", "application/json", good, 401, ""},
		"without a type":  {a.admin, "", "import", "", good, 400, "x-ndjson"},
		"text":            {a.admin, "", "import", "text/plain", good, 400, "x-ndjson"},
		"nothing":         {a.admin, "", "import", "application/json", "", 400, "empty"},
		"too much": {
			a.admin, "", "import", "application/x-ndjson", strings.Repeat(good+"\n", 20), 413, "1000",
		},
		"one fault": {
			a.admin, "", "import_jsonl", "application/x-ndjson", good + "\n" + note("1", "x", ""), 422,
			`"event_index":1`,
		},
		"a fault in the schema": {
			a.admin, "", "import_jsonl", "application/x-ndjson", strings.Replace(good, `{"text":"x"}`, "7", 1), 400,
			`"pointer":"/0/data"`,
		},
		"an unknown type": {
			a.admin, "", "import_jsonl", "application/x-ndjson",
			good + "\n" + strings.Replace(good, "note:", "nota:", 1), 400, `"line":2`,
		},
		"a parameter":            {a.admin, "", "import?dry=1", "application/json", good, 400, ""},
		"test data, production":  {a.admin, "", "inject", "application/json", good, 403, "staging and test"},
		"test data with a time":  {a.admin, "-test", "inject", "application/json", good, 400, "history"},
		"nothing is deployed to": {a.admin, "-none", "import", "application/json", good, 404, ""},
	} {
		got := a.ask(
			t, tc.token, "POST", "app"+tc.env+".j17.example", "/_admin/"+tc.route, tc.body,
			"Content-Type: "+tc.contentType,
		)
		if got.status != tc.want || !strings.Contains(got.body, tc.in) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for _, target := range []string{"export", "export?after=0"} {
		if got := a.ops(t, "GET", target, ""); got.status != 200 || got.body != "" ||
			got.header.Get("X-J17-Position") != "0" {
			t.Errorf("%s: something was stored: %d %s", target, got.status, got.body)
		}
	}
	for _, target := range []string{"export?of=states", "export?format=xml", "export?after=x", "export?of=aggregates&after=1700000000000-0", "export?limit=1"} {
		if got := a.ops(t, "GET", target, ""); got.status != 400 {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	if got := a.ops(t, "HEAD", "export", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: %d %s", got.status, got.body)
	}
	if got := a.ops(t, "POST", "import?dry_run=1", good); got.status != 400 {
		t.Errorf("a dry run that there is not: %d", got.status)
	}
	for _, query := range []string{"type=nope", "of=aggregates&type=nope"} {
		if got := a.ops(t, "GET", "export?"+query, ""); got.status != 400 || got.member(t, "path") != "type" ||
			!strings.Contains(got.body, "'nope'") {
			t.Errorf("a type that is not there: %d %s", got.status, got.body)
		}
	}
	if got := a.ask(t, a.viewer, "GET", "app.j17.example", "/_admin/export", ""); got.status != 200 {
		t.Errorf("an auditor exports: %d %s", got.status, got.body)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("files were left: %v, %v", left, err)
	}
}

func TestTestDataOverHTTP(t *testing.T) {
	a := importing(t, nil)
	body := `[{"key":"note:global","type":"was_written","data":{"text":"one"}},` + note("global", "two", "") + `]`
	got := a.ask(
		t, a.admin, http.MethodPost, "control.j17.example", "/api/instances/"+a.instance.ID+"/ops/staging/inject", body,
	)
	if got.status != 200 || got.body != `{"ok":true,"events":2,"stored":2,"implied":0,"imported":2}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = a.ask(
		t, a.admin, "POST", "app-staging.j17.example", "/_admin/inject",
		note("global", "three", "")+"\n"+note("global", "four", `,"previous_length":2`),
	)
	if got.status != 409 || !strings.Contains(got.body, "1 event was stored before. Send the others to go on.") || !strings.Contains(got.body, `"event_index":1`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestExportFormats: each format has all events, and what stands between them is right however many there are.
func TestExportFormats(t *testing.T) {
	a := importing(t, nil)
	for i := range 3 {
		a.do(t, "POST", "/note/global/was_written", fmt.Sprintf(`{"data":{"text":"<%d>"},%s}`, i, actor))
	}
	lines := strings.Split(strings.TrimSpace(a.ops(t, "GET", "export", "").body), "\n")
	if want, got := `{"ok":true,"events":[`+strings.Join(lines, ",\n")+"]}",
		a.ops(t, "GET", "export?format=json", "").body; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := a.ops(t, "GET", "export?type=other&format=json", ""); got.status != 400 &&
		got.body != `{"ok":true,"events":[]}` {
		t.Errorf("nothing: %d %s", got.status, got.body)
	}
	got := a.ops(t, "GET", "export?format=cloudevents", "")
	clouds := strings.Split(strings.TrimSpace(got.body), "\n")
	if got.header.Get("Content-Type") != "application/x-ndjson" || len(clouds) != 3 || !strings.HasPrefix(clouds[1], `{"specversion":"1.0","id":"`) || !strings.Contains(clouds[1], `"source":"/app/prod","type":"note.was_written","subject":"note:global"`) {
		t.Errorf("%v %s", got.header, got.body)
	}
	for _, target := range []string{"export?of=aggregates&format=cloudevents", "export?of=aggregates&checkpoint=true", "export?checkpoint=yes"} {
		if got := a.ops(t, "GET", target, ""); got.status != 400 {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
}

// TestTypesOfThePastAreExported: events of a type that the spec has no more leave the server by their type, too.
func TestTypesOfThePastAreExported(t *testing.T) {
	a := importing(t, nil)
	a.do(t, "POST", "/note/global/was_written", `{"data":{"text":"x"},`+actor+`}`).wants(t, 201)
	later, found := spec.Compile([]byte(`{"agent_types":["user"],"aggregate_types":{}}`))
	if later == nil {
		t.Fatal(found)
	}
	a.Engine.Deploy(j17.TenantOf(a.instance.ID, j17.Prod), later, nil)
	for query, want := range map[string]int{
		"": 200, "?type=note": 200, "?type=note&format=json": 200, "?type=doc": 400, "?of=aggregates&type=note": 404,
	} {
		got := a.ops(t, "GET", "export"+query, "")
		if got.status != want || want == 200 && strings.Count(got.body, `"key":"note:global"`) != 1 {
			t.Errorf("export%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestFaultsOfFilesAreSaidAlike imports files with faults of all kinds: each fault has its place in four members.
func TestFaultsOfFilesAreSaidAlike(t *testing.T) {
	a := importing(t, nil)
	good := note("global", "x", "")
	for name, tc := range map[string]struct{ route, body, want string }{
		"no JSON":         {"import_jsonl", good + "\n{not json\n", `"code":"invalid_json","line":2,"path":""`},
		"half a document": {"import", `{"events":[` + good + `,{"key":`, `"code":"invalid_json","line":1,"path":""`},
		"no object":       {"import", `{"events":[` + good + `,7]}`, `"index":1,"path":""`},
		"an unknown type": {
			"import", `{"events":[` + strings.Replace(good, "was_written", "was_lost", 1) + `]}`,
			`"index":0,"path":"type"`,
		},
		"the schema": {"import_jsonl", strings.Replace(good, `{"text":"x"}`, "7", 1), `"line":1,"path":"data"`},
	} {
		got := a.ops(t, "POST", tc.route, tc.body)
		var said struct{ Errors []map[string]any }
		if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.status != 400 || len(said.Errors) == 0 ||
			!strings.Contains(got.body, tc.want) {
			t.Errorf("%s: %d %s, want %s", name, got.status, got.body, tc.want)
		}
		for _, e := range said.Errors {
			for _, member := range []string{"message", "path", "pointer"} {
				if _, ok := e[member].(string); !ok {
					t.Errorf("%s: no %s in %v", name, member, e)
				}
			}
		}
	}
}

// TestSecondZeroIsATime imports events of the first second that there is.
func TestSecondZeroIsATime(t *testing.T) {
	a := importing(t, nil)
	at := func(id, text, seconds string) string {
		return strings.Replace(note(id, text, ""), `"metadata":{`, `"metadata":{"timestamp":`+seconds+`,`, 1)
	}
	if got := a.ops(
		t, "POST", "import_jsonl", at("global", "old", "0")+"\n"+at("global", "new", "1"),
	); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := a.do(t, "GET", "/note/global?at=0", ""); !strings.Contains(got.body, `"text":"old"`) ||
		!strings.Contains(got.body, `"created_at":0,`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, seconds := range []string{"-1", "1.5", "null", `"0"`, "99999999999"} {
		if got := a.ops(t, "POST", "import", `{"events":[`+at("global", "x", seconds)+`]}`); got.status != 400 ||
			!strings.Contains(got.body, "'timestamp' must be") {
			t.Errorf("%s: %d %s", seconds, got.status, got.body)
		}
	}
}
