package projection

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/spec"
)

// indexesOf reads indexes: fields with blanks between them, "words:" before the field of an index of words.
func indexesOf(all ...string) (indexes []spec.Index) {
	for _, text := range all {
		rest, isWords := strings.CutPrefix(text, "words:")
		x := spec.Index{Words: isWords}
		for name := range strings.FieldsSeq(rest) {
			x.Fields = append(x.Fields, spec.Field{Name: name})
		}
		indexes = append(indexes, x)
	}
	return indexes
}

// asked reads the parameters of a list from a query string.
func asked(tb testing.TB, text string) (filters map[string]string, order *string) {
	tb.Helper()
	given, err := url.ParseQuery(text)
	if err != nil {
		tb.Fatal(err)
	}
	filters = map[string]string{}
	for name := range given {
		if filters[name] = given.Get(name); name == "order" {
			order = new(given.Get(name))
			delete(filters, name)
		}
	}
	return filters, order
}

// ticketsWith is a projection with some indexes, as far as plans look at it.
func ticketsWith(tb testing.TB, indexes []spec.Index) *spec.Projection {
	tb.Helper()
	of, err := value.ParseString(`{"select":{"title":"$.t.title","status":"$.t.status","points":"$.t.points","team":"$.t.team","place":{"floor":"$.t.floor"},
		"a":"$.t.a","b":"$.t.b","c":"$.t.c","d":"$.t.d","e":"$.t.e","f":"$.t.f","near":"$.t.near",
		"fixed":"$.settings.x","lines":{"$map":"$.t.lines","as":"l","select":{"n":"$.l.n"}}}}`)
	if err != nil {
		tb.Fatal(err)
	}
	return &spec.Projection{
		Name: "tickets", Definition: of,
		Sources: []spec.Source{{Name: "t", Key: true}, {Name: "settings", Included: true}}, Indexes: indexes,
	}
}

func planOf(tb testing.TB, indexes []spec.Index, text string) (plan, error) {
	tb.Helper()
	filters, order := asked(tb, text)
	return planFor(&definition{Projection: ticketsWith(tb, indexes)}, filters, order)
}

// TestPlans asks which index serves a list, and how.
func TestPlans(t *testing.T) {
	indexes := indexesOf(
		"status", "points", "team points", "team status points", "labels", "place.floor", "words:title", "a.gt", "a",
	)
	for _, c := range []struct{ query, want string }{
		{"", "by id"},
		{"status=open", "0 status"},
		{"team=red&points.gte=10", "2 team next points"},
		{"points.lt=3&points.gt=1&team=red", "2 team next points"},
		{"team=red&order=points", "2 team"},
		{"team=red&order=-points", "2 team backward"},
		{"team=red&points.in=1,2&order=-points", "2 team next points backward"},
		{"order=points", "1"},
		{"order=-points", "1 backward"},
		{"points=five&order=points", "1 points"},
		{"points=five&order=-points", "1 points backward"},
		{"points=5&order=points", "1 next points"},
		{"points=5&order=-points", "1 next points backward"},
		{"team=red&points=5&order=team", "2 team points"},
		{"team=red&points.gt=5&order=-team", "2 team next points backward"},
		{"order=team", "2"},
		{"team=red", "2 team"},
		{"team=red&status=open", "3 team status"},
		{"status=open&team=red&points.lt=10", "3 team status next points"},
		{"team=red&status.prefix=op", "3 team next status"},
		{"status.in=open,blocked", "0 next status"},
		{"place.floor=2", "5 place.floor"},
		{"place.floor.gt=2", "5 next place.floor"},
		{"title.words=blue+kite", "6 next title"},
		{"a.gt=5", "7 a.gt"},
		{"a.lt=5", "8 next a"},
	} {
		p, err := planOf(t, indexes, c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got := describe(&p); got != c.want {
			t.Errorf("%s: %q, not %q", c.query, got, c.want)
		}
	}
}

func describe(p *plan) string {
	if p.index == byID {
		return "by id"
	}
	words := []string{fmt.Sprint(p.index)}
	for _, c := range p.equal {
		words = append(words, c.field)
	}
	if p.next != nil {
		words = append(words, "next", p.next.field)
	}
	if p.query.backward {
		words = append(words, "backward")
	}
	return strings.Join(words, " ")
}

// TestWhatNoIndexServes is refused with the indexes that there are, and with the one that would serve it.
func TestWhatNoIndexServes(t *testing.T) {
	indexes := indexesOf("status", "team points", "words:title")
	for _, c := range []struct{ query, at, declare string }{
		{"title=x", "title", `"title"`},
		{"order=title", "order", `"title"`},
		{"status=open&order=points", "status", `["status","points"]`},
		{"e=x&status=a", "e", `["e","status"]`},
		{"points.gt=1", "points", `"points"`},
		{"points.gt=1&team.gt=b", "points", ``},
		{"points.gt=1&order=team", "points", ``},
		{"e=a&order=e", "e", `"e"`},
		{"a=1&b=1&c=1&d=1&e=1&order=f", "a", ``},
		{"a=1&b=1&c=1&d=1&e=1&f.gt=1", "a", ``},
		{"status.words=a", "status", `{"words":"status"}`},
		{"title.words=a&status=open", "status", ``},
		{"title.words=a&order=title", "title", ``},
		{"a=1&b=1&c=1&d=1&e=1&f=1", "a", ``},
		{"points.about=1", "points.about", `"points.about"`},
		{"status=a&status.gt=b", "status.gt", ``},
		{"points.lt=1&points.in=2", "points.lt", ``},
	} {
		_, err := planOf(t, indexes, c.query)
		e, ok := err.(*j17.Error) //nolint:errorlint // it is that, and nothing around it
		if !ok || e.Code != j17.CodeNotIndexed || e.Path != c.at {
			t.Errorf("%s: %#v", c.query, err)
			continue
		}
		details, _ := e.Details.(indexDetails)
		if string(details.Declare) != c.declare {
			t.Errorf("%s: declare %s, not %s", c.query, details.Declare, c.declare)
		}
		if len(details.Indexes) != 3 {
			t.Errorf("%s: the indexes are %s", c.query, details.Indexes)
		}
		if c.declare != "" &&
			(!strings.Contains(e.Message, c.declare) || !strings.Contains(e.Message, `["team","points"]`)) {
			t.Errorf("%s: %s", c.query, e.Message)
		}
	}
	if _, err := planOf(t, nil, "a=1"); !strings.Contains(err.Error(), "It has no index") {
		t.Error(err)
	}
}

// TestWhatMayBeMeant: where an index serves what is nearly asked for, the refusal says so.
func TestWhatMayBeMeant(t *testing.T) {
	indexes := indexesOf("status", "team points", "words:title")
	for query, says := range map[string]string{
		"title=x":                 `or ask for words with "title.words"`,
		"points.contains=1":       `There is no filter "points.contains": behind a field stands nothing, or one of .in, .prefix, .gt, .gte, .lt, .lte, .words. Where "points" has a member "contains" and that is meant, no index of the projection`,
		"status.not=open":         `There is no filter "status.not": behind a field stands nothing, or one of`,
		"title.words=a&status=b":  "words are asked for alone",
		"title.words=a&order=-id": "words are asked for alone",
	} {
		if _, err := planOf(t, indexes, query); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{"count.gt=1", "other=1", "order=title"} {
		if _, err := planOf(t, indexes, query); err == nil || strings.Contains(err.Error(), "meant") ||
			strings.Contains(err.Error(), "words with") || strings.Contains(err.Error(), "alone") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestIndexesThatCannotBeDeclared are not in the hint: it says why in the words of a deployment that would refuse them.
// What cannot be asked for is not said to be possible.
func TestIndexesThatCannotBeDeclared(t *testing.T) {
	for query, says := range map[string]string{
		"nobody=x":              `there is no field "nobody" in select`,
		"stauts=open":           `did you mean "status"?`,
		"status=a&place.no=1":   `there is no field "place.no" in select`,
		"order=nobody":          `there is no field "nobody" in select`,
		"nobody.words=a":        `there is no field "nobody" in select`,
		"near.gt=1":             `means something in every request for a list`,
		"fixed=1":               `an include decides it`,
		"lines.n=1":             `leads into an array`,
		"points.gt=1&team.gt=b": `a range, a prefix or a list of values`,

		"a=1&b=1&c=1&d=1&e=1&f.gt=1":  "it can ask for 5 fields at most, which is as many as an index has",
		"a=1&b=1&c=1&d=1&e=1&order=f": "it can ask for 5 fields at most, which is as many as an index has",
	} {
		_, err := planOf(t, indexesOf("team points"), query)
		e, ok := err.(*j17.Error) //nolint:errorlint // it is that, and nothing around it
		if !ok || e.Code != j17.CodeNotIndexed || !strings.Contains(e.Message, says) ||
			strings.Contains(e.Message, "add ") {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if details, _ := e.Details.(indexDetails); details.Declare != nil || len(details.Indexes) != 1 {
			t.Errorf("%s: %s is to be declared", query, details.Declare)
		}
	}
}

// TestWrongFilters are refused before anybody looks for an index.
func TestWrongFilters(t *testing.T) {
	many := strings.Repeat("1,", maxAmong) + "1"
	for query, at := range map[string]string{
		"order=": "order", "order=-": "order", "points.in=" + many: "points.in",
		"points=" + strings.Repeat("x", maxOperand+1): "points",
		"points.gte=1e5000":                           "points.gte", "points.lt=-1.5E%2B401": "points.lt",
		"points.gt=1e-401": "points.gt",
		`points.in="open`:  "points.in", `points.in="`: "points.in", `points.in=a,"b,c`: "points.in",
		`points.in="a","b`: "points.in", `points.in="a\"`: "points.in",
	} {
		_, err := planOf(t, indexesOf("points"), query)
		//nolint:errorlint // it is that
		if e, ok := err.(*j17.Error); !ok || e.Code != j17.CodeInvalidParameter || e.Path != at {
			t.Errorf("%.40s: %#v", query, err)
		}
	}
	hundreds := make([]string, 300)
	for i := range hundreds {
		hundreds[i] = fmt.Sprintf("f%d=%d", i, i)
	}
	if _, err := planOf(t, indexesOf("f1"), strings.Join(hundreds, "&")); j17.CodeOf(err) != j17.CodeNotIndexed ||
		len(err.Error()) > 1000 {
		t.Errorf("hundreds of filters: %.2000v", err)
	}
}

// TestConditions compares what filters let through: texts and what they spell, kinds, elements of arrays.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		filter  string
		in, out string // JSON values, with blanks between them
	}{
		{"f=5", `5 5.0 "5" [5] [1,"5"] 50e-1`, `55 "5.0" null true [[5]] {"a":5} []`},
		{`f="5"`, `"5"`, `5 "\"5\""`},
		{"f=null", `null "null" [null]`, `0 false "" [] {}`},
		{"f=true", `true "true"`, `false 1 "TRUE"`},
		{"f=x", `"x" ["x"]`, `"X" null`},
		{"f=", `""`, `null`},
		{"f=007", `"007"`, `7`},
		{"f=1e400", `1e400 10e399 "1e400"`, `1e399`},
		{"f.in=a,5", `"a" 5 "5"`, `"a,5" "b"`},
		{`f.in="a,b",c`, `"a,b" "c"`, `"a" "b"`},
		{`f.in="a"b,c`, `"\"a\"b" "c"`, `"a" "b" "ab"`},
		{`f.in="\"a"`, `"\"a"`, `"a"`},
		{`f="a`, `"\"a"`, `"a"`},
		{`f.in="a\",b",c`, `"a\",b" "c"`, `"a" "b\""`},
		{"f.prefix=op", `"op" "open" ["x","open"]`, `"o" "Open" null 0`},
		{`f.prefix="5"`, `"5" "55"`, `5 55 "\"5\""`},
		{"f.gt=5", `6 5.1 [1,6]`, `5 "6" null true`},
		{"f.gte=5&f.lt=7", `5 6.99 [5]`, `7 4 [4,8]`},
		{"f.gte=5&f.gte=5", `5`, `4`},
		{`f.gt=b`, `"ba" "c"`, `"b" "B" 5`},
		{`f.gte="1e5000"`, `"1e5000" "2"`, `"1" 2`},
		{`f.gte=1e400`, `1e400`, `1e399 "2"`},
		{`f=1e5000`, `"1e5000"`, `1e400`},
		{`f.gte=2026-01-05`, `"2026-01-05" "2027"`, `"2026-01-04" 2027`},
		{`f.gte=false`, `false true`, `null 0`},
		{`f.gt=false`, `true`, `false 0`},
		{`f.gte=null`, `null`, `false 0`},
		{`f.gt=1&f.lt=b`, ``, `2 "a"`},
		{`f.gt=1&f.gte=b`, ``, `2 "c"`},
		{`f.gt=1&f.gte=1`, `2`, `1`},
		{`f.lt=5&f.lte=5`, `4`, `5`},
		{`f.lt=9&f.lte=5`, `4 5`, `6`},
	} {
		p, err := planOf(t, indexesOf("f"), c.filter)
		if err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		for i, texts := range []string{c.in, c.out} {
			for text := range strings.FieldsSeq(texts) {
				v, err := value.ParseString(text)
				if err != nil {
					t.Fatal(text, err)
				}
				if got := p.query.conditions[0].holds(v); got != (i == 0) {
					t.Errorf("%s: %s: %t", c.filter, text, got)
				}
			}
		}
	}
}

// TestCursors fit the list that they are of, and none else.
func TestCursors(t *testing.T) {
	for _, place := range []string{"a", "5öß\x01c50001\x01id", strings.Repeat("x", maxPlace)} {
		c := cursorTo("list", place)
		if got, err := placeOf("list", c); err != nil || got != place {
			t.Errorf("%q: %q, %v", place, got, err)
		}
		for _, other := range []string{c + "A", c[1:], "A" + c, c[:len(c)-2], strings.ToLower(c)} {
			if got, err := placeOf("list", other); j17.CodeOf(err) != j17.CodeInvalidParameter {
				t.Errorf("%q of %q: %q, %v", other, c, got, err)
			}
		}
		if _, err := placeOf("another list", c); j17.CodeOf(err) != j17.CodeInvalidParameter {
			t.Errorf("another list: %v", err)
		}
	}
	if place, err := placeOf("list", ""); place != "" || err != nil {
		t.Error("without a cursor:", place, err)
	}
	for _, place := range []string{"\x00", "a\x00b", "\xff", strings.Repeat("x", maxPlace+1)} {
		if got, err := placeOf("list", cursorTo("list", place)); j17.CodeOf(err) != j17.CodeInvalidParameter {
			t.Errorf("%q: %q, %v", place, got, err)
		}
	}
}

// TestListsAreToldApart: two queries have one identity only if they mean the same.
func TestListsAreToldApart(t *testing.T) {
	indexes := indexesOf("a b", "b a", "a", "words:w")
	seen := map[string]string{}
	for _, query := range []string{
		"a=1", `a="1"`, "a=2", "a.in=1", "a.in=1,2", "a.in=12", "a.gt=1", "a.gte=1", "a.lt=1", "a.lte=1", "a.prefix=1",
		"order=a", "order=-a", "a=1&order=-a", "a=1&order=b", "a=1&order=-b",
		"a=1&b=2", "a=2&b=1", "b=1", "b.gt=1", "a.gt=1&a.lt=2", "a.gt=1&a.lte=2", "w.words=a", "w.words=b",
		"a=1&b.gt=2", "a=1&b.gte=2",
	} {
		p, err := planOf(t, indexes, query)
		if err != nil {
			t.Fatal(query, err)
		}
		id := p.identity(&definition{Projection: &spec.Projection{Name: "tickets"}})
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are one list", query, other)
		}
		seen[id] = query
	}
	same := func(a, b string) bool {
		x, errX := planOf(t, indexes, a)
		y, errY := planOf(t, indexes, b)
		d := &definition{Projection: &spec.Projection{Name: "t"}}
		return errX == nil && errY == nil && x.identity(d) == y.identity(d)
	}
	p, err := planOf(t, indexes, "a=1")
	if err != nil {
		t.Fatal(err)
	}
	before, after := &definition{Projection: &spec.Projection{Name: "t"}},
		&definition{Projection: &spec.Projection{Name: "t", IndexFingerprint: [32]byte{1}}}
	if p.identity(before) == p.identity(after) {
		t.Error("lists by an index that has other values now are one list")
	}
	for _, pair := range [][2]string{
		{"a=1&b=2", "b=2&a=1"}, {"a=x", "a=x&order=a"}, {"a=1&order=a", "a.in=1&order=a"}, {"a.in=2,1,1", "a.in=1,2"},
	} {
		if !same(pair[0], pair[1]) {
			t.Errorf("%q are two lists", pair)
		}
	}
}

// FuzzLists reads parameters of lists and cursors as strangers send them.
func FuzzLists(f *testing.F) {
	f.Add("team=red&points.gte=10&order=-points", "AAAA")
	f.Add(`points.in="a,b",c,5&team="5"`, cursorTo("list", "x"))
	f.Add("title.words=Blue+ki&order=", "")
	indexes := indexesOf("status", "points", "team points", "team status points", "place.floor", "words:title")
	f.Fuzz(func(t *testing.T, text, cursor string) {
		if place, err := placeOf("list", cursor); err == nil && cursor != "" && cursorTo("list", place) != cursor {
			t.Errorf("%q has the place %q, which has another cursor", cursor, place)
		}
		if _, err := url.ParseQuery(text); err != nil {
			return
		}
		p, err := planOf(t, indexes, text)
		switch {
		case j17.CodeOf(err) == j17.CodeInternal:
			t.Error(err)
		case err != nil || p.index == byID:
			return
		}

		// What the plan asks of the index is what the conditions say.
		if p.next != nil && p.next.op == words {
			return
		}
		of := append(slices.Clone(p.equal), p.next)
		if p.next == nil {
			of = p.equal
		}
		if len(of) != len(p.query.conditions) {
			t.Errorf("%d conditions of %d", len(of), len(p.query.conditions))
		}
	})
}

// TestTellingOverfullRowsIsCounted: to find out whether a row has more entries than it may have is what a page takes
// work for, and ends with its caller.
func TestTellingOverfullRowsIsCounted(t *testing.T) {
	t.Parallel()
	numbers := strings.Repeat("1,", 99_999) + "1"
	v := &Value{Data: []byte(`{"a":[` + numbers + `]}`)}
	ctx, leave := context.WithCancel(t.Context())
	g := &page{d: &definition{Projection: ticketsWith(t, indexesOf("a", "words:a"))}, budget: work.New(ctx, maxWork)}
	if same, err := g.fitting(v); err != nil || same != v {
		t.Errorf("%v, %v", same, err)
	}
	if least := int64(100_000); g.work < least {
		t.Errorf("%d units are counted for %d elements", g.work, least)
	}
	leave()
	if _, err := g.fitting(v); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestSuggestedIndexesCanBeDeclared: a list that no index serves suggests none that a deployment would refuse, also
// where the field was indexed before that came to be refused.
func TestSuggestedIndexesCanBeDeclared(t *testing.T) {
	t.Parallel()
	of, err := value.ParseString(`{"select":{"heartbeat":"$.t.x"}}`)
	if err != nil {
		t.Fatal(err)
	}
	p := &spec.Projection{Name: "tickets", Definition: of, Sources: []spec.Source{{Name: "t", Key: true}}}
	_, err = planFor(&definition{Projection: p}, map[string]string{"heartbeat": "1"}, nil)
	var e *j17.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	details, ok := e.Details.(indexDetails)
	if !ok || details.Declare != nil || !strings.Contains(e.Message, `"heartbeat" cannot be indexed`) {
		t.Errorf("%s: %s", e.Message, details.Declare)
	}
}
