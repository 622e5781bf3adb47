package outline

import (
	"maps"
	"slices"

	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// maxAlternatives bounds the alternatives of one set of schemas.
const maxAlternatives = 256

// Alternatives splits schemas that hold together: each alternative is one way through anyOf and oneOf, with everything
// that "$ref" and allOf add. It reports false where there are too many to visit. A unit of work is a schema that is
// visited; when b ends, something is missing.
func Alternatives(schemas []Schema, b *work.Budget) ([]Alternative, bool) {
	w := walk{budget: b, complete: true}
	return w.expand(schemas, map[diag.Pointer]bool{}), w.complete
}

// Cases is Alternatives that splits conditions too: an "if" becomes one alternative with "if" and "then", and one with
// "else".
func Cases(schemas []Schema, b *work.Budget) ([]Alternative, bool) {
	w := walk{budget: b, complete: true, cases: true}
	return w.expand(schemas, map[diag.Pointer]bool{}), w.complete
}

type walk struct {
	budget   *work.Budget
	complete bool
	cases    bool
}

// expand is Alternatives for schemas inside of others, which seen has.
func (w *walk) expand(schemas []Schema, seen map[diag.Pointer]bool) []Alternative {
	open := []Alternative{nil}
	for len(schemas) > 0 && w.budget.Spend(1) {
		s := schemas[0]
		schemas = schemas[1:]
		if s.IsMissing() || seen[s.At] {
			continue
		}
		seen[s.At] = true
		for i := range open {
			open[i] = append(slices.Clip(open[i]), s)
		}
		if to, ok := s.Ref(); ok {
			schemas = append(slices.Clip(schemas), to)
		}
		schemas = append(slices.Clip(schemas), s.Member("allOf").Elements()...)
		for _, key := range []string{"anyOf", "oneOf"} {
			if some := s.Member(key); some.Len() > 0 {
				branches := make([][]Schema, some.Len())
				for i := range branches {
					branches[i] = []Schema{some.Element(i)}
				}
				open = w.branch(open, branches, seen)
			}
		}
		if test := s.Member("if"); w.cases && !test.IsMissing() {
			open = w.branch(open, [][]Schema{{test, s.Member("then")}, {s.Member("else")}}, seen)
		}
	}
	return open
}

// branch continues each alternative with every branch.
func (w *walk) branch(open []Alternative, branches [][]Schema, seen map[diag.Pointer]bool) []Alternative {
	var wider []Alternative
	for _, branch := range branches {
		for _, b := range w.expand(branch, maps.Clone(seen)) {
			for _, a := range open {
				if len(wider) == maxAlternatives {
					w.complete = false
					return open
				}
				wider = append(wider, append(slices.Clip(a), b...))
			}
		}
	}
	return wider
}

// FirstAlternative is the first of Alternatives, which has the first branch of each anyOf and oneOf. It reports false
// where a reference leads to nothing, or back to the schema that it stands in, and when b has ended.
func FirstAlternative(schemas []Schema, b *work.Budget) (Alternative, bool) {
	var all Alternative
	state := map[diag.Pointer]bool{} // true while a schema is being looked at, false afterwards
	var visit func(s Schema) bool
	visit = func(s Schema) bool {
		open, seen := state[s.At]
		if seen || s.IsMissing() {
			return !open
		}
		if !b.Spend(1 + s.Len() + s.Size()) {
			return false
		}
		state[s.At] = true
		all = append(all, s)
		defer func() { state[s.At] = false }()
		if !s.Get("$ref").IsMissing() {
			if to, ok := s.Ref(); !ok || !visit(to) {
				return false
			}
		}
		parts := s.Member("allOf").Elements()
		for _, key := range []string{"oneOf", "anyOf"} {
			if some := s.Member(key); some.Len() > 0 {
				parts = append(parts, some.Element(0))
			}
		}
		return !slices.ContainsFunc(parts, func(part Schema) bool { return !visit(part) })
	}
	ok := !slices.ContainsFunc(schemas, func(s Schema) bool { return !visit(s) })
	return all, ok
}
