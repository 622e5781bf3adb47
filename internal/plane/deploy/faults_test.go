//go:build !race

package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	"j17/internal/base/wire"
)

// TestDryRunTellsWhatDoesNotFit tries specs whose operations do not fit the events there are, or take too much work for
// them.
func TestDryRunTellsWhatDoesNotFit(t *testing.T) {
	f := start(t)
	f.deploy(t, simple(keep))
	id := func(i int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i) }
	f.write(t, id(0), `{"list":[{"n":1}]}`)
	f.write(t, id(1), `{"list":[{"n":1},2]}`)
	f.write(t, id(1), `{"list":[3,{"n":1}]}`)
	dry := func(handler string) *wire.SpecReplay {
		t.Helper()
		r := f.request(simple(handler))
		r.Aggregates = 100
		result, err := f.Deploy(t.Context(), r)
		if err != nil {
			t.Fatal(err, fieldErrors(err))
		}
		return result.Replay
	}
	replay := dry(`[{"set":{"target":"","value":"$.data"}},{"update_where":{"target":"list","match":{"equals":[1,1]},"merge":{"seen":true}}}]`)
	if replay.Changed != 1 || replay.Failed != 0 || len(replay.Faults) != 1 || len(replay.Beyond) != 0 {
		t.Fatalf("%+v", replay)
	}
	fault := replay.Faults[0]
	if fault.Times != 2 || fault.Key != "note:"+id(1) || fault.Length != 1 || fault.EventType != "was_written" ||
		fault.Message == "" || fault.Line != 1 || fault.Column < 2 ||
		!strings.HasPrefix(fault.Pointer, "/aggregate_types/note/events/was_written/handler/1") {
		t.Errorf("%+v", fault)
	}
	// Each event beyond the budget is listed, also those after the first of an aggregate.
	long := `{"list":[` + strings.TrimSuffix(strings.Repeat(`1,`, 5000), ",") + `]}`
	f.write(t, id(2), long)
	f.write(t, id(2), `{"list":[]}`)
	f.write(t, id(2), long)
	replay = dry(`[{"set":{"target":"","value":"$.data"}},{"filter":{"target":"list","as":"$a","keep":{"every":{"in":"$.data.list","as":"$b","match":{"equals":["$a","$b"]}}}}}]`)
	if replay.Aggregates != 3 || replay.Failed != 1 || len(replay.Beyond) != 2 ||
		replay.Beyond[0] != (wire.ReplayedEvent{Key: "note:" + id(2), Length: 1, EventType: "was_written"}) ||
		replay.Beyond[1].Length != 3 {
		t.Errorf("%+v", replay)
	}
}
