//go:build !race

package jsonpath_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"j17/internal/base/value"
	"j17/internal/lang/jsonpath"
)

var update = flag.Bool("update", false, "rewrite the results in testdata")

// TestParse runs testdata/paths.txtar. Every file holds paths, one a line, and behind each path, indented, what
// the function that the file's name starts with makes of it.
func TestParse(t *testing.T) {
	const file = "testdata/paths.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range archive.Files {
		f := &archive.Files[i]
		parse := map[string]func(string) (jsonpath.Path, error){
			"path": jsonpath.Parse, "state": jsonpath.ParseState, "projection": jsonpath.ParseProjection,
			"any": jsonpath.ParseAny,
		}[strings.TrimSuffix(strings.Fields(f.Name)[0], ":")]
		var b strings.Builder
		for line := range strings.Lines(string(f.Data)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "\t") || line == "" {
				continue
			}
			// A path stands in quotes where it would be hard to see.
			text := line
			if strings.HasPrefix(line, `"`) {
				if v, err := value.ParseString(line); err == nil {
					text = v.Str()
				}
			}
			fmt.Fprintf(&b, "%s\n\t%s\n", line, describe(parse(text)))
		}
		if *update {
			f.Data = []byte(b.String() + "\n")
			continue
		}
		if diff := cmp.Diff(strings.TrimSpace(string(f.Data)), strings.TrimSpace(b.String())); diff != "" {
			t.Errorf("%s: %s", f.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// describe writes a path's parts, or what is wrong with it.
func describe(p jsonpath.Path, err error) string {
	if err != nil {
		s, ok := errors.AsType[*jsonpath.SyntaxError](err)
		if !ok {
			return "not a syntax error: " + err.Error()
		}
		text := fmt.Sprintf("error at %d: %s", s.Offset, s.Message)
		if s.Hint != "" {
			text += "\n\thint: " + s.Hint
		}
		return text
	}
	parts := []string{[]string{"event", "state", "binding " + p.Name}[p.Root]}
	steps := func(list []value.Step) {
		for _, s := range list {
			if s.IsIndex {
				parts = append(parts, fmt.Sprintf("[%d]", s.Index))
			} else {
				parts = append(parts, fmt.Sprintf("%q", s.Key))
			}
		}
	}
	steps(p.Steps)
	for _, behind := range p.Each {
		parts = append(parts, "each")
		steps(behind)
	}
	if p.Entries {
		parts = append(parts, "entries")
	}
	if p.Optional {
		parts = append(parts, "optional")
	}
	return strings.Join(parts, " ")
}

func TestLimits(t *testing.T) {
	deep := "$" + strings.Repeat(".a", jsonpath.MaxSteps)
	if _, err := jsonpath.Parse(deep); err != nil {
		t.Errorf("a path of %d steps: %v", jsonpath.MaxSteps, err)
	}
	if _, err := jsonpath.Parse(deep + ".a"); err == nil {
		t.Errorf("a path of %d steps is accepted", jsonpath.MaxSteps+1)
	}
	if _, err := jsonpath.ParseProjection("$" + strings.Repeat(".a[*]", jsonpath.MaxSteps)); err != nil {
		t.Errorf("a path of %d steps: %v", jsonpath.MaxSteps, err)
	}
	long := "$." + strings.Repeat("a", jsonpath.MaxLength-2)
	if _, err := jsonpath.Parse(long); err != nil {
		t.Errorf("a path of %d bytes: %v", len(long), err)
	}
	if _, err := jsonpath.Parse(long + "a"); err == nil {
		t.Errorf("a path of %d bytes is accepted", len(long)+1)
	}
	if _, err := jsonpath.ParseState(strings.Repeat("a", jsonpath.MaxLength+1)); err == nil {
		t.Error("a long state path is accepted")
	}
}

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{
		"item": true, "_x9": true, "A": true, "": false, "9x": false, "a-b": false, "a.b": false, "é": false,
	} {
		if jsonpath.IsName(s) != want {
			t.Errorf("%q: want %v", s, want)
		}
	}
}

// Every path that is built from its parts is read as those parts.
func TestPathsFromParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := jsonpath.Path{Root: rapid.SampledFrom([]jsonpath.Root{
			jsonpath.Document, jsonpath.Current, jsonpath.Binding,
		}).Draw(t, "root")}
		text := map[jsonpath.Root]string{
			jsonpath.Document: "$", jsonpath.Current: "@", jsonpath.Binding: "$name",
		}[want.Root]
		if want.Root == jsonpath.Binding {
			want.Name = "name"
		}
		for range rapid.IntRange(0, 6).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "index") {
				i := rapid.IntRange(-999, 999).Draw(t, "number")
				want.Steps = append(want.Steps, value.Step{IsIndex: true, Index: i})
				text += fmt.Sprintf("[%d]", i)
				continue
			}
			key := rapid.StringMatching(`[a-z@é-][a-z0-9 $@_ü-]{0,4}[a-z*]`).Draw(t, "key")
			want.Steps = append(want.Steps, value.Step{Key: key})
			text += "." + key
		}
		stepsText := text[len(text)-len(jsonpath.StepsText(want.Steps)):]
		if got := jsonpath.StepsText(want.Steps); got != stepsText {
			t.Fatalf("the steps of %s are written %s", text, got)
		}
		if want.Entries = rapid.Bool().Draw(t, "entries"); want.Entries {
			text += ".$entries"
		}
		if want.Optional = rapid.Bool().Draw(t, "optional"); want.Optional {
			text += "?"
		}
		want.Text = text
		got, err := jsonpath.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"$.data.items[0].name?", "@.a[-1]", "a.b", "$x.$entries", "$.a[*].b", "$.a[?(@.x)]", "$.a[0:3]", `$.a["b"]`,
		"$..a", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (jsonpath.Path, error){
			jsonpath.Parse, jsonpath.ParseState, jsonpath.ParseProjection, jsonpath.ParseAny,
		} {
			p, err := parse(s)
			if err != nil {
				e, ok := errors.AsType[*jsonpath.SyntaxError](err)
				if !ok || e.Message == "" || e.Offset < 0 || e.Offset > len(s) {
					t.Errorf("%q: %#v", s, err)
				}
				continue
			}
			if p.Text != s {
				t.Errorf("%q has the text %q", s, p.Text)
			}
			// Written anew from its parts it is the same path.
			if len(p.Each) == 0 && p.Root != jsonpath.Current {
				again := "$" + p.Name + jsonpath.StepsText(p.Steps)
				if p.Entries {
					again += ".$entries"
				}
				if p.Optional {
					again += "?"
				}
				if again != s {
					t.Errorf("%q is written %q", s, again)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := jsonpath.Parse("$.data.items[0].address.zip?"); err != nil {
			b.Fatal(err)
		}
	}
}
