package decider

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/command"
	"j17/internal/ident"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/schema"
	"j17/internal/value"
	"j17/internal/work"
)

// Admitted is a command that passed every check but those on the state of streams.
type Admitted struct {
	Key    j17.Key
	Events []Event
	// Expected is the length that the caller expects; nil: no expectation.
	Expected *uint64
	// Timestamp is when the events happened, in Unix seconds; nil for events that happen when they are written.
	Timestamp *int64
	// metadata is what all events of the command have. What events that they imply share with them are its first bytes, shared
	// of them.
	metadata []byte
	// tags are those that all events have: of the actor and of the target.
	tags   []string
	shared int
}

// maxErrors bounds the findings that a failed schema check reports.
const maxErrors = 20

// Admit checks a command in the order of the contract: aggregate type, event types, key, metadata, data. resolve returns the
// aggregate's key. The data of all events is checked at the cost of b.
func (d *Decider) Admit(c *command.Command, b *work.Budget, resolve func() (j17.Key, error)) (*Admitted, error) {
	typ, err := d.AggregateType(c.Type)
	if err != nil {
		return nil, err
	}

	// The types of the events, and the form of the body.
	a := new(Admitted)
	if err := a.types(typ, c); err != nil {
		return nil, err
	}
	if err := c.FaultAt(command.AtEvents); err != nil {
		return nil, err
	}
	if len(a.Events) == 0 {
		return nil, j17.Errorf(j17.CodeInvalidField, "Events array cannot be empty").At("events")
	}

	// The aggregate, who causes the events, and what is expected.
	if a.Key, err = resolve(); err != nil {
		return nil, err
	}
	if err := a.readMetadata(d.Compiled, c); err != nil {
		return nil, err
	}

	// The data.
	for i := range a.Events {
		if err := a.Events[i].check(b); err != nil {
			if c.Batch {
				err = j17.InEvent(err, i)
			}
			return nil, err
		}
	}
	a.write()
	return a, nil
}

// write encodes the events that were checked.
func (a *Admitted) write() {
	data := make([]byte, 0, 512)
	for i := range a.Events {
		from, o := len(data), &a.Events[i]
		data = o.Data.OrNull().AppendJSON(data)
		o.Key, o.JSON, o.Metadata, o.Tags = a.Key, data[from:len(data):len(data)], a.metadata, a.tags
	}
}

// types finds the types of the events.
func (a *Admitted) types(typ *spec.AggregateType, c *command.Command) error {
	a.Events = make([]Event, len(c.Events))
	for i := range c.Events {
		et, err := EventType(typ, c.Events[i].Type)
		switch {
		case err != nil && c.Batch:
			return j17.InEvent(j17.At(err, "type"), i)
		case err != nil:
			return err
		}
		a.Events[i] = Event{Type: et.Name, Spec: et, Data: c.Events[i].Data, Cause: -1, Own: i}
	}
	return nil
}

// EventType returns what the spec says of an event type that somebody wants to write.
func EventType(typ *spec.AggregateType, name string) (*spec.EventType, error) {
	if ident.IsReservedEventType(name) {
		return nil, j17.Errorf(j17.CodeReservedEventType, "Event types that start with an underscore are written by the system only; '%s' cannot be posted", j17.Printable(name))
	}
	if et := typ.Events[name]; et != nil {
		return et, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownEventType, "Event type '%s' not found in spec for aggregate '%s'%s", j17.Printable(name), typ.Name, diag.Meant(name, maps.Keys(typ.Events)))
}

// readMetadata checks who causes the events and whom they concern, and writes it down.
func (a *Admitted) readMetadata(s *spec.Compiled, c *command.Command) error {
	// The actor.
	if err := c.FaultAt(command.AtActor); err != nil {
		return err
	}
	actor, err := admitActor(s, c)
	if err != nil {
		return err
	}
	a.tags = append(make([]string, 0, 2), j17.ActorTag(actor))
	a.metadata = append(make([]byte, 0, 256), `{"actor":`...)
	a.metadata = appendAgent(a.metadata, actor)

	// The target.
	if err := c.FaultAt(command.AtTarget); err != nil {
		return err
	}
	if c.Target != nil {
		target, err := admitAgent(*c.Target, "metadata.target", s.TargetTypes, "target_types", s.IDs)
		if err != nil {
			return err
		}
		a.tags = append(a.tags, j17.TargetTag(target))
		a.metadata = append(a.metadata, `,"target":`...)
		a.metadata = appendAgent(a.metadata, target)
	}

	// What is expected.
	if err := c.FaultAt(command.AtExpected); err != nil {
		return err
	}
	a.Expected = c.Length
	if c.SkipOCC {
		for i := range a.Events {
			if et := a.Events[i].Spec; !et.AllowSkipOCC {
				return j17.Errorf(j17.CodeSkipOCCNotAllowed, "Event type '%s' does not allow skip_occ. Set \"allow_skip_occ\": true for it in the spec, or leave skip_occ out.", et.Name).At("metadata.skip_occ")
			}
		}
	}

	// What the command comes from.
	if c.CorrelationID != "" {
		a.metadata = append(a.metadata, `,"correlation_id":`...)
		a.metadata = value.AppendString(a.metadata, c.CorrelationID)
	}
	a.shared = len(a.metadata)
	for _, m := range c.Members {
		a.metadata = append(a.metadata, ',')
		a.metadata = value.AppendString(a.metadata, m.Key)
		a.metadata = append(a.metadata, ':')
		a.metadata = m.Value.AppendJSON(a.metadata)
	}
	a.metadata = append(a.metadata, '}')
	return nil
}

func admitActor(s *spec.Compiled, c *command.Command) (j17.Agent, error) {
	const path = "metadata.actor"
	if !ident.IsSystemActorType(c.Actor.Type) {
		return admitAgent(c.Actor, path, s.AgentTypes, "agent_types", s.IDs)
	}
	if err := ident.CheckSystemAgent(c.Actor.ID); err != nil {
		return j17.Agent{}, j17.At(err, path+".id")
	}
	if !c.Trusted {
		return j17.Agent{}, j17.Errorf(j17.CodeForbidden, "Actor types that start with 'system_' are the platform's own; an API key cannot write as one").At(path + ".type")
	}
	return c.Actor, nil
}

func admitAgent(agent j17.Agent, path string, declared spec.NameSet, list string, rules *ident.Rules) (j17.Agent, error) {
	if !declared.Has(agent.Type) {
		return agent, j17.Errorf(j17.CodeUndeclaredType, "Type '%s' is not declared in the spec's %s%s", j17.Printable(agent.Type), list, diag.Meant(agent.Type, slices.Values(declared.Sorted()))).At(path + ".type")
	}
	id, _, err := rules.Check(agent.ID)
	if err != nil {
		return agent, j17.At(err, path+".id")
	}
	agent.ID = id
	return agent, nil
}

func appendAgent(dst []byte, a j17.Agent) []byte {
	dst = append(dst, `{"type":`...)
	dst = value.AppendString(dst, a.Type)
	dst = append(dst, `,"id":`...)
	dst = value.AppendString(dst, a.ID)
	return append(dst, '}')
}

// schemaDetails are the details of a failed schema check.
type schemaDetails struct {
	Field      string      `json:"field"`
	Constraint string      `json:"constraint"`
	Expected   value.Value `json:"expected"`
	Received   value.Value `json:"received"`
}

// check validates the data of an event against its schema and reads its place, at the cost of b. The error is b's where that ends.
func (o *Event) check(b *work.Budget) error {
	if err := (&command.Event{Data: o.Data}).Fault(); err != nil {
		return err
	}
	failures, err := o.Spec.Schema.Validate(o.Data, b)
	if len(failures) > 0 {
		return schemaError(failures)
	}
	if err == nil {
		return o.locate(b)
	}
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok || cause.Code != j17.CodeWorkLimit {
		return err
	}
	at := inType(o.Spec, "schema")
	out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the check of the data of an event %s against its schema, at %s. Nothing was written.", strings.TrimSuffix(cause.Message, "."), o.Type, at)
	out.Details = WorkDetails{EventType: o.Type, Pointer: at}
	return out.Because(cause)
}

func schemaError(failures []schema.Failure) error {
	first := failures[0]
	e := j17.Errorf(j17.CodeSchemaViolation, "Event data failed schema validation").At(j17.JoinPath("data", first.Path))
	e.Details = schemaDetails{Field: first.Path, Constraint: first.Constraint, Expected: first.Expected, Received: first.Received}
	for _, f := range failures[:min(len(failures), maxErrors)] {
		e.Errors = append(e.Errors, j17.FieldError{Pointer: "/data" + f.Pointer, Message: f.Message, Plain: !f.Quotes})
	}
	return e
}
