//go:build !race

package schema_test

import (
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

func seeds() []string {
	return []string{
		orderSchema, order, `true`, `{"$ref": "#"}`, `{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}`,
		`{"$id": "http://a/b", "allOf": [{"$id": "c", "$ref": "b#/allOf/0"}], "x": {"$ref": "#/x/0"}}`,
		`{"pattern": "^(?=(a+)+$)", "format": "idn-hostname", "uniqueItems": true, "enum": [1, {"a": []}]}`,
		`{"oneOf": [{"type": "integer"}, {"not": {}}], "if": {}, "then": false, "patternProperties": {"": {"minimum": 1e400}}}`,
		`{"dependencies": {"a": ["b"], "c": false}, "propertyNames": {"format": "regex"}, "contains": true, "maxContains": 0}`,
		`{"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["a"]}`,
	}
}

// slow is much longer than any check may take, even on a busy machine under the race detector.
const slow = 30 * time.Second

func FuzzCompile(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		v, err := value.ParseString(src)
		if err != nil {
			return
		}
		var l diag.List
		start := worktest.ProcessorTime(t)
		s := schema.NewGroup(&l).Compile(v, "")
		_, _ = s.Validate(v, work.Counted(work.Command))
		if took := worktest.Since(t, start); took > slow {
			t.Fatalf("it took %v", took)
		}
		for _, d := range l.All() {
			if d.Message == "" {
				t.Fatalf("a finding without a message: %+v", d)
			}
			if _, ok := value.Locate(src, string(d.Pointer)); !ok {
				t.Fatalf("the finding %v is at %q, which is not there", d, d.Pointer)
			}
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, s := range seeds() {
		for _, v := range seeds() {
			f.Add(s, v)
		}
	}
	f.Fuzz(func(t *testing.T, schemaSrc, src string) {
		v, err := value.ParseString(schemaSrc)
		if err != nil {
			return
		}
		data, err := value.ParseString(src)
		if err != nil {
			return
		}
		var l diag.List
		s := schema.NewGroup(&l).Compile(v, "")
		start := worktest.ProcessorTime(t)
		failures, err := s.Validate(data, work.Counted(work.Command))
		if took := worktest.Since(t, start); took > slow {
			t.Fatalf("it took %v", took)
		}
		if err != nil && j17.CodeOf(err) != j17.CodeWorkLimit {
			t.Fatal(err)
		}
		if fits, err2 := s.Valid(data, work.Counted(work.Command)); err == nil &&
			(err2 != nil || fits != (failures == nil)) || len(failures) > schema.MaxFailures {
			t.Fatalf("%d failures, but Valid says %v, %v", len(failures), fits, err2)
		}
		for _, f := range failures {
			if f.Message == "" || f.Constraint == "" {
				t.Fatalf("%+v", f)
			}
		}
	})
}
