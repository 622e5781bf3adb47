package tick_test

import (
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

func addHandlers(f *testing.F, add func(handler string)) {
	f.Helper()
	for _, src := range []string{
		`[{"set":{"target":"a.b[0]","value":{"$merge":["$.data",{"x":"@.y?"}]}}}]`,
		`{"map":{"target":"l","as":"$x","apply":[{"if":{"exists":"@.id"},"then":[{"increment":{"target":"n","by":"$x.n"}}],"else":{"append":{"target":"t","value":"$.state"}}}]}}`,
		`[{"let":{"name":"$f","find":{"in":"l","where":{"id":"$.data.id"}}}},{"upsert":{"target":"l","match":{"id":1},"value":"$f"}}]`,
		`[{"let":{"name":"$f","find_target":"l","find_field":"id","find_value":1}},{"remove":{"target":"l","match":{"expired":{"timestamp":"$item.t","maxAgeSeconds":5}}}}]`,
		`[{"filter":{"target":"l","keep":{"and":[{"not":{"in":["$item.id",["a"]]}},{"some":{"in":"$item.l","match":{"gt":["$item",1]}}}]}}}]`,
		`[{"update_where":{"target":"l","match":{"id":1,"n":2},"merge":{"m":"$item"}}},{"append_unique":{"target":"l","value":{"$literal":"$x"},"uniqueField":"id"}}]`,
		`[{"set_at":{"target":"o","key":"$.data.s","value":"@"}},{"merge_at":{"target":"o","key":"k","value":{}}},{"remove_at":{"target":"o","key":"k"}},{"increment_at":{"target":"o","key":"k","by":0.1}}]`,
		`[{"set":{"target":"n","value":{"$sum":"l","as":"$l","of":{"$multiply":["$l.n",{"$divide":["$.data.n",3],"scale":2,"rounding":"floor"}]}}}},{"decrement_at":{"target":"o","key":"k","by":{"$abs":{"$min":["$.data.n",{"$count":"t","where":{"gt":["$item",0]}}]}}}}]`,
		`{"set":{"target":"s","value":[{"$upper":{"$slice":"$.data.s","from":-1}},{"$trim":"$.data.s"},{"$now":"datetime"},{"$add_duration":["$.data.n","1mo"]},{"$date_trunc":"@.n","to":"week"},{"$coalesce":["$.data.a?",{"$concat":["$.data.y",1]}]}]}}`,
		`{"set":{"target":"c","value":{"$if":{"and":[{"gt":["@.n?",3]},{"some":{"in":"l","match":{"exists":"$item.n"}}}]},"then":{"$if":{"equals":["$.data.s","k"]},"then":"@.l"},"else":{"$add":["$.data.n",1]}}}}`,
		`[{"move":{"from":"l[0].id","to":"o.k.id"}},{"drop":{"target":"t"}},{"default":{"target":"d","value":{"$number":{"$split":"$.data.s","by":",","part":0}}}},{"map_values":{"target":"o","as":"$v","apply":{"move":{"from":"","to":"was"}}}},{"set":{"target":"s","value":{"$case":"$.data.s","of":[["k",{"$join":["a","@.n"],"by":"-"}]],"else":"$.data.y"}}}]`,
		`[{"set":{"target":"e","value":"$.data.$entries"}},{"decrement":{"target":"n","value":1}}]`,
		`{"if":{"or":[{"subset_of":{"items":"l","array":"t"}},{"minItems":{"array":"l","min":1}},{"maxItems":{"array":"l","max":"$.data.n"}},{"includes":{"array":"l","value":1}}]},"then":[]}`,
	} {
		add(src)
	}
}

// FuzzCompileHandler looks for JSON that makes the compiler panic, or that it rejects without saying why.
func FuzzCompileHandler(f *testing.F) {
	addHandlers(f, func(src string) { f.Add([]byte(src)) })
	f.Fuzz(func(t *testing.T, src []byte) {
		v, err := value.Parse(src)
		if err != nil {
			return
		}
		var l diag.List
		h := tick.CompileHandler(v, "/handler", &l)
		if (h == nil) != (l.Errors() > 0) {
			t.Errorf("handler %v with %d errors", h != nil, l.Errors())
		}
		for _, d := range l.All() {
			if d.Message == "" {
				t.Errorf("a finding at %s without a message", d.Pointer)
			}
		}
		var pl diag.List
		if p := tick.CompilePredicate(
			v, "", tick.Scope{Bindings: []string{"item"}}, &pl,
		); (p == nil) != (pl.Errors() > 0) {
			t.Errorf("predicate %v with %d errors", p != nil, pl.Errors())
		}
	})
}

// FuzzUpcast looks for steps that make the compiler panic, and holds what compiles against the reference: the first
// operation that does not fit there ends the step, and changes nothing.
func FuzzUpcast(f *testing.F) {
	addHandlers(f, func(src string) {
		f.Add([]byte(src), []byte(`{"l":[{"id":1,"n":2,"l":[1,2]}],"o":{"k":{}},"n":5,"s":"a b","t":[1]}`))
	})
	f.Add([]byte(`[{"move":{"from":"s","to":"s.t[0]"}},{"move":{"from":"","to":"a.b"}},{"drop":{"target":"a.b.l[-1].id"}}]`), []byte(`{"l":[{"id":1}],"s":"a b"}`))
	f.Add([]byte(`[{"default":{"target":"a","value":{"$number":"@.s"}}},{"map_values":{"target":"","as":"$v","apply":{"set":{"target":"","value":{"$case":"$v","of":[["a",{"$join":"$.data.t","by":","}]],"else":"$.id"}}}}}]`), []byte(`{"s":"1.50e3","t":[1,true,"x"]}`))
	f.Add([]byte(`{"set":{"target":"","value":[{"$split":"@","by":" "},{"$split":"@","by":"$.data","limit":2,"part":-1}]}}`), []byte(`"a b"`))
	f.Fuzz(func(t *testing.T, src, document []byte) {
		const most = 4 << 10
		if len(src)+len(document) > most {
			return
		}
		step, err := value.Parse(src)
		if err != nil {
			return
		}
		var l diag.List
		u := tick.CompileUpcast(step, "", &l)
		if (u == nil) != (l.Errors() > 0) {
			t.Fatalf("upcast %v with %d errors", u != nil, l.Errors())
		}
		data, err := value.Parse(document)
		if u == nil || err != nil {
			return
		}
		out, misfit := upcastOf(t, u, data)
		if misfit != nil && limited(tick.Fault{Message: misfit.Message}) || !out.Within(4096, 20_000) {
			return
		}
		ev := newEvent("happened", data, firstTime)
		want, faults := naiveApply(step, data, ev.tree())
		switch {
		case (misfit != nil) != (len(faults) > 0):
			t.Fatalf("%s on %s: %v, want the faults %v", step, data, misfit, faults)
		case misfit != nil && (out.String() != data.String() || !strings.HasPrefix(string(misfit.Pointer), faults[0])):
			t.Fatalf("%s on %s: %v, want the place %s; the data are %s", step, data, misfit, faults[0], out)
		case misfit == nil && out.String() != want.String():
			t.Fatalf("%s makes of %s\n%s, want\n%s", step, data, out, want)
		}
	})
}

// FuzzApply holds what compiles against the reference, on any state and data.
func FuzzApply(f *testing.F) {
	addHandlers(f, func(src string) {
		f.Add([]byte(src), []byte(`{"l":[{"id":1,"n":2,"l":[1,2]}],"o":{"k":{}},"n":5,"t":[1]}`), []byte(`{"id":1,"s":"k","n":1,"y":{"z":null}}`))
	})
	f.Fuzz(func(t *testing.T, handler, state, data []byte) {
		const most = 4 << 10
		if len(handler)+len(state)+len(data) > most {
			return
		}
		h, err := value.Parse(handler)
		if err != nil {
			return
		}
		s, err := value.Parse(state)
		if err != nil {
			return
		}
		d, err := value.Parse(data)
		if err != nil {
			return
		}
		var l diag.List
		compiled := tick.CompileHandler(h, "", &l)
		if compiled == nil {
			return
		}
		// The handler runs once alone: what runs into a limit, or grows beyond what is worth comparing, has no
		// reference.
		first := newEvent("a", d, firstTime)
		var faults []tick.Fault
		once := apply(t, compiled, value.NewEditor(), s, first.raw(), func(f tick.Fault) { faults = append(faults, f) })
		if slices.ContainsFunc(faults, limited) || !once.Within(4096, 20_000) {
			return
		}
		history(t, map[string]value.Value{"a": h}, s, []event{first, newEvent("a", d, firstTime+60)}, false)
	})
}
