package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"j17/internal/base/clock"
	"j17/internal/base/work/worktest"
)

// What tests start has a home of its own, so that nobody's logins count; ends after a time, as does each read of what
// it prints; and does not outlive the tests, however they end. This file is the only one that starts processes.

const (
	// patience is how long a test waits for something that a process has to say. These bounds end what would never end;
	// a slow machine with all its processors busy is not to reach them.
	patience = 5 * time.Minute
	// lifetime is how long a process may run.
	lifetime = 15 * time.Minute
	// scriptsTime bounds all scripts of TestScripts together.
	scriptsTime = 18 * time.Minute
	// raceVariable has the options of the race detector, with which the program is built where the tests are. It makes
	// every process sleep for a second before it ends, unless it is told not to.
	raceVariable, noSleep = "GORACE", "atexit_sleep_ms=0"
	// lifeline names the variable with the address that the program of the tests is connected to for as long as the
	// tests run.
	lifeline = "J17_TEST_LIFELINE"
	// unwatched names the variable that lets servers run without the race detector as well.
	unwatched = "J17_TEST_UNWATCHED"
	// watchedFolder is a folder beside the program of the tests. It holds the program under the race detector, where
	// there are two.
	watchedFolder = "watched"
)

func TestMain(m *testing.M) {
	testscript.Main(leading{m}, map[string]func(){"j17": following})
}

// leading runs the tests. It listens where the processes that they start notice its end.
type leading struct{ m *testing.M }

// Run implements testscript.TestingM.
func (l leading) Run() int {
	ends, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = errors.Join(
			os.Setenv(lifeline, ends.Addr().String()),
			os.Setenv(raceVariable, strings.TrimSpace(os.Getenv(raceVariable)+" "+noSleep)),
		)
	}
	if err == nil && worktest.RaceDetector && runtime.GOOS != "windows" { // where no process becomes another program
		err = buildUnwatched()
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		held := map[net.Conn]bool{} // closed by the system when the tests have ended
		for {
			conn, err := ends.Accept()
			if err != nil {
				return
			}
			held[conn] = true
		}
	}()
	return l.m.Run()
}

// buildUnwatched puts the program without the race detector before the one with it, which starts four times as slowly.
// It is compiled as 'make build' does, so that most of it is there already.
func buildUnwatched() error {
	program, err := exec.LookPath("j17") // where testscript.Main has put it
	if err != nil {
		return err
	}
	folder := filepath.Join(filepath.Dir(program), watchedFolder)
	if err := errors.Join(
		os.Mkdir(folder, 0o700), os.Rename(program, filepath.Join(folder, filepath.Base(program))),
	); err != nil {
		return err
	}
	build := exec.Command("go", "test", "-c", "-race=false", "-trimpath", "-ldflags=-w", "-vet=off", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build j17 without the race detector: %w\n%s", err, out)
	}
	return nil
}

// watched reports whether a command runs under the race detector, where the tests do: all but those that do one thing
// after the other and end.
func watched(args []string) bool {
	command, verb := "", ""
	if len(args) > 0 {
		command = args[0]
	}
	if len(args) > 1 {
		verb = args[1]
	}
	switch command {
	case "__complete", "audit", "blobs", "checkpoint", "completion", "context", "docs", "handler", "health", "help",
		"instances", "keys", "login",
		"logout", "openapi", "operators", "places", "projection", "saga", "scheduled", "scrub", "spec", "state",
		"tombstone", "version",
		"wasm", "whoami":
		return false
	case "data":
		return verb != "" && verb != "export"
	case "events":
		return !slices.Contains([]string{"dry-run", "list", "post", "transaction", "validate"}, verb)
	default:
		return true
	}
}

// oneByOne reports whether a test asks its servers one thing after the other, and nothing that scripts do not ask as
// well: it shows that what is printed on a page, or by the program, is true, or looks through the memory of the server,
// of which the race detector makes many times as much. Its servers run without the race detector. Those of scripts, and
// of all other tests, run under it.
func oneByOne(test string) bool {
	test, _, _ = strings.Cut(test, "/")
	return slices.Contains(
		[]string{"TestDocs", "TestErasedDataLeaveTheMemory", "TestExamples", "TestDevShowsWhatToDoNext"}, test,
	)
}

// following runs the program, under the race detector where the command wants it and there is such a program. It ends
// when the tests that have started it are gone.
func following() {
	if program, err := os.Executable(); err == nil && watched(os.Args[1:]) && os.Getenv(unwatched) == "" {
		program = filepath.Join(filepath.Dir(program), watchedFolder, filepath.Base(program))
		if err := syscall.Exec(program, os.Args, os.Environ()); !errors.Is(err, fs.ErrNotExist) &&
			!errors.Is(err, errors.ErrUnsupported) {
			_, _ = fmt.Fprintln(os.Stderr, "the program under the race detector:", err)
			os.Exit(exitFailure)
		}
	}
	var d net.Dialer
	//nolint:forbidigo // there is no test here
	conn, err := d.DialContext(context.Background(), "tcp", os.Getenv(lifeline))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "the tests have ended:", err)
		os.Exit(exitFailure)
	}
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		os.Exit(exitFailure)
	}()
	main()
}

// rounds is how much of something that takes time the tests do: a little, which shows each kind of fault, or all of it
// where J17_SOAK is set, as 'make soak' does.
func rounds(little, all int) int {
	if os.Getenv("J17_SOAK") != "" {
		return all
	}
	return little
}

// startable returns a program that a test may start. More variables than those of environment can be appended to its
// Env.
func startable(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := child(t.Context(), t.TempDir(), t.Cleanup, name, args...)
	if oneByOne(t.Name()) {
		cmd.Env = append(cmd.Env, unwatched+"=yes")
	}
	return cmd
}

// child returns a program with a home and a limited time. At the end of the test it is killed with all that it has
// started.
func child(ctx context.Context, home string, atEnd func(func()), name string, args ...string) *exec.Cmd {
	// The context of a test ends before its cleanups, which may want to end the program in an orderly way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lifetime)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment(os.Environ(), home)
	cmd.WaitDelay = time.Second
	killWithChildren(cmd)
	atEnd(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Cancel()
			_ = cmd.Wait()
		}
		cancel()
	})
	return cmd
}

// environment is the variables of the tests without what is about the person who runs them.
func environment(of []string, home string) []string {
	vars := make([]string, 0, len(of)+1)
	for _, v := range of {
		name, _, _ := strings.Cut(v, "=")
		if name == lifeline || name != "HOME" && name != "USERPROFILE" && !strings.HasPrefix(name, "XDG_") &&
			!strings.HasPrefix(name, "J17_") {
			vars = append(vars, v)
		}
	}
	return append(vars, "HOME="+home, "USERPROFILE="+home)
}

// patient is the output of a process. Nobody waits for it for ever.
type patient struct{ pipe io.ReadCloser }

// Read implements io.Reader.
func (p patient) Read(b []byte) (int, error) {
	if f, ok := p.pipe.(*os.File); ok {
		if err := f.SetReadDeadline(clock.System{}.Now().Add(patience)); err != nil {
			return 0, err
		}
	}
	return p.pipe.Read(b)
}

// said returns what a process is going to write to a stream: cmd.StdoutPipe or cmd.StderrPipe.
func said(pipe func() (io.ReadCloser, error)) (io.Reader, error) {
	out, err := pipe()
	return patient{out}, err
}

// begun starts a process, and returns what it is going to write.
func begun(t *testing.T, cmd *exec.Cmd) (stdout, stderr io.Reader) {
	t.Helper()
	stdout, err := said(cmd.StdoutPipe)
	if err != nil {
		t.Fatal(err)
	}
	if stderr, err = said(cmd.StderrPipe); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return stdout, stderr
}

// TestProcessesHaveTheirOwnHome runs the tests' processes where somebody has logged in: none of them looks there.
func TestProcessesHaveTheirOwnHome(t *testing.T) {
	home, config := t.TempDir(), t.TempDir()
	for _, file := range []string{
		filepath.Join(home, ".config", "j17", "config.json"), filepath.Join(config, "j17", "config.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		login := `{"current":"elsewhere","contexts":{"elsewhere":{"server":"https://elsewhere.example","login":{"email":"a@example.com","token":"t","expires_at":9999999999}}}}`
		if err := os.WriteFile(file, []byte(login), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, v := range map[string]string{
		"HOME": home, "USERPROFILE": home, "XDG_CONFIG_HOME": config, "XDG_STATE_HOME": config,
		"J17_CONTEXT": "elsewhere", "J17_URL": "https://elsewhere.example", "J17_KEY": "k", "J17_TOKEN": "t",
		"J17_ENV": "staging",
	} {
		t.Setenv(name, v)
	}
	cmd := startable(t, "j17", "context", "show")
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "elsewhere") || strings.Contains(string(out), "J17_") {
		t.Errorf("%v\n%s", err, out)
	}
	sh := openShell(t)
	if got := sh.run(t, 0, block{code: "j17 context list 2>&1; env | grep -c '^J17_[A-KM-SU-Z]' || true"}); strings.Contains(got, "elsewhere") || !strings.Contains(got, "0\n") {
		t.Error(got)
	}
	sh.close(t)
	p, _ := started(t, plainSpec)
	for _, v := range p.cmd.Env {
		if strings.Contains(v, "elsewhere") || strings.Contains(v, home) || strings.Contains(v, config) {
			t.Error(v)
		}
	}
}

// TestServersRunUnderTheRaceDetector looks at the programs that run where the tests are watched for races: that of a
// server is watched as well, and that of a command which ends is not.
func TestServersRunUnderTheRaceDetector(t *testing.T) {
	if !worktest.RaceDetector || runtime.GOOS != "linux" {
		t.Skip("the tests run without the race detector, or the system does not show what a process runs")
	}
	program, err := exec.LookPath("j17")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := started(t, plainSpec)
	for file, want := range map[string]bool{program: false, fmt.Sprintf("/proc/%d/exe", p.cmd.Process.Pid): true} {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}); got != want {
			t.Errorf("%s has the race detector: %t, want %t\n%v", file, got, want, info)
		}
	}
	for args, want := range map[string]bool{
		"dev": true, "serve --check": true, "test": true, "mcp": true, "events send -": true, "events tail": true,
		"backup restore": true, "new-command": true, "": true,
		"events post": false, "events list": false, "data import": true, "data export": false, "spec validate": false,
		"keys create": false, "docs": false,
	} {
		if got := watched(strings.Fields(args)); got != want {
			t.Errorf("%q runs under the race detector: %t, want %t", args, got, want)
		}
	}
}

// TestProcessesEndWithTheTests leaves a process alone: it ends by itself.
func TestProcessesEndWithTheTests(t *testing.T) {
	ends, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cmd := startable(t, "sh", "-c", "j17 dev --listen 127.0.0.1:0 --internal-listen 127.0.0.1:0")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, lifeline+"="+ends.Addr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := ends.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure {
		t.Error(err)
	}
}

// TestOneFileStartsProcesses keeps other tests from starting processes on their own.
func TestOneFileStartsProcesses(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file != "process_test.go" &&
			(strings.Contains(string(raw), "exec.Command") || strings.Contains(string(raw), "os.StartProcess")) {
			t.Errorf("%s starts a process: command in process_test.go gives it a home and an end", file)
		}
	}
}
