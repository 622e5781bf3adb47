package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// tombstoned is the one event type of the platform's own that a spec may mention.
const tombstoned = ident.WasTombstoned

// Compile reads the text of a spec. It returns every finding, in the order of their places, and the compiled spec where
// none of them is an error. Findings that are warnings may come with a compiled spec; package lint has more of them.
func Compile(src []byte) (*Compiled, []diag.Diagnostic) {
	return compilation{src: src}.compile()
}

// CompileStored is Compile for a spec that was deployed before: errors that a later version of the program has
// introduced for things that have a meaning become warnings, so that an upgrade takes no environment down.
func CompileStored(src []byte) (*Compiled, []diag.Diagnostic) {
	return compilation{src: src, stored: true}.compile()
}

// CompileWith is Compile with a second look: look adds its warnings to found, which says whether there are errors.
// Where there are, the spec is what could be understood of it.
func CompileWith(src []byte, look func(s *Compiled, found *diag.List)) (*Compiled, []diag.Diagnostic) {
	return compilation{src: src, look: look}.compile()
}

// CompileFor is CompileWith for the content of an envelope, and for a caller that may leave: once ended reports true,
// compilation stops, and neither a spec nor all findings are returned.
func CompileFor(
	e *Envelope, ended func() bool, look func(s *Compiled, found *diag.List),
) (*Compiled, []diag.Diagnostic) {
	return compilation{src: e.Spec, root: e.root, ended: ended, look: look}.compile()
}

// compilation is what is to be compiled, and how.
type compilation struct {
	src []byte
	// root is what the text says, missing where it has not been parsed.
	root value.Value
	// stored reports that the text was deployed before.
	stored bool
	// ended reports whether the caller no longer waits for the result; nil where it always does.
	ended func() bool
	look  func(*Compiled, *diag.List)
}

func (by compilation) compile() (*Compiled, []diag.Diagnostic) {
	src, root := by.src, by.root
	l := &diag.List{Stored: by.stored}
	out := &Compiled{
		Source: bytes.Clone(bytes.TrimSpace(src)), text: string(src), declared: map[string]map[string]bool{},
	}

	// A text that is too large, or no JSON, is not read further.
	if len(src) > MaxSize {
		l.Report("", tooLarge, len(src), MaxSize)
		return nil, l.All()
	}
	if root.IsMissing() {
		var err error
		if root, err = value.ParseString(out.text); err != nil {
			return nil, []diag.Diagnostic{syntaxError(out.text, err)}
		}
	}
	if pointers(root, 0, maxPointers) < 0 {
		l.Report("", longNames)
		return nil, l.All()
	}

	// All findings, with their places in the text.
	out.root = root
	c := compiler{resolver{decoder{l, by.ended}, out}}
	c.spec()
	if by.look != nil && !c.over() {
		by.look(out, l)
	}
	if c.over() {
		return nil, l.All()
	}
	found := place(out.text, l.All())
	if n := l.Dropped(); n > 0 {
		found = append(found, droppedFindings(n))
	}
	if l.Errors() > 0 {
		return nil, found
	}

	// The hash is that of the values, whatever the text looks like.
	sum := sha256.Sum256(root.AppendJSON(make([]byte, 0, len(out.Source))))
	out.Hash = hex.EncodeToString(sum[:])
	return out, found
}

// maxPointers bounds the bytes that the pointers to all values of a spec have together. A long name high up is part of
// many pointers; an ordinary spec of 4 MiB has some 30 MiB of them.
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

// compiler works through a whole spec.
type compiler struct{ resolver }

func (c compiler) spec() {
	root := c.out.root
	top := shape{
		what:     "a spec",
		required: []string{"aggregate_types", "agent_types"},
		optional: []string{
			"$defs", "target_types", "modules", "geo_types", "projections", "singletons", "listeners", "identity",
			"project_key",
		},
		refused: []string{"sagas"},
	}
	if !c.object(root, "", top) {
		return
	}
	if !root.Get("sagas").IsMissing() {
		c.Report("/sagas", sagasOutside)
	}

	// Names, which all else refers to, and who acts.
	c.declare()
	types := &typeCompiler{resolver: c.resolver, schemas: schema.NewGroup(c.List), handles: map[ident.Prefix]string{}}
	c.sharedDefinitions(types.schemas, root.Get("$defs"), "/$defs")
	names := identityCompiler(c)
	names.identity(root.Get("identity"), "/identity")
	c.out.ProjectKey = names.projectKey(root.Get("project_key"), "/project_key")
	c.out.AgentTypes = names.agentTypes(root.Get("agent_types"), "/agent_types")
	c.out.TargetTypes = c.names(root.Get("target_types"), "/target_types", "target_types", "a target type",
		func(name string, at diag.Pointer) bool { return c.name(name, at, "a target type") })

	// Aggregate types with their events.
	c.out.GeoTypes = definitions(c, "geo_types", types.geoType)
	types.aggregateTypes(root.Get("aggregate_types"), "/aggregate_types")
	for _, name := range types.schemas.Done() {
		if c.Errors() > 0 {
			break
		}
		c.Report(diag.Pointer("/$defs").Key(name), unusedDefinition, name, "#/$defs/"+name)
	}
	names.singletonsApart(types.handles, root.Get("singletons"), "/singletons")
	names.singletonsWithoutPlaces(root.Get("singletons"), "/singletons")

	// What rests on them.
	c.modules(root.Get("modules"), "/modules")
	c.out.Projections = definitions(c, "projections", (&projectionCompiler{resolver: c.resolver}).declaredProjection)
	c.out.Listeners = definitions(c, "listeners", listenerCompiler(c).listener)
	c.out.countListeners()
	c.cycles()
}

// sharedDefinitions reads the schemas that all schemas of the spec may refer to.
func (c compiler) sharedDefinitions(group *schema.Group, v value.Value, at diag.Pointer) {
	c.members(v, at, "$defs", maxDefinitions, func(string, value.Value, diag.Pointer) {})
	if v.Kind() == value.Object && v.Len() <= maxDefinitions {
		group.Define(v)
	}
}

// declare gathers the names that others refer to.
func (c compiler) declare() {
	for _, t := range c.out.root.Get("aggregate_types").Members() {
		events := map[string]bool{}
		for _, e := range t.Value.Get("events").Members() {
			retired := e.Value.Get("retired")
			events[e.Key] = retired.Kind() != value.Object && !retired.Truth()
		}
		c.out.declared[t.Key] = events
	}
}

// definitions reads an object of named definitions at the top level of the spec.
func definitions[T any](
	c compiler, key string, read func(name string, v value.Value, at diag.Pointer) *T,
) map[string]*T {
	found := map[string]*T{}
	c.members(c.out.root.Get(key), diag.Pointer("").Key(key), key, maxDefinitions,
		func(name string, v value.Value, at diag.Pointer) {
			if d := read(name, v, at); d != nil {
				found[name] = d
			}
		})
	return found
}

func (c compiler) modules(v value.Value, at diag.Pointer) {
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
	c.members(v.Get("sagas"), at.Key("sagas"), "sagas", maxDefinitions,
		func(name string, v value.Value, at diag.Pointer) {
			c.out.Sagas[name] = sagaCompiler(c).saga(name, v, at)
		})
	for _, name := range slices.Sorted(maps.Keys(c.out.Sagas)) {
		s := c.out.Sagas[name]
		if et := c.out.EventType(s.TriggerAggregate, s.TriggerEvent); et != nil {
			et.Sagas = append(et.Sagas, s)
		}
	}
}
