package spec

import (
	"maps"
	"slices"
	"strings"

	"j17/internal/ident"
	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// projectionKey is the path that stands for the aggregate a projection is asked for.
const projectionKey = "$key"

// projection reads either form: the named one has for_each and an object of sources, the other an array of sources.
func (c *compiler) projection(name string, v value.Value, at diag.Pointer) *Projection {
	p := &Projection{Name: name}
	if !isName(name) || strings.ContainsRune(name, '-') || strings.ToLower(name) != name {
		c.badProjectionName(at, name)
	}
	form := shape{what: "a projection", required: []string{"sources"}, optional: []string{"name"}}
	named := v.Get("sources").Kind() == value.Object || !v.Get("for_each").IsMissing() || !v.Get("select").IsMissing()
	if named {
		form.required = []string{"for_each", "sources", "select"}
		form.optional = append(form.optional, "include")
	}
	if !c.object(v, at, form) {
		return p
	}
	c.notYet(projections, at)
	if s, ok := c.text(v.Get("name"), at.Key("name"), "name"); ok && s != name {
		c.otherName(at.Key("name"), s, name)
	}
	if src := v.Get("sources"); src.Len() == 0 && named == (src.Kind() == value.Object) && !src.IsMissing() {
		c.empty(at.Key("sources"), "sources")
	}
	if named {
		c.namedProjection(p, v, at)
	} else {
		c.elems(v.Get("sources"), at.Key("sources"), "the sources of a projection", maxSources, func(_ int, v value.Value, at diag.Pointer) {
			p.Sources = append(p.Sources, c.querySource(v, at))
		})
	}
	return p
}

func (c *compiler) namedProjection(p *Projection, v value.Value, at diag.Pointer) {
	if f := v.Get("for_each"); !f.IsMissing() {
		p.ForEach, _ = c.aggregateTypeRef(f, at.Key("for_each"))
	}
	bound := map[string]bool{}
	for _, part := range []string{"sources", "include"} {
		for _, m := range v.Get(part).Members() {
			if bound[m.Key] {
				c.boundTwice(at.Key(part).Key(m.Key), m.Key)
			}
			bound[m.Key] = true
		}
	}
	s := tick.Scope{Plain: true, Wildcards: true, Members: slices.Sorted(maps.Keys(bound))}
	c.members(v.Get("sources"), at.Key("sources"), "the sources of a projection", maxSources, func(name string, v value.Value, at diag.Pointer) {
		c.sourceName(name, at)
		p.Sources = append(p.Sources, c.namedSource(name, v, at, p.ForEach, s))
	})
	p.Include = map[string]string{}
	c.members(v.Get("include"), at.Key("include"), "include", maxDefinitions, func(name string, v value.Value, at diag.Pointer) {
		c.sourceName(name, at)
		p.Include[name] = c.included(v, at)
	})
	if k := v.Get("select").Kind(); k != value.Object && k != value.Missing {
		c.wrongKind(at.Key("select"), "select", value.Object, k)
		return
	}
	p.Select = tick.CompileSelection(v.Get("select"), at.Key("select"), s, &c.List)
}

func (c *compiler) sourceName(name string, at diag.Pointer) {
	if !jsonpath.IsName(name) || len(name) > MaxNameLength {
		c.badSourceName(at, name)
	}
}

func (c *compiler) namedSource(name string, v value.Value, at diag.Pointer, forEach string, s tick.Scope) Source {
	src := Source{Name: name}
	if v.Kind() == value.String {
		if v.Str() != projectionKey {
			c.badSource(at, v.Str())
		}
		src.AggregateType, src.Key = forEach, true
		return src
	}
	if !c.object(v, at, shape{what: "a source", required: []string{"type", "id"}, optional: []string{"mode"}}) {
		return src
	}
	src.AggregateType, _ = c.aggregateTypeRef(v.Get("type"), at.Key("type"))
	src.Many = c.choice(v.Get("mode"), at.Key("mode"), "mode", "single", "array") == "array"
	if v.Get("id").Str() == projectionKey {
		src.Key = true
		return src
	}
	src.ID = c.id(v.Get("id"), at.Key("id"), src.AggregateType, s)
	return src
}

func (c *compiler) included(v value.Value, at diag.Pointer) string {
	text, ok := c.text(v, at, "an included singleton")
	if !ok {
		return ""
	}
	name, id, _ := strings.Cut(text, ":")
	if id != ident.Global {
		c.notGlobal(at, text)
		return ""
	}
	if c.declared[name] == nil {
		c.undeclaredType(at, name)
	}
	return name
}

// querySource reads a source of the array form.
func (c *compiler) querySource(v value.Value, at diag.Pointer) Source {
	var src Source
	if !c.object(v, at, shape{what: "a source", required: []string{"aggregate"}, optional: []string{"id", "query"}}) {
		return src
	}
	src.AggregateType, _ = c.aggregateTypeRef(v.Get("aggregate"), at.Key("aggregate"))
	id, query := v.Get("id"), v.Get("query")
	switch {
	case id.IsMissing() && query.IsMissing():
		c.sourceWithoutID(at)
	case !id.IsMissing() && !query.IsMissing():
		c.bothKeys(at.Key("query"), "id", "query")
	case !id.IsMissing():
		if id.Str() == projectionKey {
			src.Key = true
			break
		}
		src.ID = c.id(id, at.Key("id"), src.AggregateType, tick.Scope{Plain: true, Wildcards: true})
	default:
		if s, ok := c.text(query, at.Key("query"), "query"); ok {
			src.Query = c.query(s, at.Key("query"))
		}
	}
	return src
}

// query reads "field = value", where the value is a path or a literal: quoted, a number, a word of JSON, or bare text.
func (c *compiler) query(text string, at diag.Pointer) *Query {
	field, operand, ok := strings.Cut(text, "=")
	field, operand = strings.TrimSpace(field), strings.TrimSpace(operand)
	if !ok || field == "" || operand == "" || strings.Contains(operand, "=") {
		c.badQuery(at, text)
		return nil
	}
	q := &Query{}
	var err error
	if q.Field, err = jsonpath.ParseState(field); err != nil {
		c.badPath(at, err)
		return nil
	}
	if operand[0] == '$' {
		q.Param = tick.CompilePath(value.StringValue(operand), at, "query", tick.Scope{Plain: true}, &c.List)
		return q
	}
	if q.Literal, err = value.ParseString(operand); err != nil {
		q.Literal = value.StringValue(operand)
	}
	return q
}
