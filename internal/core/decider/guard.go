package decider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// The limits of a guard's message, in work, which is counted apart from that of the guard, and in bytes.
const (
	messageWork  = 64 << 10
	messageBytes = 256 << 10
)

// decides reports whether the spec can refuse events of a type because of states.
func decides(et *spec.EventType) bool {
	return et.Creates != spec.CreatesAny || et.Requires != nil || et.Reads != nil || exchanges(et)
}

// decide checks whether event number i may be written at its place: whether its aggregate exists or not, as required,
// its guards hold, the values that it takes are free, and its handler accepts it.
func (x *Decision) decide(ctx context.Context, i int) error {
	if err := x.ask(ctx, i); err != nil {
		return err
	}
	return x.handle(ctx, i)
}

// ask checks against the spec whether event number i may be written at its place.
func (x *Decision) ask(ctx context.Context, i int) error {
	o := &x.Events[i]
	if o.Spec == nil || !decides(o.Spec) || x.Alone && o.Cause >= 0 {
		return nil
	}
	if err := x.exist(ctx, i); err != nil {
		return err
	}
	if err := x.guard(ctx, i); err != nil {
		return err
	}
	return x.exchange(ctx, i)
}

// exist checks whether the aggregate of event number i exists, or does not, as its type requires.
func (x *Decision) exist(ctx context.Context, i int) error {
	o := &x.Events[i]
	if o.Spec.Creates == spec.CreatesAny || o.Spec.Creates == spec.CreatesNever && x.d.IDs.IsSingleton(o.Key.ID) {
		return nil
	}

	// An existing aggregate cannot cease to exist. One that does not exist must still not exist when the event is
	// stored.
	length := uint64(x.number(o.Key, i))
	before, err := x.lengthBefore(ctx, o.Key)
	if err != nil {
		return err
	}
	if length += before; length == 0 && x.Before[o.Key] == nil {
		x.Absent = append(x.Absent, o.Key)
	}
	at := inType(o.Spec, "creates")
	switch {
	case o.Spec.Creates == spec.CreatesOnly && length > 0:
		err := j17.Errorf(j17.CodeAlreadyExists, "%s exists already, and %s can only be its first event.", o.Key, o.Type)
		return x.forbid(i, err, RefusalDetails{Pointer: at, Length: length})
	case o.Spec.Creates == spec.CreatesNever && length == 0:
		err := j17.Errorf(j17.CodeAggregateNotFound, "%s does not exist, and %s cannot be its first event.", o.Key, o.Type).At("key")
		return x.forbid(i, err, RefusalDetails{Pointer: at})
	}
	return nil
}

// lengthBefore returns the number of events of an aggregate before the command.
func (x *Decision) lengthBefore(ctx context.Context, key j17.Key) (uint64, error) {
	if x.Before[key] == nil && x.Length != nil {
		return x.Length(ctx, key)
	}
	f, err := x.stateBefore(ctx, key)
	if err != nil {
		return 0, err
	}
	return f.Length, nil
}

// guard tests the guards of event number i, in order.
func (x *Decision) guard(ctx context.Context, i int) error {
	o := &x.Events[i]
	if o.Spec.Requires == nil && o.Spec.Reads == nil {
		return nil
	}
	g := &guarding{Decision: x, ctx: ctx, i: i, env: tick.NewEnv(x.Work), event: o.seen(x.Timestamp)}
	g.env.Renew(g.event)
	if err := g.look(); err != nil {
		return err
	}

	// With All, every failed guard is collected.
	var first error
	for _, guard := range o.Spec.Requires {
		holds, cause, err := g.holds(guard)
		if err != nil {
			return err
		}
		if holds {
			continue
		}
		refused := g.refused(guard, cause)
		if !x.All {
			return refused
		}
		x.Refusals = append(x.Refusals, refused)
		if first == nil {
			first = refused
		}
		if x.Work.Err() != nil {
			break // the guards after it cannot be tested
		}
	}
	return first
}

// guarding is one event while its guards are tested, on the states at its place in the write.
type guarding struct {
	*Decision
	ctx   context.Context //nolint:containedctx // lives as long as one call
	i     int
	env   *tick.Env
	event *tick.Event
	state bool
}

// needState sets the state of the event's aggregate if something that is about to be evaluated reads it.
func (g *guarding) needState(reads bool) error {
	if !reads || g.state {
		return nil
	}
	r, err := g.at(g.ctx, g.Events[g.i].Key, g.i)
	if err != nil {
		return err
	}
	g.state = true
	g.env.SetState(r.State.Data)
	return nil
}

// look finds the aggregates that the event reads. Their states are kept with the event, for its implications.
func (g *guarding) look() error {
	declared := g.Events[g.i].Spec.Reads
	if declared == nil {
		return nil
	}
	if g.Reads != nil {
		g.Events[g.i].reads = g.Reads
		g.env.SetReads(g.Reads)
		return nil
	}
	states := make([]value.Value, len(declared))
	for n, read := range declared {
		states[n] = value.NullValue()
		key, ok, err := g.read(read)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		r, err := g.at(g.ctx, key, g.i)
		if err != nil {
			return err
		}
		if r.State.Length > 0 {
			r.Editor.Freeze() // later events of the write change another copy
			states[n] = r.State.Data
		}
	}
	g.Events[g.i].reads = states
	g.env.SetReads(states)
	return nil
}

// read returns the key of an aggregate that the event reads. ok is false if there is none.
func (g *guarding) read(read *spec.Read) (key j17.Key, ok bool, err error) {
	o := &g.Events[g.i]
	id := value.StringValue(read.ID.Literal)
	if read.ID.Path != nil {
		if err := g.needState(read.ID.Path.ReadsState()); err != nil {
			return key, false, err
		}
		if id, err = read.ID.Path.In(g.env); err != nil {
			return key, false, g.tooMuch(err, g.i, "its reads", read.Pointer)
		}
	}
	if id.OrNull().Kind() == value.Null {
		return key, false, nil
	}
	key, err = g.identify(
		g.ctx, read.AggregateType, idText(id, o.Key.Type, read.AggregateType), id, "what the event reads",
	)
	switch code := j17.CodeOf(err); {
	case err == nil:
		return key, true, nil
	case code == j17.CodeAggregateNotFound:
		return key, false, nil
	case code == j17.CodeInvalidIdentifier:
		return key, false, g.forbid(g.i, j17.At(err, placeOf(read.ID.Path)), RefusalDetails{
			Pointer: read.Pointer.Key("id"),
		})
	default:
		return key, false, err
	}
}

// placeOf returns the path in the request that a path of the spec stands for, "" if it is not in the request.
func placeOf(p *tick.Path) string {
	if p == nil {
		return ""
	}
	rest, ok := strings.CutPrefix(p.Text(), "$.data")
	if !ok {
		return ""
	}
	return "data" + strings.TrimSuffix(rest, "?")
}

// holds tests one guard. A guard that cannot be evaluated, or takes more work than is left, does not hold; cause says
// why.
func (g *guarding) holds(guard *spec.Guard) (holds bool, cause j17.Code, err error) {
	if err := g.needState(guard.That.ReadsState()); err != nil {
		return false, "", err
	}
	return test(guard, g.env)
}

// test tests a guard in an environment that has everything it reads.
func test(guard *spec.Guard, e *tick.Env) (holds bool, cause j17.Code, err error) {
	holds, ok, err := guard.That.Test(e)
	switch {
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		return false, j17.CodeWorkLimit, nil
	case err != nil:
		return false, "", err
	case !ok:
		return false, j17.CodeInvalidOperand, nil
	}
	return holds, "", nil
}

// refused returns the error for an event whose guard does not hold.
func (g *guarding) refused(guard *spec.Guard, cause j17.Code) error {
	o := &g.Events[g.i]
	state := value.Value{}
	if g.needState(guard.Message.ReadsState()) == nil && g.state {
		state = g.running[o.Key].State.Data
	}
	err := j17.Errorf(j17.CodeRequirementFailed, "%s", message(guard, g.event, state, o.reads))
	err.Plain = guard.Fixed
	return g.forbid(g.i, err, RefusalDetails{Pointer: guard.Pointer, Requirement: guard.Code, Cause: cause})
}

// message returns the message of a guard for an event, or a default sentence if it yields no text. Its work is counted
// apart from the guard's.
func message(guard *spec.Guard, ev *tick.Event, state value.Value, reads []value.Value) string {
	env := tick.NewEnv(work.Counted(messageWork))
	env.Renew(ev)
	env.SetState(state)
	env.SetReads(reads)
	v, ok, err := guard.Message.Eval(env, messageBytes)
	if err != nil || !ok || v.Str() == "" {
		return fmt.Sprintf("%s of %s does not meet a requirement of the spec, at %s.", ev.Type, ev.Key, guard.Pointer)
	}

	// Cut it to spec.MaxMessage characters.
	text, n := v.Str(), 0
	for at := range text {
		if n++; n > spec.MaxMessage {
			return text[:at]
		}
	}
	return text
}

// Objection returns the first guard of an event's type that does not hold for an event on the state before it, with its
// message; nil if there is none. Guards that read other aggregates are skipped. The error is that of a budget whose
// context has ended.
func Objection(et *spec.EventType, ev *tick.Event, state value.Value, b *work.Budget) (*spec.Guard, string, error) {
	env := tick.NewEnv(b)
	env.Renew(ev)
	env.SetState(state)
	for _, guard := range et.Requires {
		if guard.That.ReadsOf() != 0 {
			continue
		}
		if holds, _, err := test(guard, env); err != nil {
			return nil, "", err
		} else if !holds {
			return guard, message(guard, ev, state, nil), nil
		}
	}
	return nil, "", nil
}

// RefusalDetails are the details of the error for an event that the spec forbids at its place.
type RefusalDetails struct {
	Key       string `json:"key"`
	EventType string `json:"event_type"`
	// Pointer is the place in the spec that forbids it.
	Pointer diag.Pointer `json:"pointer"`
	// Requirement is the code that the spec gives the guard. Cause is CodeInvalidOperand if the guard could not be
	// evaluated, and CodeWorkLimit if it took more work than was left.
	Requirement string   `json:"requirement,omitempty"`
	Cause       j17.Code `json:"cause,omitempty"`
	// Length is how many events the aggregate has.
	Length uint64 `json:"length,omitempty"`
	// Unique is the name of a set of unique values, and Holder the key of the aggregate that holds the value which the
	// event would take.
	Unique string `json:"unique,omitempty"`
	Holder string `json:"holder,omitempty"`
	// Implication is the place in the spec that implied the event, and Chain leads to the event from the posted one.
	Implication diag.Pointer `json:"implication,omitempty"`
	Chain       []Link       `json:"chain,omitempty"`
}

// GuardCode returns the code that the spec gives the guard that forbids the event, "" for none.
func (d RefusalDetails) GuardCode() string { return d.Requirement }

// Record names the place in the spec that forbids the event, without anybody's data: see j17.Record.
func (d RefusalDetails) Record() string {
	text := "the spec forbids it at " + string(d.Pointer)
	if d.Requirement != "" {
		text += " (" + d.Requirement + ")"
	}
	return text
}

// forbid refuses the write because of event number i. The error keeps its code even if the event was implied.
func (x *Decision) forbid(i int, err error, details RefusalDetails) error {
	o := &x.Events[i]
	refused := Link{o.Key.String(), o.Type}
	if o.Cause >= 0 {
		return x.forbidImplied(o.Cause, refused, o.At, err, details)
	}
	details.Key, details.EventType = refused.Key, refused.EventType
	return x.inOwn(detailed(err, details), i)
}

// forbidImplied refuses the write because of an event that number cause implies, at a place of the spec.
func (x *Decision) forbidImplied(cause int, refused Link, at diag.Pointer, err error, details RefusalDetails) error {
	details.Key, details.EventType, details.Implication = refused.Key, refused.EventType, at
	details.Chain = append(x.chain(cause), refused)
	x.Failure = &ImplicationFailure{
		At: x.Timestamp, Trigger: details.Chain[0], Chain: details.Chain, Pointer: details.Pointer, Implication: at,
		Code: j17.CodeOf(err), Error: string(j17.CodeOf(err)),
	}
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Path != "" {
		x.Failure.Path, x.Failure.Error = e.Path, x.Failure.Error+" at "+e.Path
	}
	return x.inOwn(detailed(err, details), cause)
}

// detailed returns a copy of an error with details.
func detailed(err error, details RefusalDetails) error {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return err
	}
	out := *e
	out.Details = details
	return &out
}

// identify returns the key of an aggregate that a template names by its id or, if the type has names, by one of them.
// id is the value as given, and of describes its owner in errors.
func (x *Decision) identify(
	ctx context.Context, aggregateType, text string, id value.Value, of string,
) (j17.Key, error) {
	if text == "" {
		return j17.Key{},
			j17.Errorf(j17.CodeInvalidIdentifier, "The id of %s is %s, not an identifier", of, describe(id)).At("id")
	}
	if x.Resolve != nil && Named(x.d.Types[aggregateType]) {
		key, err := x.Resolve(ctx, aggregateType, text)
		if j17.CodeOf(err) == j17.CodeAggregateNotFound {
			err = j17.Errorf(j17.CodeAggregateNotFound, "No %s is called %s", aggregateType, j17.Printable(text))
		}
		return key, j17.At(err, "id")
	}
	canonical, _, err := x.d.IDs.Check(text)
	return j17.Key{Type: aggregateType, ID: canonical}, j17.At(err, "id")
}
