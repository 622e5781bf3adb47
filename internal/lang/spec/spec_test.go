//go:build !race

package spec_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

var update = flag.Bool("update", false, "write what the tests found into testdata")

// written writes findings one a line, in the form that testdata has.
func written(found []diag.Diagnostic) string {
	var b strings.Builder
	for _, d := range found {
		key := ""
		if d.OnKey {
			key = " (key)"
		}
		fmt.Fprintf(&b, "%d:%d %s%s\n\t%s: %s\n", d.Line, d.Column, d.Pointer, key, d.Severity, d.Message)
		if d.Hint != "" {
			fmt.Fprintf(&b, "\t(%s)\n", d.Hint)
		}
	}
	if len(found) == 0 {
		return "nothing\n"
	}
	return b.String()
}

// archives runs a test for each case of the archives that a pattern names. A case is the files that share a name but
// for what follows its last dot; run returns what the file with the ending ".want" should hold.
func archives(t *testing.T, pattern string, run func(t *testing.T, files map[string]string) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata matches %s (%v)", pattern, err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cases := map[string]map[string]string{}
		for _, f := range archive.Files {
			name, end, _ := strings.Cut(f.Name, ".")
			if cases[name] == nil {
				cases[name] = map[string]string{}
			}
			cases[name][end] = string(f.Data)
		}
		for i := range archive.Files {
			name, end, _ := strings.Cut(archive.Files[i].Name, ".")
			if end != "want" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+name, func(t *testing.T) {
				got := run(t, cases[name])
				if *update {
					archive.Files[i].Data = []byte(got)
					return
				}
				if diff := cmp.Diff(cases[name]["want"], got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCompile(t *testing.T) {
	archives(t, "compile_*.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		c, found := lint.Compile([]byte(files["json"]))
		if errors, _ := diag.Count(found); (c == nil) != (errors > 0) {
			t.Errorf("Compile returns %v with %d errors", c, errors)
		}
		for _, d := range found {
			if d.Severity == diag.Warning && d.Hint == "" {
				t.Errorf("a warning shows no way out: %s", d)
			}
		}
		return written(found)
	})
}

// whole returns src if it is a spec, else the spec of one event type with the schema src.
func whole(src string) []byte {
	if strings.Contains(src, `"aggregate_types"`) {
		return []byte(src)
	}
	return []byte(`{"agent_types": ["user"], "aggregate_types": {"t": {"events": {"e": {"handler": [], "schema":` + "\n" + src + `}}}}}`)
}

func compile(t *testing.T, src []byte) *spec.Compiled {
	t.Helper()
	c, found := lint.Compile(src)
	if c == nil {
		t.Fatalf("%s\nis no spec:\n%s", src, written(found))
	}
	return c
}

func TestCompare(t *testing.T) {
	archives(t, "compare_*.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		old, next := compile(t, whole(files["old"])), compile(t, whole(files["new"]))
		got := written(compare.Compatibility(old, next))
		for _, trial := range compare.Trials(old, next) {
			got += fmt.Sprintf("tried: %s %v", trial.Name(), trial.Generations)
			if len(trial.Unknown) > 0 {
				got += fmt.Sprintf(", unknown %v", trial.Unknown)
			}
			got += "\n"
		}
		return got
	})
}

// TestPropose compares proposals, and tries each: the newer spec with them is compatible with the older one.
func TestPropose(t *testing.T) {
	archives(t, "propose_*.txtar", func(t *testing.T, files map[string]string) string {
		t.Helper()
		old, next := compile(t, whole(files["old"])), compile(t, whole(files["new"]))
		proposals := compare.Propose(old, next)
		var b strings.Builder
		for _, p := range proposals {
			fmt.Fprintf(&b, "%s %d: %s", p.Type, p.Generation, spec.FormatValue(p.Definition))
			for _, d := range p.Decide {
				fmt.Fprintf(&b, "decide %s\n\t%s\n", d.Pointer, d.Message)
			}
		}
		with := compile(t, spec.FormatValue(compare.With(next.Root(), proposals)))
		if found := compare.Compatibility(old, with); len(found) > 0 {
			t.Errorf("with what is proposed the spec is not compatible: %s", written(found))
		}
		if again := compare.Propose(old, with); len(again) > 0 {
			t.Errorf("more is proposed for what is proposed: %v", again)
		}
		return b.String()
	})
}

// TestStoredSpecsGoOn: specs were accepted once that name an id in another spelling than it is stored, or have data
// with keys that are taken for operators now.
func TestStoredSpecsGoOn(t *testing.T) {
	for _, emit := range []string{
		`"id":"warehouse","event_type":"f","data":{}`, `"id":"global","event_type":"f","data":{"query":{"$in":["a"]}}`,
	} {
		src := []byte(`{"agent_types":["user"],"aggregate_types":{"a":{"events":{"e":{"schema":{},"handler":[],"implications":[
			{"emit":{"aggregate_type":"a",` + emit + `}}]},"f":{"schema":{},"handler":[]}}}}}`)
		if c, found := lint.Compile(src); c != nil {
			t.Errorf("a new spec is accepted, %s: %v", emit, found)
		}
		if c, found := spec.CompileStored(src); c == nil || len(found) == 0 {
			t.Errorf("a stored spec is refused, or without a warning, %s: %v", emit, found)
		}
	}
}

// TestStoredSagasGoOn: circles of sagas, and steps that await what cannot come, were only warned of once.
func TestStoredSagasGoOn(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]string{
		"a circle":              `"emit":{"aggregate_type":"a","id":"$.key","event_type":"e"}`,
		"an answer from nobody": `"emit":{"aggregate_type":"a","id":"$.key","event_type":"f"},"await":{"aggregate_type":"b","event_types":["e"]},"timeout_ms":1000`,
	} {
		src := []byte(`{"agent_types":["user"],"aggregate_types":{"a":{"events":{"e":{"schema":{},"handler":[]},"f":{"schema":{},"handler":[]}}},
			"b":{"events":{"e":{"schema":{},"handler":[]}}}},
			"modules":{"sagas":{"s":{"trigger":{"aggregate_type":"a","event_type":"e"},"steps":[{"name":"one",` + step + `}]}}}}`)
		if c, found := lint.Compile(src); c != nil || len(found) != 1 {
			t.Errorf("%s in a new spec: %v", name, found)
		}
		if c, found := spec.CompileStored(src); c == nil || len(found) != 1 || found[0].Severity != diag.Warning {
			t.Errorf("%s in a stored spec: %v", name, found)
		}
	}
}

// TestTheParameterOfLiveViews: neither a parameter nor an indexed field may be called like the one of live views, but
// where it was deployed before.
func TestTheParameterOfLiveViews(t *testing.T) {
	t.Parallel()
	const (
		field = `"for_each":"item","sources":{"i":"$key"},"select":{"heartbeat":"$.i.x"},"index":["heartbeat"]}`
		param = `"sources":[{"aggregate":"item","id":"$.heartbeat"}]}`
		types = `{"agent_types":["user"],"aggregate_types":{"item":{"events":{"was_made":{"schema":{},"handler":[]}}}}`
	)
	in := compile(t, []byte(types+"}"))
	for name, definition := range map[string]string{"field": field, "parameter": param} {
		text := []byte(types + `,"projections":{"p":{` + definition + "}}")
		if compiled, found := lint.Compile(text); compiled != nil || len(found) != 1 ||
			!strings.Contains(found[0].Message, `"heartbeat"`) {
			t.Errorf("a %s in a spec: %v", name, found)
		}
		if compiled, found := spec.CompileStored(text); compiled == nil || compiled.Projections["p"] == nil {
			t.Errorf("a %s in a stored spec: %v", name, found)
		}
		posted := []byte(`{"name":"p",` + definition)
		if p, found := lint.CheckProjection(posted, in); p != nil || len(found) != 1 {
			t.Errorf("a %s in what is posted: %v", name, found)
		}
		if p, found := spec.CompileProjection(posted, in); p == nil {
			t.Errorf("a %s in what was posted: %v", name, found)
		}
	}
}

// TestFieldsThatOnlyTheReverseOrderNames: order=-v is the reverse of v, so that no field whose name begins with a - can
// be indexed, but where it was deployed before.
func TestFieldsThatOnlyTheReverseOrderNames(t *testing.T) {
	t.Parallel()
	const (
		definition = `"for_each":"item","sources":{"i":"$key"},"select":{"-v":"$.i.x"},"index":["-v"]}`
		types      = `{"agent_types":["user"],"aggregate_types":{"item":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"x","value":1}}]}}}}`
	)
	in := compile(t, []byte(types+"}"))
	text, posted := []byte(types+`,"projections":{"p":{`+definition+"}}"), []byte(`{"name":"p",`+definition)
	if compiled, found := lint.Compile(text); compiled != nil || len(found) != 1 ||
		!strings.Contains(found[0].Hint, `"v"`) {
		t.Errorf("in a spec: %v", found)
	}
	if compiled, found := spec.CompileStored(text); compiled == nil || compiled.Projections["p"] == nil ||
		len(found) != 1 || found[0].Severity != diag.Warning {
		t.Errorf("in a stored spec: %v", found)
	}
	if p, found := lint.CheckProjection(posted, in); p != nil || len(found) != 1 {
		t.Errorf("in what is posted: %v", found)
	}
	if p, found := spec.CompileProjection(posted, in); p == nil || len(p.Indexes) != 1 {
		t.Errorf("in what was posted: %v", found)
	}
}
