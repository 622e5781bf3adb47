//go:build !race

package spec_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"j17/internal/base/value"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

// seeds adds every text of testdata to a fuzz corpus.
func seeds(f *testing.F, add func(text string)) {
	f.Helper()
	paths, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if !strings.HasSuffix(file.Name, ".want") {
				add(string(file.Data))
			}
		}
	}
	add(everything)
}

func FuzzCompile(f *testing.F) {
	seeds(f, func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, src string) {
		c, found := lint.Compile([]byte(src))
		errors, _ := diag.Count(found)
		if (c == nil) != (errors > 0) {
			t.Fatalf("Compile returns %v with\n%s", c, written(found))
		}
		for i, d := range found {
			if d.Message == "" || d.Line == 0 && i < len(found)-1 || i > 0 && d.Line != 0 && d.Line < found[i-1].Line {
				t.Fatalf("finding %d is %+v", i, d)
			}
		}
		if diag.Render("spec.json", []byte(src), found) == "" && len(found) > 0 {
			t.Fatal("nothing is rendered")
		}
		if c == nil {
			return
		}
		again, _ := lint.Compile(c.Source)
		if again == nil || again.Hash != c.Hash {
			t.Fatal("the source of a spec is another spec")
		}
		if found := compare.Compatibility(c, again); len(found) > 0 {
			t.Fatalf("a spec differs from itself:\n%s", written(found))
		}
	})
}

func FuzzCompare(f *testing.F) {
	seeds(f, func(text string) {
		f.Add(text, text)
		f.Add(text, `{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false, "required": ["a"]}`)
	})
	f.Fuzz(func(t *testing.T, old, next string) {
		was, _ := lint.Compile(whole(old))
		is, _ := lint.Compile(whole(next))
		if was == nil || is == nil {
			return
		}
		for _, d := range compare.Compatibility(was, is) {
			if place, _ := value.Locate(string(is.Source), string(d.Pointer)); d.Line == 0 || place.End == 0 {
				t.Fatalf("%+v has no place", d)
			}
		}
	})
}

func FuzzUnwrap(f *testing.F) {
	f.Add(`{"spec": {}, "force": true, "environment": "test"}`)
	f.Fuzz(func(t *testing.T, src string) {
		e, found := spec.Unwrap([]byte(src))
		if len(found) == 0 && strings.TrimSpace(string(e.Spec)) == "" && strings.TrimSpace(src) != "" {
			t.Fatalf("Unwrap makes nothing of %q", src)
		}
	})
}
