package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/ident"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// DryRunResult is what would become of the events of a file.
type DryRunResult struct {
	// Events is the number of events in the file, Accepted how many of them are valid.
	Events, Accepted int
	// Findings tells what is wrong with the others, in the order of the file. At most diag.MaxKept are kept.
	Findings []EventFinding
	// Faults lists the operations of handlers that changed nothing. At most diag.MaxKept are kept.
	Faults []EventFault
	// Dropped is how many findings and faults were not kept.
	Dropped int
	// States are those of all aggregates with accepted events, in the order of their keys.
	States []State
}

// EventFinding is one reason why an event is not valid. Its place is one in the file, its pointer one in the event.
type EventFinding struct {
	diag.Diagnostic
	// Event is the number of the event in the file, from 1; 0 where the file cannot be taken apart.
	Event int
	Code  j17.Code
	// Path is the pointer in the form "data.items[0].sku".
	Path string
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
// text. SplitEvents says how events stand in it. Each of them is an object with the members "type", "data", "metadata"
// and either "key" ("order:global") or "aggregate_type" and "id"; "metadata" may have a timestamp (Unix seconds) and a
// correlation id beside what a write may have.
//
// An event with a "stream_id" was written before, by a server: ids have to ascend, the platform's own actors and event
// types are accepted, and so is whatever else a server has put into the metadata. An event without a timestamp happens
// at now, in Unix seconds, or with the latest event before it if that is later.
func DryRun(c *spec.Compiled, src string, now int64) DryRunResult {
	r := dryRun{deployed: deployed{c}, src: src, latest: now, states: map[j17.Key]*simulated{}}
	events, broken := SplitEvents(src)
	for _, d := range broken {
		r.Findings = append(r.Findings, EventFinding{Diagnostic: d, Code: j17.CodeInvalidJSON})
	}
	r.Events = len(events)
	for _, text := range events {
		r.event(text)
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.states), func(a, b j17.Key) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID))
	}) {
		f := &r.states[key].folded
		r.States = append(r.States, State{
			Key: key, Data: f.data, JSON: f.data.AppendJSON(nil), Length: f.length, EntityTag: entityTag(c.Types[key.Type], f.length),
		})
	}
	return r.DryRunResult
}

type dryRun struct {
	deployed
	DryRunResult
	src    string
	latest int64
	last   j17.StreamID
	states map[j17.Key]*simulated
}

// simulated is an aggregate that exists in a dry run only.
type simulated struct {
	folded
	ed *value.Editor
}

// candidate is an event that is to be checked.
type candidate struct {
	aggregateType, id, eventType string
	data, metadata               value.Value
	// recorded tells that a server has written the event before.
	recorded bool
}

// examined is a candidate that passed the checks.
type examined struct {
	admitted
	// timestamp is nil where the metadata do not have one.
	timestamp *int64
}

// event checks and folds one event.
func (r *dryRun) event(text EventText) {
	v, err := value.ParseString(text.Text)
	if err != nil {
		r.syntax(text, err)
		return
	}
	c, id, faults := r.read(v)
	var e *examined
	if len(faults) == 0 {
		e, faults = r.examine(&c)
	}
	if len(faults) == 0 && e.expected != nil {
		if length := r.length(e.key); length != *e.expected {
			faults = append(faults, j17.Errorf(j17.CodeConflict, "The aggregate has %d events here, and 'previous_length' says %d", length, *e.expected).At("metadata.previous_length"))
		}
	}
	if len(faults) > 0 {
		r.refuse(text, v, faults)
		return
	}
	r.Accepted++
	r.last = id
	r.fold(text, &c, e)
}

func (r *dryRun) length(key j17.Key) uint64 {
	if s := r.states[key]; s != nil {
		return s.length
	}
	return 0
}

// read takes an event of a file apart.
func (r *dryRun) read(v value.Value) (c candidate, id j17.StreamID, faults []error) {
	id = r.last
	if err := onlyMembers(v, "", "stream_id", "key", "aggregate_type", "id", "type", "data", "metadata"); err != nil {
		if v.Kind() != value.Object {
			err = j17.Errorf(j17.CodeInvalidField, "An event must be a JSON object")
			return c, id, []error{err}
		}
		faults = append(faults, err)
	}
	text := func(name string) string {
		m := v.Get(name)
		switch {
		case m.IsMissing():
			faults = append(faults, j17.Errorf(j17.CodeMissingField, "Missing '%s'", name).At(name))
		case m.Kind() != value.String:
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'%s' must be a string", name).At(name))
		}
		return m.Str()
	}
	c = candidate{data: v.Get("data"), metadata: v.Get("metadata"), recorded: !v.Get("stream_id").IsMissing()}
	if c.recorded {
		if s := text("stream_id"); s != "" {
			var err error
			if id, err = j17.ParseStreamID(s); err != nil {
				faults = append(faults, j17.Errorf(j17.CodeInvalidField, "%v", err).At("stream_id"))
			} else if id.Compare(r.last) <= 0 {
				faults = append(faults, j17.Errorf(j17.CodeInvalidField, "The stream id does not come after the one before it, %s: put the events in the order of their ids", r.last).At("stream_id"))
			}
		}
	}
	switch split := !v.Get("aggregate_type").IsMissing() || !v.Get("id").IsMissing(); {
	case split && !v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeInvalidField, "An event has either a 'key' or an 'aggregate_type' and an 'id'").At("key"))
	case split:
		c.aggregateType, c.id = text("aggregate_type"), text("id")
	case v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeMissingField, `Missing 'key': every event names its aggregate, as in "order:global"`).At("key"))
	default:
		before := len(faults)
		key, ok := j17.ParseKey(text("key"))
		if !ok && len(faults) == before {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'key' must be an aggregate type, a colon and an id").At("key"))
		}
		c.aggregateType, c.id = key.Type, key.ID
	}
	c.eventType = text("type")
	return c, id, faults
}

// examine makes the checks of admit and tells all that fails, not only the first.
func (d *deployed) examine(c *candidate) (*examined, []error) {
	typ, err := d.aggregateType(c.aggregateType)
	if err != nil {
		return nil, []error{at(err, "key")}
	}
	var faults []error
	e := &examined{}
	if e.key, err = d.key(c.aggregateType, c.id); err != nil {
		faults = append(faults, err)
	}
	own, kept, err := e.splitMetadata(c)
	if err != nil {
		faults = append(faults, err)
	}
	if c.recorded && ident.IsReservedEventType(c.eventType) {
		// The platform's own events have no schema, and nobody can post them.
		if c.metadata.Kind() != value.Object {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'metadata' must be a JSON object").At("metadata"))
		}
		e.metadata = withoutTimestamp(c.metadata)
		e.events = []proposed{{data: c.data}}
		return e, faults
	}
	et, err := eventType(typ, c.eventType)
	if err != nil {
		return nil, append(faults, at(err, "type"))
	}
	e.events = []proposed{{typ: et, data: c.data}}
	body := value.ObjectValue()
	if !own.IsMissing() {
		body = value.ObjectValue(value.Member{Key: "metadata", Value: own})
	}
	if err := e.readMetadata(d.spec, &Command{Body: body, Trusted: c.recorded}); err != nil {
		faults = append(faults, err)
	}
	if err := e.events[0].check(); err != nil {
		faults = append(faults, err)
	}
	if len(faults) == 0 && len(kept) > 0 {
		e.metadata = extend(e.metadata, kept)
	}
	return e, faults
}

// splitMetadata separates what a write may say from what only a server writes.
func (e *examined) splitMetadata(c *candidate) (own value.Value, kept []value.Member, err error) {
	if c.metadata.Kind() != value.Object {
		return c.metadata, nil, nil
	}
	var said []value.Member
	for _, m := range c.metadata.Members() {
		switch m.Key {
		case "timestamp":
			n, ok := m.Value.Int64()
			if !ok || n < 0 {
				err = j17.Errorf(j17.CodeInvalidField, "'timestamp' must be an integer of 0 or more: the time of the event in Unix seconds").At("metadata.timestamp")
				continue
			}
			e.timestamp = &n
		case "correlation_id":
			if m.Value.Kind() != value.String {
				err = cmp.Or(err, error(j17.Errorf(j17.CodeInvalidField, "'correlation_id' must be a string").At("metadata.correlation_id")))
			}
			kept = append(kept, m)
		case "actor", "target", "previous_length", "skip_occ":
			said = append(said, m)
		default:
			if c.recorded {
				kept = append(kept, m)
			} else {
				said = append(said, m)
			}
		}
	}
	return value.ObjectValue(said...), kept, err
}

// extend appends members to a compact JSON object that is not empty.
func extend(object []byte, members []value.Member) []byte {
	object = object[:len(object)-1]
	for _, m := range members {
		object = append(object, ',')
		object = value.AppendString(object, m.Key)
		object = append(object, ':')
		object = m.Value.AppendJSON(object)
	}
	return append(object, '}')
}

func withoutTimestamp(metadata value.Value) []byte {
	members := slices.DeleteFunc(slices.Clone(metadata.Members()), func(m value.Member) bool { return m.Key == "timestamp" })
	return value.ObjectValue(members...).AppendJSON(nil)
}

// fold takes an event that is valid into the state of its aggregate.
func (r *dryRun) fold(text EventText, c *candidate, e *examined) {
	if e.timestamp == nil {
		e.timestamp = &r.latest
	}
	timestamp := *e.timestamp
	r.latest = max(r.latest, timestamp)
	typ := r.spec.Types[e.key.Type]
	s := r.states[e.key]
	if s == nil {
		s = &simulated{folded: folded{fingerprint: typ.Fingerprint, data: value.ObjectValue()}, ed: value.NewEditor()}
		r.states[e.key] = s
	}
	line := 0
	s.apply(s.ed, typ, c.event(e, timestamp), func(f tick.Fault) {
		if len(r.Faults) >= diag.MaxKept {
			r.Dropped++
			return
		}
		if line == 0 {
			line, _ = value.Position(r.src, text.Offset)
		}
		r.Faults = append(r.Faults, EventFault{Diagnostic: inSpec(r.spec, f), Event: text.Number, EventLine: line, Key: e.key, Type: c.eventType})
	})
}

// event returns the event as handlers see it once it is stored.
func (c *candidate) event(e *examined, timestamp int64) *tick.Event {
	raw, layout := j17.AppendEvent(nil, j17.StreamID{}, e.key, c.eventType, c.data.OrNull().AppendJSON(nil), e.metadata, timestamp)
	return &tick.Event{
		Key: e.key.String(), Type: c.eventType, Timestamp: timestamp,
		Data: tick.Raw(layout.DataOf(raw)), Metadata: tick.Raw(layout.MetadataOf(raw)),
	}
}

// inSpec gives a fault its place in the spec.
func inSpec(c *spec.Compiled, f tick.Fault) diag.Diagnostic {
	line, column := c.Position(f.Pointer)
	return diag.Diagnostic{Severity: diag.Warning, Pointer: f.Pointer, Line: line, Column: column, Message: f.Message}
}

// syntax adds the finding of an event that is no JSON.
func (r *dryRun) syntax(text EventText, err error) {
	d := syntaxFinding(err)
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		d.Line, d.Column = value.Position(r.src, text.Offset+syntax.Offset)
	}
	r.add(EventFinding{Diagnostic: d, Event: text.Number, Code: j17.CodeInvalidJSON})
}

// refuse adds the findings that errors of the checks stand for, in the order of their places.
func (r *dryRun) refuse(text EventText, v value.Value, errs []error) {
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
		return []EventFinding{{Diagnostic: d, Code: e.Code, Path: path}}
	}
	all := make([]EventFinding, 0, len(e.Errors))
	for _, f := range e.Errors {
		p := diag.Pointer(f.Pointer)
		all = append(all, EventFinding{Diagnostic: diag.Diagnostic{Pointer: p, Message: f.Message, Hint: f.Hint}, Code: e.Code, Path: dotted(event, p)})
	}
	return all
}

// dotted writes a pointer into v in the form "data.items[0].sku".
func dotted(v value.Value, p diag.Pointer) string {
	path := ""
	for _, step := range p.Steps() {
		if i, err := strconv.Atoi(step); err == nil && v.Kind() == value.Array {
			path, v = path+"["+step+"]", v.Index(i)
			continue
		}
		path, v = join(path, step), v.Get(step)
	}
	return path
}
