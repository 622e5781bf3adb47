//go:build !race

package tick_test

import (
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/tick"
)

// What a hostile or careless handler costs is bounded, by what it does and not by the time it takes.
func TestLimits(t *testing.T) {
	numbers := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	long := strings.Repeat("x", 1<<20)
	deep := strings.Repeat(`{"a":`, 127) + "1" + strings.Repeat("}", 127)
	tests := []struct {
		name, handler, state, data string
		fault                      string // "" where the operation fits
		want                       string // the member "r" afterwards
	}{
		{
			"elements by elements", `{"if": {"every": {"in": "xs", "as": "$a", "match": {"every": {"in": "xs", "as": "$b", "match": {"equals": ["$a", "$b"]}}}}}, "then": {"set": {"target": "r", "value": 1}}}`,
			`{"xs":` + numbers(6000) + `}`, `{}`, "work_limit", ``,
		},
		{
			"elements by elements that fit", `{"if": {"every": {"in": "xs", "as": "$a", "match": {"every": {"in": "xs", "as": "$b", "match": {"equals": ["$a", "$b"]}}}}}, "then": {"set": {"target": "r", "value": 1}}}`,
			`{"xs":` + numbers(1000) + `}`, `{}`, "", `1`,
		},
		{
			"a subset of many", `{"if": {"subset_of": {"items": "xs", "array": "ys"}}, "then": {"set": {"target": "r", "value": 1}}}`,
			`{"xs":` + numbers(6000) + `,"ys":` + strings.ReplaceAll(numbers(6000), "0", "1") + `}`, `{}`, "", ``,
		},
		{
			"a subset of many, again and again", `{"filter": {"target": "xs", "keep": {"not": {"subset_of": {"items": ["$item"], "array": "ys"}}}}}`,
			`{"r":1,"xs":` + numbers(6000) + `,"ys":` + strings.ReplaceAll(numbers(6000), "0", "1") + `}`, `{}`, "",
			`1`,
		},
		{
			"lookups in a loop", `{"map": {"target": "xs", "apply": {"let": {"name": "$x", "find": {"in": "$.state.ys", "where": {"id": 1}}}}}}`,
			`{"r":1,"xs":` + numbers(6000) + `,"ys":` + numbers(6000) + `}`, `{}`, "", `1`,
		},
		{
			"removals in a loop", `{"map": {"target": "xs", "apply": {"if": {"in": ["$item", "$.state.xs"]}, "then": [], "else": []}}}`,
			`{"r":1,"xs":[1,2` + strings.Repeat(",3", 5998) + `]}`, `{}`, "", `1`,
		},
		{
			"the event in every element", `{"map": {"target": "xs", "apply": {"set": {"target": "", "value": "$.data.s"}}}}`,
			`{"r":1,"xs":` + numbers(20) + `}`, `{"s":"` + long + `"}`, "set changes nothing: the state would be larger than 8 MiB", `1`,
		},
		{
			"the event merged into every element", `{"update_where": {"target": "xs", "match": {"id": 1}, "merge": "$.data"}}`,
			`{"r":1,"xs":[{"id":1}` + strings.Repeat(`,{"id":1}`, 19) + `]}`, `{"s":"` + long + `"}`, "update_where changes nothing: the state would be larger than 8 MiB", `1`,
		},
		{
			"the state in itself", `[` + strings.TrimSuffix(strings.Repeat(`{"set": {"target": "a", "value": ["@", "@"]}},`, 40), ",") + `,{"set": {"target": "r", "value": 1}}]`,
			`{"s":"` + long + `"}`, `{}`, "set changes nothing: the state would be larger than 8 MiB", `1`,
		},
		{
			"too deep", `[{"set": {"target": "a.b", "value": ["@.d"]}}, {"set": {"target": "a.c", "value": [["@.d"]]}}]`,
			`{"r":1,"d":` + deep + `}`, `{}`, "set changes nothing: the value is nested", `1`,
		},
		{
			"a sum of too many digits", `{"increment": {"target": "r", "by": "$.data.n"}}`,
			`{"r":1}`, `{"n":1` + strings.Repeat("0", 9000) + `e380}`, "", ``,
		},
		{
			"a sum of far too many digits", `[{"increment": {"target": "n", "by": "$.data.n"}}]`,
			`{"r":1,"n":0.` + strings.Repeat("0", 9000) + `1}`, `{"n":1` + strings.Repeat("0", 9000) + `}`, "increment changes nothing: the sum would have more than 10000 digits", `1`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ev := &tick.Event{Data: tick.Raw([]byte(test.data))}
			var faults []tick.Fault
			before := mustParse(t, test.state)
			state, err := compile(t, test.handler).Apply(
				value.NewEditor(), before, ev, work.New(t.Context(), work.Replay),
				func(f tick.Fault) { faults = append(faults, f) },
			)
			switch {
			case test.fault == string(j17.CodeWorkLimit):
				if j17.CodeOf(err) != j17.CodeWorkLimit || state.String() != before.String() {
					t.Errorf("the error is %v, the state has %d bytes", err, len(state.String()))
				}
				return
			case err != nil:
				t.Error(err)
			case test.fault == "" && len(faults) > 0:
				t.Errorf("faults: %v", faults[0])
			case test.fault != "" && (len(faults) == 0 || !strings.HasPrefix(faults[0].Message, test.fault)):
				t.Errorf("faults: %v, want %s", faults, test.fault)
			}
			if got := state.Get("r").String(); test.want != "" && got != test.want {
				t.Errorf("r is %.100s, want %s", got, test.want)
			}
		})
	}
}
