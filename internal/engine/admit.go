package engine

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"j17"
	"j17/internal/ident"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/schema"
	"j17/internal/value"
	"j17/internal/work"
)

// admitted is a command that passed every check but those on the state of streams.
type admitted struct {
	key    j17.Key
	events []proposed
	// metadata is the compact JSON object that all events of the command share.
	metadata []byte
	// expected is the length that the caller expects; nil: no expectation.
	expected *uint64
}

// proposed is one event of a command.
type proposed struct {
	typ  *spec.EventType
	data value.Value
}

// maxErrors bounds the findings that a failed schema check reports.
const maxErrors = 20

// admit checks a command in the order of the contract: aggregate type, event types, key, metadata, data. resolve returns the
// aggregate's key. The data of all events is checked at the cost of b.
func (d *deployed) admit(c *Command, b *work.Budget, resolve func() (j17.Key, error)) (*admitted, error) {
	typ, err := d.aggregateType(c.Type)
	if err != nil {
		return nil, err
	}
	var a admitted
	if c.EventType != "" {
		err = a.single(typ, c)
	} else {
		err = a.batch(typ, c)
	}
	if err != nil {
		return nil, err
	}
	if a.key, err = resolve(); err != nil {
		return nil, err
	}
	if err := a.readMetadata(d.spec, c); err != nil {
		return nil, err
	}
	for i := range a.events {
		if err := a.events[i].check(b); err != nil {
			if c.EventType == "" {
				err = j17.InEvent(err, i)
			}
			return nil, err
		}
	}
	return &a, nil
}

func (a *admitted) single(typ *spec.AggregateType, c *Command) error {
	et, err := eventType(typ, c.EventType)
	if err != nil {
		return err
	}
	if err := onlyMembers(c.Body, "", "data", "metadata"); err != nil {
		return err
	}
	a.events = []proposed{{typ: et, data: c.Body.Get("data")}}
	return nil
}

func (a *admitted) batch(typ *spec.AggregateType, c *Command) error {
	if err := onlyMembers(c.Body, "", "events", "metadata"); err != nil {
		return err
	}
	events := c.Body.Get("events")
	switch {
	case events.IsMissing():
		return j17.Errorf(j17.CodeMissingField, "Missing 'events' array in request body").At("events")
	case events.Kind() != value.Array:
		return j17.Errorf(j17.CodeInvalidField, "'events' must be an array").At("events")
	case events.Len() == 0:
		return j17.Errorf(j17.CodeInvalidField, "Events array cannot be empty").At("events")
	case events.Len() > MaxBatch:
		return j17.Errorf(j17.CodePayloadTooLarge, "A batch can hold at most %d events, this one has %d. Split it.", MaxBatch, events.Len()).At("events")
	}
	a.events = make([]proposed, 0, events.Len())
	for i, ev := range events.Elems() {
		et, err := batchEvent(typ, ev)
		if err != nil {
			return j17.InEvent(err, i)
		}
		data := ev.Get("data")
		if data.IsMissing() {
			data = value.ObjectValue()
		}
		a.events = append(a.events, proposed{typ: et, data: data})
	}
	return nil
}

// MaxBatch is the number of events that one batch may hold.
const MaxBatch = 10_000

func batchEvent(typ *spec.AggregateType, ev value.Value) (*spec.EventType, error) {
	if err := onlyMembers(ev, "", "type", "data"); err != nil {
		return nil, err
	}
	name := ev.Get("type")
	if name.IsMissing() {
		return nil, j17.Errorf(j17.CodeMissingField, "Every event of a batch needs a 'type'").At("type")
	}
	if name.Kind() != value.String {
		return nil, j17.Errorf(j17.CodeInvalidField, "The 'type' of an event must be a string").At("type")
	}
	et, err := eventType(typ, name.Str())
	return et, j17.At(err, "type")
}

func eventType(typ *spec.AggregateType, name string) (*spec.EventType, error) {
	if ident.IsReservedEventType(name) {
		return nil, j17.Errorf(j17.CodeReservedEventType, "Event types that start with an underscore are written by the system only; '%s' cannot be posted", j17.Printable(name))
	}
	if et := typ.Events[name]; et != nil {
		return et, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownEventType, "Event type '%s' not found in spec for aggregate '%s'%s", j17.Printable(name), typ.Name, diag.Meant(name, maps.Keys(typ.Events)))
}

// onlyMembers checks that v is an object without members other than known. Misspelt members would be lost silently.
func onlyMembers(v value.Value, path string, known ...string) error {
	if v.Kind() != value.Object {
		what := "The request body"
		if path != "" {
			what = "'" + path + "'"
		}
		return j17.Errorf(j17.CodeInvalidField, "%s must be a JSON object", what).At(path)
	}
	for _, m := range v.Members() {
		if slices.Contains(known, m.Key) {
			continue
		}
		return UnknownField(path, m.Key, known)
	}
	return nil
}

// UnknownField refuses a member of the object at path, "" for the whole body, whose fields are known.
func UnknownField(path, name string, known []string) error {
	hint := "known fields are " + strings.Join(known, ", ")
	if len(known) == 0 {
		hint = "there are none here"
	}
	if near := diag.Nearest(name, known); near != "" {
		hint = "did you mean '" + near + "'?"
	}
	return j17.Errorf(j17.CodeUnknownField, "Unknown field '%s': %s", j17.Printable(name), hint).At(j17.JoinPath(path, j17.Printable(name)))
}

func (a *admitted) readMetadata(s *spec.Compiled, c *Command) error {
	meta := c.Body.Get("metadata")
	if meta.IsMissing() {
		return errNoMetadata()
	}
	if err := onlyMembers(meta, "metadata", "actor", "target", "previous_length", "skip_occ"); err != nil {
		return err
	}
	actor, err := readActor(s, meta.Get("actor"), c.Trusted)
	if err != nil {
		return err
	}
	a.metadata = append(make([]byte, 0, 256), `{"actor":`...)
	a.metadata = appendAgent(a.metadata, actor)
	if t := meta.Get("target"); !t.IsMissing() {
		target, err := readAgent(t, "metadata.target", s.TargetTypes, "target_types", s.IDs)
		if err != nil {
			return err
		}
		a.metadata = append(a.metadata, `,"target":`...)
		a.metadata = appendAgent(a.metadata, target)
	}
	if c.CorrelationID != "" {
		a.metadata = append(a.metadata, `,"correlation_id":`...)
		a.metadata = value.AppendString(a.metadata, c.CorrelationID)
	}
	a.metadata = append(a.metadata, '}')
	return a.readConcurrency(meta)
}

// readConcurrency reads the mode of concurrency control: previous_length, skip_occ or neither.
func (a *admitted) readConcurrency(meta value.Value) error {
	if v := meta.Get("previous_length"); !v.IsMissing() {
		n, ok := v.Int64()
		if !ok || n < 0 {
			return j17.Errorf(j17.CodeInvalidField, "'previous_length' must be an integer of 0 or more: the number of events the aggregate is expected to have").At("metadata.previous_length")
		}
		expected := uint64(n)
		a.expected = &expected
	}
	v := meta.Get("skip_occ")
	if v.IsMissing() {
		return nil
	}
	if v.Kind() != value.Bool {
		return j17.Errorf(j17.CodeInvalidField, "'skip_occ' must be true or false").At("metadata.skip_occ")
	}
	if !v.Truth() {
		return nil
	}
	if a.expected != nil {
		return j17.Errorf(j17.CodeInvalidField, "'skip_occ' and 'previous_length' exclude each other: leave one out").At("metadata.skip_occ")
	}
	for i := range a.events {
		if et := a.events[i].typ; !et.AllowSkipOCC {
			return j17.Errorf(j17.CodeSkipOCCNotAllowed, "Event type '%s' does not allow skip_occ. Set \"allow_skip_occ\": true for it in the spec, or leave skip_occ out.", et.Name).At("metadata.skip_occ")
		}
	}
	return nil
}

func readActor(s *spec.Compiled, v value.Value, trusted bool) (j17.Agent, error) {
	const path = "metadata.actor"
	if v.IsMissing() {
		return j17.Agent{}, errNoActor()
	}
	if typ := v.Get("type"); typ.Kind() == value.String && ident.IsSystemActorType(typ.Str()) {
		if err := onlyMembers(v, path, "type", "id"); err != nil {
			return j17.Agent{}, err
		}
		id := v.Get("id")
		if id.Kind() != value.String {
			return j17.Agent{}, j17.Errorf(j17.CodeMissingField, "Missing 'id' of the actor").At(path + ".id")
		}
		if err := ident.CheckSystemAgent(id.Str()); err != nil {
			return j17.Agent{}, j17.At(err, path+".id")
		}
		if !trusted {
			return j17.Agent{}, j17.Errorf(j17.CodeForbidden, "Actor types that start with 'system_' are the platform's own; an API key cannot write as one").At(path + ".type")
		}
		return j17.Agent{Type: typ.Str(), ID: id.Str()}, nil
	}
	return readAgent(v, path, s.AgentTypes, "agent_types", s.IDs)
}

func errNoMetadata() error {
	return j17.Errorf(j17.CodeMissingField, "Missing 'metadata': every event names its actor").At("metadata")
}

func errNoActor() error {
	return j17.Errorf(j17.CodeMissingField, "Missing 'actor': every event names who caused it").At("metadata.actor")
}

func readAgent(v value.Value, path string, declared spec.Names, list string, rules *ident.Rules) (j17.Agent, error) {
	agent, err := readHalves(v, path)
	if err != nil {
		return agent, err
	}
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

// readHalves reads an actor or target as far as that needs no spec.
func readHalves(v value.Value, path string) (j17.Agent, error) {
	if err := onlyMembers(v, path, "type", "id"); err != nil {
		return j17.Agent{}, err
	}
	var agent j17.Agent
	for _, half := range []struct {
		name string
		into *string
	}{{"type", &agent.Type}, {"id", &agent.ID}} {
		m := v.Get(half.name)
		if m.IsMissing() {
			return agent, j17.Errorf(j17.CodeMissingField, "Missing '%s' in '%s'", half.name, path).At(j17.JoinPath(path, half.name))
		}
		if m.Kind() != value.String {
			return agent, j17.Errorf(j17.CodeInvalidField, "'%s' in '%s' must be a string", half.name, path).At(j17.JoinPath(path, half.name))
		}
		*half.into = m.Str()
	}
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

// check validates the data of an event against its schema, at the cost of b. The error is b's where that ends.
func (p *proposed) check(b *work.Budget) error {
	if p.data.IsMissing() {
		return errNoData()
	}
	failures, err := p.typ.Schema.Validate(p.data, b)
	if len(failures) > 0 {
		return schemaError(failures)
	}
	cause, ok := errors.AsType[*j17.Error](err)
	if !ok || cause.Code != j17.CodeWorkLimit {
		return err
	}
	at := inType(p.typ, "schema")
	out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the check of the data of an event %s against its schema, at %s. Nothing was written.", strings.TrimSuffix(cause.Message, "."), p.typ.Name, at)
	out.Details = workDetails{EventType: p.typ.Name, Pointer: at}
	return out.Because(cause)
}

func errNoData() error {
	return j17.Errorf(j17.CodeMissingField, "Missing 'data': the event's payload, {} if it has none").At("data")
}

func schemaError(failures []schema.Failure) error {
	first := failures[0]
	e := j17.Errorf(j17.CodeSchemaViolation, "Event data failed schema validation").At(j17.JoinPath("data", first.Path))
	e.Details = schemaDetails{Field: first.Path, Constraint: first.Constraint, Expected: first.Expected, Received: first.Received}
	for _, f := range failures[:min(len(failures), maxErrors)] {
		e.Errors = append(e.Errors, j17.FieldError{Pointer: "/data" + f.Pointer, Message: f.Message})
	}
	return e
}
