package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	shapes "j17/internal/base/wire"
	"j17/internal/plane/control"
)

// TestCheckpointsOverHTTP makes, lists, restores and deletes checkpoints of states and of roots.
func TestCheckpointsOverHTTP(t *testing.T) {
	a := administer(t)
	for i := range 3 {
		a.do(t, "POST", "/note/global/was_written", fmt.Sprintf(`{"data":{"text":"%d"},%s}`, i, actor))
	}
	into := func(got answer, status int, shape any) {
		t.Helper()
		if err := json.Unmarshal([]byte(got.body), shape); err != nil || got.status != status {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
	}

	// Of states.
	exported := a.ops(t, "GET", "export?of=aggregates", "")
	sum := sha256.Sum256([]byte(exported.body))
	var made, again shapes.CheckpointMade
	into(a.ops(t, "POST", "checkpoints", ""), 201, &made)
	if c := made.Checkpoint; c.Scope != "environment" || c.Name != nil || c.Aggregates != 1 ||
		c.StateHash != hex.EncodeToString(sum[:]) || c.Position != exported.header.Get("X-J17-Position") {
		t.Errorf("made was %+v of %s", c, exported.body)
	}
	into(a.ops(t, "POST", "checkpoints", `{"name":"one","key":"note:global"}`), 201, &again)
	var listed struct {
		Checkpoints []shapes.Checkpoint
		Next        *int
	}
	into(a.ops(t, "GET", "checkpoints?limit=1", ""), 200, &listed)
	if len(listed.Checkpoints) != 1 || listed.Checkpoints[0].ID != again.Checkpoint.ID || listed.Next == nil {
		t.Errorf("listed are %+v", listed)
	}
	var restored shapes.CheckpointRestored
	into(a.ops(t, "POST", "checkpoints/"+made.Checkpoint.ID+"/restore", ""), 200, &restored)
	if restored.Restored != 1 || restored.Checkpoint.ID != made.Checkpoint.ID {
		t.Errorf("restored was %+v", restored)
	}
	into(a.ops(t, "DELETE", "checkpoints/"+made.Checkpoint.ID, ""), 200, &made)

	// Of roots.
	var root shapes.RootCheckpointMade
	into(a.ops(t, "POST", "root-checkpoints", `{"aggregate_type":"note"}`), 201, &root)
	if r := root.RootCheckpoint; r.Reason != "manual" || r.Size != 3 || r.Aggregates != 1 || r.AggregateType == nil ||
		len(r.Root) != 64 {
		t.Errorf("the root is %+v", r)
	}
	for _, target := range []string{"latest", root.RootCheckpoint.ID} {
		var found shapes.RootCheckpointMade
		if into(
			a.ops(t, "GET", "root-checkpoints/"+target, ""), 200, &found,
		); found.RootCheckpoint.ID != root.RootCheckpoint.ID {
			t.Errorf("%s is %+v", target, found)
		}
	}
	var set shapes.RootCheckpointSettingsShown
	into(a.ops(t, "PUT", "root-checkpoint-settings", `{"keep":7}`), 200, &set)
	if set.Settings.Keep != 7 || set.Settings.Enabled || set.Settings.EveryHours != 24 {
		t.Errorf("the settings are %+v", set)
	}
	into(a.ops(t, "DELETE", "root-checkpoints/"+root.RootCheckpoint.ID, ""), 200, &root)

	// Who did that is in the audit log.
	for action, want := range map[string]int{"checkpoint": 4, "root_checkpoint": 3} {
		records, _, err := a.registry.Audit.List(
			t.Context(), control.AuditQuery{Instance: a.instance.ID, Action: action}, 10,
		)
		if err != nil || len(records) != want {
			t.Errorf("%s: %+v, %v", action, records, err)
		}
	}
}

// TestWhatIsNoCheckpointOverHTTP asks for what cannot be.
func TestWhatIsNoCheckpointOverHTTP(t *testing.T) {
	a := administer(t)
	for target, bodies := range map[string]map[string]int{
		"POST checkpoints": {`{"name":5}`: 400, `{"nonsense":1}`: 400, `{"key":"note"}`: 400, `{"key":"note:global"}`: 404, `{"aggregate_type":"ghost"}`: 404, `{"key":"note:global","aggregate_type":"note"}`: 400},
		"POST checkpoints/chk_zzzzzzzzzzzzzzz/restore": {"": 404, `{"x":1}`: 400},
		"GET checkpoints/chk_zzzzzzzzzzzzzzz":          {"": 404},
		"DELETE checkpoints/chk_zzzzzzzzzzzzzzz":       {"": 404},
		"POST root-checkpoints": {
			`{"aggregate_type":"ghost"}`: 404, `{"aggregate_type":1}`: 400, `{"reason":"auto"}`: 400,
		},
		"GET root-checkpoints/latest":                 {"": 404},
		"DELETE root-checkpoints/chk_zzzzzzzzzzzzzzz": {"": 404},
		"GET root-checkpoints?status=x":               {"": 400},
		"PUT root-checkpoint-settings": {
			`{"every_events":0}`: 400, `{"every_events":"5"}`: 400, `{"every_hours":-1}`: 400, `{"keep":0}`: 400,
			`{"keep":1.5}`: 400, `{"enabled":"yes"}`: 400, `{"nonsense":1}`: 400, `{"keep":null}`: 400,
			`{"enabled":null}`: 400,
		},
		"GET export?of=aggregates&after=1700000000000-0": {"": 400},
		"GET export?of=aggregates&type=ghost":            {"": 400},
	} {
		method, path, _ := strings.Cut(target, " ")
		for body, want := range bodies {
			if got := a.ops(t, method, path, body); got.status != want {
				t.Errorf("%s %s: %d %s", target, body, got.status, got.body)
			}
		}
	}
}
