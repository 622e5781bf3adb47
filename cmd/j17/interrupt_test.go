package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterruptWhileWaitingForInput interrupts commands that wait for standard input: each ends, and says why.
func TestInterruptWhileWaitingForInput(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"spec validate -":             "j17: interrupted\n",
		"spec fmt -":                  "j17: interrupted\n",
		"events validate spec.json -": "j17: interrupted\n",
		"events import - --key k":     "The import is not complete; known to be stored: 0 events. Run the same command on the same input again within 24 hours: no event is stored twice.\nj17: interrupted\n",
	} {
		t.Run(args, func(t *testing.T) {
			// The program has read what was written once it can no longer be in the pipe.
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "j17", strings.Fields(args)...)
			var stderr bytes.Buffer
			cmd.Dir, cmd.Stdin, cmd.Stderr = dir, in, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			blanks := bytes.Repeat([]byte{'\n'}, 1<<20)
			if _, err := feed.Write(blanks); err != nil { // more than a pipe holds
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
			if !ok || exit.ExitCode() != exitFailure || stderr.String() != want {
				t.Errorf("%v: %s", exit, stderr.String())
			}
			if err := errors.Join(in.Close(), feed.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
