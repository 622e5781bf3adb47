package typegen_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"j17/internal/lang/typegen"
)

// compiler returns the TypeScript compiler that "make tools" has installed. Where there is none the test is skipped, or
// fails in "make check".
func compiler(t *testing.T) (node, tsc string) {
	t.Helper()
	missing := t.Skip
	if os.Getenv("J17_ALL_TOOLS") != "" {
		missing = t.Fatal
	}
	found, err := filepath.Glob("../../../.tools/typescript-*/node_modules/typescript/bin/tsc")
	if err != nil || len(found) == 0 {
		missing("SKIPPED: the TypeScript types were not compiled, since there is no TypeScript in .tools: run \"make tools\"")
	}
	node, err = exec.LookPath("node")
	if err != nil {
		missing("SKIPPED: the TypeScript types were not compiled, since node is not installed")
	}
	return node, found[len(found)-1]
}

// TestTypeScriptCompiles has the real compiler check the types of every spec of the repository, and code that uses
// those of testdata/spec.json rightly and wrongly.
func TestTypeScriptCompiles(t *testing.T) {
	node, tsc := compiler(t)
	dir := t.TempDir()
	args := []string{
		tsc, "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--skipLibCheck", "false", "--target", "es2022",
		"--module", "esnext", "--moduleResolution", "bundler",
	}
	write := func(name string, text []byte) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	for i, file := range specs(t) {
		write("spec"+strconv.Itoa(i)+".ts", typegen.TypeScript(read(t, file)))
	}
	for _, name := range []string{"want.ts", "use.ts"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, raw)
	}
	run := func(extra ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), node, append(args, extra...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := run(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	broken := filepath.Join(dir, "broken.ts")
	if err := os.WriteFile(broken, []byte("export const n: number = \"text\";\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run(broken); err == nil {
		t.Errorf("the compiler accepts what is wrong, so it checks nothing:\n%s", out)
	}
}
