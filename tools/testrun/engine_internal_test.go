package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheCopyOfTheEngine copies the engine of the store as it is: what is changed is there, once, and its tests are
// left out.
func TestTheCopyOfTheEngine(t *testing.T) {
	from, err := answer(t.Context(), "list", "-m", "-f", "{{.Dir}}", engineModule)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy")
	if err := copyEngine(from, to); err != nil {
		t.Fatal(err)
	}
	for name, change := range engineChanges() {
		text, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || strings.Contains(string(text), change[0]) || !strings.Contains(string(text), change[1]) {
			t.Errorf("%s is not changed: %v", name, err)
		}
	}
	if tests, err := filepath.Glob(filepath.Join(to, "*_test.go")); err != nil || len(tests) > 0 {
		t.Errorf("tests were copied: %v, %v", tests, err)
	}
}

// TestAnotherEngine copies engines in which what is to be changed is not as it was, or not there: nothing is at the
// place of the copy.
func TestAnotherEngine(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"other text": {"internal/invariants/on.go": "//go:build invariants\n"},
		"no file":    {"db.go": "package pebble\n"},
	} {
		from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
		for file, text := range files {
			path := filepath.Join(from, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := copyEngine(from, to)
		left, _ := filepath.Glob(to + "*")
		if err == nil || !strings.Contains(err.Error(), "tools/testrun/engine.go") || len(left) > 0 {
			t.Errorf("%s: %v; there is %v", name, err, left)
		}
	}
}
