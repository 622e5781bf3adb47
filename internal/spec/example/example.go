// Package example makes up values that fit JSON Schemas, for people to start from.
package example

import (
	"regexp/syntax"
	"strings"

	"j17/internal/value"
)

// maxDepth is how deep a made-up value nests.
const maxDepth = 12

// maxSteps bounds the members, names and alternatives that are looked at: references that are used several times inside each
// other multiply.
const maxSteps = 200_000

// Of returns a small value for a schema, which must be the whole document that its references are about. It looks at what
// schemas usually say, not at all they can: whether the value fits has to be checked. It reports false where it knows none.
func Of(schema value.Value) (value.Value, bool) {
	m := &maker{root: schema, left: maxSteps}
	return m.value(schema, "", 0)
}

type maker struct {
	root value.Value
	// left is how many steps there are left.
	left int
}

// take takes n steps, and reports whether there were as many.
func (m *maker) take(n int) bool {
	m.left -= n
	return m.left >= 0
}

// value makes a value for the schema of a member called name.
func (m *maker) value(s value.Value, name string, depth int) (value.Value, bool) {
	if depth > maxDepth || !m.take(1) {
		return value.Value{}, false
	}
	if s.Kind() == value.Bool {
		return value.StringValue("text"), s.Truth()
	}
	s, ok := m.resolved(s, depth)
	if !ok {
		return value.Value{}, false
	}
	if c := s.Get("const"); c.Kind() != value.Missing {
		return c, true
	}
	for _, key := range []string{"examples", "enum"} {
		if list := s.Get(key); list.Kind() == value.Array && list.Len() > 0 {
			return list.Index(0), true
		}
	}
	if d := s.Get("default"); d.Kind() != value.Missing {
		return d, true
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

// resolved follows references and takes the first of alternatives; what stands beside them counts too.
func (m *maker) resolved(s value.Value, depth int) (value.Value, bool) {
	edit := value.NewEditor()
	for range maxDepth - min(depth, maxDepth-1) {
		if s.Kind() != value.Object {
			return s, false
		}
		var more []value.Value
		var used string
		switch {
		case s.Get("$ref").Kind() == value.String:
			used = "$ref"
			target, ok := m.lookup(s.Get("$ref").Str())
			if !ok {
				return s, false
			}
			more = []value.Value{target}
		case s.Get("allOf").Kind() == value.Array:
			used = "allOf"
			for i := range s.Get("allOf").Len() {
				more = append(more, s.Get("allOf").Index(i))
			}
		case s.Get("oneOf").Len() > 0:
			used, more = "oneOf", []value.Value{s.Get("oneOf").Index(0)}
		case s.Get("anyOf").Len() > 0:
			used, more = "anyOf", []value.Value{s.Get("anyOf").Index(0)}
		default:
			return s, true
		}
		s = edit.RemoveMember(s, used)
		for _, part := range more {
			if !m.take(1 + s.Len() + part.Len() + part.Get("properties").Len() + part.Get("required").Len()) {
				return s, false
			}
			s = joined(edit, s, part)
		}
		edit.Freeze()
	}
	return s, false
}

// joined adds to a schema what another one asks for too.
func joined(edit *value.Editor, s, more value.Value) value.Value {
	for _, member := range more.Members() {
		key, v := member.Key, member.Value
		have := s.Get(key)
		switch {
		case have.Kind() == value.Missing:
			s = edit.SetMember(s, key, v)
		case key == "properties":
			s = edit.SetMember(s, key, edit.Merge(have, v))
		case key == "required":
			for i := range v.Len() {
				have = edit.Append(have, v.Index(i))
			}
			s = edit.SetMember(s, key, have)
		}
	}
	return s
}

// lookup finds what a reference within the document names.
func (m *maker) lookup(ref string) (value.Value, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return value.Value{}, false
	}
	at := m.root
	for step := range strings.SplitSeq(pointer, "/") {
		if step != "" {
			at = at.Get(strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
	}
	return at, at.Kind() != value.Missing
}

// kindOf is the first type that a schema allows, or the one that its other keywords are about.
func kindOf(s value.Value) string {
	switch t := s.Get("type"); t.Kind() {
	case value.String:
		return t.Str()
	case value.Array:
		if t.Len() > 0 {
			return t.Index(0).Str()
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
		if s.Get(hint[0]).Kind() != value.Missing {
			return hint[1]
		}
	}
	return ""
}

// object has what is required and nothing else.
func (m *maker) object(s value.Value, depth int) (value.Value, bool) {
	var members []value.Member
	required := s.Get("required")
	for i := range required.Len() {
		name := required.Index(i).Str()
		if !m.take(1 + len(members)) {
			return value.Value{}, false
		}
		if has(members, name) {
			continue
		}
		member := s.Get("properties").Get(name)
		v := value.StringValue("text")
		if member.Kind() != value.Missing {
			var ok bool
			if v, ok = m.value(member, name, depth+1); !ok {
				return value.Value{}, false
			}
		}
		members = append(members, value.Member{Key: name, Value: v})
	}
	optional := s.Get("properties").Members()
	if s.Get("minProperties").Kind() == value.Number && len(members) == 0 && len(optional) > 0 {
		v, ok := m.value(optional[0].Value, optional[0].Key, depth+1)
		if !ok {
			return value.Value{}, false
		}
		members = append(members, value.Member{Key: optional[0].Key, Value: v})
	}
	return value.ObjectValue(members...), true
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
func (m *maker) array(s value.Value, depth int) (value.Value, bool) {
	least, _ := s.Get("minItems").Int64()
	if least > 3 {
		return value.Value{}, false
	}
	var elems []value.Value
	for i := range int(least) {
		schema := s.Get("items")
		if prefix := s.Get("prefixItems"); i < prefix.Len() {
			schema = prefix.Index(i)
		}
		v, ok := value.StringValue("text"), true
		if schema.Kind() != value.Missing {
			v, ok = m.value(schema, "", depth+1)
		}
		if !ok {
			return value.Value{}, false
		}
		elems = append(elems, v)
	}
	return value.ArrayValue(elems...), true
}

// number returns the number nearest to 1 that the bounds allow, as far as a few tries find it.
func number(s value.Value) (value.Value, bool) {
	if over := s.Get("exclusiveMinimum"); over.Kind() == value.Number {
		if n, ok := over.Int64(); ok && n >= 1 {
			return value.Int(n + 1), true
		}
		return value.Int(1), true
	}
	for _, bound := range []string{"minimum", "maximum"} {
		limit := s.Get(bound)
		if limit.Kind() != value.Number {
			continue
		}
		if order, ok := value.Compare(limit, value.Int(1)); ok && (order > 0) == (bound == "minimum") && order != 0 {
			return limit, true
		}
	}
	if step := s.Get("multipleOf"); step.Kind() == value.Number {
		if order, ok := value.Compare(step, value.Int(1)); ok && order > 0 {
			return step, true
		}
	}
	return value.Int(1), true
}

// text returns a string of the format, pattern or length asked for.
func text(s value.Value, name string) (value.Value, bool) {
	if f := s.Get("format"); f.Kind() == value.String {
		if sample := formatted(f.Str()); sample != "" {
			return value.StringValue(sample), true
		}
	}
	if p := s.Get("pattern"); p.Kind() == value.String {
		sample, ok := matching(p.Str())
		return value.StringValue(sample), ok
	}
	sample := "text"
	if name != "" {
		sample = strings.ReplaceAll(name, "_", " ")
	}
	if least, ok := s.Get("minLength").Int64(); ok && least < 200 && int64(len(sample)) < least {
		sample += strings.Repeat(".", int(least)-len(sample))
	}
	if most, ok := s.Get("maxLength").Int64(); ok && most >= 0 && int64(len(sample)) > most {
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
