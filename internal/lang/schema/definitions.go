package schema

import (
	"maps"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// definitions are the schemas that all schemas of a group may refer to. They are compiled once, whatever refers to
// them.
type definitions struct {
	source value.Value
	// compiler is nil where there are none, or where they are too many.
	compiler *compiler
	// marks is what is known of their nodes, nil where one of them is faulty.
	marks map[*node]*mark
	// refersTo has the definitions that each of them refers to, used those that some schema refers to.
	refersTo map[string]map[string]bool
	used     map[string]bool
}

// Define compiles the definitions that all schemas of the group may refer to, the spec's top-level "$defs". It comes
// before the first schema.
func (g *Group) Define(shared value.Value) {
	if shared.Len() == 0 {
		return
	}
	g.shared = definitions{source: shared, refersTo: map[string]map[string]bool{}, used: map[string]bool{}}
	all := outline.Read(value.ObjectValue(value.Member{Key: "$defs", Value: shared}), value.Value{})
	if _, fits := all.Index(); !fits {
		g.list.Errorf(diag.Pointer("/$defs"), "the definitions hold more than %d schemas", outline.MaxSchemas).
			Hintf(`say what repeats once, and refer to it with "$ref"`)
		return
	}

	before := g.list.Errors()
	g.shared.compiler = newCompiler(value.Value{}, "", g)
	for _, m := range shared.Members() {
		g.shared.compiler.node(m.Value, outline.Shared.Key(m.Key))
	}
	if g.list.Errors() == before {
		g.shared.marks = g.shared.compiler.checkGraph()
	}
	if g.shared.marks == nil {
		g.shared.compiler = nil
		return
	}
	g.shared.compiler.contradictions()
}

// node returns the node of a shared definition, or of a part of one; nil where a definition is faulty.
func (d *definitions) node(to outline.Schema) *node {
	if d.compiler == nil {
		return nil
	}
	return d.compiler.node(to.Value, to.At)
}

// refer notes that a reference at a place of a schema leads to a definition.
func (c *compiler) refer(from diag.Pointer, name string) {
	by := c.refersTo
	if within := outline.Definition(from); within != "" {
		if by = c.shared.refersTo[within]; by == nil {
			by = map[string]bool{}
			c.shared.refersTo[within] = by
		}
	}
	by[name] = true
}

// reached returns the definitions that references lead to, and those that these refer to in turn, sorted.
func (d *definitions) reached(from map[string]bool) []string {
	if len(from) == 0 {
		return nil
	}
	all, next := map[string]bool{}, slices.Collect(maps.Keys(from))
	for len(next) > 0 {
		name := next[0]
		if next = next[1:]; !all[name] {
			all[name], d.used[name] = true, true
			next = slices.AppendSeq(next, maps.Keys(d.refersTo[name]))
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// unused returns the definitions that no schema reaches, sorted.
func (d *definitions) unused() []string {
	var names []string
	for _, m := range d.source.Members() {
		if !d.used[m.Key] {
			names = append(names, m.Key)
		}
	}
	return slices.Sorted(slices.Values(names))
}
