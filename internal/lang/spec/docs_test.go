//go:build !race

package spec_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
)

// repository returns the folder that holds go.mod.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("there is no go.mod above this package")
		}
		dir = parent
	}
}

// specBlocks returns the fenced blocks of a Markdown text whose info string is "json spec", with line ends in place of
// what stands before them, so that places are those of the text.
func specBlocks(text string) []string {
	var blocks []string
	var block strings.Builder
	inside := false
	for i, line := range strings.SplitAfter(text, "\n") {
		switch fence := strings.TrimSpace(line); {
		case !inside && fence == "```json spec":
			inside = true
			block.WriteString(strings.Repeat("\n", i+1))
		case inside && fence == "```":
			inside = false
			blocks = append(blocks, block.String())
			block.Reset()
		case inside:
			block.WriteString(line)
		}
	}
	return blocks
}

// Every example of the docs that claims to be a spec is one.
func TestSpecsInTheDocsCompile(t *testing.T) {
	root := repository(t)
	files := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range specBlocks(string(text)) {
			blocks++
			_, found := lint.Compile([]byte(block))
			if errors, _ := diag.Count(found); errors > 0 {
				t.Errorf("an example is no spec:\n%s", diag.Render(path, []byte(block), found))
			}
		}
	}
	if blocks == 0 {
		t.Error("no examples were found")
	}
}

// The manual explains every key. The compiler's own hints say which there are.
func TestTheManualNamesEveryKey(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository(t), "docs", "reference", "spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, found := lint.Compile([]byte(strings.ReplaceAll(`{UNKNOWN,
		"aggregate_types": {"a": {UNKNOWN, "identity": {UNKNOWN}, "onTombstone": {UNKNOWN}, "events": {"e": {UNKNOWN, "generations": {"1": {UNKNOWN}}, "geo": {UNKNOWN}, "handler": {"wasm": {UNKNOWN}}, "implications": [
			{UNKNOWN}, {"emit": {UNKNOWN}}, {"map": {UNKNOWN}}, {"schedule": {UNKNOWN, "cancel_on": [{UNKNOWN}]}},
			{"wasm": {UNKNOWN}}, {"binary_container": {UNKNOWN}}, {"runtime_container": {UNKNOWN}}
		]}, "f": {"retired": {UNKNOWN}}}}},
		"identity": {UNKNOWN},
		"modules": {UNKNOWN, "sagas": {"s": {UNKNOWN, "trigger": {UNKNOWN}, "steps": [{UNKNOWN, "await": {UNKNOWN}}]}}},
		"geo_types": {"g": {UNKNOWN}},
		"projections": {"p": {UNKNOWN, "for_each": "a", "sources": {"s": {UNKNOWN}}}, "q": {"sources": [{UNKNOWN}]}},
		"listeners": {"l": {UNKNOWN, "url": {UNKNOWN}}}
	}`, "UNKNOWN", `"zzzzzzzzzzzz": 1`)))
	objects := 0
	for _, d := range found {
		keys, ok := strings.CutPrefix(d.Hint, "known keys here are ")
		if !ok {
			continue
		}
		objects++
		for key := range strings.SplitSeq(keys, ", ") {
			if !strings.Contains(string(text), "`"+key+"`") && !mentioned(string(text), key) {
				t.Errorf("the manual does not mention %s of %s", key, d.Pointer)
			}
		}
	}
	if objects != 29 {
		t.Errorf("%d objects were asked for their keys:\n%s", objects, written(found))
	}
}

// mentioned reports whether text names key within braces, as in `{image, mode}`.
func mentioned(text, key string) bool {
	for part := range strings.SplitSeq(text, "`") {
		names := strings.FieldsFunc(part, func(r rune) bool { return strings.ContainsRune("{}, ", r) })
		if strings.HasPrefix(part, "{") && slices.Contains(names, key) {
			return true
		}
	}
	return false
}
