package spec

import (
	"maps"
	"slices"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/spec/jsonpath"
	"j17/internal/spec/tick"
	"j17/internal/value"
)

// indexes reads by which fields rows of the named form are found. The definition is sound otherwise.
func (c *compiler) indexes(p *Projection, v value.Value, at diag.Pointer, of value.Value) {
	before := c.Errors()
	seen := map[string]bool{}
	c.elems(v, at, "index", maxIndexes, func(_ int, v value.Value, at diag.Pointer) {
		x := c.index(p, v, at, of)
		if len(x.Fields) == 0 {
			return
		}
		names := make([]string, 0, len(x.Fields))
		for i := range x.Fields {
			names = append(names, x.Fields[i].Name)
		}
		key := strings.Join(names, ", ")
		if x.Words {
			key = "the words of " + key
		}
		if seen[key] {
			c.indexTwice(at, key)
		}
		seen[key] = true
		p.Indexes = append(p.Indexes, x)
	})
	c.filtersApart(p, at)
	if len(p.Indexes) == 0 || c.Errors() > before {
		return
	}

	// What their keys are made of: only the sources that indexed fields depend on, and only these fields.
	parts := []value.Value{v, value.StringValue(p.ForEach)}
	var needs []int
	for i := range p.Indexes {
		for j := range p.Indexes[i].Fields {
			f := &p.Indexes[i].Fields[j]
			parts = append(parts, f.made.Source())
			needs = append(needs, f.Needs...)
		}
	}
	slices.Sort(needs)
	needs = slices.Compact(needs)
	for _, i := range needs {
		name := p.Sources[i].Name
		parts = append(parts, value.StringValue(name), p.Definition.Get("sources").Get(name))
	}
	p.IndexStages, _ = staged(p.Sources, needs)
	p.IndexFingerprint = c.fingerprint(parts...)
}

// FilterWords returns what may follow the name of a field in a filter, as in "points.gte".
func FilterWords() []string { return []string{"in", "prefix", "gt", "gte", "lt", "lte", "words"} }

// filtersApart refuses indexed fields whose names are those of filters on other ones.
func (c *compiler) filtersApart(p *Projection, at diag.Pointer) {
	fields := map[string]bool{}
	for i := range p.Indexes {
		for j := range p.Indexes[i].Fields {
			fields[p.Indexes[i].Fields[j].Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, word := range FilterWords() {
			if field, ok := strings.CutSuffix(name, "."+word); ok && fields[field] {
				c.filterTwice(at, name, field)
			}
		}
	}
}

// index reads one index: a field, an array of fields, or {"words": field}. It has no fields where it is faulty.
func (c *compiler) index(p *Projection, v value.Value, at diag.Pointer, of value.Value) Index {
	var x Index
	add := func(v value.Value, at diag.Pointer) {
		if f, ok := c.field(p, v, at, of); ok {
			if slices.ContainsFunc(x.Fields, func(other Field) bool { return other.Name == f.Name }) {
				c.fieldTwice(at, f.Name)
			}
			x.Fields = append(x.Fields, f)
		}
	}
	switch v.Kind() {
	case value.String:
		add(v, at)
	case value.Array:
		if v.Len() == 0 {
			c.empty(at, "an index")
		}
		c.elems(v, at, "the fields of an index", maxFields, func(_ int, v value.Value, at diag.Pointer) { add(v, at) })
		if len(x.Fields) < v.Len() {
			x.Fields = nil
		}
	case value.Object:
		x.Words = true
		if c.object(v, at, shape{what: "an index of words", required: []string{"words"}}) {
			add(v.Get("words"), at.Key("words"))
		}
	case value.Missing, value.Null, value.Bool, value.Number:
		c.badIndex(at, v.Kind())
	}
	return x
}

// field reads the name of a field of the result, which is the part of select that makes it.
func (c *compiler) field(p *Projection, v value.Value, at diag.Pointer, of value.Value) (Field, bool) {
	text, ok := c.text(v, at, "a field of an index")
	if !ok {
		return Field{}, false
	}

	// A path through objects of the result, of a name that can be asked for.
	path, err := jsonpath.ParseState(text)
	switch {
	case err != nil:
		c.badPath(at, err)
		return Field{}, false
	case path.Optional || path.Entries || slices.ContainsFunc(path.Steps, func(s value.Step) bool { return s.IsIndex }):
		c.badField(at, text)
		return Field{}, false
	case slices.Contains(reservedParams(), path.Steps[0].Key):
		c.fieldOfOurs(at, text, path.Steps[0].Key)
		return Field{}, false
	}
	made, rest, known, array := selected(of, path.Steps)
	switch {
	case array:
		c.fieldInArray(at, text)
		return Field{}, false
	case made.IsMissing():
		c.noField(at, text, known)
		return Field{}, false
	}

	// All that it depends on, of which nothing may move many rows at once or rows that no event names.
	var spare diag.List
	s := tick.Scope{Plain: true, Wildcards: true}
	for i := range p.Sources {
		s.Members = append(s.Members, p.Sources[i].Name)
	}
	f := Field{Name: text, made: tick.CompileSelection(made, at, s, &spare), rest: rest}
	f.Needs = p.needs(f.made)
	for _, i := range f.Needs {
		src := &p.Sources[i]
		switch {
		case src.Included:
			c.fieldOfInclude(at, text, src.Name, "an include decides it")
		case src.Query != nil:
			c.fieldOfQuery(at, text, src.Name)
		case src.ID != nil && src.ID.Path == nil:
			c.fieldOfInclude(at, text, src.Name, "its id is always the same")
		}
	}
	return f, true
}

// needs returns the places of all sources that a template depends on, directly or not, in order.
func (p *Projection) needs(t *tick.Template) []int {
	names, all := t.Members()
	var next []int
	for i := range p.Sources {
		if all || slices.Contains(names, p.Sources[i].Name) {
			next = append(next, i)
		}
	}
	found := map[int]bool{}
	for len(next) > 0 {
		i := next[0]
		next = next[1:]
		if !found[i] {
			found[i] = true
			next = append(next, p.Sources[i].Needs...)
		}
	}
	var out []int
	for i := range p.Sources {
		if found[i] {
			out = append(out, i)
		}
	}
	return out
}

// selected returns the part of a selection that makes the member which steps lead to, and the steps that lead on from there. It is
// missing where nothing does: known are the members that there are then. array says that the steps lead into one, where a field is
// found in no element.
func selected(v value.Value, steps []value.Step) (made value.Value, rest []value.Step, known []string, array bool) {
	for i, step := range steps {
		switch {
		case v.Kind() == value.String && jsonpath.IsPath(v.Str()):
			p, err := jsonpath.ParseProjection(v.Str())
			return v, steps[i:], nil, err != nil || len(p.Each) > 0 || p.Entries
		case v.Kind() == value.Array || !v.Get("$map").IsMissing():
			return v, nil, nil, true
		case !v.Get("$lookup").IsMissing():
			of := v.Get("select")
			if of.IsMissing() {
				return v, steps[i:], nil, false
			}
			if inner, _, known, array := selected(of, steps[i:]); inner.IsMissing() || array {
				return value.Value{}, nil, known, array
			}
			return v, steps[i:], nil, false
		}
		next := v.Get(step.Key)
		if next.IsMissing() {
			for _, m := range v.Members() {
				known = append(known, jsonpath.StepsText(append(slices.Clone(steps[:i]), value.Step{Key: m.Key}))[1:])
			}
			return value.Value{}, nil, known, false
		}
		v = next
	}
	return v, nil, nil, false
}
