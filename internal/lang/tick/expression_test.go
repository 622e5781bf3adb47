package tick_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// TestExpressions covers predicates and templates outside of handlers: with bindings and members of "$" that the
// caller supplies, and with the state under both of its names.
func TestExpressions(t *testing.T) {
	scope := tick.Scope{
		Bindings: []string{"item", "prev"}, Members: []string{"key", "id", "type", "data", "metadata", "state"},
	}
	ev := newEvent("was_placed", mustParse(t, `{"n": 5, "list": [1, 2]}`), firstTime)
	env := tick.NewEnv(work.New(t.Context(), work.Command))
	raw := ev.raw()
	raw.Key = "order:550e8400"
	env.Renew(raw)
	env.SetState(mustParse(t, `{"tier": "gold", "tags": ["a"]}`))
	env.Bind(0, mustParse(t, `{"sku": "s1", "tags": ["a", "b"]}`))

	predicates := []struct {
		src       string
		holds, ok bool
	}{
		{`{"equals": ["$item.sku", "s1"]}`, true, true},
		{`{"equals": ["$.state.tier", "@.tier"]}`, true, true},
		{`{"equals": ["$.id", "550e8400"]}`, true, true},
		{`{"exists": "$prev"}`, false, true},
		{`{"equals": ["$prev.type", null]}`, true, true},
		{`{"gt": ["$.data.n", 5]}`, false, true},
		{`{"some": {"in": "$item.tags", "match": {"includes": {"array": "tags", "value": "$item"}}}}`, true, true},
		{`{"every": {"in": "$item.tags", "as": "$tag", "match": {"equals": ["$item.sku", "s1"]}}}`, true, true},
		{`{"equals": ["$.data.none?", 1]}`, false, false},
		{`{"not": {"equals": ["$.data.none?", 1]}}`, false, false},
		{`{"or": [{"exists": "$item"}, {"equals": ["$.data.none?", 1]}]}`, false, false},
	}
	for _, test := range predicates {
		var l diag.List
		p := tick.CompilePredicate(mustParse(t, test.src), "/condition", scope, &l)
		if p == nil {
			t.Errorf("%s: %v", test.src, l.All())
			continue
		}
		for range 2 {
			if holds, ok, err := p.Test(env); holds != test.holds || ok != test.ok || err != nil {
				t.Errorf("%s is %v, %v, %v; want %v, %v", test.src, holds, ok, err, test.holds, test.ok)
			}
		}
	}
}

// TestReadsOfOtherAggregates covers the states of other aggregates: null where one has no events, and what custom code
// calls the same.
func TestReadsOfOtherAggregates(t *testing.T) {
	members := []string{"key", "id", "type", "data", "metadata", "state"}
	scope := tick.Scope{Members: members, Current: true, Reads: []string{"to", "my-desk", "nobody"}}
	env := tick.NewEnv(work.New(t.Context(), work.Command))
	sent := newEvent("was_sent", mustParse(t, `{"reads": {"to": 1}}`), firstTime)
	env.Renew(sent.raw())
	env.SetState(mustParse(t, `{"reads": {"to": 2}, "balance": 3}`))
	env.SetReads([]value.Value{mustParse(t, `{"currency": "EUR", "list": [1, {"n": 5}]}`), {}, value.NullValue()})
	for src, want := range map[string]string{
		`["$.reads.to.currency", "$.reads.to.list[-1].n", "@.balance"]`: `["EUR",5,3]`,
		`{"concat": ["$.reads.to.list", "$.reads.my-desk"]}`:            `"[1,{\"n\":5}]"`,
		`["$.reads.nobody", "$.reads.nobody.a", "$.reads.to.none"]`:     `[null,null,null]`,
		`["$.data.reads.to", "$.state.reads.to"]`:                       `[1,2]`,
	} {
		var l diag.List
		template := tick.CompileTemplate(mustParse(t, src), "/data", scope, &l)
		if template == nil {
			t.Errorf("%s: %v", src, l.All())
			continue
		}
		if v, ok, err := template.Eval(env, 1000); !ok || err != nil || v.String() != want {
			t.Errorf("%s is %s, %v, %v; want %s", src, v, ok, err, want)
		}
	}

	var l diag.List
	null := tick.CompilePredicate(mustParse(t, `{"and": [{"equals": ["$.reads.nobody", null]}, {"exists": "$.reads.to"}]}`), "", scope, &l)
	if holds, ok, err := null.Test(env); !holds || !ok || err != nil || null.ReadsOf() != 0b101 || null.ReadsState() {
		t.Errorf("%v, %v, %v, reads %b", holds, ok, err, null.ReadsOf())
	}
	optional := tick.CompilePredicate(mustParse(t, `{"not": {"equals": ["$.reads.nobody.name?", 1]}}`), "", scope, &l)
	if holds, ok, err := optional.Test(env); holds || ok || err != nil {
		t.Errorf("a path with ? into nothing holds %v, is known %v, %v", holds, ok, err)
	}

	// The next event has none.
	env.Renew(sent.raw())
	path := tick.CompilePath(mustParse(t, `"$.reads.to.currency"`), "", "an id", scope, &l)
	if v, err := path.In(env); !v.IsMissing() || err != nil || path.ReadsOf() != 1 {
		t.Errorf("after another event %s, %v, reads %b", v, err, path.ReadsOf())
	}

	// Custom code may call something so where the spec reads nothing.
	env.Extend([]value.Member{{Key: "reads", Value: mustParse(t, `{"to": 4}`)}})
	enriched := tick.CompilePath(mustParse(t, `"$.reads.to"`), "", "an id", tick.Scope{Reads: []string{}}, &l)
	if v, err := enriched.In(env); v.String() != "4" || err != nil || enriched.ReadsOf() != 0 {
		t.Errorf("of custom code %s, %v, reads %b", v, err, enriched.ReadsOf())
	}
	if found := l.All(); len(found) > 0 {
		t.Error(found)
	}
	var none *tick.Template
	if none.ReadsOf() != 0 {
		t.Error("no template reads something")
	}
}

// TestReadsOfBindings checks that expressions know which bindings they read, so that nobody has to make up the others.
func TestReadsOfBindings(t *testing.T) {
	scope := tick.Scope{Bindings: []string{"item", "prev"}, Members: []string{"data"}}
	var l diag.List
	both := tick.CompileTemplate(mustParse(t, `{"a": "$data", "b": {"concat": ["$prev.type", {"coalesce": ["$item"]}]}}`), "", tick.Scope{Bindings: []string{"item", "prev", "data"}}, &l)
	predicate := tick.CompilePredicate(mustParse(t, `{"some": {"in": "$.data", "as": "$x", "match": {"equals": ["$x", "$prev"]}}}`), "", scope, &l)
	path := tick.CompilePath(value.StringValue("$item.id"), "", "a path", scope, &l)
	if l.Errors() > 0 {
		t.Fatal(l.All())
	}
	for _, test := range []struct {
		name  string
		reads func(int) bool
		want  []bool
	}{
		{"template", both.Reads, []bool{true, true, true}},
		{"predicate", predicate.Reads, []bool{false, true}},
		{"path", path.Reads, []bool{true, false, false}},
		{"none", (*tick.Template)(nil).Reads, []bool{false, false, false}},
		{"no condition", (*tick.Predicate)(nil).Reads, []bool{false, false, false}},
		{"no path", (*tick.Path)(nil).Reads, []bool{false, false, false}},
	} {
		for slot, want := range test.want {
			if got := test.reads(slot); got != want {
				t.Errorf("%s reads binding %d: %v", test.name, slot, got)
			}
		}
	}
}

func TestExpressionErrors(t *testing.T) {
	scope := tick.Scope{Bindings: []string{"item"}, Members: []string{"id", "state"}}
	var l diag.List
	if tick.CompilePredicate(mustParse(t, `{"equals": ["$itm.x", "$.ids"]}`), "/condition", scope, &l) != nil {
		t.Error("a predicate with unknown names compiles")
	}
	if tick.CompilePredicate(mustParse(t, `{"equals": [{"a": ["$.dta"]}, 1]}`), "/when", scope, &l) != nil {
		t.Error("a predicate with an unknown member compiles")
	}
	if tick.CompilePredicate(mustParse(t, `{"in": [1, 5]}`), "/in", scope, &l) != nil {
		t.Error("a number compiles as an array")
	}
	var got []string
	for _, d := range l.All() {
		got = append(got, string(d.Pointer)+": "+d.Message+" | "+d.Hint)
	}
	want := []string{
		`/condition/equals/0: nothing is bound to $itm here | did you mean "$item"?`,
		`/condition/equals/1: an event has no member "ids" | did you mean "$.id"?`,
		`/when/equals/0/a/0: an event has no member "dta" | did you mean "$.data"?`,
		`/in/in/1: an array is needed here, not a number | write a path like "items", "@.items" or "$.data.items", or an array`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOperationLimit(t *testing.T) {
	op := `{"set":{"target":"a","value":1}},`
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(op, n), ",") + "]" }
	tests := []struct {
		src  string
		fits bool
	}{
		{list(100), true},
		{list(101), false},
		{`[{"if":{"exists":"$.data"},"then":` + list(50) + `,"else":` + list(49) + `}]`, true},
		{`[{"if":{"exists":"$.data"},"then":` + list(50) + `,"else":` + list(50) + `}]`, false},
		{`{"map":{"target":"xs","apply":` + list(99) + `}}`, true},
		{`{"map":{"target":"xs","apply":` + list(100) + `}}`, false},
	}
	for _, test := range tests {
		var l diag.List
		h := tick.CompileHandler(mustParse(t, test.src), "/handler", &l)
		if (h != nil) != test.fits {
			t.Errorf("%.80s: compiles %v, want %v", test.src, h != nil, test.fits)
		}
		if !test.fits && (l.Errors() != 1 || !strings.Contains(l.All()[0].Message, "more than 100 operations")) {
			t.Errorf("%.80s: %v", test.src, l.All())
		}
	}
}

func TestReads(t *testing.T) {
	tests := []struct {
		src  string
		want []string
	}{
		{`[]`, nil},
		{`{"set": {"target": "a", "value": ["@.x", "$.state.y", 5]}}`, nil},
		{
			`{"set": {"target": "a", "value": ["$.data.b.c?", "$.data.b.c", "$.data.a[0].$entries", "$.key", "$.type", "$.metadata.timestamp", "$.metadata.actor.id"]}}`,
			[]string{"$.data.a[0]", "$.data.b.c", "$.key", "$.metadata.actor.id", "$.metadata.timestamp", "$.type"},
		},
		{`{"if": {"exists": "$.data.a"}, "then": {"merge": {"target": "", "value": "$.data"}}}`, []string{"$.data", "$.data.a"}},
		{`{"filter": {"target": "xs", "keep": {"expired": {"timestamp": "$item.t", "maxAgeSeconds": "$.data.age"}}}}`, []string{"$.data.age", "$.metadata.timestamp"}},
		{`{"set": {"target": "a", "value": "$"}}`, []string{"$"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, compile(t, test.src).Reads()); diff != "" {
			t.Errorf("%s: %s", test.src, diff)
		}
	}
}

// A handler that reads nothing of an event's data does not look at its bytes, and one that reads a member does not look
// at what stands behind it.
func TestUnreadDataIsNotParsed(t *testing.T) {
	broken := &tick.Event{Data: tick.Raw([]byte(`{"n":5,"broken`)), Metadata: tick.Raw([]byte(`broken`))}
	state := apply(t, compile(t, `{"set": {"target": "a", "value": "$.metadata.timestamp"}}`), value.NewEditor(), value.ObjectValue(), broken, nil)
	state = apply(t, compile(t, `{"set": {"target": "n", "value": "$.data.n"}}`), value.NewEditor(), state, broken, nil)
	if got := state.String(); got != `{"a":0,"n":5}` {
		t.Error(got)
	}
}

// Text that is not JSON counts as missing, and white space, which stored events never have, does no harm.
func TestUnusualRawData(t *testing.T) {
	h := compile(t, `[{"set": {"target": "n", "value": "$.data.o.n"}}, {"set": {"target": "m", "value": "$.data.m?"}}]`)
	whole := compile(t, `[{"set": {"target": "n", "value": "$.data"}}]`)
	for data, want := range map[string][2]string{
		`{ "x" : {"n": 9} , "o": {"m" :1, "n": 7}, "m" :2}`: {`{"n":7,"m":2}`, `{"n":{"x":{"n":9},"o":{"m":1,"n":7},"m":2}}`},
		`{"m":1,"o":{"n":tru`:                               {`{"n":null}`, `{"n":null}`},
		`not JSON`:                                          {`{"n":null}`, `{"n":null}`},
		``:                                                  {`{"n":null}`, `{"n":null}`},
		`[1]`:                                               {`{"n":null}`, `{"n":[1]}`},
		`5`:                                                 {`{"n":null}`, `{"n":5}`},
	} {
		for i, h := range []*tick.Handler{h, whole} {
			ev := &tick.Event{Data: tick.Raw([]byte(data))}
			if got := apply(t, h, value.NewEditor(), value.ObjectValue(), ev, nil).String(); got != want[i] {
				t.Errorf("%s: %s, want %s", data, got, want[i])
			}
		}
	}
}

// The state does not hold on to the bytes of events.
func TestStateDoesNotKeepRawData(t *testing.T) {
	for _, src := range []string{
		`{"set": {"target": "a", "value": ["$.data.s", "$.data.n", "$.data.o", "$.metadata.actor"]}}`,
		`{"set": {"target": "a", "value": ["$.data", "$.metadata"]}}`,
		`{"set": {"target": "a", "value": "$"}}`,
	} {
		data, metadata := []byte(`{"s":"text","n":123456789012345678901,"o":{"k":["v"]}}`), []byte(`{"actor":{"id":"u1"}}`)
		ev := &tick.Event{Data: tick.Raw(data), Metadata: tick.Raw(metadata)}
		state := apply(t, compile(t, src), value.NewEditor(), value.ObjectValue(), ev, nil)
		want := state.String()
		clear(data)
		clear(metadata)
		if got := state.String(); got != want {
			t.Errorf("%s: the state changed from %s to %s", src, want, got)
		}
	}
}

// Handlers, predicates and templates are shared.
func TestConcurrentUse(t *testing.T) {
	h := compile(t, `[
		{"let": {"name": "$f", "find": {"in": "items", "where": {"id": "$.data.id"}}}},
		{"map": {"target": "items", "apply": [{"set": {"target": "n", "value": ["$item.id", "$f.id"]}}]}},
		{"set": {"target": "last", "value": {"$merge": ["$f", {"by": "$.data.id"}]}}}]`)
	shared := mustParse(t, `{"items": [{"id": 1}, {"id": 2}, {"id": 3}]}`)
	var wg sync.WaitGroup
	for id := range 3 {
		wg.Go(func() {
			data := mustParse(t, `[{"id":1},{"id":2},{"id":3}]`).Index(id).AppendJSON(nil)
			n := string(rune('1' + id))
			want := `{"items":[{"id":1,"n":[1,` + n + `]},{"id":2,"n":[2,` + n + `]},{"id":3,"n":[3,` + n +
				`]}],"last":{"id":` + n + `,"by":` + n + `}}`
			for range 300 {
				ev := &tick.Event{Data: tick.Raw(data)}
				if got := apply(t, h, value.NewEditor(), shared, ev, nil).String(); got != want {
					t.Errorf("got %s, want %s", got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestStamp(t *testing.T) {
	for state, want := range map[string]string{
		`{}`:                          `{"created_at":5,"updated_at":9}`,
		`{"a":1}`:                     `{"a":1,"created_at":5,"updated_at":9}`,
		`{"updated_at":"x","b":null}`: `{"updated_at":9,"b":null,"created_at":5}`,
		`[1]`:                         `[1]`,
		`null`:                        `null`,
		`5`:                           `5`,
	} {
		if got := tick.Stamp(value.NewEditor(), mustParse(t, state), 5, 9).String(); got != want {
			t.Errorf("%s becomes %s, want %s", state, got, want)
		}
	}
	if got := tick.Stamp(value.NewEditor(), value.Value{}, 5, 9); !got.IsMissing() {
		t.Errorf("no state becomes %s", got)
	}
}
