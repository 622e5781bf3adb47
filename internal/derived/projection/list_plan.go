package projection

import (
	"encoding/json"
	"slices"
	"strings"

	"j17"
	"j17/internal/lang/spec"
)

// plan is how a query is served: by which index, and with which conditions on its fields.
type plan struct {
	query listQuery
	// index is the index's position in the definition, -1 for rows by ID, which need none.
	index int
	// fields are those of the index.
	fields []string
	// equal are the conditions on the first fields, in the order of the index; next is the condition on the following
	// field, nil for none.
	equal []*condition
	next  *condition
}

// byID is the index of a plan that needs none.
const byID = -1

// planQuery finds the index that serves a query: equalities on its first fields, and one other condition or the order
// on the next one. Of several indexes it takes the shortest, and of those the first. A query that no index serves is
// refused with a description of the index that would.
func planQuery(of *spec.Projection, q listQuery) (plan, error) {
	if len(q.conditions) == 0 && q.order == "" {
		return plan{query: q, index: byID}, nil
	}
	best := plan{index: byID}
	for i := range of.Indexes {
		if p, ok := serves(&of.Indexes[i], q); ok && (best.index == byID || len(p.fields) < len(best.fields)) {
			p.index = i
			best = p
		}
	}
	if best.index == byID {
		return best, notIndexed(of, q)
	}
	return best, nil
}

// serves reports whether an index serves a query, and how.
func serves(x *spec.Index, q listQuery) (p plan, ok bool) {
	p = plan{query: q, fields: fieldNames(x)}
	for i := range q.conditions {
		c := &q.conditions[i]
		switch {
		case c.op == equal:
			p.equal = append(p.equal, c)
		case p.next == nil:
			p.next = c
		default:
			return p, false
		}
	}
	if x.Words || p.next != nil && p.next.op == words {
		return p, x.Words && p.next != nil && p.next.op == words && len(p.equal) == 0 && q.order == "" &&
			p.next.field == p.fields[0]
	}

	// The fields of the equalities come first, in any order.
	n := len(p.equal)
	if n > len(p.fields) {
		return p, false
	}
	for _, c := range p.equal {
		if !slices.Contains(p.fields[:n], c.field) {
			return p, false
		}
	}
	slices.SortFunc(
		p.equal, func(a, b *condition) int { return slices.Index(p.fields, a.field) - slices.Index(p.fields, b.field) },
	)

	// A condition on another field, and the order, must be on the next field.
	var behind string
	if n < len(p.fields) {
		behind = p.fields[n]
	}
	return p, (p.next == nil || p.next.field == behind) && (q.order == "" || q.order == behind)
}

// indexDetails has the details of a query that no index serves.
type indexDetails struct {
	// Indexes are the present ones, Declare the one that would serve the query, each in the form of a definition.
	Indexes []json.RawMessage `json:"indexes"`
	Declare json.RawMessage   `json:"declare,omitempty"`
}

// declared returns the details of a query that none of the indexes serves, without one that would.
func declared(indexes []spec.Index) indexDetails {
	details := indexDetails{Indexes: []json.RawMessage{}}
	for i := range indexes {
		details.Indexes = append(details.Indexes, declaredIndex(fieldNames(&indexes[i]), indexes[i].Words))
	}
	return details
}

// unservable returns the error for a filter that no index can serve; indexes are the present ones.
func unservable(indexes []spec.Index, parameter, says string) error {
	e := j17.Errorf(j17.CodeNotIndexed, "%s", says)
	e.Details = declared(indexes)
	return e.At(j17.Printable(parameter))
}

// notIndexed returns the error for a query that no index serves.
func notIndexed(of *spec.Projection, q listQuery) error {
	details := declared(of.Indexes)
	var there []string
	for _, raw := range details.Indexes {
		there = append(there, string(raw))
	}
	says := noSuchFilter(of, q) + " index of the projection '" + of.Name + "' serves this list"
	fields, isWords := wantedIndex(q)
	why := of.Unindexed(fields)
	switch {
	case len(fields) == 0 && slices.ContainsFunc(q.conditions, func(c condition) bool { return c.op == words }):
		says += ": words are asked for alone, without other filters and without an order"
	case len(fields) == 0 && q.order == "":
		says += ": it can ask for 5 fields at most, which is as many as an index has: for a range, a prefix or a list of values of one of them, for equal values of the others"
	case len(fields) == 0:
		says += ": it can ask for 5 fields at most, which is as many as an index has: for a range, a prefix, a list of values or the order of one of them, for equal values of the others"
	case why != "":
		says += ", and none can be declared that would: " + why
	default:
		details.Declare = declaredIndex(fields, isWords)
		says += ": add " + string(details.Declare) + ` to its "index"` + meant(of, q)
	}
	if says += ". "; len(there) == 0 {
		says += "It has no index, so that its rows come by id only."
	} else {
		says += "Its indexes are " + strings.Join(there, " ") + "."
	}
	e := j17.Errorf(j17.CodeNotIndexed, "%s", says)
	e.Details = details
	if len(q.conditions) == 0 {
		return e.At("order")
	}
	return e.At(j17.Printable(q.conditions[0].field))
}

// noSuchFilter returns the beginning of a refusal. If a parameter is an indexed field followed by a word that is no
// operator, it lists the operators first, because the word is hardly meant as a member.
func noSuchFilter(of *spec.Projection, q listQuery) string {
	for i := range q.conditions {
		c := &q.conditions[i]
		dot := max(strings.LastIndexByte(c.field, '.'), 0)
		indexed := func(x spec.Index) bool { return slices.Contains(fieldNames(&x), c.field[:dot]) }
		if c.op == equal && slices.ContainsFunc(of.Indexes, indexed) {
			return `There is no filter "` + c.field + `": behind a field stands nothing, or one of .` + strings.Join(spec.FilterWords(), ", .") +
				`. Where "` + c.field[:dot] + `" has a member "` + c.field[dot+1:] + `" and that is meant, no`
		}
	}
	return "No"
}

// meant suggests another form of the query, if an index serves that.
func meant(of *spec.Projection, q listQuery) string {
	for i := range q.conditions {
		c := &q.conditions[i]
		isWords := func(x spec.Index) bool { return x.Words && x.Fields[0].Name == c.field }
		if c.op == equal && slices.ContainsFunc(of.Indexes, isWords) {
			return `, or ask for words with "` + c.field + `.words"`
		}
	}
	return ""
}

// maxIndexFields is how many fields an index has at most.
const maxIndexFields = 5

// wantedIndex returns the fields of the index that would serve a query, whether the result has them or not; none if no
// index can.
func wantedIndex(q listQuery) (fields []string, isWords bool) {
	next := q.order
	for i := range q.conditions {
		c := &q.conditions[i]
		switch {
		case c.op == equal:
			fields = append(fields, c.field)
		case c.op == words && len(q.conditions) == 1 && q.order == "":
			return []string{j17.Printable(c.field)}, true
		case c.op == words, next != "" && next != c.field:
			return nil, false
		default:
			next = c.field
		}
	}
	if next != "" {
		fields = append(fields, next)
	}
	if len(fields) > maxIndexFields {
		return nil, false
	}
	for i := range fields {
		fields[i] = j17.Printable(fields[i])
	}
	return fields, false
}

// declaredIndex returns an index in the form of a definition.
func declaredIndex(fields []string, isWords bool) json.RawMessage {
	var shape any = fields
	switch {
	case isWords:
		shape = struct {
			Words string `json:"words"`
		}{fields[0]}
	case len(fields) == 1:
		shape = fields[0]
	}
	raw, err := json.Marshal(shape)
	if err != nil {
		return nil // texts can always be encoded
	}
	return raw
}
