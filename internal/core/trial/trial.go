package trial

import (
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// HandlerTrial is one event that is tried on one state.
type HandlerTrial struct {
	// AggregateType and ID name the aggregate, EventType the event. An ID of "" stands for "global".
	AggregateType, ID, EventType string
	// State is the state before the event, missing for that of a new aggregate.
	State value.Value
	// Reads has the states of the aggregates that the event reads, by the names of its reads. States may be null; those
	// left out are null too. It is missing or an object.
	Reads value.Value
	// Data is the event's data, {} if it is missing.
	Data value.Value
	// Generation is that of the data, 0 for the one that the metadata say or the spec assumes. With it the event is
	// read as one that is stored: its type may be retired, and its generation closed.
	Generation int
	// Metadata are the event's metadata. The default of the actor is the first agent type of the spec with the id
	// "global", that of the timestamp Now.
	Metadata value.Value
	// Now is the time in Unix seconds.
	Now int64
	// Functions are those of custom code. Implications in code without a function imply nothing, which is reported as a
	// fault; a handler without one cannot be tried.
	Functions decider.Functions
}

// HandlerOutcome is the result of trying a handler.
type HandlerOutcome struct {
	// Key is the aggregate's key in canonical form.
	Key j17.Key
	// State is the state after the event, without the timestamps that the engine adds to every state.
	State value.Value
	// Changed reports whether it differs from the state before.
	Changed bool
	// Faults lists the operations that changed nothing because they did not fit, with their places in the spec.
	Faults []diag.Diagnostic
	// Implied lists the events that the event implies if other aggregates have no events yet. Each comes after the one
	// that implies it.
	Implied []ImpliedEvent
	// Scheduled lists the events that the event and those it implies schedule.
	Scheduled []ScheduledEvent
}

// TryHandler checks an event as Execute does and applies its handler to a state. The findings are why it was not
// applied: their pointers start with /data or /metadata, or are empty if the names are at fault; findings for what the
// spec forbids have a Rule. The error is that of Reads, of an aggregate type or an event type that does not exist, of
// an id, or of a handler that this program cannot run.
func TryHandler(ctx context.Context, c *spec.Compiled, t HandlerTrial) (HandlerOutcome, []EventFinding, error) {
	d := decider.New(c, t.Functions)
	typ, err := d.AggregateType(t.AggregateType)
	if err != nil {
		return HandlerOutcome{}, nil, err
	}
	system := ident.IsReservedEventType(t.EventType) && typ.Events[t.EventType] != nil
	if !system {
		if _, err := decider.EventType(typ, t.EventType); err != nil {
			return HandlerOutcome{}, nil, err
		}
	}
	et := typ.Events[t.EventType]
	if et.Code != nil && t.Functions[et.Code] == nil {
		return HandlerOutcome{}, nil, j17.Errorf(j17.CodeInvalidSpec, "The handler of %s.%s is custom code, which cannot be tried here", typ.Name, et.Name)
	}

	// Set defaults.
	if t.ID == "" {
		t.ID = ident.Global
	}
	if _, err := d.Key(t.AggregateType, t.ID); err != nil {
		return HandlerOutcome{}, nil, err
	}
	if t.Data.IsMissing() {
		t.Data = value.ObjectValue()
	}
	if t.State.IsMissing() {
		t.State = value.ObjectValue()
	}
	cand := command.FileEvent{
		AggregateType: t.AggregateType, ID: t.ID, Type: t.EventType, Data: t.Data, Metadata: t.Metadata, Stored: system,
	}
	if names := c.AgentTypes.Sorted(); len(names) > 0 {
		cand.WithActor(j17.Agent{Type: names[0], ID: ident.Global})
	}
	if cand.Unsaid = t.Generation; t.Generation > 0 {
		cand.Past = true
	}

	// Check the event.
	e, faults := d.Examine(ctx, &cand)
	if len(faults) > 0 {
		event := value.ObjectValue(value.Member{Key: "data", Value: t.Data}, value.Member{
			Key: "metadata", Value: cand.Metadata,
		})
		var found []EventFinding
		for _, f := range faults {
			found = append(found, findings(event, f)...)
		}
		return HandlerOutcome{}, found, nil
	}
	if e.Timestamp == nil {
		e.Timestamp = &t.Now
	}

	// Check it against the spec, as what it is read as.
	if !system {
		et = e.Events[0].Spec
	}
	o, err := t.options(ctx, d, e, et)
	if err != nil {
		return HandlerOutcome{}, nil, err
	}
	if !system {
		err := d.Ask(ctx, &e.Admitted, o)
		if refused, ok := errors.AsType[*j17.Error](err); ok {
			return HandlerOutcome{}, findings(value.Value{}, refused), nil
		}
		if err != nil {
			return HandlerOutcome{}, nil, err
		}
	}

	// Apply the handler, and compute what is implied.
	out := HandlerOutcome{Key: e.Key, State: t.State}
	fault := func(f tick.Fault) { out.Faults = append(out.Faults, decider.Diagnose(c, f)) }
	ev := e.Events[0].Stored(*e.Timestamp)
	switch {
	case et.Handler != nil:
		if out.State, err = et.Handler.Apply(
			value.NewEditor(), t.State, ev, work.New(ctx, work.Command), fault,
		); err != nil {
			return HandlerOutcome{}, nil, err
		}
	case et.Code != nil:
		if out.State, err = t.Functions.Handle(ctx, et.Code, t.State, ev, work.New(ctx, work.Command)); err != nil {
			return HandlerOutcome{}, nil, err
		}
	}
	out.Changed = !value.Equal(t.State, out.State)
	if !system {
		err = out.implications(ctx, d, e, o, fault)
	}
	return out, nil, err
}

// options returns the options of a decision in which the event's aggregate has State, the aggregates that the event
// reads have Reads, and nothing is known of others.
func (t *HandlerTrial) options(
	ctx context.Context, d *decider.Decider, e *decider.Examined, et *spec.EventType,
) (decider.Options, error) {
	o := decider.Options{
		Timestamp: *e.Timestamp, MaxDepth: decider.DefaultMaxDepth, MaxImplied: decider.DefaultMaxImplied,
		Work: work.New(ctx, work.Command), Alone: true,
	}

	// An aggregate without a state counts as new or existing, whichever the event requires.
	length := uint64(0)
	if t.State.Len() > 0 || et.Creates == spec.CreatesNever {
		length = 1
	}
	o.Lookup = func(_ context.Context, key j17.Key) (*decider.State, error) {
		f := d.Program(key.Type).First()
		if key == e.Key {
			f.Data, f.Length = t.State, length
		}
		return f, nil
	}

	// The states that the event reads.
	if kind := t.Reads.Kind(); kind != value.Missing && kind != value.Object {
		return o, j17.Errorf(j17.CodeInvalidField, "The reads must be an object with a state for each name, such as {\"payee\": {\"currency\": \"EUR\"}}, not %s", t.Reads.Kind())
	}
	o.Reads = make([]value.Value, len(et.Reads))
	var names []string
	for i, read := range et.Reads {
		names = append(names, read.Name)
		o.Reads[i] = t.Reads.Get(read.Name).OrNull()
		if kind := o.Reads[i].Kind(); kind != value.Null && kind != value.Object {
			return o, j17.Errorf(j17.CodeInvalidField, "The state that '%s' reads must be an object, or null where there is no such aggregate, not %s", read.Name, kind)
		}
	}
	for _, m := range t.Reads.Members() {
		if !slices.Contains(names, m.Key) {
			return o, j17.Errorf(j17.CodeInvalidField, "The event reads nothing that is called '%s'%s", j17.Printable(m.Key), diag.Meant(m.Key, slices.Values(names)))
		}
	}
	return o, nil
}

// implications adds what an event implies and schedules.
func (out *HandlerOutcome) implications(
	ctx context.Context, d *decider.Decider, e *decider.Examined, o decider.Options, fault func(tick.Fault),
) error {
	o.Work = work.New(ctx, work.Command)
	o.Skipped = func(at diag.Pointer, code *spec.Code) { fault(tick.Fault{Pointer: at, Message: notRun(code)}) }
	x, err := d.Expand(ctx, &e.Admitted, o)
	if err != nil {
		return err
	}
	for _, i := range x.InOrder() {
		out.Implied = append(out.Implied, implied(&x.Events[i]))
	}
	var l later
	l.happened(x.Events, x.Scheduled, o.Timestamp, 0, 0)
	out.Scheduled = l.list
	return nil
}
