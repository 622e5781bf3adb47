package tick_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// compileUpcast compiles a step that has to be right.
func compileUpcast(t fataler, src value.Value) *tick.Upcast {
	t.Helper()
	var l diag.List
	u := tick.CompileUpcast(src, "/upcast", &l)
	if u == nil {
		t.Fatalf("%s does not compile: %v", src, l.All())
	}
	return u
}

// upcastOf brings data to the next generation: what it becomes, or where and why it cannot.
func upcastOf(t fataler, u *tick.Upcast, data value.Value) (value.Value, *tick.Misfit) {
	t.Helper()
	ev := newEvent("happened", data, firstTime)
	out, err := u.Apply(value.NewEditor(), data, ev.parsed(), work.New(t.Context(), work.Replay))
	misfit, ok := errors.AsType[*tick.Misfit](err)
	if err != nil && !ok {
		t.Fatalf("%v", err)
	}
	return out, misfit
}

func TestUpcasts(t *testing.T) {
	for _, test := range []struct {
		name, step string
		// cases are data, and what becomes of them: other data, or "! pointer: message".
		cases []string
	}{
		{
			"members move", `[{"move":{"from":"mail","to":"contact.email"}},{"move":{"from":"a.b","to":"b"}},{"move":{"from":"w","to":"w.in"}}]`,
			[]string{
				`{"w":"t"}`, `{"w":{"in":"t"}}`, `{"mail":"x","n":1}`, `{"n":1,"contact":{"email":"x"}}`,
				`{"mail":null}`, `{"contact":{"email":null}}`,
				`{"a":{"b":[1],"c":2}}`, `{"a":{"c":2},"b":[1]}`, `{"mail":"x","contact":{"phone":"1"}}`,
				`{"contact":{"phone":"1","email":"x"}}`,
				`{"mail":"x","contact":{"email":null}}`, `! /upcast/0: move does not fit: "contact.email" is there already`,
				`{"mail":"x","contact":"y"}`, `! /upcast/0: move does not fit: "contact.email" leads to a member of "contact", which is a string`,
				`"text"`, `"text"`,
			},
		},
		{
			"data of any kind", `{"set":{"target":"","value":{"text":"@"}}}`,
			[]string{
				`"hello"`, `{"text":"hello"}`, `[1,2]`, `{"text":[1,2]}`,
				`null`, `{"text":null}`, `7.10`, `{"text":7.10}`,
			},
		},
		{
			"what was there before", `[{"set":{"target":"b","value":{"$add":["@.a",1]}}},{"drop":{"target":"a"}},{"set":{"target":"was","value":"$.data"}},{"set":{"target":"now","value":"@"}}]`,
			[]string{`{"a":1.50}`, `{"b":2.50,"was":{"a":1.50},"now":{"b":2.50,"was":{"a":1.50}}}`},
		},
		{
			"the event", `{"set":{"target":"","value":["$.metadata.actor.id","$.metadata.timestamp","$.key","$.id","$.type",{"$now":"date"},"$.data.none"]}}`,
			[]string{`{}`, `["u1",1700000000,"` + eventKey + `","` + strings.TrimPrefix(eventKey,
				"thing:") + `","happened","2023-11-14",null]`},
		},
		{
			"optional paths and missing arrays", `[{"set":{"target":"a","value":"@.none?"}},{"map":{"target":"l","apply":{"drop":{"target":"x"}}}},{"map_values":{"target":"o","apply":{"drop":{"target":"x"}}}},{"remove":{"target":"l","value":1}},{"default":{"target":"b","value":"$.data.none?"}}]`,
			[]string{`{"n":1.0}`, `{"n":1.0}`, `{"l":[{"x":1}],"o":{"k":{"x":1}}}`, `{"l":[{}],"o":{"k":{}}}`},
		},
		{
			"the first one that does not fit ends it", `[{"set":{"target":"a","value":1}},{"map":{"target":"l","apply":[{"if":{"exists":"@.n"},"then":{"set":{"target":"n","value":{"$number":"@.n"}}}}]}},{"append":{"target":"a","value":1}}]`,
			[]string{
				`{"l":[{"n":"1"},{}]}`, `! /upcast/2: append does not fit: "a" is a number, not an array`,
				`{"l":[{"n":"1"},{"n":"x"}]}`, `! /upcast/1/map/apply/0/then/set/value/$number: the operand of $number is a text that is no number, as JSON writes it`,
				`{"l":1}`, `! /upcast/1: map does not fit: "l" is a number, not an array`,
			},
		},
		{
			"keys that are data are not told", `{"increment_at":{"target":"","key":"$.data.k","by":1}}`,
			[]string{`{"k":"secret","secret":"x"}`, `! /upcast: increment_at does not fit: the member in the data is a string, not a number`},
		},
		{
			"predicates", `{"if":{"gt":[{"$number":"@.n"},5]},"then":{"set":{"target":"large","value":true}}}`,
			[]string{`{"n":"6"}`, `{"n":"6","large":true}`, `{"n":"5"}`, `{"n":"5"}`, `{"n":"many"}`, `! /upcast/if/gt/0/$number: the operand of $number is a text that is no number, as JSON writes it`},
		},
		{"nothing", `[]`, []string{`{"a":1.0}`, `{"a":1.0}`, `"text"`, `"text"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := compileUpcast(t, mustParse(t, test.step))
			if u.Empty() != (test.step == "[]") {
				t.Errorf("it is empty: %t", u.Empty())
			}
			for i := 0; i < len(test.cases); i += 2 {
				data := mustParse(t, test.cases[i])
				out, misfit := upcastOf(t, u, data)
				got := out.String()
				if misfit != nil {
					if got != test.cases[i] {
						t.Errorf("%s became %s although it does not fit", data, got)
					}
					got = fmt.Sprintf("! %s: %s", misfit.Pointer, misfit.Message)
				}
				if got != test.cases[i+1] {
					t.Errorf("%s becomes\n%s, want\n%s", data, got, test.cases[i+1])
				}
				if data.String() != test.cases[i] {
					t.Errorf("what was %s is now %s", test.cases[i], data)
				}
			}
		})
	}
}

// One editor takes an event through several steps, each of which sees the data before itself.
func TestUpcastsFollowEachOther(t *testing.T) {
	first := compileUpcast(t, mustParse(t, `[{"set":{"target":"o.b","value":{"$add":["@.a",1]}}},{"drop":{"target":"a"}}]`))
	second := compileUpcast(t, mustParse(t, `[{"set":{"target":"o.c","value":{"$multiply":["@.o.b",10]}}},{"set":{"target":"was","value":"$.data"}},{"drop":{"target":"o.b"}}]`))
	ed, data := value.NewEditor(), mustParse(t, `{"a":1}`)
	event := newEvent("happened", data, firstTime)
	ev := event.parsed()
	for _, u := range []*tick.Upcast{first, second, second} {
		ev.Data = tick.Parsed(data)
		next, err := u.Apply(ed, data, ev, work.New(t.Context(), work.Replay))
		if err != nil {
			if misfit, ok := errors.AsType[*tick.Misfit](err); !ok ||
				misfit.Pointer != "/upcast/0/set/value/$multiply" {
				t.Fatal(err)
			}
			break
		}
		data = next
	}
	if got, want := data.String(), `{"o":{"c":20},"was":{"o":{"b":2}}}`; got != want {
		t.Errorf("the data are %s, want %s", got, want)
	}
}

func TestUpcastErrors(t *testing.T) {
	for src, want := range map[string]string{
		`[{"rename":{"from":"a","to":"b"}}]`:           `/upcast/0/rename: unknown operation "rename" (did you mean "move"?)`,
		`[{"set":{"target":"a","value":"$.state.b"}}]`: `/upcast/0/set/value: an upcast cannot look at states: what an event says depends on nothing but the event (the event's data as they are now are "@", and as they were before this step "$.data")`,
		`[{"set":{"target":"a","value":"$.reads.b"}}]`: `/upcast/0/set/value: an upcast cannot look at states: what an event says depends on nothing but the event (the event's data as they are now are "@", and as they were before this step "$.data")`,
		`[{"set":{"target":"a","value":"$.dat.b"}}]`:   `/upcast/0/set/value: an event has no member "dat" (did you mean "$.data"?)`,
		`[{"move":{"from":"$.data.a","to":"b"}}]`:      `/upcast/0/move/from: a state path has no prefix, but "$.data.a" starts with "$" (leave the prefix out: a state path always starts at the state)`,
		`{"wasm":"x.wasm"}`:                            `/upcast/wasm: unknown operation "wasm"`,
		`"x"`:                                          `/upcast: an upcast is an array of operations, or one operation, not a string (write [] to do nothing)`,
		`{}`:                                           `/upcast: an upcast is an array of operations, or one operation; this object is neither (write [] to do nothing)`,
		`[` + strings.Repeat(`{"drop":{"target":"a"}},`, 100) + `{"drop":{"target":"a"}}]`: `/upcast: the upcast has more than 100 operations, nested ones included (put one more generation between the two)`,
	} {
		var l diag.List
		u := tick.CompileUpcast(mustParse(t, src), "/upcast", &l)
		got := "nothing"
		if len(l.All()) > 0 {
			d := l.All()[0]
			if got = string(d.Pointer) + ": " + d.Message; strings.Contains(want, "(") {
				got += " (" + d.Hint + ")"
			}
		}
		if u != nil || got != want {
			t.Errorf("%.100s: got\n%s, want\n%s", src, got, want)
		}
	}
	// What a handler is warned of, since the engine sets it, is a member like others in data.
	var l diag.List
	if tick.CompileUpcast(mustParse(t, `{"drop":{"target":"created_at"}}`), "", &l) == nil || len(l.All()) > 0 {
		t.Error(l.All())
	}
}

// Data become no larger than a state may be, data that are larger may become smaller, and all work is counted.
func TestUpcastsHaveLimits(t *testing.T) {
	letters := strings.Repeat("x", 5<<20)
	zeros := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	for _, test := range []struct{ step, data, want string }{
		{`{"set":{"target":"b","value":"@.a"}}`, `{"a":"` + letters + `"}`, "/upcast: set does not fit: the data would be larger than 8 MiB"},
		{`{"set":{"target":"b","value":["@.a","@.a"]}}`, `{"a":` + zeros(600_000) + `}`, "/upcast: set does not fit: the data would have more than 1048576 values"},
		{`{"drop":{"target":"a"}}`, `{"a":"` + letters + `","b":"` + letters + `"}`, ""},
		{`{"drop":{"target":"c"}}`, `{"a":"` + letters + `","b":"` + letters + `","c":1}`, "/upcast: the data are larger than a state may be"},
		{`{"set":{"target":"a","value":{"$split":"@.a","by":"x"}}}`, `{"a":"` + letters + `"}`, "/upcast/set/value/$split: $split would make more than 1048576 texts"},
		{`{"map":{"target":"l","as":"$a","apply":{"map":{"target":"","apply":{"set":{"target":"","value":"$item"}}}}}}`, `{"l":[` + strings.TrimSuffix(strings.Repeat(zeros(1000)+",", 1000), ",") + `]}`, ""},
		{`{"map":{"target":"l","apply":{"set":{"target":"","value":{"$count":"$.data.l","where":{"gt":["$item",1]}}}}}}`, `{"l":` + zeros(100_000) + `}`, "work_limit"},
		{`{"map":{"target":"l","apply":{"set":{"target":"","value":{"$split":"$.data.a","by":"x","part":-1}}}}}`, `{"a":"` + letters + `","l":` + zeros(10_000) + `}`, "work_limit"},
		{`{"map":{"target":"l","apply":{"if":{"gt":[{"$number":"$.data.a"},0]},"then":[]}}}`, `{"a":"` + strings.Repeat("7", 10_000) + `","l":` + zeros(100_000) + `}`, "work_limit"},
	} {
		data := mustParse(t, test.data)
		ev := newEvent("happened", data, firstTime)
		_, err := compileUpcast(t, mustParse(t, test.step)).Apply(value.NewEditor(), data, ev.parsed(),
			work.New(t.Context(), work.Replay))
		got := ""
		misfit, ok := errors.AsType[*tick.Misfit](err)
		switch {
		case ok:
			got = string(misfit.Pointer) + ": " + misfit.Message
		case err != nil:
			got = string(j17.CodeOf(err))
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.step, got, test.want)
		}
	}
}
