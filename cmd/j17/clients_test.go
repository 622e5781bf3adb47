//go:build !race

package main

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// generators are the tools that make clients of OpenAPI documents, and a folder to do so in.
type generators struct {
	dir, node, tools, codegen string
}

// clientTools finds what "make tools" has installed. Where something is missing the test is skipped, or fails in "make
// check".
func clientTools(t *testing.T) *generators {
	t.Helper()
	missing := t.Skip
	if os.Getenv("J17_ALL_TOOLS") != "" {
		missing = t.Fatal
	}
	only := func(pattern string) string {
		found, err := filepath.Glob("../../.tools/" + pattern)
		if err != nil || len(found) != 1 {
			missing("SKIPPED: no clients were made of OpenAPI documents, since there is no " + pattern + " in .tools: run \"make tools\"")
		}
		path, err := filepath.Abs(found[0])
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	g := &generators{dir: t.TempDir(), codegen: only("oapi-codegen-v*"), tools: only("clients-openapi-typescript-*")}
	var err error
	if g.node, err = exec.LookPath("node"); err != nil {
		missing("SKIPPED: no clients were made of OpenAPI documents, since node is not installed")
	}
	if err := os.Symlink(filepath.Join(g.tools, "node_modules"), filepath.Join(g.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return g
}

// run runs a program in the folder and returns its standard output. What it fails with fails the test.
func (g *generators) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cmd := startable(t, name, args...)
	cmd.Dir = dir
	cmd.Env = append(
		cmd.Env, "GOCACHE="+cmp.Or(os.Getenv("GOCACHE"), filepath.Join(cache, "go-build")), "REDOCLY_TELEMETRY=off",
		"NO_UPDATE_NOTIFIER=1", "CGO_ENABLED=0", "GOFLAGS=-mod=vendor -trimpath", "GOPROXY=off", "GOWORK=off",
	)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %.200q: %v\n%.4000s%.4000s", name, args, err, out, errors.String())
	}
	return string(out)
}

// document writes the OpenAPI document of a spec to the folder.
func (g *generators) document(t *testing.T, name, source string, admin bool) string {
	t.Helper()
	var compiled *spec.Compiled
	if source != "" {
		raw, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		var found any
		if compiled, found = lint.Compile(raw); compiled == nil {
			t.Fatal(source, found)
		}
	}
	raw, err := server.OpenAPI("test", "https://j17.test", compiled, admin)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(g.dir, name+".json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// clientFile is a file of what clients are made with.
func clientFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "clients", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// copyClientFile copies such a file.
func copyClientFile(t *testing.T, name, to string) {
	t.Helper()
	raw, err := os.ReadFile(clientFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// golang makes the Go client of a document, as a package of its name.
func (g *generators) golang(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(g.dir, "go", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	g.run(
		t, g.dir, filepath.Join(g.codegen, "oapi-codegen"), "-generate", "types,client", "-package", name, "-o",
		filepath.Join(dir, "client.go"), name+".json",
	)
}

// compiles checks that Go packages compile, without making code of them, which would take far longer.
func (g *generators) compiles(t *testing.T, names []string) {
	t.Helper()
	type listed struct{ ImportPath, Export string }
	export := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(g.run(
		t, filepath.Join(g.dir, "go"), "go", "list", "-deps", "-export", "-json=ImportPath,Export", "./everything",
	))); ; {
		var l listed
		if err := d.Decode(&l); err != nil {
			break
		}
		export[l.ImportPath] = l.Export
	}
	for _, name := range names {
		checkPackage(
			t, name, filepath.Join(g.dir, "go", name, "client.go"),
			func(path string) (io.ReadCloser, error) { return os.Open(export[path]) },
		)
	}
}

// TestClientsOfDocuments has the OpenAPI documents of all examples, of a spec with everything in it, of the
// administration and of the control plane linted, makes clients of them with generators for two languages, and has
// compilers check these.
func TestClientsOfDocuments(t *testing.T) {
	g := clientTools(t)
	names := []string{"everything", "counter"}
	documents := []string{
		g.document(t, "everything", clientFile(t, "everything.json"), false),
		g.document(t, "counter", examplePath("counter", "spec.json"), false),
		g.document(t, "control", "", false), g.document(t, "admin", "", true),
	}
	for _, app := range apps() {
		names = append(names, app)
		documents = append(documents, g.document(t, app, examplePath(app, "spec.json"), false))
	}

	// What the linter finds.
	cli := filepath.Join(g.tools, "node_modules", "@redocly", "cli", "bin", "cli.js")
	out := g.run(
		t, g.dir, g.node,
		append([]string{cli, "lint", "--format=json", "--config", clientFile(t, "redocly.yaml")}, documents...)...,
	)
	found := 0
	for d := json.NewDecoder(strings.NewReader(out)); ; found++ {
		var report struct {
			Problems []struct {
				RuleID, Message string
				Location        []struct{ Pointer string }
			}
		}
		if err := d.Decode(&report); err != nil {
			break
		}
		for _, p := range report.Problems {
			// What a dry run answers is described in words and as a schema, and is no second success that would use it.
			if p.RuleID != "no-unused-components" || !strings.Contains(p.Message, `"WriteDryRun"`) {
				t.Errorf("%s: %s %v", p.RuleID, p.Message, p.Location)
			}
		}
	}
	if found == 0 {
		t.Errorf("the linter has reported nothing:\n%.2000s", out)
	}

	// TypeScript: types of all, and code that uses those of everything.json rightly and wrongly.
	g.run(t, g.dir, g.node, append([]string{clientFile(t, "generate.mjs"), g.tools}, documents...)...)
	g.typescript(t, documents, "--noEmit")

	// Go.
	for _, name := range names {
		g.golang(t, name)
	}
	g.module(t)
	g.compiles(t, names)
}

// typescript compiles the types of documents, and use.ts.
func (g *generators) typescript(t *testing.T, documents []string, how ...string) {
	t.Helper()
	copyClientFile(t, "use.ts", filepath.Join(g.dir, "use.ts"))
	args := append([]string{
		filepath.Join(g.tools, "node_modules", "typescript", "bin", "tsc"), "--strict", "--noUncheckedIndexedAccess",
		"--skipLibCheck", "--target", "es2022",
		"--lib", "es2022,dom", "--module", "esnext", "--moduleResolution", "bundler", "use.ts",
	}, how...)
	for _, d := range documents {
		args = append(args, strings.TrimSuffix(d, ".json")+".ts")
	}
	g.run(t, g.dir, g.node, args...)
}

// module makes a Go module of the clients, with what they import beside them.
func (g *generators) module(t *testing.T) {
	t.Helper()
	copyClientFile(t, "go.mod.txt", filepath.Join(g.dir, "go", "go.mod"))
	copyClientFile(t, "go.sum.txt", filepath.Join(g.dir, "go", "go.sum"))
	if err := os.Symlink(filepath.Join(g.codegen, "vendor"), filepath.Join(g.dir, "go", "vendor")); err != nil {
		t.Fatal(err)
	}
}

// TestClientsCall makes calls with both clients of the spec with everything in it, against a server.
func TestClientsCall(t *testing.T) {
	g := clientTools(t)
	source, err := os.ReadFile(clientFile(t, "everything.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := started(t, string(source))
	document := g.document(t, "everything", clientFile(t, "everything.json"), false)
	key := p.ready.Keys["prod"].Write

	g.run(t, g.dir, g.node, clientFile(t, "generate.mjs"), g.tools, document)
	g.typescript(t, []string{document}, "--outDir", "js")
	if err := os.WriteFile(
		filepath.Join(g.dir, "js", "package.json"), []byte(`{"type": "module"}`), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	if out := g.run(t, g.dir, g.node, "js/use.js", p.url, key); out != "ok\n" {
		t.Errorf("TypeScript: %s", out)
	}

	g.golang(t, "everything")
	g.module(t)
	copyClientFile(t, "use.go.txt", filepath.Join(g.dir, "go", "use", "main.go"))
	g.run(t, filepath.Join(g.dir, "go"), "go", "build", "-o", "../used", "./use")
	if out := g.run(t, g.dir, filepath.Join(g.dir, "used"), p.url, key); out != "ok\n" {
		t.Errorf("Go: %s", out)
	}
}

// checkPackage has the compiler's front end check a Go file that is a package, with what others export.
func checkPackage(t *testing.T, name, file string, lookup func(path string) (io.ReadCloser, error)) {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return
	}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	if _, err := conf.Check(name, fset, []*ast.File{parsed}, nil); err != nil {
		t.Errorf("the Go client of %s does not compile: %v", name, err)
	}
}
