package tick_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/tick"
)

// costly is a handler with a state and an event that make it take the most for its units.
type costly struct{ name, handler, state, data string }

// costlyHandlers has each operation on as many values as a state may have, and each way to read an event of the largest
// size.
func costlyHandlers() []costly {
	const most = tick.MaxValues - 64
	list := func(elem string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(elem+",", n), ",") + "]"
	}
	distinct := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ","+format, i)
		}
		return b.String()[1:]
	}
	many := func(op string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(op+",", n), ",") + "]" }
	zeros := `{"xs":` + list("0", most) + `}`
	empties := `{"xs":` + list("{}", most/2) + `}`
	ones := `{"xs":` + list(`{"a":1}`, most/2) + `}`
	ids := `{"xs":[` + distinct(`{"id":%d}`, most/2) + `]}`
	numbers := `{"xs":[` + distinct("%d", most) + `]}`
	members := `{"m":{` + distinct(`"%x":0`, most/2) + `}}`
	pairs := `{"xs":` + list("[0,0]", most/3) + `}`
	long := strings.Repeat("7", 9990)
	fives := new(big.Int).Exp(big.NewInt(5), big.NewInt(14_000), nil).String()
	letters := `{"s":"` + strings.Repeat("ä€", 600_000) + `"}`
	event := `{"xs":` + list("0", 8<<20-10) + `}`
	objects := `{"xs":` + list("{}", 5<<20) + `}`
	return []costly{
		{"filter that keeps none", `{"filter":{"target":"xs","keep":{"equals":["$item",1]}}}`, zeros, `{}`},
		{"filter that keeps all but one", `{"filter":{"target":"xs","keep":{"not_equals":["$item",77]}}}`, numbers, `{}`},
		{"filter by a path", `{"filter":{"target":"xs","keep":{"not_equals":["$item.id",77]}}}`, ids, `{}`},
		{"filter by an optional path", `{"filter":{"target":"xs","keep":{"not":{"exists":"$item.b"}}}}`, empties, `{}`},
		{"filter by an array", `{"filter":{"target":"xs","keep":{"minItems":{"array":"$item","min":3}}}}`, pairs, `{}`},
		{"filter by the event", `{"filter":{"target":"xs","keep":{"equals":["$item","$.data.n"]}}}`, zeros, `{"n":1}`},
		{"filter by an object that is made", `{"filter":{"target":"xs","keep":{"equals":["$item",{"a":"$item.a","b":[1,"$item.b"]}]}}}`, empties, `{}`},
		{"map that sets a member", `{"map":{"target":"xs","apply":{"set":{"target":"a","value":1}}}}`, empties, `{}`},
		{"map that sets a member to an object", `{"map":{"target":"xs","apply":{"set":{"target":"a","value":{"b":"$item.a","c":[2,"$item.a"]}}}}}`, ones, `{}`},
		{"map that increments", `{"map":{"target":"xs","apply":{"increment":{"target":"","by":1}}}}`, zeros, `{}`},
		{"map that increments members", `{"map":{"target":"xs","apply":{"increment":{"target":"a","by":1}}}}`, ones, `{}`},
		{"map that appends", `{"map":{"target":"xs","apply":{"append":{"target":"","value":1}}}}`, pairs, `{}`},
		{"map that removes", `{"map":{"target":"xs","apply":{"remove_at":{"target":"","key":"a"}}}}`, ones, `{}`},
		{"map with a condition", `{"map":{"target":"xs","apply":{"if":{"equals":["@",1]},"then":{"set":{"target":"","value":2}},"else":{"set":{"target":"","value":3}}}}}`, zeros, `{}`},
		{"map with merge", `{"map":{"target":"xs","apply":{"merge":{"target":"","value":{"$merge":["@",{"b":1}]}}}}}`, ones, `{}`},
		{"update_where", `{"update_where":{"target":"xs","match":{"a":1},"merge":{"a":2}}}`, ones, `{}`},
		{"update_where by itself", `{"update_where":{"target":"xs","match":{"a":1},"merge":{"a":{"$":"$item.a"}}}}`, ones, `{}`},
		{"update_where by a predicate", `{"update_where":{"target":"xs","match":{"equals":["$item.a",1]},"merge":{"b":1}}}`, `{"xs":` + list(`{"a":1}`, most/3) + `}`, `{}`},
		{"remove of all", `{"remove":{"target":"xs","value":0}}`, zeros, `{}`},
		{"remove where", `{"remove":{"target":"xs","where":{"a":1}}}`, ones, `{}`},
		{"upsert of the first, again and again", many(`{"upsert":{"target":"xs","match":{"equals":["$item",5]},"value":5}}`, 10), numbers, `{}`},
		{"append_unique, again and again", many(`{"append_unique":{"target":"xs","value":-1}}`, 20), `{"xs":[` + distinct("%d", 1<<17-64) + `]}`, `{}`},
		{"append after keeping, again and again", many(`{"set":{"target":"y","value":"@.xs"}},{"append":{"target":"xs","value":1}}`, 20), `{"xs":` + list("0", most/2-64) + `}`, `{}`},
		{"set_at after keeping, again and again", many(`{"set":{"target":"y","value":"@.m"}},{"set_at":{"target":"m","key":"z","value":1}}`, 20), `{"m":{` + distinct(`"%x":0`, most/2-64) + `}}`, `{}`},
		{"remove_at, again and again", many(`{"remove_at":{"target":"m","key":"5"}},{"set_at":{"target":"m","key":"5","value":1}}`, 50), members, `{}`},
		{"$merge of a large object", many(`{"set":{"target":"y","value":{"$merge":["@.m",{"z":1}]}}}`, 5), `{"m":{` + distinct(`"%x":0`, most/2-64) + `}}`, `{}`},
		{"merge of a large object", many(`{"merge":{"target":"y","value":"@.m"}}`, 5), `{"m":{` + distinct(`"%x":0`, most/2-64) + `}}`, `{}`},
		{"entries", many(`{"if":{"some":{"in":"@.m.$entries","as":"$e","match":{"equals":["$e.value",1]}}},"then":[]}`, 3), members, `{}`},
		{"every", many(`{"if":{"every":{"in":"xs","match":{"lt":["$item",2000000]}}},"then":[]}`, 5), numbers, `{}`},
		{"subset_of", `{"if":{"subset_of":{"items":"xs","array":"xs"}},"then":[]}`, `{"xs":[` + distinct("%d", 1<<17-64) + `]}`, `{}`},
		{"let, again and again", many(`{"let":{"name":"$f","find":{"in":"xs","where":{"equals":["$item",1]}}}}`, 20), zeros, `{}`},
		{"let of a container and a change", many(`{"let":{"name":"$f","find":{"in":"xs","where":{"id":3}}}},{"update_where":{"target":"xs","match":{"id":3},"merge":{"n":1}}}`, 20), ids, `{}`},
		{"comparison of large arrays", many(`{"if":{"equals":["@.a","@.b"]},"then":[]}`, 20), `{"a":` + list("0", most/2) + `,"b":` + list("0", most/2) + `}`, `{}`},
		{"long sums", `{"map":{"target":"xs","apply":{"increment":{"target":"","by":"$.data.by"}}}}`, `{"xs":` + list(long, 700) + `}`, `{"by":` + long + `}`},
		{"long products", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$multiply":["@","$.data.by"]}}}}}`, `{"xs":` + list(long, 700) + `}`, `{"by":` + long + `}`},
		{"long products of small numbers", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$multiply":["@",3]}}}}}`, `{"xs":` + list(long, 800) + `}`, `{}`},
		{"long quotients", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$divide":["$.data.by","@"],"scale":100}}}}}`, `{"xs":` + list(long[:5000], 1400) + `}`, `{"by":` + long + `}`},
		{"exact quotients", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$divide":["$.data.by","@"]}}}}}`, `{"xs":` + list(fives, 800) + `}`, `{"by":` + fives + `}`},
		{"rounding of long numbers", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$round":"@","scale":2}}}}}`, `{"xs":` + list("0."+long, 800) + `}`, `{}`},
		{"small products", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$multiply":["@",3]}}}}}`, zeros, `{}`},
		{"small quotients", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$divide":["@",7],"scale":9}}}}}`, numbers, `{}`},
		{"what does not fit", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$divide":["@",7]}}}}}`, numbers, `{}`},
		{"sums", many(`{"set":{"target":"y","value":{"$sum":"@.xs","of":{"$multiply":["$item",2]}}}}`, 3), numbers, `{}`},
		{"counts", many(`{"set":{"target":"y","value":{"$count":"@.xs","where":{"gt":["$item",5]}}}}`, 5), numbers, `{}`},
		{"upper case", many(`{"set":{"target":"y","value":{"$upper":"@.s"}}}`, 3), letters, `{}`},
		{"slices", many(`{"set":{"target":"y","value":{"$slice":"@.s","from":-5}}}`, 10), letters, `{}`},
		{"texts that are put together", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$concat":["@","@"]}}}}}`, numbers, `{}`},
		{"times", `{"map":{"target":"xs","apply":{"set":{"target":"","value":{"$add_duration":[{"$date_trunc":"@","to":"month"},"1mo"]}}}}}`, `{"xs":` + list(`"2023-11-14T22:13:20.5+01:00"`, 200_000) + `}`, `{}`},
		{"an event that is parsed", `{"set":{"target":"x","value":"$.data"}}`, `{}`, event},
		{"objects in an event that is parsed", `{"set":{"target":"x","value":"$.data"}}`, `{}`, objects},
		{"some in an event", `{"if":{"some":{"in":"$.data.xs","match":{"equals":["$item",1]}}},"then":[]}`, `{}`, event},
		{"a part of an event", `{"set":{"target":"x","value":"$.data.xs"}}`, `{}`, event},
		{"strings that are compared", `{"filter":{"target":"xs","keep":{"equals":["$item","@.s"]}}}`, `{"s":"` + strings.Repeat("x", 3000) + `","xs":` + list(`"`+strings.Repeat("x", 3000)+`"`, 2700) + `}`, `{}`},
	}
}

// No unit takes so long that a replay could take much more than a second, whatever the operation; and what takes more
// than a replay may is known before.
func TestUnitsAreWorthTheirTime(t *testing.T) {
	if worktest.RaceDetector {
		t.Skip("too slow to measure")
	}
	const most = 250 // nanoseconds: some ten times what it takes on a machine with nothing else to do
	states := map[string]value.Value{}
	for _, c := range costlyHandlers() {
		if _, ok := states[c.state]; !ok {
			states[c.state] = mustParse(t, c.state)
		}
		h, data := compile(t, c.handler), []byte(c.data)
		var took time.Duration
		var perUnit float64
		for range 6 { // other processes take their share of the caches
			b := work.New(t.Context(), work.Replay)
			start := worktest.ProcessorTime(t)
			_, err := h.Apply(value.NewEditor(), states[c.state], &tick.Event{Data: tick.Raw(data)}, b, nil)
			took = worktest.Since(t, start)
			if err != nil && (j17.CodeOf(err) != j17.CodeWorkLimit || !h.Heavy(len(data))) {
				t.Errorf("%s is heavy: %v, and ends with %v", c.name, h.Heavy(len(data)), err)
			}
			if perUnit = float64(took) / float64(b.Spent()); took < 50*time.Millisecond || perUnit < most {
				t.Logf("%-42s %7.1f ms %9d units %6.1f ns a unit", c.name, took.Seconds()*1e3, b.Spent(), perUnit)
				break
			}
		}
		if took > 50*time.Millisecond && perUnit > most {
			t.Errorf("%s: a unit takes %.0f ns, so that a replay may take %.1f s", c.name, perUnit, perUnit*work.Replay/1e9)
		}
	}
}
