package container_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/code/container"
	"j17/internal/code/sandbox"
)

const (
	// ample is time for calls that end by themselves, on any machine.
	ample = time.Minute
	// scarce is time for calls that do not.
	scarce = time.Second / 2
)

// drivers are those that can be tested for real on one machine.
func drivers(t *testing.T, test func(t *testing.T, opts container.Options)) {
	t.Helper()
	for _, driver := range []container.Driver{container.Bubblewrap, container.Runc} {
		t.Run(string(driver), func(t *testing.T) {
			if driver == container.Runc && os.Geteuid() != 0 {
				t.Skip("NOT TESTED: runc needs root")
			}
			test(t, container.Options{
				Driver: driver, Memory: 64 << 20, Tasks: 32, Workers: 2, Output: 64 << 10, Timeout: ample,
			})
		})
	}
}

// guestImage returns the guest as a worker that answers many calls.
func guestImage(tb testing.TB, r *container.Runner) sandbox.Function {
	tb.Helper()
	f, err := r.Image(tb.Context(), container.ImageSource{Archive: archiveOf(image(tb, object{
		"Entrypoint": []string{"/bin/guest"}, "Env": []string{"FROM_IMAGE=yes"}, "Labels": object{"j17.calls": "many"},
	}, guest(tb)))})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func ask(t *testing.T, f sandbox.Function, do, with string, answer any) {
	t.Helper()
	request, err := json.Marshal(map[string]string{"do": do, "with": with})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(call(t, f, string(request))), answer); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, f sandbox.Function, do, with string) string {
	t.Helper()
	var answer json.RawMessage
	ask(t, f, do, with, &answer)
	return string(answer)
}

func TestIsolation(t *testing.T) {
	t.Setenv("J17_SECRET_FOR_THIS_TEST", "secret")
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		opts.Dir = folder(t)
		r := open(t, opts)
		f := guestImage(t, r)
		if got := text(t, f, "ids", ""); got != "[65534,65534,65534]" {
			t.Error("it runs as", got)
		}
		var env []string
		ask(t, f, "env", "", &env)
		for _, v := range env {
			name, _, _ := strings.Cut(v, "=")
			if !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "PWD", "FROM_IMAGE"}, name) {
				t.Error("the environment has", v)
			}
		}
		if !slices.Contains(env, "FROM_IMAGE=yes") {
			t.Error("the image's own variable is missing", env)
		}

		secret := filepath.Join(filepath.Dir(opts.Dir), "secret")
		if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			"/etc/shadow", "/etc/passwd", secret, opts.Dir, "/root", "/proc/self/cwd/.." + secret,
			"/proc/1/root" + secret, "/proc/kcore", "/sys/kernel",
		} {
			if got := text(t, f, "read", path); !strings.HasPrefix(got, "[0,") || strings.HasSuffix(got, `"<nil>"]`) {
				t.Errorf("%s can be read: %s", path, got)
			}
		}
		if got := text(t, f, "list", "/"); got != `[["bin","dev","proc","tmp"],"<nil>"]` {
			t.Error("the root has", got)
		}
		for _, path := range []string{
			"/x", "/bin/guest", "/bin/x", "/dev/x", "/dev/shm/x", "/proc/sys/kernel/hostname",
			"/proc/self/oom_score_adj", "/proc/sysrq-trigger",
		} {
			got := text(t, f, "write", path)
			if got == `"<nil>"` && path != "/proc/self/oom_score_adj" {
				t.Errorf("%s can be written", path)
			}
		}
		if got := text(t, f, "write", "/tmp/x"); got != `"<nil>"` {
			t.Error("/tmp cannot be written:", got)
		}
		var filled []any
		ask(t, f, "fill", "/tmp/large", &filled)
		if n, ok := filled[0].(float64); !ok || n > 16<<20 {
			t.Error("/tmp takes", filled)
		}

		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		for _, address := range []string{
			"tcp " + listener.Addr().String(), "udp 1.1.1.1:53", "tcp 169.254.169.254:80", "unix /run/systemd/private",
		} {
			if got := text(t, f, "dial", address); got == `"<nil>"` {
				t.Errorf("%s can be reached", address)
			}
		}
		var sockets map[string]string
		ask(t, f, "socket", "", &sockets)
		for family, got := range sockets {
			if (got == "<nil>") != (family == "unix") {
				t.Errorf("socket of the family %s: %s", family, got)
			}
		}
		var calls map[string]string
		ask(t, f, "calls", "", &calls)
		for name, got := range calls {
			if got != "operation not permitted" && (name != "setuid" || got != "invalid argument") {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := text(t, f, "newns", ""); !strings.Contains(got, "operation not permitted") {
			t.Error("it makes namespaces:", got)
		}
		if got := text(t, f, "list", "/proc/self/fd"); strings.Count(got, ",") > 10 {
			t.Error("it has the files", got)
		}
	})
}

func TestHostile(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		f := guestImage(t, open(t, opts))
		opts.Timeout = scarce
		short := guestImage(t, open(t, opts))
		well := func() {
			t.Helper()
			if got := text(t, f, "echo", "well"); got != `"well"` {
				t.Fatal(got)
			}
		}
		for _, bad := range []struct {
			do, with string
			kind     sandbox.Kind
			detail   string
		}{
			{"hang", "", sandbox.Timeout, "no answer came within 5s"},
			{"spin", "", sandbox.Timeout, "the call took more than 500ms of processor time"},
			{"exit", "parting words", sandbox.Exit, "the process ended with status 7 instead of answering"},
			{"garbage", "", sandbox.InvalidOutput, "the answer is no JSON text"},
			{"flood", "", sandbox.InvalidOutput, "the answer is larger than 65536 bytes"},
			{"hog", "", sandbox.Memory, "the process asked for more than its 64 MiB of memory"},
		} {
			well()
			from := f
			if bad.kind == sandbox.Timeout {
				from = short
			}
			fault := fails(t, from, `{"do":"`+bad.do+`","with":"`+bad.with+`"}`, bad.kind)
			if late := bad.do == "spin" && fault.Detail == "no answer came within 5s"; fault.Detail != bad.detail &&
				!late {
				// on a busy machine
				t.Errorf("%s: %s\n%s", bad.do, fault.Detail, fault.Log)
			}
			if !strings.Contains(fault.Log, bad.with) {
				t.Errorf("%s: the log is %q", bad.do, fault.Log)
			}
		}
		well()
		if got := call(t, f, `{"do":"twice"}`); got != "1" {
			t.Error(got)
		}
		for range 3 { // the second line is never taken for the answer of another call
			well()
		}
		fault := fails(t, f, `not JSON`, sandbox.Trap)
		if !strings.Contains(fault.Detail, "invalid character") {
			t.Error(fault)
		}
		before := text(t, f, "pid", "")
		text(t, f, "stderr", "")
		if after := text(t, f, "pid", ""); after != before {
			t.Error("a worker that writes to standard error was replaced")
		}
		if got := call(t, f, "{\"do\":\n\"echo\",\r\n\"with\":\"lines\"}"); got != `"lines"` {
			t.Error(got)
		}
	})
}

// TestForkBomb lets processes multiply, against a limit of 32.
func TestForkBomb(t *testing.T) {
	const marker = "bomb_of_this_test.py"
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		need(t, "python3")
		program := map[string]string{marker: `
import os, signal

def compute_implications(input):
    if input["kind"] == "count":
        n = 0
        while n < 500:
            try:
                if os.fork() == 0:
                    signal.pause()
            except OSError as error:
                return [n, error.errno]
            n += 1
        return [n, 0]
    while input["kind"] == "bomb":
        try:
            os.fork()
        except OSError:
            pass
    return "well"
`}
		r := open(t, opts)
		f, err := r.Source(t.Context(), "python", sources(t, program), marker)
		if err != nil {
			t.Fatal(err)
		}
		var counted []int
		if err := json.Unmarshal(
			[]byte(call(t, f, `{"kind":"count"}`)), &counted,
		); err != nil || counted[0] < 5 || counted[0] >= 32 || counted[1] != 11 {
			t.Fatalf("processes and error: %v %v", counted, err)
		}
		if n := processes(t, marker); n > 40 {
			t.Errorf("%d processes", n)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}

		opts.Timeout = scarce
		r = open(t, opts)
		if f, err = r.Source(t.Context(), "python", sources(t, program), marker); err != nil {
			t.Fatal(err)
		}
		// Which of its limits it meets first depends on the machine: its processes write to what they share.
		_ = fails(t, f, `{"kind":"bomb"}`, sandbox.Timeout, sandbox.Memory)
		if got := call(t, f, `{"kind":"none"}`); got != `"well"` {
			t.Error(got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n := processes(t, marker); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// processes counts the processes of this machine with a word in their command line.
func processes(t *testing.T, word string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(line), word) {
			n++
		}
	}
	return n
}

// still is a clock that stands still: who waits for it looks again and again what has been done meanwhile.
type still struct{ *clock.Manual }

// Wait waits a little, on the machine's clock.
func (still) Wait(ctx context.Context, _ time.Time) error {
	return clock.System{}.Wait(ctx, time.Now().Add(10*time.Millisecond))
}

// TestBackgroundWork ends a worker that goes on working after it has answered, for what it has taken of the processor:
// how long that takes says nothing, so no time passes for the watch.
func TestBackgroundWork(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		t.Parallel()
		opts.Workers, opts.Clock = 1, still{clock.NewManual(time.Now())}
		f := guestImage(t, open(t, opts))
		text(t, f, "write", "/tmp/mark") // a new worker has a new /tmp
		text(t, f, "background", "")
		pause := time.Second
		for deadline := time.Now().Add(patience); strings.HasPrefix(text(t, f, "read", "/tmp/mark"), "[1,"); {
			if time.Now().After(deadline) {
				t.Fatal("the worker lives on")
			}
			<-time.After(pause) // without calls
			pause *= 2
		}
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	drivers(t, func(t *testing.T, opts container.Options) {
		t.Helper()
		need(t, "python3")
		const marker = "left_over_of_this_test.py"
		opts.Dir = folder(t)
		r := open(t, opts)
		f, err := r.Source(t.Context(), "python", sources(t, map[string]string{marker: "import time\ndef handler(x):\n  while x: time.sleep(1)\n  return 0\n"}), marker)
		if err != nil {
			t.Fatal(err)
		}
		call(t, f, "0")
		if processes(t, marker) == 0 {
			t.Fatal("no worker runs")
		}
		result := make(chan error)
		go func() {
			_, err := f.Call(t.Context(), []byte("1"))
			result <- err
		}()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		var fault *sandbox.Fault
		if err := <-result; err == nil || errors.As(err, &fault) {
			t.Errorf("a call during the end: %v", err)
		}
		if n := processes(t, marker); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		if _, err := f.Call(t.Context(), []byte("0")); err == nil || errors.As(err, &fault) {
			t.Errorf("a call after the end: %v", err)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), opts.Dir) {
			t.Error("mounts are left")
		}
		groups, err := filepath.Glob("/sys/fs/cgroup/*/j17-*")
		if err != nil || len(groups) > 0 {
			t.Error("control groups are left", groups, err)
		}
		left, err := os.ReadDir(filepath.Join(opts.Dir, "staging"))
		if err != nil || len(left) > 0 {
			t.Error("files are left", left, err)
		}
	})
}
