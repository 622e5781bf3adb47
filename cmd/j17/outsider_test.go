package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/mod/sumdb/note"

	"j17"
	"j17/internal/custody/proof"
)

// TestAnOutsiderVerifies has the program of examples/verify, which uses nothing of ours, look at the files of the
// script of "audit verify": it comes to the same. It has no more than fifty lines, so that everybody can read it.
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
	for i, file := range files.Files {
		if file.Name == "export.ndjson" { // empty lines are passed over, as "audit verify" does
			files.Files = append(files.Files, txtar.File{
				Name: "blank.ndjson", Data: bytes.ReplaceAll(files.Files[i].Data, []byte("}\n"), []byte("}\n\r\n\n")),
			})
			break
		}
	}
	dir := t.TempDir()
	says := map[string]string{}
	for _, file := range files.Files {
		name := filepath.Join(dir, file.Name)
		if err := os.WriteFile(name, file.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := startable(t, python, examplePath("verify", "verify.py"), name, string(vkey)).CombinedOutput()
		says[file.Name] = string(out)
		if holds := file.Name == "export.ndjson" || file.Name == "blank.ndjson" || file.Name == "older.txt" ||
			file.Name == "certificate.txt"; holds != (err == nil) {
			t.Errorf("%s: %v: %s", file.Name, err, out)
		} else if !holds && !strings.Contains(string(out), file.Name+" does not hold: ") {
			t.Errorf("%s is refused without a reason: %s", file.Name, out)
		}
	}
	for name, want := range map[string]string{
		"export.ndjson":   "The export holds: 12 events of acme.example/prod, root ",
		"older.txt":       "The checkpoint holds: acme.example/prod has 5 events, root ",
		"certificate.txt": "The certificate holds: 4 events of note:2",
		"changed.ndjson":  "does not hold: line 4: the chain of note:0 breaks at event 1700000000001-1",
		"cut.ndjson":      "does not hold: these are not the 12 events that were signed",
	} {
		if !strings.Contains(says[name], want) {
			t.Errorf("%s: %s", name, says[name])
		}
	}

	// It says the same where python leaves assertions out.
	for _, name := range []string{"export.ndjson", "changed.ndjson", "cut.ndjson", "empty"} {
		out, err := startable(
			t, python, "-O", examplePath("verify", "verify.py"), filepath.Join(dir, name), string(vkey),
		).CombinedOutput()
		if string(out) != says[name] || (err == nil) != (name == "export.ndjson") {
			t.Errorf("%s: optimized it says %v: %s", name, err, out)
		}
	}

	// Called the wrong way it says what it is called with.
	out, err := startable(t, python, examplePath("verify", "verify.py")).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitUsage ||
		!strings.HasPrefix(string(out), "verify.py FILE VKEY [STREAMS]: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAnOutsiderVerifiesManyStreams: a certificate that lists only the first of its streams holds by itself, and the
// list of all is held against the root that it has.
func TestAnOutsiderVerifiesManyStreams(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}

	// Four streams with eight events, two of which are listed.
	var all []proof.ErasedStream
	var tree proof.Tree
	for i := range 4 {
		root := strings.Repeat(fmt.Sprintf("%02x", i), 32)
		s := proof.ErasedStream{
			Key: fmt.Sprintf("note:%d", i), Events: 2, Action: "tombstoned", RootBefore: root, RootAfter: root,
		}
		row, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		tree.Add(j17.Leaf(row))
		all = append(all, s)
	}
	c := proof.Certificate{
		ID: "tmb_1", TombstoneID: "tmb_1", Key: "note:1", Status: "completed",
		ExecutedAt: time.Unix(1_800_000_000, 0).UTC(), PreTombstoneRoot: strings.Repeat("ab", 32),
		Events: 8, Streams: []proof.ErasedStream{all[1], all[0]}, AffectedCount: 4,
		AffectedRoot: fmt.Sprintf("%x", tree.Root()),
	}
	private, vkey, err := note.GenerateKey(rand.Reader, "acme.example/prod")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	certificate, list := filepath.Join(dir, "certificate.txt"), filepath.Join(dir, "streams.json")
	if err := os.WriteFile(certificate, signed, 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(change func(all []proof.ErasedStream) []proof.ErasedStream) string {
		t.Helper()
		args := []string{examplePath("verify", "verify.py"), certificate, vkey}
		if change != nil {
			raw, err := json.Marshal(change(append([]proof.ErasedStream(nil), all...)))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(list, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, list)
		}
		out, _ := startable(t, python, args...).CombinedOutput() // its exit code is that of what it says
		return string(out)
	}

	for what, got := range map[string]string{
		"holds: 8 events of note:1 and what went with it were erased at 2027-01-15T08:00:00Z; 2 of 4 streams seen": verify(nil),
		"holds: 8 events of note:1 and what went with it were erased at 2027-01-15T08:00:00Z; 4 of 4 streams seen": verify(func(all []proof.ErasedStream) []proof.ErasedStream { return all }),
		"does not hold: these are not its streams": verify(func(all []proof.ErasedStream) []proof.ErasedStream { all[2].RootAfter = all[3].RootAfter; return all }),
	} {
		if !strings.Contains(got, what) {
			t.Errorf("it says %q, not %q", got, what)
		}
	}
	if got := verify(
		func(all []proof.ErasedStream) []proof.ErasedStream { return all[:3] },
	); !strings.Contains(got, "these are not its streams") {
		t.Errorf("a list that lacks one: %s", got)
	}
}
