package compare

import (
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
	"j17/internal/lang/schema/ecma"
)

// Bounds of the comparison of one pair of schemas, and of all of them together.
const (
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

// perStep is how many names or small values are looked at in about the time of one step.
const perStep = 20

// breaking is one thing that keeps stored events from fitting. at is relative to the new schema, path is where it is in
// data.
type breaking struct {
	at   diag.Pointer
	path string
	say  func(at diag.Pointer)
}

// verdict is the outcome of a comparison.
type verdict struct {
	breaks []breaking
	// strange counts enums and constants that do not match.
	strange int
}

func (v *verdict) add(w verdict) {
	v.breaks = append(v.breaks, w.breaks...)
	v.strange += w.strange
}

// pair compares two schemas.
type pair struct {
	c *comparer
	// seen holds finished comparisons, and begun ones as if they had found nothing: schemas may contain themselves.
	seen map[string]verdict
	// budget is how much work the comparison may cost; refused reports that there were too many alternatives to visit
	// all of them.
	budget   *work.Budget
	refused  bool
	patterns *ecma.Library
}

// alternatives splits schemas that hold together.
func (p *pair) alternatives(schemas []outline.Schema) []outline.Alternative {
	all, complete := outline.Alternatives(schemas, p.budget)
	p.refused = p.refused || !complete
	return all
}

// kinds returns the types that schemas that hold together let through.
func (p *pair) kinds(schemas []outline.Schema, values bool) outline.Kinds {
	var k outline.Kinds
	for _, a := range p.alternatives(schemas) {
		some := a.Kinds()
		if values {
			some &= a.ValueKinds()
		}
		k |= some
	}
	return k
}

// cover compares schemas that held together with schemas that hold together now. path is where the data is.
func (p *pair) cover(was, is []outline.Schema, path string) verdict {
	var key strings.Builder
	for _, n := range was {
		key.WriteString(string(n.At) + " ")
	}
	key.WriteByte('|')
	for _, n := range is {
		key.WriteString(string(n.At) + " ")
	}
	if v, ok := p.seen[key.String()]; ok {
		return v
	}
	if !p.budget.Spend(1) {
		return verdict{}
	}
	p.seen[key.String()] = verdict{}

	var v verdict
	var lost outline.Kinds
	olds, news := p.alternatives(was), p.alternatives(is)
	for i, o := range olds {
		let := o.Kinds() & o.ValueKinds()
		for k := outline.Kinds(1); k <= outline.Any; k <<= 1 {
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
	let, lets := p.kinds(was, true), p.kinds(is, false)
	if lost == 0 && let != 0 && let&p.kinds(is, true) == 0 {
		// The new values are all of other types.
		lost, lets = let, p.kinds(is, true)
	}
	if lost != 0 {
		v.breaks = append(v.breaks, breaking{
			at: p.blame(is, lost), path: path,
			say: func(at diag.Pointer) { p.typeChanged(at, path, let, lets) },
		})
	}
	p.seen[key.String()] = v
	return v
}

func (p *pair) typeChanged(at diag.Pointer, path string, was, is outline.Kinds) {
	if is == 0 {
		p.c.Report(at, typeForbidden, path, was.Types())
	} else {
		p.c.Report(at, typeChanged, path, was.Types(), is.Types())
	}
}

// nearest compares an alternative of the old schema, at index i, with those of the new one, and returns the best
// outcome. It reports false where none lets type k through.
func (p *pair) nearest(
	o outline.Alternative, i int, news []outline.Alternative, k outline.Kinds, path string,
) (best verdict, found bool) {
	try := func(n outline.Alternative) (fits bool) {
		if !p.budget.Spend(1) || n.Kinds()&k == 0 {
			return false
		}
		v := p.differ(o, n, k, path)
		if !found || v.strange < best.strange || v.strange == best.strange && len(v.breaks) < len(best.breaks) {
			best, found = v, true
		}
		return best.strange == 0 && len(best.breaks) == 0
	}
	// Mostly the alternative with the same index is the one that is meant.
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
func (p *pair) blame(is []outline.Schema, lost outline.Kinds) diag.Pointer {
	for _, a := range p.alternatives(is) {
		for _, n := range a {
			if t := n.Get("type"); !t.IsMissing() && outline.KindsNamed(t)&lost != lost {
				return n.At.Key("type")
			}
		}
	}
	for _, n := range is {
		if n.Never() {
			return n.At
		}
	}
	if len(is) > 0 {
		return is[0].At
	}
	return ""
}

// differ compares one old alternative with a new one, as far as values of type k are concerned.
func (p *pair) differ(was, is outline.Alternative, k outline.Kinds, path string) verdict {
	var v verdict
	if !p.budget.Spend((was.Size() + is.Size()) / perStep) {
		return v
	}
	v.strange = p.strangers(was, is)
	if k == outline.Object {
		v.add(p.required(was, is, path))
		v.add(p.properties(was, is, path))
		v.add(p.others(was, is, path))
	}
	if k == outline.Array {
		v.add(p.elements(was, is, path))
	}
	v.add(p.conditions(was, is, path))
	return v
}

// strangers counts the schemas whose enum or const leaves out something that was allowed by one.
func (p *pair) strangers(was, is outline.Alternative) int {
	count := 0
	for _, n := range is {
		allowed, limited := n.Values()
		if !limited {
			continue
		}
		fits := false
		for _, o := range was {
			if values, ok := o.Values(); ok && p.budget.Spend(effort(values, allowed)/perStep) &&
				outline.Contained(values, allowed) {
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

// effort is how many values contained may visit, within reason.
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

// required compares required and dependentRequired.
func (p *pair) required(was, is outline.Alternative, path string) verdict {
	// What was required before.
	always, beside := map[string]bool{}, map[[2]string]bool{}
	for _, o := range was {
		for _, e := range o.Get("required").Elems() {
			always[e.Str()] = true
		}
		for _, m := range o.Get("dependentRequired").Members() {
			for _, e := range m.Value.Elems() {
				beside[[2]string{m.Key, e.Str()}] = true
			}
		}
	}

	// What is required now and was not before: by itself, or beside another member that may exist.
	var v verdict
	for _, n := range is {
		list := n.Member("required")
		for i, e := range list.Elems() {
			if name := e.Str(); !always[name] {
				v.breaks = append(v.breaks, breaking{
					at: list.At.Index(i), path: outline.MemberPath(path, name),
					say: func(at diag.Pointer) { p.c.Report(at, nowRequired, outline.MemberPath(path, name)) },
				})
			}
		}
		dependent := n.Member("dependentRequired")
		for _, m := range dependent.Members() {
			if !was.Declares(m.Key, p.matches) {
				continue
			}
			for i, e := range m.Value.Elems() {
				if name := e.Str(); !always[name] && !beside[[2]string{m.Key, name}] {
					v.breaks = append(v.breaks, breaking{
						at: dependent.At.Key(m.Key).Index(i), path: outline.MemberPath(path, name),
						say: func(at diag.Pointer) {
							p.c.Report(at, nowRequiredWith, outline.MemberPath(path, name), m.Key)
						},
					})
				}
			}
		}
	}
	return v
}

// maxMatching bounds the work for one pattern on one name, matchingShare is how much of it is a step.
const (
	maxMatching   = 10_000
	matchingShare = 16
)

// matches reports whether a property's name matches a pattern. A pattern that takes too much work counts as matching.
func (p *pair) matches(pattern, name string) bool {
	if !p.budget.Spend(1) {
		return false
	}
	re, err := p.patterns.Compile(pattern)
	if err != nil {
		return true
	}
	b := work.Counted(maxMatching)
	matched := re.Match(name, b)
	p.budget.Spend(int(b.Spent() / matchingShare))
	return matched || b.Err() != nil
}

// properties compares what was declared by name.
func (p *pair) properties(was, is outline.Alternative, path string) verdict {
	names := make([]value.Value, 0, len(was)+len(is))
	for _, n := range was {
		names = append(names, n.Get("properties"))
	}
	for _, n := range is {
		names = append(names, n.Get("properties"))
	}
	var v verdict
	for _, name := range sortedKeys(names...) {
		old := was.Property(name, p.matches)
		if !was.Declares(name, p.matches) && p.kinds(old, true) == outline.Any {
			// Properties that were neither declared nor limited are new.
			continue
		}
		v.add(p.cover(old, is.Property(name, p.matches), outline.MemberPath(path, name)))
	}
	return v
}

// others compares what was declared by pattern, or not at all.
func (p *pair) others(was, is outline.Alternative, path string) verdict {
	var v verdict
	path += ".*"

	// What a pattern allows is compared with what the same pattern allows now.
	patterns := map[string]bool{}
	for _, o := range was {
		for _, m := range o.Get("patternProperties").Members() {
			if patterns[m.Key] {
				continue
			}
			patterns[m.Key] = true
			v.add(p.cover(was.Pattern(m.Key), is.Pattern(m.Key), path))
		}
	}

	// Properties that no name and no pattern declares could exist unless they were forbidden.
	var old []outline.Schema
	shut := false
	for _, o := range was {
		if others := o.Member("additionalProperties"); !others.IsMissing() {
			old = append(old, others)
			shut = shut || others.Never()
		}
	}
	if shut {
		return v
	}

	for _, n := range is {
		others := n.Member("additionalProperties")
		switch {
		case others.IsMissing():
		case others.Never():
			v.breaks = append(v.breaks, breaking{
				at: others.At, path: path,
				say: func(at diag.Pointer) { p.c.Report(at, nowClosed, strings.TrimSuffix(path, ".*")) },
			})
		default:
			v.add(p.cover(old, []outline.Schema{others}, path))
		}
	}
	return v
}

// elements compares what elements of arrays may be.
func (p *pair) elements(was, is outline.Alternative, path string) verdict {
	places := 0
	for _, n := range append(slices.Clip(was), is...) {
		places = max(places, n.Get("prefixItems").Len())
	}
	var v verdict
	for i := range places {
		v.add(p.cover(was.Item(i), is.Item(i), outline.ElementPath(path, i)))
	}
	v.add(p.cover(was.Item(places), is.Item(places), path+"[]"))
	return v
}

// conditions compares then, else and dependentSchemas. The conditions themselves are not evaluated: events for each
// branch are assumed to exist.
func (p *pair) conditions(was, is outline.Alternative, path string) verdict {
	var v verdict
	for _, n := range is {
		test := n.Member("if")
		for _, key := range []string{"then", "else"} {
			sub := n.Member(key)
			if test.IsMissing() || sub.IsMissing() {
				continue
			}
			old := slices.Clip([]outline.Schema(was))
			for _, o := range was {
				if value.Equal(o.Get("if"), test.Value) {
					old = append(old, o.Member(key))
				}
			}
			v.add(p.cover(old, []outline.Schema{sub}, path))
		}
		dependent := n.Member("dependentSchemas")
		for _, m := range dependent.Members() {
			if !was.Declares(m.Key, p.matches) {
				continue
			}
			old := slices.Clip([]outline.Schema(was))
			for _, o := range was {
				old = append(old, o.Member("dependentSchemas").Member(m.Key))
			}
			v.add(p.cover(old, []outline.Schema{dependent.Member(m.Key)}, path))
		}
	}
	return v
}
