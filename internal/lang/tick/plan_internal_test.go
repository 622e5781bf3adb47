package tick

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
)

// planned is random steps, data and reads that have members of the same few names.
type planned struct{ *rand.Rand }

func (r planned) one(of ...string) string { return of[r.IntN(len(of))] }

func (r planned) path() string {
	text := r.one("a", "b", "c", "d")
	for r.IntN(3) == 0 {
		text += r.one(".a", ".b", ".c", "[0]", ".e")
	}
	return text
}

func (r planned) literal() string {
	return r.one(`1`, `"x y"`, `null`, `{"a":{"b":2}}`, `[{"a":1},2]`, `"7"`, `{"$literal":"@"}`)
}

func (r planned) value() string {
	switch r.IntN(8) {
	case 0, 1:
		return r.literal()
	case 2:
		return `{"$coalesce":["@.` + r.path() + `",` + r.value() + `]}`
	case 3:
		return `{"$join":[{"$coalesce":["@.` + r.path() + `?","p"]},"$.type","$.metadata.m"],"by":"-"}`
	case 4:
		return `{"a":"@.` + r.path() + `","b":"$.data.` + r.path() + `"}`
	case 5:
		return `{"$count":{"$coalesce":["@.` + r.path() + `",[1,2]]},"as":"$e","where":{"gt":[{"$count":[1,"$e"],"as":"$f",` +
			`"where":{"equals":["$f","@.` + r.path() + `"]}},0]}}`
	default:
		return `"` + r.one("@.", "$.data.") + r.path() + r.one("", "?") + `"`
	}
}

func (r planned) operation() string {
	switch r.IntN(12) {
	case 0, 1, 2:
		return fmt.Sprintf(`{"move":{"from":%q,"to":%q}}`, r.path(), r.path())
	case 3, 4:
		return fmt.Sprintf(`{"drop":{"target":%q}}`, r.path())
	case 5, 6, 7:
		return fmt.Sprintf(`{"default":{"target":%q,"value":%s}}`, r.path(), r.value())
	case 8:
		return fmt.Sprintf(`{"map":{"target":%q,"apply":{"set":{"target":"","value":[%s]}}}}`, r.path(), r.literal())
	case 9:
		return fmt.Sprintf(`{"append":{"target":%q,"value":%s}}`, r.path(), r.literal())
	default:
		return fmt.Sprintf(`{"set":{"target":%q,"value":%s}}`, r.path(), r.value())
	}
}

func (r planned) step() string {
	ops := make([]string, r.IntN(4))
	for i := range ops {
		ops[i] = r.operation()
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// members returns a random object, or another value that stands for one.
func (r planned) members(depth int) string {
	if depth == 0 || r.IntN(5) == 0 {
		return r.one(`1.50`, `"x y"`, `null`, `"7"`, `[1,{"a":2}]`)
	}
	var all []string
	for _, key := range []string{"a", "b", "c", "d"} {
		if r.IntN(2) == 0 {
			all = append(all, fmt.Sprintf("%q:%s", key, r.members(depth-1)))
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}

// handler returns a handler that reads some members, and at times the whole data.
func (r planned) handler() string {
	var ops []string
	for i := range 1 + r.IntN(4) {
		ops = append(ops, fmt.Sprintf(
			`{"set":{"target":"r%d","value":"$.data.%s"}}`, i, r.path()+r.one("", ".$entries"),
		))
	}
	if r.IntN(20) == 0 {
		ops = append(ops, `{"set":{"target":"all","value":"$"}}`)
	}
	return "[" + strings.Join(ops, ",") + `,{"set":{"target":"m","value":["$.type","$.metadata.generation"]}}]`
}

// TestPlans reads members of events in an older generation singly, and compares what handlers make of them with what
// they make of the whole data, brought to the newest generation one step after the other.
func TestPlans(t *testing.T) {
	const rounds = 10_000
	fits, single, computes, edited := 0, 0, 0, 0
	for round := range rounds {
		r := planned{rand.New(rand.NewPCG(uint64(round), 35))}
		source := func(text string) value.Value {
			v, err := value.ParseString(text)
			if err != nil {
				t.Fatal(text, err)
			}
			return v
		}

		// The steps, and what they make of the data.
		var plan *Plan
		var texts []string
		steps := make([]*Upcast, 1+r.IntN(4))
		for i := len(steps) - 1; i >= 0; i-- {
			text := r.step()
			texts = append(texts, text)
			var l diag.List
			if steps[i] = CompileUpcast(source(text), "", &l); steps[i] == nil {
				t.Fatal(text, l.All())
			}
			plan = NewPlan(steps[i], plan)
		}
		text := source(r.members(3)).String()
		stored := Event{
			Key: "t:1", Type: "old", Timestamp: 5, Data: Raw([]byte(text)), Metadata: Raw([]byte(`{"m":"n"}`)),
		}
		newest, fit := source(text), true
		for _, u := range steps {
			seen := stored
			seen.Data = Parsed(newest)
			next, err := u.Apply(value.NewEditor(), newest, &seen, work.Counted(work.Replay))
			if fit = err == nil; !fit {
				break
			}
			newest = next
		}
		if !fit {
			continue
		}
		fits++

		// The text alone, where that is enough.
		if got, ok := plan.AppendText([]byte("before "), []byte(text)); !ok {
			if plan.edits() != nil {
				t.Fatalf("round %d: %s cannot be edited by %s", round, text, texts)
			}
		} else if edited++; string(got) != "before "+newest.String() {
			t.Fatalf("round %d: %s is edited by %s to\n%s, want\n%s", round, text, texts, got, newest)
		}

		// A handler, for one event after the other.
		var l diag.List
		program := r.handler()
		h := CompileHandler(source(program), "", &l)
		if h == nil {
			t.Fatal(program, l.All())
		}
		const metadata = `{"m":"n","generation":9}`
		want, err := h.Apply(value.NewEditor(), value.ObjectValue(), &Event{
			Key: "t:1", Type: "new", Timestamp: 5, Data: Parsed(newest), Metadata: Raw([]byte(metadata)),
		}, work.Counted(work.Replay), nil)
		if err != nil {
			t.Fatal(err)
		}
		older := &Older{Plan: plan, Metadata: func() []byte { return []byte(metadata) }}
		for range 2 {
			older.Stored = stored
			ev := Event{Key: "t:1", Type: "new", Timestamp: 5}
			older.Newest(&ev)
			got, err := h.Apply(value.NewEditor(), value.ObjectValue(), &ev, work.Counted(work.Replay), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Fatalf("round %d: of %s, which the steps (the last one first) %s make\n%s, %s makes\n%s instead of\n%s",
					round, text, texts, newest, program, got, want)
			}
		}
		if v := plan.viewsOf(&h.data); v != nil && h.data.n > 0 {
			single++
			for i := range v.all {
				if v.all[i].kind == computed {
					computes++
					break
				}
			}
		}
	}
	if fits < rounds/5 || single < fits/4 || computes < single/20 || edited < fits/20 {
		t.Errorf("of %d rounds %d fit, %d of them are read singly, %d compute, %d are edited", rounds, fits, single,
			computes, edited)
	}
	t.Logf("of %d rounds %d fit, %d of them are read singly, %d compute, %d are edited", rounds, fits, single,
		computes, edited)
}
