//go:build !race

package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

// suiteGroup is one schema of the official JSON Schema Test Suite with the values it is tried on.
type suiteGroup struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Tests       []struct {
		Description string          `json:"description"`
		Data        json.RawMessage `json:"data"`
		Valid       bool            `json:"valid"`
	} `json:"tests"`
}

// exclusion is a group of the suite that needs what is not supported. The compiler has to refuse it at the keyword.
type exclusion struct {
	file string
	// group is a group's description, or * for every group of the file.
	group   string
	keyword string
}

const (
	// remote says that a $ref leads to another document: the reference requires that it is rejected.
	remote = "$ref"
	// metaschema says that a $schema names a dialect of its own, which would have to be fetched.
	metaschema = "$schema"
)

func exclusions() []exclusion {
	return []exclusion{
		{"unevaluatedItems.json", "*", "unevaluatedItems"},
		{"unevaluatedProperties.json", "*", "unevaluatedProperties"},
		{"anchor.json", "*", "$anchor"},
		{"vocabulary.json", "*", metaschema},

		{"not.json", "collect annotations inside a 'not', even if collection is disabled", "unevaluatedProperties"},
		{"ref.json", "ref creates new scope when adjacent to keywords", "unevaluatedProperties"},
		{"ref.json", "order of evaluation: $id and $anchor and $ref", "$anchor"},
		{"ref.json", "URN base URI with URN and anchor ref", "$anchor"},

		{"ref.json", "remote ref, containing refs itself", remote},
		{"defs.json", "validate definition against metaschema", remote},
		{"refRemote.json", "*", remote},

		{"dynamicRef.json", "$ref to $dynamicRef finds detached $dynamicAnchor", remote},
		{"dynamicRef.json", "A $ref to a $dynamicAnchor in the same schema resource behaves like a normal $ref to an $anchor", "$dynamicAnchor"},
		{"dynamicRef.json", "strict-tree schema, guards against misspelled properties", "$dynamicAnchor"},
		{"dynamicRef.json", "tests for implementation dynamic anchor and reference link", "$dynamicAnchor"},
		{"dynamicRef.json", "$ref and $dynamicAnchor are independent of order - $defs first", "$dynamicAnchor"},
		{"dynamicRef.json", "$ref and $dynamicAnchor are independent of order - $ref first", "$dynamicAnchor"},
		{"dynamicRef.json", "*", "$dynamicRef"},

		{"optional/anchor.json", "*", "$anchor"},
		{"optional/cross-draft.json", "*", remote},
		{"optional/dynamicRef.json", "*", "$dynamicRef"},
		{"optional/format-assertion.json", "*", metaschema},
	}
}

// suite returns the folder of the test suite.
func suite(tb testing.TB) string {
	tb.Helper()
	shared := os.Getenv("J17_SHARED")
	if shared == "" {
		root, err := filepath.Abs(".")
		if err != nil {
			tb.Fatal(err)
		}
		for !exists(filepath.Join(root, "go.mod")) {
			if root == filepath.Dir(root) {
				tb.Fatal("there is no go.mod above the test")
			}
			root = filepath.Dir(root)
		}
		shared = filepath.Join(filepath.Dir(root), "shared")
	}
	dir := filepath.Join(shared, "data", "json-schema-test-suite")
	if !exists(dir) {
		const message = "THE JSON SCHEMA TEST SUITE WAS NOT RUN: it is not there: %s (J17_SHARED names the folder that holds data/json-schema-test-suite)"
		tb.Logf(message, dir)
		tb.Skipf(message, dir)
	}
	return dir
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// count is what was done with a part of the suite.
type count struct{ groups, tests, excluded int }

func TestSuite(t *testing.T) {
	dir := suite(t)
	parts := []struct {
		name, pattern string
	}{
		{"required", "*.json"},
		{"optional", "optional/*.json"},
		{"format", "optional/format/*.json"},
	}
	used := make([]bool, len(exclusions()))
	for _, part := range parts {
		files, err := filepath.Glob(filepath.Join(dir, part.pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files for %s: %v", part.pattern, err)
		}
		var n count
		for _, file := range files {
			name, err := filepath.Rel(dir, file)
			if err != nil {
				t.Fatal(err)
			}
			name = filepath.ToSlash(name)
			if name == "format.json" {
				// It requires that formats are only annotations; optional/format requires that they are asserted.
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var groups []suiteGroup
			if err := json.Unmarshal(src, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				n.run(t, name, g, used)
			}
		}
		line := fmt.Sprintf("%s: %d groups, %d tests passed, %d groups excluded", part.name, n.groups, n.tests, n.excluded)
		if t.Log(line); !strings.Contains(page(t), line+"\n") {
			t.Errorf("the docs do not say %q", line)
		}
	}
	for i, e := range exclusions() {
		if !used[i] {
			t.Errorf("the suite has no group that is excluded as %v", e)
		}
	}
}

func (n *count) run(t *testing.T, file string, g suiteGroup, used []bool) {
	t.Helper()
	name := file + ": " + g.Description
	v, err := value.Parse(g.Schema)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	var l diag.List
	s := schema.NewGroup(&l).Compile(v, "")
	if i := slices.IndexFunc(exclusions(), func(e exclusion) bool {
		return e.file == file && (e.group == "*" || e.group == g.Description)
	}); i >= 0 {
		n.excluded++
		used[i] = true
		if !refusedAt(l.All(), exclusions()[i].keyword) {
			t.Errorf("%s: the group is excluded for %s, but is not refused for it: %v", name, exclusions()[i].keyword, l.All())
		}
		return
	}
	for _, d := range l.All() {
		if d.Severity == diag.Error {
			t.Errorf("%s: %+v", name, d)
			return
		}
	}
	n.groups++
	for _, test := range g.Tests {
		data, err := value.Parse(test.Data)
		if err != nil {
			t.Errorf("%s: %s: %v", name, test.Description, err)
			continue
		}
		failures := validate(t, s, data)
		if (failures == nil) != test.Valid || valid(t, s, data) != test.Valid {
			t.Errorf("%s: %s: want valid %v, got %v", name, test.Description, test.Valid, failures)
			continue
		}
		for _, f := range failures {
			if f.Message == "" || f.Constraint == "" {
				t.Errorf("%s: %s: the failure %+v has no message or constraint", name, test.Description, f)
			}
		}
		n.tests++
	}
}

func refusedAt(found []diag.Diagnostic, keyword string) bool {
	return slices.ContainsFunc(found, func(d diag.Diagnostic) bool {
		return d.Severity == diag.Error && d.Hint != "" && strings.HasSuffix(string(d.Pointer), "/"+keyword)
	})
}
