package tick

import (
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
)

// predicateCompiler compiles predicates, and the choice of elements by them.
type predicateCompiler struct{ *compiler }

// condition compiles a predicate that decides on an operation or an element.
func (c predicateCompiler) condition(v value.Value, at diag.Pointer) predicate {
	first := len(c.nodes)
	return c.root(c.predicate(v, at), first)
}

func (c predicateCompiler) predicate(v value.Value, at diag.Pointer) predicate {
	if v.Kind() != value.Object {
		c.errorf(at, "a predicate is an object, not %s", kindOf(v)).Hintf("write %s", comparisonMeant(c.l, v.Str()))
		return nil
	}
	if v.Len() != 1 {
		d := c.errorf(at, "a predicate is an object with one key, and this one has %d", v.Len())
		if v.Len() > 1 {
			d.Hintf(`put several predicates together with {"and": [...]} or {"or": [...]}`)
		} else {
			d.Hintf("write %s", example("equals"))
		}
		return nil
	}
	name, operand := v.Members()[0].Key, v.Members()[0].Value
	f, ok := predicateNamed(name)
	if !ok {
		d := c.errorf(at.Key(name), "unknown predicate %s", diag.Quote(name)).AtKey()
		if near := predicateMeant(c.l, name); near != "" {
			d.Hintf("did you mean %q?", near)
		} else {
			d.Hintf("the predicates are %s", wordList(predicateNames()))
		}
		return nil
	}
	at = at.Key(name)
	if operand.Kind() != f.takes {
		c.errorf(at, "%s takes %s, not %s", name, operandText(f.takes), kindOf(operand)).Hintf(
			"write %s", example(name),
		)
		return nil
	}
	return f.compile(c, name, operand, at)
}

func (c predicateCompiler) negation(_ string, v value.Value, at diag.Pointer) predicate {
	return &notNode{c.predicate(v, at)}
}

func (c predicateCompiler) includes(name string, v value.Value, at diag.Pointer) predicate {
	m, _ := c.members(v, at, name, "array", "value")
	n := &memberNode{array: c.arrayMember(m[0], at, name, "array")}
	if c.required(m[1], at, name, "value") {
		n.value = c.value(m[1], at.Key("value"), false)
	}
	return n
}

// counting compiles minItems and maxItems.
func (c predicateCompiler) counting(name string, v value.Value, at diag.Pointer) predicate {
	key := name[:len("min")]
	m, _ := c.members(v, at, name, "array", key)
	return &countNode{
		array: c.arrayMember(m[0], at, name, "array"), limit: c.limit(m[1], at, name, key), most: key == "max",
	}
}

func (c predicateCompiler) subset(name string, v value.Value, at diag.Pointer) predicate {
	m, _ := c.members(v, at, name, "items", "array")
	return &subsetNode{items: c.arrayMember(m[0], at, name, "items"), array: c.arrayMember(m[1], at, name, "array")}
}

// operandText names what a predicate takes.
func operandText(k value.Kind) string {
	if k == value.String {
		return "a path"
	}
	return "an " + k.String()
}

// comparison compiles the predicates that take two operands.
func (c predicateCompiler) comparison(name string, v value.Value, at diag.Pointer) predicate {
	if v.Len() != 2 {
		c.errorf(at, "%s takes two operands, and this array has %d", name, v.Len()).Hintf("write %s", example(name))
		return nil
	}
	left := c.value(v.Index(0), at.Index(0), false)
	if name == "in" || name == "not_in" {
		return &memberNode{value: left, array: c.array(v.Index(1), at.Index(1)), absent: name == "not_in"}
	}
	right := c.value(v.Index(1), at.Index(1), false)
	switch name {
	case "gt":
		return &orderNode{left: left, right: right, greater: true}
	case "gte":
		return &orderNode{left: left, right: right, greater: true, equal: true}
	case "lt":
		return &orderNode{left: left, right: right, less: true}
	case "lte":
		return &orderNode{left: left, right: right, less: true, equal: true}
	default:
		return &equalNode{left: left, right: right, unequal: name == "not_equals"}
	}
}

func (c predicateCompiler) predicateList(name string, v value.Value, at diag.Pointer) predicate {
	if v.Len() == 0 {
		c.errorf(at, "%s needs at least one predicate", name).Hintf("write %s", example(name))
	}
	n := &listNode{any: name == "or"}
	before := c.computes
	for i, p := range v.Elems() {
		n.of = append(n.of, c.predicate(p, at.Index(i)))
	}
	n.all = c.computes > before
	return n
}

func (c predicateCompiler) exists(_ string, v value.Value, at diag.Pointer) predicate {
	p, err := jsonpath.ParseAny(v.Str())
	if err != nil {
		c.syntax(at, err)
		return nil
	}
	return &existsNode{c.path(p, at, false)}
}

func (c predicateCompiler) arrayMember(v value.Value, at diag.Pointer, what, key string) node {
	if !c.required(v, at, what, key) {
		return &literal{}
	}
	return c.array(v, at.Key(key))
}

// limit compiles the number of minItems and maxItems.
func (c predicateCompiler) limit(v value.Value, at diag.Pointer, what, key string) node {
	if !c.required(v, at, what, key) {
		return &literal{}
	}
	n := c.number(v, at.Key(key), strconv.Quote(key))
	if lit, ok := n.(*literal); ok && lit.v.Kind() == value.Number && (!lit.v.IsInteger() || lit.v.Sign() < 0) {
		c.errorf(at.Key(key), "%q is a number of elements, and %s is none", key, lit.v).Hintf("write a whole number from 0")
	}
	return n
}

func (c predicateCompiler) expired(_ string, v value.Value, at diag.Pointer) predicate {
	m, _ := c.members(v, at, "expired", "timestamp", "maxAgeSeconds", "now")
	n := &expiredNode{}
	if c.required(m[0], at, "expired", "timestamp") {
		n.timestamp = c.number(m[0], at.Key("timestamp"), `"timestamp"`)
	}
	if c.required(m[1], at, "expired", "maxAgeSeconds") {
		n.age = c.number(m[1], at.Key("maxAgeSeconds"), `"maxAgeSeconds"`)
	}
	if m[2].IsMissing() {
		m[2] = value.StringValue("$.metadata.timestamp")
	}
	n.now = c.number(m[2], at.Key("now"), `"now"`)
	return n
}

func (c predicateCompiler) elements(name string, v value.Value, at diag.Pointer) predicate {
	m, _ := c.members(v, at, name, "in", "match", "as")
	n := &elementsNode{every: name == "every", in: c.arrayMember(m[0], at, name, "in")}
	binding := c.bindingName(m[2], at.Key("as"))
	if c.required(m[1], at, name, "match") {
		first, before := len(c.nodes), c.computes
		n.slot, _ = c.bound(binding, func() { n.match = c.predicate(m[1], at.Key("match")) })
		_, n.optional = c.root(n.match, first).(guarded)
		n.all = c.computes > before
	}
	return n
}

// match compiles the choice of elements of an array: fields and their values, or a predicate. It is a predicate if
// its only key names one and has the kind of JSON that the predicate takes.
func (c predicateCompiler) match(v value.Value, at diag.Pointer, binding string) *match {
	m := &match{}
	switch {
	case v.Kind() != value.Object:
		c.errorf(at, "a match is an object, not %s", kindOf(v)).Hintf(`write {"id": "$.data.id"}, or a predicate on %s`, binding)
		return m
	case v.Len() == 0:
		c.errorf(at, "a match needs at least one field").Hintf(`write {"id": "$.data.id"}, or a predicate on %s`, binding)
		return m
	case v.Len() == 1 && isPredicate(v.Members()[0]):
		m.slot, _ = c.bound(binding, func() { m.when = c.condition(v, at) })
		return m
	}
	for _, f := range v.Members() {
		if isPredicate(f) {
			c.errorf(at.Key(f.Key), "the predicate %q stands beside other keys", f.Key).AtKey().
				Hintf(`put predicates together with {"and": [...]}; for a field of that name use {"equals": ["%s.%s", ...]}`, binding, f.Key)
			continue
		}
		p := c.field(value.StringValue(f.Key), at.Key(f.Key))
		m.fields = append(m.fields, field{text: p.text, steps: p.steps, want: c.value(f.Value, at.Key(f.Key), false)})
	}
	return m
}

// fieldPath compiles a state path that leads to exactly one place.
func (c predicateCompiler) fieldPath(v value.Value, at diag.Pointer, what string) place {
	p, err := jsonpath.ParseState(v.Str())
	switch {
	case err != nil:
		c.syntax(at, err)
	case p.Optional:
		c.errorf(at, `%s cannot be optional`, what).Hintf(`remove the "?"`)
	case p.Entries:
		c.errorf(at, `%s cannot end in ".$entries"`, what).Hintf(`remove ".$entries": it makes a new list`)
	}
	return place{text: p.Text, steps: p.Steps}
}

// field compiles the name of a field.
func (c predicateCompiler) field(v value.Value, at diag.Pointer) *place {
	if v.Str() == "" {
		c.errorf(at, "a field's name is needed here").Hintf(`write a name like "id"`)
		return &place{}
	}
	p := c.fieldPath(v, at, "a field")
	return &p
}

// predicateMeant returns the predicate that an unknown name stands for.
func predicateMeant(l *diag.List, name string) string {
	switch name {
	case "==", "===", "=", "is", "equal":
		return "equals"
	case "!=", "!==", "ne", "neq", "<>", "is_not":
		return "not_equals"
	case ">":
		return "gt"
	case ">=", "ge", "min":
		return "gte"
	case "<":
		return "lt"
	case "<=", "le", "max":
		return "lte"
	case "contains", "has":
		return "includes"
	case "all":
		return "every"
	case "any":
		return "some"
	case "nin":
		return "not_in"
	default:
		return l.Nearest(name, predicateNames())
	}
}

// comparisonMeant returns the predicate for a text such as "$.data.due > 0", and an example for any other text.
func comparisonMeant(l *diag.List, text string) string {
	words := strings.Fields(text)
	if len(words) != 3 || !jsonpath.IsPath(words[0]) || len(text) > 100 {
		return example("equals")
	}
	name := predicateMeant(l, words[1])
	if f, _ := predicateNamed(name); f.takes != value.Array {
		return example("equals")
	}
	operand, err := value.ParseString(words[2])
	if err != nil {
		operand = value.StringValue(strings.Trim(words[2], "'"))
	}
	return value.ObjectValue(value.Member{
		Key: name, Value: value.ArrayValue(value.StringValue(words[0]), operand),
	}).String()
}

// wordList joins words in alphabetical order.
func wordList(words []string) string { return diag.Join(slices.Sorted(slices.Values(words)), "and") }
