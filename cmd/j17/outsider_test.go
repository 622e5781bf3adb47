package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestAnOutsiderVerifies has the program of examples/verify, which uses nothing of ours, look at the files of the script of "audit verify":
// it comes to the same. It has no more than fifty lines, so that everybody can read it.
func TestAnOutsiderVerifies(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	files, err := txtar.ParseFile(filepath.Join("testdata", "script", "audit_verify.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(examplePath("verify", "verify.py"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.FieldsFunc(string(program), func(r rune) bool { return r == '\n' }) // blank ones do not count
	if len(lines) > 50 {
		t.Errorf("the program has %d lines", len(lines))
	}
	vkey := regexp.MustCompile(`export\.ndjson --key '(\S+)'`).FindSubmatch(files.Comment)[1]
	dir := t.TempDir()
	says := map[string]string{}
	for _, file := range files.Files {
		name := filepath.Join(dir, file.Name)
		if err := os.WriteFile(name, file.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := command(t, python, examplePath("verify", "verify.py"), name, string(vkey)).CombinedOutput()
		says[file.Name] = string(out)
		if holds := file.Name == "export.ndjson" || file.Name == "certificate.txt"; holds != (err == nil) {
			t.Errorf("%s: %v: %s", file.Name, err, out)
		}
	}
	for name, want := range map[string]string{
		"export.ndjson":   "The export holds: 12 events of acme.example/prod, root ",
		"certificate.txt": "The certificate holds: 4 events of note:2",
		"changed.ndjson":  "does not hold: line 4: the chain of note:0 breaks at event 1700000000001-1",
		"cut.ndjson":      "does not hold: these are not the 12 events that were signed",
	} {
		if !strings.Contains(says[name], want) {
			t.Errorf("%s: %s", name, says[name])
		}
	}
}
