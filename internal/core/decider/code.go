package decider

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Custom code gets and returns JSON. A handler gets {"state", "event": {"key", "type", "data", "metadata"}} and returns
// {"state"}; an implication gets {"event": {..., "state"}, "context"} and returns {"actions": [{"emit"}]}, or in
// transform mode an object whose members are added to the context. Both may return {"error": {"type", "message",
// "code", "context"}}.

// rejectionDetails are the details of an error that custom code has returned.
type rejectionDetails struct {
	Type    string      `json:"type"`
	Message string      `json:"message"`
	Code    string      `json:"code,omitempty"`
	Context value.Value `json:"context,omitzero"`
}

// faultDetails are the details of a fault of custom code.
type faultDetails struct {
	Kind       sandbox.Kind `json:"kind"`
	Hint       string       `json:"hint,omitempty"`
	Artifact   string       `json:"artifact,omitempty"`
	Entrypoint string       `json:"entrypoint,omitempty"`
}

// callWork is the cost of a call of custom code, in units of package work, apart from its input and output. The work of
// the code itself is counted where it runs.
const callWork = 512

// Handle computes the state after an event with a handler in custom code. Input and output are charged to b.
func (f Functions) Handle(
	ctx context.Context, code *spec.Code, state value.Value, ev *tick.Event, b *work.Budget,
) (value.Value, error) {
	in := append(make([]byte, 0, 1024), `{"state":`...)
	in = state.OrNull().AppendJSON(in)
	in = append(in, `,"event":`...)
	in = appendEvent(in, ev)
	in = append(in, "}}"...)
	out, size, err := f.call(ctx, code, in, b)
	if err != nil {
		return value.Value{}, err
	}

	// The answer is the new state.
	next := out.Get("state")
	if next.IsMissing() {
		return value.Value{}, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: `the answer has neither the key "state" nor the key "error"`,
			Hint: `Return {"state": ...} with the whole new state, or {"error": {"type": ..., "message": ...}}.`,
		})
	}

	// Its size is limited, and it is kept without the rest of the answer.
	text, most := next.AppendJSON(nil), tick.Largest()
	if sandbox.Replaying(ctx) {
		most.Values = math.MaxInt // it was accepted before there was a limit of values
	}
	if w := next.Weight(); !w.Fits(most) {
		detail := fmt.Sprintf("the state has %d bytes as JSON, and may have %d", w.Bytes, most.Bytes)
		if w.Bytes <= most.Bytes {
			detail = fmt.Sprintf("the state is made of %d values, and may be made of %d", w.Values, most.Values)
		}
		return value.Value{}, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: detail, Hint: "Keep less in the state; what has happened stays in the events.",
		})
	}
	if size > CompactAbove*len(text) {
		// Else the state would keep the whole answer in memory.
		if next, err = value.ParseStored(string(text)); err != nil {
			return value.Value{}, fmt.Errorf("decider: a state from custom code cannot be read back: %w", err)
		}
	}
	return next, nil
}

// appendEvent appends an event without its closing brace.
func appendEvent(dst []byte, ev *tick.Event) []byte {
	dst = append(dst, `{"key":`...)
	dst = value.AppendString(dst, ev.Key)
	dst = append(dst, `,"type":`...)
	dst = value.AppendString(dst, ev.Type)
	dst = append(dst, `,"data":`...)
	dst = ev.Data.Value().OrNull().AppendJSON(dst)
	dst = append(dst, `,"metadata":`...)
	return ev.Metadata.Value().OrNull().AppendJSON(dst)
}

// call runs custom code and returns the object that it returns, and its size in bytes.
func (f Functions) call(
	ctx context.Context, code *spec.Code, in []byte, b *work.Budget,
) (out value.Value, size int, err error) {
	function := f[code]
	if function == nil {
		return value.Value{}, 0, faulty(code, notLoaded(code))
	}
	if !b.Spend(callWork) || !b.SpendBytes(len(in)) {
		return value.Value{}, 0, b.Err()
	}
	raw, err := function.Call(ctx, in)
	if err != nil {
		return value.Value{}, 0, faulty(code, err)
	}
	if !b.SpendBytes(len(raw)) {
		return value.Value{}, 0, b.Err()
	}
	out, err = value.Parse(raw)
	if err != nil {
		return value.Value{}, 0, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: "the answer is not valid JSON: " + err.Error(),
			Hint: "Return one JSON document in UTF-8.",
		})
	}
	if e := out.Get("error"); !e.IsMissing() && e.Kind() != value.Null {
		return value.Value{}, 0, rejection(code, e)
	}
	return out, len(raw), nil
}

// notLoaded returns the fault for code that the server does not have, or could not use when the spec was deployed.
func notLoaded(code *spec.Code) *sandbox.Fault {
	f := &sandbox.Fault{Kind: sandbox.Start, Detail: "the code is not loaded", Hint: "See what the server's log says of it, and deploy the spec again."}
	if code.Runtime == spec.WASM {
		f.Detail = fmt.Sprintf("the blob %s is missing in this environment, or it could not be loaded", j17.Printable(code.Artifact))
		f.Hint = fmt.Sprintf("Upload it to this environment with 'j17 blobs put FILE %s --env ENVIRONMENT'; nothing has to be deployed again. Until then, trying again cannot help.", j17.Printable(code.Artifact))
	}
	return f
}

// rejection returns the error for an error that custom code has returned.
func rejection(code *spec.Code, e value.Value) error {
	d := rejectionDetails{
		Type: e.Get("type").Str(), Message: e.Get("message").Str(), Code: e.Get("code").Str(),
		Context: e.Get("context"),
	}
	if e.Get("type").Kind() != value.String || e.Get("message").Kind() != value.String {
		return faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: "the error that the code returned has no type or no message",
			Hint: `Return {"error": {"type": "...", "message": "..."}}, both strings.`,
		})
	}
	out := j17.Errorf(j17.CodeHandlerRejected, "%s", d.Message)
	if d.Message == "" {
		out.Message = "The event was refused by the aggregate's own rules: " + d.Type
	}
	out.Details = d
	return out
}

// faulty turns a fault of custom code into the error that the caller sees.
func faulty(code *spec.Code, err error) error {
	fault, ok := errors.AsType[*sandbox.Fault](err)
	if !ok {
		return err
	}
	name := code.Artifact
	if name == "" {
		name = code.Entrypoint
	}
	out := j17.Errorf(j17.CodeCustomCodeFailed, "The custom code %s failed (%s): %s. Nothing was changed.", j17.Printable(name), fault.Kind, fault.Detail)
	switch fault.Kind {
	case sandbox.Busy:
		out = j17.Errorf(j17.CodeUnavailable, "The custom code %s could not run now: %s. Nothing was changed. Try again.", j17.Printable(name), fault.Detail)
	case sandbox.Exhausted:
		out = j17.Errorf(j17.CodeWorkLimit, "The custom code %s was stopped: %s. Nothing was changed.", j17.Printable(name), fault.Detail)
	case sandbox.Timeout, sandbox.Memory, sandbox.Trap, sandbox.InvalidOutput, sandbox.Exit, sandbox.Start:
	}
	out.Details = faultDetails{Kind: fault.Kind, Hint: fault.Hint, Artifact: code.Artifact, Entrypoint: code.Entrypoint}
	out.Plain = !fault.Quotes
	return out.Because(fault)
}

// ReplayFailed returns the error for an error of custom code on an event that was accepted before: it is not the fault
// of the caller that reads the state. length is that of the stream with the event.
func ReplayFailed(err error, ev *tick.Event, length uint64) error {
	cause, ok := errors.AsType[*j17.Error](err)
	if ok && cause.Code == j17.CodeWorkLimit {
		return tooMuchWork(cause, ev, length)
	}
	if !ok || cause.Code != j17.CodeHandlerRejected && cause.Code != j17.CodeCustomCodeFailed {
		return err
	}
	d := replayDetails{faultDetails: faultDetails{Kind: refusedReplay, Hint: "Deploy code that accepts the events there are; they are all safe."}, Key: ev.Key, EventType: ev.Type, Length: length}
	if fault, ok := cause.Details.(faultDetails); ok {
		d.faultDetails = fault
	} else {
		d.Rejection = cause.Details
	}
	out := j17.Errorf(j17.CodeCustomCodeFailed, "The state of %s cannot be computed: the custom code of its stored event number %d, %s, failed or refused it: %s",
		ev.Key, length, ev.Type, strings.TrimSuffix(cause.Message, " Nothing was changed."))
	out.Plain, out.Details = cause.Plain, d
	return out.Because(cause)
}

// WorkDetails are the details of the error for an event that takes too much work.
type WorkDetails struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
	// Length is that of the stream with the event, if it is stored.
	Length uint64 `json:"length,omitempty"`
	// Pointer is the place of the implication, the handler or the schema in the spec, Chain leads from the command's
	// own event to the event, and Details are those of a fault of custom code.
	Pointer diag.Pointer `json:"pointer,omitempty"`
	Chain   []Link       `json:"chain,omitempty"`
	Details any          `json:"details,omitempty"`
}

// tooMuchWork returns the error for a stored event that takes more work, with its present handler, than the fold of one
// event may.
func tooMuchWork(cause *j17.Error, ev *tick.Event, length uint64) error {
	out := j17.Errorf(j17.CodeWorkLimit, "The state of %s cannot be computed: its stored event number %d, %s, takes more than the %d units of work that one event may take. Deploy a handler that does less.",
		ev.Key, length, ev.Type, work.Replay)
	out.Plain = true
	out.Details = WorkDetails{Key: ev.Key, EventType: ev.Type, Length: length}
	return out.Because(cause)
}

// refusedReplay is the kind of fault of code that refuses an event which is stored already.
const refusedReplay sandbox.Kind = "refused_replay"

// replayDetails are the details of an error caused by a stored event.
type replayDetails struct {
	faultDetails

	Key       string `json:"key"`
	EventType string `json:"event_type"`
	Length    uint64 `json:"length"`
	Rejection any    `json:"rejection,omitempty"`
}

// Record names the stored event, by which an erasure finds records of the error: see j17.Record.
func (d replayDetails) Record() string {
	return fmt.Sprintf("the state of %s cannot be computed for its stored event number %d, %s", d.Key, d.Length, d.EventType)
}

// imply runs an implication in custom code. In emit mode the result is the array of emits, in transform mode the object
// that enriches the context.
func (f Functions) imply(
	ctx context.Context, code *spec.Code, ev *tick.Event, state value.Value, more []value.Member, b *work.Budget,
) (value.Value, error) {
	in := append(make([]byte, 0, 1024), `{"event":`...)
	in = appendEvent(in, ev)
	in = append(in, `,"state":`...)
	in = state.OrNull().AppendJSON(in)
	in = append(in, `},"context":`...)
	in = value.ObjectValue(more...).AppendJSON(in)
	in = append(in, '}')
	out, _, err := f.call(ctx, code, in, b)
	if err != nil {
		return value.Value{}, err
	}

	// A step of a pipeline returns the members for the steps after it.
	if code.Transform {
		if inner := out.Get("context"); inner.Kind() == value.Object {
			out = inner
		}
		if out.Kind() != value.Object {
			return value.Value{}, faulty(code, &sandbox.Fault{
				Kind: sandbox.InvalidOutput, Detail: "the answer of a transform step is no object", Hint: `Return {"context": {...}} with what later steps need.`,
			})
		}
		return out, nil
	}

	// All others return the actions.
	if actions := out.Get("actions"); !actions.IsMissing() {
		out = actions
	}
	if out.Kind() != value.Array {
		return value.Value{}, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: "the answer has no array of actions", Hint: `Return {"actions": [{"emit": {...}}]}; the array may be empty.`,
		})
	}
	return out, nil
}
