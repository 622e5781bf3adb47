package spec

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// indexes reads the fields by which rows of the named form are found. Where the rest of the definition is faulty, it
// still reports what is wrong with them, but it does not say that fields which depend on faulty sources are the wrong
// ones: correcting the sources may change that.
func (c *projectionCompiler) indexes(p *Projection, v value.Value, at diag.Pointer, of value.Value) {
	if !v.IsMissing() && v.Kind() != value.Array {
		c.Report(at, indexNoArray, aKind(v.Kind()))
		return
	}
	before := c.Errors()
	seen := map[string]bool{}
	r := c.resultsOf(p, of)
	c.elems(v, at, "index", maxIndexes, func(_ int, v value.Value, at diag.Pointer) {
		x := r.index(v, at)
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
			c.Report(at, indexTwice, key)
		}
		seen[key] = true
		p.Indexes = append(p.Indexes, x)
	})
	c.filtersApart(p, at)
	if r.values > maxIndexed {
		c.Report(at, indexedTooLarge, maxIndexed)
	}
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

// Unindexed says why no index over some fields of the result can be declared, in the words of a deployment that would
// refuse it; "" where one can. It is for projections of the named form.
func (p *Projection) Unindexed(fields []string) string {
	c := decoder{List: &diag.List{}}
	r := c.resultsOf(p, p.Definition.Get("select"))
	for _, name := range fields {
		r.field(value.StringValue(name), "")
	}
	if r.values > maxIndexed {
		c.Report("", indexedTooLarge, maxIndexed)
	}
	var why []string
	for _, d := range c.All() {
		if d.Hint != "" {
			d.Message += " (" + d.Hint + ")"
		}
		why = append(why, d.Message)
	}
	return strings.Join(why, "; ")
}

// resultsOf returns what finds the parts of a projection's result, which of makes.
func (c decoder) resultsOf(p *Projection, of value.Value) *results {
	r := &results{
		decoder: c, p: p, of: of, scope: tick.Scope{Plain: true, Wildcards: true}, made: map[string]*tick.Template{},
	}
	for i := range p.Sources {
		r.scope.Members = append(r.scope.Members, p.Sources[i].Name)
	}
	return r
}

// FilterWords returns what may follow the name of a field in a filter, as in "points.gte".
func FilterWords() []string { return []string{"in", "prefix", "gt", "gte", "lt", "lte", "words"} }

// filtersApart refuses indexed fields whose names are those of filters on other fields.
func (c decoder) filtersApart(p *Projection, at diag.Pointer) {
	fields := map[string]bool{}
	for i := range p.Indexes {
		for j := range p.Indexes[i].Fields {
			fields[p.Indexes[i].Fields[j].Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		for _, word := range FilterWords() {
			if field, ok := strings.CutSuffix(name, "."+word); ok && fields[field] {
				c.Report(at, filterTwice, name, field)
			}
		}
	}
}

// results finds the parts of a projection's result.
type results struct {
	decoder
	p *Projection
	// of is select, and scope what paths in it can start with.
	of    value.Value
	scope tick.Scope
	// made has the templates of parts by where they are in select, values how many values those are made of.
	made   map[string]*tick.Template
	values int
}

// index reads one index: a field, an array of fields, or {"words": field}. It has no fields where it is faulty.
func (r *results) index(v value.Value, at diag.Pointer) Index {
	var x Index
	add := func(v value.Value, at diag.Pointer) {
		if f, ok := r.field(v, at); ok {
			if slices.ContainsFunc(x.Fields, func(other Field) bool { return other.Name == f.Name }) {
				r.Report(at, fieldTwice, f.Name)
			}
			x.Fields = append(x.Fields, f)
		}
	}
	switch v.Kind() {
	case value.String:
		add(v, at)
	case value.Array:
		if v.Len() == 0 {
			r.Report(at, empty, "an index")
		}
		r.elems(v, at, "the fields of an index", maxFields, func(_ int, v value.Value, at diag.Pointer) { add(v, at) })
		if len(x.Fields) < v.Len() {
			x.Fields = nil
		}
	case value.Object:
		x.Words = true
		switch words := v.Get("words"); {
		case words.IsMissing() && !slices.ContainsFunc(
			v.Members(), func(m value.Member) bool { return r.Nearest(m.Key, []string{"words"}) != "" },
		):
			r.Report(at, badIndex, "an object without \"words\"")
		case words.Kind() == value.Array:
			r.Report(at.Key("words"), wordsOfMany)
		case r.object(v, at, shape{what: "an index of words", required: []string{"words"}}):
			add(words, at.Key("words"))
		}
	case value.Missing, value.Null, value.Bool, value.Number:
		r.Report(at, badIndex, aKind(v.Kind()))
	}
	return x
}

// field reads the name of a field of the result, which is the part of select that makes it.
func (r *results) field(v value.Value, at diag.Pointer) (Field, bool) {
	text, ok := r.text(v, at, "a field of an index")
	if !ok {
		return Field{}, false
	}

	// A path through objects of the result, of a name that can be asked for.
	path, err := jsonpath.ParseState(text)
	switch {
	case jsonpath.IsPath(text):
		r.Report(at, badField, text)
		return Field{}, false
	case err != nil:
		r.badPath(at, err)
		return Field{}, false
	case path.Optional || path.Entries || slices.ContainsFunc(path.Steps, func(s value.Step) bool { return s.IsIndex }):
		r.Report(at, badField, text)
		return Field{}, false
	case r.isReserved(path.Steps[0].Key):
		r.Report(at, fieldOfOurs, text, path.Steps[0].Key, "the_"+path.Steps[0].Key)
		return Field{}, false
	}
	part := selected(r.of, path.Steps)
	switch {
	case part.array:
		r.Report(at, fieldInArray, text)
		return Field{}, false
	case part.v.IsMissing() && r.Errors() > 0 && slices.ContainsFunc(part.known, isOperator):
		return Field{}, false // an operator is misspelt, so that the members are not known
	case part.v.IsMissing():
		r.noField(at, text, part.known)
		return Field{}, false
	case strings.HasPrefix(text, "-") && r.reversed(at, text):
		return Field{}, false
	}
	f := Field{Name: text, made: r.template(part.v, path.Steps[:len(path.Steps)-len(part.rest)]), rest: part.rest}
	if f.made == nil {
		return Field{}, false // there is too much of it already, or it is faulty
	}

	// It may not depend on sources whose change could move many rows at once, or rows that no event names. Faulty
	// sources are not judged.
	f.Needs = r.p.needs(f.made)
	for _, i := range f.Needs {
		src := &r.p.Sources[i]
		switch {
		case src.faulty:
			continue
		case src.Included:
			r.Report(at, fieldOfAll, text, src.Name, "an include decides it")
		case src.Query != nil:
			r.Report(at, fieldOfQuery, text, src.Name)
		case src.ID != nil && !src.ID.Literal.IsMissing():
			r.Report(at, fieldOfAll, text, src.Name, "its id is always the same")
		default:
			continue
		}
		return Field{}, false
	}
	return f, true
}

// reversed reports a field whose rows cannot be ordered, and whether that is an error.
func (r *results) reversed(at diag.Pointer, text string) bool {
	r.Report(at, reversedField, text, cmp.Or(strings.TrimLeft(text, "-"), "reversed"))
	return !r.Stored
}

// template compiles the part of select that steps lead to, once. It returns nil for what is beyond the limit of all
// parts together.
func (r *results) template(v value.Value, steps []value.Step) *tick.Template {
	where := jsonpath.StepsText(steps)
	if _, ok := r.made[where]; !ok {
		if r.values += v.Weight().Values; r.values > maxIndexed {
			return nil
		}
		var spare diag.List // all of select was compiled already
		r.made[where] = tick.CompileSelection(v, "", r.scope, &spare)
	}
	return r.made[where]
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

// part is a part of a selection.
type part struct {
	// v makes the value that the steps so far lead to; it is missing where nothing does. rest lead on from there.
	v    value.Value
	rest []value.Step
	// known are the members that there are where v is missing.
	known []string
	// array says that the steps lead into an array, where a field is found in no element.
	array bool
}

// selected returns the part of a selection that makes what steps lead to.
func selected(v value.Value, steps []value.Step) part {
	for i, step := range steps {
		switch {
		case v.Kind() == value.String && jsonpath.IsPath(v.Str()):
			p, err := jsonpath.ParseProjection(v.Str())
			return part{v: v, rest: steps[i:], array: err == nil && (len(p.Each) > 0 || p.Entries)}
		case v.Kind() == value.Array || !v.Get("$map").IsMissing():
			return part{v: v, array: true}
		case !v.Get("$lookup").IsMissing():
			return found(v, steps[:i], steps[i:])
		}
		if form, _ := tick.SelectionForm(v); form != tick.Plain {
			return part{v: v, rest: steps[i:]}
		}
		next := v.Get(step.Key)
		if next.IsMissing() {
			return part{known: namesBelow(steps[:i], v)}
		}
		v = next
	}
	return part{v: v}
}

// found is selected for a $lookup, which yields an element or what its select makes of that.
func found(v value.Value, before, rest []value.Step) part {
	of := v.Get("select")
	if of.IsMissing() {
		return part{v: v, rest: rest}
	}
	inner := selected(of, rest)
	if !inner.v.IsMissing() {
		return part{v: v, rest: rest, array: inner.array}
	}
	for i, name := range inner.known {
		inner.known[i] = (jsonpath.StepsText(before) + "." + name)[1:]
	}
	return inner
}

// isOperator reports whether the last step of a path is what only an operator may be called.
func isOperator(path string) bool {
	return strings.HasPrefix(path[strings.LastIndexByte(path, '.')+1:], "$")
}

// namesBelow returns the paths to all members of v, which steps lead to.
func namesBelow(steps []value.Step, v value.Value) []string {
	names := make([]string, 0, v.Len())
	for _, m := range v.Members() {
		names = append(names, (jsonpath.StepsText(steps) + "." + m.Key)[1:])
	}
	return names
}

func (c decoder) noField(at diag.Pointer, text string, known []string) {
	d := c.Errorf(at, "there is no field %s in select", diag.Quote(text))
	if slices.Contains(known, text) {
		d.Hintf("a member with a dot in its name cannot be indexed, since a dot separates a member from its parent: select it under a name without one")
		return
	}
	if field, reverse := strings.CutPrefix(text, "-"); reverse && slices.Contains(known, field) {
		d.Hintf("an index serves both orders: write %q", field)
		return
	}
	const few = 12
	if !c.Suggest(d, text, known) && len(known) > 0 && len(known) <= few {
		d.Hintf("there are %s", strings.Join(known, ", "))
	}
}
