package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

// chain is a type whose events have had several shapes, and what was sent in each.
type chain struct {
	// steps are the texts of the steps, from the first generation on.
	steps []string
	// renamed is the generation from which on the type has another name, 0 for none.
	renamed int
	// singly reports that handlers read members, and not the whole data.
	singly bool
}

// step returns a random step that data of a chain fit, whatever came before it.
func step(r *rand.Rand, n int) string {
	name := func() string { return fmt.Sprintf("m%d", r.IntN(4)) }
	ops := make([]string, 1+r.IntN(4))
	for i := range ops {
		ops[i] = []string{
			fmt.Sprintf(`{"move":{"from":%q,"to":"moved%d_%d"}}`, name(), n, i),
			fmt.Sprintf(`{"drop":{"target":%q}}`, name()),
			fmt.Sprintf(`{"default":{"target":%q,"value":%d}}`, name(), r.IntN(10)),
			fmt.Sprintf(`{"set":{"target":"all%d_%d","value":"$.data"}}`, n, i),
			fmt.Sprintf(`{"set":{"target":"copy%d","value":{"$coalesce":["@.%s",null]}}}`, n, name()),
			fmt.Sprintf(`{"set":{"target":"words%d","value":{"$split":"@.text","by":" "}}}`, n),
			fmt.Sprintf(`{"set":{"target":"number%d","value":{"$number":"@.digits"}}}`, n),
			`{"map":{"target":"list","apply":[{"set":{"target":"","value":["$item"]}}]}}`,
			fmt.Sprintf(`{"if":{"exists":"@.%s"},"then":[{"set":{"target":"seen%d","value":true}}]}`, name(), n),
		}[r.IntN(9)]
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// data returns random data of the first generation.
func (chain) data(r *rand.Rand) string {
	members := []string{
		fmt.Sprintf(`"text":"a b%d c"`, r.IntN(3)), fmt.Sprintf(`"digits":"%d.50"`, r.IntN(100)), `"list":[1,"x",null]`,
	}
	for i := range 4 {
		if r.IntN(2) == 0 {
			members = append(members, fmt.Sprintf(`"m%d":%s`, i, []string{
				`1.0`, `"t"`, `null`,
				`{"in":[2]}`,
			}[r.IntN(4)]))
		}
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// spec returns the spec in which a generation is the newest.
func (c *chain) spec(newest int) string {
	handler := `"handler":[{"append":{"target":"log","value":"$.data"}},{"set":{"target":"text","value":"$.data.text"}}]`
	if c.singly {
		var sets []string
		for _, name := range []string{
			"text", "digits", "list", "m0", "m1.in[0]", "moved1_0", "moved2_1", "all1_0", "all3_1.m0", "copy1",
			"copy2.in", "words1[1]", "number2", "seen1", "seen3",
		} {
			sets = append(sets, fmt.Sprintf(`{"set":{"target":"r%d","value":"$.data.%s"}}`, len(sets), name))
		}
		handler = `"handler":[` + strings.Join(sets, ",") + `]`
	}
	older := func(from, to int) string {
		var all []string
		for n := from; n < to; n++ {
			all = append(all, fmt.Sprintf(`"%d":{"schema":true,"upcast":%s}`, n-from+1, c.steps[n-1]))
		}
		if all == nil {
			return ""
		}
		return `"generations":{` + strings.Join(all, ",") + `},`
	}
	events := `"e":{` + older(1, newest) + `"schema":true,` + handler + `}`
	if c.renamed > 0 && newest >= c.renamed {
		events = `"e":{` + older(1, c.renamed) + `"schema":true,"retired":{"as":"f","generation":1}},` +
			`"f":{` + older(c.renamed, newest) + `"schema":true,` + handler + `}`
	}
	return `{"agent_types":["user"],"aggregate_types":{"t":{"events":{` + events + `}}}}`
}

// name returns the newest name of the type while a generation is the newest, and the number that it has there.
func (c *chain) name(newest int) (name string, generation int) {
	if c.renamed > 0 && newest >= c.renamed {
		return "f", newest - c.renamed + 1
	}
	return "e", newest
}

// newest takes data of the first generation through all steps, one by one.
func (c *chain) newest(t *testing.T, text string) string {
	t.Helper()
	data, err := value.ParseString(text)
	for i := 0; i < len(c.steps) && err == nil; i++ {
		var found diag.List
		source, _ := value.ParseString(c.steps[i])
		u := tick.CompileUpcast(source, "", &found)
		if u == nil {
			t.Fatal(found.All())
		}
		ed := value.NewEditor()
		ed.Freeze()
		data, err = u.Apply(ed, data, &tick.Event{Type: "e", Data: tick.Parsed(data)}, work.New(t.Context(),
			work.Replay))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data.AppendJSON(nil))
}

// TestUpcastChains writes events while types change their shapes, and again what is read of them in the end. Both have
// the same states, whether handlers read members or the whole data, before and after a restart, and what is stored
// stays as it was.
func TestUpcastChains(t *testing.T) {
	const rounds = 1000
	f := enginetest.New(t, engine.Options{})
	list := func(path string, stored bool) (shown []*j17.Event) {
		t.Helper()
		read := f.Events
		if stored {
			read = f.StoredEvents
		}
		events, err := read(t.Context(), enginetest.Tenant, "t", path, j17.StreamID{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for ev, err := range events {
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, ev.Clone())
		}
		return shown
	}
	state := func(path string) string {
		t.Helper()
		var state map[string]any
		if err := json.Unmarshal([]byte(f.State(t, "t/"+path, engine.LoadOptions{})), &state); err != nil {
			t.Fatal(err)
		}
		delete(state, "created_at")
		delete(state, "updated_at")
		text, _ := json.Marshal(state)
		return string(text)
	}

	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 35))
		c := &chain{singly: round%2 == 1}
		newest := 2 + r.IntN(4)
		for n := range newest - 1 {
			c.steps = append(c.steps, step(r, n+1))
		}
		if r.IntN(2) == 0 {
			c.renamed = 2 + r.IntN(newest-1)
		}
		id := func(of string) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%s%08d", of, round) }
		old, again := id("aaaa"), id("bbbb")

		// Events of each time. What is written later is what the first shape has become by then.
		var sent []string
		for n := 1; n <= newest; n++ {
			f.DeploySource(t, c.spec(n))
			tried(t, f, "t")
			sent = append(sent, c.data(r))
			f.Post(t, "t/"+old+"/e", withGeneration(sent[n-1], 1))
			f.State(t, "t/"+old, engine.LoadOptions{})
		}
		before := list(old, true)
		for i, ev := range list(old, false) {
			if want := c.newest(t, sent[i]); string(ev.Data) != want {
				t.Fatalf("round %d, %s:\n%s is shown as\n%s instead of\n%s", round, c.spec(newest), sent[i], ev.Data, want)
			}
		}

		// What is read is written in the newest shape.
		name, number := c.name(newest)
		for _, ev := range list(old, false) {
			if ev.Type != name {
				t.Fatalf("round %d: an event is shown as %s", round, ev.Type)
			}
			f.Post(t, "t/"+again+"/"+name, withGeneration(string(ev.Data), number))
		}
		if a, b := state(old), state(again); a != b {
			t.Fatalf("round %d, %s:\n%s\nis the state of old events, that of new ones is\n%s", round, c.spec(newest), a, b)
		}
		for _, ev := range list(again, true) {
			if n, _, _ := ev.Generation(); n != number || ev.Type != name {
				t.Fatalf("round %d: it is stored as %s %d", round, ev.Type, n)
			}
		}

		// Nothing of it depends on what is in memory, and nothing stored has changed.
		if round%100 == 0 {
			if err := f.Store.Close(); err != nil {
				t.Fatal(err)
			}
			f.Open(t, engine.Options{})
			f.DeploySource(t, c.spec(newest))
			tried(t, f, "t")
			if a, b := state(old), state(again); a != b {
				t.Fatalf("round %d, after a restart: %s and %s", round, a, b)
			}
		}
		if !slices.EqualFunc(before, list(old, true), func(a,
			b *j17.Event,
		) bool {
			return string(a.Raw) == string(b.Raw)
		}) {
			t.Fatalf("round %d: what is stored has changed", round)
		}
	}
}

// withGeneration returns the body of a write that says the generation of its data.
func withGeneration(data string, n int) string {
	return `{"data":` + data + `,"metadata":{"actor":{"type":"user","id":"` + user + `"},"generation":` + fmt.Sprint(n) + `}}`
}
