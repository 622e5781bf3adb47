package engine

import (
	"j17"
	"j17/internal/ident"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// HandlerTrial is one event that is tried on one state.
type HandlerTrial struct {
	// AggregateType, ID and EventType name the aggregate and what happens to it. An ID of "" stands for "global".
	AggregateType, ID, EventType string
	// State is the state before the event, missing for that of a new aggregate.
	State value.Value
	// Data is the event's data, {} where it is missing.
	Data value.Value
	// Metadata are the event's metadata. An actor and a timestamp that are left out are made up: the first agent type of
	// the spec with the id "global", and Now.
	Metadata value.Value
	// Now is the time in Unix seconds.
	Now int64
}

// HandlerOutcome tells what a handler did.
type HandlerOutcome struct {
	// Key is the aggregate's key in canonical form.
	Key j17.Key
	// State is the state after the event, without the timestamps that the engine adds to every state.
	State value.Value
	// Changed reports whether it differs from the state before.
	Changed bool
	// Faults lists the operations that changed nothing because they did not fit, with their places in the spec.
	Faults []diag.Diagnostic
}

// TryHandler checks an event as Execute does and applies its handler to a state. The findings tell why it was not
// applied: their pointers start with /data or /metadata, or are empty where the names are at fault. The error is that of
// an aggregate type or an event type that does not exist, of an id, or of a handler that this program cannot run.
func TryHandler(c *spec.Compiled, t HandlerTrial) (HandlerOutcome, []EventFinding, error) {
	d := &deployed{c}
	typ, err := d.aggregateType(t.AggregateType)
	if err != nil {
		return HandlerOutcome{}, nil, err
	}
	system := ident.IsReservedEventType(t.EventType) && typ.Events[t.EventType] != nil
	if !system {
		if _, err := eventType(typ, t.EventType); err != nil {
			return HandlerOutcome{}, nil, err
		}
	}
	et := typ.Events[t.EventType]
	if et.Code != nil {
		return HandlerOutcome{}, nil, j17.Errorf(j17.CodeInvalidSpec, "The handler of %s.%s is custom code, which cannot be tried here", typ.Name, et.Name)
	}
	if t.ID == "" {
		t.ID = ident.Global
	}
	if _, err := d.key(t.AggregateType, t.ID); err != nil {
		return HandlerOutcome{}, nil, err
	}
	if t.Data.IsMissing() {
		t.Data = value.ObjectValue()
	}
	if t.State.IsMissing() {
		t.State = value.ObjectValue()
	}
	cand := candidate{
		aggregateType: t.AggregateType, id: t.ID, eventType: t.EventType, data: t.Data, metadata: withActor(c, t.Metadata), recorded: system,
	}
	e, faults := d.examine(&cand)
	if len(faults) > 0 {
		event := value.ObjectValue(value.Member{Key: "data", Value: t.Data}, value.Member{Key: "metadata", Value: cand.metadata})
		var found []EventFinding
		for _, f := range faults {
			found = append(found, findings(event, f)...)
		}
		return HandlerOutcome{}, found, nil
	}
	if e.timestamp == nil {
		e.timestamp = &t.Now
	}
	out := HandlerOutcome{Key: e.key, State: t.State}
	if et.Handler != nil {
		out.State = et.Handler.Apply(value.NewEditor(), t.State, cand.event(e, *e.timestamp), func(f tick.Fault) {
			out.Faults = append(out.Faults, inSpec(c, f))
		})
	}
	out.Changed = !value.Equal(t.State, out.State)
	return out, nil, nil
}

// withActor adds an actor to metadata that have none.
func withActor(c *spec.Compiled, metadata value.Value) value.Value {
	if !metadata.IsMissing() && metadata.Kind() != value.Object || !metadata.Get("actor").IsMissing() {
		return metadata
	}
	names := c.AgentTypes.Sorted()
	if len(names) == 0 {
		return metadata
	}
	actor := value.ObjectValue(value.Member{Key: "type", Value: value.StringValue(names[0])}, value.Member{Key: "id", Value: value.StringValue(ident.Global)})
	members := []value.Member{{Key: "actor", Value: actor}}
	return value.ObjectValue(append(members, metadata.Members()...)...)
}
