package projection_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/projection"
	"j17/internal/follow/feed"
)

// newIndexed is newFixture with indexes that are kept up to date until the test ends.
func newIndexed(tb testing.TB, source string) *fixture {
	tb.Helper()
	var o projection.Options
	f := newFixture(tb, source, o)
	logger := slog.New(slog.DiscardHandler)
	kit := worker.New(f.Clock, logger)
	feeds := feed.New(feed.Options{Store: f.Store, Clock: f.Clock, Logger: logger, Worker: kit})
	builds := build.New(build.Options{Store: f.Store, Clock: f.Clock, Worker: kit, Logger: logger, Parallel: 2})
	indexes := index.New(index.Options{
		Store: f.Store, Feed: feeds, Build: builds, Clock: f.Clock, Logger: logger,
	})
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{feeds.Run, builds.Run, indexes.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	o.Store, o.Engine, o.Clock, o.Indexes = f.Store, f.Engine, f.Clock, indexes
	f.Service = projection.New(o)
	return f
}

const querySpec = `{"agent_types":["user"],"singletons":["main"],"aggregate_types":{
	"ticket":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}},
	"team":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}},
	"projections":{
		"by_v":{"sources":[{"aggregate":"ticket","query":"v = $.v"}]},
		"by_id":{"sources":[{"aggregate":"ticket","query":"id = $.id"}]},
		"listed":{"sources":[{"aggregate":"ticket","query":"v = true"},{"aggregate":"team","query":"v = [1, {\"a\": 1.0}]"}]},
		"of_team":{"for_each":"team","sources":{"team":"$key","tickets":{"type":"ticket","query":"v = $.team.v"},"again":{"type":"ticket","query":"v = $.team.v"}},
			"select":{"ids":"$.tickets[*].id","again":"$.again[*].id"}}}}`

// ids reads the ids of what a query finds.
func (f *fixture) ids(tb testing.TB, ask projection.Ask, member string) (ids []string) {
	tb.Helper()
	data, err := value.Parse(f.view(tb, ask).Data)
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range data.Get(member).Elems() {
		if id := v.Get("id"); !id.IsMissing() {
			v = id
		}
		ids = append(ids, v.Str())
	}
	return ids
}

// TestQueriesFindWhatIsThere asks for values of all kinds, right after each write: an index is never behind.
func TestQueriesFindWhatIsThere(t *testing.T) {
	f := newIndexed(t, querySpec)
	tickets := "ticket"
	long := strings.Repeat("é", 3000)
	for i, v := range []string{
		`5`, `"5"`, `5.5`, `[5,"x"]`, `{"n":5}`, `null`, `true`, `"true"`, `[]`, `[[5]]`, `"` + long + `"`,
		`"` + long + `x"`, `[null]`, `-0.0`,
	} {
		f.make(t, "ticket", id(i), `{"v":`+v+`}`)
		f.ids(t, projection.Ask{Name: "by_v", ID: "5"}, tickets)
	}
	f.make(t, "ticket", id(14), `{}`)
	f.make(t, "ticket", "main", `{"v":5,"id":"own"}`)
	some := func(numbers ...int) (ids []string) {
		for _, n := range numbers {
			ids = append(ids, id(n))
		}
		return ids
	}
	for given, want := range map[string][]string{
		"5": append(some(0, 1, 3), "own"), "5.0": append(some(0, 3), "own"), "50e-1": append(some(0, 3), "own"),
		`"5"`: some(1), "5.50": some(2), "x": some(3), "null": some(5, 12, 14),
		"true": some(6, 7), "[]": nil, "": nil, long: some(10), long + "x": some(11), "0": some(13), "{}": nil,
		" 5": nil,
	} {
		if got := f.ids(
			t, projection.Ask{Name: "by_v", Params: map[string]string{"v": given}}, tickets,
		); !slices.Equal(got, want) {
			t.Errorf("%.20q finds %v, want %v", given, got, want)
		}
	}
	for given, want := range map[string][]string{id(3): some(3), "own": {"own"}, "main": nil, id(99): nil} {
		if got := f.ids(
			t, projection.Ask{Name: "by_id", Params: map[string]string{"id": given}}, tickets,
		); !slices.Equal(got, want) {
			t.Errorf("id %s finds %v, want %v", given, got, want)
		}
	}

	// Literals, and values of other sources.
	f.make(t, "team", id(1), `{"v":[1.0,{"a":1}]}`)
	f.make(t, "team", id(2), `{"v":[[1,{"a":10e-1}]]}`)
	f.make(t, "team", id(3), `{"v":[1]}`)
	if got := f.ids(t, projection.Ask{Name: "listed"}, "team"); !slices.Equal(got, some(1, 2)) {
		t.Errorf("a literal finds %v", got)
	}
	if got := f.ids(t, projection.Ask{Name: "listed"}, tickets); !slices.Equal(got, some(6)) {
		t.Errorf("a literal finds %v", got)
	}
	for i, want := range [][]string{nil, nil, nil, nil, some(9), some(4), append(some(0, 3), "own"), some(5, 12, 14)} {
		v := []string{`[1.0,{"a":1}]`, `[1]`, `[[5]]`, `{}`, `[5]`, `{"n":5.0}`, `5`, `null`}[i]
		f.make(t, "team", id(7), `{"v":`+v+`}`)
		for _, part := range []string{"ids", "again"} {
			if i == 2 {
				want = some(9)
			}
			if got := f.ids(t, projection.Ask{Name: "of_team", ID: id(7)}, part); !slices.Equal(got, want) {
				t.Errorf("%s of a team with %s are %v, want %v", part, v, got, want)
			}
		}
	}
}

// TestQueriesAreExact compares what queries find with all states there are, after each of many writes, some by several
// clients at the same time. Kept values are among them.
func TestQueriesAreExact(t *testing.T) {
	f := newIndexed(t, querySpec)
	values := []string{"1", "2", "1.0", `"1"`, `[1,2]`, `[2,"1"]`, "null", `[{"a":1}]`, "true"}
	states := map[string]string{}
	rapid.Check(t, func(rt *rapid.T) {
		// Each client has aggregates of its own.
		plan := [3][]string{}
		for c := range plan {
			for range rapid.IntRange(0, 2).Draw(rt, "writes") {
				i := id(c*10 + rapid.IntRange(0, 3).Draw(rt, "id"))
				v := rapid.SampledFrom(values).Draw(rt, "value")
				plan[c] = append(plan[c], i, v)
				states[i] = v
			}
		}
		var clients sync.WaitGroup
		for _, writes := range plan {
			clients.Go(func() {
				for w := range slices.Chunk(writes, 2) {
					f.make(t, "ticket", w[0], `{"v":`+w[1]+`}`)
					f.view(t, projection.Ask{Name: "by_v", ID: "1"})
				}
			})
		}
		clients.Wait()
		for given, wanted := range map[string][]string{
			"1": {`1`, `"1"`}, "null": {`null`, `"null"`}, `"1"`: {`"1"`}, "true": {"true", `"true"`},
		} {
			var want []string
			for i, v := range states {
				if slices.ContainsFunc(wanted, func(w string) bool { return holds(t, v, w) }) {
					want = append(want, i)
				}
			}
			slices.Sort(want)
			if got := f.ids(t, projection.Ask{Name: "by_v", ID: given}, "ticket"); !slices.Equal(got, want) {
				rt.Fatalf("%s finds %v, want %v of %v", given, got, want, states)
			}
		}
	})
}

// holds reports whether a field has a value, or an array of them.
func holds(t *testing.T, field, wanted string) bool {
	t.Helper()
	f, err := value.ParseString(field)
	if err != nil {
		t.Fatal(err)
	}
	w, err := value.ParseString(wanted)
	if err != nil {
		t.Fatal(err)
	}
	return value.Equal(f, w) || slices.ContainsFunc(f.Elems(), func(e value.Value) bool { return value.Equal(e, w) })
}

// TestQueriesHaveLimits finds as many aggregates as a source may have, and one more.
func TestQueriesHaveLimits(t *testing.T) {
	f := newIndexed(t, querySpec)
	for i := range projection.MaxAggregates {
		f.make(t, "ticket", id(i), `{"v":1}`)
	}
	ask := projection.Ask{Name: "by_v", ID: "1"}
	if got := f.ids(t, ask, "ticket"); len(got) != projection.MaxAggregates {
		t.Errorf("%d were found", len(got))
	}
	f.make(t, "ticket", id(projection.MaxAggregates), `{"v":1}`)
	f.refused(t, ask, j17.CodeProjectionLimit, "")
	f.make(t, "ticket", id(7), `{"v":2}`)
	if got := f.ids(t, ask, "ticket"); len(got) != projection.MaxAggregates {
		t.Errorf("%d were found", len(got))
	}
	ask.Until = new(f.Clock.Now().Unix())
	f.refused(t, ask, j17.CodeInvalidParameter, "at")
	ask.Until = nil

	// An aggregate with more values than an index shows is found by its state.
	f.make(t, "ticket", id(8), `{"v":[`+strings.Repeat("0,", 10_001)+`77]}`)
	if got := f.ids(t, projection.Ask{Name: "by_v", ID: "77"}, "ticket"); !slices.Equal(got, []string{id(8)}) {
		t.Errorf("%v", got)
	}
}

// TestQueriesThatFindTooMuchAreNamed finds so much that no state is looked at: the source is called what the definition
// calls it.
func TestQueriesThatFindTooMuchAreNamed(t *testing.T) {
	called := `"by_v":{"sources":[{"aggregate":"ticket","as":"found","query":"v = $.v"}]}`
	f := newIndexed(t, strings.Replace(querySpec, `"by_v":{"sources":[{"aggregate":"ticket","query":"v = $.v"}]}`, called, 1))
	for i := range 3*projection.MaxAggregates + 1 { // however many of them an index that is behind does not show
		f.make(t, "ticket", id(i), `{"v":1}`)
	}
	_, err := f.Read(t.Context(), enginetest.Tenant, &projection.Ask{Name: "by_v", ID: "1"})
	if j17.CodeOf(err) != j17.CodeProjectionLimit || !strings.Contains(err.Error(), "The source 'found' has more") {
		t.Errorf("%v", err)
	}
}
