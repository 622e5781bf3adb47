package tick_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"j17/internal/lang/tick"
)

// TestSemantics holds the states of a fixed set of handlers and events against a file that is never rewritten: states
// that are stored as snapshots, and entity tags, are as old as the version in its name. When it fails, what handlers do
// has changed: raise tick.Semantics, and let -update write the file of the new version. A new version's file is made of
// the cases that the other files in testdata have at that time.
func TestSemantics(t *testing.T) {
	file := filepath.Join("testdata", "semantics", fmt.Sprintf("%d.txtar", tick.Semantics))
	archive, err := txtar.ParseFile(file)
	if os.IsNotExist(err) && *update {
		archive = &txtar.Archive{Comment: []byte("The states that version " + fmt.Sprint(tick.Semantics) + " of the language gives. Never rewritten.\n\n")}
		sources, _ := filepath.Glob("testdata/*.txtar")
		for _, source := range sources {
			from, err := txtar.ParseFile(source)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range from.Files {
				input, _, _ := strings.Cut(string(f.Data), "----\n")
				if states := statesOf(t, input); strings.Contains(states, "{") {
					name := strings.TrimSuffix(filepath.Base(source), ".txtar") + ": " + f.Name
					archive.Files = append(archive.Files, txtar.File{
						Name: name, Data: []byte(strings.TrimRight(input, "\n") + "\n----\n" + states + "\n"),
					})
				}
			}
		}
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range archive.Files {
		input, want, _ := strings.Cut(string(f.Data), "----\n")
		all.WriteString(input)
		if got := statesOf(t, input); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s: the states are\n%swant\n%sraise tick.Semantics if they are meant to change", f.Name, got, want)
		}
	}
	for _, word := range []string{
		"set", "merge", "append", "remove", "increment", "decrement", "filter", "map", "update_where", "upsert",
		"append_unique", "set_at", "merge_at",
		"remove_at", "increment_at", "if", "let", "equals", "not_equals", "gt", "gte", "lt", "lte", "in", "not_in",
		"exists", "includes", "minItems",
		"maxItems", "expired", "every", "some", "subset_of", "and", "or", "not",
	} {
		if !strings.Contains(all.String(), `{"`+word+`":`) {
			t.Errorf("no case has %s", word)
		}
	}
}

// statesOf returns the states after each event of a case.
func statesOf(t *testing.T, input string) string {
	t.Helper()
	var states strings.Builder
	for line := range strings.Lines(runCase(t, input)) {
		if !strings.HasPrefix(line, "fault ") && !strings.HasPrefix(line, "error ") &&
			!strings.HasPrefix(line, "warning ") && !strings.HasPrefix(line, "  ") {
			states.WriteString(line)
		}
	}
	return states.String()
}
