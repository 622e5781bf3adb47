package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repository makes a folder with a page and files about changes, named without their folder.
func repository(t *testing.T, text string, changes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, page), text)
	for name, content := range changes {
		write(t, filepath.Join(root, folder, name), content)
	}
	return root
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestRelease makes a section of three changes: by kind in a fixed order, by name within a kind, before the last
// release.
func TestRelease(t *testing.T) {
	root := repository(t, "# Changelog\n\nAbout it.\n\n## [0.1.0] - 2026-11-30\n\nThe first.\n", map[string]string{
		".gitkeep": "", "b.md": "Fixed\nTwo lines,\nindented.\n", "c.md": "Fixed\nOne.\n", "z.md": "Added\nNew.\n",
	})
	var stderr bytes.Buffer
	if code := run(root, []string{"0.2.0", "2027-01-31"}, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	want := `# Changelog

About it.

## [0.2.0] - 2027-01-31

### Added

- New.

### Fixed

- Two lines,
  indented.
- One.

## [0.1.0] - 2026-11-30

The first.
`
	if diff := cmp.Diff(want, contents(t, filepath.Join(root, page))); diff != "" {
		t.Error(diff)
	}
	left, err := os.ReadDir(filepath.Join(root, folder))
	if err != nil || len(left) != 1 || left[0].Name() != ".gitkeep" {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRefused gives what no section can be made of. The page stays as it was, and so do the files.
func TestRefused(t *testing.T) {
	const old = "# Changelog\n\n## [0.1.0] - 2026-11-30\n"
	for name, test := range map[string]struct {
		page    string
		changes map[string]string
		args    []string
		code    int
		want    string
	}{
		"no change": {
			old, map[string]string{".gitkeep": ""}, []string{"0.2.0", "2027-01-31"}, 1, "there is no change",
		},
		"unknown kind": {
			old, map[string]string{"a.md": "Bugfix\nText."}, []string{"0.2.0", "2027-01-31"}, 1, `"Bugfix"`,
		},
		"no text": {
			old,
			map[string]string{"a.md": "Fixed\n"},
			[]string{"0.2.0", "2027-01-31"},
			1,
			"the text of the change is missing",
		},
		"a list": {
			old, map[string]string{"a.md": "Fixed\n- One"}, []string{"0.2.0", "2027-01-31"}, 1, "one paragraph",
		},
		"another name": {
			old, map[string]string{"a.txt": "Fixed\nOne"}, []string{"0.2.0", "2027-01-31"}, 1, "ends in .md",
		},
		"released before": {
			old,
			map[string]string{"a.md": "Fixed\nOne"},
			[]string{"0.1.0", "2027-01-31"},
			1,
			"has a section of 0.1.0 already",
		},
		"no release": {
			"# Changelog\n",
			map[string]string{"a.md": "Fixed\nOne"},
			[]string{"0.2.0", "2027-01-31"},
			1,
			"has no section",
		},
		"no version": {old, map[string]string{"a.md": "Fixed\nOne"}, []string{"", "2027-01-31"}, 2, "Say the version"},
		"no date":    {old, map[string]string{"a.md": "Fixed\nOne"}, []string{"0.2.0"}, 2, "Say the version"},
	} {
		t.Run(name, func(t *testing.T) {
			root := repository(t, test.page, test.changes)
			var stderr bytes.Buffer
			if code := run(root, test.args, &stderr); code != test.code ||
				!strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
			if got := contents(t, filepath.Join(root, page)); got != test.page {
				t.Errorf("the page is now %q", got)
			}
			for file, text := range test.changes {
				if got := contents(t, filepath.Join(root, folder, file)); got != text {
					t.Errorf("%s is now %q", file, got)
				}
			}
		})
	}
}

// TestUnreleased reads the files of this repository, and the one that new ones begin as.
func TestUnreleased(t *testing.T) {
	files, err := filepath.Glob("../../" + folder + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../changelog/TEMPLATE.md") {
		if _, err := read(file); err != nil {
			t.Error(err)
		}
	}
	if text := contents(t, "../../"+page); strings.Contains(strings.ToLower(text), "## [unreleased]") {
		t.Errorf("%s has a section for changes that are not released: they go into %s", page, folder)
	}
}
