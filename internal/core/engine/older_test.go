package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"

	"j17"
)

// olderWrites returns what an engine has counted of events in older generations, by type and generation.
func olderWrites(f *enginetest.Fixture) map[string]float64 {
	counted := map[string]float64{}
	for _, m := range f.Part().Metrics {
		if m.Name == "j17_upcast_writes_total" {
			for _, one := range m.Each() {
				counted[strings.Join(one.Labels, " ")] = one.Value
			}
		}
	}
	return counted
}

// TestOlderWritesHaveABound writes events of more types and generations than are counted apart.
func TestOlderWritesHaveABound(t *testing.T) {
	t.Parallel()
	const types, older, bound = 11, 99, 1000
	var events []string
	for n := range types {
		var generations []string
		for g := range older {
			generations = append(generations, fmt.Sprintf(`"%d":{"schema":true,"upcast":[]}`, g+1))
		}
		events = append(events, fmt.Sprintf(
			`"e%d":{"generations":{%s},"schema":true,"handler":[]}`, n, strings.Join(generations, ","),
		))
	}
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"t":{"events":{`+strings.Join(events, ",")+`}}}}`)

	// Each once, and then the first type once more.
	write := func(typ int) {
		t.Helper()
		var batch []string
		for g := range older {
			batch = append(batch, fmt.Sprintf(`{"type":"e%d","data":{},"generation":%d}`, typ, g+1))
		}
		f.Post(t, "t/"+enginetest.ID, `{"events":[`+strings.Join(batch, ",")+`],`+enginetest.Meta+`}`)
	}
	for n := range types {
		write(n)
	}
	write(0)
	got := olderWrites(f)
	if len(got) != bound+1 || got["other other"] != types*older-bound || got["e0 1"] != 2 || got["e9 99"] != 1 {
		t.Errorf(
			"%d rows, other %v, e0 %v, e9 %v: %v", len(got), got["other other"], got["e0 1"], got["e9 99"],
			slices.Sorted(maps.Keys(got)),
		)
	}
}

// TestTheServersOwnOlderWritesAreNotCounted writes what the server has kept since its generation was the newest, as
// events for later are.
func TestTheServersOwnOlderWritesAreNotCounted(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"t":{"events":{"e":{
		"generations":{"1":{"schema":true,"upcast":{"move":{"from":"a","to":"b"}}}},"schema":{"required":["b"]},"handler":[]}}}}}`)
	data, err := value.ParseString(`{"a":1}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Execute(t.Context(), &engine.Command{Tenant: enginetest.Tenant, Command: command.Command{
		Writes: command.One("t", enginetest.ID, "e", data, 1), Trusted: true,
		Actor: j17.Agent{Type: "user", ID: enginetest.User},
	}}); err != nil {
		t.Fatal(err)
	}
	if got := olderWrites(f); len(got) != 0 {
		t.Errorf("the server's own is counted: %v", got)
	}
	f.Post(t, "t/"+enginetest.ID+"/e", withGeneration(`{"a":1}`, 1))
	if got := olderWrites(f); len(got) != 1 || got["e 1"] != 1 {
		t.Errorf("that of a client is counted as %v", got)
	}
}
