package server

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"weak"

	"j17"
	"j17/internal/lang/spec"
)

// TestSpecsOfDeletedInstancesAreForgotten forgets an instance whose spec has tags, unique values, places and a list:
// nobody keeps the spec.
func TestSpecsOfDeletedInstancesAreForgotten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spec.json")
	if err := os.WriteFile(file, []byte(`{"agent_types": ["user"], "aggregate_types": {"seat": {"events": {
		"was_taken": {
			"schema": {"type": "object", "properties": {"show": {"type": "string"}, "name": {"type": "string"}, "place": {"type": "object"}}}, "handler": {"set": {"target": "", "value": "$.data"}},
			"tags": {"show": "$.data.show"}, "unique": {"name": {"value": "$.data.name"}}, "geo": {"type": "point", "path": "$.data.place"}
		}}}},
		"projections": {"seats": {"for_each": "seat", "sources": {"seat": "$key"}, "select": {"show": "$.seat.show"}, "index": ["show"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	d := openDev(t, file)
	s := d.server
	specs := map[j17.Tenant]weak.Pointer[spec.Compiled]{}
	instance := ""
	for _, owned := range s.owned() {
		at := j17.TenantOf(owned.instance, owned.env)
		if deployed := s.engine.Spec(at); deployed != nil {
			specs[at], instance = weak.Make(deployed), owned.instance
		}
	}
	if len(specs) == 0 {
		t.Fatal("nothing is deployed")
	}
	s.deploy.Forget(instance)

	// Pools keep what is in them for some collections.
	for range 5 {
		runtime.GC()
	}
	for at, is := range specs {
		if is.Value() != nil {
			t.Errorf("the spec of %s is kept", at)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
