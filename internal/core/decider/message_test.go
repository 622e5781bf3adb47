//go:build !race

package decider_test

import (
	"context"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// TestMessagesAreKeptIfFixed: what may be kept of a refusal has the message of a guard only where nothing of the event
// or of a state can be in it.
func TestMessagesAreKeptIfFixed(t *testing.T) {
	for message, kept := range map[string]bool{
		`"It is closed"`: true, `{"$literal": "$.data.secret is closed"}`: true,
		`"$.data.secret"`: false, `"@.secret"`: false, `{"$concat": ["It is ", "@.secret"]}`: false,
	} {
		c, found := spec.Compile([]byte(`{"agent_types": ["user"], "aggregate_types": {"t": {"events": {"e": {"schema": {},
			"handler": [{"set": {"target": "secret", "value": "$.data.secret"}}],
			"requires": [{"that": {"equals": ["$.data.secret", 1]}, "message": ` + message + `}]}}}}}`))
		if c == nil {
			t.Fatal(found)
		}
		d := decider.New(c, nil)
		body, err := value.ParseString(`{"data": {"secret": "hunter2"}, "metadata": {"actor": {"type": "user", "id": "global"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		cmd := command.Read("e", body)
		cmd.Writes[0].Type, cmd.Writes[0].ID = "t", "global"
		b := work.New(t.Context(), work.Command)
		a, err := d.Admit(&cmd, 0, b, func(w *command.Write) (j17.Key, error) { return d.Key(w.Type, w.ID) })
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Expand(t.Context(), a,
			decider.Options{Work: b, Lookup: func(context.Context, j17.Key) (*decider.State, error) {
				f := d.Program("t").First()
				f.Data, f.Length = value.ObjectValue(value.Member{
					Key: "secret", Value: value.StringValue("hunter2"),
				}), 1
				return f, nil
			}})
		record := j17.Record(err)
		if j17.CodeOf(err) != j17.CodeRequirementFailed || strings.Contains(record, "hunter2") ||
			strings.Contains(record, "closed") != kept {
			t.Errorf("%s: %v, of which is kept: %s", message, err, record)
		}
	}
}

// TestRecordsOfReplaysNameTheEvent: what may be kept of a stored event that its custom code fails for or refuses has
// its place, by which an erasure finds it, and nothing that the code has said.
func TestRecordsOfReplaysNameTheEvent(t *testing.T) {
	aborted := &sandbox.Fault{Kind: sandbox.Trap, Detail: "the code has aborted: hunter2", Quotes: true}
	for name, cause := range map[string]*j17.Error{
		"failed":  j17.Errorf(j17.CodeCustomCodeFailed, "The custom code failed: %s", aborted.Detail).Because(aborted),
		"refused": j17.Errorf(j17.CodeHandlerRejected, "%s is not wanted", "hunter2"),
	} {
		err := decider.ReplayFailed(cause, &tick.Event{Key: "note:7", Type: "was_made"}, 3)
		record := j17.Record(err)
		if strings.Contains(record, "hunter2") || !strings.Contains(record, "note:7") ||
			!strings.Contains(record, "number 3, was_made") {
			t.Errorf("%s: %v, of which is kept: %s", name, err, record)
		}
	}
}
