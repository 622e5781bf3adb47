package trial_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/trial"
)

// renewed has a type of two generations, one that is retired as it, and one that is retired.
const renewed = `{"agent_types":["user"],"aggregate_types":{"order":{"events":{
	"was_placed":{"generations":{"1":{"schema":true,"upcast":{"move":{"from":"x","to":"y"}},"closed":true}},
		"schema":{"type":"object","properties":{"y":{"type":"number"}},"required":["y"]},
		"handler":{"merge":{"target":"","value":"$.data"}}},
	"was_ordered":{"schema":true,"retired":{"as":"was_placed","generation":1}},
	"was_faxed":{"schema":true,"handler":{"merge":{"target":"","value":"$.data"}},"retired":true}}}}}`

func TestRenew(t *testing.T) {
	c := enginetest.Compiled(t, renewed)
	line := func(typ, data, generation, more string) string {
		return fmt.Sprintf(
			`{"key":"order:global","type":%q,"data":%s,"metadata":{"actor":{"type":"user","id":"global"}%s}%s}`,
			typ, data, generation, more,
		)
	}
	src := strings.Join([]string{
		line("was_placed", `{"x":1}`, `,"generation":1`, ""),
		line("was_placed", `{"x":"t"}`, `,"generation":1`, ""),
		line("was_placed", `{"y":3}`, `,"generation":2`, ""),
		line("was_placed", `{"x":4}`, ``, `,"stream_id":"1706789012345-0"`),
		line("was_placed", `{"y":5}`, ``, ""),
		line("was_placed", `{"y":6}`, `,"generation":3`, ""),
		line("was_ordered", `{"x":7}`, ``, ""),
		line("was_faxed", `{"page":8}`, ``, ""),
		`{"key":`,
	}, "\n")
	all, broken, err := trial.Renew(t.Context(), c, src)
	if err != nil || len(broken) > 0 {
		t.Fatal(broken, err)
	}
	var got []string
	for _, r := range all {
		text := fmt.Sprintf("%d %s %d: ", r.Line, r.Type, r.Generation)
		if len(r.Findings) > 0 {
			text += string(r.Findings[0].Code) + " " + r.Findings[0].Path
		} else {
			text += r.As + " " + string(r.After.AppendJSON(nil))
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{
		`1 was_placed 1: was_placed {"y":1}`,
		`2 was_placed 1: upcast_failed data`,
		`3 was_placed 2: was_placed {"y":3}`,
		`4 was_placed 1: was_placed {"y":4}`,
		`5 was_placed 2: missing_field metadata.generation`,
		`6 was_placed 3: unknown_generation metadata.generation`,
		`7 was_ordered 1: was_placed {"y":7}`,
		`8 was_faxed 1: was_faxed {"page":8}`,
		`9  0: invalid_json `,
	}, got); diff != "" {
		t.Error(diff)
	}
	if _, broken, err := trial.Renew(t.Context(), c, "[{}"); err != nil || len(broken) != 1 {
		t.Error(broken, err)
	}
}

// TestHandlerInGeneration: data in an older generation, closed or not, are tried in the newest one.
func TestHandlerInGeneration(t *testing.T) {
	c := enginetest.Compiled(t, renewed)
	for _, tc := range []struct {
		typ, data  string
		generation int
		want       string
	}{
		{"was_placed", `{"x":5}`, 1, `{"y":5}`},
		{"was_placed", `{"y":5}`, 2, `{"y":5}`},
		{"was_placed", `{"y":5}`, 0, `{"y":5}`},
		{"was_placed", `{"x":"t"}`, 1, "upcast_failed"},
		{"was_placed", `{"x":5}`, 0, "validation_failed"},
		{"was_placed", `{"y":5}`, 3, "unknown_generation"},
		{"was_ordered", `{"x":5}`, 1, `{"y":5}`},
		{"was_faxed", `{"page":1}`, 1, `{"page":1}`},
		{"was_faxed", `{"page":1}`, 0, "event_type_retired"},
	} {
		data, err := value.ParseString(tc.data)
		if err != nil {
			t.Fatal(err)
		}
		out, found, err := trial.TryHandler(t.Context(), c, trial.HandlerTrial{
			AggregateType: "order", EventType: tc.typ, Data: data, Generation: tc.generation,
		})
		got := string(out.State.OrNull().AppendJSON(nil))
		if len(found) > 0 {
			got = string(found[0].Code)
		}
		if err != nil || got != tc.want {
			t.Errorf("%s in %d: %s, %v; want %s", tc.typ, tc.generation, got, err, tc.want)
		}
	}
}
