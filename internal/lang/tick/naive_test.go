package tick_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"j17/internal/base/value"
)

// naive is the reference of the handler language: it walks the JSON of a handler anew for every event, follows paths
// by cutting up their text, and builds every value from scratch. It expects handlers that compile.
type naive struct {
	event  value.Value
	before value.Value
	state  value.Value
	bound  map[string]value.Value
	faults *[]string
}

// What ends an operation early.
type (
	skipped struct{}
	misfit  struct{}
)

func naiveApply(handler, state, event value.Value) (value.Value, []string) {
	var faults []string
	n := naive{event: event, before: state, state: state, bound: map[string]value.Value{}, faults: &faults}
	n.run(handler, "")
	return n.state, faults
}

func (n *naive) run(ops value.Value, at string) {
	if ops.Kind() == value.Object {
		n.operation(ops, at)
		return
	}
	for i, op := range ops.Elems() {
		n.operation(op, at+"/"+strconv.Itoa(i))
	}
}

func (n *naive) operation(op value.Value, at string) {
	defer func() {
		switch r := recover().(type) {
		case nil, skipped:
		case misfit:
			*n.faults = append(*n.faults, at)
		default:
			panic(r)
		}
	}()
	if test := op.Get("if"); !test.IsMissing() {
		branch := "else"
		if n.decides(test) {
			branch = "then"
		}
		if ops := op.Get(branch); !ops.IsMissing() {
			n.run(ops, at+"/"+branch)
		}
		return
	}
	name, body := op.Members()[0].Key, op.Members()[0].Value
	n.state = n.result(name, body, at+"/"+name)
}

func (n *naive) result(name string, o value.Value, at string) value.Value {
	target := o.Get("target").Str()
	switch name {
	case "set":
		return n.put(target, n.value(o.Get("value")))
	case "merge":
		v := n.object(n.value(o.Get("value")))
		return n.put(target, merged(n.objectAt(target), v))
	case "append":
		v := n.value(o.Get("value"))
		return n.put(target, appended(n.arrayAt(target), v))
	case "append_unique":
		v := n.value(o.Get("value"))
		by := o.Get("uniqueField").Str()
		id := follow(v, by)
		if id.IsMissing() {
			panic(misfit{})
		}
		for _, elem := range n.arrayAt(target) {
			if value.Equal(follow(elem, by), id) {
				return n.state
			}
		}
		return n.put(target, appended(n.arrayAt(target), v))
	case "increment", "decrement":
		by := n.amount(o)
		return n.put(target, sum(follow(n.state, target), by, name == "decrement"))
	case "remove":
		var meant func(value.Value) bool
		if v := o.Get("value"); !v.IsMissing() {
			want := n.value(v)
			meant = func(elem value.Value) bool { return value.Equal(elem, want) }
		} else if v := o.Get("where"); !v.IsMissing() {
			meant = n.match(v, o)
		} else {
			meant = n.match(o.Get("match"), o)
		}
		return n.keep(target, func(elem value.Value) bool { return !meant(elem) })
	case "filter":
		return n.keep(target, func(elem value.Value) bool { return n.with(binding(o), elem).decides(o.Get("keep")) })
	case "upsert":
		v := n.value(o.Get("value"))
		meant := n.match(o.Get("match"), o)
		var kept []value.Value
		for _, elem := range n.arrayAt(target) {
			if !meant(elem) {
				kept = append(kept, elem)
			}
		}
		return n.put(target, appended(kept, v))
	case "update_where":
		return n.updateWhere(target, o)
	case "map":
		return n.mapped(target, o, at)
	case "let":
		n.let(o)
		return n.state
	case "move", "drop", "default", "map_values":
		return n.moved(name, target, o, at)
	default:
		return n.dynamic(name, target, o)
	}
}

func (n *naive) dynamic(name, target string, o value.Value) value.Value {
	key := n.value(o.Get("key"))
	if key.Kind() != value.String {
		panic(misfit{})
	}
	switch name {
	case "set_at":
		v := n.value(o.Get("value"))
		return n.put(target, withMember(n.objectAt(target), key.Str(), v))
	case "merge_at":
		v := n.object(n.value(o.Get("value")))
		obj := n.objectAt(target)
		return n.put(target, withMember(obj, key.Str(), merged(n.emptyOr(obj.Get(key.Str()), value.Object), v)))
	case "remove_at":
		obj := n.objectAt(target)
		if obj.Get(key.Str()).IsMissing() {
			return n.state
		}
		var rest []value.Member
		for _, m := range obj.Members() {
			if m.Key != key.Str() {
				rest = append(rest, m)
			}
		}
		return n.put(target, value.ObjectValue(rest...))
	case "increment_at", "decrement_at":
		by := n.amount(o)
		obj := n.objectAt(target)
		return n.put(target, withMember(obj, key.Str(), sum(obj.Get(key.Str()), by, name == "decrement_at")))
	default:
		panic("unknown operation " + name)
	}
}

func (n *naive) updateWhere(target string, o value.Value) value.Value {
	meant := n.match(o.Get("match"), o)
	elems := slices.Clone(n.arrayAt(target))
	var hits []int
	for i, elem := range elems {
		if meant(elem) {
			hits = append(hits, i)
		}
	}
	if len(hits) == 0 {
		return n.state
	}
	for _, i := range hits {
		n.object(elems[i])
	}
	for _, i := range hits {
		elems[i] = merged(elems[i], n.object(n.with(binding(o), elems[i]).value(o.Get("merge"))))
	}
	return n.put(target, value.ArrayValue(elems...))
}

func (n *naive) mapped(target string, o value.Value, at string) value.Value {
	old := follow(n.state, target)
	if isAbsent(old) {
		return n.state
	}
	var out []value.Value
	for _, elem := range n.arrayAt(target) {
		inner := n.with(binding(o), elem)
		inner.state = elem
		inner.run(o.Get("apply"), at+"/apply")
		out = append(out, inner.state)
	}
	return n.put(target, value.ArrayValue(out...))
}

func (n *naive) let(o value.Value) {
	name := o.Get("name").Str()
	find := o.Get("find")
	var in value.Value
	var meant func(value.Value) bool
	if find.IsMissing() {
		in = n.array(o.Get("find_target"))
		meant = n.fields(value.ObjectValue(value.Member{Key: o.Get("find_field").Str(), Value: o.Get("find_value")}))
	} else {
		in = n.array(find.Get("in"))
		meant = n.match(find.Get("where"), find)
	}
	if in.Kind() != value.Array && !isAbsent(in) {
		n.bound[name] = value.Value{}
		panic(misfit{})
	}
	for _, elem := range in.Elems() {
		if meant(elem) {
			n.bound[name] = elem
			return
		}
	}
	n.bound[name] = value.Value{}
}

// with returns an evaluator with one more binding. What it binds itself is forgotten with it.
func (n *naive) with(name string, v value.Value) *naive {
	inner := *n
	inner.bound = maps.Clone(n.bound)
	inner.bound[name] = v
	return &inner
}

func binding(o value.Value) string {
	if as := o.Get("as"); !as.IsMissing() {
		return as.Str()
	}
	return "$item"
}

func (n *naive) match(m, o value.Value) func(value.Value) bool {
	if m.Len() == 1 && looksLikePredicate(m.Members()[0]) {
		return func(elem value.Value) bool { return n.with(binding(o), elem).decides(m) }
	}
	return n.fields(m)
}

func looksLikePredicate(m value.Member) bool {
	switch m.Key {
	case "equals", "eq", "not_equals", "gt", "gte", "lt", "lte", "in", "not_in", "and", "or":
		return m.Value.Kind() == value.Array
	case "includes", "minItems", "maxItems", "expired", "every", "some", "subset_of", "not":
		return m.Value.Kind() == value.Object
	case "exists":
		return isPathText(m.Value.Str())
	default:
		return false
	}
}

func (n *naive) fields(m value.Value) func(value.Value) bool {
	wants := make([]value.Value, m.Len())
	for i, f := range m.Members() {
		wants[i] = n.value(f.Value)
	}
	return func(elem value.Value) bool {
		for i, f := range m.Members() {
			if !value.Equal(follow(elem, f.Key), wants[i]) {
				return false
			}
		}
		return true
	}
}

func (n *naive) keep(target string, wanted func(value.Value) bool) value.Value {
	elems := n.arrayAt(target)
	var kept []value.Value
	for _, elem := range elems {
		if wanted(elem) {
			kept = append(kept, elem)
		}
	}
	if len(kept) == len(elems) {
		return n.state
	}
	return n.put(target, value.ArrayValue(kept...))
}

func isAbsent(v value.Value) bool { return v.IsMissing() || v.Kind() == value.Null }

func (n *naive) emptyOr(v value.Value, kind value.Kind) value.Value {
	switch {
	case v.Kind() == kind:
		return v
	case !isAbsent(v):
		panic(misfit{})
	case kind == value.Array:
		return value.ArrayValue()
	default:
		return value.ObjectValue()
	}
}

func (n *naive) arrayAt(target string) []value.Value {
	return n.emptyOr(follow(n.state, target), value.Array).Elems()
}

func (n *naive) objectAt(target string) value.Value {
	return n.emptyOr(follow(n.state, target), value.Object)
}

func (n *naive) object(v value.Value) value.Value {
	if v.Kind() != value.Object {
		panic(misfit{})
	}
	return v
}

func (n *naive) amount(o value.Value) value.Value {
	by := o.Get("by")
	if by.IsMissing() {
		by = o.Get("value")
	}
	return n.value(by)
}

func sum(a, b value.Value, subtract bool) value.Value {
	if isAbsent(a) {
		a = value.Int(0)
	}
	v, ok := value.Add(a, b)
	if subtract {
		v, ok = value.Sub(a, b)
	}
	if !ok {
		panic(misfit{})
	}
	return v
}

func appended(elems []value.Value, v value.Value) value.Value {
	return value.ArrayValue(append(slices.Clone(elems), v)...)
}

func withMember(obj value.Value, key string, v value.Value) value.Value {
	members := slices.Clone(obj.Members())
	for i := range members {
		if members[i].Key == key {
			members[i].Value = v
			return value.ObjectValue(members...)
		}
	}
	return value.ObjectValue(append(members, value.Member{Key: key, Value: v})...)
}

func merged(dst, src value.Value) value.Value {
	for _, m := range src.Members() {
		dst = withMember(dst, m.Key, m.Value)
	}
	return dst
}

// cut splits a path without a root into keys and indexes.
func cut(path string) []any {
	var out []any
	for part := range strings.SplitSeq(path, ".") {
		key, rest, _ := strings.Cut(part, "[")
		if key != "" {
			out = append(out, key)
		}
		for rest != "" {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			i, err := strconv.Atoi(strings.TrimPrefix(index, "["))
			if err != nil {
				panic(err)
			}
			out = append(out, i)
		}
	}
	return out
}

func follow(v value.Value, path string) value.Value {
	for _, step := range cut(path) {
		switch step := step.(type) {
		case string:
			v = v.Get(step)
		case int:
			v = v.Index(step)
		}
	}
	return v
}

func (n *naive) put(target string, v value.Value) value.Value { return put(n.state, cut(target), v) }

func put(root value.Value, steps []any, v value.Value) value.Value {
	if len(steps) == 0 {
		return v
	}
	switch step := steps[0].(type) {
	case int:
		i := step
		if i < 0 {
			i += root.Len()
		}
		if root.Kind() != value.Array || i < 0 || i >= root.Len() {
			panic(misfit{})
		}
		elems := slices.Clone(root.Elems())
		elems[i] = put(elems[i], steps[1:], v)
		return value.ArrayValue(elems...)
	case string:
		if root.Kind() != value.Object && !isAbsent(root) {
			panic(misfit{})
		}
		return withMember(root, step, put(root.Get(step), steps[1:], v))
	default:
		panic("unknown step")
	}
}

// find returns what a path leads to, and whether it is optional.
func (n *naive) find(path string) (value.Value, bool) {
	path, optional := strings.CutSuffix(path, "?")
	path, entries := strings.CutSuffix(path, ".$entries")
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	root, rest := path[:end], path[end:]
	var v value.Value
	switch {
	case root == "$" && strings.HasPrefix(rest, ".state"):
		v, rest = n.before, strings.TrimPrefix(rest, ".state")
	case root == "$" && rest == ".id":
		_, id, _ := strings.Cut(n.event.Get("key").Str(), ":")
		return value.StringValue(id), optional
	case root == "$":
		v = n.event
	case root == "@":
		v = n.state
	case strings.HasPrefix(root, "$"):
		v = n.bound[root]
	default:
		v, rest = n.state, path
	}
	v = follow(v, rest)
	if entries && !v.IsMissing() {
		if v.Kind() != value.Object {
			return value.NullValue(), optional
		}
		var list []value.Value
		for _, m := range v.Members() {
			list = append(list, value.ObjectValue(
				value.Member{Key: "key", Value: value.StringValue(m.Key)}, value.Member{Key: "value", Value: m.Value},
			))
		}
		v = value.ArrayValue(list...)
	}
	return v, optional
}

func (n *naive) path(path string) value.Value {
	v, optional := n.find(path)
	if v.IsMissing() && optional {
		panic(skipped{})
	}
	return v.OrNull()
}

func isPathText(s string) bool {
	return strings.HasPrefix(s, "$") || s == "@" || strings.HasPrefix(s, "@.") || strings.HasPrefix(s, "@[")
}

// array is value where a string without a prefix is a state path.
func (n *naive) array(v value.Value) value.Value {
	if v.Kind() == value.String {
		return n.path(v.Str())
	}
	return n.value(v)
}

func (n *naive) value(v value.Value) value.Value {
	switch v.Kind() {
	case value.String:
		if isPathText(v.Str()) {
			return n.path(v.Str())
		}
		return v
	case value.Array:
		var elems []value.Value
		for _, elem := range v.Elems() {
			elems = append(elems, n.value(elem))
		}
		return value.ArrayValue(elems...)
	case value.Object:
		if p := v.Get("$"); !p.IsMissing() {
			return n.path(p.Str())
		}
		if lit := v.Get("$literal"); !lit.IsMissing() {
			return lit
		}
		if items := v.Get("$merge"); !items.IsMissing() {
			out := value.ObjectValue()
			for _, item := range items.Elems() {
				out = merged(out, n.item(item))
			}
			return out
		}
		if computed, ok := n.operator(v); ok {
			return computed
		}
		out := value.ObjectValue()
		for _, m := range v.Members() {
			out = withMember(out, m.Key, n.value(m.Value))
		}
		return out
	case value.Missing, value.Null, value.Bool, value.Number:
	}
	return v
}

// item is value for an item of $merge: one that would skip the operation is left out.
func (n *naive) item(v value.Value) (out value.Value) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(skipped); !ok {
				panic(r)
			}
			out = value.Value{}
		}
	}()
	return n.value(v)
}

// decides is holds after all optional paths have been looked at, which skips the operation where one leads nowhere.
func (n *naive) decides(p value.Value) bool {
	n.look(p, true)
	n.look(p, false)
	return n.holds(p)
}

// look goes through all operands of a predicate, whatever the others are: through the optional paths outside of
// operators, or through everything.
func (n *naive) look(p value.Value, optional bool) {
	at := func(v value.Value) {
		if optional {
			n.optional(v)
		} else {
			n.value(v)
		}
	}
	name, o := p.Members()[0].Key, p.Members()[0].Value
	switch name {
	case "and", "or":
		for _, q := range o.Elems() {
			n.look(q, optional)
		}
	case "not":
		n.look(o, optional)
	case "exists":
	case "in", "not_in":
		at(o.Index(0))
		n.array(o.Index(1))
	case "equals", "eq", "not_equals", "gt", "gte", "lt", "lte":
		at(o)
	case "every", "some":
		for _, elem := range n.array(o.Get("in")).Elems() {
			n.with(binding(o), elem).look(o.Get("match"), optional)
		}
	default:
		for _, m := range o.Members() {
			if m.Key == "array" || m.Key == "items" {
				n.array(m.Value)
			} else {
				at(m.Value)
			}
		}
	}
}

func (n *naive) holds(p value.Value) bool {
	name, o := p.Members()[0].Key, p.Members()[0].Value
	switch name {
	case "and", "or":
		for _, q := range o.Elems() {
			if n.holds(q) == (name == "or") {
				return name == "or"
			}
		}
		return name == "and"
	case "not":
		return !n.holds(o)
	case "exists":
		v, _ := n.find(o.Str())
		return !v.IsMissing()
	case "includes":
		v := n.value(o.Get("value"))
		return has(n.array(o.Get("array")), v)
	case "minItems":
		arr, limit := n.array(o.Get("array")), n.value(o.Get("min"))
		order, ok := value.Compare(value.Int(int64(arr.Len())), limit)
		return arr.Kind() == value.Array && ok && order >= 0
	case "maxItems":
		arr, limit := n.array(o.Get("array")), n.value(o.Get("max"))
		order, ok := value.Compare(value.Int(int64(arr.Len())), limit)
		return arr.Kind() == value.Array && ok && order <= 0
	case "expired":
		from, age := n.value(o.Get("timestamp")), n.value(o.Get("maxAgeSeconds"))
		now := follow(n.event, "metadata.timestamp")
		if v := o.Get("now"); !v.IsMissing() {
			now = n.value(v)
		}
		passed, ok := value.Sub(now, from)
		order, comparable := value.Compare(passed, age)
		return ok && comparable && order > 0
	case "every", "some":
		arr := n.array(o.Get("in"))
		if arr.Kind() != value.Array {
			return false
		}
		for _, elem := range arr.Elems() {
			if n.with(binding(o), elem).holds(o.Get("match")) == (name == "some") {
				return name == "some"
			}
		}
		return name == "every"
	case "subset_of":
		items, arr := n.array(o.Get("items")), n.array(o.Get("array"))
		if items.Kind() != value.Array || arr.Kind() != value.Array {
			return false
		}
		for _, v := range items.Elems() {
			if !has(arr, v) {
				return false
			}
		}
		return true
	}
	left := n.value(o.Index(0))
	if name == "in" || name == "not_in" {
		return has(n.array(o.Index(1)), left) == (name == "in")
	}
	right := n.value(o.Index(1))
	order, comparable := value.Compare(left, right)
	switch name {
	case "equals", "eq":
		return value.Equal(left, right)
	case "not_equals":
		return !value.Equal(left, right)
	case "gt":
		return comparable && order > 0
	case "gte":
		return comparable && order >= 0
	case "lt":
		return comparable && order < 0
	case "lte":
		return comparable && order <= 0
	default:
		panic("unknown predicate " + name)
	}
}

func has(arr, v value.Value) bool {
	return slices.ContainsFunc(arr.Elems(), func(elem value.Value) bool { return value.Equal(elem, v) })
}
