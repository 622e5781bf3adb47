package tick_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// FuzzTimes holds times and durations against the reference, whatever they are written like.
func FuzzTimes(f *testing.F) {
	for _, at := range []string{
		`1700000000`, `-0.5`, `1e9`, `"2023-11-14"`, `"2024-02-29T23:59:59.5+05:30"`, `"0001-01-01T00:00:00Z"`,
		`"9999-12-31"`, `"2023-11-14T22:13:20-00:00"`, `""`,
	} {
		for i, by := range []string{"90s", "-1mo", "13mo", "100y", "7d", "-24h", "999999999999999999w", "", "1", "m"} {
			f.Add(at, by, uint8(i))
		}
	}
	add := compile(f, `{"set":{"target":"r","value":{"$add_duration":["$.data.at","$.data.by"]}}}`)
	units := []string{"second", "minute", "hour", "day", "week", "month", "year"}
	var cut []*tick.Handler
	for _, unit := range units {
		cut = append(cut, compile(f, `{"set":{"target":"r","value":{"$date_trunc":"$.data.at","to":"`+unit+`"}}}`))
	}
	f.Fuzz(func(t *testing.T, at, by string, unit uint8) {
		v, err := value.ParseString(at)
		if err != nil || len(by) > 100 || !strings.EqualFold(by, strings.ToValidUTF8(by, "")) {
			return
		}
		i := int(unit) % len(units)
		ev := newEvent("e", obj("at", v, "by", by), firstTime)
		for name, h := range map[string]*tick.Handler{`{"$add_duration":["$.data.at","$.data.by"]}`: add, `{"$date_trunc":"$.data.at","to":"` + units[i] + `"}`: cut[i]} {
			got := apply(t, h, value.NewEditor(), value.ObjectValue(), ev.parsed(), nil)
			want, _ := naiveApply(
				mustParse(t, `{"set":{"target":"r","value":`+name+`}}`), value.ObjectValue(), ev.tree(),
			)
			if got.String() != want.String() {
				t.Errorf("%s of %s and %q is %s, want %s", name, at, by, got, want)
			}
		}
	})
}

// A template says where an operator has no value, and why; a selection has null there; a predicate cannot be told.
func TestOperatorsWithoutAValue(t *testing.T) {
	for src, want := range map[string]string{
		`{"a":{"$divide":["$.data.one","$.data.zero"]}}`:                                           "/a/$divide: the divisor of $divide is zero",
		`{"a":[1,{"b":{"$add":[1,{"$negate":"$.data.none"}]}}]}`:                                   "/a/1/b/$add/1/$negate: the operand of $negate is null, not a number",
		`{"$coalesce":[{"$sum":"$.data.text"},1]}`:                                                 "/$coalesce/0/$sum: $sum goes through a string, not an array",
		`{"$if":{"gt":["$.data.none?",1]},"then":1}`:                                               "/$if: the condition of $if cannot be decided: an optional path in it leads nowhere",
		`{"a":[{"$if":{"gt":[{"$abs":"$.data.text"},1]},"then":1}]}`:                               "/a/0/$if/gt/0/$abs: the operand of $abs is a string, not a number",
		`{"coalesce":[{"$abs":"$.data.text"},1]}`:                                                  "/coalesce/0/$abs: the operand of $abs is a string, not a number",
		`{"merge":[{"x":{"$upper":"$.data.one"}},{"y":1}]}`:                                        "/merge/0/x/$upper: the operand of $upper is a number, not a text",
		`{"$count":"$.data.list","as":"$l","where":{"gt":[{"$multiply":["$l","$.data.text"]},1]}}`: "/where/gt/0/$multiply: operand 2 of $multiply is a string, not a number",
		`{"a":{"$add":["$.data.none?",1]}}`:                                                        "",
	} {
		tmpl := template(t, src, itemScope())
		_, ok, err := tmpl.Eval(operands(t), limit)
		misfit, unfit := errors.AsType[*tick.OperandError](err)
		switch {
		case ok || err != nil && !unfit:
			t.Errorf("%s has a value (%v)", src, err)
		case want == "" && err != nil || want != "" && !unfit:
			t.Errorf("%s: %v, want %q", src, err, want)
		case unfit && string(misfit.Pointer)+": "+misfit.Error() != want:
			t.Errorf("%s: %s: %s, want %s", src, misfit.Pointer, misfit.Message, want)
		}
	}

	var l diag.List
	sel := tick.CompileSelection(mustParse(t, `{"a":{"$divide":["$.order.n",0.5]},"b":{"$add":["$.order.text",1]},"c":[{"$abs":"$.order.none?"},{"$abs":"$.order.none"}],
		"d":{"$map":"$.order.list","as":"$x","to":{"$subtract":[10,"$x"]}},"e":{"$sum":"$.order.list[*]"},"f":{"$coalesce":[{"$lower":"$.order.n"},"none"]},"g":{"$literal":"$x"},
		"h":{"$if":{"gt":["$.order.none?",1]},"then":1,"else":2},"i":{"$if":{"exists":"$.order.none"},"then":1,"else":"$.order.none?"}}`),
		"", tick.Scope{Plain: true, Wildcards: true, Members: []string{"order"}}, &l)
	if sel == nil {
		t.Fatal(l.All())
	}
	e := tick.NewEnv(work.Counted(work.Command))
	e.SetDocument(mustParse(t, `{"order":{"n":3,"text":"t","list":[1,"x",2.5]}}`))
	got, _, err := sel.Eval(e, limit)
	if want := `{"a":6,"b":null,"c":[null],"d":[9,null,7.5],"e":null,"f":null,"g":"$x","h":null}`; err != nil || got.String() != want {
		t.Errorf("a selection is %v (%v), want %s", got, err, want)
	}
	if tick.CompileSelection(
		mustParse(t, `{"a":{"$now":"date"}}`), "", tick.Scope{Plain: true, Members: []string{"order"}}, &l,
	) != nil {
		t.Error("a projection has the time of an event")
	}

	for src, want := range map[string]string{
		`{"gt":[{"$divide":["$.data.one",2]},0]}`:                                                                                    "true true",
		`{"not":{"gt":[{"$divide":["$.data.one","$.data.zero"]},0]}}`:                                                                "false false",
		`{"or":[{"equals":[1,1]},{"gt":[{"$divide":["$.data.one","$.data.zero"]},0]}]}`:                                              "false false",
		`{"and":[{"equals":[1,2]},{"gt":[{"$divide":["$.data.one","$.data.zero"]},0]}]}`:                                             "false false",
		`{"some":{"in":"$.data.list","match":{"gt":[{"$divide":[6,"$item"]},1]}}}`:                                                   "true true",
		`{"some":{"in":"$.data.mixed","match":{"gt":[{"$divide":[6,"$item"]},1]}}}`:                                                  "false false",
		`{"in":[{"$lower":"$.data.text"},["t",{"$upper":"$.data.text"}]]}`:                                                           "true true",
		`{"equals":[{"$concat":["$.data.text","!"]},"T!"]}`:                                                                          "true true",
		`{"minItems":{"array":"$.data.list","min":{"$count":"$.data.mixed"}}}`:                                                       "true true",
		`{"equals":[{"$coalesce":["$.data.none?",5]},5]}`:                                                                            "true true",
		`{"expired":{"timestamp":{"$add_duration":["$.metadata.timestamp","-2m"]},"maxAgeSeconds":{"$multiply":[60,"$.data.one"]}}}`: "true true",
	} {
		var l diag.List
		p := tick.CompilePredicate(mustParse(t, src), "", itemScope(), &l)
		if p == nil {
			t.Errorf("%s does not compile: %v", src, l.All())
			continue
		}
		holds, ok, err := p.Test(operands(t))
		if got := fmt.Sprint(holds, ok); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", src, got, err, want)
		}
	}
}

// operands returns an environment with operands of all sorts.
func operands(t *testing.T) *tick.Env {
	t.Helper()
	e := tick.NewEnv(work.Counted(work.Command))
	e.Renew(&tick.Event{
		Key: eventKey, Type: "e", Timestamp: firstTime, Metadata: tick.Parsed(mustParse(t, `{"timestamp":1700000000}`)),
		Data: tick.Parsed(mustParse(t, `{"one":1,"zero":0,"text":"T","list":[1,2],"mixed":[3,"x"]}`)),
	})
	return e
}

// An expression has a number of operators and a depth, and what it puts together has a size.
func TestLimitsOfOperators(t *testing.T) {
	negated := func(n int) string {
		return strings.Repeat(`{"$negate":`, n) + `"$.data.n"` + strings.Repeat("}", n)
	}
	many := func(n int) string {
		return `[` + strings.TrimSuffix(strings.Repeat(`{"$abs":"$.data.n"},`, n), ",") + `]`
	}
	for src, want := range map[string]string{
		negated(16):                  "",
		negated(17):                  "more than 16 operators stand inside of each other here",
		`{"$add":` + many(100) + `}`: "",
		`{"$add":` + many(101) + `}`: "$add takes from 1 to 100 operands, and this array has 101",
		many(200):                    "",
		many(201):                    "more than 200 operators are in one expression",
		`[` + many(100) + `,{"$literal":1},` + many(100) + `]`: "",
	} {
		for in, l := range map[string]*diag.List{"a handler": {}, "a template": {}, "a predicate": {}} {
			v := mustParse(t, src)
			switch in {
			case "a handler":
				tick.CompileHandler(value.ArrayValue(
					obj("set", obj("target", "a", "value", v)), obj("set", obj("target", "b", "value", v)),
				), "", l)
			case "a template":
				tick.CompileTemplate(v, "", itemScope(), l)
			case "a predicate":
				tick.CompilePredicate(obj("equals", value.ArrayValue(v, value.Int(1))), "", itemScope(), l)
			}
			got := ""
			if l.Errors() > 0 {
				got = l.All()[0].Message
			}
			if got != want {
				t.Errorf("%.60s in %s: %q, want %q", src, in, got, want)
			}
		}
	}

	// A text that doubles with each operator.
	h := compile(t, `[{"set":{"target":"t","value":{"$concat":["@.t","@.t"]}}}]`)
	state := value.ObjectValue(value.Member{Key: "t", Value: value.StringValue(strings.Repeat("x", 3<<20))})
	for range 3 {
		state = apply(t, h, value.NewEditor(), state, &tick.Event{}, nil)
	}
	if n := len(state.Get("t").Str()); n != 6<<20 {
		t.Errorf("the text has %d bytes", n)
	}
}

// BenchmarkOperators applies a handler that computes most of what it writes, and one that computes nothing.
func BenchmarkOperators(b *testing.B) {
	data := []byte(`{"lines":[{"price":19.99,"n":3},{"price":0.5,"n":20},{"price":7,"n":1}],"rate":0.19,"fee":0.0125,"name":"Ada","at":"2023-11-14T22:13:20Z"}`)
	for name, src := range map[string]string{
		"computed": `[{"set":{"target":"net","value":{"$sum":"$.data.lines","of":{"$multiply":["$item.price","$item.n"]}}}},
			{"set":{"target":"tax","value":{"$round":{"$multiply":["@.net","$.data.rate"]},"scale":2,"rounding":"half_up"}}},
			{"set":{"target":"gross","value":{"$add":["@.net","@.tax"]}}},
			{"set":{"target":"part","value":{"$divide":["@.gross",{"$count":"$.data.lines"}],"scale":2}}},
			{"set":{"target":"who","value":{"$upper":"$.data.name"}}},{"set":{"target":"due","value":{"$add_duration":["$.data.at","14d"]}}},
			{"increment":{"target":"total","by":{"$multiply":["@.gross","$.data.fee"]}}}]`,
		"plain": `[{"set":{"target":"net","value":"$.data.lines"}},{"set":{"target":"tax","value":"$.data.rate"}},{"set":{"target":"gross","value":1}},
			{"set":{"target":"part","value":"$.data.fee"}},{"set":{"target":"who","value":"$.data.name"}},{"set":{"target":"due","value":"$.data.at"}},{"increment":{"target":"total","by":"$.data.fee"}}]`,
	} {
		b.Run(name, func(b *testing.B) {
			h := compile(b, src)
			ed, state, budget := value.NewEditor(), value.ObjectValue(), work.Counted(work.Replay)
			b.ReportAllocs()
			for b.Loop() {
				budget.Renew(work.Replay)
				var err error
				if state, err = h.Apply(
					ed, state, &tick.Event{Timestamp: firstTime, Data: tick.Raw(data)}, budget, nil,
				); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
