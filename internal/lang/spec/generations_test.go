//go:build !race

package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

// ofOrders returns a spec of one aggregate type with these event types.
func ofOrders(events string) string {
	return `{"agent_types": ["user"], "$defs": {"money": {"type": "number"}}, "aggregate_types": {"order": {"events": {` + events + `}}}}`
}

// generational is a type of three generations that another two are read as, one of them through the other.
const generational = `
	"was_placed": {
		"generations": {
			"2": {"schema": {"type": "object"}, "upcast": [{"set": {"target": "b", "value": 1}}], "closed": true},
			"1": {"schema": {"type": "array"}, "upcast": [{"set": {"target": "a", "value": 1}}]}},
		"assume_generation": 1, "schema": {"properties": {"total": {"$ref": "#/$defs/money"}}}, "handler": [],
		"tags": {"mail": "$.data.mail"}, "unique": {"no": {"value": "$.data.no"}}, "geo": {"type": "point", "path": "$.data.at"}},
	"was_ordered": {"schema": true, "retired": {"as": "was_placed", "generation": 2, "upcast": []}},
	"was_bought": {"schema": true, "generations": {"5": {"schema": true, "upcast": []}}, "retired": {"as": "was_ordered", "generation": 1}},
	"was_faxed": {"schema": true, "handler": [], "retired": true},
	"was_paid": {"schema": true, "handler": []}`

func TestGenerationsAreRead(t *testing.T) {
	c := compile(t, []byte(ofOrders(generational)))
	placed, bought := c.EventType("order", "was_placed"), c.EventType("order", "was_bought")

	// The generations of a type.
	if placed.Generation != 3 || len(placed.Older) != 2 || placed.Assumed != 1 || !placed.Assumes || placed.Retired {
		t.Fatalf("was_placed is %+v", placed)
	}
	first, second := placed.Of(1), placed.Of(2)
	at := placed.Pointer.Key("generations", "1")
	if first.Number != 1 || first.Closed || first.Schema == nil || first.Upcast == nil || first.Pointer != at ||
		second.Number != 2 || !second.Closed {
		t.Errorf("the generations are %+v and %+v", first, second)
	}
	for n, known := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 3: true, 4: false} {
		if placed.Knows(n) != known || (placed.Of(n) != nil) != (known && n < 3) {
			t.Errorf("generation %d: Knows is %v, Of is %v", n, placed.Knows(n), placed.Of(n))
		}
	}
	if got := bought.Numbers(); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("the generations of was_bought are %v", got)
	}
	if got := c.SchemaOf("order", "was_placed", 1).String(); got != `{"type":"array"}` {
		t.Errorf("the schema of the first generation is %s", got)
	}

	// What is read as what.
	as := bought.As
	if as == nil || as.Type.Name != "was_ordered" || as.Generation != 1 || as.Upcast != nil || !bought.Retired ||
		bought.Newest() != placed {
		t.Errorf("was_bought is %+v", bought)
	}
	if ordered := as.Type; ordered.As.Generation != 2 || ordered.As.Upcast == nil || len(ordered.ReadAs) != 0 {
		t.Errorf("was_ordered is %+v", ordered)
	}
	var names []string
	for _, e := range placed.ReadAs {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"was_bought", "was_ordered"}) {
		t.Errorf("%v are read as was_placed", names)
	}
	if faxed := c.EventType("order", "was_faxed"); !faxed.Retired || faxed.As != nil || faxed.Newest() != faxed {
		t.Errorf("was_faxed is %+v", faxed)
	}
	if paid := c.EventType("order", "was_paid"); paid.Generation != 1 || paid.Assumed != 1 || paid.Assumes ||
		!slices.Equal(paid.Numbers(), []int{1}) {
		t.Errorf("was_paid is %+v", paid)
	}
}

// readings are the event types and generations whose stored events are read otherwise under another spec.
func readings(t *testing.T, was, is *spec.Compiled) []string {
	t.Helper()
	var changed []string
	for name, e := range is.Types["order"].Events {
		for _, n := range e.Numbers() {
			before, _ := was.EventType("order", name).Reading(n)
			now, known := e.Reading(n)
			if !known {
				t.Errorf("generation %d of %s is not known", n, name)
			}
			if before != now {
				changed = append(changed, fmt.Sprint(name, " ", n))
			}
		}
	}
	slices.Sort(changed)
	return changed
}

// What depends on upcasts has another fingerprint once their outcome may be another one, and keeps it otherwise.
func TestWhatDependsOnUpcasts(t *testing.T) {
	was := compile(t, []byte(ofOrders(generational)))
	if _, known := was.EventType("order", "was_placed").Reading(4); known {
		t.Error("a generation that there is not is known")
	}
	for _, name := range []string{"was_placed", "was_faxed", "was_paid"} {
		e := was.EventType("order", name)
		if sum, _ := e.Reading(e.Generation); sum != [32]byte{} {
			t.Errorf("events of %s are not read as they are stored", name)
		}
	}

	for what, c := range map[string]struct {
		from, to string
		// states and derived say whether fingerprints of states, and of tags, unique values and places, change.
		states, derived bool
		readings        string
	}{
		"nothing":                {"", "", false, false, ""},
		"a first step":           {`"a", "value": 1`, `"a", "value": 2`, true, true, "was_placed 1"},
		"a later step":           {`"b", "value": 1`, `"b", "value": 2`, true, true, "was_bought 5,was_bought 6,was_ordered 1,was_placed 1,was_placed 2"},
		"where names go on":      {`"was_placed", "generation": 2`, `"was_placed", "generation": 1`, true, true, "was_bought 5,was_bought 6,was_ordered 1"},
		"the newest schema":      {`{"total":`, `{"sum":`, true, false, "was_bought 5,was_bought 6,was_ordered 1,was_placed 1,was_placed 2"},
		"a definition of it":     {`"number"`, `"integer"`, true, false, "was_bought 5,was_bought 6,was_ordered 1,was_placed 1,was_placed 2"},
		"an older schema":        {`"array"`, `"string"`, false, false, ""},
		"a generation is opened": {`, "closed": true`, ``, false, false, ""},
		"another is assumed":     {`"assume_generation": 1,`, ``, false, false, ""},
		"a type is retired":      {`"was_paid": {"schema": true,`, `"was_paid": {"schema": true, "retired": true,`, false, false, ""},
		"a tag":                  {`"mail": "$.data.mail"`, `"mail": "$.data.mails"`, false, false, ""},
	} {
		src := ofOrders(generational)
		if strings.Count(src, c.from) != 1 && what != "nothing" {
			t.Fatalf("%s: %q is not in the spec once", what, c.from)
		}
		is := compile(t, []byte(strings.Replace(src, c.from, c.to, 1)))
		before, now := was.Types["order"], is.Types["order"]
		ofTags := c.derived || what == "a tag"
		if changed := before.Fingerprint != now.Fingerprint; changed != c.states {
			t.Errorf("%s: the fingerprint of states changes: %v", what, changed)
		}
		if changed := was.TagNames["mail"].Fingerprint != is.TagNames["mail"].Fingerprint; changed != ofTags {
			t.Errorf("%s: the fingerprint of tags changes: %v", what, changed)
		}
		if changed := before.Unique["no"].Fingerprint != now.Unique["no"].Fingerprint; changed != c.derived {
			t.Errorf("%s: the fingerprint of unique values changes: %v", what, changed)
		}
		if changed := before.Places[0].Fingerprint != now.Places[0].Fingerprint; changed != c.derived {
			t.Errorf("%s: the fingerprint of places changes: %v", what, changed)
		}
		if got := strings.Join(readings(t, was, is), ","); got != c.readings {
			t.Errorf("%s: %q are read otherwise, want %q", what, got, c.readings)
		}
	}
}

func TestLimitsOfGenerations(t *testing.T) {
	older := `"%d": {"schema": true, "upcast": []}`
	all := strings.Replace(repeated(100, older), `"0": {"schema": true, "upcast": []},`, "", 1)
	retired := func(n int) string {
		return `"e": {"schema": true, "handler": []}, ` + repeated(n, `"r%d": {"schema": true, "retired": {"as": "e", "generation": 1}}`)
	}
	for what, c := range map[string]struct{ events, want string }{
		"99 generations":  {`"e": {"schema": true, "handler": [], "generations": {` + all + `}}`, ""},
		"100 generations": {`"e": {"schema": true, "handler": [], "generations": {` + all + `, "100": {"schema": true, "upcast": []}}}`, "/generations\n\terror: generations may have at most 99 entries and has 100"},
		"20 names":        {retired(19), ""},
		"21 names":        {retired(20), "/r9/retired/as\n\terror: more than 20 names are read as \"e\", its own included"},
		"operations":      {`"e": {"schema": true, "handler": [], "generations": {"1": {"schema": true, "upcast": [` + repeated(101, `{"set": {"target": "a", "value": 1}}`) + `]}}}`, "/upcast\n\terror: "},
	} {
		_, found := lint.Compile([]byte(ofOrders(c.events)))
		if got := written(found); c.want == "" && strings.Contains(got, "error") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %.2000s", what, got)
		}
	}
}
