package decider

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
	"j17/internal/lang/spec"
)

// Admitted is a command that passed every check but those on the state of streams.
type Admitted struct {
	// Writes has the aggregates, and Events the events of all writes in order.
	Writes []AdmittedWrite
	Events []Event
	// Conditions name events that must not have happened.
	Conditions []Condition
	// several reports that the caller sent a list of writes.
	several bool
	// metadata is the metadata of all own events of the command. Implied events have its first shared bytes as well.
	metadata []byte
	// tags are those that all events have: of the actor, the target and correlation ids.
	tags   []string
	shared int

	// oneWrite, oneEvent and someTags save allocations for small commands.
	oneWrite [1]AdmittedWrite
	oneEvent [1]Event
	someTags [3]string
}

// AdmittedWrite is the part of a command that concerns one aggregate.
type AdmittedWrite struct {
	Key j17.Key
	// Its events are Events[From:To].
	From, To int
	// Expected is the length that the caller expects, nil for none.
	Expected *uint64
	// batch reports that the caller sent its events as a list.
	batch bool
}

// InWrite adds to an error the number of the write, if there are several.
func (a *Admitted) InWrite(err error, write int) error {
	if a.several {
		return j17.InWrite(err, write)
	}
	return err
}

// InOwn adds to an error the number of the command's own event that caused it, if the caller sent a list.
func (a *Admitted) InOwn(err error, own int) error {
	n := a.Events[own].Write
	if w := &a.Writes[n]; w.batch {
		err = j17.InEvent(err, own-w.From)
	}
	return a.InWrite(err, n)
}

// Reacts reports whether an event of the command may imply others, or may be refused because of a state, by the spec or
// by its handler.
func (a *Admitted) Reacts() bool {
	for i := range a.Events {
		if et := a.Events[i].Spec; et.Implications != nil || decides(et) ||
			MayRefuse(et, a.Events[i].Data.Size()+len(a.metadata)) {
			return true
		}
	}
	return false
}

// maxErrors bounds the findings that a failed schema check reports.
const maxErrors = 20

// Admit checks a command in the order of the contract: aggregate types, event types, keys, metadata, data. resolve
// returns the key of the aggregate of a write, and now is the Unix second that steps between generations see. The check
// of the data is charged to b. A command returned with an error has no fault but in the data of its events.
func (d *Decider) Admit(
	c *command.Command, now int64, b *work.Budget, resolve func(*command.Write) (j17.Key, error),
) (*Admitted, error) {
	// The types of aggregates and events, and the form of the body.
	a := &Admitted{several: c.Several}
	if a.Writes = a.oneWrite[:]; len(c.Writes) != 1 {
		a.Writes = make([]AdmittedWrite, len(c.Writes))
	} else if len(c.Writes[0].Events) == 1 {
		a.Events = a.oneEvent[:0]
	}
	for i := range c.Writes {
		if err := a.types(d, &c.Writes[i], i); err != nil {
			return nil, err
		}
	}
	if err := c.FaultAt(command.AtEvents); err != nil {
		return nil, err
	}
	for i := range a.Writes {
		if w := &a.Writes[i]; w.From == w.To {
			return nil, a.inBody(j17.Errorf(j17.CodeInvalidField, "Events array cannot be empty").At("events"), i)
		}
	}

	// The aggregates, the metadata and the conditions.
	for i := range a.Writes {
		key, err := resolve(&c.Writes[i])
		if err != nil {
			return nil, a.inBody(err, i)
		}
		a.Writes[i].Key = key
	}
	if err := a.apart(); err != nil {
		return nil, err
	}
	if err := a.readMetadata(d.Compiled, c); err != nil {
		return nil, err
	}
	var err error
	if a.Conditions, err = d.conditions(c.Conditions); err != nil {
		return nil, err
	}

	// The data.
	for i := range a.Events {
		a.Events[i].Key = a.Writes[a.Events[i].Write].Key
	}
	for i := range a.Events {
		if err := a.Events[i].renew(b, a.metadata, now); err != nil {
			return a, a.InOwn(err, i)
		}
		if err := a.Events[i].check(b); err != nil {
			return a, a.InOwn(err, i)
		}
	}
	a.write()
	for i := range a.Events {
		if err := a.Events[i].tag(a.tags, b); err != nil {
			return a, a.InOwn(err, i)
		}
	}
	return a, nil
}

// apart checks that all writes are to different aggregates.
func (a *Admitted) apart() error {
	if len(a.Writes) == 1 {
		return nil
	}
	seen := make(map[j17.Key]int, len(a.Writes))
	for i := range a.Writes {
		if first, twice := seen[a.Writes[i].Key]; twice {
			return a.inBody(j17.Errorf(j17.CodeInvalidField, "writes[%d] is to the same aggregate. Put all events of an aggregate into one write.", first).At("key"), i)
		}
		seen[a.Writes[i].Key] = i
	}
	return nil
}

// inBody gives an error about a write its path in the body of a request with several writes: that of the key if it has
// none.
func (a *Admitted) inBody(err error, write int) error {
	if e, ok := errors.AsType[*j17.Error](err); ok && a.several {
		return e.At(j17.JoinPath(fmt.Sprintf("writes[%d]", write), cmp.Or(e.Path, "key")))
	}
	return err
}

// write encodes the checked events.
func (a *Admitted) write() {
	size := 0
	for i := range a.Events {
		size += a.Events[i].Data.OrNull().Size()
	}
	data := make([]byte, 0, size)
	for i := range a.Events {
		from, o := len(data), &a.Events[i]
		data = o.Data.OrNull().AppendJSON(data)
		o.Key, o.JSON, o.Tags = a.Writes[o.Write].Key, data[from:len(data):len(data)], a.tags
		o.Metadata = o.inGeneration(a.metadata)
	}
}

// types finds the types of the events of a write.
func (a *Admitted) types(d *Decider, w *command.Write, number int) error {
	typ, err := d.AggregateType(w.Type)
	if err != nil && a.several {
		return a.inBody(j17.At(err, "key"), number)
	} else if err != nil {
		return err
	}
	from := len(a.Events)
	a.Writes[number] = AdmittedWrite{From: from, To: from + len(w.Events), Expected: w.Length, batch: w.Batch}
	a.Events = slices.Grow(a.Events, len(w.Events))
	for i := range w.Events {
		et, err := EventType(typ, w.Events[i].Type)
		generation, path := 0, "type"
		if err == nil {
			generation, err = writtenIn(et, &w.Events[i])
			path = "generation"
		}
		switch {
		case err != nil && w.Batch:
			return a.InWrite(j17.InEvent(j17.At(err, path), i), number)
		case err != nil:
			return err
		}
		a.Events = append(a.Events, Event{
			Type: et.Name, Spec: et, Data: w.Events[i].Data, generation: generation, kept: w.Events[i].Unsaid != 0,
			Cause: -1, Own: from + i, Write: number,
		})
	}
	return nil
}

// EventType returns the declaration of an event type that is to be written.
func EventType(typ *spec.AggregateType, name string) (*spec.EventType, error) {
	if ident.IsReservedEventType(name) {
		meant := ""
		if name == "_batch" { // not a type of the platform, but the route of batches in other systems
			meant = ". A batch is posted to /" + typ.Name + "/{id}, with no event type behind the id"
		}
		return nil, j17.Errorf(j17.CodeReservedEventType, "Event types that start with an underscore are written by the system only; '%s' cannot be posted%s", j17.Printable(name), meant)
	}
	if et := typ.Events[name]; et != nil {
		return et, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownEventType, "Event type '%s' not found in spec for aggregate '%s'%s", j17.Printable(name), typ.Name, diag.Meant(name, maps.Keys(typ.Events)))
}

// readMetadata checks the actor, the target and the expectation, and encodes the metadata.
func (a *Admitted) readMetadata(s *spec.Compiled, c *command.Command) error {
	// The actor.
	if err := c.FaultAt(command.AtActor); err != nil {
		return err
	}
	actor, err := admitActor(s, c)
	if err != nil {
		return err
	}
	a.tags = append(a.someTags[:0], j17.ActorTag(actor))
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

	// The expectation.
	if err := c.FaultAt(command.AtExpected); err != nil {
		return err
	}
	if c.SkipOCC {
		for i := range a.Events {
			if et := a.Events[i].Spec; !et.AllowSkipOCC {
				return j17.Errorf(j17.CodeSkipOCCNotAllowed, "Event type '%s' does not allow skip_occ. Set \"allow_skip_occ\": true for it in the spec, or leave skip_occ out.", et.Name).At("metadata.skip_occ")
			}
		}
	}

	// The correlation id.
	if c.CorrelationID != "" {
		if tag := j17.CorrelationTag(c.CorrelationID); tag != "" {
			a.tags = append(a.tags, tag)
		}
		a.metadata = append(a.metadata, `,"correlation_id":`...)
		a.metadata = value.AppendString(a.metadata, c.CorrelationID)
	}
	a.shared = len(a.metadata)
	for _, m := range c.Members {
		if m.Key == "correlation_id" {
			if tag := j17.CorrelationTag(m.Value.Str()); tag != "" {
				a.tags = append(a.tags, tag)
			}
		}
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

func admitAgent(
	agent j17.Agent, path string, declared spec.NameSet, list string, rules *ident.Rules,
) (j17.Agent, error) {
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

// check validates the data of an event against its schema and reads its location, charged to b. It returns b's error if
// that is exhausted.
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
	return o.unchecked(err, inType(o.Spec, "schema"))
}

// unchecked returns the error for data that could not be compared with the schema at a place of the spec.
func (o *Event) unchecked(err error, at diag.Pointer) error {
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok || cause.Code != j17.CodeWorkLimit {
		return err
	}
	out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the check of the data of an event %s against its schema, at %s. Nothing was written.", strings.TrimSuffix(cause.Message, "."), o.Type, at)
	out.Details = WorkDetails{EventType: o.Type, Pointer: at}
	return out.Because(cause)
}

func schemaError(failures []schema.Failure) error {
	first := failures[0]
	e := j17.Errorf(j17.CodeSchemaViolation, "Event data failed schema validation").At(j17.JoinPath("data", first.Path))
	e.Details = schemaDetails{
		Field: first.Path, Constraint: first.Constraint, Expected: first.Expected, Received: first.Received,
	}
	for _, f := range failures[:min(len(failures), maxErrors)] {
		e.Errors = append(e.Errors, j17.FieldError{Pointer: "/data" + f.Pointer, Message: f.Message, Plain: !f.Quotes})
	}
	return e
}
