package j17_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// sources returns the program's own files, tests excepted, by the names of their packages without the module's: "j17"
// is the root. They are parsed once for all tests, which must not change them.
func sources(tb testing.TB) map[string][]*ast.File {
	tb.Helper()
	all, err := parsed()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (map[string][]*ast.File, error) {
	all := map[string][]*ast.File{}
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "bench", "tools", "examples", "testdata": // programs beside the floors, and what tests read
				return fs.SkipDir
			}
			if name != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		at := path.Dir(filepath.ToSlash(name))
		if at == "." {
			at = "j17"
		}
		all[at] = append(all[at], file)
		return nil
	})
	return all, err
})

// page returns the text of a page beside the program.
func page(tb testing.TB, name string) string {
	tb.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

// section returns the text of ARCHITECTURE.md under a heading.
func section(tb testing.TB, heading string) string {
	tb.Helper()
	_, after, ok := strings.Cut(page(tb, "ARCHITECTURE.md"), "\n## "+heading+"\n")
	if !ok {
		tb.Fatalf("ARCHITECTURE.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// rows returns the rows of the tables of a text, without their heads.
func rows(text string) [][]string {
	var all [][]string
	head := true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			head = true
			continue
		}
		if strings.HasPrefix(line, "|---") {
			head = false
			continue
		}
		if head {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		all = append(all, cells)
	}
	return all
}

// quoted returns what stands in backquotes.
func quoted(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestFloors checks that the tables of floors in ARCHITECTURE.md have every package once, and nothing else, each on the
// floor of its folder, and that a package imports its own floor and those above it on the page only.
func TestFloors(t *testing.T) {
	packages := sources(t)

	// The tables.
	var floors, table []string
	for part := range strings.SplitSeq(section(t, "Floors"), "\n### ") {
		heading, text, found := strings.Cut(part, "\n")
		if !found || len(rows(text)) == 0 {
			continue
		}
		floors = append(floors, heading)
		for _, row := range rows(text) {
			if len(row) != 2 || row[1] == "" {
				t.Errorf("the row of %s does not say what it holds", row[0])
			}
			for _, name := range quoted(row[0]) {
				if slices.Contains(table, name) {
					t.Errorf("%s stands in the tables twice", name)
				}
				if packages[name] == nil {
					t.Errorf("%s stands in a table, and there is no such package", name)
				}
				if floorOf(name) != heading {
					t.Errorf("%s stands in the table of %s and in the folder of %s", name, heading, floorOf(name))
				}
				table = append(table, name)
			}
		}
	}

	// The imports.
	edges := 0
	for name, files := range packages {
		if !slices.Contains(table, name) {
			t.Errorf("%s does not stand in the tables of floors in ARCHITECTURE.md", name)
			continue
		}
		for _, file := range files {
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if imported != "j17" {
					var ours bool
					if imported, ours = strings.CutPrefix(imported, "j17/"); !ours {
						continue
					}
				}
				edges++
				if slices.Index(floors, floorOf(imported)) > slices.Index(floors, floorOf(name)) {
					t.Errorf("%s imports %s, which is on a floor above it", name, imported)
				}
			}
		}
	}
	if len(table) < 30 || edges < 100 {
		t.Errorf("%d packages and %d imports were found: this test looks in the wrong place", len(table), edges)
	}
}

// floorOf returns the floor of a package: the folder below internal, "cmd", or "root" for the vocabulary and the pages.
func floorOf(name string) string {
	if below, inside := strings.CutPrefix(name, "internal/"); inside {
		floor, _, _ := strings.Cut(below, "/")
		return floor
	}
	if strings.HasPrefix(name, "cmd/") {
		return "cmd"
	}
	return "root"
}

// TestRoutes checks that what the section about routes points to is there.
func TestRoutes(t *testing.T) {
	text := section(t, "Routes")
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1)
	if len(links) == 0 {
		t.Error("the section points nowhere")
	}
	for _, link := range links {
		if _, err := os.Stat(link[1]); err != nil {
			t.Error(err)
		}
	}
	for _, name := range quoted(text) {
		if !strings.Contains(name, "/") {
			continue
		}
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is not there", name)
		}
	}
}

// TestLives checks that the functions, types and files that the steps of ARCHITECTURE.md name are there: a file by its
// name, a function alone, or "a.B", which is B of the package or of the type a.
func TestLives(t *testing.T) {
	there := declared(t)
	_, lives, _ := strings.Cut(page(t, "ARCHITECTURE.md"), "\n## Life of ")
	names := quoted(lives)
	if len(names) < 20 {
		t.Fatalf("%d names were found: this test looks in the wrong place", len(names))
	}
	for _, name := range names {
		if !strings.ContainsAny(name, "?= ") && !there[name] {
			t.Errorf("ARCHITECTURE.md names %s, and there is no such thing", name)
		}
	}
}

// declared returns the functions, types, methods, fields and values of the program, and the names of its files: a
// function alone, "a.B", which is B of the package or of the type a, and files by their names.
func declared(tb testing.TB) map[string]bool {
	tb.Helper()
	there := map[string]bool{}
	for name, files := range sources(tb) {
		at := path.Base(name)
		for _, file := range files {
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					there[d.Name.Name] = true
					if d.Recv == nil {
						there[at+"."+d.Name.Name] = true
					} else {
						there[receiver(d)+"."+d.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						switch s := s.(type) {
						case *ast.TypeSpec:
							there[at+"."+s.Name.Name] = true
							for _, member := range members(s) {
								there[s.Name.Name+"."+member] = true
							}
						case *ast.ValueSpec:
							for _, value := range s.Names {
								there[at+"."+value.Name] = true
							}
						}
					}
				}
			}
		}
		for _, entry := range dir(tb, name) {
			there[entry] = true
		}
	}
	return there
}

// members returns the names of the fields of a struct or of the methods of an interface.
func members(of *ast.TypeSpec) []string {
	var list *ast.FieldList
	switch of := of.Type.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return nil
	}
	var names []string
	for _, field := range list.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names
}

// receiver returns the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

// dir returns the names of the files of a package.
func dir(tb testing.TB, name string) []string {
	tb.Helper()
	if name == "j17" {
		name = "."
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		tb.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// TestGlossary checks that each term has one meaning, in order below its floor, that a type with the name of a term is
// declared only where the glossary says, that it is declared there, and that retired names are not identifiers.
func TestGlossary(t *testing.T) {
	text := page(t, "GLOSSARY.md")
	homes, terms := map[string][]string{}, map[string]bool{}
	for floor := range strings.SplitSeq(text, "\n## ") {
		last := ""
		for _, row := range rows(floor) {
			if len(row) != 3 || row[1] == "" {
				t.Errorf("the term %q has no meaning", row[0])
				continue
			}
			term := strings.ToLower(row[0])
			if terms[term] {
				t.Errorf("%q has two rows", row[0])
			}
			if last >= term {
				t.Errorf("%q stands after %q", row[0], last)
			}
			last, terms[term] = term, true
			if names := quoted(row[2]); len(names) > 0 {
				homes[names[0]] = append(homes[names[0]], names[1:]...)
			}
		}
	}
	_, list, _ := strings.Cut(text, "Retired as identifiers:")
	retired := quoted(list)
	if len(homes) < 10 || len(retired) == 0 {
		t.Fatalf("%d words with types, %d retired names", len(homes), len(retired))
	}

	declared := map[string][]string{}
	for name, files := range sources(t) {
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					declared[n.Name.Name] = append(declared[n.Name.Name], name)
				case *ast.Ident:
					if slices.Contains(retired, n.Name) {
						t.Errorf("%s has the identifier %s, which is retired", name, n.Name)
					}
				}
				return true
			})
		}
	}
	for word, where := range homes {
		got := slices.Clone(declared[word])
		slices.Sort(got)
		slices.Sort(where)
		if !slices.Equal(got, where) {
			t.Errorf("the type %s is declared in %v; GLOSSARY.md has %v", word, got, where)
		}
	}
}

// TestSpacesAreAccounted checks that every side space belongs to a part of the program, by the table of parts, and that
// docs/storage-format.md says of it what becomes of it when streams are erased.
func TestSpacesAreAccounted(t *testing.T) {
	text, err := os.ReadFile("docs/storage-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "## What an erasure looks after")
	table, _, _ = strings.Cut(table, "\n## ")
	parts := page(t, "internal/server/testdata/parts.txt")
	n := 0
	for name, files := range sources(t) {
		if !found || strings.HasPrefix(name, "internal/storage/") {
			continue
		}
		for _, file := range files {
			ast.Inspect(file, func(node ast.Node) bool {
				spec, ok := node.(*ast.ValueSpec)
				if !ok || len(spec.Values) == 0 {
					return true
				}
				of, ok := spec.Type.(*ast.SelectorExpr)
				if !ok || of.Sel.Name != "Space" {
					return true
				}
				for _, v := range spec.Values {
					space, ok := v.(*ast.BasicLit)
					if !ok {
						continue
					}
					n++
					if !strings.Contains(table, "`"+strings.Trim(space.Value, `"`)+"`") {
						t.Errorf("%s: the space %s is missing in the table of docs/storage-format.md", name, space.Value)
					}
					if !strings.Contains(parts, " | "+strings.Trim(space.Value, `"`)+" ") &&
						!strings.Contains(parts, " | "+strings.Trim(space.Value, `"`)+"\n") {
						t.Errorf("%s: no part declares the space %s; add it to the Spaces of the package's Part, and run TestParts of internal/server with -update", name, space.Value)
					}
				}
				return true
			})
		}
	}
	if n < 100 {
		t.Errorf("%d spaces were found, of which there are more than a hundred: the test shows nothing", n)
	}
}

// storedReaders are the packages that take events from a store as they are stored, and why. Every other package that
// reads events has them brought to the newest generation of their types by package upcast.
var storedReaders = map[string]string{
	"internal/custody/backup":         "copies what is stored",
	"internal/custody/backup/restore": "compares what is stored",
	"internal/custody/checkpoint":     "counts what the log has",
	"internal/custody/envlog":         "hashes what is stored",
	"internal/custody/erasure":        "replaces what is stored",
	"internal/custody/scrub":          "looks for damage in what is stored",
	"internal/derived/build":          "the tags of an event are the decider's to find",
	"internal/derived/index":          "learns which aggregates have changed",
	"internal/derived/projection":     "counts versions",
	"internal/follow/feed":            "hands on what is stored, to logs as well",
	"internal/plane/control":          "events of the server's own, which no spec has",
}

// readersTable has a row for each way in which events are read.
const readersTable = "internal/server/readers_test.go"

// unlistedReaders are packages that read events for themselves and have no row there, and why.
var unlistedReaders = map[string]string{
	"internal/follow/saga": "reads events at positions that a saga has kept, one by one, as GET events/{position} does",
}

// TestStoredReaders fails where a package reads events from a store, does not bring them to the newest generation, and
// is not known to want them as they are stored; and where one that does has no row in the table of readers.
func TestStoredReaders(t *testing.T) {
	table, err := os.ReadFile(readersTable)
	if err != nil {
		t.Fatal(err)
	}
	reads := []string{"ReadStream", "ReadStreams", "ReadFeed", "ReadTagged", "ReadChanges"}
	found := map[string]bool{}
	for name, files := range sources(t) {
		if strings.HasPrefix(name, "internal/storage/") {
			continue
		}
		upcasts := false
		for _, file := range files {
			for _, i := range file.Imports {
				upcasts = upcasts || i.Path.Value == `"j17/internal/core/upcast"`
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					found[name] = found[name] || slices.Contains(reads, s.Sel.Name)
					upcasts = upcasts || s.Sel.Name == "Shown" // the engine's reader
				}
				return true
			})
		}
		_, wants := storedReaders[name]
		switch {
		case found[name] && !upcasts && !wants:
			t.Errorf("%s reads events as they are stored: show them with package upcast, or name the package in storedReaders", name)
		case found[name] && upcasts && unlistedReaders[name] == "" && !strings.Contains(string(table),
			strconv.Quote(name)):
			t.Errorf("%s reads events: give its readers rows in %s", name, readersTable)
		case wants && (upcasts || !found[name]):
			t.Errorf("%s stands in storedReaders and need not", name)
		}
	}
	for name := range storedReaders {
		if !found[name] {
			t.Errorf("%s stands in storedReaders and reads no events", name)
		}
	}
}
