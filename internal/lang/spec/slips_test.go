//go:build !race

package spec_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
)

// unexpected returns findings that are not about what this version does not run.
func unexpected(found []diag.Diagnostic) []diag.Diagnostic {
	var rest []diag.Diagnostic
	for _, d := range found {
		if !strings.Contains(d.Message, "checked but do not run in this version") {
			rest = append(rest, d)
		}
	}
	return rest
}

// What is shown to readers has no slips, which also proves that honest specs get no warnings.
func TestExamplesAreFreeOfSlips(t *testing.T) {
	root := repository(t)
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	specs := map[string][]string{"README.md": specBlocks(read(filepath.Join(root, "README.md")))}
	for _, folder := range []string{"docs", "examples", "bench"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			switch name := filepath.Base(path); {
			case err != nil:
				return err
			case filepath.Ext(path) == ".md":
				specs[path] = specBlocks(read(path))
			case name == "spec.json" || strings.HasSuffix(name, ".spec.json"):
				specs[path] = []string{read(path)}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for path, texts := range specs {
		for _, text := range texts {
			seen++
			if _, found := lint.Compile([]byte(text)); len(unexpected(found)) > 0 {
				t.Errorf("an example has findings:\n%s", diag.Render(path, []byte(text), unexpected(found)))
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d specs were found", seen)
	}
}
