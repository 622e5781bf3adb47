package schema

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/outline"
)

// subjectOf returns the types that a keyword is about, the empty set for one that is about all of them.
func subjectOf(keyword string) typeSet {
	switch keyword {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return typeOf("number") | integers
	case "minLength", "maxLength", "pattern", "format":
		return typeOf("string")
	case "minItems", "maxItems", "uniqueItems", "items", "prefixItems", "contains", "minContains", "maxContains":
		return typeOf("array")
	case "required", "dependentRequired", "minProperties", "maxProperties", "properties", "patternProperties",
		"additionalProperties", "propertyNames", "dependentSchemas", "dependencies":
		return typeOf("object")
	default:
		return 0
	}
}

// futileKeywords warns of keywords without effect: those about other types than the schema allows, and demands that no
// value can meet together.
func (c *compiler) futileKeywords(n *node, v value.Value, at diag.Pointer) {
	if n.types != 0 {
		for _, m := range v.Members() {
			subject := subjectOf(m.Key)
			if subject == 0 || subject&n.types != 0 || m.Key == "format" && n.text == nil {
				// an unknown format has its warning
				continue
			}
			c.warnf(at.Key(m.Key), "%q has no effect here: it is about %s, but the type is %s", m.Key, plurals(subject), choice(n.types.names(), 0)).AtKey().
				Hintf("leave it out, or correct the type")
		}
	}
	c.emptyRanges(n, v, at)
	c.unlistedRequired(n, v, at)
	c.unlistedNeeds(n, v, at)
	c.wrongEnum(n, v, at)
}

// plurals names the values that keywords are about.
func plurals(subject typeSet) string {
	switch {
	case subject&integers != 0:
		return "numbers"
	case subject == typeOf("string"):
		return "texts"
	case subject == typeOf("array"):
		return "arrays"
	default:
		return "objects"
	}
}

// emptyRanges warns of a lower bound above the upper one.
func (c *compiler) emptyRanges(n *node, v value.Value, at diag.Pointer) {
	conflict := func(lower, upper, subject string) {
		c.warnf(at.Key(lower), "%q is above %q: no %s fits", lower, upper, subject).Hintf(
			"swap the two, or leave one out",
		)
	}

	// Bounds of numbers, where an exclusive one must not be touched.
	if r := n.number; r != nil {
		for _, pair := range []struct {
			lower, upper value.Value
			names        [2]string
			touch        bool
		}{
			{r.minimum, r.maximum, [2]string{"minimum", "maximum"}, true},
			{r.exclusiveMinimum, r.maximum, [2]string{"exclusiveMinimum", "maximum"}, false},
			{r.minimum, r.exclusiveMaximum, [2]string{"minimum", "exclusiveMaximum"}, false},
			{r.exclusiveMinimum, r.exclusiveMaximum, [2]string{"exclusiveMinimum", "exclusiveMaximum"}, false},
		} {
			if pair.lower.IsMissing() || pair.upper.IsMissing() ||
				!c.matching.Spend(value.CompareEffort(pair.lower, pair.upper)) {
				continue
			}
			switch order := compare(pair.lower, pair.upper); {
			case order > 0:
				conflict(pair.names[0], pair.names[1], "number")
			case order == 0 && !pair.touch:
				c.warnf(at.Key(pair.names[0]), "%q is no less than %q: no number fits", pair.names[0], pair.names[1]).Hintf("widen the range, or leave one of them out")
			}
		}
	}

	// Sizes.
	if r := n.text; r != nil && r.maxLength != unlimited && r.minLength > r.maxLength {
		conflict("minLength", "maxLength", "text")
	}
	if r := n.array; r != nil {
		if r.maxItems != unlimited && r.minItems > r.maxItems {
			conflict("minItems", "maxItems", "array")
		}
		if has(v, "minContains") && r.maxContains != unlimited && r.minContains > r.maxContains {
			conflict("minContains", "maxContains", "array")
		}
	}
	if r := n.object; r != nil && r.maxFields != unlimited && r.minFields > r.maxFields {
		conflict("minProperties", "maxProperties", "object")
	}
}

// unlistedRequired warns of fields that are required but cannot exist.
func (c *compiler) unlistedRequired(n *node, v value.Value, at diag.Pointer) {
	o := n.object
	if o == nil || o.required == 0 {
		return
	}
	for i, name := range v.Get("required").Elems() {
		if name.Kind() != value.String {
			continue
		}
		place := o.find(name.Str(), 0)
		if place < 0 {
			continue
		}
		switch f := o.fields[place].schema; {
		case f != nil && f.never:
			c.warnf(at.Key("required").Index(i), "the field %s is required, but its schema is false: no object fits", diag.Quote(name.Str())).
				Hintf("leave it out here, or give it a schema under \"properties\"")
		case f == nil && o.additional != nil && o.additional.never && !c.matchesPattern(o, name.Str()):
			c.requiredOutside(at.Key("required").Index(i), name.Str(), o)
		}
	}
}

// unlistedNeeds warns of fields that are required beside others but cannot exist.
func (c *compiler) unlistedNeeds(n *node, v value.Value, at diag.Pointer) {
	if !n.isClosed() {
		return
	}
	for _, m := range v.Get("dependentRequired").Members() {
		for i, name := range m.Value.Elems() {
			place := n.object.find(name.Str(), 0)
			if !c.matching.Spend(1) || place >= 0 && n.object.fields[place].schema != nil ||
				c.matchesPattern(n.object, name.Str()) {
				continue
			}
			c.warnf(at.Key("dependentRequired").Key(m.Key).Index(i), "the field %s is required beside %s, but \"additionalProperties\" forbids it: no object has %[2]s",
				diag.Quote(name.Str()), diag.Quote(m.Key)).Hintf(`name it under "properties"`)
		}
	}
}

// requiredOutside warns of a required field that a closed object, which holds for the same value, does not have.
func (c *compiler) requiredOutside(at diag.Pointer, name string, closed *objectRule) {
	place := outline.InSpec(c.at, at)
	if c.outside[place] {
		return
	}
	c.outside[place] = true
	d := c.warnf(at, "the field %s is required, but \"additionalProperties\" forbids it: no object fits", diag.Quote(name))
	d.Hintf(`name it under "properties"`)
	if c.list.Suggests() {
		if near := c.list.Nearest(name, closed.declared()); near != "" {
			d.Hintf("did you mean %q?", near)
		}
	}
}

// contradictions warns of fields that one schema requires and another one, which holds for the same value by "$ref" or
// "allOf", forbids.
func (c *compiler) contradictions() {
	for _, n := range c.order {
		if n.same == nil || n.same.ref == nil && len(n.same.allOf) == 0 {
			continue
		}
		all := c.together(n, nil)
		for _, closed := range all {
			if !closed.isClosed() || !c.matching.Spend(len(all)) {
				continue
			}
			for _, other := range all {
				if other != closed && len(c.required[other]) > 0 {
					c.requiredElsewhere(other, closed.object)
				}
			}
		}
	}
}

// together appends n and the schemas that hold where it does.
func (c *compiler) together(n *node, all []*node) []*node {
	if !c.matching.Spend(1) {
		return all
	}
	all = append(all, n)
	if s := n.same; s != nil {
		if s.ref != nil {
			all = c.together(s.ref, all)
		}
		for _, sub := range s.allOf {
			all = c.together(sub, all)
		}
	}
	return all
}

// isClosed reports whether an object has no fields but those that are declared.
func (n *node) isClosed() bool {
	return n.object != nil && n.object.additional != nil && n.object.additional.never
}

// requiredElsewhere looks at what n requires of an object that is closed.
func (c *compiler) requiredElsewhere(n *node, closed *objectRule) {
	for i, name := range c.required[n] {
		if !c.matching.Spend(1) {
			return
		}
		if place := closed.find(name.Str(), 0); place >= 0 && closed.fields[place].schema != nil ||
			c.matchesPattern(closed, name.Str()) {
			continue
		}
		c.requiredOutside(n.at.Key("required").Index(i), name.Str(), closed)
	}
}

// declared lists the names of fields that have a schema.
func (o *objectRule) declared() []string {
	names := make([]string, 0, len(o.fields))
	for i := range o.fields {
		if o.fields[i].schema != nil {
			names = append(names, o.fields[i].name)
		}
	}
	return names
}

// matchesPattern reports whether patternProperties may allow a name. With very many names and patterns it assumes so.
func (c *compiler) matchesPattern(o *objectRule, name string) bool {
	for i := range o.patterns {
		if o.patterns[i].pattern.Match(name, c.matching) || c.matching.Err() != nil {
			return true
		}
	}
	return false
}

// wrongEnum warns of enums and constants that the type allows none of.
func (c *compiler) wrongEnum(n *node, v value.Value, at diag.Pointer) {
	for _, keyword := range []string{"enum", "const"} {
		values := v.Get(keyword).Elems()
		if keyword == "const" {
			if !has(v, keyword) {
				continue
			}
			values = []value.Value{v.Get(keyword)}
		}
		if n.types == 0 || len(values) == 0 {
			continue
		}
		allowed := false
		for _, e := range values {
			if !c.matching.Spend(1 + e.NumberEffort()) {
				return
			}
			allowed = allowed || n.types.accepts(e)
		}
		if !allowed {
			c.warnf(at.Key(keyword), "nothing fits: %q has no value of the type %s", keyword, choice(n.types.names(), 0)).
				Hintf("correct the type, or %s", map[string]string{"enum": "the values", "const": "the value"}[keyword])
		}
	}
}
