// Package example makes up values that fit JSON Schemas, for people to start from.
package example

import (
	"regexp/syntax"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/outline"
)

// maxDepth is how deep a made-up value nests.
const maxDepth = 12

// maxSteps bounds the members, names and alternatives that are looked at: references that are used several times inside
// each other multiply.
const maxSteps = 200_000

// Of returns a small value for a schema, which must be the whole document that its references are about, of a spec with
// shared definitions. It considers only what schemas usually say: whether the value fits has to be checked. It reports
// false where it finds none.
func Of(schema, shared value.Value) (value.Value, bool) {
	m := &maker{budget: work.Counted(maxSteps)}
	return m.value([]outline.Schema{outline.Of(schema, shared)}, "", 0)
}

type maker struct{ budget *work.Budget }

// value makes a value for the schemas that hold together for a member called name.
func (m *maker) value(schemas []outline.Schema, name string, depth int) (value.Value, bool) {
	if depth > maxDepth || !m.budget.Spend(1) {
		return value.Value{}, false
	}
	s, ok := outline.FirstAlternative(schemas, m.budget)
	if !ok || s.Kinds() == 0 {
		return value.Value{}, false
	}

	// A value that the schema names is better than any that is made up.
	if c := s.First("const"); !c.IsMissing() {
		return c.Value, true
	}
	for _, key := range []string{"examples", "enum"} {
		if list := s.First(key); list.Kind() == value.Array && list.Len() > 0 {
			return list.Index(0), true
		}
	}
	if d := s.First("default"); !d.IsMissing() {
		return d.Value, true
	}

	switch kindOf(s) {
	case "object":
		return m.object(s, depth)
	case "array":
		return m.array(s, depth)
	case "string":
		return text(s, name)
	case "integer", "number":
		return number(s)
	case "boolean":
		return value.BoolValue(true), true
	case "null":
		return value.NullValue(), true
	default:
		return value.StringValue("text"), true
	}
}

// kindOf is the first type that the schemas allow, or the one that their other keywords are about.
func kindOf(s outline.Alternative) string {
	switch t := s.First("type"); t.Kind() {
	case value.String:
		return t.Str()
	case value.Array:
		for _, name := range t.Elems() {
			if outline.KindsNamed(name)&s.Kinds() != 0 {
				return name.Str()
			}
		}
	case value.Missing, value.Null, value.Bool, value.Number, value.Object:
	}
	for _, hint := range [][2]string{
		{"properties", "object"},
		{"required", "object"},
		{"items", "array"},
		{"pattern", "string"},
		{"format", "string"},
		{"minLength", "string"},
		{"minimum", "number"},
		{"multipleOf", "number"},
	} {
		if !s.First(hint[0]).IsMissing() {
			return hint[1]
		}
	}
	return ""
}

// object has what is required and nothing else.
func (m *maker) object(s outline.Alternative, depth int) (value.Value, bool) {
	var members []value.Member
	add := func(name string) bool {
		v := value.StringValue("text")
		if declared := declared(s, name); len(declared) > 0 {
			var ok bool
			if v, ok = m.value(declared, name, depth+1); !ok {
				return false
			}
		}
		members = append(members, value.Member{Key: name, Value: v})
		return true
	}
	for _, part := range s {
		for _, name := range part.Get("required").Elems() {
			if !m.budget.Spend(1+len(s)+len(members)) || !has(members, name.Str()) && !add(name.Str()) {
				return value.Value{}, false
			}
		}
	}
	optional := s.First("properties").Members()
	if s.First("minProperties").Kind() == value.Number && len(members) == 0 && len(optional) > 0 &&
		!add(optional[0].Key) {
		return value.Value{}, false
	}
	return value.ObjectValue(members...), true
}

// declared returns the schemas that declare a member by its name.
func declared(s outline.Alternative, name string) []outline.Schema {
	var found []outline.Schema
	for _, part := range s {
		if sub := part.Property(name); !sub.IsMissing() {
			found = append(found, sub)
		}
	}
	return found
}

func has(members []value.Member, name string) bool {
	for _, m := range members {
		if m.Key == name {
			return true
		}
	}
	return false
}

// array has as few elements as it may.
func (m *maker) array(s outline.Alternative, depth int) (value.Value, bool) {
	least, _ := s.First("minItems").Int64()
	if least > 3 {
		return value.Value{}, false
	}
	var elems []value.Value
	for i := range int(least) {
		v, ok := value.StringValue("text"), true
		if schemas := s.Item(i); len(schemas) > 0 {
			v, ok = m.value(schemas, "", depth+1)
		}
		if !ok {
			return value.Value{}, false
		}
		elems = append(elems, v)
	}
	return value.ArrayValue(elems...), true
}

// number returns the number nearest to 1 that the bounds allow, as far as a few tries find it.
func number(s outline.Alternative) (value.Value, bool) {
	if over := s.First("exclusiveMinimum"); over.Kind() == value.Number {
		if n, ok := over.Int64(); ok && n >= 1 {
			return value.Int(n + 1), true
		}
		return value.Int(1), true
	}
	for _, bound := range []string{"minimum", "maximum"} {
		limit := s.First(bound)
		if limit.Kind() != value.Number {
			continue
		}
		if order, ok := value.Compare(limit.Value, value.Int(1)); ok && (order > 0) == (bound == "minimum") &&
			order != 0 {
			return limit.Value, true
		}
	}
	if step := s.First("multipleOf"); step.Kind() == value.Number {
		if order, ok := value.Compare(step.Value, value.Int(1)); ok && order > 0 {
			return step.Value, true
		}
	}
	return value.Int(1), true
}

// text returns a string of the format, pattern or length asked for.
func text(s outline.Alternative, name string) (value.Value, bool) {
	if f := s.First("format"); f.Kind() == value.String {
		if sample := formatted(f.Str()); sample != "" {
			return value.StringValue(sample), true
		}
	}
	if p := s.First("pattern"); p.Kind() == value.String {
		sample, ok := matching(p.Str())
		return value.StringValue(sample), ok
	}
	sample := "text"
	if name != "" {
		sample = strings.ReplaceAll(name, "_", " ")
	}
	if least, ok := s.First("minLength").Int64(); ok && least < 200 && int64(len(sample)) < least {
		sample += strings.Repeat(".", int(least)-len(sample))
	}
	if most, ok := s.First("maxLength").Int64(); ok && most >= 0 && int64(len(sample)) > most {
		sample = sample[:most]
	}
	return value.StringValue(sample), true
}

func formatted(format string) string {
	switch format {
	case "uuid":
		return "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	case "email", "idn-email":
		return "ada@example.com"
	case "date-time":
		return "2026-01-31T12:00:00Z"
	case "date":
		return "2026-01-31"
	case "time":
		return "12:00:00Z"
	case "duration":
		return "PT1H"
	case "uri", "iri", "uri-reference", "iri-reference":
		return "https://example.com/"
	case "hostname", "idn-hostname":
		return "example.com"
	case "ipv4":
		return "192.0.2.1"
	case "ipv6":
		return "2001:db8::1"
	case "json-pointer":
		return "/text"
	case "regex":
		return "text"
	default:
		return ""
	}
}

// matching returns a short string that a pattern matches.
func matching(pattern string) (string, bool) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	ok := spell(&b, re)
	return b.String(), ok
}

const maxSpelled = 200

// spell writes the shortest text for an expression, with letters and digits where there is a choice.
func spell(b *strings.Builder, re *syntax.Regexp) bool {
	if b.Len() > maxSpelled {
		return false
	}

	// What is one step; what has parts falls through to them.
	times := 1
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
		return true
	case syntax.OpCharClass:
		r, ok := pick(re.Rune)
		b.WriteRune(r)
		return ok
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
		return true
	case syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpRepeat:
		times = re.Min
	case syntax.OpAlternate:
		return spell(b, re.Sub[0])
	case syntax.OpNoMatch:
		return false
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	default:
		return false
	}

	for range times {
		for _, sub := range re.Sub {
			if !spell(b, sub) {
				return false
			}
		}
	}
	return true
}

// pick chooses a character of a class, given as pairs of bounds.
func pick(bounds []rune) (rune, bool) {
	for _, nice := range "A1aE0 -" {
		for i := 0; i+1 < len(bounds); i += 2 {
			if bounds[i] <= nice && nice <= bounds[i+1] {
				return nice, true
			}
		}
	}
	if len(bounds) == 0 {
		return 0, false
	}
	return bounds[0], bounds[0] >= ' '
}
