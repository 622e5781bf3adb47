package tick_test

import (
	"regexp"
	"slices"
	"strings"

	"j17/internal/base/value"
)

// moved is result for the operations that change where members are, or whether they are there: what is taken out is cut
// out of a copy of everything first, and then put into that.
func (n *naive) moved(name, target string, o value.Value, at string) value.Value {
	switch name {
	case "move":
		from, to := cut(o.Get("from").Str()), cut(o.Get("to").Str())
		v := follow(n.state, o.Get("from").Str())
		if v.IsMissing() {
			return n.state
		}
		rest := without(n.state, from)
		if !follow(rest, o.Get("to").Str()).IsMissing() {
			panic(misfit{})
		}
		return put(rest, to, v)
	case "drop":
		switch steps := cut(target); {
		case len(steps) == 0:
			panic(misfit{})
		case follow(n.state, target).IsMissing():
			return n.state
		default:
			return without(n.state, steps)
		}
	case "default":
		if !follow(n.state, target).IsMissing() {
			return n.state
		}
		return n.put(target, n.value(o.Get("value")))
	default:
		if isAbsent(follow(n.state, target)) {
			return n.state
		}
		var members []value.Member
		for _, m := range n.objectAt(target).Members() {
			inner := n.with(binding(o), m.Value)
			inner.state = m.Value
			inner.run(o.Get("apply"), at+"/apply")
			members = append(members, value.Member{Key: m.Key, Value: inner.state})
		}
		return n.put(target, value.ObjectValue(members...))
	}
}

// without returns v without the member at the end of steps, which is there; nothing where there are no steps.
func without(v value.Value, steps []any) value.Value {
	if len(steps) == 0 {
		return value.Value{}
	}
	switch step := steps[0].(type) {
	case string:
		if len(steps) == 1 {
			rest := slices.DeleteFunc(slices.Clone(v.Members()), func(m value.Member) bool { return m.Key == step })
			return value.ObjectValue(rest...)
		}
		return withMember(v, step, without(v.Get(step), steps[1:]))
	case int:
		if len(steps) == 1 {
			panic(misfit{})
		}
		elems := slices.Clone(v.Elems())
		elems[(step+len(elems))%len(elems)] = without(v.Index(step), steps[1:])
		return value.ArrayValue(elems...)
	default:
		panic("unknown step")
	}
}

// translated computes the operators that split and join texts, read numbers and translate values.
func (n *naive) translated(name string, v value.Value) value.Value {
	switch name {
	case "$split":
		parts := n.parts(n.value(v.Get(name)), n.value(v.Get("by")), v)
		part := v.Get("part")
		if part.IsMissing() {
			return value.ArrayValue(parts...)
		}
		given := n.value(part)
		if !given.IsInteger() {
			panic(misfit{})
		}
		at, ok := given.Int64()
		if !ok || at >= int64(len(parts)) || at < -int64(len(parts)) {
			return value.NullValue()
		}
		if at < 0 {
			at += int64(len(parts))
		}
		return parts[at]
	case "$join":
		var items []value.Value
		if o := v.Get(name); o.Kind() == value.Array {
			items = n.value(o).Elems()
		} else if array := n.value(o); array.Kind() == value.Array {
			items = array.Elems()
		} else {
			panic(misfit{})
		}
		by := n.value(v.Get("by"))
		var texts []string
		for _, item := range append(items, by) {
			if k := item.Kind(); k == value.String {
				texts = append(texts, item.Str())
			} else if k == value.Number || k == value.Bool {
				texts = append(texts, item.String())
			} else {
				panic(misfit{})
			}
		}
		if by.Kind() != value.String {
			panic(misfit{})
		}
		return value.StringValue(strings.Join(texts[:len(items)], by.Str()))
	case "$number":
		of := n.value(v.Get(name))
		if of.Kind() == value.Number {
			return of
		}
		if !regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`).MatchString(of.Str()) {
			panic(misfit{})
		}
		number, err := value.ParseString(of.Str())
		if err != nil {
			panic(misfit{}) // it is beyond the limits of numbers
		}
		return number
	default:
		of := n.value(v.Get(name))
		for _, pair := range v.Get("of").Elems() {
			if value.Equal(n.value(pair.Index(0)), of) {
				return n.value(pair.Index(1))
			}
		}
		if other := v.Get("else"); !other.IsMissing() {
			return n.value(other)
		}
		panic(misfit{})
	}
}

// parts cuts a text, one letter after the other.
func (n *naive) parts(text, by, o value.Value) []value.Value {
	if text.Kind() != value.String || by.Kind() != value.String || by.Str() == "" {
		panic(misfit{})
	}
	most := int64(1 << 30)
	if limit := o.Get("limit"); !limit.IsMissing() {
		given := n.value(limit)
		if !given.IsInteger() || given.Sign() <= 0 {
			panic(misfit{})
		}
		if small, ok := given.Int64(); ok {
			most = small
		}
	}
	var parts []value.Value
	rest, part := text.Str(), ""
	for rest != "" {
		if after, ok := strings.CutPrefix(rest, by.Str()); ok && int64(len(parts)) < most-1 {
			parts = append(parts, value.StringValue(part))
			rest, part = after, ""
			continue
		}
		part += rest[:1]
		rest = rest[1:]
	}
	return append(parts, value.StringValue(part))
}
