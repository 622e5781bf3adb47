//go:build !race

package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// shop returns a spec to post projections under.
func shop(t *testing.T) *spec.Compiled {
	t.Helper()
	const event = `{"events": {"e": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}}`
	return compile(t, []byte(`{"agent_types": ["user"], "singletons": ["main"], "aggregate_types": {
		"order": `+event+`, "customer": `+event+`, "product": `+event+`, "org": `+event+`, "pricing": `+event+`, "line-item": `+event+`}}`))
}

func project(t *testing.T, in *spec.Compiled, src string) *spec.Projection {
	t.Helper()
	p, found := spec.CompileProjection([]byte(src), in)
	if p == nil || len(found) > 0 {
		t.Fatalf("%s has findings:\n%s", src, written(found))
	}
	return p
}

// env returns an environment with that document.
func env(t *testing.T, doc string) *tick.Env {
	t.Helper()
	v, err := value.ParseString(doc)
	if err != nil {
		t.Fatal(err)
	}
	e := tick.NewEnv(work.Counted(work.Command))
	e.SetDocument(v)
	return e
}

const chained = `{"name": "chained", "for_each": "order", "sources": {
	"last": {"type": "product", "id": "$.org.products", "mode": "array"}, "org": {"type": "org", "id": "$.customer.org_id"},
	"customer": {"type": "customer", "id": "$.order.customer_id"}, "order": "$key", "twin": {"type": "customer", "id": "$key"},
	"main": {"type": "pricing", "id": "pricing:main"}, "others": {"type": "order", "query": "customer_id = $.customer.id"}},
	"include": {"vat": "pricing:global"},
	"select": {"n": "$.order.n", "of": {"org": "$.org.name", "who": "$.customer.name?", "deep": "$.customer.address"},
		"found": {"$lookup": "$.last", "where": {"id": "$.order.first"}, "select": {"name": "$.name", "twin": 1}},
		"sum": [["$.twin.a"], "$.vat.rate"], "names": "$.last[*].name"},
	"index": ["n", ["n", "of.who"], {"words": "of.org"}, "of.deep.city.code", "found.name", "names"]}`

// TestStages has sources in the order in which they can be loaded.
func TestStages(t *testing.T) {
	p := project(t, shop(t), chained)
	if !p.IsNamed() || !p.Keyed() || p.OnlyParam() != nil || p.Name != "chained" || p.ForEach != "order" ||
		p.Select == nil {
		t.Errorf("the projection is %+v", p)
	}
	names := func(stages [][]int) (out []string) {
		for _, stage := range stages {
			var s []string
			for _, i := range stage {
				s = append(s, p.Sources[i].Name)
			}
			out = append(out, strings.Join(s, " "))
		}
		return out
	}
	if diff := cmp.Diff(
		[]string{"order twin main vat", "customer", "org others", "last"}, names(p.Stages),
	); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"order", "customer", "org", "last"}, names(p.IndexStages)); diff != "" {
		t.Errorf("stages of indexed fields (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"customer", "order", "org", "pricing", "product"}, p.Types()); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"customer", "order", "org", "product"}, p.IndexTypes()); diff != "" {
		t.Errorf("types of the index (-want +got):\n%s", diff)
	}
	last := p.Sources[0]
	if last.Name != "last" || !last.Many || last.ID.Path.Text() != "$.org.products" || !p.Sources[3].Key ||
		p.Sources[3].AggregateType != "order" || !p.Sources[4].Key ||
		p.Sources[5].ID.Literal.Str() != "main" || !p.Sources[6].Many || len(p.Queries()) != 1 ||
		!p.Sources[7].Included || p.Sources[7].ID.Literal.Str() != "global" {
		t.Errorf("the sources are %+v", p.Sources)
	}
}

// TestFields evaluates indexed fields by themselves.
func TestFields(t *testing.T) {
	p := project(t, shop(t), chained)
	e := env(t, `{"order": {"n": 1, "first": "b"}, "customer": {"address": {"city": {"code": 5}}}, "org": {"name": "Acme"}, "last": [{"id": "a"}, {"id": "b", "name": "B"}]}`)
	var got []string
	for _, x := range p.Indexes {
		for i := range x.Fields {
			f := &x.Fields[i]
			v, err := f.Value(e, 1000)
			if err != nil {
				t.Fatal(err)
			}
			needs := make([]string, 0, len(f.Needs))
			for _, n := range f.Needs {
				needs = append(needs, p.Sources[n].Name)
			}
			got = append(got, fmt.Sprintf("%s %t %s %v", f.Name, x.Words, v, needs))
		}
	}
	want := []string{
		`n false 1 [order]`, `n false 1 [order]`, `of.who false null [customer order]`, `of.org true "Acme" [org customer order]`, `of.deep.city.code false 5 [customer order]`,
		`found.name false "B" [last org customer order]`, `names false ["B"] [last org customer order]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestParameters has what the array form is asked with.
func TestParameters(t *testing.T) {
	in := shop(t)
	p := project(t, in, `{"name": "p", "sources": [{"aggregate": "customer", "id": "$.who"}, {"aggregate": "org", "as": "o", "id": "$.customer.org_id"},
		{"aggregate": "order", "query": "table = $.table"}, {"aggregate": "product", "query": "listed=true"}, {"aggregate": "line-item", "id": "$.order[*].id"},
		{"aggregate": "pricing", "id": "$.who"}, {"aggregate": "order", "as": "again", "query": "text = $.pricing"}, {"aggregate": "order", "as": "pricing2", "query": "a.b = \"x = y\""}]}`)
	if diff := cmp.Diff(
		[]spec.Param{{Name: "table"}, {Name: "who", IDOf: []string{"customer", "pricing"}}}, p.Params,
	); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]int{{0, 2, 3, 5, 7}, {1, 4, 6}}, p.Stages); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	if p.IsNamed() || p.Keyed() || p.OnlyParam() != nil || p.Select != nil || p.Sources[1].Name != "o" ||
		!p.Sources[4].Many || p.Sources[0].Many || p.Sources[0].ID.Param != "who" {
		t.Errorf("the projection is %+v", p)
	}
	e := env(t, `{"order": [{"id": "a"}, {"id": "b"}]}`)
	for i, want := range map[int]string{0: `"x"`, 2: `"t"`, 3: `true`, 4: `["a","b"]`, 7: `"x = y"`} {
		from := p.Sources[i].ID
		if q := p.Sources[i].Query; q != nil {
			from = &q.Value
		}
		if v, err := from.Find(e, map[string]string{"who": "x", "table": "t"}); err != nil || v.String() != want {
			t.Errorf("source %d is looked for with %s (%v), not with %s", i, v, err, want)
		}
	}

	// A parameter may be called like a source that comes later, and one parameter can stand for the id.
	p = project(t, in, `{"name": "p", "sources": [{"aggregate": "order", "query": "customer_id = $.customer"}, {"aggregate": "customer", "id": "$.customer"}]}`)
	if only := p.OnlyParam(); only == nil || only.Name != "customer" || len(p.Stages) != 1 {
		t.Errorf("the projection is %+v", p)
	}
	p = project(t, in, `{"name": "p", "sources": [{"aggregate": "order", "id": "$key"}, {"aggregate": "customer", "id": "$.customer"}]}`)
	if p.OnlyParam() != nil || !p.Keyed() {
		t.Errorf("the projection is %+v", p)
	}
}

// TestIDs has what counts as an id in a state.
func TestIDs(t *testing.T) {
	rules, err := ident.NewRules(nil, []string{"main"})
	if err != nil {
		t.Fatal(err)
	}
	const id, other = "a0000000-0000-4000-a000-000000000001", "a0000000-0000-4000-a000-000000000002"
	for src, want := range map[string][2][]string{
		`"` + id + `"`:                  {{id}, {id}},
		`"` + strings.ToUpper(id) + `"`: {{id}, {id}},
		`"order:` + id + `"`:            {{id}, {id}},
		`"order:main"`:                  {{"main"}, {"main"}},
		`"` + id + `:2026"`:             {{id + ":2026"}, {id + ":2026"}},
		`"orders:` + id + `"`:           {},
		`"order:order:` + id + `"`:      {},
		`"nope"`:                        {},
		`5`:                             {},
		`null`:                          {},
		`{"id": "` + id + `"}`:          {},
		`["` + other + `", 5, "order:` + id + `", "` + strings.ToUpper(other) + `", "nope", null]`: {nil, {other, id}},
	} {
		v, err := value.ParseString(src)
		if err != nil {
			t.Fatal(err)
		}
		for i, many := range []bool{false, true} {
			s := spec.Source{AggregateType: "order", Many: many}
			if diff := cmp.Diff(want[i], s.IDs(v, rules)); diff != "" {
				t.Errorf("%s, many %t (-want +got):\n%s", src, many, diff)
			}
		}
	}
}

// TestMatches has the comparison of queries.
func TestMatches(t *testing.T) {
	for text, want := range map[string]struct{ yes, no []string }{
		`5`:       {[]string{`5`, `"5"`, `5.0`, `[1, 5]`, `["5"]`}, []string{`null`, `50`, `[[5]]`, `{"a": 5}`, `[]`}},
		`5.50`:    {[]string{`5.5`, `"5.50"`}, []string{`"5.5"`}},
		`"5"`:     {[]string{`"5"`, `["5"]`}, []string{`5`, `"\"5\""`}},
		`null`:    {[]string{`null`, `"null"`, `[null]`}, []string{`[]`, `{}`, `""`, `0`}},
		`true`:    {[]string{`true`, `"true"`}, []string{`false`, `1`}},
		``:        {[]string{`""`}, []string{`null`}},
		` 5`:      {[]string{`" 5"`}, []string{`5`}},
		`[1]`:     {[]string{`"[1]"`}, []string{`[1]`, `1`}},
		`{"a":1}`: {nil, []string{`{"a": 1}`}},
		`a "b`:    {[]string{`"a \"b"`}, nil},
	} {
		check := func(src string, is bool) {
			v, err := value.ParseString(src)
			if err != nil {
				t.Fatal(err)
			}
			if spec.Matches(v, spec.Wanted(text)) != is {
				t.Errorf("%q finds %s: %t", text, src, !is)
			}
		}
		for _, src := range want.yes {
			check(src, true)
		}
		for _, src := range want.no {
			check(src, false)
		}
	}
	if !spec.Matches(value.Value{}, spec.Wanted("null")) || spec.Matches(value.Value{}, spec.Wanted("0")) {
		t.Error("a missing field is not null")
	}
	q := project(t, shop(t), `{"name": "p", "sources": [{"aggregate": "order", "query": "a.b = 1"}]}`).Queries()[0]
	if v, _ := value.ParseString(`{"a": {"b": 1.0}}`); !q.Matches(v, []value.Value{q.Value.Literal}) ||
		q.AggregateType != "order" {
		t.Error("a query does not find what it looks for")
	}
}

// TestFingerprints tells which changes of a definition count.
func TestFingerprints(t *testing.T) {
	in := shop(t)
	p := project(t, in, chained)
	for _, c := range []struct {
		old, new          string
		whole, ofTheIndex bool
	}{
		{`"name": "chained"`, `"name": "other"`, true, false},
		{`"sum": [["$.twin.a"], "$.vat.rate"]`, `"sum": 1`, true, false},
		{`"include": {"vat": "pricing:global"}`, `"include": {"vat": "order:global"}`, true, false},
		{`"n": "$.order.n"`, `"n": "$.order.m"`, true, true},
		{`"index": ["n", `, `"index": [`, true, true},
		{`"$.customer.org_id"`, `"$.customer.org"`, true, true},
		{`"for_each": "order"`, `"for_each":   "order"`, false, false},
	} {
		q := project(t, in, strings.Replace(chained, c.old, c.new, 1))
		if (p.Fingerprint != q.Fingerprint) != c.whole || (p.IndexFingerprint != q.IndexFingerprint) != c.ofTheIndex {
			t.Errorf("%s: %t, %t", c.new, p.Fingerprint != q.Fingerprint, p.IndexFingerprint != q.IndexFingerprint)
		}
	}
	src := strings.Replace(string(in.Source), `["main"]`, `["main", "other"]`, 1)
	if q := project(t, compile(t, []byte(src)), chained); q.Fingerprint == p.Fingerprint ||
		q.IndexFingerprint == p.IndexFingerprint {
		t.Error("what is an identifier does not count")
	}
	declared := compile(t, []byte(strings.Replace(
		string(in.Source), `"agent_types"`, `"projections": {"chained": `+chained+`}, "agent_types"`, 1,
	))).Projections["chained"]
	if declared.Fingerprint != p.Fingerprint || declared.IndexFingerprint != p.IndexFingerprint {
		t.Error("a declared projection is another one than the same one posted")
	}
}

// TestStoredProjectionsAreLeftOut: an environment whose spec an earlier version took goes on without the parts that are
// faulty.
func TestStoredProjectionsAreLeftOut(t *testing.T) {
	const src = `{"agent_types": ["user"], "singletons": ["nearby"], "aggregate_types": {"a": {"events": {
		"e": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data.x"}}, "f": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.metadata.x"}}}}},
		"projections": {"good": {"sources": [{"aggregate": "a", "id": "$.x"}]},
			"bad": {"for_each": "a", "sources": {"a": "$key", "b": {"type": "a", "id": "$.b.x"}}, "select": {}}}}`
	c, found := spec.CompileStored([]byte(src))
	if c == nil || len(found) != 3 {
		t.Fatalf("it is refused, or has other findings:\n%s", written(found))
	}
	for _, d := range found {
		if d.Severity != diag.Warning || d.Message == "" || d.Line == 0 {
			t.Errorf("a finding is %+v", d)
		}
	}
	if c.Projections["good"] == nil || c.Projections["bad"] != nil || len(c.Projections) != 1 ||
		c.EventType("a", "e").Geo == nil || c.EventType("a", "f").Geo != nil {
		t.Errorf("it has %+v", c.Projections)
	}
	if c, _ := lint.Compile([]byte(src)); c != nil {
		t.Error("a new spec is accepted")
	}
}

// TestPlaces has the kinds of places of a type.
func TestPlaces(t *testing.T) {
	const src = `{"agent_types": ["user"], "geo_types": {"zone": {"type": "polygon", "properties": ["fee", "name"]}, "unused": {"type": "point"}}, "aggregate_types": {
		"a": {"events": {"e": {"schema": {}, "handler": [], "geo": {"type": "zone", "path": "$.data.zones[0]"}}, "f": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data?"}},
			"g": {"schema": {}, "handler": [], "geo": {"type": "zone", "path": "$.data.area"}}}},
		"b": {"events": {"e": {"schema": {}, "handler": []}}}}}`
	c := compile(t, []byte(src))
	a := c.Types["a"]
	if len(a.Places) != 2 || a.Places[0].Type.Name != "point" || a.Places[0].Type.Shape != spec.Point ||
		a.Places[1].Type != c.GeoTypes["zone"] || a.Place("zone") != a.Places[1] ||
		a.Place("unused") != nil || !a.HasPlaces(spec.Polygon) || len(c.Types["b"].Places) > 0 ||
		c.Types["b"].HasPlaces(spec.Point) {
		t.Errorf("the places are %+v", a.Places)
	}
	if e, f := c.EventType("a", "e").Geo, c.EventType("a", "f").Geo; e.Where != "data.zones[0]" || len(e.Steps) != 2 ||
		e.Type != c.GeoTypes["zone"] || f.Where != "data" || len(f.Steps) != 0 {
		t.Errorf("geo is %+v and %+v", e, f)
	}
	for _, change := range [][2]string{
		{`$.data.area`, `$.data.zone`}, {`["fee", "name"]`, `["name"]`}, {`"g": {`, `"h": {`},
	} {
		b := compile(t, []byte(strings.Replace(src, change[0], change[1], 1))).Types["a"]
		if a.Place("zone").Fingerprint == b.Place("zone").Fingerprint ||
			a.Place("point").Fingerprint != b.Place("point").Fingerprint {
			t.Errorf("%s does not change the place that it concerns, or another one", change[1])
		}
	}
}

// TestLargeProjections refuses definitions by their size.
func TestLargeProjections(t *testing.T) {
	in := shop(t)
	fits := func(text string) string {
		return `{"name": "p", "for_each": "order", "sources": {"order": "$key"}, "select": {"a": [` + text + `]}}`
	}
	for src, want := range map[string]string{
		fits(strings.Repeat(`1,`, 9990) + `1`):                        "",
		fits(strings.Repeat(`1,`, 10_000) + `1`):                      "select is made of 10003 values; at most 10000 are accepted",
		fits(`"` + strings.Repeat("x", 260_000) + `"`):                "",
		fits(`"` + strings.Repeat("x", spec.MaxProjectionSize) + `"`): "at most 262144 are accepted",
		fits(
			`1` + strings.Repeat(" ", spec.MaxSize),
		): "at most 4194304 are accepted",
		`{"name": "p", "x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) +
			`}`: "containers are nested too deeply",
	} {
		p, found := spec.CompileProjection([]byte(src), in)
		if ok := want == ""; (p != nil) != ok || !ok && !strings.Contains(written(found), want) {
			t.Errorf("%.100s (%d bytes): %s", src, len(src), written(found))
		}
	}
}

// TestCheckProjection also warns of what can hardly be meant.
func TestCheckProjection(t *testing.T) {
	in := compile(t, []byte(`{"agent_types": ["user"], "aggregate_types": {"order": {"events": {"e": {"schema": {"type": "object", "properties": {"total": {"type": "number"}}, "additionalProperties": false},
		"handler": [{"set": {"target": "", "value": "$.data"}}]}}}}}`))
	const src = `{"name": "p", "for_each": "order", "sources": {"order": "$key"}, "select": {"a": "$.order.totl"}}`
	p, found := lint.CheckProjection([]byte(src), in)
	if want := "1:82 /select/a\n\twarning: \"$.order.totl\" leads to nothing: no handler of \"order\" writes \"totl\"\n\t(did you mean \"total\"?)\n"; p == nil || written(found) != want {
		t.Errorf("it has the findings\n%s", written(found))
	}
	if p, found := spec.CompileProjection([]byte(src), in); p == nil || len(found) > 0 {
		t.Errorf("without looking it has the findings\n%s", written(found))
	}
	if p, found := lint.CheckProjection([]byte(`{"name": "p"}`), in); p != nil || len(found) == 0 {
		t.Error("a faulty definition is accepted")
	}
}

// TestCompileProjection has what is refused of definitions that stand alone, and where.
func TestCompileProjection(t *testing.T) {
	in := shop(t)
	archives(t, "project_*.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		p, found := spec.CompileProjection([]byte(files["json"]), in)
		if errors, _ := diag.Count(found); (p == nil) != (errors > 0) {
			t.Errorf("CompileProjection returns %v with %d errors", p, errors)
		}
		return written(found)
	})
}

// planned checks what holds of every projection: that stages have each source once and behind what it needs, and that a
// field by itself is what the whole result has in its place.
func planned(t *testing.T, p *spec.Projection, doc value.Value) {
	t.Helper()
	there, all := map[int]bool{}, 0
	for _, stage := range p.Stages {
		for _, i := range stage {
			for _, n := range p.Sources[i].Needs {
				if !there[n] {
					t.Fatalf("source %d needs %d, which is not there in %v", i, n, p.Stages)
				}
			}
		}
		for _, i := range stage {
			if all++; there[i] {
				t.Fatalf("source %d stands twice in %v", i, p.Stages)
			}
			there[i] = true
		}
	}
	if all != len(p.Sources) {
		t.Fatalf("%d of %d sources are in %v", all, len(p.Sources), p.Stages)
	}
	indexed := slices.Concat(p.IndexStages...)
	var whole value.Value
	for _, x := range p.Indexes {
		for i := range x.Fields {
			f := &x.Fields[i]
			// A field sees the sources that it needs, and no others.
			var members []value.Member
			for _, n := range f.Needs {
				if !slices.Contains(indexed, n) || p.Sources[n].Included || p.Sources[n].Query != nil {
					t.Fatalf("%s needs source %d", f.Name, n)
				}
				members = append(members, value.Member{
					Key: p.Sources[n].Name, Value: doc.Get(p.Sources[n].Name).OrNull(),
				})
			}
			e := tick.NewEnv(work.Counted(work.Command))
			e.SetDocument(value.ObjectValue(members...))
			got, err := f.Value(e, 1<<20)
			if err != nil {
				return // it takes too much
			}
			if whole.IsMissing() {
				e = tick.NewEnv(work.Counted(work.Command))
				e.SetDocument(doc)
				if whole, _, err = p.Select.Eval(e, 1<<20); err != nil {
					return
				}
			}
			path, err := jsonpath.ParseState(f.Name)
			if want := whole.At(path.Steps).OrNull(); err != nil || !value.Equal(got, want) {
				t.Fatalf("%s of %s is %s by itself, and %s in %s", f.Name, doc, got, want, whole)
			}
		}
	}
}

// FuzzCompileProjection compiles definitions, and evaluates those that do.
func FuzzCompileProjection(f *testing.F) {
	const doc = `{"order": {"n": 1, "tags": ["a"], "lines": [{"a": 1, "n": 5, "sku": "x"}]}, "customer": {"city": "C", "address": {"city": {"code": 1}}}, "org": {"name": "O"}}`
	seeds(f, func(text string) { f.Add(text, doc) })
	f.Add(chained, doc)
	f.Add(`{"name":"p","for_each":"order","sources":{"order":"$key"},"select":{"a":{"b":"$.order"},"c":{"$lookup":"$.order.lines","where":{"a":1},"select":{"x":"$.n"}},"d":"$.order.x?"},"index":["a.b.tags","c.x","d",["c","a.b.lines"],"a"]}`, doc)
	in, findings := lint.Compile([]byte(`{"agent_types": ["user"], "singletons": ["main"], "aggregate_types": {"order": {"events": {}}, "customer": {"events": {}}, "product": {"events": {}},
		"org": {"events": {}}, "pricing": {"events": {}}}}`))
	if in == nil {
		f.Fatal(findings)
	}
	f.Fuzz(func(t *testing.T, src, doc string) {
		p, found := spec.CompileProjection([]byte(src), in)
		errors, _ := diag.Count(found)
		if (p == nil) != (errors > 0) {
			t.Fatalf("CompileProjection returns %v with\n%s", p, written(found))
		}
		if p == nil {
			return
		}
		v, err := value.ParseString(doc)
		if err != nil {
			v = value.ObjectValue()
		}
		planned(t, p, v)
		if q, found := lint.CheckProjection([]byte(src), in); q == nil {
			t.Fatalf("what compiles is refused by a closer look:\n%s", written(found))
		}
		again, _ := spec.CompileProjection(p.Definition.AppendJSON(nil), in)
		if again == nil || again.Fingerprint != p.Fingerprint || again.IndexFingerprint != p.IndexFingerprint {
			t.Fatalf("the definition of %s is another projection", src)
		}
	})
}

// TestComputedFields indexes fields that operators compute, or that are parts of what they yield; one without a value
// is null.
func TestComputedFields(t *testing.T) {
	p := project(t, shop(t), `{"name": "computed", "for_each": "order", "sources": {"order": "$key"}, "select": {
		"double": {"$multiply": ["$.order.n", 2]}, "both": {"$merge": [{"n": {"$": "$.order.n"}}, {"kind": {"$literal": "$k"}}]}, "none": {"$upper": "$.order.n"}},
		"index": ["double", "both.kind", "both.n", "none"]}`)
	e := env(t, `{"order": {"n": 1.5}}`)
	var got []string
	for _, x := range p.Indexes {
		v, err := x.Fields[0].Value(e, 1000)
		got = append(got, fmt.Sprintf("%s %s %v", x.Fields[0].Name, v, err))
	}
	if diff := cmp.Diff(
		[]string{`double 3.0 <nil>`, `both.kind "$k" <nil>`, `both.n 1.5 <nil>`, `none null <nil>`}, got,
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
