package spec

import (
	"slices"
	"strings"

	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/tick"
)

// ProjectionSemantics is the version of what projections make of states. It is part of every projection's fingerprints,
// so that results of an older version are not taken for those of this one.
const ProjectionSemantics = 3

// Projection is a compiled definition of a view over aggregates. There are two forms: the named one has a result for
// each aggregate of the type ForEach, the array form one for each set of parameters.
type Projection struct {
	Name string
	// Definition is as it was written.
	Definition value.Value
	// Fingerprint changes whenever the definition does, or what counts as an identifier. What sources hold is not part
	// of it.
	Fingerprint [32]byte
	// ForEach is "" in the array form.
	ForEach string
	// Sources are in the order of the definition, the included ones last.
	Sources []Source
	// Stages has the places of all sources: those of one stage can be loaded side by side once those of the stages
	// before it are there.
	Stages [][]int
	// Select is the shape of the result, where "$" has a member for each source; nil in the array form, where "$"
	// itself is the result.
	Select *tick.Template
	// Params are the parameters of the array form, in the order of their names.
	Params []Param
	// Indexes are those of the named form, in their order.
	Indexes []Index
	// IndexStages has the sources that indexed fields depend on, in stages as Stages has them.
	IndexStages [][]int
	// IndexFingerprint changes whenever keys in the indexes do although states do not; zero where there are no indexes.
	IndexFingerprint [32]byte
}

// Source is an aggregate, or are aggregates, that a projection reads. Exactly one of Key, ID and Query is set.
type Source struct {
	// Name is the member of "$" that the source is.
	Name          string
	AggregateType string
	// Key stands for the aggregate that the projection is read for, or that of the same id in another type.
	Key bool
	// ID leads to an identifier, or to several where Many is set. A literal one is canonical.
	ID *Operand
	// Query finds aggregates by their states; Many is set with it.
	Query *Query
	// Many reports that the source is an array: in the order of the ids that ID leads to, or by id for a Query.
	Many bool
	// Included marks singletons that stand under "include".
	Included bool
	// Needs are the places of the sources that ID or Query start at, in order.
	Needs []int
	// faulty reports that errors were found in the source, so that its dependencies are not known.
	faulty bool
}

// Operand is what the id of a source or the value of a query is taken from.
type Operand struct {
	// Literal is set where neither of the others is.
	Literal value.Value
	// Path starts at a source, as paths of Select do.
	Path *tick.Path
	// Param is the name of the parameter that is meant, "" where there is none.
	Param string
}

// Find returns the operand's value: e has the sources as its document, and params what parameters were given. It is
// missing where a path leads nowhere. The error is that of the budget of e, which has ended.
func (o *Operand) Find(e *tick.Env, params map[string]string) (value.Value, error) {
	switch {
	case o.Path != nil:
		return o.Path.In(e)
	case o.Param != "":
		return value.StringValue(params[o.Param]), nil
	default:
		return o.Literal, nil
	}
}

// IDs returns the identifiers in the value of the source's ID, in canonical form, each once and in the order of their
// first appearance. A source that is not Many has at most one. Values that are no identifiers, and keys of aggregates
// of other types, are left out.
func (s *Source) IDs(found value.Value, rules *ident.Rules) []string {
	if !s.Many || found.Kind() != value.Array {
		if id, ok := s.identifier(found, rules); ok {
			return []string{id}
		}
		return nil
	}
	var ids []string
	seen := make(map[string]struct{}, found.Len())
	for _, v := range found.Elems() {
		id, ok := s.identifier(v, rules)
		if _, again := seen[id]; !ok || again {
			continue
		}
		seen[id] = struct{}{}
		ids = append(ids, id)
	}
	return ids
}

func (s *Source) identifier(v value.Value, rules *ident.Rules) (string, bool) {
	if v.Kind() != value.String {
		return "", false
	}
	text := v.Str()
	if len(text) > len(s.AggregateType) && text[len(s.AggregateType)] == ':' {
		text = strings.TrimPrefix(text, s.AggregateType+":")
	}
	id, _, err := rules.Check(text)
	return id, err == nil
}

// Query finds the aggregates of a type that have a value in a field.
type Query struct {
	AggregateType string
	// Field leads to the field within the source, where "id" is the aggregate's own unless its state has one.
	Field jsonpath.Path
	// Value is what the field is compared with.
	Value Operand
}

// Matches reports whether a source matches the query: its field equals one of the wanted values, or is an array with an
// element that does. Numbers compare by value, and a missing field is null.
func (q *Query) Matches(source value.Value, wanted []value.Value) bool {
	return Matches(source.At(q.Field.Steps), wanted)
}

// Matches is the comparison of queries and filters: see Query.Matches.
func Matches(field value.Value, wanted []value.Value) bool {
	field = field.OrNull()
	return slices.ContainsFunc(wanted, func(w value.Value) bool {
		return value.Equal(field, w) ||
			slices.ContainsFunc(field.Elems(), func(e value.Value) bool { return value.Equal(e, w) })
	})
}

// Wanted returns the values that a text from a URL stands for: the text, and the number, boolean or null that it spells
// in JSON. In double quotes it is the text between them alone.
func Wanted(text string) []value.Value {
	plain := value.StringValue(text)
	if text == "" || strings.TrimSpace(text) != text {
		return []value.Value{plain}
	}
	v, err := value.ParseString(text)
	switch {
	case err != nil || v.Kind() == value.Array || v.Kind() == value.Object:
		return []value.Value{plain}
	case v.Kind() == value.String:
		return []value.Value{v}
	default:
		return []value.Value{plain, v}
	}
}

// Param is a parameter of the array form. Its values are texts.
type Param struct {
	Name string
	// IDOf are the aggregate types of which it has to be an identifier, none where it is compared with fields only. It
	// is brought into canonical form before it is used.
	IDOf []string
}

// Index finds rows of a projection by fields of their results.
type Index struct {
	// Fields are those of the key, in its order. There is one where Words is set.
	Fields []Field
	// Words reports that the key is a word of the field, which is a text.
	Words bool
}

// Field is a field of a projection's result.
type Field struct {
	// Name is the field as definitions and filters have it: "address.city".
	Name string
	// Needs are the places of all sources that the field depends on, directly or not, in order.
	Needs []int

	made *tick.Template
	rest []value.Step
}

// Value returns what the field of a result is: e has the sources that it needs as its document, and the value it is a
// part of may have about limit bytes. It is null where there is none. Errors are those of tick.Template.Eval.
func (f *Field) Value(e *tick.Env, limit int) (value.Value, error) {
	v, ok, err := f.made.Eval(e, limit)
	if err != nil || !ok {
		return value.NullValue(), err
	}
	return v.At(f.rest).OrNull(), nil
}

// IsNamed reports whether the projection has the named form, and so has rows.
func (p *Projection) IsNamed() bool { return p.ForEach != "" }

// Types returns the aggregate types that the projection reads, sorted.
func (p *Projection) Types() []string { return p.types(p.Stages) }

// IndexTypes returns the aggregate types that keys in its indexes depend on, sorted; nil where there are no indexes.
func (p *Projection) IndexTypes() []string {
	if len(p.Indexes) == 0 {
		return nil
	}
	return p.types(p.IndexStages)
}

func (p *Projection) types(stages [][]int) []string {
	var types []string
	if p.IsNamed() {
		types = append(types, p.ForEach)
	}
	for _, stage := range stages {
		for _, i := range stage {
			types = append(types, p.Sources[i].AggregateType)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Queries returns the queries of all sources, in their order.
func (p *Projection) Queries() []*Query {
	var queries []*Query
	for i := range p.Sources {
		if q := p.Sources[i].Query; q != nil {
			queries = append(queries, q)
		}
	}
	return queries
}

// Keyed reports whether the projection is read with an identifier: in the named form always, in the array form where a
// source stands for it.
func (p *Projection) Keyed() bool {
	return p.IsNamed() || slices.ContainsFunc(p.Sources, func(s Source) bool { return s.Key })
}

// OnlyParam returns the parameter that may be given in place of the identifier, if it is the only one and no source
// stands for an identifier; nil otherwise.
func (p *Projection) OnlyParam() *Param {
	if p.Keyed() || len(p.Params) != 1 {
		return nil
	}
	return &p.Params[0]
}
