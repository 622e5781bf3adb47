package spec

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"j17/internal/spec/diag"
	"j17/internal/spec/schema/ecma"
	"j17/internal/value"
	"j17/internal/work"
)

// Bounds of the comparison of one pair of schemas, and of all of them together.
const (
	maxAlternatives   = 256
	maxComparisons    = 200_000
	maxAllComparisons = 2_000_000
)

// A schema that was is compared with one that is by what they let through:
//
//   - Both are taken apart into alternatives (anyOf, oneOf), each of which is a set of plain schemas that hold
//     together (allOf, $ref).
//   - For each alternative that was, and each JSON type that it let through, some alternative that is has to let the
//     same through: the type, an object without the properties that it did not require, properties and elements by the
//     same rule. Where none does, what is in the way of the nearest one is reported.
//   - A property that was not declared may be declared in any way: it is taken for a new one.
//   - enum and const only help to find the alternative that is meant. They, and limits of every sort, may change.

// kinds is a set of the types that JSON Schema tells apart.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindObject
	kindArray
	kindString
	kindInteger
	// kindFraction is a number that is no integer.
	kindFraction

	anyKind kinds = 1<<iota - 1
)

func (k kinds) String() string {
	if k == anyKind {
		return "of any type"
	}
	var words []string
	for _, w := range []struct {
		set  kinds
		name string
	}{
		{kindObject, "object"},
		{kindArray, "array"},
		{kindString, "string"},
		{kindInteger | kindFraction, "number"},
		{kindInteger, "integer"},
		{kindBoolean, "boolean"},
		{kindNull, "null"},
	} {
		if k&w.set == w.set {
			words = append(words, w.name)
			k &^= w.set
		}
	}
	return list(words, "or")
}

// withArticles is String with an article before each type, as a sentence has it.
func (k kinds) withArticles() string {
	if k == anyKind {
		return "of any type"
	}
	var words []string
	for _, w := range []struct {
		set  kinds
		name string
	}{
		{kindObject, "an object"},
		{kindArray, "an array"},
		{kindString, "a text"},
		{kindInteger | kindFraction, "a number"},
		{kindInteger, "an integer"},
		{kindFraction, "a fraction"},
		{kindBoolean, "a boolean"},
		{kindNull, "null"},
	} {
		if k&w.set == w.set {
			words = append(words, w.name)
			k &^= w.set
		}
	}
	return list(words, "or")
}

// kindsNamed returns what the keyword "type" lets through.
func kindsNamed(v value.Value) kinds {
	if v.Kind() == value.Array {
		var k kinds
		for _, e := range v.Elems() {
			k |= kindsNamed(e)
		}
		return k
	}
	switch v.Str() {
	case "null":
		return kindNull
	case "boolean":
		return kindBoolean
	case "object":
		return kindObject
	case "array":
		return kindArray
	case "string":
		return kindString
	case "integer":
		return kindInteger
	case "number":
		return kindInteger | kindFraction
	default:
		return anyKind
	}
}

// kindOfValue returns the type of one value.
func kindOfValue(v value.Value) kinds {
	switch v.Kind() {
	case value.Null:
		return kindNull
	case value.Bool:
		return kindBoolean
	case value.Object:
		return kindObject
	case value.Array:
		return kindArray
	case value.String:
		return kindString
	case value.Number:
		if v.IsInteger() {
			return kindInteger
		}
		return kindFraction
	case value.Missing:
	}
	return 0
}

// node is a schema within a document. at is relative to the document.
type node struct {
	schema value.Value
	at     diag.Pointer
}

func (n node) get(key string) node {
	return node{schema: n.schema.Get(key), at: n.at.Key(key)}
}

func (n node) index(i int) node {
	return node{schema: n.schema.Index(i), at: n.at.Index(i)}
}

func (n node) missing() bool { return n.schema.IsMissing() }

// closed reports whether n is false, which lets nothing through.
func (n node) closed() bool { return n.schema.Kind() == value.Bool && !n.schema.Truth() }

// values returns what enum and const allow, and whether there is either.
func (n node) values() ([]value.Value, bool) {
	if v := n.schema.Get("const"); !v.IsMissing() {
		return []value.Value{v}, true
	}
	v := n.schema.Get("enum")
	return v.Elems(), v.Kind() == value.Array
}

// budget is how much work a comparison may still cost.
type budget struct {
	left int
	// refused tells that there were too many alternatives to look at all of them.
	refused bool
}

// spend reports whether there was enough left.
func (b *budget) spend() bool { return b.take(1) }

// take is spend for what costs as much as n ordinary steps.
func (b *budget) take(n int) bool {
	b.left -= n
	return b.left > 0
}

// perStep is how many names or small values are looked at in about the time of one step.
const perStep = 20

// size is what has to be looked at in the lists of an alternative.
func (a alternative) size() int {
	n := 0
	for _, s := range a {
		values, _ := s.values()
		n += s.schema.Get("required").Len() + s.schema.Get("properties").Len() + s.schema.Get("patternProperties").Len() + len(values)
		for _, m := range s.schema.Get("dependentRequired").Members() {
			n += m.Value.Len()
		}
	}
	return n
}

// document is a whole schema, which references point into.
type document struct {
	root value.Value
	*budget
}

func (d document) resolve(ref string) (node, bool) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return node{}, false
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	n := node{schema: d.root, at: diag.Pointer(fragment)}
	for _, step := range n.at.Steps() {
		if n.schema.Kind() == value.Array {
			n.schema = elementNamed(n.schema, step)
		} else {
			n.schema = n.schema.Get(step)
		}
	}
	return n, !n.missing()
}

func elementNamed(v value.Value, step string) value.Value {
	for i, e := range v.Elems() {
		if string(diag.Pointer("").Index(i)[1:]) == step {
			return e
		}
	}
	return value.Value{}
}

// alternative is a set of schemas that hold together.
type alternative []node

// kinds returns the types that every schema of the alternative lets through.
func (a alternative) kinds() kinds {
	k := anyKind
	for _, n := range a {
		if n.closed() {
			return 0
		}
		if t := n.schema.Get("type"); !t.IsMissing() {
			k &= kindsNamed(t)
		}
	}
	return k
}

// valueKinds returns the types of the values that enum and const leave.
func (a alternative) valueKinds() kinds {
	k := anyKind
	for _, n := range a {
		if vs, ok := n.values(); ok {
			var some kinds
			for _, v := range vs {
				some |= kindOfValue(v)
			}
			k &= some
		}
	}
	return k
}

// alternatives takes schemas that hold together apart.
func (d document) alternatives(nodes []node) []alternative {
	return d.expand(nodes, map[diag.Pointer]bool{})
}

// expand is alternatives for schemas inside of others, which seen has.
func (d document) expand(nodes []node, seen map[diag.Pointer]bool) []alternative {
	open := []alternative{nil}
	for len(nodes) > 0 && d.spend() {
		n := nodes[0]
		nodes = nodes[1:]
		if n.missing() || seen[n.at] {
			continue
		}
		seen[n.at] = true
		for i := range open {
			open[i] = append(slices.Clip(open[i]), n)
		}
		if ref := n.schema.Get("$ref"); ref.Kind() == value.String {
			if to, ok := d.resolve(ref.Str()); ok {
				nodes = append(slices.Clip(nodes), to)
			}
		}
		all := n.get("allOf")
		for i := range all.schema.Elems() {
			nodes = append(slices.Clip(nodes), all.index(i))
		}
		for _, key := range []string{"anyOf", "oneOf"} {
			if some := n.get(key); some.schema.Len() > 0 {
				open = d.branch(open, some, seen)
			}
		}
	}
	return open
}

// branch continues each alternative with every branch.
func (d document) branch(open []alternative, branches node, seen map[diag.Pointer]bool) []alternative {
	var wider []alternative
	for i := range branches.schema.Elems() {
		for _, b := range d.expand([]node{branches.index(i)}, maps.Clone(seen)) {
			for _, a := range open {
				if len(wider) == maxAlternatives {
					d.refused = true
					return open
				}
				wider = append(wider, append(slices.Clip(a), b...))
			}
		}
	}
	return wider
}

// kinds returns the types that schemas that hold together let through.
func (d document) kinds(nodes []node, values bool) kinds {
	var k kinds
	for _, a := range d.alternatives(nodes) {
		some := a.kinds()
		if values {
			some &= a.valueKinds()
		}
		k |= some
	}
	return k
}

// breaking is one thing that is in the way of stored events. at is relative to the new schema.
type breaking struct {
	at  diag.Pointer
	say func(at diag.Pointer)
}

// verdict is the outcome of a comparison.
type verdict struct {
	breaks []breaking
	// strange counts enums and constants that do not go together.
	strange int
}

func (v *verdict) add(w verdict) {
	v.breaks = append(v.breaks, w.breaks...)
	v.strange += w.strange
}

// pair compares two schemas.
type pair struct {
	c       *comparer
	was, is document
	// seen holds finished comparisons, and begun ones as if they had found nothing: schemas may contain themselves.
	seen map[string]verdict
	*budget
	patterns *ecma.Library
}

// cover compares schemas that held together with schemas that hold together now. path is where the data is.
func (p *pair) cover(was, is []node, path string) verdict {
	var key strings.Builder
	for _, n := range was {
		key.WriteString(string(n.at) + " ")
	}
	key.WriteByte('|')
	for _, n := range is {
		key.WriteString(string(n.at) + " ")
	}
	if v, ok := p.seen[key.String()]; ok {
		return v
	}
	if !p.spend() {
		return verdict{}
	}
	p.seen[key.String()] = verdict{}

	var v verdict
	var lost kinds
	olds, news := p.was.alternatives(was), p.is.alternatives(is)
	for i, o := range olds {
		let := o.kinds() & o.valueKinds()
		for k := kinds(1); k <= anyKind; k <<= 1 {
			if let&k == 0 {
				continue
			}
			best, found := p.nearest(o, i, news, k, path)
			if !found {
				lost |= k
			}
			v.add(best)
		}
	}
	let, lets := p.was.kinds(was, true), p.is.kinds(is, false)
	if lost == 0 && let != 0 && let&p.is.kinds(is, true) == 0 {
		// The new values are all of other types.
		lost, lets = let, p.is.kinds(is, true)
	}
	if lost != 0 {
		v.breaks = append(v.breaks, breaking{at: p.blame(is, lost), say: func(at diag.Pointer) { p.c.typeChanged(at, path, let, lets) }})
	}
	p.seen[key.String()] = v
	return v
}

// nearest compares an alternative that was in place i with those that are, and returns the best outcome. It reports
// false where none lets type k through.
func (p *pair) nearest(o alternative, i int, news []alternative, k kinds, path string) (best verdict, found bool) {
	try := func(n alternative) (fits bool) {
		if !p.spend() || n.kinds()&k == 0 {
			return false
		}
		v := p.differ(o, n, k, path)
		if !found || v.strange < best.strange || v.strange == best.strange && len(v.breaks) < len(best.breaks) {
			best, found = v, true
		}
		return best.strange == 0 && len(best.breaks) == 0
	}
	// Mostly the alternative in the same place is the one that is meant.
	if i < len(news) && try(news[i]) {
		return best, true
	}
	for j, n := range news {
		if j != i && try(n) {
			break
		}
	}
	return best, found
}

// blame returns the place of the keyword that keeps a type out.
func (p *pair) blame(is []node, lost kinds) diag.Pointer {
	for _, a := range p.is.alternatives(is) {
		for _, n := range a {
			if t := n.schema.Get("type"); !t.IsMissing() && kindsNamed(t)&lost != lost {
				return n.at.Key("type")
			}
		}
	}
	for _, n := range is {
		if n.closed() {
			return n.at
		}
	}
	if len(is) > 0 {
		return is[0].at
	}
	return ""
}

// differ compares one alternative that was with one that is, as far as values of type k go.
func (p *pair) differ(was, is alternative, k kinds, path string) verdict {
	var v verdict
	if !p.take((was.size() + is.size()) / perStep) {
		return v
	}
	v.strange = p.strangers(was, is)
	if k == kindObject {
		v.add(p.required(was, is, path))
		v.add(p.properties(was, is, path))
		v.add(p.others(was, is, path))
	}
	if k == kindArray {
		v.add(p.elements(was, is, path))
	}
	v.add(p.conditions(was, is, path))
	return v
}

// strangers counts the schemas whose enum or const leaves out something that was allowed by one.
func (p *pair) strangers(was, is alternative) int {
	count := 0
	for _, n := range is {
		allowed, limited := n.values()
		if !limited {
			continue
		}
		fits := false
		for _, o := range was {
			if values, ok := o.values(); ok && p.take(effort(values, allowed)/perStep) && contained(values, allowed) {
				fits = true
				break
			}
		}
		if !fits {
			count++
		}
	}
	return count
}

// effort is how many values contained may look at, within reason.
func effort(values, in []value.Value) int {
	const most = 1 << 15
	return len(values) + len(in) + min(noTexts(values), most)*min(noTexts(in), most)
}

func noTexts(values []value.Value) int {
	n := 0
	for _, v := range values {
		if v.Kind() != value.String {
			n++
		}
	}
	return n
}

func contained(values, in []value.Value) bool {
	texts := make(map[string]bool, len(in))
	var others []value.Value
	for _, w := range in {
		if w.Kind() == value.String {
			texts[w.Str()] = true
		} else {
			others = append(others, w)
		}
	}
	for _, v := range values {
		found := texts[v.Str()] && v.Kind() == value.String
		if v.Kind() != value.String {
			found = slices.ContainsFunc(others, func(w value.Value) bool { return value.Equal(v, w) })
		}
		if !found {
			return false
		}
	}
	return true
}

// required compares required and dependentRequired.
func (p *pair) required(was, is alternative, path string) verdict {
	always, beside := map[string]bool{}, map[[2]string]bool{}
	for _, o := range was {
		for _, e := range o.schema.Get("required").Elems() {
			always[e.Str()] = true
		}
		for _, m := range o.schema.Get("dependentRequired").Members() {
			for _, e := range m.Value.Elems() {
				beside[[2]string{m.Key, e.Str()}] = true
			}
		}
	}
	var v verdict
	for _, n := range is {
		list := n.get("required")
		for i, e := range list.schema.Elems() {
			if name := e.Str(); !always[name] {
				v.breaks = append(v.breaks, breaking{at: list.at.Index(i), say: func(at diag.Pointer) { p.c.nowRequired(at, path, name) }})
			}
		}
		dependent := n.get("dependentRequired")
		for _, m := range dependent.schema.Members() {
			if !p.declared(was, m.Key) {
				continue
			}
			for i, e := range m.Value.Elems() {
				if name := e.Str(); !always[name] && !beside[[2]string{m.Key, name}] {
					v.breaks = append(v.breaks, breaking{at: dependent.at.Key(m.Key).Index(i), say: func(at diag.Pointer) { p.c.nowRequiredWith(at, path, name, m.Key) }})
				}
			}
		}
	}
	return v
}

// declared reports whether a property is mentioned by name or by pattern.
func (p *pair) declared(a alternative, name string) bool {
	for _, n := range a {
		if !n.schema.Get("properties").Get(name).IsMissing() {
			return true
		}
		for _, m := range n.schema.Get("patternProperties").Members() {
			if p.matches(m.Key, name) {
				return true
			}
		}
	}
	return false
}

// maxMatching bounds the work for one pattern on one name, matchingShare is how much of it is a step.
const (
	maxMatching   = 10_000
	matchingShare = 16
)

// matches reports whether a property's name matches a pattern. It is taken to match one that takes too much work.
func (p *pair) matches(pattern, name string) bool {
	if !p.spend() {
		return false
	}
	re, err := p.patterns.Compile(pattern)
	if err != nil {
		return true
	}
	b := work.Counted(maxMatching)
	matched := re.Match(name, b)
	p.take(int(b.Spent() / matchingShare))
	return matched || b.Err() != nil
}

// property returns the schemas that hold for a property.
func (p *pair) property(a alternative, name string) []node {
	var found []node
	for _, n := range a {
		before := len(found)
		if sub := n.get("properties").get(name); !sub.missing() {
			found = append(found, sub)
		}
		patterns := n.get("patternProperties")
		for _, m := range patterns.schema.Members() {
			if p.matches(m.Key, name) {
				found = append(found, patterns.get(m.Key))
			}
		}
		if others := n.get("additionalProperties"); len(found) == before && !others.missing() {
			found = append(found, others)
		}
	}
	return found
}

// properties compares what was declared by name.
func (p *pair) properties(was, is alternative, path string) verdict {
	names := make([]value.Value, 0, len(was)+len(is))
	for _, n := range was {
		names = append(names, n.schema.Get("properties"))
	}
	for _, n := range is {
		names = append(names, n.schema.Get("properties"))
	}
	var v verdict
	for _, name := range sortedKeys(names...) {
		old := p.property(was, name)
		if !p.declared(was, name) && p.was.kinds(old, true) == anyKind {
			// What was neither declared nor limited is new.
			continue
		}
		v.add(p.cover(old, p.property(is, name), dataPath(path, name)))
	}
	return v
}

// others compares what was declared by pattern, or not at all.
func (p *pair) others(was, is alternative, path string) verdict {
	var v verdict
	path += ".*"
	patterns := map[string]bool{}
	for _, o := range was {
		for _, m := range o.schema.Get("patternProperties").Members() {
			if patterns[m.Key] {
				continue
			}
			patterns[m.Key] = true
			v.add(p.cover(was.pattern(m.Key), is.pattern(m.Key), path))
		}
	}
	var old []node
	shut := false
	for _, o := range was {
		if others := o.get("additionalProperties"); !others.missing() {
			old = append(old, others)
			shut = shut || others.closed()
		}
	}
	if shut {
		return v
	}
	for _, n := range is {
		others := n.get("additionalProperties")
		switch {
		case others.missing():
		case others.closed():
			v.breaks = append(v.breaks, breaking{at: others.at, say: func(at diag.Pointer) { p.c.nowClosed(at, strings.TrimSuffix(path, ".*")) }})
		default:
			v.add(p.cover(old, []node{others}, path))
		}
	}
	return v
}

// pattern returns the schemas that hold for properties that match a pattern.
func (a alternative) pattern(pattern string) []node {
	var found []node
	for _, n := range a {
		if sub := n.get("patternProperties").get(pattern); !sub.missing() {
			found = append(found, sub)
		} else if others := n.get("additionalProperties"); !others.missing() {
			found = append(found, others)
		}
	}
	return found
}

// elements compares what elements of arrays may be.
func (p *pair) elements(was, is alternative, path string) verdict {
	places := 0
	for _, n := range append(slices.Clip(was), is...) {
		places = max(places, n.schema.Get("prefixItems").Len())
	}
	var v verdict
	for i := range places {
		v.add(p.cover(was.element(i), is.element(i), path+diagIndex(i)))
	}
	v.add(p.cover(was.element(places), is.element(places), path+"[]"))
	return v
}

func diagIndex(i int) string { return "[" + string(diag.Pointer("").Index(i)[1:]) + "]" }

// element returns the schemas that hold for an element.
func (a alternative) element(i int) []node {
	var found []node
	for _, n := range a {
		prefix := n.get("prefixItems")
		if i < prefix.schema.Len() {
			found = append(found, prefix.index(i))
		} else if rest := n.get("items"); !rest.missing() {
			found = append(found, rest)
		}
	}
	return found
}

// conditions compares then, else and dependentSchemas. What decides between them is not understood: events that any of
// them is for are taken to be there.
func (p *pair) conditions(was, is alternative, path string) verdict {
	var v verdict
	for _, n := range is {
		test := n.get("if")
		for _, key := range []string{"then", "else"} {
			sub := n.get(key)
			if test.missing() || sub.missing() {
				continue
			}
			old := slices.Clip([]node(was))
			for _, o := range was {
				if value.Equal(o.schema.Get("if"), test.schema) {
					old = append(old, o.get(key))
				}
			}
			v.add(p.cover(old, []node{sub}, path))
		}
		dependent := n.get("dependentSchemas")
		for _, m := range dependent.schema.Members() {
			if !p.declared(was, m.Key) {
				continue
			}
			old := slices.Clip([]node(was))
			for _, o := range was {
				old = append(old, o.get("dependentSchemas").get(m.Key))
			}
			v.add(p.cover(old, []node{dependent.get(m.Key)}, path))
		}
	}
	return v
}
