package typegen_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/value"
	"j17/internal/lang/spec"
	"j17/internal/lang/typegen"
)

var update = flag.Bool("update", false, "write the expected types")

// read returns the JSON of a spec that must be valid.
func read(t *testing.T, file string) value.Value {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if c, found := spec.Compile(src); c == nil {
		t.Fatal(file, found)
	}
	root, err := value.Parse(src)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTypes(t *testing.T) {
	root := read(t, "testdata/spec.json")
	goTypes, err := typegen.Go(root, "trees")
	if err != nil {
		t.Fatal(err)
	}
	for file, got := range map[string][]byte{
		"testdata/want.ts": typegen.TypeScript(root), "testdata/want.go.txt": goTypes,
	} {
		if *update {
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s\n%s", file, diff)
		}
	}
}

// TestExactTypeScript checks that numbers have a form that keeps their digits, and that nothing else is other than
// without.
func TestExactTypeScript(t *testing.T) {
	root := read(t, "testdata/spec.json")
	got := string(typegen.ExactTypeScript(root))
	if !strings.Contains(got, "export type Amount = { readonly rawJSON: string };") || strings.Contains(got, "number") {
		t.Error(got)
	}
}

// TestTooManyRefusals checks that a chain of implications without end in sight has refusals of any text.
func TestTooManyRefusals(t *testing.T) {
	var events []string
	for i := range 300 {
		events = append(events, fmt.Sprintf(`"e%d": {"schema": {}, "requires": [{"code": "c%d"}], "implications": [{"emit": {"aggregate_type": "a", "event_type": "e%d"}}]}`, i, i, i+1))
	}
	root, err := value.ParseString(`{"aggregate_types": {"a": {"events": {` + strings.Join(events, ",") + `}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := string(typegen.TypeScript(root))
	for _, want := range []string{"export type AE0Refusal = string;", `export type AE298Refusal = "c298" | "c299";`} {
		if !strings.Contains(got, want) {
			t.Error("there is no", want)
		}
	}
}

// TestRefusalsOfCustomCode checks that an event has refusals of any text where custom code says what is implied, and no
// others do.
func TestRefusalsOfCustomCode(t *testing.T) {
	const emit = `{"emit": {"aggregate_type": "a", "event_type": "last"}}`
	for implication, any := range map[string]bool{
		`{"wasm": "x.wasm"}`: true,
		`{"wasm": {"blob_name": "x.wasm", "mode": "emit"}}`:                                true,
		`{"binary_container": {"image": "x"}}`:                                             true,
		`{"runtime_container": {"runtime": "node_container", "entrypoint": "x"}}`:          true,
		`{"pipeline": [{"wasm": {"blob_name": "x", "mode": "transform"}}, {"wasm": "y"}]}`: true,
		`{"pipeline": [{"wasm": {"blob_name": "x", "mode": "transform"}}, ` + emit + `]}`:  false,
		emit: false,
	} {
		root, err := value.ParseString(`{"aggregate_types": {"a": {"events": {
			"first": {"schema": {}, "requires": [{"code": "c1"}], "implications": [` + emit + `]},
			"second": {"schema": {}, "requires": [{"code": "c2"}], "implications": [{"emit": {"aggregate_type": "a", "event_type": "third"}}]},
			"third": {"schema": {}, "requires": [{"code": "c3"}], "implications": [` + implication + `]},
			"last": {"schema": {}, "requires": [{"code": "c4"}]}}}}}`)
		if err != nil {
			t.Fatal(err)
		}
		second, third := `"c2" | "c3" | "c4"`, `"c3" | "c4"`
		if any {
			second, third = "string", "string"
		}
		got := string(typegen.TypeScript(root))
		for _, want := range []string{
			`AFirstRefusal = "c1" | "c4";`, "ASecondRefusal = " + second + ";", "AThirdRefusal = " + third + ";",
			`ALastRefusal = "c4";`,
		} {
			if !strings.Contains(got, "export type "+want) {
				t.Errorf("%s: there is no %s", implication, want)
			}
		}
	}
}

// TestNoRefusalsOfCustomCode checks that nothing is declared where custom code says what is implied and no guard of the
// spec has a code.
func TestNoRefusalsOfCustomCode(t *testing.T) {
	root, err := value.ParseString(`{"aggregate_types": {"a": {"events": {"e": {"schema": {}, "requires": [{}], "implications": [{"wasm": "x.wasm"}]}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(typegen.TypeScript(root)); strings.Contains(got, "Refusal") {
		t.Error(got)
	}
}

// specs returns the files of all valid specs of the repository.
func specs(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{
		"testdata/*.json", "../../../examples/*/spec.json", "../../../cmd/j17/templates/*.json",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

// TestEverySpec makes types of every spec of the repository. The Go types must compile; of the TypeScript ones the
// brackets must match and every name that is used must be declared, which needs no compiler. The standard library is
// read from its sources, once for all specs: what is compiled of it would be asked of the go command, which has to
// build it first.
func TestEverySpec(t *testing.T) {
	files := specs(t)
	fset := token.NewFileSet()
	if build.Default.GOROOT == "" { // a test program that is built with -trimpath does not know where the library is
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Fatal(err)
		}
		build.Default.GOROOT = strings.TrimSpace(string(root))
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			root := read(t, file)
			src, err := typegen.Go(root, "events")
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.ParseFile(fset, "types.go", src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conf.Check("events", fset, []*ast.File{parsed}, nil); err != nil {
				t.Errorf("%v\n%s", err, src)
			}
			checkTypeScript(t, string(typegen.TypeScript(root)))
		})
	}
}

// checkTypeScript reads types as far as this package writes them.
func checkTypeScript(t *testing.T, src string) {
	t.Helper()
	declared, used := map[string]bool{"Array": true, "Record": true}, map[string]bool{}
	var open []byte
	closes := map[byte]byte{'}': '{', ']': '[', ')': '(', '>': '<'}
	previous := ""
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case strings.HasPrefix(src[i:], "//"):
			i += strings.IndexByte(src[i:], '\n')
		case strings.HasPrefix(src[i:], "/*"):
			i += strings.Index(src[i:], "*/") + 2
		case c == '"':
			for i++; src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
			i++
		case strings.IndexByte("{[(<", c) >= 0:
			open = append(open, c)
			i++
		case closes[c] != 0:
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				t.Fatalf("%q at byte %d closes nothing\n%s", c, i, src)
			}
			open = open[:len(open)-1]
			i++
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_':
			end := i
			for end < len(src) && (src[end] == '_' || src[end] >= '0' && src[end] <= '9' ||
				src[end]|0x20 >= 'a' && src[end]|0x20 <= 'z') {
				end++
			}
			word := src[i:end]
			isKey := src[end] == ':' || strings.HasPrefix(src[end:], "?:")
			switch {
			case previous == "type":
				if declared[word] {
					t.Errorf("%s is declared twice", word)
				}
				declared[word] = true
			case !isKey && c >= 'A' && c <= 'Z':
				used[word] = true
			}
			previous = word
			if isKey {
				previous = ""
			}
			i = end
		default:
			i++
		}
	}
	if len(open) > 0 {
		t.Errorf("%q is not closed\n%s", open, src)
	}
	for name := range used {
		if !declared[name] {
			t.Errorf("%s is used and not declared\n%s", name, src)
		}
	}
}

// Names that differ in their first letter only are two types, and one awkward member costs a struct only that member.
func TestAwkwardNames(t *testing.T) {
	root, err := value.ParseString(`{"agent_types": ["u"], "aggregate_types": {
		"type": {"events": {"e": {"schema": {"type": "object", "properties": {"a": {"type": "string"}, "b\"c": {"type": "string"}}}, "handler": []}}},
		"Type": {"events": {"e": {"schema": {"type": "object"}, "handler": []}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if ts := string(typegen.TypeScript(root)); strings.Count(ts, "export type TypeEvent ") != 1 ||
		!strings.Contains(ts, "export type Type2Event ") {
		t.Errorf("the events of type and Type have one name:\n%s", ts)
	}
	src, err := typegen.Go(root, "x")
	if err != nil {
		t.Fatal(err)
	}
	if text := string(src); !strings.Contains(text, "`json:\"a,omitempty\"`") ||
		!strings.Contains(text, `"b\"c" has no field`) {
		t.Errorf("the struct has lost more than one member:\n%s", text)
	}
}

// TestReferences has references of every form that the compiler of schemas knows: each gets a type of its own.
func TestReferences(t *testing.T) {
	root, err := value.ParseString(`{"aggregate_types": {"a": {"events": {"e": {"handler": [], "schema": {"type": "object", "required": ["x", "y", "z"],
		"properties": {"x": {"$ref": "#/$defs/per%25cent"}, "y": {"$ref": "#/allOf/0"}, "z": {"$ref": "inner"}},
		"allOf": [{"type": "string"}], "$defs": {"per%cent": {"type": "integer"}, "i": {"$id": "inner", "type": "boolean"}}}}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := string(typegen.TypeScript(root))
	for _, want := range []string{"x: AEPerCent;", "y: AE", "z: AEI;", "AEI = boolean"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}
