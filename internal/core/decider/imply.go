package decider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// The defaults of Options.MaxDepth and Options.MaxImplied.
const (
	DefaultMaxDepth   = 5
	DefaultMaxImplied = 100
)

// MaxEvents bounds all events that one command writes. A store accepts as many in one unit.
const MaxEvents = 20_000

// maxImpliedBytes bounds the data of all events that one command implies.
const maxImpliedBytes = 16 << 20

// Options are the inputs of a decision.
type Options struct {
	// Timestamp is the time of the decision, in Unix seconds.
	Timestamp int64
	// MaxDepth and MaxImplied bound what one event may imply.
	MaxDepth, MaxImplied int
	// Work is the budget of all conditions, templates and handlers.
	Work *work.Budget
	// Lookup returns the present state of an aggregate. Length returns only its number of events; nil if a state costs
	// no more.
	Lookup func(context.Context, j17.Key) (*State, error)
	Length func(context.Context, j17.Key) (uint64, error)
	// Resolve, if not nil, returns the key of an aggregate by its id or one of its names; the error is
	// CodeAggregateNotFound if no aggregate has the name.
	Resolve func(ctx context.Context, aggregateType, name string) (j17.Key, error)
	// Holders returns the holders of unique values before the command; nil if there are none.
	Holders Holders
	// All collects in Refusals all failed guards of a refused event, not only the first.
	All bool
	// Alone reports that nothing is known of other aggregates: only the command's own events are checked against the
	// spec, and Reads, if not nil, are the states that their type reads, in its order.
	Alone bool
	Reads []value.Value
	// Skipped, if not nil, is called for custom code without a function; such code implies nothing and leaves states
	// unchanged. Handlers that may refuse an event are then left to the caller.
	Skipped func(at diag.Pointer, code *spec.Code)
}

// Decision is the result of a command: its own events, followed by the events that they imply, breadth first: first
// those implied by the command's own events, in order, then those implied by these, and so on. Every event is checked
// as if it had come from outside. Implications see the states before the command, whatever else it writes; the checks
// of whether an event may be written see the states at the event's place in the write.
type Decision struct {
	// Events are all events, the command's own first.
	Events []Event
	// Before has the states that were read, and Looked their keys in the order of reading.
	Before map[j17.Key]*State
	Looked []j17.Key
	// Absent are the keys of aggregates that must have no events before the command.
	Absent []j17.Key
	// Unique has the holders of unique values in the end, nil if none were read.
	Unique *Values
	// Refusals are the errors of all failed guards, with Options.All.
	Refusals []error
	// Scheduled are the events for later, in the order in which they were scheduled.
	Scheduled []Scheduled
	// Failure describes why the command was rejected because of an implied event, else nil.
	Failure *ImplicationFailure

	Options
	d       *Decider
	command *Admitted
	// base is the part of the own events' metadata that all events share, without its closing brace.
	base []byte
	// env evaluates conditions, paths and templates. It is the same for all events, so that an array searched for each
	// of them is known the next time.
	env *tick.Env
	// running has the states at places in the write, as far as they were needed; of has the numbers of the first
	// numbered events, by aggregate.
	running  map[j17.Key]*running
	of       map[j17.Key][]int
	numbered int
	// implied counts the events that each of the command's own events implies, directly or indirectly.
	implied []int
	bytes   int
	// waits counts scheduled events and cancellations.
	waits int
}

// Event is an event that is about to be written.
type Event struct {
	Key j17.Key
	// Type is the name of its type, and Spec the declaration of that in the spec, nil for the platform's own types.
	Type string
	Spec *spec.EventType
	Data value.Value
	// JSON is Data in the form in which it is stored, and Metadata a compact object without the timestamp.
	JSON     []byte
	Metadata []byte
	// Tags are those of the actor and the target, and those that its type declares, except those that depend on the
	// time of the event (TagsAt).
	Tags []string
	// Cause is the number of the event that implied this one, -1 for the command's own events; Own is the number of the
	// command's event at the beginning of the chain, Write that of its write, and Depth the number of links from Own to
	// this event.
	Cause, Own, Write, Depth int
	// At is the implication's place in the spec.
	At diag.Pointer
	// Place is the location of the aggregate that the event states, nil if it states none.
	Place *Location
	// Exchanges are the unique values that an event which happened before takes and gives back; new events exchange
	// theirs when they are decided.
	Exchanges []Exchange
	// generation is the one that the caller has sent the data in, 0 for the newest. It is 0 once they are in that.
	generation int
	// past reports that the event happened before, kept that the server itself has kept its data until now.
	past, kept bool
	// was is how the event was sent, and how it is stored if it happened before; nil where that is how it is read.
	was *history
	// reads are the states of other aggregates that the event's type reads, as of the event's place in the write.
	reads []value.Value
}

// ReadAs returns the names under which others may wait for the event: its type, and those that are read as it.
func (o *Event) ReadAs() []string {
	if o.Spec == nil || len(o.Spec.ReadAs) == 0 {
		return []string{o.Type}
	}
	names := []string{o.Type}
	for _, et := range o.Spec.ReadAs {
		names = append(names, et.Name)
	}
	return names
}

// Is reports whether a test passes for one of the names under which others may wait for the event.
func (o *Event) Is(test func(name string) bool) bool {
	return test(o.Type) || o.Spec != nil && slices.ContainsFunc(
		o.Spec.ReadAs, func(et *spec.EventType) bool { return test(et.Name) },
	)
}

// Expand decides an admitted command. A Decision returned with an error has the states that were read, and the reason
// for the rejection.
func (d *Decider) Expand(ctx context.Context, a *Admitted, o Options) (*Decision, error) {
	x := d.decision(a, o)
	for i := range a.Events {
		if err := x.decide(ctx, i); err != nil {
			return x, err
		}
	}
	for i := 0; i < len(x.Events); i++ {
		if x.Events[i].Spec == nil || len(x.Events[i].Spec.Implications) == 0 {
			continue
		}
		s := x.scene(ctx, i)
		for _, imp := range x.Events[i].Spec.Implications {
			if err := s.imply(imp); err != nil {
				return x, x.tooMuch(err, i, "what it implies", imp.Pointer)
			}
		}
	}
	return x, nil
}

// Ask checks against the spec whether the command's own events may be written. It ignores what they imply and whether
// their handlers refuse them.
func (d *Decider) Ask(ctx context.Context, a *Admitted, o Options) error {
	x := d.decision(a, o)
	for i := range a.Events {
		if err := x.ask(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// decision begins to decide an admitted command.
func (d *Decider) decision(a *Admitted, o Options) *Decision {
	return &Decision{
		Options: o, d: d, command: a, base: a.metadata[:a.shared],
		Events: slices.Clip(a.Events), implied: make([]int, len(a.Events)),
	}
}

// InOrder returns the numbers of the implied events, depth first, each after the one that implies it.
func (x *Decision) InOrder() []int {
	children := make([][]int, len(x.Events))
	var own []int
	for i := range x.Events {
		if c := x.Events[i].Cause; c >= 0 {
			children[c] = append(children[c], i)
		} else {
			own = append(own, i)
		}
	}
	var order []int
	var visit func(i int)
	visit = func(i int) {
		for _, child := range children[i] {
			order = append(order, child)
			visit(child)
		}
	}
	for _, i := range own {
		visit(i)
	}
	return order
}

// seen returns the event as its implications see it. Its metadata are parsed only when needed.
func (o *Event) seen(timestamp int64) *tick.Event {
	return &tick.Event{
		Key: o.Key.String(), Type: o.Type, Timestamp: timestamp, Data: tick.Parsed(o.Data),
		Metadata: tick.Raw(j17.AppendTimestamp(o.Metadata, timestamp)),
	}
}

// Stored returns the event as a fold sees it. It refers to no other memory of the request.
func (o *Event) Stored(timestamp int64) *tick.Event {
	return &tick.Event{
		Key: o.Key.String(), Type: o.Type, Timestamp: timestamp, Data: tick.Raw(o.JSON),
		Metadata: tick.Raw(j17.AppendTimestamp(o.Metadata, timestamp)),
	}
}

// stateBefore returns the state of an aggregate before the command.
func (x *Decision) stateBefore(ctx context.Context, key j17.Key) (*State, error) {
	if f := x.Before[key]; f != nil {
		return f, nil
	}
	f, err := x.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	if x.Before == nil {
		x.Before = map[j17.Key]*State{}
	}
	x.Before[key] = f
	x.Looked = append(x.Looked, key)
	return f, nil
}

// scene is one event while its implications are evaluated.
type scene struct {
	*Decision
	ctx   context.Context //nolint:containedctx // lives as long as one call
	cause int
	event *tick.Event
	// state is the state before the command, looked up when it is needed.
	state value.Value
	// more has the members that steps of a pipeline have added.
	more []value.Member
}

func (x *Decision) scene(ctx context.Context, cause int) *scene {
	o := &x.Events[cause]
	s := &scene{Decision: x, ctx: ctx, cause: cause, event: o.seen(x.Timestamp)}
	if x.env == nil {
		x.env = tick.NewEnv(x.Work)
	}
	x.env.Renew(s.event)
	x.env.SetReads(o.reads)
	return s
}

// needState loads the state before the command if something that is about to be evaluated reads it.
func (s *scene) needState(reads bool) error {
	if !reads || !s.state.IsMissing() {
		return nil
	}
	f, err := s.stateBefore(s.ctx, s.Events[s.cause].Key)
	if err != nil {
		return err
	}
	s.state = f.Data
	s.env.SetState(s.state)
	return nil
}

func (s *scene) imply(imp *spec.Implication) error {
	holds, err := s.holds(imp.Condition)
	if err != nil || !holds {
		return err
	}
	switch {
	case imp.Emit != nil:
		return s.emit(imp.Emit)
	case imp.Map != nil:
		return s.each(imp.Map)
	case imp.Schedule != nil:
		return s.schedule(imp.Schedule)
	case imp.Code != nil:
		return s.run(imp.Code, imp.Pointer)
	case imp.Pipeline != nil:
		more := s.more
		for _, step := range imp.Pipeline {
			if err := s.imply(step); err != nil {
				return s.tooMuch(err, s.cause, "what it implies", step.Pointer)
			}
		}
		s.extend(more)
	}
	return nil
}

// extend sets the members that steps of a pipeline have added.
func (s *scene) extend(more []value.Member) {
	s.more = more
	s.env.Extend(more)
}

// holds tests a condition. One that cannot be evaluated does not hold.
func (s *scene) holds(c *tick.Predicate) (bool, error) {
	if c == nil {
		return true, nil
	}
	if err := s.needState(c.ReadsState()); err != nil {
		return false, err
	}
	holds, ok, err := c.Test(s.env)
	return holds && ok, err
}

// each emits for every element of an array. Values that are not arrays have none.
func (s *scene) each(m *spec.Map) error {
	if err := s.needState(m.In.ReadsState()); err != nil {
		return err
	}
	list, err := m.In.In(s.env)
	if err != nil {
		return err
	}
	for _, elem := range list.Elems() {
		s.env.Bind(m.Slot, elem)
		holds, err := s.holds(m.Condition)
		if err == nil && holds {
			err = s.emit(m.Emit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) emit(e *spec.Emit) error {
	o, id, err := s.template(e)
	if err != nil || o == nil {
		return err
	}
	return s.add(o, id)
}

// template evaluates the template of an event. The event is nil if there is none to write.
func (s *scene) template(e *spec.Emit) (*Event, value.Value, error) {
	if err := s.needState(e.Data.ReadsState()); err != nil {
		return nil, value.Value{}, err
	}
	id, ok, err := s.id(&e.ID)
	if err != nil || !ok {
		return nil, id, err
	}
	data, ok, err := e.Data.Eval(s.env, maxImpliedBytes)
	misfit, unfit := errors.AsType[*tick.OperandError](err)
	switch {
	case unfit:
		return nil, id,
			s.refuseAt(misfit.Pointer, invalidOperand(misfit, "the data of "+e.AggregateType+" "+e.EventType))
	case errors.Is(err, tick.ErrTooLarge):
		return nil, id, s.refuseAt(e.Pointer, j17.Errorf(j17.CodePayloadTooLarge, "The data of %s %s would be larger than %d MiB or nested too deep", e.AggregateType, e.EventType, maxImpliedBytes>>20))
	case err != nil || !ok:
		return nil, id, err
	}
	return s.brought(e.AggregateType, id, e.EventType, data, e.Pointer), id, nil
}

// operandDetails are the details of an operator without a value.
type operandDetails struct {
	// Pointer leads to the operator in the spec.
	Pointer diag.Pointer `json:"pointer"`
}

// invalidOperand is the error of a template that has an operator without a value.
func invalidOperand(misfit *tick.OperandError, of string) *j17.Error {
	err := j17.Errorf(j17.CodeInvalidOperand, "An operator in %s has no value: %s.", of, misfit.Message)
	err.Details = operandDetails{Pointer: misfit.Pointer}
	err.Plain = true // names of the spec, and what is wrong
	return err
}

// id evaluates the id of a template. ok is false if it is an optional path without a value.
func (s *scene) id(r *spec.Ref) (id value.Value, ok bool, err error) {
	if r.Path == nil {
		return value.StringValue(r.Literal), true, nil
	}
	if err := s.needState(r.Path.ReadsState()); err != nil {
		return id, false, err
	}
	id, err = r.Path.In(s.env)
	return id, !id.IsMissing() || !r.Path.Optional(), err
}

// brought returns an event implied by the scene's event, with the id as the template gives it.
func (s *scene) brought(
	aggregateType string, id value.Value, eventType string, data value.Value, at diag.Pointer,
) *Event {
	cause := &s.Events[s.cause]
	return &Event{
		Key: j17.Key{Type: aggregateType, ID: idText(id, cause.Key.Type, aggregateType)}, Type: eventType,
		Spec: s.d.EventType(aggregateType, eventType), Data: data,
		Tags: s.command.tags, Cause: s.cause, Own: cause.Own, Write: cause.Write, Depth: cause.Depth + 1, At: at,
	}
}

// add appends an implied event if it passes all checks. id is the id or name given for its aggregate.
func (s *scene) add(o *Event, id value.Value) error {
	// Check the limits, and everything that a posted event has to meet.
	if o.Depth > s.MaxDepth {
		return s.limit(o, fmt.Sprintf("Implications are nested more than %d levels deep", s.MaxDepth), s.MaxDepth)
	}
	if s.implied[o.Own]++; s.implied[o.Own] > s.MaxImplied {
		return s.limit(o, fmt.Sprintf("One event implies more than %d events", s.MaxImplied), s.MaxImplied)
	}
	if len(s.Events) >= MaxEvents {
		return s.limit(o, fmt.Sprintf("One write makes more than %d events", MaxEvents), MaxEvents)
	}
	if err := s.check(o, id); s.Work.Err() != nil {
		return s.Work.Err()
	} else if j17.CodeOf(err) == j17.CodeAggregateNotFound {
		return s.forbidImplied(
			s.cause, Link{o.Key.Type + ":" + j17.Printable(o.Key.ID), o.Type}, o.At, err,
			RefusalDetails{Pointer: o.At.Key("id")},
		)
	} else if err != nil {
		return s.refuse(o, err)
	}

	if err := s.encode(o); err != nil {
		return err
	}

	// Its metadata are those of the command and a description of its cause.
	o.Metadata = append(append(make([]byte, 0, len(s.base)+128), s.base...), `,"implied_by":{"key":`...)
	o.Metadata = value.AppendString(o.Metadata, s.event.Key)
	o.Metadata = append(o.Metadata, `,"event_type":`...)
	o.Metadata = value.AppendString(o.Metadata, s.event.Type)
	o.Metadata = append(o.Metadata, `,"depth":`...)
	o.Metadata = o.inGeneration(append(strconv.AppendInt(o.Metadata, int64(o.Depth), 10), "}}"...))
	if err := o.tag(s.command.tags, s.Work); s.Work.Err() != nil {
		return s.Work.Err()
	} else if err != nil {
		return s.refuse(o, err)
	}
	if !s.Work.Start(work.Implied, 1, len(o.Metadata)) {
		return s.Work.Err()
	}
	s.Events = append(s.Events, *o)
	return s.decide(s.ctx, len(s.Events)-1)
}

// encode encodes the data of o for storage. The data of all implied events together have a limit.
func (s *scene) encode(o *Event) error {
	size := o.Data.Size()
	if s.bytes += size; s.bytes > maxImpliedBytes {
		return s.limit(o, fmt.Sprintf("The data of the implied events is larger than %d MiB", maxImpliedBytes>>20), maxImpliedBytes)
	}
	if !s.Work.SpendBytes(size) {
		return s.Work.Err()
	}
	o.JSON = o.Data.AppendJSON(make([]byte, 0, size))
	return nil
}

// check sets the canonical key of o, and checks key and data like those of an event from outside.
func (s *scene) check(o *Event, id value.Value) error {
	if err := s.name(&o.Key, id, "the implied event"); err != nil {
		return err
	}
	if err := s.flat(o); err != nil {
		return err
	}
	return o.check(s.Work)
}

// name replaces the id in a key, which comes from a template, by the canonical one; of describes its owner in errors.
func (s *scene) name(key *j17.Key, id value.Value, of string) error {
	named, err := s.identify(s.ctx, key.Type, key.ID, id, of)
	if err == nil {
		*key = named
	}
	return err
}

// flat checks that the data of o are not too large and not nested too deep.
func (s *scene) flat(o *Event) error {
	w, visited := o.Data.Weigh()
	if !s.Work.Spend(visited) {
		return s.Work.Err()
	}
	flat := false
	if w.Bytes <= maxImpliedBytes {
		flat, visited = o.Data.Nested(value.MaxDepth - 1)
	}
	if !s.Work.Spend(visited) {
		return s.Work.Err()
	}
	if !flat {
		return j17.Errorf(j17.CodeInvalidField, "The data of the implied event is too large or nested too deep").At("data")
	}
	return nil
}

// idText returns the text of an id, which may also be given as the key of an aggregate of one of two types: that of the
// emitting event and that of the emitted one. It is "" for a value that cannot be an identifier.
func idText(id value.Value, emitting, emitted string) string {
	text := id.Str()
	if id.Kind() == value.Number {
		text = id.String()
	}
	if typ, rest, ok := strings.Cut(text, ":"); ok && (typ == emitting || typ == emitted) {
		return rest
	}
	return text
}

// describe describes a value that is not an identifier, for errors.
func describe(v value.Value) string {
	switch v.Kind() {
	case value.Missing, value.Null:
		return "null"
	case value.String:
		return "an empty string"
	case value.Bool, value.Number, value.Array, value.Object:
		return "of the kind " + v.Kind().String()
	default:
		return v.Kind().String()
	}
}

// run runs custom code: it emits events or enriches the context.
func (s *scene) run(code *spec.Code, at diag.Pointer) error {
	if s.Skipped != nil && s.d.Functions[code] == nil {
		s.Skipped(at, code)
		return nil
	}
	if err := s.needState(true); err != nil {
		return err
	}
	out, err := s.d.Functions.imply(s.ctx, code, s.event, s.state, s.more, s.Work)
	if err != nil {
		return s.refuseAt(at, err)
	}
	if code.Transform {
		s.extend(value.NewEditor().Merge(value.ObjectValue(s.more...), out).Members())
		return nil
	}
	for _, action := range out.Elems() {
		if err := s.act(code, action, at); err != nil {
			return err
		}
	}
	return nil
}

// act emits the event of one action that custom code returned.
func (s *scene) act(code *spec.Code, action value.Value, at diag.Pointer) error {
	wrong := func(format string, args ...any) error {
		return s.refuseAt(at, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: fmt.Sprintf(format, args...), Quotes: true,
			Hint: `Each action is {"emit": {"aggregate_type": ..., "id": ..., "event_type": ..., "data": {...}}}; "key": "type:id" may stand for the first two.`,
		}))
	}

	// Find the aggregate.
	emit := action.Get("emit")
	if emit.IsMissing() {
		emit = action
	}
	if emit.Kind() != value.Object {
		return wrong("an action has no emit")
	}
	typ, id := emit.Get("aggregate_type").Str(), emit.Get("id")
	if key := emit.Get("key"); !key.IsMissing() {
		first, rest, ok := strings.Cut(key.Str(), ":")
		switch {
		case !ok:
			return wrong(`an action has the key %s, which does not have the form "type:id"`, j17.Printable(key.String()))
		case typ != "" && typ != first, !id.IsMissing() && id.Str() != rest:
			return wrong("an action has the key %s, and another aggregate_type or id beside it", j17.Printable(key.String()))
		}
		typ, id = first, value.StringValue(rest)
	}

	// Find the event type.
	name := emit.Get("event_type").Str()
	if s.d.Types[typ] == nil {
		return wrong("an action names the aggregate type %q, which the spec does not have", j17.Printable(typ))
	}
	if ident.IsReservedEventType(name) || s.d.EventType(typ, name) == nil {
		return wrong("an action names the event type %q, which %s does not have", j17.Printable(name), typ)
	}
	data := emit.Get("data")
	if data.IsMissing() {
		data = value.ObjectValue()
	}
	return s.add(s.brought(typ, id, name, data, at), id)
}
