// Package trial tries events: a whole file of them without a server, or one on one state. Nothing is stored.
package trial

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// DryRunResult is the result of a dry run of the events of a file.
type DryRunResult struct {
	// Events is the number of events in the file, Accepted how many of them are valid.
	Events, Accepted int
	// Findings are the faults of the others, in the order of the file. At most diag.MaxKept are kept.
	Findings []EventFinding
	// Faults lists the operations of handlers that changed nothing. At most diag.MaxKept are kept.
	Faults []EventFault
	// Implied lists the events implied by the events of the file, grouped by these. At most diag.MaxKept are kept.
	Implied []ImpliedEvent
	// Scheduled lists the events that events of the file and implied ones schedule, and whether later events cancel
	// them. At most diag.MaxKept are kept.
	Scheduled []ScheduledEvent
	// Dropped is how many findings, faults, implied and scheduled events were not kept.
	Dropped int
	// States are those of all aggregates with accepted events, in the order of their keys.
	States []State
}

// State is the state of an aggregate after its events.
type State struct {
	Key j17.Key
	// Data is the state, JSON its encoding.
	Data value.Value
	JSON []byte
	// Length is the number of events that were folded.
	Length uint64
	// EntityTag is the entity tag that a server would give it, with quotes.
	EntityTag string
}

// EventFinding is one reason why an event is not valid. Its place is in the file, its pointer in the event.
type EventFinding struct {
	diag.Diagnostic
	// Event is the number of the event in the file, from 1; 0 if the file cannot be split into events.
	Event int
	Code  j17.Code
	// Path is the pointer in the form "data.items[0].sku".
	Path string
	// Rule is the place in the spec that forbids an event which is valid by itself, and Requirement the code of the
	// guard, if it is one.
	Rule        diag.Pointer
	Requirement string
}

// ImpliedEvent is an event that another one implies.
type ImpliedEvent struct {
	// Event is the number of the event in the file at the beginning of the chain, from 1, EventLine the line where it
	// starts. Both are 0 if there is no file.
	Event, EventLine int
	Key              j17.Key
	Type             string
	Data             value.Value
	// Depth is 1 for events implied by that event, 2 for those implied by these, and so on. An event comes after the
	// one that implies it.
	Depth int
	// Pointer is the implication's place in the spec.
	Pointer diag.Pointer
}

// EventFault is an operation of a handler that did not fit an event. Its pointer and its place are those of the
// operation in the spec.
type EventFault struct {
	diag.Diagnostic
	// Event is the number of the event in the file, from 1, EventLine the line of the file where it starts.
	Event, EventLine int
	Key              j17.Key
	Type             string
}

// DryRun checks the events of a text as Execute does and folds those that are valid, in memory and in the order of the
// text. command.SplitFile defines how it is split into events. Each of them is an object with the members "type",
// "data", "metadata" and either "key" ("order:global") or "aggregate_type" and "id"; "metadata" may have a timestamp
// (Unix seconds) and a correlation id as well as what a write may have.
//
// An event with a "stream_id" was written before, by a server: ids have to ascend, the platform's own actors and event
// types are accepted, and so are all members that a server has added to the metadata. An event without a timestamp
// happens at now, in Unix seconds, or with the latest event before it if that is later.
//
// functions are those of custom code, nil for none. Code without a function is not run, which is reported as a fault;
// an event that code refuses is not valid.
//
// The only error is that of a context that ends before the last event.
func DryRun(
	ctx context.Context, c *spec.Compiled, functions decider.Functions, src string, now int64,
) (DryRunResult, error) {
	r := dryRun{
		Decider: decider.New(c, functions), src: src, latest: now, states: map[j17.Key]*simulated{},
		unique: decider.NewValues(nil),
	}
	for _, typ := range c.Types {
		for _, et := range typ.Events {
			r.refusing = r.refusing || decider.MayRefuse(et, math.MaxInt)
		}
	}
	events, broken := command.SplitFile(src)
	for _, d := range broken {
		r.Findings = append(r.Findings, EventFinding{Diagnostic: d, Code: j17.CodeInvalidJSON})
	}
	r.Events = len(events)
	for _, text := range events {
		if err := ctx.Err(); err != nil {
			return DryRunResult{}, err
		}
		r.event(ctx, text)
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.states), j17.Key.Compare) {
		f := &r.states[key].State
		r.States = append(r.States, State{
			Key: key, Data: f.Data, JSON: f.Data.AppendJSON(nil), Length: f.Length,
			EntityTag: r.Program(key.Type).EntityTag(f.Length, f.Generation),
		})
	}
	r.Scheduled = r.later.list
	r.Dropped += r.later.dropped
	return r.DryRunResult, nil
}

type dryRun struct {
	*decider.Decider
	DryRunResult
	later  later
	src    string
	latest int64
	last   j17.StreamID
	states map[j17.Key]*simulated
	// unique has the holders of unique values after the events so far.
	unique *decider.Values
	// refusing reports that some handlers may refuse an event.
	refusing bool
}

// simulated is an aggregate that exists in a dry run only.
type simulated struct {
	decider.State

	ed *value.Editor
}

// event checks and folds one event.
func (r *dryRun) event(ctx context.Context, text command.FileText) {
	v, err := value.ParseString(text.Text)
	if err != nil {
		r.syntax(text, err)
		return
	}

	// Check it like a command, but report all faults.
	c, faults := r.read(v)
	var e *decider.Examined
	if len(faults) == 0 {
		e, faults = r.Examine(ctx, &c)
	}
	if len(faults) == 0 && e.Expected != nil {
		if length := r.length(e.Key); length != *e.Expected {
			faults = append(faults, j17.Errorf(j17.CodeConflict, "The aggregate has %d events here, and 'previous_length' says %d", length, *e.Expected).At("metadata.previous_length"))
		}
	}
	if len(faults) > 0 {
		r.refuse(text, v, faults)
		return
	}

	// Apply it, with everything that it implies.
	if e.Timestamp == nil {
		e.Timestamp = &r.latest
	}
	r.latest = max(r.latest, *e.Timestamp)
	if err := r.happen(ctx, text, &c, e); err != nil {
		if refused, ok := errors.AsType[*j17.Error](err); ok {
			err = &j17.Error{Code: refused.Code, Message: refused.Message, Details: refused.Details}
			if details, ok := refused.Details.(decider.RefusalDetails); ok && details.Chain == nil {
				err = refused
			} // else its places are in the implied event, which is not in the file
		}
		r.refuse(text, v, []error{err})
		return
	}
	r.Accepted++
	if c.Stored {
		r.last = c.StreamID
	}
}

// happen folds a valid event and the events that it implies. If custom code refuses one of them, none is folded.
func (r *dryRun) happen(ctx context.Context, text command.FileText, c *command.FileEvent, e *decider.Examined) error {
	// Fold all, or nothing.
	faults, dropped := len(r.Faults), r.Dropped
	x, err := r.imply(ctx, text, c, e)
	undo := r.mark(x, e.Key)
	if err == nil {
		err = r.fold(ctx, text, e.Events[0].Stored(*e.Timestamp), e.Key)
	}
	for i := 1; x != nil && err == nil && i < len(x.Events); i++ {
		o := &x.Events[i]
		if err = r.fold(ctx, text, o.Stored(*e.Timestamp), o.Key); err != nil {
			err = x.Reject(i, nil, o.At, err)
		}
	}
	if err != nil {
		undo()
		r.Faults, r.Dropped = r.Faults[:faults], dropped
		return err
	}

	// Keep the unique values that the event takes for the events after it. A stored event has taken its values before,
	// so faults are ignored.
	if x != nil && x.Unique != nil {
		r.unique.Keep(x.Unique)
	} else if c.Stored && r.Exchange(ctx, &e.Events[0], *e.Timestamp) == nil {
		if _, _, err := r.unique.Apply(ctx, e.Key, e.Events[0].Exchanges); err != nil {
			return err
		}
	}

	// Report scheduled and implied events.
	if x == nil {
		r.later.happened([]decider.Event{{Key: e.Key, Type: c.Type}}, nil, *e.Timestamp, text.Number, text.Line)
		return nil
	}
	r.later.happened(x.Events, x.Scheduled, *e.Timestamp, text.Number, text.Line)
	for _, i := range x.InOrder() {
		if len(r.Implied) >= diag.MaxKept {
			r.Dropped++
			continue
		}
		implied := implied(&x.Events[i])
		implied.Event, implied.EventLine = text.Number, text.Line
		r.Implied = append(r.Implied, implied)
	}
	return nil
}

// mark returns a function that restores the states into which an event and those it implies are folded. Only custom
// code and heavy handlers can refuse events at that point, so without any there is nothing to restore.
func (r *dryRun) mark(x *decider.Decision, own j17.Key) (undo func()) {
	if !r.refusing {
		return func() {}
	}
	keys := []j17.Key{own}
	for i := 1; x != nil && i < len(x.Events); i++ {
		keys = append(keys, x.Events[i].Key)
	}
	before := map[j17.Key]decider.State{}
	for _, key := range keys {
		if s := r.states[key]; s != nil {
			s.ed.Freeze()
			before[key] = s.State
		}
	}
	return func() {
		for _, key := range keys {
			if was, ok := before[key]; ok {
				r.states[key].State = was
			} else {
				delete(r.states, key)
			}
		}
	}
}

// imply computes what an event implies, nil for nothing. A stored event implies nothing now: its implications happened
// when it was written.
func (r *dryRun) imply(
	ctx context.Context, text command.FileText, c *command.FileEvent, e *decider.Examined,
) (*decider.Decision, error) {
	if c.Stored || !e.Reacts() {
		return nil, nil
	}
	x, err := r.Expand(ctx, &e.Admitted, decider.Options{
		Timestamp: *e.Timestamp, MaxDepth: decider.DefaultMaxDepth, MaxImplied: decider.DefaultMaxImplied,
		Work: work.New(ctx, work.Command),
		Lookup: func(_ context.Context, key j17.Key) (*decider.State, error) {
			s := r.states[key]
			if s == nil {
				return r.Program(key.Type).First(), nil
			}
			s.ed.Freeze()
			before := s.State
			return &before, nil
		},
		Holders: r.unique.After(),
		Skipped: func(at diag.Pointer, code *spec.Code) {
			r.fault(text, e.Key, c.Type, tick.Fault{Pointer: at, Message: notRun(code)})
		},
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

func implied(o *decider.Event) ImpliedEvent {
	return ImpliedEvent{Key: o.Key, Type: o.Type, Data: o.Data, Depth: o.Depth, Pointer: o.At}
}

// notRun is the message for custom code that was not run.
func notRun(code *spec.Code) string {
	name := code.Artifact
	if name == "" {
		name = code.Entrypoint
	}
	return "the custom code " + name + " was not run here, so what it would do is missing"
}

func (r *dryRun) length(key j17.Key) uint64 {
	if s := r.states[key]; s != nil {
		return s.Length
	}
	return 0
}

// read parses an event of a file. Stream ids have to ascend.
func (r *dryRun) read(v value.Value) (command.FileEvent, []error) {
	e, faults := command.ReadFileEvent(v)
	if e.StreamID != (j17.StreamID{}) && e.StreamID.Compare(r.last) <= 0 {
		faults = append(faults, j17.Errorf(j17.CodeInvalidField, "The stream id does not come after the one before it, %s: put the events in the order of their ids", r.last).At("stream_id"))
	}
	return e, faults
}

// fold folds a valid event into the state of its aggregate. The error is that of custom code.
func (r *dryRun) fold(ctx context.Context, text command.FileText, ev *tick.Event, key j17.Key) error {
	p := r.Program(key.Type)
	s := r.states[key]
	if s == nil {
		s = &simulated{State: *p.First(), ed: value.NewEditor()}
		r.states[key] = s
	}
	if et := p.Events[ev.Type]; et != nil && et.Code != nil && r.Functions[et.Code] == nil {
		r.fault(text, key, ev.Type, tick.Fault{Pointer: handlerAt(key.Type, ev.Type), Message: notRun(et.Code)})
		s.Pass(s.ed, ev)
		return nil
	}
	return p.Apply(
		ctx, &s.State, s.ed, ev, work.New(ctx, work.Replay), func(f tick.Fault) { r.fault(text, key, ev.Type, f) },
	)
}

// handlerAt returns the place of a handler in a spec.
func handlerAt(aggregateType, eventType string) diag.Pointer {
	return diag.Pointer("/aggregate_types").Key(aggregateType).Key("events").Key(eventType).Key("handler")
}

func (r *dryRun) fault(text command.FileText, key j17.Key, eventType string, f tick.Fault) {
	if len(r.Faults) >= diag.MaxKept {
		r.Dropped++
		return
	}
	r.Faults = append(r.Faults, EventFault{
		Diagnostic: decider.Diagnose(r.Compiled, f), Event: text.Number, EventLine: text.Line, Key: key,
		Type: eventType,
	})
}

// syntax adds the finding for an event that is not JSON.
func (r *dryRun) syntax(text command.FileText, err error) {
	d := command.FileSyntax(err)
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		d.Line, d.Column = value.Position(r.src, text.Offset+syntax.Offset)
	}
	r.add(EventFinding{Diagnostic: d, Event: text.Number, Code: j17.CodeInvalidJSON})
}

// refuse adds the findings for errors of the checks, in the order of their places.
func (r *dryRun) refuse(text command.FileText, v value.Value, errs []error) {
	var all []EventFinding
	for _, err := range errs {
		for _, f := range findings(v, err) {
			f.Event = text.Number
			at, ok := value.Locate(text.Text, string(f.Pointer))
			from := at.Start
			if ok && f.OnKey {
				from = at.Key
			}
			f.Line, f.Column = value.Position(r.src, text.Offset+from)
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b EventFinding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	for _, f := range all {
		r.add(f)
	}
}

func (r *dryRun) add(f EventFinding) {
	if len(r.Findings) >= diag.MaxKept {
		r.Dropped++
		return
	}
	r.Findings = append(r.Findings, f)
}

// forbidden describes where the spec forbids an event, and why.
func forbidden(d *decider.RefusalDetails) string {
	text := "the spec forbids it here, at " + string(d.Pointer)
	switch {
	case d.Holder != "":
		text += "; " + d.Holder + " holds the value"
	case d.Cause == j17.CodeInvalidOperand:
		text += ", which cannot be evaluated: something that it calculates with is missing, or is of another kind"
	case d.Cause == j17.CodeWorkLimit:
		text += ", which took more work than there was"
	}
	return text
}

// findings turns an error of the checks into findings about an event, which have no place yet.
func findings(event value.Value, err error) []EventFinding {
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		return []EventFinding{{Diagnostic: diag.Diagnostic{Message: err.Error()}, Code: j17.CodeInternal}}
	}
	if len(e.Errors) == 0 {
		d := diag.Diagnostic{Message: e.Message, OnKey: e.Code == j17.CodeUnknownField}
		path := e.Path
		if path == "key" && event.Get("key").IsMissing() && !event.Get("aggregate_type").IsMissing() {
			path = "id"
			if e.Code == j17.CodeUnknownType {
				path = "aggregate_type"
			}
		}
		if path != "" {
			d.Pointer = diag.Pointer("/" + strings.ReplaceAll(path, ".", "/"))
		}
		f := EventFinding{Diagnostic: d, Code: e.Code, Path: path, Rule: decider.ImpliedBy(e)}
		if details, ok := e.Details.(decider.RefusalDetails); ok {
			f.Rule, f.Requirement = details.Pointer, details.Requirement
			f.Hint = forbidden(&details)
		}
		if failed := upcast.Failure(e); failed != nil {
			f.Hint = "the place in the spec is " + string(failed.Pointer)
		}
		return []EventFinding{f}
	}
	all := make([]EventFinding, 0, len(e.Errors))
	for _, f := range e.Errors {
		p := diag.Pointer(f.Pointer)
		all = append(all, EventFinding{
			Diagnostic: diag.Diagnostic{Pointer: p, Message: f.Message, Hint: f.Hint}, Code: e.Code,
			Path: command.PathIn(event, p),
		})
	}
	return all
}
