// Package schema compiles JSON Schemas of draft 2020-12 and checks values against them. Formats are asserted. What
// needs more than one document (remote references) or bookkeeping between keywords (unevaluatedProperties,
// unevaluatedItems), dynamic references, anchors and vocabularies are rejected when a schema is compiled.
//
// A life of a check:
//
//  1. Compile has package outline find the schemas in the document and the URIs they go by, then turns each schema into
//     a node (compile.go, keywords.go), connects references (reference.go), and refuses what could not be checked in
//     bounded time (graph.go).
//  2. Validate first asks only whether the value fits (check.go). That allocates nothing for an ordinary value.
//  3. If it does not fit, a second pass over the same nodes finds out why (explain.go, message.go).
//
// Both passes take what they do from the caller's budget, and so do patterns: no schema and no value can hold a caller
// for longer than it allows, and the same value gets the same answer on every machine.
//
// The decisions behind it are in docs/internals/lang.md.
package schema

import (
	"hash/maphash"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema/ecma"
)

// Limits of what is compiled and checked.
const (
	// MaxFailures is the number of failures that Validate reports of one value.
	MaxFailures = 20
	// maxPatterns bounds the different patterns in one document.
	maxPatterns = 500
	// maxMatching bounds the work for finding required names that are not allowed.
	maxMatching = 1 << 20
	// maxCost bounds the schemas that have to be checked against one and the same value.
	maxCost = 10_000
	// maxChain bounds how many references and combinations may lead from one schema to the next for the same value.
	maxChain = 200
)

// Schema is a compiled schema. It is immutable and may be used by any number of goroutines.
type Schema struct {
	root *node
	seed maphash.Seed
	// definitions are the shared definitions that the schema reaches, sorted.
	definitions []string
}

// Definitions returns the names of the shared definitions that the schema reaches, by other ones too, sorted. A nil
// Schema reaches none.
func (s *Schema) Definitions() []string {
	if s == nil {
		return nil
	}
	return s.definitions
}

// Failure is one reason why a value does not fit a schema.
type Failure struct {
	// Path leads to the part of the value that is at fault, in the form items[0].sku; "" is the whole value. For a
	// missing field it is the path that the field would have.
	Path string
	// Pointer is the same place as a JSON pointer (RFC 6901).
	Pointer string
	// Constraint is the keyword of the schema that is not met.
	Constraint string
	// Expected is what the schema asks for. It is missing where no single value says that.
	Expected value.Value
	// Received is what was found, shortened if it is large; for a constraint on a number of parts, that number. It is
	// missing for a field that is missing.
	Received value.Value
	// Message is a sentence; Quotes reports that it repeats a value.
	Message string
	Quotes  bool
}

// Group compiles the schemas of one spec. They share their patterns, and the limits on these.
type Group struct {
	list     *diag.List
	patterns *ecma.Library
	// full is set once the patterns were too much, which is reported once.
	full bool
	// matching is what may be spent on finding out which names are required and not allowed.
	matching *work.Budget
	// required has the names that a schema requires, as they were written.
	required map[*node][]value.Value
	// outside has the places in the spec of required names that were already reported as forbidden.
	outside map[diag.Pointer]bool
	// shared are the definitions that all schemas of the group may refer to.
	shared definitions
}

// NewGroup returns a group that reports everything that is wrong with its schemas to l.
func NewGroup(l *diag.List) *Group {
	return &Group{
		list: l, patterns: ecma.NewLibrary(), matching: work.Counted(maxMatching),
		required: map[*node][]value.Value{}, outside: map[diag.Pointer]bool{},
	}
}

// Compile compiles the schema v, which stands at the place at of the spec. The result is never nil; if there was an
// error, it is a schema that every value fits.
func (g *Group) Compile(v value.Value, at diag.Pointer) *Schema {
	before := g.list.Errors()
	c := newCompiler(v, at, g)
	root := c.compile()
	if g.list.Errors() > before {
		root = &node{}
	}
	c.forgetPlaces()
	return &Schema{root: root, seed: maphash.MakeSeed(), definitions: g.shared.reached(c.refersTo)}
}

// Done is called after the last schema. It returns the names of shared definitions that no schema reaches, sorted.
func (g *Group) Done() []string {
	if g.shared.compiler != nil {
		g.shared.compiler.forgetPlaces()
	}
	return g.shared.unused()
}

// Valid reports whether v fits the schema. Its work is taken from the budget; the error is the budget's, where that
// ended.
func (s *Schema) Valid(v value.Value, b *work.Budget) (bool, error) {
	r := run{budget: b, seed: s.seed}
	fits := r.accepts(s.root, v)
	if !r.end() {
		return false, b.Err()
	}
	return fits, nil
}

// Validate returns why v does not fit the schema: at most MaxFailures failures, in the order of their places in v, a
// container before its parts. It returns none if v fits. Its work is taken from the budget. Where that ends, the error
// is the budget's, unless at least one failure with its reason is already known.
func (s *Schema) Validate(v value.Value, b *work.Budget) ([]Failure, error) {
	if fits, err := s.Valid(v, b); fits || err != nil {
		return nil, err
	}
	e := newExplainer(run{budget: b, seed: s.seed}, MaxFailures)
	e.explain(s.root, v, "")
	e.end()
	if len(e.found) == 0 {
		return nil, b.Err()
	}
	return e.failures(), nil
}
