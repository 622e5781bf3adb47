package projection_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/projection"
	"j17/internal/follow/feed"
	"j17/internal/storage/testopen"
)

// listSpec has tickets with indexes of all sorts.
const listSpec = `{"agent_types":["user"],"aggregate_types":{
	"ticket":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}},
	"customer":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
	"projections":{"tickets":{"for_each":"ticket","sources":{"t":"$key","by":{"type":"customer","id":"$.t.by"}},
		"select":{"team":"$.t.team","status":"$.t.status","points":"$.t.points","labels":"$.t.labels","who":"$.by.name","place":{"floor":"$.t.floor"},"title":"$.t.title"},
		"index":["status","points",["team","points"],["team","status","points"],"labels","who",["place.floor","labels"],{"words":"title"}]}}}`

// newListed returns a fixture with indexes that are kept up to date until the test ends, on the machine's clock.
func newListed(tb testing.TB) *fixture {
	tb.Helper()
	var o projection.Options
	clk, logger := clock.System{}, slog.New(slog.DiscardHandler)
	store := testopen.Open(tb, clk)
	f := &fixture{Fixture: &enginetest.Fixture{
		Store: store, Engine: engine.New(engine.Options{Store: store, Clock: clk, Logger: logger}),
	}}
	f.DeploySource(tb, listSpec)
	kit := worker.New(clk, logger)
	feeds := feed.New(feed.Options{Store: store, Clock: clk, Logger: logger, Worker: kit})
	builds := build.New(build.Options{Store: store, Clock: clk, Worker: kit, Logger: logger, Parallel: 2})
	o.Indexes = index.New(index.Options{
		Store: store, Feed: feeds, Build: builds, Clock: clk, Logger: logger,
	})
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{feeds.Run, builds.Run, o.Indexes.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	o.Store, o.Engine, o.Clock, o.Logger = store, f.Engine, clk, logger
	f.Service = projection.New(o)
	return f
}

// listIndexes are those of listSpec, but for that of words.
func listIndexes() [][]string {
	return [][]string{
		{"status"},
		{"points"},
		{"team", "points"},
		{"team", "status", "points"},
		{"labels"},
		{"who"},
		{"place.floor", "labels"},
	}
}

// ticketModel is what lists show, without indexes: every row with its fields.
type ticketModel struct {
	*fixture
	rows map[string]map[string]value.Value
	by   map[string]string // of which customer each is
	// names are what customers are called.
	names map[string]string
}

// written values: of one kind mostly, and sometimes of any.
func someValue(rt *rapid.T, of ...string) string {
	if rapid.IntRange(0, 4).Draw(rt, "odd") == 0 {
		of = []string{
			`null`, `true`, `false`, `5`, `5.0`, `"5"`, `-3`, `1e2`, `10.5`, `"red"`, `"redder"`, `""`, `[]`, `{}`,
			`{"a":1}`, `[1,"red",1.0]`, `["x",["y"],null]`, `"null"`, `"é"`, `"ünï"`,
		}
	}
	return rapid.SampledFrom(of).Draw(rt, "value")
}

// write makes or changes a ticket.
func (m *ticketModel) write(tb testing.TB, rt *rapid.T) {
	tb.Helper()
	id := id(rapid.IntRange(0, 30).Draw(rt, "row"))
	by := id[:len(id)-2] + rapid.SampledFrom([]string{"f1", "f2", "f3"}).Draw(rt, "by")
	fields := map[string]string{
		"team": someValue(rt, `"red"`, `"blue"`), "status": someValue(rt, `"open"`, `"opened"`, `"done"`),
		"points": someValue(rt, `1`, `2`, `10`, `10.5`, `100`, `-3`),
		"labels": someValue(rt, `[]`, `["ui"]`, `["ui","db"]`, `["db",7]`), "floor": someValue(rt, `1`, `2`, `3`),
		"title": `"t"`,
	}
	if drop := rapid.SampledFrom([]string{"", "", "", "team", "points", "labels"}).Draw(rt, "without"); drop != "" {
		delete(fields, drop)
	}
	data := `{"by":"` + by + `"`
	row := map[string]value.Value{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		data += `,"` + name + `":` + fields[name]
		v, err := value.ParseString(fields[name])
		if err != nil {
			tb.Fatal(err)
		}
		if name == "floor" {
			name = "place.floor"
		}
		row[name] = v
	}
	m.make(tb, "ticket", id, data+`}`)
	m.rows[id], m.by[id] = row, by
}

// rename changes what a customer is called, who is a source of tickets.
func (m *ticketModel) rename(tb testing.TB, rt *rapid.T) {
	tb.Helper()
	customer := id(0)
	customer = customer[:len(customer)-2] + rapid.SampledFrom([]string{"f1", "f2", "f3"}).Draw(rt, "customer")
	name := rapid.SampledFrom([]string{"Ann", "Bob", "Cid"}).Draw(rt, "name")
	m.make(tb, "customer", customer, `{"name":"`+name+`"}`)
	m.names[customer] = name
}

// modelRank orders kinds.
func modelRank(v value.Value) int {
	switch v.Kind() {
	case value.Missing, value.Null:
		return 0
	case value.Bool:
		if v.Truth() {
			return 2
		}
		return 1
	case value.Number:
		return 3
	case value.String:
		return 4
	case value.Array, value.Object:
	}
	return 5
}

func modelCompare(a, b value.Value) int {
	order, _ := value.Compare(a, b)
	return cmp.Or(modelRank(a)-modelRank(b), order)
}

// stands are the values under which a row stands in an index of one field.
func (m *ticketModel) stands(id, field string) []value.Value {
	v := m.rows[id][field]
	if field == "who" {
		if v = value.NullValue(); m.names[m.by[id]] != "" {
			v = value.StringValue(m.names[m.by[id]])
		}
	}
	if v.Kind() == value.Array && v.Len() > 0 {
		return v.Elems()
	}
	return []value.Value{v}
}

// modelFilter is a filter as a client writes it.
type modelFilter struct{ field, op, text string }

// readings are the values that a text in a filter stands for.
func readings(text string) []value.Value {
	switch parsed, err := value.ParseString(text); {
	case err != nil || modelRank(parsed) == 5:
		return []value.Value{value.StringValue(text)}
	case parsed.Kind() == value.String:
		return []value.Value{parsed}
	default:
		return []value.Value{value.StringValue(text), parsed}
	}
}

// passes says whether a value passes a filter.
func (f *modelFilter) passes(v value.Value) bool {
	of := readings(f.text)
	last := of[len(of)-1]
	same := modelRank(v) == modelRank(last) || v.Kind() == value.Bool && last.Kind() == value.Bool
	equals := func(w value.Value) bool { return modelRank(v) < 5 && modelCompare(v, w) == 0 }
	switch f.op {
	case "":
		return slices.ContainsFunc(of, equals)
	case ".in":
		return slices.ContainsFunc(
			strings.Split(f.text, ","), func(text string) bool { return slices.ContainsFunc(readings(text), equals) },
		)
	case ".prefix":
		return v.Kind() == value.String && strings.HasPrefix(v.Str(), f.text)
	case ".gt":
		return same && modelCompare(v, last) > 0
	case ".gte":
		return same && modelCompare(v, last) >= 0
	case ".lt":
		return same && modelCompare(v, last) < 0
	default:
		return same && modelCompare(v, last) <= 0
	}
}

// modelQuery is a list that a client asks for.
type modelQuery struct {
	equal    []modelFilter
	next     []modelFilter // of one field
	order    string
	backward bool
	// same is an order by a field in which all rows have the one value that is asked for, which orders nothing.
	same  string
	index []string
}

// someQuery draws a list that an index serves.
func someQuery(rt *rapid.T) modelQuery {
	var q modelQuery
	x := rapid.SampledFrom(listIndexes()).Draw(rt, "index")
	operands := []string{
		"red", "blue", "open", "opened", "done", "1", "2", "10.50", "100", "5", `"5"`, "null", "true", "ui", "db", "7",
		"Ann", "Bob", "é", "-3", "",
	}
	operand := func() string { return rapid.SampledFrom(operands).Draw(rt, "operand") }
	k := rapid.IntRange(0, len(x)).Draw(rt, "equal")
	for _, field := range x[:k] {
		q.equal = append(q.equal, modelFilter{field, "", operand()})
	}
	if k < len(x) {
		switch kind := rapid.IntRange(0, 6).Draw(rt, "next"); kind {
		case 0:
			q.next = []modelFilter{{x[k], ".in", operand() + "," + operand()}}
		case 1:
			q.next = []modelFilter{
				{x[k], ".prefix", rapid.SampledFrom([]string{"o", "open", "red", "", "é"}).Draw(rt, "prefix")},
			}
		case 2, 3:
			q.next = []modelFilter{{x[k], rapid.SampledFrom([]string{".gt", ".gte"}).Draw(rt, "low"), operand()}}
			if kind == 3 {
				q.next = append(q.next, modelFilter{
					x[k], rapid.SampledFrom([]string{".lt", ".lte"}).Draw(rt, "high"), operand(),
				})
			}
		case 4:
			q.next = []modelFilter{{x[k], ".lt", operand()}}
		case 5:
			if k == 0 {
				q.order = x[k] // or nothing would be asked for
			}
		}
		if rapid.Bool().Draw(rt, "ordered") || len(q.equal)+len(q.next) == 0 {
			q.order = x[k]
			q.backward = rapid.Bool().Draw(rt, "backward")
		}
	}
	switch {
	case q.order != "" || k == 0 || !rapid.Bool().Draw(rt, "by what is equal"):
	default:
		by := q.equal[rapid.IntRange(0, k-1).Draw(rt, "of the equal ones")]
		if len(readings(by.text)) == 1 {
			q.same = by.field
			q.backward = rapid.Bool().Draw(rt, "backward")
		} else if len(q.next) == 0 && by == q.equal[k-1] {
			// Of several readings it is a list of values, which takes an index where its field comes behind those of
			// the equal ones.
			k--
			q.equal, q.next, q.order = q.equal[:k], []modelFilter{by}, by.field
			q.backward = rapid.Bool().Draw(rt, "backward")
		}
	}

	// The shortest index that serves, then the first.
	behind := q.order
	if len(q.next) > 0 {
		behind = q.next[0].field
	}
	for _, x := range listIndexes() {
		first := slices.Clone(x[:min(k, len(x))])
		slices.Sort(first)
		asked := []string{}
		for _, f := range q.equal {
			asked = append(asked, f.field)
		}
		slices.Sort(asked)
		if slices.Equal(first, asked) && (behind == "" || k < len(x) && x[k] == behind) &&
			(q.index == nil || len(x) < len(q.index)) {
			q.index = x
		}
	}
	return q
}

// ask is the query as a service takes it.
func (q *modelQuery) ask() projection.ListAsk {
	ask := projection.ListAsk{Name: "tickets", Filters: map[string]string{}}
	for _, f := range append(slices.Clone(q.equal), q.next...) {
		ask.Filters[f.field+f.op] = f.text
	}
	if order := q.order + q.same; order != "" {
		if q.backward {
			order = "-" + order
		}
		ask.Order = &order
	}
	return ask
}

// find looks at all rows, and sorts those that pass.
func (m *ticketModel) find(q *modelQuery) (ids []string) {
	least := map[string][]value.Value{}
	for id := range m.rows {
		// All places of the row in the index, and the least of those that pass.
		places := [][]value.Value{nil}
		for _, field := range q.index {
			var longer [][]value.Value
			for _, at := range places {
				for _, v := range m.stands(id, field) {
					longer = append(longer, append(slices.Clone(at), v))
				}
			}
			places = longer
		}
		for _, at := range places {
			passes := true
			for _, f := range q.equal {
				passes = passes && f.passes(at[slices.Index(q.index, f.field)])
			}
			for _, f := range q.next {
				passes = passes && f.passes(at[len(q.equal)])
			}
			rest := at[len(q.equal):]
			if had, ok := least[id]; passes && (!ok || slices.CompareFunc(rest, had, modelCompare) < 0) {
				least[id] = rest
			}
		}
	}
	ids = slices.SortedFunc(maps.Keys(least), func(a, b string) int {
		return cmp.Or(slices.CompareFunc(least[a], least[b], modelCompare), strings.Compare(a, b))
	})
	if q.backward {
		slices.Reverse(ids)
	}
	return ids
}

// TestListsAgreeWithAScan asks for random lists of random rows right after random writes, and compares with what
// filtering and sorting all rows comes to. Between pages further rows change: those that stay come exactly once, in
// their order.
func TestListsAgreeWithAScan(t *testing.T) {
	m := &ticketModel{fixture: newListed(t), rows: map[string]map[string]value.Value{}, by: map[string]string{}}
	m.names = map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 4).Draw(rt, "writes") {
			m.write(t, rt)
		}
		if rapid.IntRange(0, 3).Draw(rt, "rename") == 0 {
			m.rename(t, rt)
		}
		for range 3 {
			q := someQuery(rt)
			ask := q.ask()
			ask.Count = rapid.IntRange(1, 12).Draw(rt, "count")
			want := m.find(&q)
			if got := m.pages(t, ask, func() {}); !slices.Equal(got, want) {
				rt.Fatalf("%v %v: got %s, want %s", ask.Filters, orderOf(ask), numbers(got), numbers(want))
			}
			if n := m.count(t, "tickets", ask.Filters); n != uint64(len(want)) {
				rt.Fatalf("%v: %d are counted of %d", ask.Filters, n, len(want))
			}
		}

		// Others change between pages.
		q := someQuery(rt)
		ask := q.ask()
		ask.Count = rapid.IntRange(1, 5).Draw(rt, "count")
		want, moved := m.find(&q), map[string]bool{}
		before := maps.Clone(m.rows)
		left := 3
		got := m.pages(t, ask, func() {
			if left--; left > 0 {
				m.write(t, rt)
			}
		})
		for id := range m.rows {
			if was, ok := before[id]; !ok ||
				!maps.EqualFunc(was, m.rows[id], func(a, b value.Value) bool { return value.Equal(a, b) }) {
				moved[id] = true
			}
		}
		if slices.Contains(q.index, "who") { // of which a ticket may have changed with its customer
			return
		}
		gone := func(id string) bool { return moved[id] }
		if got, want := slices.DeleteFunc(got, gone), slices.DeleteFunc(want, gone); !slices.Equal(got, want) {
			rt.Fatalf("%v %v with changes: got %s, want %s", ask.Filters, orderOf(ask), numbers(got), numbers(want))
		}
	})
}

func orderOf(ask projection.ListAsk) string {
	if ask.Order == nil {
		return "as it comes"
	}
	return *ask.Order
}

// numbers are the ends of ids.
func numbers(ids []string) string {
	var all []string
	for _, id := range ids {
		n, _ := strconv.ParseUint(id[len(id)-4:], 16, 64)
		all = append(all, fmt.Sprint(n))
	}
	return strings.Join(all, " ")
}

// TestListsOfWords finds rows by words, whole ones and the beginning of the last, right after they were written.
func TestListsOfWords(t *testing.T) {
	f := newListed(t)
	for n, title := range []string{"Blue kite", "blue SKY kit", "Grüne Kiste", "kite, red", "5 kites", `kite`} {
		f.make(t, "ticket", id(n), `{"title":"`+title+`"}`)
	}
	f.make(t, "ticket", id(6), `{"title":["blue","kite"]}`)
	f.make(t, "ticket", id(7), `{"title":5}`)
	for words, want := range map[string]string{
		"blue kit": "0 1 6", "KITE": "0 3 5 6 4", "grüne ki": "2", "ky": "", "sky blue": "1", "kit": "1 0 3 5 6 4",
		"": "", "!": "", "5": "4",
	} {
		for _, count := range []int{2, 100} {
			if got := numbers(f.pages(
				t, projection.ListAsk{Name: "tickets", Count: count, Filters: map[string]string{"title.words": words}},
				func() {},
			)); got != want {
				t.Errorf("%q: %s, want %s", words, got, want)
			}
		}
		if n := f.count(t, "tickets", map[string]string{"title.words": words}); n != uint64(len(strings.Fields(want))) {
			t.Errorf("%q: %d are counted", words, n)
		}
	}
	many := strings.TrimSpace(strings.Repeat("a b c d e f g h i j k l m n o p q r s t u v ", 1))
	if _, err := f.Count(t.Context(), enginetest.Tenant, "tickets", map[string]string{
		"title.words": many,
	}); j17.CodeOf(err) != j17.CodeInvalidParameter {
		t.Error(err)
	}
}

// TestListsOfLongTexts finds texts that an entry cannot hold: by all that they are, and by what they begin with.
func TestListsOfLongTexts(t *testing.T) {
	f := newListed(t)
	long := strings.Repeat("é", 1500)
	for n, end := range []string{"", "a", "b", "ba"} {
		f.make(t, "ticket", id(n), `{"status":"`+long+end+`"}`)
	}
	f.make(t, "ticket", id(9), `{"status":"`+long[:600]+`"}`)
	for filter, want := range map[string][]string{
		"status=" + long: {id(0)}, "status=" + long + "b": {id(2)}, "status=" + long + "x": nil,
		"status.prefix=" + long + "b": {id(2), id(3)},
		"status.prefix=" + long:       {id(0), id(1), id(2), id(3)}, "status.gt=" + long + "a": {id(2), id(3)},
		"status.lte=" + long + "a": {id(0), id(1), id(9)},
	} {
		name, text, _ := strings.Cut(filter, "=")
		filters := map[string]string{name: text}
		got := f.pages(t, projection.ListAsk{Name: "tickets", Count: 2, Filters: filters}, func() {})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%.20s: %s, want %s", filter, numbers(got), numbers(want))
		}
		if n := f.count(t, "tickets", filters); n != uint64(len(want)) {
			t.Errorf("%.20s: %d are counted of %d", filter, n, len(want))
		}
	}
}

// TestListsFollowSources: a row moves when what it is made of changes, and one that cannot be computed stands where
// nulls do.
func TestListsFollowSources(t *testing.T) {
	f := newListed(t)
	who := func(name string) string {
		return numbers(f.pages(
			t, projection.ListAsk{Name: "tickets", Count: 10, Filters: map[string]string{"who": name}}, func() {},
		))
	}
	for n := range 3 {
		f.make(t, "ticket", id(n), `{"by":"`+id(100+n/2)+`"}`)
	}
	if got := who("null"); got != "0 1 2" {
		t.Error(got)
	}
	f.make(t, "customer", id(100), `{"name":"Ann"}`)
	if got := who("Ann") + "," + who("null"); got != "0 1,2" {
		t.Error(got)
	}
	f.make(t, "customer", id(101), `{"name":"Ann"}`)
	f.make(t, "customer", id(100), `{"name":"Bob"}`)
	f.make(t, "ticket", id(0), `{"by":"`+id(101)+`"}`)
	if got := who("Ann") + "," + who("Bob") + "," + who("null"); got != "0 2,1," {
		t.Error(got)
	}
	l := f.list(t, projection.ListAsk{Name: "tickets", Count: 10, Filters: map[string]string{"who": "Bob"}})
	if want := `{"team":null,"status":null,"points":null,"labels":null,"who":"Bob","place":{"floor":null},"title":null}`; len(l.Rows) != 1 || string(l.Rows[0].Data) != want {
		t.Errorf("%+v", l)
	}
}
