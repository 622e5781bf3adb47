package spec

import (
	"math"
	"strconv"
	"strings"
	"time"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// eventMembers are the members of "$" where an event is decided and where it implies others.
func eventMembers() []string { return []string{"key", "id", "type", "data", "metadata", "state"} }

// eventScope is what paths of an event type's implications and guards can start with. The name of a read is known even
// where the rest of the read is faulty.
func eventScope(event value.Value) tick.Scope {
	reads := []string{}
	for _, m := range event.Get("reads").Members() {
		if len(reads) < maxReads && isName(m.Key) {
			reads = append(reads, m.Key)
		}
	}
	return tick.Scope{Members: eventMembers(), Reads: reads}
}

// effectCompiler reads implications: what events bring about.
type effectCompiler struct{ resolver }

// implication reads one implication, or one step of a pipeline.
func (c effectCompiler) implication(v value.Value, at diag.Pointer, s tick.Scope, step bool) *Implication {
	what, kinds := "an implication",
		[]string{"emit", "map", "schedule", "wasm", "binary_container", "runtime_container", "pipeline"}
	if step {
		what, kinds = "a step of a pipeline", kinds[:len(kinds)-1]
	}
	before := c.Errors()
	if !c.object(v, at, shape{what: what, optional: append([]string{"condition", "when"}, kinds...)}) {
		return nil
	}

	// Exactly one key says what is implied.
	i := &Implication{Pointer: at, Condition: c.condition(v, at, s)}
	var has []string
	for _, kind := range kinds {
		if !v.Get(kind).IsMissing() {
			has = append(has, kind)
		}
	}
	if len(has) != 1 {
		if len(has) > 1 || c.Errors() == before {
			c.notOneKind(at, what, has, kinds)
		}
		return nil
	}

	// What is said under it.
	body, at := v.Get(has[0]), at.Key(has[0])
	switch has[0] {
	case "emit":
		i.Emit = c.emit(body, at, s)
	case "map":
		i.Map = c.mapped(body, at, s)
	case "schedule":
		i.Schedule = c.schedule(body, at, s)
	case "pipeline":
		i.Pipeline = c.pipeline(body, at, s)
	default:
		i.Code = codeCompiler{c.decoder}.code(has[0], body, at)
		if i.Code.Transform && !step {
			c.Report(at.Key("mode"), transformAlone)
		}
	}
	return i
}

func (c effectCompiler) mapped(v value.Value, at diag.Pointer, s tick.Scope) *Map {
	m := &Map{}
	if !c.object(v, at, shape{
		what: "a map", required: []string{"in", "as", "emit"}, optional: []string{"condition", "when"},
	}) {
		return m
	}
	m.In = tick.CompilePath(v.Get("in"), at.Key("in"), "in", s, c.List)
	m.As, m.Slot = tick.NewBinding(v.Get("as"), at.Key("as"), s, c.List), len(s.Bindings)
	if m.As != "" {
		s = s.With(m.As[1:])
	}
	m.Condition = c.condition(v, at, s)
	if e := v.Get("emit"); !e.IsMissing() {
		m.Emit = c.emit(e, at.Key("emit"), s)
	}
	return m
}

func (c effectCompiler) schedule(v value.Value, at diag.Pointer, s tick.Scope) *Schedule {
	out := &Schedule{}
	if !c.object(v, at, shape{
		what: "a schedule", required: []string{"emit"},
		optional: []string{"at", "before", "after", "delay", "delay_ms", "cancel_on"},
	}) {
		return out
	}
	if v.Get("at").IsMissing() {
		c.offsetWithoutTime(v, at)
		out.Delay = c.delay(v, at)
	} else {
		out.At, out.Offset = tick.CompileTime(v.Get("at"), at.Key("at"), "at", s, c.List), c.offset(v, at)
	}
	if e := v.Get("emit"); !e.IsMissing() {
		out.Emit = c.emit(e, at.Key("emit"), s)
	}
	c.elems(v.Get("cancel_on"), at.Key("cancel_on"), "cancel_on", maxCancelOn,
		func(_ int, v value.Value, at diag.Pointer) {
			var m Match
			if !c.object(v, at, shape{
				what: "an element of cancel_on", required: []string{"aggregate_type", "id", "event_type"},
			}) {
				return
			}
			m.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
			m.ID = c.id(v.Get("id"), at.Key("id"), m.AggregateType, s)
			m.EventType = c.eventTypeRef(v.Get("event_type"), at.Key("event_type"), m.AggregateType)
			out.CancelOn = append(out.CancelOn, m)
		})
	return out
}

// offset reads by how much a scheduled event comes after its time, or before it where the offset is negative.
func (c effectCompiler) offset(v value.Value, at diag.Pointer) time.Duration {
	for _, key := range []string{"delay", "delay_ms"} {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key(key), bothKeys, "at", key)
		}
	}
	before, after := v.Get("before"), v.Get("after")
	switch {
	case before.IsMissing() && after.IsMissing():
		return 0
	case !before.IsMissing() && !after.IsMissing():
		c.Report(at.Key("after"), bothKeys, "before", "after")
		return 0
	case !before.IsMissing():
		return -c.timeOffset(before, at.Key("before"))
	default:
		return c.timeOffset(after, at.Key("after"))
	}
}

func (c effectCompiler) timeOffset(v value.Value, at diag.Pointer) time.Duration {
	d, ok := ParseDelay(v.Str())
	if !ok || d == 0 || d > MaxAhead {
		c.Report(at, badOffset)
	}
	return d
}

// offsetWithoutTime reports offsets of a schedule that has no time to be offset from.
func (c effectCompiler) offsetWithoutTime(v value.Value, at diag.Pointer) {
	for _, key := range []string{"before", "after"} {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key(key), offsetAlone, key)
		}
	}
}

// delay reads how long a schedule waits.
func (c effectCompiler) delay(v value.Value, at diag.Pointer) time.Duration {
	text, ms := v.Get("delay"), v.Get("delay_ms")
	var d time.Duration

	// One of the two spellings, each in its own unit.
	switch {
	case text.IsMissing() && ms.IsMissing():
		c.missingKey(at, "a schedule", "delay")
		return 0
	case !text.IsMissing() && !ms.IsMissing():
		c.Report(at.Key("delay_ms"), bothKeys, "delay", "delay_ms")
		return 0
	case text.IsMissing():
		at = at.Key("delay_ms")
		n, ok := ms.Int64()
		if !ok || ms.Kind() != value.Number || n < 0 {
			c.badDelayMs(at, ms)
			return 0
		}
		d = time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	default:
		at = at.Key("delay")
		if text.Kind() != value.String {
			c.badDelay(at, text)
			return 0
		}
		s, ok := c.text(text, at, "delay")
		if !ok {
			return 0
		}
		if d, ok = ParseDelay(s); !ok {
			c.badDelay(at, text)
			return 0
		}
	}

	if d < minDelay || d > maxDelay {
		c.Report(at, delayOutOfRange)
	}
	return d
}

// ParseDelay reads a number with a unit: seconds, minutes, hours or days. An amount that is too long becomes the
// longest duration of that unit.
func ParseDelay(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	unit, known := units[s[len(s)-1]]
	digits := s[:len(s)-1]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !known || err != nil || strings.TrimLeft(digits, "0123456789") != "" {
		return 0, false
	}
	return time.Duration(min(n, int64(math.MaxInt64/unit))) * unit, true
}

func (c effectCompiler) pipeline(v value.Value, at diag.Pointer, s tick.Scope) []*Implication {
	if v.Kind() == value.Array && v.Len() == 0 {
		c.Report(at, noSteps, "a pipeline")
	}
	var steps []*Implication
	c.elems(v, at, "a pipeline", maxPipelineSteps, func(_ int, v value.Value, at diag.Pointer) {
		i := c.implication(v, at, s, true)
		if i == nil {
			return
		}
		if i.Code != nil && i.Code.Transform {
			// What custom code adds to the context is not known here.
			s.Members = nil
		}
		steps = append(steps, i)
	})
	return steps
}

func (c decoder) notOneKind(at diag.Pointer, what string, has, kinds []string) {
	if len(has) == 0 {
		c.Errorf(at, "%s needs one of the keys %s", what, diag.Join(kinds, "or"))
		return
	}
	c.Errorf(at, "%s cannot have %s together", what, diag.Join(has, "and")).Hintf("write one implication for each")
}

// badDelay reports a delay that is a path or an operator: a delay is the same for all events, so "at" may have been
// meant.
func (c decoder) badDelay(at diag.Pointer, got value.Value) {
	var d *diag.Diagnostic
	if got.Kind() == value.String {
		d = c.Errorf(at, "%s is no delay", diag.Quote(got.Str()))
	} else {
		d = c.Errorf(at, "delay must be a string, not %s", aKind(got.Kind()))
	}
	d.Hintf(`write a whole number and s, m, h or d for its unit, as in "30m", "24h" or "7d"`)
	notFromData(d, got)
}

func (c decoder) badDelayMs(at diag.Pointer, got value.Value) {
	notFromData(c.Errorf(at, "delay_ms must be a whole number of milliseconds").Hintf("300000 is five minutes"), got)
}

// notFromData adds a sentence to the hint for a delay that is to be computed.
func notFromData(d *diag.Diagnostic, got value.Value) {
	if got.Kind() == value.Object || jsonpath.IsPath(got.Str()) {
		d.Hint += "; a delay is the same for all events: a time of their data is written as \"at\""
	}
}
