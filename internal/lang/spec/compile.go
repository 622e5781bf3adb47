package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema"
	"j17/internal/lang/tick"
)

// tombstoned is the one event type of the platform's own that a spec may mention.
const tombstoned = ident.WasTombstoned

// compiler works through one spec. What it finds goes into the list, what it understands into out.
type compiler struct {
	messages
	root value.Value
	out  *Compiled
	// declared holds every aggregate type and its event types, sound or not, so that one fault in a definition is not
	// reported again wherever its name is used.
	declared map[string]map[string]bool
	handles  map[ident.Prefix]string
	events   int
	schemas  *schema.Group
	// idRules identifies what counts as an identifier, nil as long as nobody asked for it.
	idRules []byte
	// geoNames are what geo may name, once they are known.
	geoNames []string
	// pathLooks is how much more looking for paths that lead nowhere may cost.
	pathLooks *work.Budget
}

// Compile reads the text of a spec. It returns every finding, in the order of their places, and the compiled spec where
// none of them is an error. Findings that are warnings may come with a compiled spec.
func Compile(src []byte) (*Compiled, []diag.Diagnostic) { return compile(src, false) }

// CompileStored is Compile for a spec that was deployed before: what a later version of the program came to refuse although it has
// a meaning is only warned of, so that a new version of the program takes no environment down.
func CompileStored(src []byte) (*Compiled, []diag.Diagnostic) { return compile(src, true) }

func compile(src []byte, stored bool) (*Compiled, []diag.Diagnostic) {
	c := &compiler{
		out:       &Compiled{Source: bytes.Clone(bytes.TrimSpace(src)), text: string(src)},
		declared:  map[string]map[string]bool{},
		handles:   map[ident.Prefix]string{},
		pathLooks: work.Counted(maxLooks),
	}
	c.out.declared, c.Stored = c.declared, stored
	c.schemas = schema.NewGroup(&c.List)

	// What is too large, or no JSON, is not looked into.
	if len(src) > MaxSize {
		c.Report("", tooLarge, len(src), MaxSize)
		return nil, c.All()
	}
	root, err := value.ParseString(c.out.text)
	if err != nil {
		return nil, []diag.Diagnostic{syntaxError(c.out.text, err)}
	}
	if pointers(root, 0, maxPointers) < 0 {
		c.Report("", longNames)
		return nil, c.All()
	}

	// All findings, with their places in the text.
	c.root, c.out.root = root, root
	c.spec()
	found := place(c.out.text, c.All())
	if n := c.Dropped(); n > 0 {
		found = append(found, droppedFindings(n))
	}
	if c.Errors() > 0 {
		return nil, found
	}

	// The hash is that of the values, whatever the text looks like.
	sum := sha256.Sum256(root.AppendJSON(nil))
	c.out.Hash = hex.EncodeToString(sum[:])
	return c.out, found
}

// maxPointers bounds the bytes that the pointers to all values of a spec have together. A name that stands around much is
// part of many pointers; an ordinary spec of 4 MiB has some 30 MiB of them.
const maxPointers = 128 << 20

// pointers returns what is left of a number of bytes once each value below v has taken the length of its pointer.
func pointers(v value.Value, length, left int) int {
	left -= length
	for i := 0; i < v.Len() && left >= 0; i++ {
		if v.Kind() == value.Object {
			m := v.Members()[i]
			left = pointers(m.Value, length+1+len(m.Key), left)
		} else {
			left = pointers(v.Elems()[i], length+7, left)
		}
	}
	return left
}

func syntaxError(text string, err error) diag.Diagnostic {
	d := diag.Diagnostic{Message: err.Error()}
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		d = diag.Diagnostic{Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
		d.Hint = syntaxHint(text, min(syntax.Offset, len(text)))
	}
	return d
}

func (c *compiler) spec() {
	top := shape{
		what:     "a spec",
		required: []string{"aggregate_types", "agent_types"},
		optional: []string{
			"$defs", "target_types", "modules", "geo_types", "projections", "singletons", "listeners", "identity", "project_key",
		},
		refused: []string{"sagas"},
	}
	if !c.object(c.root, "", top) {
		return
	}
	if !c.root.Get("sagas").IsMissing() {
		c.Report("/sagas", sagasOutside)
	}
	c.declare()
	c.sharedDefinitions(c.root.Get("$defs"), "/$defs")
	c.identity(c.root.Get("identity"), "/identity")
	c.out.ProjectKey = c.projectKey(c.root.Get("project_key"), "/project_key")
	c.out.AgentTypes = c.agentTypes(c.root.Get("agent_types"), "/agent_types")
	c.out.TargetTypes = c.names(c.root.Get("target_types"), "/target_types", "target_types", "a target type",
		func(name string, at diag.Pointer) bool { return c.name(name, at, "a target type") })
	c.out.GeoTypes = definitions(c, "geo_types", c.geoType)
	c.aggregateTypes(c.root.Get("aggregate_types"), "/aggregate_types")
	for _, name := range c.schemas.Done() {
		if c.Errors() > 0 {
			break
		}
		c.Report(diag.Pointer("/$defs").Key(name), unusedDefinition, name, "#/$defs/"+name)
	}
	c.singletonsApart(c.root.Get("singletons"), "/singletons")
	c.singletonsWithoutPlaces(c.root.Get("singletons"), "/singletons")
	c.modules(c.root.Get("modules"), "/modules")
	c.out.Projections = definitions(c, "projections", c.declaredProjection)
	c.out.Listeners = definitions(c, "listeners", c.listener)
	c.out.countListeners()
	c.cycles()
	c.slips()
}

// sharedDefinitions reads the schemas that all schemas of the spec may refer to.
func (c *compiler) sharedDefinitions(v value.Value, at diag.Pointer) {
	c.members(v, at, "$defs", maxDefinitions, func(string, value.Value, diag.Pointer) {})
	if v.Kind() == value.Object && v.Len() <= maxDefinitions {
		c.schemas.Define(v)
	}
}

// schemaOf returns the schema of the data of an event type's definition.
func (c *compiler) schemaOf(event value.Value) outline.Schema {
	return outline.Of(event.Get("schema"), c.root.Get("$defs"))
}

// declare gathers the names that others refer to.
func (c *compiler) declare() {
	for _, t := range c.root.Get("aggregate_types").Members() {
		events := map[string]bool{}
		for _, e := range t.Value.Get("events").Members() {
			events[e.Key] = true
		}
		c.declared[t.Key] = events
	}
}

// definitions reads an object of named definitions at the top level of the spec.
func definitions[T any](c *compiler, key string, read func(name string, v value.Value, at diag.Pointer) *T) map[string]*T {
	found := map[string]*T{}
	c.members(c.root.Get(key), diag.Pointer("").Key(key), key, maxDefinitions, func(name string, v value.Value, at diag.Pointer) {
		if d := read(name, v, at); d != nil {
			found[name] = d
		}
	})
	return found
}

// identity reads what counts as an identifier: UUID versions and singletons.
func (c *compiler) identity(v value.Value, at diag.Pointer) {
	var versions []int
	if !v.IsMissing() && c.object(v, at, shape{what: "identity", optional: []string{"uuid_versions"}}) {
		versions = c.uuidVersions(v.Get("uuid_versions"), at.Key("uuid_versions"))
	}
	anything, _ := ident.NewRules([]int{1, 2, 3, 4, 5, 6, 7, 8}, nil)
	c.out.Singletons = c.names(c.root.Get("singletons"), "/singletons", "singletons", "a singleton", func(name string, at diag.Pointer) bool {
		if err := ident.CheckSingletonName(name); err != nil {
			c.Report(at, badSingleton, err)
			return false
		}
		c.singletonWarnings(name, at, anything)
		return name != ident.Global
	})
	// All parts were checked one by one.
	c.out.IDs, _ = ident.NewRules(versions, c.out.Singletons.Sorted())
}

func (c *compiler) singletonWarnings(name string, at diag.Pointer, anything *ident.Rules) {
	_, kind, err := anything.Check(name)
	_, handle := ident.ParseHandle(name)
	switch {
	case name == ident.Global:
		c.Report(at, globalDeclared)
	case err == nil && kind == ident.HumaneCode:
		c.Report(at, looksLike, name, "a humane code")
	case err == nil && kind == ident.UUID:
		c.Report(at, looksLike, name, "a UUID")
	case handle == nil:
		c.Report(at, looksLike, name, "a handle")
	case c.declared[name] != nil:
		c.Report(at, hiddenByType, name)
	}
}

func (c *compiler) uuidVersions(v value.Value, at diag.Pointer) []int {
	var versions []int
	c.elems(v, at, "uuid_versions", 8, func(_ int, v value.Value, at diag.Pointer) {
		n := int(c.integer(v, at, "a UUID version", 8, 0))
		if n != 0 && slices.Contains(versions, n) {
			c.Report(at, versionTwice, n)
		}
		versions = append(versions, n)
	})
	if v.Kind() == value.Array && !slices.Contains(versions, 4) && !slices.Contains(versions, 0) {
		c.Report(at, noVersion4)
	}
	return slices.DeleteFunc(versions, func(n int) bool { return n == 0 })
}

// singletonsApart refuses singletons that would share a name with an aggregate that the server names.
func (c *compiler) singletonsApart(v value.Value, at diag.Pointer) {
	sequenced := false
	for _, t := range c.out.Types {
		sequenced = sequenced || t.Sequence
	}
	for i, name := range v.Elems() {
		prefix, err := ident.ParseHandle(name.Str())
		owner := c.handles[prefix]
		switch {
		case err == nil && owner != "":
			c.Report(at.Index(i), singletonNamed, name.Str(), "a handle of the type "+quote(owner))
		case sequenced && err != nil && c.isGivenName(name.Str()):
			c.Report(at.Index(i), singletonNamed, name.Str(), "a public id of this project")
		}
	}
}

func (c *compiler) projectKey(v value.Value, at diag.Pointer) string {
	key, ok := c.text(v, at, "project_key")
	if !ok {
		return ""
	}
	bad := func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') }
	if len(key) < 2 || len(key) > 10 || strings.ContainsFunc(key, bad) || key[0] < 'A' {
		c.Report(at, badProjectKey, key)
	}
	return key
}

func (c *compiler) agentTypes(v value.Value, at diag.Pointer) NameSet {
	if v.Kind() == value.Array && v.Len() == 0 {
		c.Report(at, noAgentTypes)
	}
	return c.names(v, at, "agent_types", "an agent type", func(name string, at diag.Pointer) bool {
		if ident.IsSystemActorType(name) {
			c.Report(at, systemAgentType, name, strings.TrimPrefix(name, "system_"))
			return false
		}
		return c.name(name, at, "an agent type")
	})
}

func (c *compiler) aggregateTypes(v value.Value, at diag.Pointer) {
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

func (c *compiler) aggregateType(name string, v value.Value, at diag.Pointer) *AggregateType {
	t := &AggregateType{Name: name, Fingerprint: sha256.Sum256(statePart(v).AppendJSON([]byte{tick.Semantics})), Events: map[string]*EventType{}}
	if !c.object(v, at, shape{what: "an aggregate type", required: []string{"events"}, optional: []string{"onTombstone", "identity"}, refused: []string{"geo"}}) {
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
		c.members(events, at.Key("events"), "events", maxEventTypes, func(event string, v value.Value, at diag.Pointer) {
			t.Events[event] = c.eventType(name, event, v, at)
		})
	}
	c.withDefinitions(t)
	c.uniqueSets(t, events, at.Key("events"))
	c.places(t)
	c.publicIdentity(t, v.Get("identity"), at.Key("identity"))
	if o := v.Get("onTombstone"); !o.IsMissing() {
		t.OnTombstone = c.onTombstone(o, at.Key("onTombstone"))
	}
	return t
}

// withDefinitions makes the shared definitions that the schemas of an aggregate type reach part of its fingerprint.
func (c *compiler) withDefinitions(t *AggregateType) {
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
		of = c.root.Get("$defs").Get(name).AppendJSON(value.AppendString(of, name))
	}
	t.Fingerprint = sha256.Sum256(of)
}

func (c *compiler) publicIdentity(t *AggregateType, v value.Value, at diag.Pointer) {
	if v.IsMissing() || !c.object(v, at, shape{what: "an aggregate type's identity", optional: []string{"handle", "sequence"}}) {
		return
	}
	if s, ok := c.text(v.Get("handle"), at.Key("handle"), "handle"); ok {
		prefix, err := ident.ParsePrefix(s)
		switch first, taken := c.handles[prefix]; {
		case err != nil:
			c.Report(at.Key("handle"), badHandle, s)
		case taken:
			c.Report(at.Key("handle"), handleTaken, s, first)
		default:
			if slices.Contains(ident.Prefixes(), prefix) {
				c.Report(at.Key("handle"), handleOfOurs, s)
			}
			c.handles[prefix] = t.Name
			t.Handle = prefix
		}
	}
	t.Sequence = c.flag(v.Get("sequence"), at.Key("sequence"), "sequence")
	if t.Sequence && c.root.Get("project_key").IsMissing() {
		c.Report(at.Key("sequence"), sequenceWithoutKey)
	}
	if t.Sequence { // replies with a state have the public id
		t.Fingerprint = sha256.Sum256(append(t.Fingerprint[:], c.out.ProjectKey...))
	}
}

func (c *compiler) onTombstone(v value.Value, at diag.Pointer) *OnTombstone {
	o := &OnTombstone{}
	if !c.object(v, at, shape{what: "onTombstone", optional: []string{"actor", "target"}}) {
		return o
	}
	o.CascadeFromActor = c.choice(v.Get("actor"), at.Key("actor"), "actor", "preserve", "cascade") == "cascade"
	o.CascadeFromTarget = c.choice(v.Get("target"), at.Key("target"), "target", "preserve", "cascade") == "cascade"
	return o
}

func (c *compiler) eventType(aggregateType, name string, v value.Value, at diag.Pointer) *EventType {
	e := &EventType{AggregateType: aggregateType, Name: name, Pointer: at, System: ident.IsReservedEventType(name)}
	if e.System {
		c.systemEvent(e, v, at)
		return e
	}
	c.name(name, at, "an event type")
	if !c.object(v, at, shape{
		what: "an event type", required: []string{"schema", "handler"},
		optional: append([]string{"implications", "allow_skip_occ", "geo"}, decisionKeys()...),
	}) {
		return e
	}
	if s := v.Get("schema"); !s.IsMissing() {
		e.Schema = c.schemas.Compile(s, at.Key("schema"))
	}
	c.handler(e, v.Get("handler"), at.Key("handler"))
	e.AllowSkipOCC = c.flag(v.Get("allow_skip_occ"), at.Key("allow_skip_occ"), "allow_skip_occ")
	if g := v.Get("geo"); !g.IsMissing() && !c.leniently(func() { e.Geo = c.geo(g, at.Key("geo")) }) {
		e.Geo = nil
	}
	s := eventScope(v)
	c.elems(v.Get("implications"), at.Key("implications"), "implications", maxImplications, func(_ int, v value.Value, p diag.Pointer) {
		if i := c.implication(v, p, s, false); i != nil {
			e.Implications = append(e.Implications, i)
		}
	})
	c.decisions(e, v, at)
	schema := c.schemaOf(v)
	for _, key := range append([]string{"handler", "implications"}, decisionKeys()...) {
		c.dataPaths(v.Get(key), schema, at.Key(key))
	}
	c.placePath(e.Geo, v.Get("geo").Get("path"), schema, at.Key("geo").Key("path"))
	return e
}

func (c *compiler) systemEvent(e *EventType, v value.Value, at diag.Pointer) {
	if e.Name != tombstoned {
		c.Report(at, unknownSystemEvent, e.Name, tombstoned)
	}
	if !c.object(v, at, shape{what: "an event type of the platform", optional: []string{"handler"}, refused: append([]string{"schema"}, decisionKeys()...)}) {
		return
	}
	for _, key := range decisionKeys() {
		if !v.Get(key).IsMissing() {
			c.Report(at.Key(key), systemDecision, e.Name, key)
		}
	}
	if !v.Get("schema").IsMissing() {
		c.Report(at.Key("schema"), systemSchema, e.Name)
	}
	c.handler(e, v.Get("handler"), at.Key("handler"))
}

func (c *compiler) handler(e *EventType, v value.Value, at diag.Pointer) {
	switch {
	case v.IsMissing():
	case v.Get("wasm").IsMissing():
		e.Handler = tick.CompileHandler(v, at, &c.List)
	case c.object(v, at, shape{what: "a handler in WebAssembly", required: []string{"wasm"}}):
		e.Code = c.wasmHandler(v.Get("wasm"), at.Key("wasm"))
	}
}

func (c *compiler) modules(v value.Value, at diag.Pointer) {
	c.out.Sagas = map[string]*Saga{}
	if v.IsMissing() || !c.object(v, at, shape{what: "modules", optional: []string{"cache", "sagas"}}) {
		return
	}
	c.elems(v.Get("cache"), at.Key("cache"), "cache", maxAggregateTypes, func(_ int, v value.Value, at diag.Pointer) {
		name, ok := c.aggregateTypeRef(v, at)
		if !ok {
			return
		}
		// Of too many types none was read.
		if t := c.out.Types[name]; t != nil {
			if t.Cache {
				c.Report(at, listedTwice, name, "cache")
			}
			t.Cache = true
		}
	})
	c.members(v.Get("sagas"), at.Key("sagas"), "sagas", maxDefinitions, func(name string, v value.Value, at diag.Pointer) {
		c.out.Sagas[name] = c.saga(name, v, at)
	})
	for _, name := range slices.Sorted(maps.Keys(c.out.Sagas)) {
		s := c.out.Sagas[name]
		if et := c.out.EventType(s.TriggerAggregate, s.TriggerEvent); et != nil {
			et.Sagas = append(et.Sagas, s)
		}
	}
}

// aggregateTypeRef reads the name of a declared aggregate type.
func (c *compiler) aggregateTypeRef(v value.Value, at diag.Pointer) (string, bool) {
	name, ok := c.text(v, at, "an aggregate type")
	if !ok {
		return "", false
	}
	if c.declared[name] == nil {
		c.undeclaredType(at, name)
		return "", false
	}
	return name, true
}

// eventTypeRef reads the name of a declared event type of an aggregate type. An aggregateType of "" was faulty itself.
func (c *compiler) eventTypeRef(v value.Value, at diag.Pointer, aggregateType string) string {
	name, ok := c.text(v, at, "an event type")
	if ok && aggregateType != "" {
		c.eventDeclared(at, aggregateType, name)
	}
	return name
}

func (c *compiler) eventDeclared(at diag.Pointer, aggregateType, name string) {
	switch {
	case ident.IsReservedEventType(name):
		c.Report(at, systemEventUsed, name)
	case !c.declared[aggregateType][name]:
		c.undeclaredEvent(at, aggregateType, name)
	}
}

// isGivenName reports whether a text is spelt like a name that the server gives: a handle, or a public id of the project.
func (c *compiler) isGivenName(text string) bool {
	if _, err := ident.ParseHandle(text); err == nil {
		return true
	}
	number, ok := strings.CutPrefix(text, c.out.ProjectKey+"-")
	return ok && c.out.ProjectKey != "" && number != "" && strings.Trim(number, "0123456789") == ""
}

// id reads the id of an aggregate: an identifier, or a path that leads to one.
func (c *compiler) id(v value.Value, at diag.Pointer, aggregateType string, s tick.Scope) Ref {
	text, ok := c.text(v, at, "an id")
	if !ok {
		return Ref{}
	}
	if jsonpath.IsPath(text) {
		return Ref{Path: tick.CompilePath(v, at, "an id", s, &c.List)}
	}
	literal, _ := strings.CutPrefix(text, aggregateType+":")
	canonical, kind, err := c.out.IDs.Check(literal)
	switch {
	case err != nil:
		from, example := "the event", "$.data.account"
		if s.Plain { // in a projection there is none
			from, example = "another source", "$.order.account"
		}
		c.badLiteralID(at, text, c.isGivenName(literal), from, example)
	case canonical != literal:
		c.literalIDChanges(at, literal, canonical, kind)
	}
	return Ref{Literal: canonical}
}
