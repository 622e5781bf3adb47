package container_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/code/container"
	"j17/internal/code/sandbox"
)

// program returns a function of the guest whose processes answer one call.
func program(tb testing.TB, r *container.Runner, args ...string) sandbox.Function {
	tb.Helper()
	f, err := r.Image(tb.Context(), container.ImageSource{
		Archive: archiveOf(image(tb, object{"Entrypoint": append([]string{"/bin/guest"}, args...)}, guest(tb))),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestOneCall(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		opts.Output = 1 << 20
		r := open(t, opts)
		// What lasts too long may take less of it.
		opts.Timeout = time.Second / 5
		short := open(t, opts)
		large := `"` + strings.Repeat("larger than all buffers ", 40_000) + `"`
		for _, good := range []struct{ word, input, want string }{
			{"whole", `{"n": 1}`, "{\n  \"length\": 9\n}"},
			{"whole", "{\n\"n\":\n1}", "{\n  \"length\": 8\n}"},
			{"leave", `{"n": 1}`, "9"},
			{"early", large + "  ", "1"},
			{"stream", large, large},
		} {
			f := program(t, r, good.word)
			for range 3 { // of which the first finds no process
				if got := call(t, f, good.input); got != good.want {
					t.Errorf("%s: %.100q", good.word, got)
				}
			}
		}
		for _, bad := range []struct {
			word   string
			kind   sandbox.Kind
			detail string
		}{
			{"status", sandbox.Exit, "the process ended with status 3"},
			{"silent", sandbox.Exit, "the process ended by itself instead of answering"},
			{"refuse", sandbox.Trap, "the code failed: by wish"},
			{"two", sandbox.InvalidOutput, "the answer is no JSON text"},
			{"flood", sandbox.InvalidOutput, "the answer is larger than 1048576 bytes"},
			{"hang", sandbox.Timeout, "the program did not end within 2s"},
			{"stay", sandbox.Timeout, "the program did not end within 2s"},
		} {
			from := r
			if bad.kind == sandbox.Timeout {
				from = short
			}
			f := program(t, from, bad.word)
			fault := fails(t, f, `1`, bad.kind)
			if fault.Detail != bad.detail || bad.word == "status" && fault.Log != "parting words" {
				t.Errorf("%s: %s\n%s", bad.word, fault.Detail, fault.Log)
			}
			// What it wrote to standard error is shown by traces, and is nowhere else.
			if shows := strings.HasPrefix(
				fault.Hint, "Trace the calls to see ",
			); shows != (bad.kind == sandbox.Exit || bad.kind == sandbox.Trap) {
				t.Errorf("%s: the hint is %s", bad.word, fault.Hint)
			}
		}
	})
}

// guests returns the processes of the guest with some argument, and when they began.
func guests(tb testing.TB, arg string) []string {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	var starts []string
	for _, e := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if args := bytes.Split(line, []byte{0}); string(args[0]) != "/bin/guest" ||
			!slices.ContainsFunc(args, func(a []byte) bool { return string(a) == arg }) {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if _, fields, found := strings.Cut(string(stat), ") "); found {
			starts = append(starts, strings.Fields(fields)[19])
		}
	}
	return starts
}

// patience is how long a test waits for what a process has to do. It ends waits for what never happens, however slow
// the machine is.
const patience = 5 * time.Minute

// await waits until some number of such processes wait for a call.
func await(tb testing.TB, arg string, n int) []string {
	tb.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		starts := guests(tb, arg)
		if len(starts) == n {
			return starts
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%d processes, want %d", len(starts), n)
		}
	}
}

// TestStartedAhead finds a process ready for the next call, for as long as processes without calls live.
func TestStartedAhead(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		now := clock.NewManual(time.Now())
		opts.Clock, opts.Workers = now, 1 // a call waits for the process that is being started
		r := open(t, opts)
		marker := "ahead of " + t.Name()
		f := program(t, r, "start", marker)
		if n := len(guests(t, marker)); n != 0 {
			t.Fatal(n, "processes before a call")
		}
		call(t, f, "1")
		for range 3 {
			waiting := await(t, marker, 1)
			if got := call(t, f, "1"); got != waiting[0] {
				t.Errorf("a process answers that began at %s, and one waits that began at %s", got, waiting[0])
			}
		}
		// Processes without calls end, and then a call starts one.
		for deadline := time.Now().Add(patience); len(guests(t, marker)) > 0; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("processes without calls live on")
			}
			now.Advance(time.Minute)
		}
		call(t, f, "1")
		await(t, marker, 1)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n := len(guests(t, marker)); n != 0 {
			t.Error(n, "processes are left")
		}
	})
}

// inTurn makes a call, again and again where all processes are busy for longer than calls wait: so they are on a slow
// machine.
func inTurn(ctx context.Context, f sandbox.Function) error {
	for {
		_, err := f.Call(ctx, []byte("1"))
		if fault, ok := errors.AsType[*sandbox.Fault](err); !ok || fault.Kind != sandbox.Busy {
			return err
		}
	}
}

// TestProcessesBounded makes more calls at once than there may be processes.
func TestProcessesBounded(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		marker := "bounded by " + t.Name()
		f := program(t, open(t, opts), "whole", marker)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				if err := inTurn(t.Context(), f); err != nil {
					t.Error(err)
				}
				if n := len(guests(t, marker)); n > opts.Workers {
					t.Errorf("%d processes, more than %d", n, opts.Workers)
				}
			})
		}
		calls.Wait()
		await(t, marker, opts.Workers)
	})
}

// TestProgramInsteadOfFunction loads files that read standard input as if they were programs of their own.
func TestProgramInsteadOfFunction(t *testing.T) {
	r := open(t, container.Options{Driver: container.Bubblewrap})
	for _, bad := range []struct{ runtime, program, file, code string }{
		{"python", "python3", "all.py", "import sys, json\ni = json.load(sys.stdin)\nprint(json.dumps({'actions': []}))\n"},
		{"python", "python3", "lines.py", "import sys\nfor line in sys.stdin:\n  pass\nprint('[]')\n"},
		{"node", "node", "all.js", "const i = JSON.parse(require('fs').readFileSync(0, 'utf8')); console.log('[]')"},
		{"node", "node", "events.mjs", "let s = ''; process.stdin.on('data', (c) => s += c); process.stdin.on('end', () => console.log('[]'))"},
		{"node", "node", "wait.mjs", "for await (const c of process.stdin) {} console.log('[]')"},
		{"ruby", "ruby", "all.rb", "require 'json'\nputs JSON.generate(JSON.parse($stdin.read))\n"},
	} {
		t.Run(bad.file, func(t *testing.T) {
			if bad.runtime == "ruby" {
				if _, err := os.Stat("/usr/bin/ruby"); err != nil {
					t.Skip("NOT TESTED: the runtime ruby is not installed; install it with: apt-get install ruby")
				}
			}
			need(t, bad.program)
			_, err := r.Source(t.Context(), bad.runtime, sources(t, map[string]string{bad.file: bad.code}), bad.file)
			refused(t, err, "The file needs a function compute_implications(input) or handler(input)")
		})
	}
}

// BenchmarkImageCall measures calls of a program that answers one: as fast as they can follow each other, and with a
// pause before each in which a process gets ready.
func BenchmarkImageCall(b *testing.B) {
	for _, driver := range []container.Driver{container.Bubblewrap, container.Runc} {
		for _, pause := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/pause=%t", driver, pause), func(b *testing.B) {
				marker := "bench " + b.Name() + strconv.Itoa(b.N)
				f := program(b, open(b, container.Options{Driver: driver, Workers: 1}), "whole", marker)
				call(b, f, "1")
				for b.Loop() {
					if pause {
						b.StopTimer()
						await(b, marker, 1)
						b.StartTimer()
					}
					call(b, f, "1")
				}
			})
		}
	}
}

// TestPlaces runs more functions than there may be processes.
func TestPlaces(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		opts.Processes = 2
		r := open(t, opts)
		marker := "places of " + t.Name()
		var all []sandbox.Function
		for i := range 4 {
			all = append(all, program(t, r, "whole", marker, strconv.Itoa(i)))
		}
		// One after the other, each has the place of one that waits for calls.
		for range 2 {
			for _, f := range all {
				call(t, f, "1")
			}
		}
		var calls sync.WaitGroup
		for range 5 {
			for _, f := range all {
				calls.Go(func() {
					if err := inTurn(t.Context(), f); err != nil {
						t.Error(err)
					}
					if n := len(guests(t, marker)); n > opts.Processes {
						t.Errorf("%d processes, more than %d", n, opts.Processes)
					}
				})
			}
		}
		calls.Wait()
		// Some are being started ahead now. Closing leaves none of them, nor what was to start them.
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for deadline := time.Now().Add(patience); len(named(t, marker)) > 0; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("processes are left: %q", named(t, marker))
			}
		}
	})
}

// named returns the command lines of all processes that have arg among their arguments.
func named(tb testing.TB, arg string) []string {
	tb.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		tb.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if args := bytes.Split(line, []byte{0}); slices.ContainsFunc(
			args, func(a []byte) bool { return string(a) == arg },
		) {
			lines = append(lines, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return lines
}
