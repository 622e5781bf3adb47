//go:build !race

package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	wanted "j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/lang/spec"
)

// The specs of this test have the event types e0 to e7, spread over four aggregate types. An event type implies only
// such with a higher number, so there are no circles, and chains of up to seven links. Data have the members "v" (an
// integer, of which the schema takes up to maxV), "list" (of {"id", "v"}), "obj" (ids to integers), "to" (an id) and
// "ref" (a key). The state counts the events ("n") and has the "v" of the last one ("last").
const (
	nodes = 8
	maxV  = 40
)

func homeOf(node int) string   { return string(rune('a' + node%4)) }
func eventOf(node int) string  { return "e" + strconv.Itoa(node) }
func nodeOf(event string) int  { n, _ := strconv.Atoi(event[1:]); return n }
func aggregateIDs() []string   { return []string{user, id, "global"} }
func object(kv ...any) jobject { return makeObject(kv) }

type jobject = map[string]any

func makeObject(kv []any) jobject {
	o := jobject{}
	for i := 0; i < len(kv); i += 2 {
		name, _ := kv[i].(string)
		o[name] = kv[i+1]
	}
	return o
}

// ruleGenerator draws specs and events.
type ruleGenerator struct {
	*rapid.T
	// more tells that a step of the pipeline before has added "more" to the context.
	more bool
}

func (g *ruleGenerator) upTo(n int, what string) int { return rapid.IntRange(0, n).Draw(g.T, what) }

func (g *ruleGenerator) of(what string, from ...any) any {
	return from[g.upTo(len(from)-1, what)]
}

// condition draws a predicate. item is the path of a number in the binding, "" where there is none.
func (g *ruleGenerator) condition(item string, depth int) any {
	k := g.upTo(6, "k")
	simple := []any{
		object("gt", []any{"$.data.v", k}), object("lt", []any{"$.data.v", 4 * k}),
		object("equals", []any{"$.state.n", k}),
		object("exists", "$.state.last"), object("equals", []any{"$.metadata.actor.id", user}),
		object("not_equals", []any{"$.id", "global"}),
	}
	if item != "" {
		simple = append(simple, object("gt", []any{item, k}))
	}
	if g.more {
		simple = append(simple, object("gt", []any{"$.more", k + 10}))
	}
	if depth > 0 {
		switch g.upTo(5, "composed") {
		case 0:
			return object("not", g.condition(item, depth-1))
		case 1:
			return object("and", []any{g.condition(item, depth-1), g.condition(item, depth-1)})
		case 2:
			return object("or", []any{g.condition(item, depth-1), g.condition(item, depth-1)})
		}
	}
	return g.of("condition", simple...)
}

// emit draws an emit of an event with a higher number. ids and numbers are paths into the binding.
func (g *ruleGenerator) emit(node int, ids, numbers []any) jobject {
	to := node + 1 + g.upTo(min(nodes-2-node, 2), "to")
	// Most ids are there, so that chains get long.
	targets := append(slices.Repeat([]any{"$.key", "$.id", "global", user, "$.metadata.actor.id"}, 2), ids...)
	if g.upTo(5, "odd id") == 0 {
		targets = []any{"$.data.to", "$.data.to?", "$.data.ref", "$.state.last", "$.data.v", "$.data.ref?"}
	}
	v := g.of("v", append(
		[]any{"$.data.v", g.upTo(9, "v"), object("coalesce", []any{"$.state.n", "$.data.none?", "$.data.v"})},
		numbers...,
	)...)
	data := g.of("data",
		object("v", v, "list", "$.data.list", "obj", "$.data.obj", "ref", "$.key"),
		object("merge", []any{
			"$.data", "$.state.none",
			object("v", v, "note", object("concat", []any{"$.type", "/", "$.state.n", "/", v})),
		}),
		object("v", v, "list", object("coalesce", []any{
			"$.data.list", []any{object("id", user, "v", 1)},
		}), "before", "$.state.n", "to", "$.data.to"),
		object(
			"v", v, "last", "$.state.last", "obj", object("$literal", object("global", 3, user, 4)), "plain",
			"$.state.n?",
		),
		object("v", v, "list", "$.data.list", "obj", "$.data.obj", "text", object("$literal", "$.key")),
	)
	emit := object("aggregate_type", homeOf(to), "id", g.of("id", targets...), "event_type", eventOf(to))
	if g.upTo(9, "without data") > 0 {
		emit["data"] = data
	}
	return emit
}

// implication draws an implication of an event type.
func (g *ruleGenerator) implication(node int, step bool) jobject {
	imp := jobject{}
	if g.upTo(2, "conditional") == 0 {
		imp["condition"] = g.condition("", 2)
	}
	kind := g.upTo(9, "kind")
	switch {
	case kind < 4:
		imp["emit"] = g.emit(node, nil, numbersOf(g.more))
	case kind < 8 || step:
		m := object("as", "$x", "in", "$.data.list")
		ids, number := []any{"$x.id", "$x.id"}, "$x.v"
		switch g.upTo(7, "in") {
		case 0, 1, 2:
			m["in"], ids, number = "$.data.obj.$entries", []any{"$x.key", "$x.key"}, "$x.value"
		case 3:
			m["in"] = g.of("no array", "$.data.v", "$.data.none", "$.state.$entries", "$.data.obj")
			if m["in"] == "$.state.$entries" {
				ids, number = nil, "$x.value"
			}
		}
		if g.upTo(1, "filtered") == 0 {
			m["condition"] = g.condition(number, 1)
		}
		m["emit"] = g.emit(node, ids, append(numbersOf(g.more), number))
		imp["map"] = m
	default:
		var steps []any
		for range 1 + g.upTo(2, "steps") {
			if g.upTo(2, "transform") == 0 {
				steps = append(steps, object("wasm", object("blob_name", "more.wasm", "mode", "transform")))
				g.more = true
			}
			steps = append(steps, g.implication(node, true))
		}
		imp["pipeline"] = steps
		g.more = false
	}
	return imp
}

func numbersOf(more bool) []any {
	if more {
		return []any{"$.more"}
	}
	return nil
}

// rules draws the implications of all event types. Most specs have a backbone: a chain of many links, or two that
// multiply the elements of a list.
func (g *ruleGenerator) rules() [nodes][]jobject {
	var rules [nodes][]jobject
	backbone := g.upTo(4, "backbone")
	for node := range nodes - 1 {
		if backbone == 4 && node < 2 {
			rules[node] = append(rules[node],
				object("map", object("in", "$.data.list", "as", "$x", "emit", object("aggregate_type", homeOf(node+1),
					"id", "$x.id", "event_type", eventOf(node+1), "data", object("v", "$x.v", "list", "$.data.list")))))
		}
		if backbone > 0 && backbone < 4 && (node < 5 || g.upTo(3, "longer") == 0) {
			rules[node] = append(rules[node],
				object("emit", object("aggregate_type", homeOf(node+1), "id", g.of("id", "$.key", "global", "$.id"),
					"event_type", eventOf(node+1), "data", "$.data")))
		}
		for range g.upTo(2, "implications") {
			rules[node] = append(rules[node], g.implication(node, false))
		}
	}
	return rules
}

func (g *ruleGenerator) data() jobject {
	id := func() any { return g.of("id", user, id, "global") }
	data := object("v", g.upTo(maxV, "v"))
	if g.upTo(4, "list") > 0 {
		list := []any{}
		factor, _ := g.of("factor", 1, 1, 3, 3, 10).(int)
		for range g.upTo(4, "length") * factor {
			list = append(list, object("id", id(), "v", g.upTo(8, "item")))
		}
		data["list"] = list
	}
	if g.upTo(4, "obj") > 0 {
		obj := jobject{}
		for range g.upTo(3, "members") {
			name, _ := id().(string)
			obj[name] = g.upTo(8, "member")
		}
		data["obj"] = obj
	}
	if g.upTo(2, "to") == 0 {
		data["to"] = g.of("to", user, "global", "nobody")
	}
	if g.upTo(2, "ref") == 0 {
		data["ref"] = fmt.Sprintf("%s:%s", g.of("type", "a", "b", "c", "d"), id())
	}
	return data
}

func specOf(tb rapid.TB, rules *[nodes][]jobject) string {
	types := jobject{}
	for node := range nodes {
		home, _ := types[homeOf(node)].(jobject)
		if home == nil {
			home = object("events", jobject{})
			types[homeOf(node)] = home
		}
		events, _ := home["events"].(jobject)
		et := object("schema",
			object("type", "object", "properties", object("v", object("type", "integer", "maximum", maxV))),
			"handler", []any{
				object("increment", object("target", "n", "by", 1)),
				object("set", object("target", "last", "value", "$.data.v")),
			})
		if len(rules[node]) > 0 {
			et["implications"] = rules[node]
		}
		events[eventOf(node)] = et
	}
	return text(tb, object("agent_types", []any{"user"}, "aggregate_types", types))
}

func text(tb rapid.TB, v any) string {
	tb.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

// plain makes of any tree what encoding/json reads from its text: all numbers are float64.
func plain(tb rapid.TB, v any) any {
	tb.Helper()
	var out any
	if err := json.Unmarshal([]byte(text(tb, v)), &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

// happening is an event as the oracle sees it. by is the implied_by of its metadata, nil for one of the request.
type happening struct {
	Key, Event string
	Data       any
	By         *impliedBy
	own        int
}

type impliedBy struct {
	Key   string `json:"key"`
	Event string `json:"event_type"`
	Depth int    `json:"depth"`
}

// oracle says what should happen, in the plainest way. state has the states by key as they are before the request.
type oracle struct {
	rules *[nodes][]jobject
	state map[string]jobject
	// total counts what each event of the request implies, and seen what there was of everything.
	total map[int]int
	seen  map[string]int
}

// refused ends the work of the oracle.
type refused struct{ code j17.Code }

// expand returns the events of a level and all that they bring about, level by level.
func (o *oracle) expand(level []happening) []happening {
	var next []happening
	for _, h := range level {
		doc := object("key", h.Key, "id", h.Key[2:], "type", h.Event, "data", h.Data, "state", o.before(h.Key),
			"metadata", object("actor", object("type", "user", "id", user), "timestamp", 1_700_000_000.0))
		for _, imp := range o.rules[nodeOf(h.Event)] {
			next = append(next, o.imply(h, imp, doc, nil)...)
		}
	}
	if len(next) == 0 {
		return level
	}
	return append(slices.Clone(level), o.expand(next)...)
}

func (o *oracle) before(key string) jobject {
	if s := o.state[key]; s != nil {
		return s
	}
	return jobject{}
}

func (o *oracle) imply(h happening, imp, doc jobject, item any) []happening {
	if c := imp["condition"]; c != nil && !holds(c, doc, item) {
		return nil
	}
	var out []happening
	switch {
	case imp["emit"] != nil:
		emit, _ := imp["emit"].(jobject)
		return o.emit(h, emit, doc, item)
	case imp["map"] != nil:
		o.seen["map"]++
		m, _ := imp["map"].(jobject)
		list, _ := look(m["in"], doc, nil)
		elems, _ := list.([]any)
		for _, elem := range elems {
			inner := object("emit", m["emit"], "condition", m["condition"])
			out = append(out, o.imply(h, inner, doc, elem)...)
		}
	case imp["pipeline"] != nil:
		o.seen["pipeline"]++
		steps, _ := imp["pipeline"].([]any)
		for _, step := range steps {
			s, _ := step.(jobject)
			if s["wasm"] != nil {
				data, _ := doc["data"].(jobject)
				v, _ := data["v"].(float64)
				doc = maps.Clone(doc)
				doc["more"] = v + 10
			}
			out = append(out, o.imply(h, s, doc, item)...)
		}
	}
	return out
}

func (o *oracle) emit(h happening, emit, doc jobject, item any) []happening {
	target, found := look(emit["id"], doc, item)
	path, _ := emit["id"].(string)
	if !found && strings.HasSuffix(path, "?") {
		return nil
	}
	data, all := any(jobject{}), true
	if emit["data"] != nil {
		data, all = evaluated(emit["data"], doc, item)
	}
	if !all {
		return nil
	}
	home, _ := emit["aggregate_type"].(string)
	event, _ := emit["event_type"].(string)
	depth := 1
	if h.By != nil {
		depth = h.By.Depth + 1
	}
	if depth > 5 {
		o.seen["depth"]++
		panic(refused{j17.CodeImplicationLimit})
	}
	if o.total[h.own]++; o.total[h.own] > 100 {
		o.seen["total"]++
		panic(refused{j17.CodeImplicationLimit})
	}
	to, _ := target.(string)
	if typ, id, ok := strings.Cut(to, ":"); ok && (typ == home || typ == h.Key[:1]) {
		to = id
	}
	members, isObject := data.(jobject)
	v, isNumber := members["v"].(float64)
	_, has := members["v"]
	if !slices.Contains(aggregateIDs(), to) || !isObject || has && (!isNumber || v > maxV) {
		o.seen["refused"]++
		panic(refused{j17.CodeImplicationFailed})
	}
	o.seen["depth "+strconv.Itoa(depth)]++
	return []happening{
		{Key: home + ":" + to, Event: event, Data: data, By: &impliedBy{h.Key, h.Event, depth}, own: h.own},
	}
}

// look follows a path, or returns what stands for itself.
func look(v any, doc jobject, item any) (any, bool) {
	path, isText := v.(string)
	if !isText || !strings.HasPrefix(path, "$") {
		return v, true
	}
	steps := strings.Split(strings.TrimSuffix(path, "?"), ".")
	at := any(doc)
	if steps[0] == "$x" {
		at = item
	}
	for _, step := range steps[1:] {
		members, ok := at.(jobject)
		if step == "$entries" {
			entries := []any{}
			for _, name := range slices.Sorted(maps.Keys(members)) {
				entries = append(entries, object("key", name, "value", members[name]))
			}
			if !ok {
				return nil, true
			}
			at = entries
			continue
		}
		member, has := members[step]
		if !has {
			return nil, false
		}
		at = member
	}
	return at, true
}

// evaluated evaluates a template. It reports false where an optional path leads nowhere.
func evaluated(v any, doc jobject, item any) (any, bool) {
	switch v := v.(type) {
	case string:
		at, found := look(v, doc, item)
		return at, found || !strings.HasSuffix(v, "?")
	case []any:
		out, all := []any{}, true
		for _, e := range v {
			at, ok := evaluated(e, doc, item)
			out, all = append(out, at), all && ok
		}
		return out, all
	case jobject:
		if literal, ok := v["$literal"]; ok {
			return literal, true
		}
		if args, ok := v["coalesce"].([]any); ok {
			for _, arg := range args {
				if at, ok := evaluated(arg, doc, item); ok && at != nil {
					return at, true
				}
			}
			return nil, true
		}
		if args, ok := v["concat"].([]any); ok {
			list, all := evaluated(args, doc, item)
			joined := ""
			for _, e := range list.([]any) { //nolint:forcetypeassert,errcheck // an array yields one
				switch e := e.(type) {
				case string:
					joined += e
				case float64:
					joined += strconv.FormatFloat(e, 'f', -1, 64)
				}
			}
			return joined, all
		}
		if args, ok := v["merge"].([]any); ok {
			list, all := evaluated(args, doc, item)
			merged := jobject{}
			for _, e := range list.([]any) { //nolint:forcetypeassert,errcheck // an array yields one
				members, _ := e.(jobject)
				maps.Copy(merged, members)
			}
			return merged, all
		}
		out, all := jobject{}, true
		for name, e := range v {
			at, ok := evaluated(e, doc, item)
			out[name], all = at, all && ok
		}
		return out, all
	default:
		return v, true
	}
}

// holds tests a predicate. What is no number is neither greater nor less than one.
func holds(c any, doc jobject, item any) bool {
	predicate, _ := c.(jobject)
	for name, arg := range predicate {
		args, _ := arg.([]any)
		values := make([]any, len(args))
		numbers := make([]float64, len(args))
		ordered := true
		for i := range args {
			values[i], _ = look(args[i], doc, item)
			var ok bool
			numbers[i], ok = values[i].(float64)
			ordered = ordered && ok
		}
		switch name {
		case "not":
			return !holds(arg, doc, item)
		case "and":
			return holds(args[0], doc, item) && holds(args[1], doc, item)
		case "or":
			return holds(args[0], doc, item) || holds(args[1], doc, item)
		case "exists":
			_, found := look(arg, doc, item)
			return found
		case "equals":
			return cmp.Equal(values[0], values[1])
		case "not_equals":
			return !cmp.Equal(values[0], values[1])
		case "gt":
			return ordered && numbers[0] > numbers[1]
		case "lt":
			return ordered && numbers[0] < numbers[1]
		}
	}
	return false
}

// request returns all events of a request, or the code that it is refused with, and keeps the states after it.
func (o *oracle) request(own []happening) (all []happening, code j17.Code) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refused:
			all, code = nil, r.code
		default:
			panic(r)
		}
	}()
	o.total = map[int]int{}
	all = o.expand(own)
	for _, h := range all {
		s := maps.Clone(o.before(h.Key))
		n, _ := s["n"].(float64)
		s["n"], s["created_at"], s["updated_at"] = n+1, 1_700_000_000.0, 1_700_000_000.0
		data, _ := h.Data.(jobject)
		s["last"] = data["v"]
		o.state[h.Key] = s
	}
	return all, ""
}

// more adds the number "more" to the context.
func more() coded {
	return coded{"more", func(in map[string]any) (string, error) {
		event, _ := in["event"].(map[string]any)
		data, _ := event["data"].(map[string]any)
		v, _ := data["v"].(float64)
		return fmt.Sprintf(`{"context":{"more":%v}}`, v+10), nil
	}}
}

// TestImplicationsAgreeWithAnOracle draws specs and requests and compares what is written, in its order, with what a
// plain evaluation of the same rules yields. A failure shows the seed, which the flag -rapid.seed takes.
func TestImplicationsAgreeWithAnOracle(t *testing.T) {
	f := newFixture(t, engine.Options{})
	seen := map[string]int{}
	worlds := 0
	check := func(r *rapid.T) {
		worlds++
		w := &world{fixture: f, tenant: j17.Tenant(fmt.Sprintf("ins_world%d/prod", worlds))}
		g := &ruleGenerator{T: r}
		rules := g.rules()
		src := specOf(r, &rules)
		c, found := spec.Compile([]byte(src))
		if c == nil {
			r.Fatalf("%s\n%+v", src, found)
		}
		f.Deploy(w.tenant, c, functionsOf(c, map[string]coded{"more.wasm": more()}))
		for i := range rules {
			for j := range rules[i] {
				rules[i][j], _ = plain(r, rules[i][j]).(jobject)
			}
		}
		o := &oracle{rules: &rules, state: map[string]jobject{}, seen: seen}
		for range 3 {
			node := g.upTo(4, "node")
			key := homeOf(node) + ":" + aggregateIDs()[g.upTo(2, "id")]
			var own []happening
			for i := range 1 + g.upTo(2, "more events") {
				// The event types of an aggregate type are four apart.
				n := (node + 4*g.upTo(1, "event")) % nodes
				own = append(own, happening{Key: key, Event: eventOf(n), Data: plain(r, g.data()), own: i})
			}
			want, code := o.request(own)
			seen["outcome "+string(code)]++
			w.request(r, own, want, code)
			w.states(r, o.state)
		}
	}
	// What never comes about is not tested.
	all := []string{
		"map", "pipeline", "depth 5", "depth", "total", "refused", "outcome ", "outcome implication_limit",
		"outcome implication_failed",
	}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(all), func(what string) bool { return seen[what] > 0 })
	}
	for round := range 10 {
		if !t.Failed() && (round < 2 || len(missing()) > 0) {
			rapid.Check(t, check)
		}
	}
	if list := missing(); len(list) > 0 && !t.Failed() {
		t.Errorf("in %d worlds there was no %q: %v", worlds, list, seen)
	}
}

// TestTheTotalCountsEachEventOfARequestByItself draws batches whose events imply about as many others as they may.
func TestTheTotalCountsEachEventOfARequestByItself(t *testing.T) {
	f := newFixture(t, engine.Options{})
	var rules [nodes][]jobject
	rules[0] = []jobject{object("map", object("in", "$.data.list", "as", "$x", "emit",
		object("aggregate_type", "b", "id", "$x.id", "event_type", "e1", "data", object("v", "$x.v"))))}
	rules[1] = []jobject{object("condition", object("gt", []any{"$.data.v", 0}), "emit",
		object("aggregate_type", "c", "id", "$.key", "event_type", "e2", "data", object("before", "$.state.n")))}
	c, found := spec.Compile([]byte(specOf(t, &rules)))
	if c == nil {
		t.Fatal(found)
	}
	for i := range rules {
		for j := range rules[i] {
			rules[i][j], _ = plain(t, rules[i][j]).(jobject)
		}
	}
	worlds, seen := 0, map[string]int{}
	rapid.Check(t, func(r *rapid.T) {
		worlds++
		w := &world{fixture: f, tenant: j17.Tenant(fmt.Sprintf("ins_world%d/prod", worlds))}
		f.Deploy(w.tenant, c, nil)
		o := &oracle{rules: &rules, state: map[string]jobject{}, seen: seen}
		g := &ruleGenerator{T: r}
		var own []happening
		for i := range 1 + g.upTo(1, "more events") {
			// Each element of the list implies two events, but for the last ones, which imply one.
			list := []any{}
			for range 48 + g.upTo(2, "pairs") {
				list = append(list, object("id", user, "v", 1))
			}
			for range g.upTo(2, "single") {
				list = append(list, object("id", "global", "v", 0))
			}
			own = append(own, happening{Key: "a:global", Event: "e0", Data: plain(r, object("list", list)), own: i})
		}
		want, code := o.request(own)
		seen["outcome "+string(code)]++
		w.request(r, own, want, code)
	})
	if seen["outcome "] == 0 || seen["total"] == 0 {
		t.Errorf("in %d worlds the outcomes were %v", worlds, seen)
	}
}

// world is one tenant of the engine.
type world struct {
	*fixture
	tenant j17.Tenant
	last   j17.StreamID
}

// request writes the events and compares what became of them.
func (w *world) request(r *rapid.T, own, want []happening, code j17.Code) {
	events := []any{}
	for _, h := range own {
		events = append(events, object("type", h.Event, "data", h.Data))
	}
	body, err := value.ParseString(fmt.Sprintf(`{"events":%s,%s}`, text(r, events), meta))
	if err != nil {
		r.Fatal(err)
	}
	c := engine.Command{Command: wanted.Read("", body), Tenant: w.tenant}
	c.Writes[0].Type, c.Writes[0].ID = own[0].Key[:1], own[0].Key[2:]
	receipt, err := w.Execute(r.Context(), &c)
	if j17.CodeOf(err) != code {
		r.Fatalf("the outcome is %v, want %q", err, code)
	}
	if err == nil && receipt.Implied != len(want)-len(own) {
		r.Errorf("%d implied events, want %d", receipt.Implied, len(want)-len(own))
	}
	var got []happening
	for ev, err := range w.Store.ReadFeed(r.Context(), w.tenant, w.last, 10_000) {
		if err != nil {
			r.Fatal(err)
		}
		w.last = ev.StreamID
		var metadata struct {
			Actor jobject    `json:"actor"`
			By    *impliedBy `json:"implied_by"`
		}
		h := happening{Key: ev.Key.String(), Event: ev.Type}
		if err := json.Unmarshal(ev.Metadata, &metadata); err != nil {
			r.Fatal(err)
		}
		if err := json.Unmarshal(ev.Data, &h.Data); err != nil {
			r.Fatal(err)
		}
		if metadata.Actor["id"] != user {
			r.Errorf("metadata %s", ev.Metadata)
		}
		h.By = metadata.By
		got = append(got, h)
	}
	for i := range want {
		want[i].own = 0
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(happening{})); diff != "" {
		r.Fatalf("what was written differs: %s", diff)
	}
}

// states compares the states of all aggregates.
func (w *world) states(r *rapid.T, want map[string]jobject) {
	for key, state := range want {
		s, err := w.Load(r.Context(), w.tenant, key[:1], key[2:], engine.LoadOptions{})
		if err != nil {
			r.Fatal(err)
		}
		var got jobject
		if err := json.Unmarshal(s.JSON, &got); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(state, got); diff != "" {
			r.Fatalf("the state of %s differs: %s", key, diff)
		}
	}
}
