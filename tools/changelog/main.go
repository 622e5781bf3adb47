// Command changelog makes the section of a release in CHANGELOG.md of the files in changelog/unreleased, and removes
// these:
//
//	changelog 0.2.0 2027-01-31
//
// Each file is about one change: its first line is the kind, the others are the text. It runs in the root of the
// repository.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The page, and where the files about changes are, below the root of the repository.
const (
	page   = "CHANGELOG.md"
	folder = "changelog/unreleased"
)

// kinds returns the kinds of changes in the order in which a release lists them.
func kinds() []string { return []string{"Added", "Changed", "Removed", "Fixed", "Security"} }

// change is what one file says.
type change struct{ kind, text string }

func main() {
	os.Exit(run(".", os.Args[1:], os.Stderr))
}

// run returns the exit code: 2 for wrong arguments, 1 for what cannot be read or written.
func run(root string, args []string, stderr io.Writer) int {
	if len(args) != 2 || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(args[0]) ||
		!regexp.MustCompile(`^\d{4}-\d\d-\d\d$`).MatchString(args[1]) {
		_, _ = fmt.Fprintln(stderr, "Say the version and the date of the release, as in: changelog 0.2.0 2027-01-31")
		return 2
	}
	if err := release(root, args[0], args[1]); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// release puts the section of a version in front of those of earlier versions. The files go once the page is written.
func release(root, version, date string) error {
	files, err := filepath.Glob(filepath.Join(root, folder, "*"))
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasPrefix(filepath.Base(file), ".") })
	if len(files) == 0 {
		return fmt.Errorf("there is no change in %s", folder)
	}
	changes := make([]change, len(files))
	for i, file := range files {
		if changes[i], err = read(file); err != nil {
			return err
		}
	}

	raw, err := os.ReadFile(filepath.Join(root, page)) //nolint:gosec // the repository's own page
	if err != nil {
		return err
	}
	text, err := insert(string(raw), version, date, changes)
	if err != nil {
		return err
	}
	//nolint:gosec // a page that everybody reads
	if err := os.WriteFile(filepath.Join(root, page), []byte(text), 0o644); err != nil {
		return err
	}
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// read takes the file of a change apart.
func read(file string) (change, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	if err != nil {
		return change{}, err
	}
	kind, text, _ := strings.Cut(strings.TrimSpace(string(raw)), "\n")
	c := change{kind: strings.TrimSpace(kind), text: strings.TrimSpace(text)}
	switch {
	case filepath.Ext(file) != ".md":
		return change{}, fmt.Errorf("%s: the name of a change ends in .md", file)
	case !slices.Contains(kinds(), c.kind):
		return change{}, fmt.Errorf("%s: the first line is %q and has to be one of %s", file, c.kind, strings.Join(kinds(), ", "))
	case c.text == "":
		return change{}, fmt.Errorf("%s: the text of the change is missing below its kind", file)
	case strings.Contains(c.text, "\n\n") || strings.HasPrefix(c.text, "#") || strings.HasPrefix(c.text, "- "):
		return change{}, fmt.Errorf("%s: the text has to be one paragraph without a heading or a list", file)
	}
	return c, nil
}

// insert returns the page with the section of a version, grouped by kind, before the first one that it has.
func insert(text, version, date string, changes []change) (string, error) {
	if strings.Contains(text, "\n## ["+version+"]") {
		return "", fmt.Errorf("%s has a section of %s already", page, version)
	}
	at := strings.Index(text, "\n## [")
	if at < 0 {
		return "", fmt.Errorf("%s has no section of a release", page)
	}
	var b strings.Builder
	b.WriteString(text[:at+1])
	fmt.Fprintf(&b, "## [%s] - %s\n\n", version, date)
	for _, kind := range kinds() {
		head := "### " + kind + "\n\n"
		for _, c := range changes {
			if c.kind != kind {
				continue
			}
			b.WriteString(head + "- " + strings.ReplaceAll(c.text, "\n", "\n  ") + "\n")
			head = ""
		}
		if head == "" {
			b.WriteByte('\n')
		}
	}
	b.WriteString(text[at+1:])
	return b.String(), nil
}
