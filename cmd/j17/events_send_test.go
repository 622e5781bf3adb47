package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const notesSpec = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]},"handler":[{"set":{"target":"n","value":"$.data.n"}}]}}}}}`

func noteID(i int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-%012d", i) }

func noteLine(id, n int) string {
	return fmt.Sprintf(`{"key":"note:%s","type":"was_written","data":{"n":%d},"metadata":{"actor":{"type":"user","id":"global"}}}`, noteID(id), n)
}

// notes makes lines about some notes. Runs of lines about one note have several lengths.
func notes(lines, ids int) string {
	var b strings.Builder
	for n := range lines {
		fmt.Fprintln(&b, noteLine((n/7+n/31)%ids, n))
	}
	return b.String()
}

// sendRun is how the program is run to send a file.
type sendRun struct {
	p     *process
	dir   string
	url   string
	stdin io.Reader
}

func (r sendRun) start(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := startable(t, "j17", append([]string{"events", "send", "--url", r.url}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(cmd.Env, "J17_KEY="+r.p.ready.Keys["prod"].Write, "HOME="+r.dir)
	cmd.Stdin = r.stdin
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// numbersOf reads what n the events of a note have, in order.
func numbersOf(t *testing.T, p *process, id string) []int {
	t.Helper()
	cmd := startable(
		t, "j17", "events", "list", "note/"+id, "--all", "--json", "--url", p.url, "--key", p.ready.Keys["prod"].Read,
	)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Data struct{ N int } `json:"data"`
	}
	if err := json.Unmarshal(out, &events); err != nil {
		t.Fatal(err)
	}
	numbers := make([]int, 0, len(events))
	for _, ev := range events {
		numbers = append(numbers, ev.Data.N)
	}
	return numbers
}

// exactlyOnce checks that each line of a file is one event, those of each note in the order of the file.
func exactlyOnce(t *testing.T, p *process, file string) {
	t.Helper()
	want := map[string][]int{}
	for line := range strings.Lines(file) {
		var ev struct {
			Key  string
			Data struct{ N int }
		}
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		id := strings.TrimPrefix(ev.Key, "note:")
		want[id] = append(want[id], ev.Data.N)
	}
	for id, numbers := range want {
		if got := numbersOf(t, p, id); !slices.Equal(got, numbers) {
			t.Errorf("note %s has the events\n%v and not\n%v", id, got, numbers)
		}
	}
}

// ambush is a proxy that strikes at some of the requests that pass it: before they reach the server, or after the
// server has carried them out and before the client hears of it.
type ambush struct {
	mu      sync.Mutex
	passed  int
	at      int
	forward bool
	strike  func()
}

func (a *ambush) arm(at int, forward bool, strike func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passed, a.at, a.forward, a.strike = 0, at, forward, strike
}

func (a *ambush) serve(t *testing.T, backend string) string {
	t.Helper()
	target, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.passed++
		hit := a.strike != nil && a.passed == a.at
		strike, forward := a.strike, a.forward
		a.mu.Unlock()
		if !hit {
			proxy.ServeHTTP(w, r)
			return
		}
		if forward {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		strike()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestSendSurvivesKills kills the sender again and again, sometimes when the server has stored a batch and the sender
// does not know it. In the end every event is there once.
func TestSendSurvivesKills(t *testing.T) {
	p, specFile := started(t, notesSpec)
	dir := filepath.Dir(specFile)
	lines := notes(3000, 12)
	if err := os.WriteFile(filepath.Join(dir, "notes.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var a ambush
	run := sendRun{p: p, dir: dir, url: a.serve(t, p.url)}
	for i, at := range []int{1, 40, 40, 77, 13, 100} {
		killed := make(chan struct{})
		ready := make(chan *exec.Cmd, 1)
		sig := []os.Signal{syscall.SIGKILL, syscall.SIGINT}[i%2]
		a.arm(at, i%3 != 0, func() {
			cmd := <-ready
			_ = cmd.Process.Signal(sig)
			close(killed)
		})
		cmd, out := run.start(t, "notes.jsonl", "--batch", "5", "--concurrency", "4")
		ready <- cmd
		err := cmd.Wait()
		<-killed
		if err == nil {
			t.Fatal("all was sent: nobody stopped it")
		}
		if sig == syscall.SIGINT && (cmd.ProcessState.ExitCode() != exitInterrupted || !strings.Contains(
			out.String(), "interrupted",
		) || !strings.Contains(out.String(), "Run the same command again")) {
			t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), out)
		}
	}
	a.arm(0, false, nil)
	cmd, out := run.start(t, "notes.jsonl", "--json")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out.String(), "Resuming from ") ||
		!strings.Contains(out.String(), `"complete":true,"events":3000`) {
		t.Errorf("%s", out)
	}
	exactlyOnce(t, p, lines)
	if _, err := os.Stat(filepath.Join(dir, "notes.jsonl.j17-send")); !os.IsNotExist(err) {
		t.Error("the journal is still there", err)
	}
}

// TestSendOfAPipe ends the input early, kills the sender, and sends the whole input again.
func TestSendOfAPipe(t *testing.T) {
	p, specFile := started(t, notesSpec)
	lines := notes(400, 5)
	var a ambush
	run := sendRun{p: p, dir: filepath.Dir(specFile), url: a.serve(t, p.url)}
	run.stdin = strings.NewReader(lines[:strings.Index(lines, noteLine(0, 0))+len(noteLine(0, 0))*151/2])
	cmd, out := run.start(t, "-")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInvalid || !strings.Contains(out.String(), "cut off") {
		t.Errorf("exit code %d for an input that ends in the middle of an event\n%s", code, out)
	}
	ready := make(chan *exec.Cmd, 1)
	a.arm(150, true, func() { _ = (<-ready).Process.Kill() })
	run.stdin = strings.NewReader(lines)
	cmd, _ = run.start(t, "-")
	ready <- cmd
	if err := cmd.Wait(); err == nil {
		t.Fatal("nobody killed it")
	}
	a.arm(0, false, nil)
	run.stdin = strings.NewReader(lines)
	cmd, out = run.start(t, "-")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	exactlyOnce(t, p, lines)
}

// TestSendSurvivesTheNetwork drops connections, before and after requests were carried out, and the sender goes on by
// itself.
func TestSendSurvivesTheNetwork(t *testing.T) {
	p, specFile := started(t, notesSpec)
	dir := filepath.Dir(specFile)
	lines := notes(300, 4)
	if err := os.WriteFile(filepath.Join(dir, "notes.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var a ambush
	run := sendRun{p: p, dir: dir, url: a.serve(t, p.url)}
	strikes := 0
	var strike func()
	strike = func() {
		if strikes++; strikes < 4 {
			a.arm(9, strikes%2 == 0, strike)
		}
	}
	a.arm(5, true, strike)
	cmd, out := run.start(t, "notes.jsonl", "--batch", "4", "--concurrency", "2")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strikes != 4 {
		t.Errorf("%d connections were dropped", strikes)
	}
	exactlyOnce(t, p, lines)
}

// TestSendAfterCorrections leaves out refused events, corrects the file, and goes on.
func TestSendAfterCorrections(t *testing.T) {
	p, specFile := started(t, notesSpec)
	dir := filepath.Dir(specFile)
	good := notes(60, 2)
	bad := strings.Split(good, "\n")
	bad[3] = strings.Replace(bad[3], `"n":3`, `"n":"x"`, 1)
	bad[4] = strings.Replace(bad[4], `"n":4`, `"n":4.5`, 1)
	bad[20] = "no JSON"
	bad[59] = strings.Replace(bad[59], "was_written", "was_drawn", 1)
	file := filepath.Join(dir, "notes.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(bad, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	run := sendRun{p: p, dir: dir, url: p.url}
	cmd, out := run.start(t, "notes.jsonl")
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInvalid || !strings.Contains(out.String(), "notes.jsonl:21: this is not valid JSON") || !strings.Contains(out.String(), "Nothing was sent") {
		t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
	for range 2 {
		cmd, out = run.start(t, "notes.jsonl", "--continue-on-error", "--batch", "9")
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitInvalid ||
			!strings.Contains(out.String(), "notes.jsonl:4: data.n: ") || !strings.Contains(out.String(), "4 refused") {
			t.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), out)
		}
		raw, err := os.ReadFile(file + ".errors.jsonl")
		if err != nil || strings.Count(string(raw), "\n") != 4 || !strings.Contains(string(raw), `{"line":60,"code":"unknown_event_type",`) || !strings.Contains(string(raw), `"text":"no JSON"`) {
			t.Errorf("%v\n%s", err, raw)
		}
	}
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out = run.start(t, "notes.jsonl", "--json")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `{"complete":true,"events":60,"stored":4,"stored_before":56,"refused":0}`) {
		t.Errorf("%v\n%s", err, out)
	}
	for i := range 2 {
		numbers := numbersOf(t, p, noteID(i))
		slices.Sort(numbers)
		var want []int
		for n := range 60 {
			if strings.Contains(strings.Split(good, "\n")[n], noteID(i)) {
				want = append(want, n)
			}
		}
		if !slices.Equal(numbers, want) {
			t.Errorf("note %d has the events %v and not %v", i, numbers, want)
		}
	}
}

// TestSendOfNothingKnownBindsNothing kills a run before the server has acknowledged anything: the file may go to
// another place then. Once something is stored, it may not.
func TestSendOfNothingKnownBindsNothing(t *testing.T) {
	p, specFile := started(t, notesSpec)
	dir := filepath.Dir(specFile)
	lines := notes(40, 1)
	if err := os.WriteFile(filepath.Join(dir, "notes.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var a ambush
	run := sendRun{p: p, dir: dir, url: a.serve(t, p.url)}
	kill := func(run sendRun, a *ambush, at int) {
		ready := make(chan *exec.Cmd, 1)
		a.arm(at, false, func() { _ = (<-ready).Process.Kill() })
		cmd, _ := run.start(t, "notes.jsonl", "--batch", "5", "--concurrency", "1")
		ready <- cmd
		if err := cmd.Wait(); err == nil {
			t.Fatal("nobody killed it")
		}
		if _, err := os.Stat(filepath.Join(dir, "notes.jsonl.j17-send")); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := run
	elsewhere.url = p.url
	kill(run, &a, 1)
	cmd, out := elsewhere.start(t, "notes.jsonl", "--json")
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `"stored":40`) {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(
		filepath.Join(dir, "notes.jsonl"), []byte(strings.ReplaceAll(lines, noteID(0), noteID(1))), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	// From the first place to a second one, where something is stored: the file is bound to that one.
	var b ambush
	second := run
	second.url = b.serve(t, p.url)
	kill(run, &a, 1)
	kill(second, &b, 3)
	cmd, out = run.start(t, "notes.jsonl")
	if err := cmd.Wait(); err == nil ||
		!strings.Contains(out.String(), "this file is not sent to its end to "+second.url) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestTwoRunsOfOneFile starts a second run of a file while the first one waits for the server.
func TestTwoRunsOfOneFile(t *testing.T) {
	p, specFile := started(t, notesSpec)
	dir := filepath.Dir(specFile)
	lines := notes(30, 2)
	if err := os.WriteFile(filepath.Join(dir, "notes.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var a ambush
	run := sendRun{p: p, dir: dir, url: a.serve(t, p.url)}
	second := make(chan string, 1)
	a.arm(1, true, func() {
		cmd, out := run.start(t, "notes.jsonl")
		_ = cmd.Wait()
		second <- fmt.Sprint(cmd.ProcessState.ExitCode(), " ", out)
	})
	cmd, out := run.start(t, "notes.jsonl", "--concurrency", "1")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := <-second; got != "1 Writing to prod of "+run.url+".\nj17: another run is sending this file: wait until it has ended, or stop it\n" {
		t.Error(got)
	}
	exactlyOnce(t, p, lines)
	if left, err := filepath.Glob(filepath.Join(dir, "*.j17-send")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
