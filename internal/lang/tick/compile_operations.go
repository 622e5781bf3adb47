package tick

import (
	"cmp"
	"slices"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// operationCompiler compiles the operations of a handler.
type operationCompiler struct{ predicateCompiler }

// operations compiles an array of operations, or one that stands alone.
func (c operationCompiler) operations(v value.Value, at diag.Pointer, what string) []operation {
	c.depth++
	defer func() { c.depth-- }()
	switch {
	case v.Kind() == value.Object:
		if v.Len() == 0 {
			c.errorf(at, "%s is an array of operations, or one operation; this object is neither", what).Hintf("write [] to do nothing")
			return nil
		}
		return c.operation(v, at, nil)
	case v.Kind() != value.Array:
		c.errorf(at, "%s is an array of operations, or one operation, not %s", what, kindOf(v)).Hintf("write [] to do nothing")
		return nil
	}
	ops := make([]operation, 0, v.Len())
	for i, op := range v.Elems() {
		ops = c.operation(op, at.Index(i), ops)
	}
	return ops
}

// operation compiles one operation and appends it to ops, unless it is faulty.
func (c operationCompiler) operation(v value.Value, at diag.Pointer, ops []operation) []operation {
	// The operators of its values are counted apart from those around it.
	outer := c.operators
	c.operators = 0
	defer func() { c.operators = outer }()

	// Operations beyond the limits are left out.
	c.count++
	if c.count > MaxOperations {
		return ops
	}
	if c.depth > MaxNesting+1 {
		c.errorf(at, "the operation stands inside more than %d others", MaxNesting).
			Hintf("combine conditions with and, or and not, or split the event into several types")
		return ops
	}

	// An operation is an object with one key, its name, except for conditions.
	switch {
	case v.Kind() != value.Object:
		c.errorf(at, "an operation is an object, not %s", kindOf(v)).Hintf("write %s", example("set"))
		return ops
	case v.Len() == 0:
		c.errorf(at, "the operation is empty").Hintf("write %s", example("set"))
		return ops
	}
	if !v.Get("if").IsMissing() {
		return append(ops, c.conditional(v, at))
	}

	// The first key that is a name of an operation is what is meant; without one, the first of all is the mistake.
	first := v.Members()[0]
	for _, m := range v.Members() {
		if slices.Contains(operationNames(), m.Key) {
			first = m
			break
		}
	}
	if !slices.Contains(operationNames(), first.Key) {
		d := c.errorf(at.Key(first.Key), "unknown operation %s", diag.Quote(first.Key)).AtKey()
		switch near := operationMeant(c.l, first.Key); {
		case first.Value.Kind() == value.String && slices.Contains(operationNames(), first.Value.Str()):
			d.Hintf("the name of an operation is its key: write %s", example(first.Value.Str()))
		case near == "if":
			d.Hintf("write %s", example("if"))
		case near != "":
			d.Hintf("did you mean %q?", near)
		default:
			d.Hintf("the operations are %s", wordList(operationNames()))
		}
		return ops
	}

	if v.Len() > 1 {
		d := c.errorf(at, "an operation has one key, and this one has %d", v.Len())
		if other := v.Get("when"); !other.IsMissing() || !v.Get("condition").IsMissing() {
			d.Hintf("write %s to make operations depend on a condition", example("if"))
		} else {
			d.Hintf("write every operation as an object of its own")
		}
		return ops
	}

	if op := c.named(first.Key, first.Value, at); op != nil {
		ops = append(ops, op)
	}
	return ops
}

// named compiles the operation called name. at is the place of the operation, not that of its body.
func (c operationCompiler) named(name string, v value.Value, at diag.Pointer) operation {
	f, _ := operationNamed(name)
	return f.compile(c, base{at: at, name: name}, v, at.Key(name))
}

func (c operationCompiler) increment(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "by", "value")
	if !ok {
		return nil
	}
	return &addOp{
		base: b, target: c.target(m[0], at, b.name), by: c.amount(m[1], m[2], at, b.name),
		subtract: b.name == "decrement",
	}
}

// simple compiles the operations that have a target and a value.
func (c operationCompiler) simple(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "value")
	if !ok {
		return nil
	}
	target := c.target(m[0], at, b.name)
	switch b.name {
	case "set":
		return &setOp{b, c.keptMember(m[1], at, b.name), target}
	case "merge":
		return &mergeOp{b, c.keptObject(m[1], at, b.name, "value"), target}
	default:
		return &appendOp{b, c.keptMember(m[1], at, b.name), target}
	}
}

func (c operationCompiler) keptMember(v value.Value, at diag.Pointer, what string) operand {
	if !c.required(v, at, what, "value") {
		return operand{node: &literal{}}
	}
	return c.kept(v, at.Key("value"))
}

// keptObject compiles a value that has to be an object and ends up in the state.
func (c operationCompiler) keptObject(v value.Value, at diag.Pointer, what, key string) operand {
	if !c.required(v, at, what, key) {
		return operand{node: &literal{}}
	}
	at = at.Key(key)
	o := c.kept(v, at)
	switch n := o.node.(type) {
	case *literal:
		if n.v.Kind() != value.Object && !n.v.IsMissing() {
			c.errorf(at, "%s merges an object, not %s", what, kindOf(n.v)).Hintf("write an object or a path that leads to one")
		}
	case *arrayNode:
		c.errorf(at, "%s merges an object, not an array", what).Hintf("write an object or a path that leads to one")
	}
	return o
}

// amount compiles "by" or its other name, "value".
func (c operationCompiler) amount(by, alias value.Value, at diag.Pointer, what string) node {
	key := "by"
	switch {
	case !by.IsMissing() && !alias.IsMissing():
		c.errorf(at, `%s has both "by" and "value", which mean the same`, what).Hintf(`leave "value" out`)
		return &literal{}
	case by.IsMissing():
		if !c.required(alias, at, what, "by") {
			return &literal{}
		}
		by, key = alias, "value"
	}
	return c.number(by, at.Key(key), "the amount")
}

func (c operationCompiler) appendUnique(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "value", "uniqueField")
	if !ok {
		return nil
	}
	op := &appendUniqueOp{base: b, target: c.target(m[0], at, b.name), value: c.keptMember(m[1], at, b.name)}
	if !m[2].IsMissing() {
		op.by = c.field(m[2], at.Key("uniqueField"))
	}
	return op
}

func (c operationCompiler) remove(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "value", "where", "match", "as")
	if !ok {
		return nil
	}
	target := c.target(m[0], at, b.name)
	given := 0
	for _, form := range m[1:4] {
		if !form.IsMissing() {
			given++
		}
	}
	switch {
	case given == 0:
		c.errorf(at, `remove needs one of "value", "where" and "match" to know what to remove`).Hintf("write %s", example(b.name))
		return nil
	case given > 1:
		c.errorf(at, `remove takes only one of "value", "where" and "match"`).Hintf("use two operations, or one predicate")
		return nil
	case !m[1].IsMissing():
		if !m[4].IsMissing() {
			c.errorf(at.Key("as"), `"as" names the element for a predicate, and there is none`).AtKey().Hintf(`leave "as" out`)
		}
		return &removeValueOp{b, c.value(m[1], at.Key("value"), false), target}
	}
	binding := c.bindingName(m[4], at.Key("as"))
	if !m[2].IsMissing() {
		return &removeOp{b, c.match(m[2], at.Key("where"), binding), target}
	}
	return &removeOp{b, c.match(m[3], at.Key("match"), binding), target}
}

func (c operationCompiler) filter(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "keep", "as")
	if !ok {
		return nil
	}
	op := &filterOp{base: b, target: c.target(m[0], at, b.name), keep: &match{}}
	binding := c.bindingName(m[2], at.Key("as"))
	if c.required(m[1], at, b.name, "keep") {
		op.keep.slot, _ = c.bound(binding, func() { op.keep.when = c.condition(m[1], at.Key("keep")) })
	}
	return op
}

func (c operationCompiler) mapping(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "as", "apply")
	if !ok {
		return nil
	}
	op := &mapOp{base: b, target: c.target(m[0], at, b.name), over: value.Array}
	if b.name == "map_values" {
		op.over = value.Object
	}
	binding := c.bindingName(m[1], at.Key("as"))
	if !c.required(m[2], at, b.name, "apply") {
		return nil
	}
	lets := len(c.lets)
	c.loops++
	op.slot, op.freezes = c.bound(binding, func() { op.ops = c.operations(m[2], at.Key("apply"), `"apply"`) })
	c.loops--
	op.lets = slices.Clone(c.lets[lets:])
	slices.Sort(op.lets)
	op.lets = slices.Compact(op.lets)
	return op
}

func (c operationCompiler) updateWhere(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "match", "merge", "as")
	if !ok {
		return nil
	}
	op := &updateWhereOp{base: b, target: c.target(m[0], at, b.name), match: &match{}}
	binding := c.bindingName(m[3], at.Key("as"))
	if c.required(m[1], at, b.name, "match") {
		op.match = c.match(m[1], at.Key("match"), binding)
	}
	op.match.slot, op.freezes = c.bound(binding, func() { op.merge = c.keptObject(m[2], at, b.name, "merge") })
	return op
}

func (c operationCompiler) upsert(b base, v value.Value, at diag.Pointer) operation {
	m, ok := c.members(v, at, b.name, "target", "match", "value", "as")
	if !ok {
		return nil
	}
	op := &upsertOp{base: b, target: c.target(m[0], at, b.name), value: c.keptMember(m[2], at, b.name)}
	binding := c.bindingName(m[3], at.Key("as"))
	if c.required(m[1], at, b.name, "match") {
		op.match = c.match(m[1], at.Key("match"), binding)
	}
	return op
}

// dynamic compiles the operations on a member whose key is a value.
func (c operationCompiler) dynamic(b base, v value.Value, at diag.Pointer) operation {
	switch b.name {
	case "remove_at":
		m, ok := c.members(v, at, b.name, "target", "key")
		if !ok {
			return nil
		}
		return &removeAtOp{b, c.key(m[1], at, b.name), c.target(m[0], at, b.name)}
	case "increment_at", "decrement_at":
		m, ok := c.members(v, at, b.name, "target", "key", "by", "value")
		if !ok {
			return nil
		}
		target := c.target(m[0], at, b.name)
		return &incrementAtOp{
			b, c.key(m[1], at, b.name), c.amount(m[2], m[3], at, b.name), target, b.name == "decrement_at",
		}
	}
	m, ok := c.members(v, at, b.name, "target", "key", "value")
	if !ok {
		return nil
	}
	target := c.target(m[0], at, b.name)
	key := c.key(m[1], at, b.name)
	if b.name == "merge_at" {
		return &mergeAtOp{b, key, c.keptObject(m[2], at, b.name, "value"), target}
	}
	return &setAtOp{b, key, c.keptMember(m[2], at, b.name), target}
}

func (c operationCompiler) conditional(v value.Value, at diag.Pointer) operation {
	m, _ := c.members(v, at, "if", "if", "then", "else")
	op := &ifOp{base: base{at: at, name: "if"}}
	op.when = c.condition(m[0], at.Key("if"))
	if c.required(m[1], at, "if", "then") {
		op.then = c.operations(m[1], at.Key("then"), `"then"`)
	}
	if !m[2].IsMissing() {
		op.orElse = c.operations(m[2], at.Key("else"), `"else"`)
	}
	return op
}

func (c operationCompiler) let(b base, v value.Value, at diag.Pointer) operation {
	// One of two spellings.
	m, ok := c.members(v, at, b.name, "name", "find", "find_target", "find_field", "find_value")
	if !ok {
		return nil
	}
	op := &letOp{base: b, match: &match{}}
	flat := !m[2].IsMissing() || !m[3].IsMissing() || !m[4].IsMissing()

	switch {
	case flat && !m[1].IsMissing():
		c.errorf(at, `let has both "find" and "find_target", "find_field" or "find_value", which mean the same`).
			Hintf("write %s", example(b.name))
		return nil
	case flat:
		op.in = c.arrayMember(m[2], at, b.name, "find_target")
		if c.required(m[3], at, b.name, "find_field") && c.required(m[4], at, b.name, "find_value") {
			f := c.field(m[3], at.Key("find_field"))
			op.match.fields = []field{{text: f.text, steps: f.steps, want: c.value(m[4], at.Key("find_value"), false)}}
		}
	case c.required(m[1], at, b.name, "find"):
		at := at.Key("find")
		find, ok := c.members(m[1], at, "find", "in", "where", "as")
		if !ok {
			return nil
		}
		op.in = c.arrayMember(find[0], at, "find", "in")
		binding := c.bindingName(find[2], at.Key("as"))
		if c.required(find[1], at, "find", "where") {
			op.match = c.match(find[1], at.Key("where"), binding)
		}
	}

	// The name, and whether elements that are found stay in the present state.
	if !c.required(m[0], at, b.name, "name") {
		return nil
	}
	name := c.bindingName(m[0], at.Key("name"))
	if p, ok := op.in.(*pathNode); ok {
		op.keeps = p.from == fromCurrent && !p.entries
		op.keepsMade = p.from == fromCurrent && p.entries
	} else {
		op.keepsMade = true
	}

	// The name is visible from the next operation on.
	op.slot = c.slot(name)
	c.lets = append(c.lets, op.slot)
	if name != "" && !slices.Contains(c.visible, name) {
		c.visible = append(c.visible, name)
	}
	return op
}

// target compiles the place in the state that an operation changes.
func (c operationCompiler) target(v value.Value, at diag.Pointer, what string) place {
	return c.place(v, at, what, "target")
}

// place compiles the place that the member called key names.
func (c operationCompiler) place(v value.Value, at diag.Pointer, what, key string) place {
	if !c.required(v, at, what, key) {
		return place{}
	}
	at = at.Key(key)
	name := map[string]string{"target": "a target", "from": `"from"`, "to": `"to"`}[key]
	if v.Kind() != value.String {
		c.errorf(at, "%s is a string, not %s", name, kindOf(v)).Hintf(`write a state path like "items", or "" for the whole state`)
		return place{}
	}
	p := c.fieldPath(v, at, name)
	switch {
	case c.upcast && c.loops > 0:
		p.root = "the element"
	case c.upcast:
		p.root = "the data"
	}
	if text := v.Str(); !c.upcast && c.loops == 0 && (text == createdAt || text == updatedAt) {
		c.l.Warnf(at, "the engine sets %q itself after every event", text).Hintf("leave this operation out, or choose another name")
	}
	return p
}

// key compiles an operand that has to be a member's key.
func (c operationCompiler) key(v value.Value, at diag.Pointer, what string) node {
	if !c.required(v, at, what, "key") {
		return &literal{}
	}
	at = at.Key("key")
	n := c.value(v, at, false)
	switch n := n.(type) {
	case *literal:
		if n.v.Kind() == value.String || n.v.IsMissing() {
			return n
		}
	default:
		if can(n, value.String) {
			return n
		}
	}
	c.errorf(at, "a key is a string or a path to one, not %s", c.yielded(v, n)).Hintf(`write a path like "$.data.user_id"`)
	return n
}

// kept compiles a value that ends up in the state.
func (c operationCompiler) kept(v value.Value, at diag.Pointer) operand {
	first := len(c.nodes)
	n := c.value(v, at, true)
	deep := false
	for _, p := range c.nodes[first:] {
		deep = deep || p.from == fromCurrent || p.from == fromState || p.from == fromSlot ||
			c.upcast && (p.from == fromData || p.from == fromEvent)
	}
	out := operand{node: n, deep: deep}
	if lit, ok := n.(*literal); ok {
		out.weight = lit.v.Weight()
	} else if c.upcast {
		out.source = v
	}
	return out
}

// operationMeant returns the operation that an unknown name stands for.
func operationMeant(l *diag.List, name string) string {
	switch name {
	case "conditional", "when", "condition", "then", "else", "switch":
		return "if"
	case "push", "add_item":
		return "append"
	case "assign", "put", "replace":
		return "set"
	case "add", "inc", "plus":
		return "increment"
	case "subtract", "dec", "minus":
		return "decrement"
	case "rename", "rename_field", "relocate":
		return "move"
	case "unset", "delete", "remove_field", "remove_key":
		return "drop"
	case "delete_at", "unset_at":
		return "remove_at"
	case "set_default", "set_if_missing", "defaults":
		return "default"
	case "map_object", "map_members", "each_value", "transform_values":
		return "map_values"
	case "find", "bind":
		return "let"
	case "for_each", "foreach", "each":
		return "map"
	case "add_unique", "add_to_set":
		return "append_unique"
	default:
		return l.Nearest(name, operationNames())
	}
}

// example returns a correct use of an operation or a predicate, or of "find", which belongs to one, for hints.
func example(name string) string {
	return cmp.Or(map[string]string{
		"set":           `{"set": {"target": "status", "value": "active"}}`,
		"merge":         `{"merge": {"target": "profile", "value": "$.data"}}`,
		"append":        `{"append": {"target": "items", "value": "$.data.item"}}`,
		"remove":        `{"remove": {"target": "items", "where": {"id": "$.data.id"}}}`,
		"increment":     `{"increment": {"target": "count", "by": 1}}`,
		"decrement":     `{"decrement": {"target": "count", "by": 1}}`,
		"filter":        `{"filter": {"target": "items", "keep": {"equals": ["$item.active", true]}}}`,
		"map":           `{"map": {"target": "items", "apply": [{"set": {"target": "done", "value": true}}]}}`,
		"update_where":  `{"update_where": {"target": "items", "match": {"id": "$.data.id"}, "merge": {"done": true}}}`,
		"upsert":        `{"upsert": {"target": "items", "match": {"id": "$.data.id"}, "value": "$.data"}}`,
		"append_unique": `{"append_unique": {"target": "tags", "value": "$.data.tag"}}`,
		"set_at":        `{"set_at": {"target": "settings", "key": "$.data.name", "value": "$.data.value"}}`,
		"merge_at":      `{"merge_at": {"target": "members", "key": "$.data.id", "value": {"role": "$.data.role"}}}`,
		"remove_at":     `{"remove_at": {"target": "settings", "key": "$.data.name"}}`,
		"increment_at":  `{"increment_at": {"target": "votes", "key": "$.data.option", "by": 1}}`,
		"decrement_at":  `{"decrement_at": {"target": "votes", "key": "$.data.option", "by": 1}}`,
		"move":          `{"move": {"from": "mail", "to": "contact.email"}}`,
		"drop":          `{"drop": {"target": "legacy"}}`,
		"default":       `{"default": {"target": "currency", "value": "EUR"}}`,
		"map_values":    `{"map_values": {"target": "prices", "apply": [{"set": {"target": "currency", "value": "EUR"}}]}}`,
		"if":            `{"if": {"equals": ["$.data.done", true]}, "then": [...], "else": [...]}`,
		"let":           `{"let": {"name": "$found", "find": {"in": "items", "where": {"id": "$.data.id"}}}}`,
		"find":          `{"in": "items", "where": {"id": "$.data.id"}}`,
		"equals":        `{"equals": ["$.data.status", "active"]}`,
		"eq":            `{"eq": ["$.data.status", "active"]}`,
		"not_equals":    `{"not_equals": ["$.data.status", "active"]}`,
		"gt":            `{"gt": ["$.data.amount", 100]}`,
		"gte":           `{"gte": ["$.data.amount", 100]}`,
		"lt":            `{"lt": ["$.data.amount", 100]}`,
		"lte":           `{"lte": ["$.data.amount", 100]}`,
		"in":            `{"in": ["$.data.status", ["open", "held"]]}`,
		"not_in":        `{"not_in": ["$.data.status", ["open", "held"]]}`,
		"exists":        `{"exists": "$.data.email"}`,
		"includes":      `{"includes": {"array": "@.tags", "value": "$.data.tag"}}`,
		"minItems":      `{"minItems": {"array": "@.items", "min": 1}}`,
		"maxItems":      `{"maxItems": {"array": "@.items", "max": 5}}`,
		"expired":       `{"expired": {"timestamp": "$item.created_at", "maxAgeSeconds": 3600, "now": "$.metadata.timestamp"}}`,
		"every":         `{"every": {"in": "items", "match": {"equals": ["$item.done", true]}}}`,
		"some":          `{"some": {"in": "items", "match": {"equals": ["$item.done", true]}}}`,
		"subset_of":     `{"subset_of": {"items": "@.required", "array": "@.done"}}`,
		"and":           `{"and": [{"exists": "$.data.a"}, {"exists": "$.data.b"}]}`,
		"or":            `{"or": [{"exists": "$.data.a"}, {"exists": "$.data.b"}]}`,
	}[name], `{"not": {"equals": ["$.data.status", "deleted"]}}`)
}
