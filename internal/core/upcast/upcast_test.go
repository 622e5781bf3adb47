package upcast_test

import (
	"iter"
	"slices"
	"testing"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// source has a type of three generations, one that is retired as it, one that is retired as that, and one with a schema
// that its older data do not fit.
const source = `{"agent_types":["user"],"aggregate_types":{"order":{"events":{
	"was_placed":{"generations":{
		"1":{"schema":{"type":"object"},"upcast":[
			{"set":{"target":"total","value":{"$number":"@.total"}}},
			{"set":{"target":"by","value":"$.metadata.actor.id"}}]},
		"2":{"schema":{"type":"object"},"upcast":{"move":{"from":"mail","to":"contact.mail"}}}},
		"schema":{"type":"object","properties":{"total":{"type":"number"}}},"handler":[]},
	"was_ordered":{"schema":{"type":"object"},
		"retired":{"as":"was_placed","generation":1,"upcast":{"move":{"from":"sum","to":"total"}}}},
	"was_wanted":{"schema":{"type":"object"},"retired":{"as":"was_ordered","generation":1}},
	"was_counted":{"generations":{"2":{"schema":{"type":"object"},"upcast":[]}},
		"schema":{"type":"object","required":["n"]},"handler":[]},
	"was_read":{"schema":true,"handler":[]}}}}}`

func compile(t *testing.T) *spec.Compiled {
	t.Helper()
	s, found := spec.Compile([]byte(source))
	if s == nil {
		t.Fatal(found)
	}
	return s
}

// stored returns an event as a store yields it.
func stored(typ, data, generation string) *j17.Event {
	e := &j17.Event{
		StreamID: j17.StreamID{Ms: 1, Seq: 2}, Key: j17.Key{Type: "order", ID: "o"}, Version: 3, Type: typ,
		Timestamp: 5,
	}
	metadata := `{"actor":{"type":"user","id":"u"}` + generation + `}`
	raw, at := j17.AppendEvent(nil, e.StreamID, e.Key, typ, []byte(data), []byte(metadata), e.Timestamp)
	e.Raw, e.Data, e.Metadata = raw, at.DataOf(raw), at.MetadataOf(raw)
	return e
}

const actor = `{"actor":{"type":"user","id":"u"}`

func TestOf(t *testing.T) {
	typ := compile(t).Types["order"]
	for _, c := range []struct {
		name, typ, data, generation      string
		shownAs, shown, metadata, folded string
	}{
		{
			"first", "was_placed", `{"total":"1.50","mail":"m"}`, ``,
			"was_placed", `{"total":1.50,"by":"u","contact":{"mail":"m"}}`,
			`,"generation":3,"upcast_from":{"generation":1},"timestamp":5}`, `,"generation":3,"timestamp":5}`,
		},
		{
			"second", "was_placed", `{"total":1}`, `,"generation":2`, "was_placed", `{"total":1}`,
			`,"generation":3,"upcast_from":{"generation":2},"timestamp":5}`, `,"generation":3,"timestamp":5}`,
		},
		{
			"newest", "was_placed", `{"total":1}`, `,"generation":3`, "was_placed", `{"total":1}`,
			`,"generation":3,"timestamp":5}`, `,"generation":3,"timestamp":5}`,
		},
		{
			"retired", "was_ordered", `{"sum":"7"}`, ``, "was_placed", `{"total":7,"by":"u"}`,
			`,"generation":3,"upcast_from":{"generation":1,"type":"was_ordered"},"timestamp":5}`,
			`,"generation":3,"timestamp":5}`,
		},
		{
			"retired twice", "was_wanted", `{"sum":"7"}`, ``, "was_placed", `{"total":7,"by":"u"}`,
			`,"generation":3,"upcast_from":{"generation":1,"type":"was_wanted"},"timestamp":5}`,
			`,"generation":3,"timestamp":5}`,
		},
		{"plain", "was_read", `[1.0]`, ``, "was_read", `[1.0]`, `,"timestamp":5}`, `,"timestamp":5}`},
		{
			"undeclared", "was_gone", `{}`, `,"generation":9`, "was_gone", `{}`, `,"generation":9,"timestamp":5}`,
			`,"generation":9,"timestamp":5}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := stored(c.typ, c.data, c.generation)
			b := work.New(t.Context(), work.Replay)
			shown, err := upcast.Of(typ, ev, b)
			if err != nil {
				t.Fatal(err)
			}
			if shown.Type != c.shownAs || string(shown.Data) != c.shown || string(shown.Metadata) != actor+c.metadata {
				t.Errorf("shown as %s %s %s", shown.Type, shown.Data, shown.Metadata)
			}
			if again, err := j17.ParseEvent(shown.Raw); err != nil || string(again.Data) != c.shown {
				t.Errorf("%s is not canonical: %v", shown.Raw, err)
			}
			if shown.Leaf() != ev.Leaf() || string(shown.AsStored().Raw) != string(ev.Raw) {
				t.Error("what is stored is not kept")
			}
			if copied := shown.Clone(); copied.Leaf() != ev.Leaf() || string(copied.Data) != c.shown {
				t.Error("a copy is another event")
			}

			// What is shown is read like what is stored, and computed with without a word of where it comes from.
			twice, err := upcast.Of(typ, shown, b)
			if err != nil || string(twice.Raw) != string(shown.Raw) {
				t.Errorf("shown twice it is %s, %v", twice.Raw, err)
			}
			seen, err := upcast.Read(typ, ev, "order:o", b)
			if err != nil {
				t.Fatal(err)
			}
			data, metadata := seen.Data.Value(), seen.Metadata.Value()
			if seen.Type != c.shownAs || string(data.AppendJSON(nil)) != c.shown ||
				string(metadata.AppendJSON(nil)) != actor+c.folded {
				t.Errorf("read as %s %s %s", seen.Type, data.AppendJSON(nil), metadata.AppendJSON(nil))
			}
		})
	}
}

func TestFailures(t *testing.T) {
	typ := compile(t).Types["order"]
	const events = "/aggregate_types/order/events/"
	for _, c := range []struct {
		name, typ, data, generation string
		cause                       upcast.Cause
		pointer, path               string
		work                        int64
	}{
		{"operand", "was_placed", `{"total":"x"}`, ``, upcast.DoesNotFit, events + "was_placed/generations/1/upcast/0/set/value/$number", "", work.Replay},
		{
			"schema", "was_placed", `{"total":"1"}`, `,"generation":2`, upcast.Schema, events + "was_placed/schema",
			"data.total", work.Replay,
		},
		{
			"later", "was_placed", `{}`, `,"generation":4`, upcast.UnknownGeneration, events + "was_placed", "",
			work.Replay,
		},
		{"earlier", "was_counted", `{}`, ``, upcast.UnknownGeneration, events + "was_counted", "", work.Replay},
		{
			"without generations", "was_read", `{}`, `,"generation":2`, upcast.UnknownGeneration, events + "was_read",
			"",
			work.Replay,
		},
		{
			"required", "was_counted", `{}`, `,"generation":2`, upcast.Schema, events + "was_counted/schema", "data.n",
			work.Replay,
		},
		{
			"work", "was_placed", `{"total":"1"}`, ``, upcast.WorkLimit, events + "was_placed/generations/1/upcast", "",
			4,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := upcast.Of(typ, stored(c.typ, c.data, c.generation), work.New(t.Context(), c.work))
			f := upcast.Failure(err)
			if f == nil {
				t.Fatal(err)
			}
			if f.Cause != c.cause || string(f.Pointer) != c.pointer || f.Path != c.path ||
				f.StreamID != "0000000000001-2" ||
				f.Key != "order:o" || f.EventType != c.typ {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestReader(t *testing.T) {
	s := compile(t)
	r := upcast.NewReader(func(tenant j17.Tenant) (*spec.Compiled, *upcast.Tried) {
		if tenant == "with" {
			return s, nil
		}
		return nil, nil
	})
	good, bad := stored("was_placed", `{"total":"1"}`, ""), stored("was_ordered", `{"sum":"x"}`, "")
	events := func(list ...*j17.Event) iter.Seq2[*j17.Event, error] {
		return func(yield func(*j17.Event, error) bool) {
			for _, ev := range list {
				if !yield(ev, nil) {
					return
				}
			}
		}
	}

	// An event that cannot be read ends an iteration.
	var seen []string
	var last error
	for ev, err := range r.Each(t.Context(), "with", events(good, bad, good)) {
		if last = err; err == nil {
			seen = append(seen, string(ev.Data))
		}
	}
	if !slices.Equal(seen, []string{`{"total":1,"by":"u"}`}) || upcast.Failure(last) == nil {
		t.Errorf("%q, %v", seen, last)
	}

	// What is known of it is its type.
	ev, err := r.Show(t.Context(), "with", bad)
	if upcast.Failure(err) == nil || ev.Type != "was_placed" || ev.Raw != nil ||
		ev.Clone().AsStored().Type != "was_ordered" {
		t.Errorf("%+v, %v", ev, err)
	}
	if r.Type("with", bad) != "was_placed" || r.Type("without", bad) != "was_ordered" {
		t.Error("it has another type")
	}

	// Without a spec, and without a reader, events are as they are stored.
	for _, other := range []*upcast.Reader{r, nil} {
		if ev, err := other.Show(t.Context(), "without", bad); err != nil || ev != bad {
			t.Errorf("%+v, %v", ev, err)
		}
	}

	// A type is found under all names that are read as it.
	asked := []store.TypePattern{{Aggregate: "order", Event: "was_placed"}, {Aggregate: "order", Event: "was_read"}}
	want := append(slices.Clone(asked), store.TypePattern{Aggregate: "order", Event: "was_ordered"},
		store.TypePattern{Aggregate: "order", Event: "was_wanted"})
	if got := r.Stored("with", asked); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	shown, err := r.Show(t.Context(), "with", stored("was_ordered", `{"sum":"1"}`, ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, fits := range map[string]bool{"was_placed": true, "was_ordered": true, "was_read": false, "": true} {
		if upcast.Fits(store.TypePattern{Aggregate: "order", Event: name}, shown) != fits {
			t.Errorf("%q fits: %v", name, !fits)
		}
	}
}

// TestGeneration reads the number at the end of metadata, and nothing that looks like it.
func TestGeneration(t *testing.T) {
	for metadata, want := range map[string]int{
		`{"timestamp":5}`:                                               1,
		`{"generation":2,"timestamp":5}`:                                2,
		`{"actor":{"id":"u"},"generation":99,"timestamp":-5}`:           99,
		`{"generation":2,"actor":{"id":"u"},"timestamp":5}`:             1,
		`{"xgeneration":2,"timestamp":5}`:                               1,
		`{"note":"\"generation\":7","timestamp":5}`:                     1,
		`{"note":{"generation":7},"timestamp":5}`:                       1,
		`{"generation":"7","timestamp":5}`:                              1,
		`{"generation":99999999999999999999999999999999,"timestamp":5}`: 1,
		`{"generation":2}`:                                              1,
		`{}`:                                                            1,
		``:                                                              1,
	} {
		ev := &j17.Event{Metadata: []byte(metadata)}
		if got, at, end := ev.Generation(); got != want || at < 0 || at > end || end > len(metadata) {
			t.Errorf("%s: %d at %d to %d", metadata, got, at, end)
		}
	}
}
