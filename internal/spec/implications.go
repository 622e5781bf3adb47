package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/template"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// implicationScope is what paths of implications can start with.
func implicationScope() scope {
	return scope{roots: []string{"key", "id", "type", "data", "metadata", "state"}}
}

// condition reads an optional predicate, which is called condition or when.
func (c *compiler) condition(v value.Value, at diag.Pointer, s scope) *Condition {
	key := "condition"
	if !v.Get("when").IsMissing() {
		if !v.Get(key).IsMissing() {
			c.bothKeys(at.Key("when"), key, "when")
		}
		key = "when"
	}
	p := v.Get(key)
	if p.IsMissing() {
		return nil
	}
	var names tick.Scope
	for _, b := range s.bindings {
		names = append(names, "$"+b)
	}
	if s.roots == nil {
		if names = members(p, names); len(names) > maxAddedNames {
			c.tooManyNames(at.Key(key), maxAddedNames)
			return nil
		}
	} else if slices.Contains(s.roots, "id") {
		names = append(names, "$.id")
	}
	cond := &Condition{Scope: names}
	cond.Predicate = tick.CompilePredicate(p, at.Key(key), names, &c.List, func(at diag.Pointer, path string) {
		cond.ReadsState = true
		if s.roots != nil && !slices.Contains(s.roots, "state") {
			c.noState(at, path)
		}
	})
	return cond
}

// maxAddedNames is how many members of "$" a condition may read that steps before it have added.
const maxAddedNames = 100

// members adds what paths in v name below "$" to names, but for what an event always has. It stops beyond maxAddedNames.
func members(v value.Value, names tick.Scope) tick.Scope {
	if len(names) > maxAddedNames {
		return names
	}
	if p, err := jsonpath.Parse(v.Str()); err == nil && p.Root == jsonpath.Document && len(p.Steps) > 0 {
		name := "$." + p.Steps[0].Key
		always := []string{"$.", "$.key", "$.type", "$.data", "$.metadata", "$.state"}
		if !slices.Contains(always, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, e := range v.Elems() {
		names = members(e, names)
	}
	for _, m := range v.Members() {
		names = members(m.Value, names)
	}
	return names
}

// implication reads one implication, or one step of a pipeline.
func (c *compiler) implication(v value.Value, at diag.Pointer, s scope, step bool) *Implication {
	what, kinds := "an implication", []string{"emit", "map", "schedule", "wasm", "binary_container", "runtime_container", "pipeline"}
	if step {
		what, kinds = "a step of a pipeline", kinds[:len(kinds)-1]
	}
	before := c.Errors()
	if !c.object(v, at, shape{what: what, optional: append([]string{"condition", "when"}, kinds...)}) {
		return nil
	}
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
	body, at := v.Get(has[0]), at.Key(has[0])
	switch has[0] {
	case "emit":
		i.Emit = c.emit(body, at, s)
	case "map":
		i.Map = c.mapped(body, at, s)
	case "schedule":
		c.notYet(schedules, at)
		i.Schedule = c.schedule(body, at, s)
	case "pipeline":
		i.Pipeline = c.pipeline(body, at, s)
	default:
		i.Code = c.code(has[0], body, at)
		if i.Code.Transform && !step {
			c.transformAlone(at)
		}
	}
	return i
}

func (c *compiler) emit(v value.Value, at diag.Pointer, s scope) *Emit {
	e := &Emit{Pointer: at}
	if !c.object(v, at, shape{what: "an emit", required: []string{"aggregate_type", "id", "event_type"}, optional: []string{"data"}}) {
		return e
	}
	e.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
	e.ID = c.id(v.Get("id"), at.Key("id"), e.AggregateType, s)
	e.EventType = c.eventTypeRef(v.Get("event_type"), at.Key("event_type"), e.AggregateType)
	before := c.Errors()
	c.template(v.Get("data"), at.Key("data"), s)
	if c.Errors() == before {
		e.Data = template.Compile(v.Get("data"))
	}
	return e
}

// template checks the data of an emit: the paths and operators in it.
func (c *compiler) template(v value.Value, at diag.Pointer, s scope) {
	switch v.Kind() {
	case value.String:
		if jsonpath.IsPath(v.Str()) {
			c.pathText(v.Str(), at, s)
		}
	case value.Array:
		for i, e := range v.Elems() {
			c.template(e, at.Index(i), s)
		}
	case value.Object:
		members := v.Members()
		if len(members) == 1 {
			switch key := members[0].Key; key {
			case "concat", "coalesce", "merge":
				if members[0].Value.Kind() != value.Array {
					c.operatorWithoutArray(at, key)
					return
				}
			case "$literal":
				return
			}
		}
		for _, m := range members {
			if m.Key == "$" || m.Key == "$merge" {
				c.handlerForm(at.Key(m.Key), m.Key)
				continue
			}
			c.template(m.Value, at.Key(m.Key), s)
		}
	case value.Missing, value.Null, value.Bool, value.Number:
	}
}

func (c *compiler) mapped(v value.Value, at diag.Pointer, s scope) *Map {
	m := &Map{}
	if !c.object(v, at, shape{what: "a map", required: []string{"in", "as", "emit"}, optional: []string{"condition", "when"}}) {
		return m
	}
	m.In = template.NewPath(c.path(v.Get("in"), at.Key("in"), "in", s))
	m.As = c.binding(v.Get("as"), at.Key("as"), s)
	if m.As != "" {
		s = s.with(m.As[1:])
	}
	m.Condition = c.condition(v, at, s)
	if e := v.Get("emit"); !e.IsMissing() {
		m.Emit = c.emit(e, at.Key("emit"), s)
	}
	return m
}

// binding reads a new binding's name, "$" included.
func (c *compiler) binding(v value.Value, at diag.Pointer, s scope) string {
	text, ok := c.text(v, at, "as")
	if !ok {
		return ""
	}
	name, dollar := strings.CutPrefix(text, "$")
	switch {
	case !dollar || !jsonpath.IsName(name) || len(name) > MaxNameLength:
		c.badBinding(at, text)
		return ""
	case s.has(name):
		c.bindingTaken(at, text)
		return ""
	default:
		return text
	}
}

func (c *compiler) schedule(v value.Value, at diag.Pointer, s scope) *Schedule {
	out := &Schedule{}
	if !c.object(v, at, shape{what: "a schedule", required: []string{"emit"}, optional: []string{"delay", "delay_ms", "cancel_on"}}) {
		return out
	}
	out.Delay = c.delay(v, at)
	if e := v.Get("emit"); !e.IsMissing() {
		out.Emit = c.emit(e, at.Key("emit"), s)
	}
	c.elems(v.Get("cancel_on"), at.Key("cancel_on"), "cancel_on", maxCancelOn, func(_ int, v value.Value, at diag.Pointer) {
		var m Match
		if !c.object(v, at, shape{what: "an element of cancel_on", required: []string{"aggregate_type", "id", "event_type"}}) {
			return
		}
		m.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
		m.ID = c.id(v.Get("id"), at.Key("id"), m.AggregateType, s)
		m.EventType = c.eventTypeRef(v.Get("event_type"), at.Key("event_type"), m.AggregateType)
		out.CancelOn = append(out.CancelOn, m)
	})
	return out
}

// delay reads how long a schedule waits.
func (c *compiler) delay(v value.Value, at diag.Pointer) time.Duration {
	text, ms := v.Get("delay"), v.Get("delay_ms")
	var d time.Duration
	switch {
	case text.IsMissing() && ms.IsMissing():
		c.missingKey(at, "a schedule", "delay")
		return 0
	case !text.IsMissing() && !ms.IsMissing():
		c.bothKeys(at.Key("delay_ms"), "delay", "delay_ms")
		return 0
	case text.IsMissing():
		at = at.Key("delay_ms")
		n, ok := ms.Int64()
		if !ok || ms.Kind() != value.Number || n < 0 {
			c.badDelayMs(at)
			return 0
		}
		d = time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	default:
		at = at.Key("delay")
		s, ok := c.text(text, at, "delay")
		if !ok {
			return 0
		}
		if d, ok = duration(s); !ok {
			c.badDelay(at, s)
			return 0
		}
	}
	if d < minDelay || d > maxDelay {
		c.delayOutOfRange(at)
	}
	return d
}

// duration reads a number with a unit: seconds, minutes, hours or days.
func duration(s string) (time.Duration, bool) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	unit, known := units[s[len(s)-1]]
	digits := s[:len(s)-1]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !known || err != nil || strings.TrimLeft(digits, "0123456789") != "" {
		return 0, false
	}
	// What is longer than any delay must not overflow.
	return time.Duration(min(n, int64(2*maxDelay/unit))) * unit, true
}

func (c *compiler) pipeline(v value.Value, at diag.Pointer, s scope) []*Implication {
	if v.Kind() == value.Array && v.Len() == 0 {
		c.noSteps(at, "a pipeline")
	}
	var steps []*Implication
	c.elems(v, at, "a pipeline", maxPipelineSteps, func(_ int, v value.Value, at diag.Pointer) {
		i := c.implication(v, at, s, true)
		if i == nil {
			return
		}
		if i.Code != nil && i.Code.Transform {
			// What custom code adds to the context is not known here.
			s.roots = nil
		}
		steps = append(steps, i)
	})
	return steps
}
