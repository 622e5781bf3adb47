package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestInterruptWhileWaitingForInput interrupts commands that wait for standard input: each ends, and says why.
func TestInterruptWhileWaitingForInput(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	const stopped = "Writing to prod of http://localhost:17000.\nNot all events are sent; known to be stored: 0 events. Run the same command on the same input again within 24 hours: no event is stored twice.\nj17: interrupted\n"
	for _, tc := range []struct {
		args string
		sig  os.Signal
		want string
	}{
		{"spec validate -", os.Interrupt, "j17: interrupted\n"},
		{"spec fmt -", os.Interrupt, "j17: interrupted\n"},
		{"events validate spec.json -", os.Interrupt, "j17: interrupted\n"},
		{"events validate spec.json -", syscall.SIGQUIT, "j17: interrupted\n"},
		{"events send - --key k", os.Interrupt, stopped},
		{"events send - --key k", syscall.SIGTERM, stopped},
		{"events send - --key k", syscall.SIGQUIT, stopped},
		{"events send - --key k", syscall.SIGHUP, stopped},
	} {
		if signal.Ignored(tc.sig) {
			continue // the tests run under nohup, and so does what they start
		}
		t.Run(fmt.Sprint(tc.args, tc.sig), func(t *testing.T) {
			// The program has read what was written once it can no longer be in the pipe.
			in, feed, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := startable(t, "j17", strings.Fields(tc.args)...)
			var stderr bytes.Buffer
			cmd.Dir, cmd.Stdin, cmd.Stderr = dir, in, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			blanks := bytes.Repeat([]byte{'\n'}, 1<<20)
			if _, err := feed.Write(blanks); err != nil { // more than a pipe holds
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(tc.sig); err != nil {
				t.Fatal(err)
			}
			exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
			if !ok || exit.ExitCode() != exitInterrupted || stderr.String() != tc.want {
				t.Errorf("%v: %s", exit, stderr.String())
			}
			if err := errors.Join(in.Close(), feed.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
