package command

import (
	"slices"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// MaxBatch is the number of events that one batch may hold.
const MaxBatch = 10_000

// Read makes a command from the body of a request: {"data", "conditions", "metadata"} of an event of the given type, or
// for "" a batch, {"events": [{"type", "data"}], "conditions", "metadata"}. The command has one write, whose aggregate
// the caller sets. A fault of the form of the body is kept with the command and reported when it is checked.
func Read(eventType string, body value.Value) Command {
	c := Command{Writes: make([]Write, 1)}
	if eventType != "" {
		c.single(eventType, body)
	} else {
		c.batch(body)
	}
	if c.fault == nil {
		c.ReadMetadata(body.Get("metadata"))
		c.ReadConditions(body.Get("conditions"))
	}
	return c
}

func (c *Command) single(eventType string, body value.Value) {
	c.Writes[0].Events = []Event{{Type: eventType, Data: body.Get("data")}}
	if err := OnlyMembers(body, "", "data", "conditions", "metadata"); err != nil {
		c.wrong(AtEvents, err)
	}
}

func (c *Command) batch(body value.Value) {
	w := &c.Writes[0]
	w.Batch = true
	if err := OnlyMembers(body, "", "events", "conditions", "metadata"); err != nil {
		c.wrong(AtEvents, err)
		return
	}
	events := body.Get("events")
	switch {
	case events.IsMissing():
		c.wrong(AtEvents, j17.Errorf(j17.CodeMissingField, "Missing 'events' array in request body").At("events"))
	case events.Kind() != value.Array:
		c.wrong(AtEvents, j17.Errorf(j17.CodeInvalidField, "'events' must be an array").At("events"))
	case events.Len() > MaxBatch:
		c.wrong(AtEvents, j17.Errorf(j17.CodePayloadTooLarge, "A batch can hold at most %d events, this one has %d. Split it.", MaxBatch, events.Len()).At("events"))
	}
	if c.fault != nil {
		return
	}
	w.Events = make([]Event, 0, events.Len())
	for i, v := range events.Elems() {
		ev, err := batchEvent(v)
		if err != nil {
			c.wrong(AtEvents, j17.InEvent(err, i))
			return
		}
		w.Events = append(w.Events, ev)
	}
}

func batchEvent(v value.Value) (Event, error) {
	if v.Kind() != value.Object {
		return Event{}, j17.Errorf(j17.CodeInvalidField, "An event must be a JSON object: its 'type', and its 'data' if it has any")
	}
	if err := OnlyMembers(v, "", "type", "data", "generation"); err != nil {
		return Event{}, err
	}
	name, data := v.Get("type"), v.Get("data")
	if name.IsMissing() {
		return Event{}, j17.Errorf(j17.CodeMissingField, "Every event of a batch needs a 'type'").At("type")
	}
	if name.Kind() != value.String {
		return Event{}, j17.Errorf(j17.CodeInvalidField, "The 'type' of an event must be a string").At("type")
	}
	if data.IsMissing() {
		data = value.ObjectValue()
	}
	return Event{
		Type: name.Str(), Data: data, Generation: v.Get("generation"), GenerationPath: "generation",
	}, nil
}

// ReadMetadata reads the actor, the target and the expected length from the metadata of a request with one write, and
// the generation of the data if it has a single event.
func (c *Command) ReadMetadata(meta value.Value) {
	known := []string{"actor", "target", "previous_length", "skip_occ", "generation"}
	if c.Writes[0].Batch {
		known = known[:len(known)-1] // each event says its own
	}
	c.readAgents(meta, known...)
	if c.fault != nil {
		return
	}
	if w := &c.Writes[0]; !w.Batch && len(w.Events) == 1 {
		w.Events[0].Generation, w.Events[0].GenerationPath = meta.Get("generation"), "metadata.generation"
	}
	if err := c.readExpected(meta); err != nil {
		c.wrong(AtExpected, err)
	}
}

// readAgents reads the actor and the target from metadata that may have the members known.
func (c *Command) readAgents(meta value.Value, known ...string) {
	if meta.IsMissing() {
		c.wrong(AtActor, j17.Errorf(j17.CodeMissingField, "Missing 'metadata': every event names its actor").At("metadata"))
		return
	}
	if err := OnlyMembers(meta, "metadata", known...); err != nil {
		c.wrong(AtActor, err)
		return
	}
	var err error
	if c.Actor, err = readActor(meta.Get("actor")); err != nil {
		c.wrong(AtActor, err)
		return
	}
	if v := meta.Get("target"); !v.IsMissing() {
		target, err := readAgent(v, "metadata.target")
		if err != nil {
			c.wrong(AtTarget, err)
			return
		}
		c.Target = &target
	}
}

// readExpected reads the mode of concurrency control: previous_length, skip_occ or neither.
func (c *Command) readExpected(meta value.Value) (err error) {
	w := &c.Writes[0]
	if w.Length, err = readLength(meta, "metadata"); err != nil {
		return err
	}
	v := meta.Get("skip_occ")
	if v.IsMissing() {
		return nil
	}
	if v.Kind() != value.Bool {
		return j17.Errorf(j17.CodeInvalidField, "'skip_occ' must be true or false").At("metadata.skip_occ")
	}
	if c.SkipOCC = v.Truth(); c.SkipOCC && w.Length != nil {
		return j17.Errorf(j17.CodeInvalidField, "'skip_occ' and 'previous_length' exclude each other: leave one out").At("metadata.skip_occ")
	}
	return nil
}

// readLength reads the previous_length of an object at a path, nil if there is none.
func readLength(in value.Value, path string) (*uint64, error) {
	v := in.Get("previous_length")
	if v.IsMissing() {
		return nil, nil
	}
	n, ok := v.Int64()
	if !ok || n < 0 {
		return nil, j17.Errorf(j17.CodeInvalidField, "'previous_length' must be an integer of 0 or more: the number of events the aggregate is expected to have").At(j17.JoinPath(path, "previous_length"))
	}
	return new(uint64(n)), nil
}

func readActor(v value.Value) (j17.Agent, error) {
	const path = "metadata.actor"
	if v.IsMissing() {
		return j17.Agent{}, j17.Errorf(j17.CodeMissingField, "Missing 'actor': every event names who caused it").At(path)
	}
	typ, id := v.Get("type"), v.Get("id")
	if typ.Kind() != value.String || !ident.IsSystemActorType(typ.Str()) {
		return readAgent(v, path)
	}
	if err := OnlyMembers(v, path, "type", "id"); err != nil {
		return j17.Agent{}, err
	}
	if id.Kind() != value.String {
		return j17.Agent{}, j17.Errorf(j17.CodeMissingField, "Missing 'id' of the actor").At(path + ".id")
	}
	return j17.Agent{Type: typ.Str(), ID: id.Str()}, nil
}

// readAgent reads the two halves of an actor or a target.
func readAgent(v value.Value, path string) (j17.Agent, error) {
	if err := OnlyMembers(v, path, "type", "id"); err != nil {
		return j17.Agent{}, err
	}
	var agent j17.Agent
	for _, member := range []struct {
		name string
		into *string
	}{{"type", &agent.Type}, {"id", &agent.ID}} {
		m := v.Get(member.name)
		if m.IsMissing() {
			return agent, j17.Errorf(j17.CodeMissingField, "Missing '%s' in '%s'", member.name, path).At(
				j17.JoinPath(path, member.name),
			)
		}
		if m.Kind() != value.String {
			return agent, j17.Errorf(j17.CodeInvalidField, "'%s' in '%s' must be a string", member.name, path).At(
				j17.JoinPath(path, member.name),
			)
		}
		*member.into = m.Str()
	}
	return agent, nil
}

// OnlyMembers checks that v, at path ("" for the whole body), is an object without members other than known. Misspelt
// members would be lost silently.
func OnlyMembers(v value.Value, path string, known ...string) error {
	if v.Kind() != value.Object {
		what := "The request body"
		if path != "" {
			what = "'" + path + "'"
		}
		return j17.Errorf(j17.CodeInvalidField, "%s must be a JSON object", what).At(path)
	}
	for _, m := range v.Members() {
		if !slices.Contains(known, m.Key) {
			return UnknownField(path, m.Key, known)
		}
	}
	return nil
}

// UnknownField returns the error for an unknown member of the object at path ("" for the whole body). known are its
// fields.
func UnknownField(path, name string, known []string) error {
	hint := "known fields are " + strings.Join(known, ", ")
	if len(known) == 0 {
		hint = "there are none here"
	}
	if near := diag.Nearest(name, known); near != "" {
		hint = "did you mean '" + near + "'?"
	}
	return j17.Errorf(j17.CodeUnknownField, "Unknown field '%s': %s", j17.Printable(name), hint).At(
		j17.JoinPath(path, j17.Printable(name)),
	)
}
