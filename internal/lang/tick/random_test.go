package tick_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// generator draws handlers that compile, and states and events that they have something to do with: the members "l" and
// "m" are mostly arrays of objects, "t" an array of scalars, "o" and "p" objects, "n" and "k" numbers, "s" a string.
type generator struct {
	*rapid.T
	// bindings are the names that may be used.
	bindings []string
	ops      int
}

func (g *generator) pick(label string, from ...string) string {
	return rapid.SampledFrom(from).Draw(g.T, label)
}

func (g *generator) one(in int) bool { return rapid.IntRange(1, in).Draw(g.T, "one in") == 1 }

func (g *generator) member() string {
	return g.pick("member", "l", "m", "t", "o", "p", "n", "k", "s")
}

// field is a member of elements and of objects inside.
func (g *generator) field() string { return g.pick("field", "id", "v", "n", "l", "o", "s") }

// statePath draws a state path, mostly one to a member of the given names.
func (g *generator) statePath(names ...string) string {
	if g.one(6) {
		names = []string{g.member()}
	}
	p := g.pick("name", names...)
	if p == "" {
		return p
	}
	switch rapid.IntRange(0, 11).Draw(g.T, "path") {
	case 0:
		p += "." + g.field()
	case 1:
		p += g.pick("index", "[0]", "[1]", "[-1]", "[-2]", "[7]")
	case 2:
		p += g.pick("index", "[0]", "[-1]") + "." + g.field()
	case 3:
		p = "o." + p
	case 4:
		if g.one(3) {
			p = ""
		}
	}
	return p
}

// path draws a path with a root.
func (g *generator) path() string {
	var p string
	switch rapid.IntRange(0, 9).Draw(g.T, "root") {
	case 0:
		p = g.pick(
			"event", "$.key", "$.type", "$.metadata.timestamp", "$.metadata.actor.id", "$.metadata.actor", "$.metadata",
			"$.data", "$",
		)
	case 1, 2, 3:
		p = "$.data." + g.statePath("id", "v", "n", "l", "o", "s")
	case 4:
		p = "$.state." + g.statePath("l", "o", "n", "s")
	case 5, 6:
		p = "@." + g.statePath("l", "o", "n", "s", "id", "v")
	case 7:
		p = g.pick("whole", "@", "$.state", "@.l", "@.o")
	default:
		if len(g.bindings) == 0 {
			return "$.data.v"
		}
		p = g.pick("binding", g.bindings...)
		if !g.one(3) {
			p += "." + g.field()
		}
	}
	p = strings.TrimSuffix(p, ".")
	if g.one(12) {
		p += ".$entries"
	}
	if p != "@" && g.one(8) {
		p += "?"
	}
	return p
}

func str(s string) value.Value { return value.StringValue(s) }

func obj(pairs ...any) value.Value {
	var members []value.Member
	for i := 0; i < len(pairs); i += 2 {
		v, ok := pairs[i+1].(value.Value)
		if !ok {
			v = str(fmt.Sprint(pairs[i+1]))
		}
		members = append(members, value.Member{Key: fmt.Sprint(pairs[i]), Value: v})
	}
	return value.ObjectValue(members...)
}

func (g *generator) scalar() value.Value {
	switch rapid.IntRange(0, 7).Draw(g.T, "scalar") {
	case 0:
		return value.NullValue()
	case 1:
		return value.BoolValue(g.one(2))
	case 2, 3:
		return str(g.pick("text", "x", "y", "", "@bob", "done"))
	default:
		v, err := value.ParseString(
			g.pick("number", "0", "1", "2", "1.0", "0.1", "-3", "1700000030", "123456789012345678901", "2e1"),
		)
		if err != nil {
			g.Fatal(err)
		}
		return v
	}
}

// tree draws plain JSON.
func (g *generator) tree(depth int) value.Value {
	if depth == 0 || g.one(2) {
		return g.scalar()
	}
	if g.one(2) {
		return g.array(depth)
	}
	var pairs []any
	for _, name := range []string{"id", "v", "n", "l", "o", "s"} {
		if g.one(3) {
			pairs = append(pairs, name, g.tree(depth-1))
		}
	}
	return obj(pairs...)
}

func (g *generator) array(depth int) value.Value {
	elems := make([]value.Value, rapid.IntRange(0, 4).Draw(g.T, "length"))
	for i := range elems {
		elems[i] = g.tree(depth - 1)
	}
	return value.ArrayValue(elems...)
}

// items draws an array of objects with ids.
func (g *generator) items() value.Value {
	elems := make([]value.Value, rapid.IntRange(0, 4).Draw(g.T, "length"))
	for i := range elems {
		elems[i] = g.item()
	}
	return value.ArrayValue(elems...)
}

func (g *generator) item() value.Value {
	return obj("id", g.scalar(), "v", g.tree(2), "n", g.scalar(), "l", g.array(2))
}

func (g *generator) state() value.Value {
	if g.one(8) {
		return g.tree(3)
	}
	var pairs []any
	add := func(name string, v value.Value) {
		switch {
		case g.one(8):
		case g.one(12):
			pairs = append(pairs, name, g.tree(1))
		default:
			pairs = append(pairs, name, v)
		}
	}
	add("l", g.items())
	add("m", g.items())
	add("t", g.array(1))
	add("o", g.tree(3))
	add("p", obj("id", g.items(), "v", obj("v", g.scalar())))
	add("n", g.scalar())
	add("k", value.Int(5))
	add("s", g.scalar())
	return obj(pairs...)
}

func (g *generator) data() value.Value {
	return obj(
		"id", g.scalar(), "v", g.tree(3), "n", g.scalar(), "l", g.items(), "o", g.tree(3), "s",
		str(g.pick("key", "id", "v", "x", "2020-09-25t01:22:02.5z", "2016-12-31T23:59:60Z", "P1Y2M3DT4H5M6S")),
	)
}

// value draws a template.
func (g *generator) value(depth int) value.Value {
	kind := rapid.IntRange(-4, 9).Draw(g.T, "value")
	if depth == 0 && (kind > 6 || kind < -2) {
		kind = 0
	}
	switch kind {
	case -4:
		return g.translation(depth - 1)
	case -3:
		return g.choice(g.value(depth-1), g.value(depth-1))
	case -2:
		return g.operator(depth)
	case -1:
		return g.text()
	case 0, 1, 2:
		return str(g.path())
	case 3:
		return obj("$", g.path())
	case 4, 5:
		return g.scalar()
	case 6:
		return obj("$literal", g.tree(2))
	case 7:
		items := make([]value.Value, rapid.IntRange(0, 3).Draw(g.T, "items"))
		for i := range items {
			if g.one(2) {
				items[i] = str(g.path())
			} else {
				items[i] = g.object(depth - 1)
			}
		}
		return obj("$merge", value.ArrayValue(items...))
	case 8:
		return value.ArrayValue(g.value(depth-1), g.value(depth-1))
	default:
		return g.object(depth - 1)
	}
}

// translation draws what splits or joins texts, reads a number or translates a value.
func (g *generator) translation(depth int) value.Value {
	of := str(g.pick("text", "$.data.s", "@.s", "$.data.id", "@.l[0].s", "$.data.v?"))
	switch rapid.IntRange(0, 4).Draw(g.T, "translation") {
	case 0:
		pairs := []any{"$split", of, "by", g.pick("by", ":", "e", "2", "$.data.s")}
		for _, name := range []string{"limit", "part"} {
			if g.one(2) {
				pairs = append(pairs, name, value.Int(int64(rapid.IntRange(1, 3).Draw(g.T, name))))
			}
		}
		return obj(pairs...)
	case 1:
		of = str(g.pick("array", "@.t", "$.data.l", "$.data.l[0].l"))
		if g.one(2) {
			of = value.ArrayValue(str(g.path()), str(g.path()))
		}
		return obj("$join", of, "by", g.pick("by", "", " / ", "$.data.s"))
	case 2:
		return obj("$number", str(g.path()))
	case 3:
		return obj("$number", obj("$split", "$.data.s", "by", g.pick("by", "-", "T", "Y"), "part", value.Int(0)))
	default:
		pairs := []any{"$case", str(g.path()), "of", value.ArrayValue(
			value.ArrayValue(g.scalar(), g.value(depth)), value.ArrayValue(str(g.path()), g.value(depth)),
		)}
		if g.one(2) {
			pairs = append(pairs, "else", g.value(depth))
		}
		return obj(pairs...)
	}
}

// choice draws an $if of two values, now and then without an else.
func (g *generator) choice(then, other value.Value) value.Value {
	pairs := []any{"$if", g.predicate(1), "then", then}
	if g.one(4) {
		return obj(pairs...)
	}
	return obj(append(pairs, "else", other)...)
}

func (g *generator) object(depth int) value.Value {
	var pairs []any
	for _, name := range []string{"id", "v", "n", "l"} {
		if g.one(2) {
			pairs = append(pairs, name, g.value(depth))
		}
	}
	return obj(pairs...)
}

// mergeable draws a template that may be an object.
func (g *generator) mergeable() value.Value {
	switch {
	case g.one(3):
		return str(g.pick("object", "$.data", "$.data.o", "$.data.v", "@.o", "@.p", "$.state.p"))
	case g.one(2):
		return obj("$merge", value.ArrayValue(str(g.path()), g.object(1)))
	case g.one(6): // with an else: without one, a condition that never holds makes null, which does not compile here
		return obj("$if", g.predicate(1), "then", g.object(1), "else", str(g.pick("object", "$.data.o", "@.o")))
	default:
		return g.object(2)
	}
}

// arrayOperand draws a value for where an array has to stand.
func (g *generator) arrayOperand() value.Value {
	switch rapid.IntRange(0, 5).Draw(g.T, "array operand") {
	case 0:
		return g.array(2)
	case 1:
		return str(g.path())
	case 2:
		return str("$.data.l")
	case 3:
		return str("@." + g.pick("array", "l", "m", "t"))
	default:
		if p := g.statePath("l", "m", "t"); p != "" {
			return str(p)
		}
		return str("l")
	}
}

func (g *generator) predicate(depth int) value.Value {
	kind := rapid.IntRange(0, 13).Draw(g.T, "predicate")
	if depth == 0 && kind > 9 {
		kind = 0
	}
	switch kind {
	case 0, 1:
		return obj(g.pick("comparison", "equals", "eq", "not_equals"), value.ArrayValue(g.value(1), g.value(1)))
	case 2:
		return obj(g.pick("comparison", "gt", "gte", "lt", "lte"), value.ArrayValue(g.value(0), g.value(0)))
	case 3:
		return obj(g.pick("membership", "in", "not_in"), value.ArrayValue(g.value(0), g.arrayOperand()))
	case 4:
		return obj("exists", g.path())
	case 5:
		return obj("includes", obj("array", g.arrayOperand(), "value", g.value(0)))
	case 6:
		return obj(
			"minItems", obj("array", g.arrayOperand(), "min", value.Int(int64(rapid.IntRange(0, 3).Draw(g.T, "min")))),
		)
	case 7:
		return obj(
			"maxItems", obj("array", g.arrayOperand(), "max", value.Int(int64(rapid.IntRange(0, 3).Draw(g.T, "max")))),
		)
	case 8:
		o := obj("timestamp", g.path(), "maxAgeSeconds", value.Int(20), "now", "$.metadata.timestamp")
		if g.one(2) {
			o = value.ObjectValue(o.Members()[:2]...)
		}
		return obj("expired", o)
	case 9:
		return obj("subset_of", obj("items", g.arrayOperand(), "array", g.arrayOperand()))
	case 10:
		return obj("not", g.predicate(depth-1))
	case 11:
		return obj(g.pick("list", "and", "or"), value.ArrayValue(g.predicate(depth-1), g.predicate(depth-1)))
	default:
		in := g.arrayOperand()
		var match value.Value
		o := []any{"in", in}
		g.named(&o, func() { match = g.predicate(depth - 1) })
		return obj(g.pick("quantifier", "every", "some"), obj(append(o, "match", match)...))
	}
}

// named draws inside with a binding for elements, which gets a name of its own now and then.
func (g *generator) named(pairs *[]any, inside func()) {
	name := "$item"
	if g.one(3) {
		name = g.pick("as", "$a", "$b", "$item")
		*pairs = append(*pairs, "as", name)
	}
	outer := g.bindings
	g.bindings = append(slices.Clip(outer), name, name)
	inside()
	g.bindings = outer
}

func (g *generator) fields() value.Value {
	pairs := []any{g.pick("field", "id", "n", "v.id", "l[0]"), g.value(0)}
	if g.one(4) {
		pairs = append(pairs, "s", g.value(0))
	}
	return obj(pairs...)
}

func (g *generator) operations(depth int) value.Value {
	most := 3
	if depth == 1 {
		most = 5
	}
	var ops []value.Value
	for range rapid.IntRange(1, most).Draw(g.T, "operations") {
		ops = append(ops, g.operation(depth))
	}
	if g.ops < 60 && g.one(4) {
		ops = append(ops, g.scenario(depth)...)
	}
	if len(ops) == 1 && g.one(3) {
		return ops[0]
	}
	return value.ArrayValue(ops...)
}

// scenario draws operations that depend on each other: something is kept or bound, then changed where it came from,
// then used.
func (g *generator) scenario(depth int) []value.Value {
	g.ops += 7
	list := g.pick("list", "l", "m")
	change := []value.Value{
		obj("set", obj("target", list+"[0].v", "value", g.value(1))),
		obj("merge", obj("target", list+"[0]", "value", g.mergeable())),
		obj("append", obj("target", list+"[0].l", "value", g.value(1))),
		obj("update_where", obj("target", list, "match", obj("exists", "$item.id"), "merge", g.object(1))),
	}[rapid.IntRange(0, 3).Draw(g.T, "change")]
	switch rapid.IntRange(0, 2).Draw(g.T, "scenario") {
	case 0:
		name := g.pick("let", "$a", "$b")
		first := obj("let", obj("name", name, "find", obj("in", list, "where", obj("exists", "$item.id"))))
		g.bindings = append(slices.Clip(g.bindings), name)
		return []value.Value{
			change, first, change, obj("set", obj("target", "o", "value", name+g.pick("part", "", ".l", ".v"))),
		}
	case 1:
		return []value.Value{
			change, obj("set", obj("target", "o.x", "value", "@."+list+g.pick("part", "", "[0]", "[0].l"))), change,
		}
	}
	if depth+1 > tick.MaxNesting {
		return nil
	}
	// A binding inside hides one outside, and is forgotten with the element.
	name := g.pick("let", "$a", "$item")
	find := obj("let", obj("name", name, "find", obj("in", "$.data.l", "where", g.fields())))
	use := obj("set", obj("target", "s", "value", name+g.pick("part", "", ".id", ".id?")))
	inner := []value.Value{use, find, use}
	if g.one(2) {
		inner = []value.Value{obj(
			"if", obj("some", obj("in", "@.l", "as", name, "match", obj("exists", name))), "then", inner[1], "else",
			inner[0],
		), use}
	}
	g.bindings = append(slices.Clip(g.bindings), name)
	return []value.Value{
		find,
		obj("map", obj("target", list, "as", g.pick("as", "$b", name), "apply", value.ArrayValue(inner...))),
		use,
	}
}

func (g *generator) operation(depth int) value.Value {
	g.ops++
	kind := rapid.IntRange(-5, 21).Draw(g.T, "operation")
	if (depth > tick.MaxNesting || g.ops > 60) && kind > 17 {
		kind = 0
	}
	switch kind {
	case -5, -4, -3:
		return obj("move", obj("from", g.statePath(g.member()), "to", g.statePath(g.member(), "new")))
	case -2:
		return obj("drop", obj("target", g.statePath(g.member())))
	case -1:
		return obj("default", obj("target", g.statePath(g.member(), "new"), "value", g.value(2)))
	case 21:
		o := []any{"target", g.statePath("o", "p", "l[0]")}
		var apply value.Value
		g.named(&o, func() { apply = g.operations(depth + 1) })
		return obj("map_values", obj(append(o, "apply", apply)...))
	case 0, 1:
		return obj("set", obj("target", g.statePath(g.member()), "value", g.value(3)))
	case 2:
		return obj("merge", obj("target", g.statePath("o", "p", "l[0]", ""), "value", g.mergeable()))
	case 3:
		return obj("append", obj("target", g.statePath("l", "m", "t"), "value", g.value(2)))
	case 4:
		if g.one(2) {
			return obj("append_unique", obj(
				"target", g.statePath("l", "m"), "value", g.mergeable(), "uniqueField",
				g.pick("field", "id", "n", "o.id"),
			))
		}
		return obj("append_unique", obj("target", g.statePath("t", "l"), "value", g.value(1)))
	case 5, 6:
		return obj(
			g.pick("sum", "increment", "decrement"),
			obj("target", g.statePath("n", "k", "l[0].n"), g.pick("by", "by", "value"), g.amount()),
		)
	case 7:
		return obj("remove", obj("target", g.statePath("t"), "value", g.value(1)))
	case 8:
		o := []any{"target", g.statePath("l", "m", "t")}
		var m value.Value
		g.named(&o, func() { m = g.predicate(1) })
		if g.one(2) {
			return obj("remove", obj("target", o[1], g.pick("form", "where", "match"), g.fields()))
		}
		return obj("remove", obj(append(o, g.pick("form", "where", "match"), m)...))
	case 9:
		o := []any{"target", g.statePath("l", "m", "t")}
		var keep value.Value
		g.named(&o, func() { keep = g.predicate(2) })
		return obj("filter", obj(append(o, "keep", keep)...))
	case 10, 11:
		o := []any{"target", g.statePath("l", "m")}
		var m, merge value.Value
		g.named(&o, func() {
			if m = g.predicate(1); g.one(2) {
				m = value.Value{}
			}
			merge = g.mergeable()
		})
		if m.IsMissing() {
			m = g.fields()
		}
		return obj("update_where", obj(append(o, "match", m, "merge", merge)...))
	case 12, 13:
		o := []any{"target", g.statePath("l", "m"), "match", g.fields(), "value", g.value(2)}
		return obj("upsert", obj(o...))
	case 14:
		return obj("set_at", obj("target", g.statePath("o", "p"), "key", g.key(), "value", g.value(2)))
	case 15:
		return obj("merge_at", obj("target", g.statePath("o", "p"), "key", g.key(), "value", g.mergeable()))
	case 16:
		return obj("remove_at", obj("target", g.statePath("o", "p", "l[0]"), "key", g.key()))
	case 17:
		return obj(
			g.pick("sum at", "increment_at", "decrement_at"),
			obj("target", g.statePath("o", "p", "l[0]"), "key", g.key(), "by", g.amount()),
		)
	case 18:
		test := g.predicate(3)
		if g.one(2) {
			return obj("if", test, "then", g.operations(depth+1))
		}
		then := g.operations(depth + 1)
		return obj("if", test, "then", then, "else", g.operations(depth+1))
	case 19:
		return g.let()
	default:
		o := []any{"target", g.statePath("l", "m")}
		var apply value.Value
		g.named(&o, func() { apply = g.operations(depth + 1) })
		return obj("map", obj(append(o, "apply", apply)...))
	}
}

func (g *generator) amount() value.Value {
	if g.one(4) {
		return g.operator(1)
	}
	if g.one(6) {
		return g.choice(str(g.pick("amount", "$.data.n", "@.k")), g.numberLiteral())
	}
	if g.one(2) {
		return str(g.pick("amount", "$.data.n", "@.n", "@.k", "$.data.n?", "$.state.n"))
	}
	return g.numberLiteral()
}

func (g *generator) numberLiteral() value.Value {
	v, err := value.ParseString(g.pick("number", "1", "0.1", "-2", "100000000000000000000", "1e2"))
	if err != nil {
		g.Fatal(err)
	}
	return v
}

func (g *generator) key() value.Value {
	return str(g.pick("key", "id", "v", "x", "$.data.s", "$.data.s", "$.data.v", "$.type", "@.s?"))
}

func (g *generator) let() value.Value {
	name := g.pick("let", "$a", "$b", "$item")
	var o value.Value
	if g.one(3) {
		o = obj(
			"name", name, "find_target", g.arrayOperand(), "find_field", g.pick("field", "id", "n"), "find_value",
			g.value(0),
		)
	} else {
		find := []any{"in", g.arrayOperand()}
		if g.one(2) {
			find = append(find, "where", g.fields())
		} else {
			var m value.Value
			g.named(&find, func() { m = g.predicate(1) })
			find = append(find, "where", m)
		}
		o = obj("name", name, "find", obj(find...))
	}
	g.bindings = append(slices.Clip(g.bindings), name)
	return obj("let", o)
}

func checkRandomHandlers(t *rapid.T) {
	handlers := map[string]value.Value{}
	types := []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "types")]
	for _, typ := range types {
		g := &generator{T: t}
		handlers[typ] = g.operations(1)
	}
	g := &generator{T: t}
	state := g.state()
	events := make([]event, rapid.IntRange(1, 4).Draw(t, "events"))
	for i := range events {
		events[i] = newEvent(rapid.SampledFrom(types).Draw(t, "type"), g.data(), firstTime+60*int64(i))
	}
	history(t, handlers, state, events, false)
}

// What a handler reads of an event is all that can influence the state.
func TestReadsIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{T: t}
		handler := g.operations(1)
		state := g.state()
		ev := newEvent("a", g.data(), firstTime)
		var l diag.List
		h := tick.CompileHandler(handler, "", &l)
		if h == nil {
			t.Fatalf("%s does not compile: %v", handler, l.All())
		}
		want := apply(t, h, value.NewEditor(), state, ev.raw(), nil)
		read := func(name string) bool {
			for _, p := range h.Reads() {
				if p == "$" || p == "$.data" || p == "$.data."+name || strings.HasPrefix(p, "$.data."+name+".") ||
					strings.HasPrefix(p, "$.data."+name+"[") {
					return true
				}
			}
			return false
		}
		var members []value.Member
		for _, m := range ev.data.Members() {
			if read(m.Key) {
				members = append(members, m)
			}
		}
		ev.data = value.ObjectValue(members...)
		if got := apply(t, h, value.NewEditor(), state, ev.raw(), nil); got.String() != want.String() {
			t.Fatalf("%s reads %v, and without the rest of the event its result is\n%s, not\n%s", handler, h.Reads(), got, want)
		}
	})
}

// upcast draws a step of an upcast: the operations of a handler, but that there is no state.
func (g *generator) upcast() value.Value {
	src := strings.ReplaceAll(g.operations(1).String(), `"$.state`, `"$.data`)
	v, err := value.ParseString(src)
	if err != nil {
		g.Fatal(err)
	}
	return v
}

// checkRandomUpcasts takes data through up to three steps, in a way that changes containers in place and in one that
// never does, and holds both against the reference. The first operation that does not fit in the reference has to end
// the step at its place, with the data as they were.
func checkRandomUpcasts(t *rapid.T) {
	g := &generator{T: t}
	data := g.state()
	inPlace := value.NewEditor()
	mine := data
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		g.ops, g.bindings = 0, nil
		step := g.upcast()
		u := compileUpcast(t, step)
		ev := newEvent("happened", data, firstTime)
		before := data.String()
		next, misfit := upcastOf(t, u, data)
		if misfit != nil && limited(tick.Fault{Message: misfit.Message}) || len(before) > largeState {
			return
		}
		want, faults := naiveApply(step, data, ev.tree())
		if data.String() != before {
			t.Fatalf("%s changes data that were\n%s into\n%s", step, before, data)
		}

		// What does not fit has a place and changes nothing.
		given := ev.raw()
		if g.one(2) {
			given.Data = tick.Parsed(mine)
		}
		also, err := u.Apply(inPlace, mine, given, work.New(t.Context(), work.Replay))
		switch {
		case (misfit != nil) != (len(faults) > 0) || (misfit != nil) != (err != nil):
			t.Fatalf("%s on %s: %v and %v, want the faults %v", step, data, misfit, err, faults)
		case misfit != nil && !strings.HasPrefix(string(misfit.Pointer), "/upcast"+faults[0]):
			t.Fatalf("%s on %s: %v, want the place %s", step, data, misfit, faults[0])
		case misfit != nil && next.String() != before:
			t.Fatalf("%s does not fit, and makes\n%s of\n%s", step, next, before)
		case misfit != nil:
			return
		}
		for _, got := range []value.Value{next, also} {
			if got.String() != want.String() || got.Size() != len(want.String()) {
				t.Fatalf("%s makes of\n%s\n%s (%d bytes), want\n%s", step, before, got, got.Size(), want)
			}
		}
		data, mine = next, also
	}
}
