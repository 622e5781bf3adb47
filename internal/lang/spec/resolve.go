package spec

import (
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/outline"
	"j17/internal/lang/tick"
)

// resolver reads what names something else in the spec: types, ids, templates of events.
type resolver struct {
	decoder
	// out is what was understood so far. Its names are all known from the start.
	out *Compiled
}

// aggregateTypeRef reads the name of a declared aggregate type.
func (c resolver) aggregateTypeRef(v value.Value, at diag.Pointer) (string, bool) {
	name, ok := c.text(v, at, "an aggregate type")
	if !ok {
		return "", false
	}
	if c.out.declared[name] == nil {
		c.undeclaredType(at, name)
		return "", false
	}
	return name, true
}

// eventTypeRef reads the name of a declared event type of an aggregate type. An aggregateType of "" was faulty itself.
func (c resolver) eventTypeRef(v value.Value, at diag.Pointer, aggregateType string) string {
	name, ok := c.text(v, at, "an event type")
	if ok && aggregateType != "" {
		c.eventDeclared(at, aggregateType, name)
	}
	return name
}

func (c resolver) eventDeclared(at diag.Pointer, aggregateType, name string) {
	switch _, declared := c.out.declared[aggregateType][name]; {
	case ident.IsReservedEventType(name):
		c.Report(at, systemEventUsed, name)
	case !declared:
		c.undeclaredEvent(at, aggregateType, name)
	}
}

// notRetired reports an event type that is to be written although it is retired.
func (c resolver) notRetired(at diag.Pointer, aggregateType, name string) {
	if written, declared := c.out.declared[aggregateType][name]; written || !declared {
		return
	}
	d := c.Errorf(at, "the event type %s is retired, so that nobody can write it", diag.Quote(name))
	of := c.out.root.Get("aggregate_types").Get(aggregateType).Get("events").Get(name)
	if as := of.Get("retired").Get("as"); as.Kind() == value.String {
		d.Hintf("write %s, which its stored events are read as", diag.Quote(as.Str()))
	} else {
		d.Hintf(`write another event type, or take "retired" out there`)
	}
}

// isGivenName reports whether a text is spelt like a name that the server gives: a handle, or a public id of the
// project.
func (c resolver) isGivenName(text string) bool {
	if _, err := ident.ParseHandle(text); err == nil {
		return true
	}
	number, ok := strings.CutPrefix(text, c.out.ProjectKey+"-")
	return ok && c.out.ProjectKey != "" && number != "" && strings.Trim(number, "0123456789") == ""
}

// id reads the id of an aggregate: an identifier, or a path that leads to one.
func (c resolver) id(v value.Value, at diag.Pointer, aggregateType string, s tick.Scope) Ref {
	text, ok := c.text(v, at, "an id")
	if !ok {
		return Ref{}
	}
	if jsonpath.IsPath(text) {
		return Ref{Path: tick.CompilePath(v, at, "an id", s, c.List)}
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
		d := c.Report(at, literalIDChanges, literal, canonical)
		if kind == ident.HumaneCode {
			d.Hintf(`write %s if that is meant; a name of your own is declared under "singletons"`, diag.Quote(canonical))
		}
	}
	return Ref{Literal: canonical}
}

func (c resolver) undeclaredType(at diag.Pointer, name string) {
	d := c.Errorf(at, "there is no aggregate type %s in this spec", diag.Quote(name))
	nearest(c.List, d, name, c.out.declared)
}

func (c resolver) undeclaredEvent(at diag.Pointer, aggregateType, name string) {
	d := c.Errorf(at, "the aggregate type %s has no event type %s", diag.Quote(aggregateType), diag.Quote(name))
	nearest(c.List, d, name, c.out.declared[aggregateType])
}

// badLiteralID reports what is no id. from says where ids can be taken from instead, by a path such as example.
func (c decoder) badLiteralID(at diag.Pointer, id string, given bool, from, example string) {
	d := c.Errorf(at, "the id %s is no identifier and no declared singleton", diag.Quote(id))
	if given {
		d.Hintf(`names that the server gives cannot stand in a spec, since each environment gives its own: take the name from %s, as in %q, or write the id`, from, example)
		return
	}
	d.Hintf(`declare it under "singletons", or start it with "$" to take the id from %s`, from)
}

// emit compiles the template of an event. more are keys beside those of every emit.
func (c resolver) emit(v value.Value, at diag.Pointer, s tick.Scope, more ...string) *Emit {
	e := &Emit{Pointer: at}
	if !c.object(v, at, shape{
		what: "an emit", required: []string{"aggregate_type", "id", "event_type"},
		optional: append([]string{"data"}, more...),
	}) {
		return e
	}
	e.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate_type"), at.Key("aggregate_type"))
	e.ID = c.id(v.Get("id"), at.Key("id"), e.AggregateType, s)
	e.EventType = c.eventTypeRef(v.Get("event_type"), at.Key("event_type"), e.AggregateType)
	c.notRetired(at.Key("event_type"), e.AggregateType, e.EventType)
	e.Data = tick.CompileTemplate(v.Get("data"), at.Key("data"), s, c.List)
	return e
}

// schemaOf returns the schema of the data of an event type's definition.
func (c resolver) schemaOf(event value.Value) outline.Schema {
	return outline.Of(event.Get("schema"), c.out.root.Get("$defs"))
}
