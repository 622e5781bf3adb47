package projection

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/derived/index"
	"j17/internal/lang/spec"
)

// operator is how a filter compares a field.
type operator uint8

// The operators; equal has no word in a URL.
const (
	equal operator = iota
	among
	prefix
	above
	least
	below
	most
	words
)

// operators returns the operators by their words, which follow the name of a field.
func operators() map[string]operator {
	return map[string]operator{
		"in": among, "prefix": prefix, "gt": above, "gte": least, "lt": below, "lte": most, "words": words,
	}
}

// Limits of a query.
const (
	// maxAmong is how many values a filter with "in" may have.
	maxAmong = 100
	// maxWords is how many words a filter may have.
	maxWords = 20
	// maxOperand is the maximum size of a filter's value, in bytes.
	maxOperand = 4 << 10
)

// condition is the condition of a query on one field. The first operator determines which members are used: an equality
// or a list has values; a prefix or words a text; a range its bounds.
type condition struct {
	field string
	op    operator
	// values are the values that the field may equal: all readings of one text or of several.
	values []value.Value
	// text is the prefix, or all words.
	text string
	// low and high are the bounds of a range, missing if it has none; never reports that they are of different kinds,
	// so that no value is between them.
	low, high bound
	never     bool
}

// bound is one end of a range.
type bound struct {
	value value.Value
	// open reports that the value itself is not in the range.
	open bool
}

// listQuery is the query of a list. Its conditions are in the order of their fields.
type listQuery struct {
	conditions []condition
	// order is the field that sorts the rows, "" if none is given, or all rows have the same value in it; backward
	// reverses the order.
	order    string
	backward bool
}

// readQuery reads the filters of a list and its order; indexes are those of the projection. An invalid value is an
// error of the parameter; whether an index serves the query is left to the planner.
func readQuery(indexes []spec.Index, filters map[string]string, order *string) (listQuery, error) {
	var q listQuery
	if order != nil {
		q.order = strings.TrimPrefix(*order, "-")
		q.backward = q.order != *order
		if q.order == "" {
			return q, j17.Errorf(j17.CodeInvalidParameter, "'order' must be an indexed field of the result, or '-' and such a field for the reverse").At("order")
		}
	}
	byField := map[string]*condition{}
	for _, name := range slices.Sorted(maps.Keys(filters)) {
		if len(filters[name]) > maxOperand {
			return q, j17.Errorf(j17.CodeInvalidParameter, "The value of the filter is longer than %d bytes", maxOperand).At(j17.Printable(name))
		}
		c, err := readCondition(indexes, name, filters[name])
		if err != nil {
			return q, err
		}
		had := byField[c.field]
		switch {
		case had == nil:
			byField[c.field] = &c
		case had.isRange() && c.isRange():
			had.narrow(&c)
		default:
			return q, unservable(indexes, name, "'"+j17.Printable(c.field)+"' has two filters that cannot be combined: only bounds (gt, gte, lt, lte) can stand together on one field")
		}
	}

	// A value that all rows share sorts nothing. If an equal value has several readings, such as 5 and "5", rows come
	// in their order, as for a list of values.
	if c := byField[q.order]; c != nil && c.op == equal {
		if len(c.values) == 1 {
			q.order = ""
		} else {
			c.op = among
		}
	}
	for _, field := range slices.Sorted(maps.Keys(byField)) {
		q.conditions = append(q.conditions, *byField[field])
	}
	return q, nil
}

func (c *condition) isRange() bool { return c.op >= above && c.op <= most }

// narrow adds a bound to a range: of two at the same end, the narrower one applies.
func (c *condition) narrow(with *condition) {
	for _, b := range []bound{with.low, with.high} {
		for _, had := range []bound{c.low, c.high} {
			c.never = c.never || !b.value.IsMissing() && !had.value.IsMissing() && b.value.Kind() != had.value.Kind()
		}
	}
	c.low.narrow(&with.low, 1)
	c.high.narrow(&with.high, -1)
}

// narrow replaces the bound by another one of the same end, 1 for the lower one and -1 for the upper one, if that is
// narrower.
func (b *bound) narrow(with *bound, end int) {
	if with.value.IsMissing() {
		return
	}
	d := 1
	if !b.value.IsMissing() {
		d = compareValues(with.value, b.value) * end
	}
	if d > 0 || d == 0 && with.open {
		*b = *with
	}
}

// readCondition reads one parameter. A name that is an indexed field means that field; otherwise its last step may be
// an operator.
func readCondition(indexes []spec.Index, name, text string) (condition, error) {
	c := condition{field: name}
	indexed := slices.ContainsFunc(
		indexes, func(x spec.Index) bool { return !x.Words && slices.Contains(fieldNames(&x), name) },
	)
	if dot := strings.LastIndexByte(name, '.'); dot > 0 && !indexed {
		if op, ok := operators()[name[dot+1:]]; ok {
			c.field, c.op = name[:dot], op
		}
	}
	switch c.op {
	case equal:
		c.values = spec.Wanted(text)
	case among:
		parts, closed := splitList(text)
		if !closed {
			return c, j17.Errorf(j17.CodeInvalidParameter, "A value of the list begins with a quote (\") that is not closed. Close it, or write a quote that is part of a value as \"\\\"...\".").At(j17.Printable(name))
		}
		if len(parts) > maxAmong {
			return c, j17.Errorf(j17.CodeInvalidParameter, "The list has %d values, and may have %d", len(parts), maxAmong).At(j17.Printable(name))
		}
		for _, part := range parts {
			c.values = append(c.values, spec.Wanted(part)...)
		}
	case prefix:
		c.text = literalText(text)
	case words:
		if c.text = text; len(index.AskedWords(text)) > maxWords {
			return c, j17.Errorf(j17.CodeInvalidParameter, "More than %d words are looked for", maxWords).At(
				j17.Printable(name),
			)
		}
	case above, below, least, most:
		if isHugeNumber(text) {
			return c, j17.Errorf(j17.CodeInvalidParameter, "The bound is a number that nothing stored can be: exponents go from -%d to %d. If a text is meant, write it in double quotes.", value.MaxExponent, value.MaxExponent).At(j17.Printable(name))
		}
		c.setBound(text, c.op == above || c.op == below)
	}
	slices.SortStableFunc(c.values, compareValues)
	c.values = slices.CompactFunc(c.values, func(a, b value.Value) bool { return compareValues(a, b) == 0 })
	return c, nil
}

// setBound sets the end of the range that the operator is about. A text that is a JSON scalar means that value: a bound
// applies to values of its own kind.
func (c *condition) setBound(text string, open bool) {
	b := bound{value: value.StringValue(literalText(text)), open: open}
	if v, err := value.ParseString(text); err == nil && isScalar(v) {
		b.value = v
	}
	if c.op == above || c.op == least {
		c.low = b
	} else {
		c.high = b
	}
}

// isHugeNumber reports whether a text is a JSON number that exceeds the limits of numbers.
func isHugeNumber(text string) bool {
	_, err := value.ParseString(text)
	digits := strings.TrimPrefix(strings.TrimSpace(text), "-")
	return err != nil && digits != "" && digits[0] >= '0' && digits[0] <= '9' && json.Valid([]byte(text))
}

// literalText removes the quotes that a text in a URL may have.
func literalText(text string) string {
	if v, err := value.ParseString(text); err == nil && v.Kind() == value.String {
		return v.Str()
	}
	return text
}

// splitList splits a list of values at its commas, except in quotes. closed is false if a value begins with a quote
// that is not closed.
func splitList(text string) (parts []string, closed bool) {
	for {
		end := strings.IndexByte(text, ',')
		quoted := quotedPrefix(text)
		if quoted < 0 {
			return nil, false
		}
		if quoted > 0 {
			end = quoted
			if end == len(text) {
				end = -1
			}
		}
		if end < 0 {
			return append(parts, text), true
		}
		parts = append(parts, text[:end])
		text = text[end+1:]
	}
}

// quotedPrefix returns the length of the JSON string at the beginning of a list, 0 if there is none that is a whole
// value, and -1 if it has no end.
func quotedPrefix(text string) int {
	if !strings.HasPrefix(text, `"`) {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			if i+1 == len(text) || text[i+1] == ',' {
				return i + 1
			}
			return 0
		}
	}
	return -1
}

func isScalar(v value.Value) bool {
	switch v.Kind() {
	case value.Null, value.Bool, value.Number, value.String:
		return true
	case value.Missing, value.Array, value.Object:
	}
	return false
}

// rank orders kinds of values like rows: null and missing, false, true, numbers, texts, and then kinds without an
// order.
func rank(v value.Value) int {
	switch v.Kind() {
	case value.Missing, value.Null:
		return 0
	case value.Bool:
		if v.Truth() {
			return 2
		}
		return 1
	case value.Number:
		return 3
	case value.String:
		return 4
	case value.Array, value.Object:
	}
	return 5
}

// compareValues orders values like rows.
func compareValues(a, b value.Value) int {
	if x, y := rank(a), rank(b); x != y {
		return x - y
	}
	switch a.Kind() {
	case value.Number:
		c, _ := value.Compare(a, b)
		return c
	case value.String:
		return strings.Compare(a.Str(), b.Str())
	case value.Missing, value.Null, value.Bool, value.Array, value.Object:
	}
	return 0
}

// holds reports whether a value of a field meets the condition; the values of an array are its elements.
func (c *condition) holds(field value.Value) bool {
	if field.Kind() != value.Array {
		return c.holdsFor(field)
	}
	return slices.ContainsFunc(field.Elems(), c.holdsFor)
}

func (c *condition) holdsFor(v value.Value) bool {
	switch r := rank(v); {
	case r == 5: // it has no order, and equals no value that a URL can express
		return false
	case c.op == equal, c.op == among:
		return slices.ContainsFunc(c.values, func(w value.Value) bool { return compareValues(v, w) == 0 })
	case c.op == prefix:
		return v.Kind() == value.String && strings.HasPrefix(v.Str(), c.text)
	case c.op == words:
		return false
	}
	return !c.never && c.low.allows(v, 1) && c.high.allows(v, -1)
}

// allows reports whether a value is of the bound's kind and on its side: above it for 1, below it for -1.
func (b *bound) allows(v value.Value, side int) bool {
	if b.value.IsMissing() {
		return true
	}
	if kindOf(v) != kindOf(b.value) {
		return false
	}
	d := compareValues(v, b.value) * side
	return d > 0 || d == 0 && !b.open
}

// kindOf returns the kind of a value, with null for missing.
func kindOf(v value.Value) value.Kind {
	if v.IsMissing() {
		return value.Null
	}
	return v.Kind()
}

// canonical returns a text that two queries share if, and only if, they select the same rows in the same order.
func (q *listQuery) canonical() string {
	b := []byte(strconv.FormatBool(q.backward))
	b = strconv.AppendQuote(append(b, ' '), q.order)
	for i := range q.conditions {
		c := &q.conditions[i]
		b = strconv.AppendQuote(append(b, ' '), c.field)
		b = strconv.AppendInt(append(b, ' '), int64(c.kind()), 10)
		for _, v := range c.values {
			b = v.AppendJSON(append(b, ' '))
		}
		b = strconv.AppendQuote(append(b, ' '), c.text)
		for _, end := range []bound{c.low, c.high} {
			if b = strconv.AppendBool(append(b, ' '), end.open); !end.value.IsMissing() {
				b = end.value.AppendJSON(append(b, ' '))
			}
		}
	}
	return string(b)
}

// kind returns the operator, the same for all ranges.
func (c *condition) kind() operator {
	if c.isRange() {
		return above
	}
	return c.op
}

// fieldNames returns the fields of an index.
func fieldNames(x *spec.Index) []string {
	names := make([]string, len(x.Fields))
	for i := range x.Fields {
		names[i] = x.Fields[i].Name
	}
	return names
}
