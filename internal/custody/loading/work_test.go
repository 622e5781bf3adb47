//go:build !race

package loading_test

import (
	"errors"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine"
)

// TestAnImportLeavesAggregatesReadable: history whose handlers would take more work than a replay has is refused at the
// event that does, also where what came before it is in the file too, and what was stored before it can be read.
func TestAnImportLeavesAggregatesReadable(t *testing.T) {
	const heavySpec = `{"agent_types":["user"],"aggregate_types":{"a":{"events":{
		"was_set":{"schema":{},"handler":[{"merge":{"target":"","value":"$.data"}}]},
		"was_mixed":{"schema":{},"handler":[{"filter":{"target":"list","as":"$x","keep":{"some":{"in":"@.list","as":"$y","match":{"gt":["$y","$x"]}}}}}]}}}}}`
	event := func(typ, data string) string {
		return `{"key":"a:` + id + `","type":"` + typ + `","data":` + data + `,"metadata":{"actor":{"type":"user","id":"` + user + `"},"timestamp":1600000000}}` + "\n"
	}
	for name, tc := range map[string]struct {
		elements int
		array    bool
		refused  bool
	}{
		"little work": {100, false, false}, "too much": {30_000, false, true},
		"too much, in an array": {30_000, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.DeploySource(t, heavySpec)
			// All of it is one commit.
			events := []string{event("was_set", `{"list":[`+repeated("1", tc.elements)+`]}`)}
			for range 499 {
				events = append(events, event("was_set", `{}`))
			}
			events = append(events, event("was_set", `{"x":1}`), event("was_mixed", `{}`))
			text := strings.Join(events, "")
			if tc.array {
				text = "[" + strings.Join(events, ",") + "]"
			}
			r := recording(text)
			r.Tenant = tenant
			done, err := f.Import(t.Context(), r)
			switch {
			case !tc.refused && (err != nil || done.Stored != 502):
				t.Fatalf("%+v, %v", done, err)
			case tc.refused:
				e, _ := errors.AsType[*j17.Error](err)
				if e == nil || e.Code != j17.CodeWorkLimit || e.EventIndex == nil || *e.EventIndex != 501 ||
					len(e.Errors) != 1 || done.Stored != 0 || !strings.Contains(e.Message, "Nothing was stored") {
					t.Fatalf("%+v, %+v", done, err)
				}
				if at := e.Errors[0]; at.Pointer != "/501" || tc.array != (at.Index != nil) ||
					tc.array == (at.Line == 502) {
					t.Errorf("the place is %+v", at)
				}
				if !strings.Contains(e.Message, "/aggregate_types/a/events/was_mixed/handler") {
					t.Error(e.Message)
				}
			}
			if got, want := f.Written(t, "a", id), uint64(done.Stored); got != want {
				t.Errorf("%d events, want %d", got, want)
			}
			if got := f.State(t, "a/"+id, engine.LoadOptions{
				Replay: true,
			}); !tc.refused && !strings.HasPrefix(got, "{") {
				t.Errorf("the state is %s", got)
			}
		})
	}
}
