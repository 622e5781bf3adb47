package projection_test

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
)

// naive evaluates definitions of the named form as their text says, one step after the other: it shares nothing with
// the compiled plan but values.
type naive struct {
	// state returns the state of an aggregate, missing where it has no events.
	state func(aggregateType, id string) value.Value
	// identifier returns the canonical form of an identifier.
	identifier func(text string) (string, bool)
	singleton  func(id string) bool
}

// scope is what paths start at: "" is "$".
type scope map[string]value.Value

// value returns what a definition yields for an aggregate, false where there is none.
func (n *naive) value(definition value.Value, id string) (string, bool) {
	forEach := definition.Get("for_each").Str()
	if n.state(forEach, id).IsMissing() && !n.singleton(id) {
		return "", false
	}

	// Sources by what they start at: those whose sources are there are next, until all are there.
	bound := map[string]value.Value{}
	for left := definition.Get("sources").Members(); len(left) > 0; {
		var later []value.Member
		for _, m := range left {
			if m.Value.Kind() == value.String {
				bound[m.Key] = n.one(forEach, id)
				continue
			}
			typ, ref := m.Value.Get("type").Str(), m.Value.Get("id").Str()
			first, _, _ := strings.Cut(strings.TrimPrefix(ref, "$."), ".")
			_, there := bound[first]
			switch {
			case ref == "$key":
				bound[m.Key] = n.source(typ, m.Value, value.StringValue(id))
			case !strings.HasPrefix(ref, "$"):
				bound[m.Key] = n.source(typ, m.Value, value.StringValue(ref))
			case there:
				found, _ := follow(ref, scope{"": object(bound)})
				bound[m.Key] = n.source(typ, m.Value, found)
			default:
				later = append(later, m)
			}
		}
		left = later
	}
	for _, m := range definition.Get("include").Members() {
		typ, single, _ := strings.Cut(m.Value.Str(), ":")
		bound[m.Key] = n.one(typ, single)
	}
	out, _ := template(definition.Get("select"), scope{"": object(bound)})
	return string(out.AppendJSON(nil)), true
}

func object(members map[string]value.Value) value.Value {
	var all []value.Member
	for name, v := range members {
		all = append(all, value.Member{Key: name, Value: v})
	}
	return value.ObjectValue(all...)
}

// source is what the value of an id leads to.
func (n *naive) source(typ string, definition, found value.Value) value.Value {
	if definition.Get("mode").Str() != "array" {
		if id, ok := n.id(typ, found); ok {
			return n.one(typ, id)
		}
		return value.NullValue()
	}
	all := found.Elems()
	if found.Kind() == value.String {
		all = []value.Value{found}
	}
	var seen []string
	var out []value.Value
	for _, v := range all {
		id, ok := n.id(typ, v)
		if !ok || slices.Contains(seen, id) {
			continue
		}
		seen = append(seen, id)
		if s := n.one(typ, id); s.Kind() != value.Null {
			out = append(out, s)
		}
	}
	return value.ArrayValue(out...)
}

func (n *naive) id(typ string, v value.Value) (string, bool) {
	if v.Kind() != value.String {
		return "", false
	}
	return n.identifier(strings.TrimPrefix(v.Str(), typ+":"))
}

func (n *naive) one(typ, id string) value.Value {
	s := n.state(typ, id)
	if s.IsMissing() {
		if !n.singleton(id) {
			return value.NullValue()
		}
		s = value.ObjectValue()
	}
	if !s.Get("id").IsMissing() {
		return s
	}
	return value.ObjectValue(append([]value.Member{{Key: "id", Value: value.StringValue(id)}}, s.Members()...)...)
}

// template returns what a value of select stands for; false where it is an optional path that leads nowhere.
func template(v value.Value, s scope) (value.Value, bool) {
	switch {
	case v.Kind() == value.String && strings.HasPrefix(v.Str(), "$"):
		found, ok := follow(v.Str(), s)
		return found.OrNull(), ok
	case v.Kind() == value.Array:
		var out []value.Value
		for _, elem := range v.Elems() {
			if e, ok := template(elem, s); ok {
				out = append(out, e)
			}
		}
		return value.ArrayValue(out...), true
	case v.Kind() != value.Object:
		return v, true
	case !v.Get("$map").IsMissing():
		in, ok := follow(v.Get("$map").Str(), s)
		if !ok {
			return value.Value{}, false
		}
		var out []value.Value
		for _, elem := range in.Elems() {
			if e, ok := template(v.Get("to"), s.with(v.Get("as").Str(), elem)); ok {
				out = append(out, e)
			}
		}
		return value.ArrayValue(out...), true
	case !v.Get("$lookup").IsMissing():
		in, ok := follow(v.Get("$lookup").Str(), s)
		if !ok {
			return value.Value{}, false
		}
		for _, elem := range in.Elems() {
			fits := true
			for _, m := range v.Get("where").Members() {
				want, _ := template(m.Value, s)
				fits = fits && value.Equal(elem.Get(m.Key), want)
			}
			if !fits {
				continue
			}
			if of := v.Get("select"); !of.IsMissing() {
				return template(of, s.with("", elem))
			}
			return elem, true
		}
		return value.NullValue(), true
	}
	var out []value.Member
	for _, m := range v.Members() {
		if e, ok := template(m.Value, s); ok {
			out = append(out, value.Member{Key: m.Key, Value: e})
		}
	}
	return value.ObjectValue(out...), true
}

func (s scope) with(name string, v value.Value) scope {
	out := scope{strings.TrimPrefix(name, "$"): v}
	for k, old := range s {
		if _, hidden := out[k]; !hidden {
			out[k] = old
		}
	}
	return out
}

// follow returns what a path leads to; false where it ends in "?" and leads nowhere.
func follow(path string, s scope) (value.Value, bool) {
	path, optional := strings.CutSuffix(path, "?")
	path, entries := strings.CutSuffix(path, ".$entries")
	root, rest := strings.TrimPrefix(path, "$"), ""
	if i := strings.IndexAny(root, ".["); i >= 0 {
		root, rest = root[:i], root[i:]
	}
	found := steps(s[root], rest)
	if !entries {
		return found, !optional || !found.IsMissing()
	}
	if strings.Contains(rest, "[*]") && !found.IsMissing() {
		var each []value.Value
		for _, elem := range found.Elems() {
			each = append(each, entriesOf(elem))
		}
		found = value.ArrayValue(each...)
	} else {
		found = entriesOf(found)
	}
	return found, !optional || !found.IsMissing()
}

// entriesOf returns the entries of an object, null for what is something else.
func entriesOf(v value.Value) value.Value {
	switch v.Kind() { //nolint:exhaustive // the others have none
	case value.Missing:
		return v
	case value.Object:
		var all []value.Value
		for _, m := range v.Members() {
			all = append(all, value.ObjectValue(value.Member{Key: "key", Value: value.StringValue(m.Key)}, value.Member{
				Key: "value", Value: m.Value,
			}))
		}
		return value.ArrayValue(all...)
	default:
		return value.NullValue()
	}
}

func steps(v value.Value, rest string) value.Value {
	switch {
	case rest == "":
		return v
	case strings.HasPrefix(rest, "[*]"):
		if v.Kind() != value.Array {
			return value.Value{}
		}
		rest, more, again := strings.Cut(rest[len("[*]"):], "[*]")
		var out []value.Value
		for _, elem := range v.Elems() {
			switch at := steps(elem, rest); {
			case again:
				out = append(out, at.Elems()...)
			case !at.IsMissing():
				out = append(out, at)
			}
		}
		if again {
			return steps(value.ArrayValue(out...), "[*]"+more)
		}
		return value.ArrayValue(out...)
	case rest[0] == '[':
		number, more, _ := strings.Cut(rest[1:], "]")
		i, _ := strconv.Atoi(number)
		if i < 0 {
			i += v.Len()
		}
		if elems := v.Elems(); i >= 0 && i < len(elems) {
			return steps(elems[i], more)
		}
		return value.Value{}
	default:
		name := rest[1:]
		if i := strings.IndexAny(name, ".["); i >= 0 {
			return steps(v.Get(name[:i]), name[i:])
		}
		return v.Get(name)
	}
}
