//go:build !race

package decider_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
)

// heavy are guards and messages of which each takes much, and how many elements the list of the state has.
func heavy() map[string]struct {
	guard, message string
	elements       int
	// refused tells that the first guard does not hold, else one of those after it.
	refused bool
} {
	const pairs = `{"every": {"in": "$.state.list", "as": "$x", "match": {"some": {"in": "$.reads.other.list", "as": "$y", "match": {"equals": ["$x", "$y"]}}}}}`
	return map[string]struct {
		guard, message string
		elements       int
		refused        bool
	}{
		"one guard takes it all":      {pairs, `"m"`, 10_000, true},
		"all guards together take it": {pairs, `"m"`, 200, false},
		"deep predicates": {
			strings.Repeat(`{"not": `, 60) + pairs + strings.Repeat("}", 60), `"m"`, 200, false,
		},
		"a message of all there is": {
			`{"exists": "$.data.none"}`,
			`{"concat": [` + strings.Repeat(`"$.state.list",`, 150) + `"$.reads.other.list"]}`, 20_000, true,
		},
		"a message that counts many times": {`{"exists": "$.data.none"}`, `{"concat": [` + strings.Repeat(`{"$count": "$.state.list", "where": {"gt": ["$item", 5]}},`, 40) + `"."]}`, 20_000, true},
	}
}

// Guards and their messages are part of the work of one event, whatever they ask for: the guard that takes too much
// does not hold.
func TestGuardsAreBounded(t *testing.T) {
	most := 10 * time.Second
	if worktest.RaceDetector {
		most *= 10
	}
	for what, test := range heavy() {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, all %v", what, all), func(t *testing.T) {
				guard := fmt.Sprintf(`{"that": %s, "message": %s}`, test.guard, test.message)
				c, found := spec.Compile(fmt.Appendf(nil, `{"agent_types": ["user"], "aggregate_types": {"t": {"events": {"e": {"schema": {}, "handler": [],
					"reads": {"other": {"aggregate_type": "t", "id": "global"}}, "requires": [%s]}}}}}`, strings.Repeat(guard+",", 19)+guard))
				if c == nil {
					t.Fatal(found)
				}
				d := decider.New(c, nil)
				numbers := make([]value.Value, test.elements)
				for i := range numbers {
					numbers[i] = value.Int(int64(i))
				}
				state := value.ObjectValue(value.Member{Key: "list", Value: value.ArrayValue(numbers...)})

				// One event, of an aggregate with that state that reads another one with it.
				body, err := value.ParseString(`{"data": {}, "metadata": {"actor": {"type": "user", "id": "global"}}}`)
				if err != nil {
					t.Fatal(err)
				}
				cmd := command.Read("e", body)
				cmd.Writes[0].Type, cmd.Writes[0].ID = "t", "7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05"
				b := work.New(t.Context(), work.Command/8)
				a, err := d.Admit(&cmd, 0, b, func(w *command.Write) (j17.Key, error) { return d.Key(w.Type, w.ID) })
				if err != nil {
					t.Fatal(err)
				}
				before := worktest.ProcessorTime(t)
				_, err = d.Expand(t.Context(), a, decider.Options{
					Timestamp: 1_700_000_000, MaxDepth: 3, MaxImplied: 4, Work: b, All: all,
					Lookup: func(_ context.Context, key j17.Key) (*decider.State, error) {
						f := d.Program(key.Type).First()
						f.Data, f.Length = state, 1
						return f, nil
					},
				})
				used := worktest.Since(t, before)

				got := refusal(t, err)
				first := strings.Contains(got, "/requires/0\n")
				if !strings.HasPrefix(got, string(j17.CodeRequirementFailed)) || first != test.refused ||
					len(got) > 1000 {
					t.Errorf("%.1000s", got)
				}
				if e, _ := errors.AsType[*j17.Error](err); e != nil {
					d, _ := e.Details.(decider.RefusalDetails)
					if tooMuch := b.Err() != nil; tooMuch != (d.Cause == j17.CodeWorkLimit) {
						t.Errorf("the budget ended: %t, the details are %+v", tooMuch, d)
					}
				}
				t.Log(used, got)
				if used > most {
					t.Errorf("it took %v of processor time", used)
				}
			})
		}
	}
}
