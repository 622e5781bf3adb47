//go:build !race

package schema_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"j17/internal/base/value"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema"
)

var update = flag.Bool("update", false, "write what the tests found into testdata")

// archive runs a test for each case of an archive. A case is the files that share a name up to the dot; run returns
// what the file with the ending .want should hold.
func archive(t *testing.T, name string, run func(t *testing.T, files map[string]string) string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]map[string]string{}
	for _, f := range a.Files {
		name, end, _ := strings.Cut(f.Name, ".")
		if cases[name] == nil {
			cases[name] = map[string]string{}
		}
		cases[name][end] = string(f.Data)
	}
	for i := range a.Files {
		name, end, _ := strings.Cut(a.Files[i].Name, ".")
		if end != "want" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := run(t, cases[name])
			if *update {
				a.Files[i].Data = []byte(got)
			} else if diff := cmp.Diff(cases[name]["want"], got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(a), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompile(t *testing.T) {
	archive(t, "compile.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		const at diag.Pointer = "/s"
		var l diag.List
		s := schema.NewGroup(&l).Compile(parse(t, files["json"]), at)
		var b strings.Builder
		for _, d := range l.All() {
			key := ""
			if d.OnKey {
				key = " (key)"
			}
			fmt.Fprintf(&b, "%s%s %s: %s\n", d.Pointer, key, d.Severity, d.Message)
			if d.Hint != "" {
				fmt.Fprintf(&b, "\t(%s)\n", d.Hint)
			}
			if !strings.HasPrefix(string(d.Pointer), string(at)) {
				t.Errorf("the pointer %s is not inside of %s", d.Pointer, at)
			}
		}
		if l.Errors() > 0 && validate(t, s, parse(t, `{"a": [1, "x"]}`)) != nil {
			t.Error("a faulty schema refuses values")
		}
		if b.Len() == 0 {
			return "nothing\n"
		}
		return b.String()
	})
}

func TestValidate(t *testing.T) {
	archive(t, "validate.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		s, v := compile(t, files["schema"]), parse(t, files["data"])
		failures := validate(t, s, v)
		if valid(t, s, v) != (failures == nil) {
			t.Error("Valid and Validate disagree")
		}
		var b strings.Builder
		for _, f := range failures {
			fmt.Fprintf(&b, "%s %s %s", or(f.Path, "-"), or(f.Pointer, "-"), f.Constraint)
			if !f.Expected.IsMissing() {
				fmt.Fprintf(&b, " expected=%s", f.Expected)
			}
			if !f.Received.IsMissing() {
				fmt.Fprintf(&b, " received=%s", f.Received)
			}
			fmt.Fprintf(&b, "\n\t%s\n", f.Message)
		}
		if b.Len() == 0 {
			return "fits\n"
		}
		return b.String()
	})
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// soon fails the test when f takes longer than anybody should wait, even for a busy machine.
func soon(t *testing.T, f func()) {
	t.Helper()
	start := worktest.ProcessorTime(t)
	f()
	if took := worktest.Since(t, start); took > slow {
		t.Errorf("it took %v", took)
	}
}

// onlyFailure returns the one failure of a value.
func onlyFailure(t *testing.T, s *schema.Schema, v value.Value) schema.Failure {
	t.Helper()
	var failures []schema.Failure
	soon(t, func() { failures = validate(t, s, v) })
	if len(failures) != 1 {
		t.Fatalf("there are %d failures: %.200v", len(failures), failures)
	}
	return failures[0]
}

// TestHostilePatterns checks that patterns which take forever in careless matchers do not. Those that still do: see
// work_test.go.
func TestHostilePatterns(t *testing.T) {
	bait := value.StringValue(strings.Repeat("a", 1000) + "!")
	for _, pattern := range []string{`^(a+)+$`, `^(a|aa)+$`, `^(?:a?){900}a{900}$`} { // in linear time
		s := compile(t, fmt.Sprintf(`{"pattern": %q}`, pattern))
		if f := onlyFailure(t, s, bait); f.Constraint != "pattern" {
			t.Errorf("%s: %+v", pattern, f)
		}
	}
}

// TestUniqueItems compares the two ways to find duplicates, and values that are equal in unlike forms.
func TestUniqueItems(t *testing.T) {
	s := compile(t, `{"uniqueItems": true}`)
	for _, pair := range [][2]string{
		{"1", "1.0"},
		{"100", "1e2"},
		{"0.5", "5e-1"},
		{"1e300", "10e299"},
		{"0", "-0.0"},
		{"-1.50e-30", "-15e-31"},
		{"123456789012345678901234567890", "12345678901234567890123456789e1"},
		{`"a"`, `"\u0061"`},
		{`{"a": 1, "b": [2]}`, `{"b": [2.0], "a": 1}`},
		{"[]", "[]"},
		{"{}", "{}"},
		{"null", "null"},
		{"false", "false"},
	} {
		for _, filler := range []string{"", `"p","q","r","s","t","u","v","w","x","y","z",`} {
			if valid(t, s, parse(t, "["+filler+pair[0]+","+pair[1]+"]")) {
				t.Errorf("%s and %s are different", pair[0], pair[1])
			}
		}
	}
	different := `[0, false, "", null, [], {}, 1, true, "1", [1], {"1": 1}, [[1]], {"a": null}, {"b": null}, [1, 2], [2, 1], 0.1, 1e-2, -1, 1e300, 1e299]`
	if got := validate(t, s, parse(t, different)); got != nil {
		t.Error(got)
	}
}

func TestMissingValue(t *testing.T) {
	for _, src := range []string{`{"type": "object"}`, `{"enum": [null]}`, `false`} {
		if valid(t, compile(t, src), value.Value{}) {
			t.Errorf("no value fits %s", src)
		}
	}
	for _, src := range []string{`{}`, `{"minLength": 3, "required": ["a"], "items": false, "minimum": 1}`} {
		if !valid(t, compile(t, src), value.Value{}) {
			t.Errorf("no value does not fit %s", src)
		}
	}
}
