package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"j17/internal/base/clock"
)

const plainSpec = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{"type":"object"},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`

// started starts a development server on a spec and stops it at the end of the test.
func started(t *testing.T, specText string, args ...string) (p *process, specFile string) {
	t.Helper()
	dir := t.TempDir()
	specFile = filepath.Join(dir, "spec.json")
	if err := os.WriteFile(specFile, []byte(specText), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, append(args, specFile, "--data", filepath.Join(dir, "data"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
	return p, specFile
}

// await asks again and again until something has come about.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	system := clock.System{}
	for deadline := system.Now().Add(patience); !is(); {
		if system.Now().After(deadline) {
			t.Fatalf("%s: it does not come about", what)
		}
		if err := system.Wait(t.Context(), system.Now().Add(20*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
}

// dial opens a connection to the server and sends the start of a request.
func dial(t *testing.T, p *process, start string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, start); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStopAnswersWhatIsUnderWay stops the server in the middle of a request's body.
func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	p, _ := started(t, plainSpec)
	body := `{"data":{"text":"last words"},"metadata":{"actor":{"type":"user","id":"global"}}}`
	conn := dial(t, p, fmt.Sprintf("POST /note/global/was_written HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", p.ready.Keys["prod"].Write, len(body)))
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		// the handler reads the body now
		t.Fatal(line, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // wait until the listener is closed
		probe, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			break
		}
		_ = probe.Close()
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	_, _ = r.ReadString('\n') // the end of the interim answer
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // not needed any more
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("status %d", resp.StatusCode)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the server did not stop cleanly: %v\n%s", err, p.err.String())
	}
}

// TestOversizedHeaders checks that a client cannot make the server hold headers without end.
func TestOversizedHeaders(t *testing.T) {
	p, _ := started(t, plainSpec)
	conn := dial(t, p, "GET / HTTP/1.1\r\nHost: localhost\r\n")
	go func() { // the server closes the connection before it has read all of this
		for range 10_000 {
			if _, err := io.WriteString(conn, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // not needed
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestTheSpecFollowsItsFile changes the spec file of a running server: to a broken one, which changes nothing, and to
// another good one.
func TestTheSpecFollowsItsFile(t *testing.T) {
	dir := t.TempDir()
	specFile := filepath.Join(dir, "spec.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(specFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(plainSpec)
	cmd := startable(
		t, "j17", "dev", specFile, "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--internal-listen",
		"127.0.0.1:0",
	)
	stdout, stderr := begun(t, cmd)
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	errs, out := bufio.NewScanner(stderr), bufio.NewScanner(stdout)
	until := func(s *bufio.Scanner, text string) string {
		t.Helper()
		for s.Scan() {
			if strings.Contains(s.Text(), text) {
				return s.Text()
			}
		}
		t.Fatalf("the server never said %q", text)
		return ""
	}
	until(errs, "is deployed")
	url := strings.Fields(until(out, "prod "))[1]
	key := strings.Fields(until(out, "write key"))[2]
	url = "http://127.0.0.1" + url[strings.LastIndexByte(url, ':'):]
	post := func(event string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/note/global/"+event, strings.NewReader(`{"data":{},"metadata":{"actor":{"type":"user","id":"global"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // not needed any more
		return resp.StatusCode
	}
	until(out, "Press Ctrl-C")
	write(strings.Replace(plainSpec, "agent_types", "agnt_types", 1))
	until(errs, `did you mean "agent_types"?`)
	until(errs, "was not deployed")
	if s := post("was_written"); s != http.StatusCreated {
		t.Errorf("the spec before the broken one: %d", s)
	}
	write(strings.Replace(plainSpec, "was_written", "was_noted", 1))
	until(errs, "refuse")
	until(errs, "is deployed")
	if s := post("was_noted"); s != http.StatusCreated {
		t.Errorf("the new event type: %d", s)
	}
	if s := post("was_written"); s != http.StatusNotFound {
		t.Errorf("the removed event type: %d", s)
	}
	if err := os.Remove(specFile); err != nil {
		t.Fatal(err)
	}
	until(errs, "spec.json is gone. The spec that was read from it last stays in place")
}

// TestExamples runs the script of each example against its spec, twice.
func TestExamples(t *testing.T) {
	specs, err := filepath.Glob("../../examples/*/spec.json")
	if err != nil || len(specs) == 0 {
		t.Fatal(specs, err)
	}
	for _, file := range specs {
		dir, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join(dir, "spec.json"))
			if err != nil {
				t.Fatal(err)
			}
			p, _ := started(t, string(raw))
			script := filepath.Join(dir, "run.sh")
			if _, err := os.Stat(script); err != nil {
				return // the spec of the README, whose script is the README
			}
			for range 2 {
				cmd := startable(t, "sh", script)
				cmd.Env = append(cmd.Env, "J17_URL="+p.url, "J17_KEY="+p.ready.Keys["prod"].Write)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// TestTheDataFolderKeepsItsKeys restarts a server and compares what it says.
func TestTheDataFolderKeepsItsKeys(t *testing.T) {
	p, specFile := started(t, plainSpec)
	first := p.ready
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	again, err := startDev(t, filepath.Dir(specFile), specFile, "--data", filepath.Join(filepath.Dir(specFile), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.end(syscall.SIGTERM) })
	if fmt.Sprint(first.Keys, first.Operator, first.NodeSecret, first.Instance) != fmt.Sprint(
		again.ready.Keys, again.ready.Operator, again.ready.NodeSecret, again.ready.Instance,
	) {
		t.Errorf("first %+v\nthen %+v", first, again.ready)
	}
	info, err := os.Stat(filepath.Join(filepath.Dir(specFile), "data", "dev.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("dev.json: %v, %v", info.Mode(), err)
	}
}

// TestExitCodes calls the program without a process of its own; that one ends with the same code is in many of the
// scripts.
func TestExitCodes(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	getenv := func(name string) string {
		if name == "HOME" {
			return home
		}
		return ""
	}
	for name, text := range map[string]string{
		"good.json": plainSpec, "bad.json": "{}", "warned.json": strings.Replace(plainSpec, `"type":"object"`, `"type":"object","properties":{"n":{"type":"string","format":"nonsense"}}`, 1), "wrapped.json": `{"spec":` + plainSpec + `,"environment":"test"}`, "wrapped-badly.json": `{"spec":` + plainSpec + `,"environmnt":"test"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args string
		want int
	}{
		{"version", exitOK},
		{"spec validate good.json", exitOK},
		{"spec validate wrapped.json", exitOK},
		{"spec validate wrapped-badly.json", exitInvalid},
		{"spec validate bad.json", exitInvalid},
		{"spec validate --json bad.json", exitInvalid},
		{"dev bad.json --data d --listen 127.0.0.1:0 --internal-listen 127.0.0.1:0", exitInvalid},
		{"dev none.json --data d --listen 127.0.0.1:0 --internal-listen 127.0.0.1:0", exitNotFound},
		{"dev --listen nonsense --data d", exitUsage},
		{"dev --listen 127.0.0.1:99999 --data d", exitUsage},
		{"dev --internal-listen nonsense --data d", exitUsage},
		{"dev --containers nope --data d", exitUsage},
		{"dev --rate-limit-per-key -1 --data d", exitUsage},
		{"dev --rate-limit-per-ip -1 --data d", exitUsage},
		{"dev --write-wait 2m --data d", exitUsage},
		{"dev --containers-processes 5000 --data d", exitUsage},
		{"dev --containers-disk -1 --data d", exitUsage},
		{"dev --read-wait 2m --data d", exitUsage},
		{"completion bash x", exitUsage},
		{"spec promote --from test --to test", exitUsage},
		{"state get note/global --at -1", exitUsage},
		{"state get note/global --at 1960-01-01T00:00:00Z", exitUsage},
		{"operators create ada@example.com --role nope", exitUsage},
		{"operators set-role ada@example.com nope", exitUsage},
		{"events post note/global was_written --actor user:global --previous-length 4 --skip-occ", exitUsage},
		{"handler test good.json --aggregate note --event was_written --state @- --event-data @-", exitUsage},
		{"handler test - --aggregate note --event was_written --state @-", exitUsage},
		{"handler test good.json --aggregate note --event was_written --event-data {", exitInvalid},
		{"handler test good.json --aggregate note --event was_written --id no!", exitInvalid},
		{"handler test good.json --aggregate note --event _was_written", exitInvalid},
		{"handler test good.json --aggregate note --event was_writtn", exitNotFound},
		{"handler test good.json --aggregate nte --event was_written", exitNotFound},
		{"events export x", exitUsage},
		{"spec validate none.json", exitNotFound},
		{"spec validate", exitUsage},
		{"spec validate good.json wrapped.json", exitOK},
		{"spec validate good.json bad.json", exitInvalid},
		{"spec validate --strict good.json", exitOK},
		{"spec validate --strict warned.json", exitInvalid},
		{"spec validate warned.json", exitOK},
		{"--version", exitOK},
		{"state get note/global --at -10m", exitUsage},
		{"state get note/global --at 2026-13-01", exitUsage},
		{"audit list --outcome bad", exitUsage},
		{"audit export --from soon", exitUsage},
		{"keys list --status foo", exitUsage},
		{"keys create x --scope admin", exitUsage},
		{`events post note/global was_written --actor user:global --data {"a":1}`, exitUsage},
		{"spec nonsense", exitUsage},
		{"nonsense", exitUsage},
		{"version --nonsense", exitUsage},
		{"dev a b", exitUsage},
	} {
		var out strings.Builder
		if got := run(t.Context(), strings.Fields(tc.args), getenv, strings.NewReader(""), &out, &out); got != tc.want {
			t.Errorf("j17 %s: exit code %d, want %d\n%s", tc.args, got, tc.want, out.String())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "d")); err == nil {
		t.Error("a development server without a spec that can be used has left a data folder")
	}
}
