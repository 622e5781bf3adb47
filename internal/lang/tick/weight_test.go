//go:build !race

package tick_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// What handlers ordinarily do needs no look at the state before an event is written.
func TestHeavy(t *testing.T) {
	sets := "[" + strings.TrimSuffix(strings.Repeat(`{"set":{"target":"a","value":"$.data.a"}},{"increment":{"target":"n","by":"$.data.n"}},`, 50), ",") + "]"
	for src, want := range map[string]bool{
		`[]`: false,
		sets: false,
		`[{"set":{"target":"","value":"$.data"}},{"merge":{"target":"","value":{"status":"open","at":"$.metadata.timestamp"}}}]`: false,
		`[{"merge":{"target":"","value":"$.data"}}]`: false,
		`[{"append":{"target":"items","value":{"$merge":[{"a":1},{"by":"$.metadata.actor.id"}]}}},{"increment":{"target":"n","by":1}}]`:         false,
		`[{"upsert":{"target":"items","match":{"id":"$.data.id"},"value":"$.data"}},{"increment":{"target":"n","by":1}}]`:                       false,
		`[{"append_unique":{"target":"tags","value":"$.data.tag"}},{"remove":{"target":"todo","where":{"id":"$.data.id"}}}]`:                    false,
		`[{"update_where":{"target":"items","match":{"id":"$.data.id"},"merge":{"done":true,"by":"$.data.by"}}}]`:                               false,
		`{"if":{"equals":["@.status","open"]},"then":[{"set":{"target":"status","value":"closed"}}]}`:                                           false,
		`{"filter":{"target":"items","keep":{"not_equals":["$item.id","$.data.id"]}}}`:                                                          false,
		`[{"let":{"name":"$f","find":{"in":"items","where":{"id":"$.data.id"}}}},{"increment":{"target":"total","by":"$f.n"}}]`:                 false,
		`{"set":{"target":"n","value":{"$if":{"gt":["@.n",5]},"then":{"$add":["@.n","$.data.a"]},"else":"@.m"}}}`:                               false,
		`{"set":{"target":"n","value":{"$if":{"some":{"in":"@.xs","match":{"in":["$item","@.ys"]}}},"then":1}}}`:                                true,
		`{"set":{"target":"n","value":{"$if":{"exists":"@.n"},"then":1,"else":{"$sum":"@.items","of":"$item.n"}}}}`:                             true,
		`{"increment":{"target":"n","by":{"$multiply":["$.data.a","$.data.b"]}}}`:                                                               false,
		`{"set":{"target":"fee","value":{"$round":{"$multiply":["@.n",0.0125]},"scale":2,"rounding":"half_up"}}}`:                               false,
		`{"set":{"target":"a","value":{"$concat":[{"$upper":"$.data.a"},{"$add_duration":["$.data.at","1mo"]}]}}}`:                              false,
		`{"if":{"gte":[{"$subtract":["@.balance","$.data.n"]},{"$coalesce":["@.limit",0]}]},"then":{"set":{"target":"a","value":1}}}`:           false,
		`[{"move":{"from":"a","to":"b.c"}},{"drop":{"target":"d"}},{"default":{"target":"e","value":"$.data.e"}}]`:                              false,
		`{"map_values":{"target":"prices","apply":{"set":{"target":"","value":{"amount":"$item"}}}}}`:                                           false,
		`{"set":{"target":"a","value":[{"$split":"$.data.a","by":" ","part":0},{"$number":"$.data.n"},{"$join":["$.data.a","@.n"],"by":" "}]}}`: false,
		`{"set":{"target":"a","value":{"$case":"$.data.a","of":[["N","new"],["P","$.data.p"]],"else":"@.a"}}}`:                                  false,
		`{"set":{"target":"a","value":{"$join":"@.l","by":"$.data.by"}}}`:                                                                       true,
		`{"set":{"target":"n","value":{"$count":"@.items"}}}`:                                                                                   false,
		`{"set":{"target":"n","value":{"$sum":"@.items","of":{"$multiply":["$item.price","$item.n"]}}}}`:                                        true,
		`{"set":{"target":"n","value":{"$max":"$.data.numbers"}}}`:                                                                              true,
		`{"map":{"target":"items","apply":{"set":{"target":"done","value":true}}}}`:                                                             false,
		`{"map":{"target":"xs","apply":{"map":{"target":"ys","apply":{"set":{"target":"a","value":1}}}}}}`:                                      false,
		`{"filter":{"target":"xs","keep":{"some":{"in":"@.ys","match":{"equals":["$item","$.data.x"]}}}}}`:                                      true,
		`{"filter":{"target":"xs","as":"$x","keep":{"some":{"in":"$.data.ys","match":{"equals":["$item","$x"]}}}}}`:                             true,
		`{"map":{"target":"xs","apply":{"let":{"name":"$x","find":{"in":"$.state.ys","where":{"id":1}}}}}}`:                                     true,
		`{"map":{"target":"xs","apply":{"set":{"target":"all","value":"$.state"}}}}`:                                                            true,
		`{"filter":{"target":"xs","keep":{"equals":["@.a","@.b"]}}}`:                                                                            true,
		`{"if":{"subset_of":{"items":"xs","array":"ys"}},"then":[]}`:                                                                            true,
		"[" + strings.TrimSuffix(strings.Repeat(`{"update_where":{"target":"xs","match":{"id":1},"merge":{"n":2}}},`, 90), ",") + "]":           true,
	} {
		if got := compile(t, src).Heavy(10_000); got != want {
			t.Errorf("%.120s is heavy: %t", src, got)
		}
	}
}

// hostile are members of states and events that cost the most for their bytes. Each has about the number of bytes that
// is given.
func hostile(kind, bytes int) string {
	list := func(elem string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(elem+",", max(bytes/(len(elem)+1), 1)), ",") + "]"
	}
	switch kind {
	case 0:
		return list("0")
	case 1:
		return list(`{}`)
	case 2:
		return list(`{"id":1,"n":2}`)
	case 3:
		return list(`{"id":[0,0,0,0],"v":{"id":1}}`)
	case 4:
		return list("1" + strings.Repeat("0", 99) + "e300")
	case 5:
		return list(`"` + strings.Repeat("x", 30) + `"`)
	case 6:
		var b strings.Builder
		b.WriteString(`{"id":1`)
		for i := 0; b.Len() < bytes; i++ {
			fmt.Fprintf(&b, `,"%x":0`, i)
		}
		return b.String() + "}"
	case 7:
		return `"` + strings.Repeat("y", bytes) + `"`
	case 8:
		return list(`{"id":{"a":1},"l":[{"id":2},{"id":3}]}`)
	default:
		return "1" + strings.Repeat("7", min(bytes, 9000))
	}
}

// Nothing escapes the budget: whatever a handler does with a state and an event of some size, it ends with an error or
// within a second or so of the processor, and one that is not heavy never exceeds what a replay may take. States keep
// their limit and know their size.
func TestHostileHandlers(t *testing.T) {
	var worst time.Duration
	var worstHandler string
	rapid.Check(t, func(rt *rapid.T) {
		g := &generator{T: rt}
		src := g.operations(1)
		var l diag.List
		h := tick.CompileHandler(src, "", &l)
		if h == nil {
			rt.Fatalf("%s does not compile: %v", src, l.All())
		}
		document := func(label string, names ...string) value.Value {
			total := rapid.SampledFrom([]int{1 << 10, 1 << 14, 1 << 17, 1 << 18}).Draw(rt, label)
			var b strings.Builder
			for i, name := range names {
				fmt.Fprintf(&b, `,"%s":%s`, name, hostile(rapid.IntRange(0, 9).Draw(rt, name), total/(i+1)))
			}
			return mustParse(t, "{"+b.String()[1:]+"}")
		}
		data := document("event", "l", "v", "id", "o")
		ev := newEvent("e", data, firstTime)
		state := document("state", "l", "m", "o", "t", "n")
		for range 2 {
			ed := value.NewEditor()
			b := work.New(rt.Context(), work.Command)
			start := worktest.ProcessorTime(t)
			next, err := h.Apply(ed, state, ev.raw(), b, nil)
			if took := worktest.Since(t, start); took > worst {
				worst, worstHandler = took, src.String()
			}
			switch {
			case err != nil && j17.CodeOf(err) != j17.CodeWorkLimit:
				rt.Fatal(err)
			case err != nil && !h.Heavy(data.Size()):
				if next, err = h.Apply(
					value.NewEditor(), state, ev.raw(), work.New(rt.Context(), work.Replay), nil,
				); err != nil {
					rt.Fatalf("%s is not heavy, and %v", src, err)
				}
			case err != nil:
				return
			}
			next = tick.Stamp(ed, next, 1, 2)
			if w := next.Weight(); w.Bytes > tick.MaxState ||
				w != (value.Weight{Bytes: len(next.String()), Values: values(next)}) {
				rt.Fatalf("%s leaves a state of %d bytes and %d values that says %v", src, len(next.String()), values(next), w)
			}
			state = next
		}
	})
	t.Logf("the worst took %v: %.2000s", worst, worstHandler)
	if worst > 6*time.Second { // about a tenth of it on a machine with nothing else to do
		t.Errorf("a handler took %v: %s", worst, worstHandler)
	}
}
