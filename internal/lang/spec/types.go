package spec

import (
	"crypto/sha256"
	"maps"
	"slices"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
	"j17/internal/lang/tick"
)

// typeCompiler reads aggregate types and their event types.
type typeCompiler struct {
	resolver
	schemas *schema.Group
	handles map[ident.Prefix]string
	// events is how many event types there have been.
	events int
	// geoNames are what geo may name, once they are known.
	geoNames []string
	// hashed is where the text of each aggregate type is written, to be hashed.
	hashed []byte
}

func (c *typeCompiler) aggregateTypes(v value.Value, at diag.Pointer) {
	c.out.Types = map[string]*AggregateType{}
	if v.Kind() == value.Object && v.Len() == 0 {
		c.Report(at, noAggregateTypes)
	}
	c.members(v, at, "aggregate_types", maxAggregateTypes, func(name string, v value.Value, at diag.Pointer) {
		if c.name(name, at, "an aggregate type") && isPath(name) {
			c.Report(at, reservedType, name, name+"_record")
		}
		c.out.Types[name] = c.aggregateType(name, v, at)
	})
	c.tagNames()
	if c.events > maxEventTypes {
		c.Report(at, tooMany, "all aggregate types together", maxEventTypes, c.events)
	}
}

func (c *typeCompiler) aggregateType(name string, v value.Value, at diag.Pointer) *AggregateType {
	c.hashed = statePart(v).AppendJSON(append(c.hashed[:0], tick.Semantics))
	t := &AggregateType{Name: name, Fingerprint: sha256.Sum256(c.hashed), Events: map[string]*EventType{}}
	if !c.object(v, at, shape{
		what: "an aggregate type", required: []string{"events"}, optional: []string{"onTombstone", "identity"},
		refused: []string{"geo"},
	}) {
		return t
	}
	if !v.Get("geo").IsMissing() {
		c.Report(at.Key("geo"), geoOfType)
	}
	events := v.Get("events")
	if events.Kind() == value.Object && events.Len() == 0 {
		c.Report(at.Key("events"), noEvents, name)
	}
	if c.events += events.Len(); c.events <= maxEventTypes {
		c.members(events, at.Key("events"), "events", maxEventTypes,
			func(event string, v value.Value, at diag.Pointer) {
				t.Events[event] = c.eventType(name, event, v, at)
			})
	}
	c.retiredTypes(t, events)
	c.withDefinitions(t)
	decisionCompiler{resolver: c.resolver}.uniqueSets(t, events, at.Key("events"))
	c.places(t)
	c.publicIdentity(t, v.Get("identity"), at.Key("identity"))
	if o := v.Get("onTombstone"); !o.IsMissing() {
		t.OnTombstone = c.onTombstone(o, at.Key("onTombstone"))
	}
	return t
}

// withDefinitions makes the shared definitions that the schemas of an aggregate type reach part of its fingerprint.
func (c *typeCompiler) withDefinitions(t *AggregateType) {
	reached := map[string]bool{}
	for _, e := range t.Events {
		for _, name := range e.Schema.Definitions() {
			reached[name] = true
		}
	}
	if len(reached) == 0 {
		return
	}
	of := t.Fingerprint[:]
	for _, name := range slices.Sorted(maps.Keys(reached)) {
		of = c.out.root.Get("$defs").Get(name).AppendJSON(value.AppendString(of, name))
	}
	t.Fingerprint = sha256.Sum256(of)
}

func (c *typeCompiler) onTombstone(v value.Value, at diag.Pointer) *OnTombstone {
	o := &OnTombstone{}
	if !c.object(v, at, shape{what: "onTombstone", optional: []string{"actor", "target"}}) {
		return o
	}
	o.CascadeFromActor = c.choice(v.Get("actor"), at.Key("actor"), "actor", "preserve", "cascade") == "cascade"
	o.CascadeFromTarget = c.choice(v.Get("target"), at.Key("target"), "target", "preserve", "cascade") == "cascade"
	return o
}

func (c *typeCompiler) eventType(aggregateType, name string, v value.Value, at diag.Pointer) *EventType {
	e := &EventType{
		AggregateType: aggregateType, Name: name, Pointer: at, System: ident.IsReservedEventType(name),
		Generation: 1, Assumed: 1,
	}
	if e.System {
		c.systemEvent(e, v, at)
		return e
	}
	c.name(name, at, "an event type")
	s := shape{
		what: "an event type", required: []string{"schema", "handler"},
		optional: slices.Concat([]string{"implications", "allow_skip_occ", "geo"}, DecisionKeys(), generationKeys()),
	}
	as := v.Get("retired").Kind() == value.Object
	if as {
		s.required, s.optional, s.refused = []string{"schema"}, generationKeys(), append(s.optional, "handler")
	}
	if !c.object(v, at, s) {
		return e
	}
	if s := v.Get("schema"); !s.IsMissing() {
		e.Schema = c.schemas.Compile(s, at.Key("schema"))
	}
	if !as {
		c.handler(e, v.Get("handler"), at.Key("handler"))
	}
	if v.Len() == 2 && e.Schema != nil && !v.Get("handler").IsMissing() {
		return e // it has no other members, like most event types of a large spec
	}
	c.generations(e, v, at)
	c.retired(e, v.Get("retired"), at.Key("retired"))
	if as {
		for _, m := range v.Members() {
			if slices.Contains(s.refused, m.Key) && !slices.Contains(s.optional, m.Key) {
				c.Report(at.Key(m.Key), besideRetired, m.Key)
			}
		}
		return e
	}
	e.AllowSkipOCC = c.flag(v.Get("allow_skip_occ"), at.Key("allow_skip_occ"), "allow_skip_occ")
	if g := v.Get("geo"); !g.IsMissing() && !c.leniently(func() { e.Geo = c.geo(g, at.Key("geo")) }) {
		e.Geo = nil
	}
	in, effects := eventScope(v), effectCompiler{c.resolver}
	c.elems(v.Get("implications"), at.Key("implications"), "implications", maxImplications,
		func(_ int, v value.Value, p diag.Pointer) {
			if i := effects.implication(v, p, in, false); i != nil {
				e.Implications = append(e.Implications, i)
			}
		})
	decisionCompiler{c.resolver, c.schemaOf(v)}.decisions(e, v, at)
	return e
}

func (c *typeCompiler) systemEvent(e *EventType, v value.Value, at diag.Pointer) {
	if e.Name != tombstoned {
		c.Report(at, unknownSystemEvent, e.Name, tombstoned)
	}
	if !c.object(v, at, shape{
		what: "an event type of the platform", optional: []string{"handler"},
		refused: slices.Concat([]string{"schema"}, DecisionKeys(), generationKeys()),
	}) {
		return
	}
	for _, key := range DecisionKeys() {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key(key), systemDecision, e.Name, key)
		}
	}
	for _, key := range generationKeys() {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key(key), systemGenerations, e.Name, key)
		}
	}
	if !v.Get("schema").IsMissing() {
		c.Report(at.Key("schema"), systemSchema, e.Name)
	}
	c.handler(e, v.Get("handler"), at.Key("handler"))
}

func (c *typeCompiler) handler(e *EventType, v value.Value, at diag.Pointer) {
	switch {
	case v.IsMissing():
	case v.Get("wasm").IsMissing():
		e.Handler = tick.CompileHandler(v, at, c.List)
	case c.object(v, at, shape{what: "a handler in WebAssembly", required: []string{"wasm"}}):
		e.Code = codeCompiler{c.decoder}.wasmHandler(v.Get("wasm"), at.Key("wasm"))
	}
}
