package server

import (
	"flag"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// hooks returns the names of the hooks that a group of a part has: of its functions that are not nil, and of what is
// true.
func hooks(group any) string {
	var names []string
	v := reflect.ValueOf(group)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return strings.Join(names, " ")
}

// declared says what a space is.
func declared(s *part.Space) string {
	var all []string
	for _, is := range []struct {
		what string
		so   bool
	}{
		{"data of the stream in the key", s.OfStreams},
		{"data of any stream", s.Whole},
		{"sealed", s.Sealed != nil},
		{"derived", s.Derived},
		{"secret", s.Secret},
		{"in clear without its secrets", s.Open != nil},
		{"checked", s.Check != nil},
		{"no value is no item", s.Void},
	} {
		if is.so {
			all = append(all, is.what)
		}
	}
	return strings.Join(all, ", ")
}

// table returns rows with their columns in line.
func table(t *testing.T, rows [][]string) string {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 1, ' ', tabwriter.Debug)
	for _, row := range rows {
		if _, err := io.WriteString(w, strings.Join(row, "\t ")+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " |")
	}
	return strings.Join(lines, "\n")
}

// TestParts compares the table of all parts with testdata/parts.txt: which hooks each has, in the order of the list,
// and which spaces. It makes the list without a server that is open.
func TestParts(t *testing.T) {
	parts := new(Server).parts()
	rows := [][]string{{"part", "commit", "deploy", "erase", "work", "metrics"}}
	for i := range parts {
		p := &parts[i]
		rows = append(rows, []string{
			p.Name, hooks(p.Commit), hooks(p.Deploy), hooks(p.Erase), hooks(p.Work), strconv.Itoa(len(p.Metrics)),
		})
	}
	got := "The parts of the program, in their order, with the hooks that each has.\n\n" + table(t, rows)

	owners := map[store.Space]string{}
	rows = [][]string{{"part", "space", "items"}}
	for i := range parts {
		p := &parts[i]
		for j := range p.Spaces {
			s := &p.Spaces[j]
			if other, has := owners[s.Space]; has || s.Space == "" {
				t.Errorf("the space %q belongs to %s and to %s", s.Space, other, p.Name)
			}
			owners[s.Space] = p.Name
			rows = append(rows, []string{p.Name, string(s.Space), declared(s)})
			if (s.OfStreams || s.Whole) && p.Erase.Streams == nil {
				t.Errorf("%s has data of streams in %s and removes nothing when they are erased", p.Name, s.Space)
			}
		}
	}
	got += "\nTheir spaces, with what is said of the items.\n\n" + table(t, rows)

	const golden = "testdata/parts.txt"
	// The flag is that of the frozen data, which is not compiled under the race detector.
	if update := flag.Lookup("update"); update != nil && update.Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the parts are not those of %s; look at what has changed and run this test with -update:\n%s", golden, got)
	}
}

// TestPartsStandAlone checks that of the hooks of which one part at most has one, no two parts do.
func TestPartsStandAlone(t *testing.T) {
	count := map[string]int{}
	for _, p := range new(Server).parts() {
		for name, has := range map[string]bool{
			"Renew": p.Deploy.Renew != nil, "Tagged": p.Commit.Tagged != nil, "Unique": p.Commit.Unique != nil,
		} {
			if has {
				count[name]++
			}
		}
	}
	for _, name := range []string{"Renew", "Tagged", "Unique"} {
		if count[name] != 1 {
			t.Errorf("%d parts have the hook %s", count[name], name)
		}
	}
}
