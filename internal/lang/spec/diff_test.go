//go:build !race

package spec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/lang/compare"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

func TestDiff(t *testing.T) {
	const old = `{
		"agent_types": ["user", "clerk"], "singletons": ["main"], "project_key": "ABC",
		"$defs": {"money": {"type": "object"}, "gone": {}},
		"aggregate_types": {
			"order": {"events": {
				"was_placed": {"schema": {"type": "object"}, "handler": [{"set": {"target": "a", "value": 1}}]},
				"was_lost": {"schema": {}, "handler": []},
				"was_seen": {"schema": {}, "handler": []}
			}},
			"cart": {"events": {"was_filled": {"schema": {}, "handler": []}}}
		},
		"modules": {"cache": ["cart"]}
	}`
	const next = `{
		"agent_types": ["robot", "user"], "singletons": ["main"], "identity": {"uuid_versions": [4, 5, 7]},
		"$defs": {"money": {"type": "object", "required": ["amount"]}, "new": {}},
		"aggregate_types": {
			"order": {"onTombstone": {"actor": "cascade"}, "events": {
				"was_seen": {"schema": {}, "handler": []},
				"was_placed": {"schema": {}, "handler": [{"set": {"value": 1, "target": "a"}}], "allow_skip_occ": true},
				"was_found": {"schema": {}, "handler": []}
			}},
			"parcel": {"events": {"was_sent": {"schema": {}, "handler": []}}}
		}
	}`
	compile := func(src string) *spec.Compiled {
		c, found := lint.Compile([]byte(src))
		if c == nil {
			t.Fatal(found)
		}
		return c
	}
	got := compare.Changes(compile(old), compile(next))
	want := []compare.Change{
		{Kind: compare.Changed, What: "aggregate type", Name: "order", Keys: []string{"onTombstone"}},
		{
			Kind: compare.Changed, What: "event type", Name: "order.was_placed",
			Keys: []string{"allow_skip_occ", "handler", "schema"},
		},
		{Kind: compare.Removed, What: "event type", Name: "order.was_lost"},
		{Kind: compare.Added, What: "event type", Name: "order.was_found"},
		{Kind: compare.Removed, What: "aggregate type", Name: "cart"},
		{Kind: compare.Added, What: "aggregate type", Name: "parcel"},
		{Kind: compare.Removed, What: "agent type", Name: "clerk"},
		{Kind: compare.Added, What: "agent type", Name: "robot"},
		{Kind: compare.Removed, What: "cached aggregate type", Name: "cart"},
		{Kind: compare.Changed, What: "shared definition", Name: "money", Keys: []string{"required"}},
		{Kind: compare.Removed, What: "shared definition", Name: "gone"},
		{Kind: compare.Added, What: "shared definition", Name: "new"},
		{Kind: compare.Added, What: "identity"},
		{Kind: compare.Removed, What: "project_key"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if same := compare.Changes(compile(old), compile(old)); len(same) > 0 {
		t.Error(same)
	}
}

// TestDiffOfNamesTwice lists a name once that stands more than once in a list, which specs may have with a warning.
func TestDiffOfNamesTwice(t *testing.T) {
	const once = `{"agent_types": ["user"], "aggregate_types": {"order": {"events": {"e": {"schema": {}, "handler": []}}}}}`
	const twice = `{"agent_types": ["user", "user", "clerk", "clerk"], "singletons": ["main", "desk", "main"], "modules": {"cache": ["order", "order"]},
		"aggregate_types": {"order": {"events": {"e": {"schema": {}, "handler": []}}}}}`
	for _, c := range []struct {
		kind    compare.ChangeKind
		was, is string
	}{{compare.Added, once, twice}, {compare.Removed, twice, once}} {
		want := []compare.Change{
			{Kind: c.kind, What: "agent type", Name: "clerk"},
			{Kind: c.kind, What: "singleton", Name: "main"},
			{Kind: c.kind, What: "singleton", Name: "desk"},
			{Kind: c.kind, What: "cached aggregate type", Name: "order"},
		}
		if diff := cmp.Diff(want, compare.Changes(compile(t, []byte(c.was)), compile(t, []byte(c.is)))); diff != "" {
			t.Errorf("%s: %s", c.kind, diff)
		}
	}
}

// TestDiffOfViews lists what changes of projections and places.
func TestDiffOfViews(t *testing.T) {
	spec1 := `{"agent_types": ["user"], "geo_types": {"zone": {"type": "polygon"}}, "aggregate_types": {"order": {"events": {
		"e": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data.x"}}}}}, "projections": {
		"p": {"for_each": "order", "sources": {"order": "$key"}, "select": {"id": "$.order.id"}, "index": ["id"]}, "q": {"sources": [{"aggregate": "order", "query": "id = $.x"}]}, "r": {"sources": [{"aggregate": "order", "id": "$key"}]}}}`
	spec2 := `{"agent_types": ["user"], "geo_types": {"zone": {"type": "polygon", "properties": ["fee"]}, "new": {"type": "point"}}, "aggregate_types": {"order": {"events": {
		"e": {"schema": {}, "handler": [], "geo": {"type": "point", "path": "$.data.y"}}}}}, "projections": {
		"s": {"sources": [{"aggregate": "order", "id": "$key"}]}, "q": {"sources": [{"aggregate": "order", "as": "o", "query": "id = $.x"}]},
		"p": {"for_each": "order", "sources": {"order": "$key"}, "select": {"id": "$.order.id"}, "index": ["id"], "include": {"all": "order:global"}}}}`
	want := []compare.Change{
		{Kind: compare.Changed, What: "event type", Name: "order.e", Keys: []string{"geo"}},
		{Kind: compare.Changed, What: "geo type", Name: "zone", Keys: []string{"properties"}},
		{Kind: compare.Added, What: "geo type", Name: "new"},
		{Kind: compare.Changed, What: "projection", Name: "p", Keys: []string{"include"}},
		{Kind: compare.Changed, What: "projection", Name: "q", Keys: []string{"sources"}},
		{Kind: compare.Removed, What: "projection", Name: "r"},
		{Kind: compare.Added, What: "projection", Name: "s"},
	}
	if diff := cmp.Diff(want, compare.Changes(compile(t, []byte(spec1)), compile(t, []byte(spec2)))); diff != "" {
		t.Error(diff)
	}
}
