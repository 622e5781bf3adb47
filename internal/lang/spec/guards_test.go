//go:build !race

package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/lang/compare"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

// decided is a spec with one of everything that decides whether an event is written. extra goes into the event type
// "sent".
func decided(extra string) []byte {
	return fmt.Appendf(nil, `{"agent_types": ["user"], "aggregate_types": {
		"account": {"events": {
			"sent": {"schema": {}, "handler": []%s},
			"opened": {"schema": {}, "handler": [], "tags": {"owner": "$.metadata.actor.id"}, "unique": {"iban": {"value": "$.data.iban"}}},
			"closed": {"schema": {}, "handler": [], "releases": ["iban"]}
		}},
		"desk": {"events": {"halted": {"schema": {}, "handler": [], "tags": {"owner": "$.id", "area": "$.data.area"}}}}
	}}`, extra)
}

func TestDecisionsOfAnEventType(t *testing.T) {
	c := compile(t, decided(`,
		"creates": "only",
		"reads": {"to": {"aggregate_type": "account", "id": "$.data.to"}, "desk": {"aggregate_type": "desk", "id": "global"}},
		"requires": [
			{"that": {"exists": "$.reads.desk.a"}, "message": {"concat": ["$.reads.to", "@.x"]}, "code": "a"},
			{"that": {"exists": "$.data.x"}, "message": "m"}
		],
		"unique": {"slip": {"value": ["$.data.a", "$.data.b"], "scope": "$.data.c"}, "iban": {"value": "$.data.lines[0].iban?"}, "a": {"value": {"concat": ["$.data.a"]}}},
		"tags": {"to": "$.data.to", "by": "$.metadata.actor.id"},
		"implications": [{"condition": {"exists": "$.reads.to"}, "emit": {"aggregate_type": "account", "id": "$.reads.desk.next", "event_type": "opened", "data": {"a": "$.data.a"}}}]`))
	e := c.EventType("account", "sent")
	const at = "/aggregate_types/account/events/sent"

	var reads []string
	for _, r := range e.Reads {
		reads = append(reads, string(r.Pointer)+" "+r.Name+" "+r.AggregateType+" "+r.ID.Literal)
	}
	if diff := cmp.Diff(
		[]string{at + "/reads/to to account ", at + "/reads/desk desk desk global"}, reads,
	); diff != "" {
		t.Error(diff)
	}
	g := e.Requires[0]
	if g.Pointer != at+"/requires/0" || g.Code != "a" || e.Requires[1].Code != "" || e.Creates != spec.CreatesOnly ||
		e.Pointer != at {
		t.Errorf("%+v of %+v", g, e)
	}

	// A bit for each read that is looked at, by its place in the text.
	i := e.Implications[0]
	looked := []uint16{
		g.That.ReadsOf(), g.Message.ReadsOf(), e.Requires[1].That.ReadsOf(), i.Condition.ReadsOf(),
		i.Emit.ID.Path.ReadsOf(), i.Emit.Data.ReadsOf(),
	}
	if diff := cmp.Diff([]uint16{0b10, 0b01, 0, 0b01, 0b10, 0}, looked); diff != "" {
		t.Error(diff)
	}
	if g.That.ReadsState() || !g.Message.ReadsState() {
		t.Error("a path to another aggregate is not one into the own state")
	}

	var values []string
	for _, u := range e.Unique {
		values = append(
			values,
			fmt.Sprintf("%s of %d, one %v, at %q, scoped %v", u.Name, len(u.Values), u.One, u.Path, u.Scope != nil),
		)
	}
	if diff := cmp.Diff([]string{
		`a of 1, one true, at "", scoped false`,
		`iban of 1, one true, at "data.lines[0].iban", scoped false`,
		`slip of 2, one false, at "", scoped true`,
	}, values); diff != "" {
		t.Error(diff)
	}
	var sets []string
	for _, set := range c.Types["account"].Unique {
		names := []string{set.Name}
		for _, e := range set.Events {
			names = append(names, e.Name)
		}
		sets = append(sets, strings.Join(names, " "))
	}
	want := map[string]bool{"a sent": true, "slip sent": true, "iban closed opened sent": true}
	for _, set := range sets {
		if !want[set] {
			t.Errorf("there is a set %q", set)
		}
	}
	if len(sets) != len(want) || e.Tags[0].Name != "by" || e.Tags[1].Name != "to" {
		t.Error(sets, e.Tags)
	}
	if diff := cmp.Diff([]string{"account", "desk"}, c.TagNames["owner"].Types); diff != "" {
		t.Error(diff)
	}
}

// States do not depend on what decides whether events are written, the hash of a spec and what is built for it do.
func TestFingerprintsOfDecisions(t *testing.T) {
	base := compile(t, decided(""))
	for what, test := range map[string]struct {
		extra              string
		state, iban, owner bool // whether that changes
	}{
		"guards":           {`, "requires": [{"that": {"exists": "$.data.x"}, "message": "m"}]`, false, false, false},
		"reads":            {`, "reads": {"x": {"aggregate_type": "desk", "id": "global"}}`, false, false, false},
		"existence":        {`, "creates": false`, false, false, false},
		"a tag":            {`, "tags": {"owner": "$.data.owner"}`, false, false, true},
		"another tag":      {`, "tags": {"else": "$.data.owner"}`, false, false, false},
		"a value":          {`, "unique": {"iban": {"value": "$.data.other"}}`, false, true, false},
		"another value":    {`, "unique": {"else": {"value": "$.data.other"}}`, false, false, false},
		"a release":        {`, "releases": ["iban"]`, false, true, false},
		"skip_occ":         {`, "allow_skip_occ": true`, true, false, false},
		"an implication":   {`, "implications": []`, true, false, false},
		"nothing":          {``, false, false, false},
		"nothing but form": {`   `, false, false, false},
	} {
		is := compile(t, decided(test.extra))
		if got := is.Types["account"].Fingerprint != base.Types["account"].Fingerprint; got != test.state {
			t.Errorf("%s: another fingerprint of states is %v", what, got)
		}
		values, before := is.Types["account"].Unique["iban"], base.Types["account"].Unique["iban"]
		if got := values.Fingerprint != before.Fingerprint; got != test.iban {
			t.Errorf("%s: another fingerprint of unique values is %v", what, got)
		}
		if got := is.TagNames["owner"].Fingerprint != base.TagNames["owner"].Fingerprint; got != test.owner {
			t.Errorf("%s: another fingerprint of tags is %v", what, got)
		}
		same := strings.TrimSpace(test.extra) == ""
		if (is.Hash == base.Hash) != same || len(compare.Changes(base, is)) == 0 != same {
			t.Errorf("%s: the same hash is %v, with changes %+v", what, is.Hash == base.Hash, compare.Changes(base, is))
		}
		if found := compare.Compatibility(base, is); len(found) > 0 {
			t.Errorf("%s breaks what is there:\n%s", what, written(found))
		}
	}
}

// The sets of an aggregate type are counted over all of its event types.
func TestTooManySetsOfUniqueValues(t *testing.T) {
	for n, want := range map[int]string{20: "", 21: "the sets of unique values of an aggregate type may have at most 20 entries and has 21"} {
		events := repeated(n, `"e%d": {"schema": {}, "handler": [], "unique": {"u%d": {"value": "$.data.a"}}}`)
		_, found := lint.Compile([]byte(`{"agent_types": ["user"], "aggregate_types": {"a": {"events": {` + events + `}}}}`))
		got := ""
		for _, d := range found {
			got += d.Message
		}
		if got != want {
			t.Errorf("%d sets: %q", n, got)
		}
	}
}

// An example is one that is written where there is nothing yet, if the spec has such an event type.
func TestExamplesAreWritten(t *testing.T) {
	const guard = `"requires": [{"that": {"exists": "$.data.x"}, "message": "m"}]`
	for want, events := range map[string]string{
		"c": `"a": {"schema": {}, "handler": [], "creates": false}, "b": {"schema": {}, "handler": [], ` + guard + `}, "c": {"schema": {}, "handler": [], "creates": "only"}, "d": {"schema": {}, "handler": []}`,
		"b": `"a": {"schema": {}, "handler": [], "creates": false}, "b": {"schema": {}, "handler": [], ` + guard + `}, "c": {"schema": {}, "handler": [], ` + guard + `}`,
		"a": `"a": {"schema": {}, "handler": [], "creates": false}, "b": {"schema": {}, "handler": [], "creates": false, ` + guard + `}`,
		"":  `"a": {"schema": false, "handler": []}`,
	} {
		c := compile(t, []byte(`{"agent_types": ["user"], "aggregate_types": {"t": {"events": {`+events+`}}}}`))
		if ex, ok := c.Example(); ex.EventType != want || ok != (want != "") {
			t.Errorf("the example is %q, %v; want %q", ex.EventType, ok, want)
		}
	}
}
