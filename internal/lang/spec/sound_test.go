//go:build !race

package spec_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// drawValue draws what stands in a handler, a predicate or a template: literals, paths to what may be there or not, and
// what is made of them. state is how a path into the state begins.
func drawValue(t *rapid.T, depth int, state string) any {
	if depth > 0 {
		switch rapid.IntRange(0, 7).Draw(t, "form") {
		case 0:
			o := object{}
			for _, name := range drawNames(t) {
				o[name] = drawValue(t, depth-1, state)
			}
			return o
		case 1:
			return []any{drawValue(t, depth-1, state)}
		case 2, 3:
			of := drawValue(t, depth-1, state)
			return rapid.SampledFrom([]any{
				object{"$add": []any{of, 1}},
				object{"$negate": of},
				object{"$min": []any{of, "$.data.a"}},
				object{"$max": []any{of}},
				object{"$lower": of},
				object{"$concat": []any{of}},
				object{"$coalesce": []any{of, "$.data.a"}},
				object{
					"$if": object{"equals": []any{"$.data.a", of}}, "then": of, "else": drawValue(t, depth-1, state),
				},
				object{"$if": object{"exists": "$.data.a"}, "then": drawValue(t, depth-1, state)},
				object{"$sum": "$.data.c"},
				object{"$add": "$.data.c"},
				object{"$sum": "$.data.c", "of": "$item.a"},
				object{"$sum": state + ".x", "of": "$item.q"},
				object{
					"$sum": state + ".y",
					"of":   rapid.SampledFrom([]any{"$item.a", "$item.q", "$item.q[0]"}).Draw(t, "element"),
				},
				object{"$count": state + ".y", "where": object{"equals": []any{"$item.a", of}}},
				object{"$count": "$.data.b"},
				object{"$now": "seconds"},
				object{"$now": "date"},
				object{"$date_trunc": of, "to": "day"},
				object{"$add_duration": []any{of, "1d"}},
				object{"$round": of, "scale": 0},
			}).Draw(t, "operator")
		case 4:
			return object{"$literal": rapid.SampledFrom([]any{"$.data.a", 1, object{"a": "s"}}).Draw(t, "literal")}
		}
	}
	return rapid.SampledFrom([]any{
		"s", "note", 7, 1.5, true, nil, "$.data.a", "$.data.b", "$.data.c", "$.data.b.a", "$.data.c[0]", "$.data.a.b.c",
		"$.data.z", "$.key", "$.type",
		"$.metadata.timestamp", "$.metadata.actor.id", "$.metadata.actor", "$.data", "$.data.b.$entries",
		state + ".x", state + ".y", state + ".w", state + ".x.q", state + ".y[0]", state + ".y[0].a", state + ".y[0].q",
		state + ".x[0].q", state + ".w.k", state + ".updated_at", state + ".nobody",
	}).Draw(t, "value")
}

// drawHandler draws operations on members that others work on too.
func drawHandler(t *rapid.T, depth int) []any {
	ops := []any{}
	for range rapid.IntRange(0, 4).Draw(t, "operations") {
		target := rapid.SampledFrom([]string{"x", "x", "x", "y", "w", "x.q", "y[0]"}).Draw(t, "target")
		of := drawValue(t, 2, "@")
		var op object
		switch rapid.IntRange(0, 11).Draw(t, "operation") {
		case 0, 1:
			op = object{"set": object{"target": target, "value": of}}
		case 2, 3:
			by := rapid.SampledFrom([]any{
				1, 1, "$.data.a", "$.data.b.a", "@.x", "@.x", "$.state.x", "@.w", "$.key",
			}).Draw(t, "by")
			op = object{"increment": object{"target": target, "by": by}}
		case 4:
			op = object{"append": object{"target": target, "value": of}}
		case 5:
			op = object{"merge": object{
				"target": rapid.SampledFrom([]string{"", "x"}).Draw(t, "into"),
				"value":  rapid.SampledFrom([]any{"$.data", "$.data.b", object{"y": of}}).Draw(t, "merged"),
			}}
		case 6:
			op = object{"set_at": object{"target": target, "key": "k", "value": of}}
		case 7:
			op = object{"map": object{"target": target, "apply": []any{
				object{"set": object{"target": "q", "value": "@.q"}},
				object{"set": object{"target": "q", "value": of}},
				object{"append": object{"target": "r", "value": of}},
			}[rapid.IntRange(0, 2).Draw(t, "applied"):]}}
		case 8:
			match := rapid.SampledFrom([]any{
				object{"exists": "$item"},
				object{"exists": "$item.z"},
				object{"equals": []any{"$item.a", of}},
				object{"not": object{"gt": []any{"$item.q", 1}}},
				object{"a": of},
				object{"z": of},
			}).Draw(t, "match")
			op = object{"update_where": object{"target": target, "match": match, "merge": object{"q": of}}}
		case 9:
			op = object{"upsert": object{"target": target, "match": object{"a": of}, "value": object{"a": of}}}
		default:
			if depth == 0 {
				continue
			}
			op = object{"if": drawComparison(t, "@"), "then": drawHandler(t, depth-1), "else": drawHandler(t, depth-1)}
		}
		ops = append(ops, op)
	}
	return ops
}

func drawComparison(t *rapid.T, state string) any {
	name := rapid.SampledFrom([]string{"gt", "gte", "lt", "lte", "equals", "not_equals"}).Draw(t, "predicate")
	return object{name: []any{drawValue(t, 1, state), drawValue(t, 1, state)}}
}

// drawData draws the schema of an event's data.
func drawData(t *rapid.T) object {
	properties := object{}
	for _, name := range []string{"a", "b", "c"} {
		if rapid.IntRange(0, 4).Draw(t, "declared") > 0 {
			properties[name] = drawSchema(t, 2)
		}
	}
	s := object{
		"type": "object", "properties": properties, "required": drawNames(t),
		"$defs": object{"d": defs(drawSchema(t, 1))},
	}
	if rapid.Bool().Draw(t, "closed") {
		s["additionalProperties"] = false
	}
	return s
}

// history is a spec and what happens with it.
type history struct {
	t        *rapid.T
	compiled *spec.Compiled
	root     value.Value
	env      *tick.Env
	state    value.Value
	event    tick.Event
}

// disproves reports whether what is there now shows that a warning is wrong.
func (h *history) disproves(d diag.Diagnostic) bool {
	i := h.compiled.EventType("a", "e").Implications[0]
	switch {
	case strings.Contains(d.Message, " holds here"):
		holds, ok, err := h.compared(d).Test(h.env)
		return err == nil && ok && holds != strings.Contains(d.Message, "always")
	case strings.Contains(d.Message, "this never fits the schema"):
		made, ok, err := i.Emit.Data.Eval(h.env, 1<<20)
		if err != nil || !ok {
			return false
		}
		fits, err := h.compiled.EventType("a", "f").Schema.Valid(made, work.Counted(work.Command))
		return err == nil && fits
	case strings.Contains(d.Message, "is never a number"):
		return slices.ContainsFunc(h.find(d), func(v value.Value) bool { return v.Kind() == value.Number })
	case strings.Contains(d.Message, "is never a text"):
		return slices.ContainsFunc(h.find(d), func(v value.Value) bool { return v.Kind() == value.String })
	default:
		return slices.ContainsFunc(h.find(d), func(v value.Value) bool { return !v.IsMissing() })
	}
}

// compared returns the comparison that a warning is about, which may be that of an $if deep within a condition or an
// event's data.
func (h *history) compared(d diag.Diagnostic) *tick.Predicate {
	v, steps := h.root, d.Pointer.Steps()
	for _, step := range steps[:len(steps)-2] { // without the name of the predicate and the place of the operand
		if i, err := strconv.Atoi(step); err == nil && v.Kind() == value.Array {
			v = v.Index(i)
		} else {
			v = v.Get(step)
		}
	}
	var errors diag.List
	p := tick.CompilePredicate(v, d.Pointer, tick.Scope{}, &errors)
	if p == nil || errors.Errors() > 0 {
		h.t.Fatalf("%s: no predicate: %s", d, v)
	}
	return p
}

// isLookedAt reports whether a warning is one that disproves knows. The elements that a "where" is asked of are not.
func isLookedAt(d diag.Diagnostic) bool {
	return strings.Contains(d.Message, " holds here") && strings.Contains(string(d.Pointer), "/implications/") &&
		!strings.Contains(string(d.Pointer), "/where/") ||
		slices.ContainsFunc([]string{
			"this never fits the schema", "is never a number", "is never a text", "leads to nothing", "leads nowhere",
			"matches nothing",
		}, func(part string) bool {
			return strings.Contains(d.Message, part)
		})
}

// find follows the path that a warning is about, through all elements where it starts at one.
func (h *history) find(d diag.Diagnostic) []value.Value {
	text := h.root
	var array value.Value // what the elements are of
	for _, step := range d.Pointer.Steps() {
		if text.Kind() == value.Array {
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil {
				h.t.Fatal(err)
			}
			text = text.Index(i)
			continue
		}
		for _, name := range []string{"$sum", "$count", "target"} {
			if path := text.Get(name); path.Kind() == value.String {
				array = path
			}
		}
		if step == "match" && strings.Contains(d.Message, "matches nothing") {
			return h.fields(array, d.Pointer.Steps())
		}
		text = text.Get(step)
	}
	p, err := jsonpath.ParseAny(text.Str())
	if err != nil {
		h.t.Fatal(err)
	}
	if p.Root == jsonpath.Binding {
		var found []value.Value
		if of, err := jsonpath.ParseAny(array.Str()); err == nil {
			for _, element := range h.at(of).Elems() {
				found = append(found, follow(element, p.Steps))
			}
		}
		return found
	}
	return []value.Value{h.at(p)}
}

// fields are what elements of an array have under the field of a match that a warning is about.
func (h *history) fields(array value.Value, steps []string) (found []value.Value) {
	of, err := jsonpath.ParseAny(array.Str())
	if err != nil {
		h.t.Fatal(err)
	}
	for _, element := range h.at(of).Elems() {
		found = append(found, element.Get(steps[len(steps)-1]))
	}
	return found
}

// at follows a path into the state or the event.
func (h *history) at(p jsonpath.Path) value.Value {
	in, steps := h.state, p.Steps
	if p.Root == jsonpath.Document {
		switch steps[0].Key {
		case "data":
			in = h.event.Data.Value()
		case "state":
		default:
			in = h.event.Metadata.Value()
		}
		steps = steps[1:]
	}
	in = follow(in, steps)
	if p.Entries {
		return jsonpath.Entries(in)
	}
	return in
}

func follow(v value.Value, steps []value.Step) value.Value {
	for _, step := range steps {
		if step.IsIndex {
			v = v.Index(step.Index)
		} else {
			v = v.Get(step.Key)
		}
	}
	return v
}

// Nobody is warned of what is right: whatever a warning says can never be is looked for in what happens.
func TestWarningsAreTrue(t *testing.T) {
	checked := 0
	once := func(t *rapid.T) {
		from, to := drawData(t), drawData(t)
		text, err := json.Marshal(object{
			"agent_types": []string{"user"},
			"aggregate_types": object{"a": object{"events": object{
				"e": object{"schema": from, "handler": drawHandler(t, 1), "implications": []any{
					object{"condition": drawComparison(t, "$.state"), "emit": object{
						"aggregate_type": "a", "id": "global", "event_type": "f", "data": drawValue(t, 3, "$.state"),
					}},
				}},
				"f": object{"schema": to, "handler": drawHandler(t, 0)},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		compiled, found := lint.Compile(text)
		if compiled == nil {
			return // operations that can never be, which are errors
		}
		root, err := value.ParseString(string(text))
		if err != nil {
			t.Fatal(err)
		}
		h := &history{
			t: t, compiled: compiled, root: root, env: tick.NewEnv(work.Counted(work.Command)),
			state: value.ObjectValue(),
		}
		warnings := slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return !isLookedAt(d) })
		if len(warnings) == 0 {
			return
		}

		// Events of both types, as they may come.
		ed := value.NewEditor()
		for range 8 {
			name, schema := "e", from
			if rapid.IntRange(0, 3).Draw(t, "event") == 0 {
				name, schema = "f", to
			}
			definitions, _ := schema["$defs"].(object)
			drawn, err := json.Marshal(values{t, definitions["d"]}.fitting(schema, 6))
			if err != nil {
				t.Fatal(err)
			}
			data, err := value.Parse(drawn)
			if err != nil {
				t.Fatal(err)
			}
			e := compiled.EventType("a", name)
			if fits, err := e.Schema.Valid(data, work.Counted(work.Command)); err != nil || !fits {
				continue
			}
			h.event = tick.Event{Key: "a:global", Type: name, Timestamp: 1_700_000_000, Data: tick.Parsed(data), Metadata: tick.Raw([]byte(`{"actor":{"id":"global","type":"user"}}`))}
			h.env.Renew(&h.event)
			h.env.SetState(h.state)
			for _, d := range warnings {
				if !strings.Contains(string(d.Pointer), "/events/"+name+"/") {
					continue
				}
				checked++
				if h.disproves(d) {
					t.Fatalf("%s\nis wrong after\n%s\nwith the state\n%s\nin\n%s", d, drawn, h.state, text)
				}
			}
			ed.Freeze()
			h.state, err = e.Handler.Apply(ed, h.state, &h.event, work.Counted(work.Command), nil)
			if err != nil {
				t.Fatal(err)
			}
			h.state = tick.Stamp(ed, h.state, h.event.Timestamp, h.event.Timestamp)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			once(t)
		}
	})
	t.Logf("%d warnings looked at", checked)
	if checked == 0 {
		t.Error("no warning was ever looked at")
	}
}
