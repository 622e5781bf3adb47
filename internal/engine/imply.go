package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"j17"
	"j17/internal/ident"
	"j17/internal/sandbox"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/template"
	"j17/internal/spec/tick"
	"j17/internal/value"
	"j17/internal/work"
)

// maxEvents is how many events one command may write in all. A store takes as many in one unit.
const maxEvents = 20_000

// maxImpliedBytes bounds the data of all events that one command implies.
const maxImpliedBytes = 16 << 20

// options is what a decision is made with.
type options struct {
	// timestamp is when it is made, in Unix seconds.
	timestamp int64
	// maxDepth and maxImplied bound what one event may imply.
	maxDepth, maxImplied int
	// work is what all conditions, templates and handlers are charged to.
	work *work.Budget
	// lookup returns the present state of an aggregate.
	lookup func(context.Context, j17.Key) (*folded, error)
	// skipped, if not nil, is told of implications in custom code that there is no function for; they imply nothing then.
	skipped func(at diag.Pointer, code *spec.Code)
}

// expansion is what a command brings about: its own events, and behind them what they imply, breadth first. First what the
// command's own events imply in their order, then what those events imply, and so on. Every event is checked as if it had come
// from outside. States are those before the command, whatever else it writes.
type expansion struct {
	// events are all events, the command's own first.
	events []occurrence
	// before has the states that were looked at, and looked their keys in the order in which they were.
	before map[j17.Key]*folded
	looked []j17.Key
	// failure describes why the command was rejected, nil where it was not, or not for what it implied.
	failure *ImplicationFailure

	options
	d *deployed
	// base is the metadata that the command's own events share with all others, without its closing brace.
	base []byte
	// envs are what conditions are tested in.
	envs map[*spec.Condition]*tick.Env
	// implied counts the events that each of the command's own events implies, directly or not.
	implied []int
	bytes   int
}

// occurrence is an event that is about to be written.
type occurrence struct {
	key j17.Key
	// name is that of its type. typ is what the spec says of that, nil for the platform's own types.
	name string
	typ  *spec.EventType
	data value.Value
	// json is data as it is stored, and metadata a compact object without the timestamp.
	json     []byte
	metadata []byte
	// cause is the number of the event that implied it, -1 for one of the command's own; own is the number of the command's
	// event at the beginning of the chain, and depth the number of links between them.
	cause, own, depth int
	// at is the implication's place in the spec.
	at diag.Pointer
}

// expand decides what an admitted command brings about. What is returned beside an error has the states that were looked at, and
// why the command was rejected.
func (d *deployed) expand(ctx context.Context, a *admitted, o options) (*expansion, error) {
	x := &expansion{
		options: o, d: d, base: a.metadata[:a.shared],
		events: append(make([]occurrence, 0, 2*len(a.events)+4), a.events...), implied: make([]int, len(a.events)),
	}
	for i := 0; i < len(x.events); i++ {
		if x.events[i].typ == nil || len(x.events[i].typ.Implications) == 0 {
			continue
		}
		s := x.scene(ctx, i)
		for _, imp := range x.events[i].typ.Implications {
			if err := s.imply(imp); err != nil {
				return x, x.tooMuch(err, i, "what it implies", imp.Pointer)
			}
		}
	}
	return x, nil
}

// inOrder returns the numbers of the implied events, each behind the one that implies it.
func (x *expansion) inOrder() []int {
	children := make([][]int, len(x.events))
	var own []int
	for i := range x.events {
		if c := x.events[i].cause; c >= 0 {
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

// event returns the event as handlers see it.
func (o *occurrence) event(timestamp int64) *tick.Event {
	metadata, _ := value.ParseStored(string(appendTimestamp(o.metadata, timestamp)))
	return &tick.Event{
		Key: o.key.String(), Type: o.name, Timestamp: timestamp, Data: tick.Parsed(o.data), Metadata: tick.Parsed(metadata),
	}
}

// stored returns the event as a fold sees it. What is kept of it holds on to nothing else of the request.
func (o *occurrence) stored(timestamp int64) *tick.Event {
	return &tick.Event{
		Key: o.key.String(), Type: o.name, Timestamp: timestamp, Data: tick.Raw(o.json), Metadata: tick.Raw(appendTimestamp(o.metadata, timestamp)),
	}
}

// stateBefore returns the state of an aggregate before the command.
func (x *expansion) stateBefore(ctx context.Context, key j17.Key) (*folded, error) {
	if f := x.before[key]; f != nil {
		return f, nil
	}
	f, err := x.lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	if x.before == nil {
		x.before = map[j17.Key]*folded{}
	}
	x.before[key] = f
	x.looked = append(x.looked, key)
	return f, nil
}

// scene is one event while its implications are looked at.
type scene struct {
	*expansion
	ctx   context.Context //nolint:containedctx // lives as long as one call
	cause int
	// c is what templates see, event what predicates see. Both get the state when something asks for it.
	c     template.Context
	event *tick.Event
}

func (x *expansion) scene(ctx context.Context, cause int) *scene {
	o := &x.events[cause]
	s := &scene{expansion: x, ctx: ctx, cause: cause, event: o.event(x.timestamp)}
	s.c = template.Context{Key: s.event.Key, ID: o.key.ID, Type: o.name, Data: o.data, Metadata: s.event.Metadata.Value(), Work: x.work}
	return s
}

// appendTimestamp returns event metadata with the timestamp that the store will add.
func appendTimestamp(metadata []byte, timestamp int64) []byte {
	b := append(make([]byte, 0, len(metadata)+32), metadata[:len(metadata)-1]...)
	if len(metadata) > len("{}") {
		b = append(b, ',')
	}
	b = append(b, `"timestamp":`...)
	return append(strconv.AppendInt(b, timestamp, 10), '}')
}

// needState loads the state before the command if something that is about to be evaluated reads it.
func (s *scene) needState(reads bool) error {
	if !reads || !s.c.State.IsMissing() {
		return nil
	}
	f, err := s.stateBefore(s.ctx, s.events[s.cause].key)
	if err != nil {
		return err
	}
	s.c.State = f.data
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
	case imp.Code != nil:
		return s.run(imp.Code, imp.Pointer)
	case imp.Pipeline != nil:
		more := s.c.More
		for _, step := range imp.Pipeline {
			if err := s.imply(step); err != nil {
				return s.tooMuch(err, s.cause, "what it implies", step.Pointer)
			}
		}
		s.c.More = more
	}
	return nil
}

// holds tests a condition in the event and the bindings that there are.
func (s *scene) holds(c *spec.Condition) (bool, error) {
	if c == nil {
		return true, nil
	}
	if err := s.needState(c.ReadsState); err != nil {
		return false, err
	}
	env := s.env(c)
	env.Set("$.id", value.StringValue(s.c.ID))
	for _, m := range s.c.Added() {
		env.Set("$."+m.Key, m.Value)
	}
	if s.c.Name != "" {
		env.Set("$"+s.c.Name, s.c.Binding)
	}
	holds, ok, err := c.Predicate.Test(env)
	return holds && ok, err
}

// env returns the environment of a condition. It is the same for all events of the command, so that an array which is searched
// for each of them is known the next time.
func (s *scene) env(c *spec.Condition) *tick.Env {
	env := s.envs[c]
	if env == nil {
		env = c.Scope.Env(s.event, s.c.State, s.work)
		if s.envs == nil {
			s.envs = map[*spec.Condition]*tick.Env{}
		}
		s.envs[c] = env
	}
	env.Renew(s.event, s.c.State)
	return env
}

// each emits for every element of an array. What is no array has no elements.
func (s *scene) each(m *spec.Map) error {
	if err := s.needState(m.In.ReadsState()); err != nil {
		return err
	}
	list, err := m.In.In(&s.c)
	if err != nil {
		return err
	}
	s.c.Name = strings.TrimPrefix(m.As, "$")
	defer func() { s.c.Name, s.c.Binding = "", value.Value{} }()
	for _, elem := range list.Elems() {
		s.c.Binding = elem
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
	if err := s.needState(e.Data.ReadsState() || e.ID.Path != nil && e.ID.Path.ReadsState()); err != nil {
		return err
	}
	id := value.StringValue(e.ID.Literal)
	if e.ID.Path != nil {
		var err error
		if id, err = e.ID.Path.In(&s.c); err != nil {
			return err
		}
		if id.IsMissing() && e.ID.Path.Optional() {
			return nil
		}
	}
	data, err := e.Data.Eval(&s.c, maxImpliedBytes)
	switch {
	case errors.Is(err, template.ErrAbsent):
		return nil
	case err != nil && !errors.Is(err, template.ErrTooLarge):
		return err
	case err != nil:
		return s.refuseAt(e.Pointer, j17.Errorf(j17.CodePayloadTooLarge, "The data of %s %s would be larger than %d MiB or nested too deep", e.AggregateType, e.EventType, maxImpliedBytes>>20))
	}
	return s.add(e.AggregateType, id, e.EventType, data, e.Pointer)
}

// add appends an implied event if it passes all checks.
func (s *scene) add(aggregateType string, id value.Value, eventTypeName string, data value.Value, at diag.Pointer) error {
	cause := &s.events[s.cause]
	o := occurrence{
		key: j17.Key{Type: aggregateType, ID: half(id, cause.key.Type, aggregateType)}, name: eventTypeName, typ: s.d.spec.EventType(aggregateType, eventTypeName), data: data,
		cause: s.cause, own: cause.own, depth: cause.depth + 1, at: at,
	}
	if o.depth > s.maxDepth {
		return s.limit(&o, fmt.Sprintf("Implications are nested more than %d levels deep", s.maxDepth), s.maxDepth)
	}
	if s.implied[o.own]++; s.implied[o.own] > s.maxImplied {
		return s.limit(&o, fmt.Sprintf("One event implies more than %d events", s.maxImplied), s.maxImplied)
	}
	if len(s.events) >= maxEvents {
		return s.limit(&o, fmt.Sprintf("One write makes more than %d events", maxEvents), maxEvents)
	}
	if err := s.check(&o, id); s.work.Err() != nil {
		return s.work.Err()
	} else if err != nil {
		return s.refuse(&o, err)
	}
	size := data.Size()
	if s.bytes += size; s.bytes > maxImpliedBytes {
		return s.limit(&o, fmt.Sprintf("The data of the implied events is larger than %d MiB", maxImpliedBytes>>20), maxImpliedBytes)
	}
	if !s.work.SpendBytes(size) {
		return s.work.Err()
	}
	o.json = data.AppendJSON(make([]byte, 0, size))
	o.metadata = append(append(make([]byte, 0, len(s.base)+128), s.base...), `,"implied_by":{"key":`...)
	o.metadata = value.AppendString(o.metadata, s.c.Key)
	o.metadata = append(o.metadata, `,"event_type":`...)
	o.metadata = value.AppendString(o.metadata, s.c.Type)
	o.metadata = append(o.metadata, `,"depth":`...)
	o.metadata = append(strconv.AppendInt(o.metadata, int64(o.depth), 10), "}}"...)
	s.events = append(s.events, o)
	return nil
}

// check puts the canonical key into o and checks it and the data as those of an event from outside.
func (s *scene) check(o *occurrence, id value.Value) error {
	if o.key.ID == "" {
		return j17.Errorf(j17.CodeInvalidIdentifier, "The id of the implied event is %s, not an identifier", describe(id)).At("id")
	}
	canonical, _, err := s.d.spec.IDs.Check(o.key.ID)
	if err != nil {
		return j17.At(err, "id")
	}
	o.key.ID = canonical
	size, visited := o.data.Weigh()
	if !s.work.Spend(visited) {
		return s.work.Err()
	}
	flat := false
	if size <= maxImpliedBytes {
		flat, visited = o.data.Nested(value.MaxDepth - 1)
	}
	if !s.work.Spend(visited) {
		return s.work.Err()
	}
	if !flat {
		return j17.Errorf(j17.CodeInvalidField, "The data of the implied event is too large or nested too deep").At("data")
	}
	return o.check(s.work)
}

// half returns the text of an id, which may also be given as the key of an aggregate of one of two types: that of the emitting
// event and that of the emitted one. It is "" for a value that cannot be an identifier.
func half(id value.Value, emitting, emitted string) string {
	text := id.Str()
	if id.Kind() == value.Number {
		text = id.String()
	}
	if typ, rest, ok := strings.Cut(text, ":"); ok && (typ == emitting || typ == emitted) {
		return rest
	}
	return text
}

// describe names a value that is no identifier.
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
	if s.skipped != nil && s.d.functions[code] == nil {
		s.skipped(at, code)
		return nil
	}
	if err := s.needState(true); err != nil {
		return err
	}
	out, err := s.d.functions.imply(s.ctx, code, s.event, s.c.State, s.c.More, s.work)
	if err != nil {
		return s.refuseAt(at, err)
	}
	if code.Transform {
		s.c.More = value.NewEditor().Merge(value.ObjectValue(s.c.More...), out).Members()
		return nil
	}
	for _, action := range out.Elems() {
		if err := s.act(code, action, at); err != nil {
			return err
		}
	}
	return nil
}

// act emits the event of one action that custom code asks for.
func (s *scene) act(code *spec.Code, action value.Value, at diag.Pointer) error {
	wrong := func(format string, args ...any) error {
		return s.refuseAt(at, faulty(code, &sandbox.Fault{
			Kind: sandbox.InvalidOutput, Detail: fmt.Sprintf(format, args...),
			Hint: `Each action is {"emit": {"aggregate_type": ..., "id": ..., "event_type": ..., "data": {...}}}; "key": "type:id" may stand for the first two.`,
		}))
	}
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
	name := emit.Get("event_type").Str()
	if s.d.spec.Types[typ] == nil {
		return wrong("an action names the aggregate type %q, which the spec does not have", j17.Printable(typ))
	}
	if ident.IsReservedEventType(name) || s.d.spec.EventType(typ, name) == nil {
		return wrong("an action names the event type %q, which %s does not have", j17.Printable(name), typ)
	}
	data := emit.Get("data")
	if data.IsMissing() {
		data = value.ObjectValue()
	}
	return s.add(typ, id, name, data, at)
}
