package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"j17/internal/base/clock"
	"j17/internal/server"
)

// TestScripts runs testdata/script: the program as its users meet it. Beside the usual commands of testscript they have
//
//	dev [ARG...]                    start j17 dev on free ports, its data in $WORK/data, and wait until it is ready
//	serve [ARG...] | servelog       start j17 serve likewise; end it and put what it has logged on stdout
//	certify                         write cert.pem and key.pem
//	shutdown | crash                end it with SIGTERM, which must succeed, or with SIGKILL
//	http METHOD PATH [HEADER...] [@FILE|BODY]   send a request; stdout gets the status, the headers and the body
//
// http sends $KEY as bearer token and $HOST as Host; SOON is an hour from now in Unix seconds; dev sets KEY, READKEY,
// STAGINGKEY, HOST, STAGINGHOST, TESTHOST, CONTROLHOST, PASSWORD and EMAIL.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            clock.System{}.Now().Add(scriptsTime),
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("SOON", strconv.FormatInt(clock.System{}.Now().Add(time.Hour).Unix(), 10))
			e.Setenv(lifeline, os.Getenv(lifeline))
			e.Setenv(raceVariable, os.Getenv(raceVariable))
			e.Values[serverKey{}] = &scriptServer{ctx: t.Context()}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"dev":      scriptDev,
			"serve":    scriptServe,
			"servelog": scriptServeLog, // ends it too
			"certify":  scriptCertificate,
			"shutdown": func(ts *testscript.TestScript, _ bool, _ []string) { endScriptServer(ts, syscall.SIGTERM) },
			"crash":    func(ts *testscript.TestScript, _ bool, _ []string) { endScriptServer(ts, syscall.SIGKILL) },
			"http":     scriptHTTP,
		},
	})
}

// process is a running development server.
type process struct {
	cmd   *exec.Cmd
	ready server.Ready
	err   heard
	url   string
}

// heard is what a process has said. Others may wait until it has said something.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

// Write implements io.Writer.
func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
	return h.text.Write(p)
}

// String returns what was said.
func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// await waits until a text was said so many times, and reports false where that does not happen.
func (h *heard) await(text string, times int) bool {
	late := time.After(patience)
	for {
		h.mu.Lock()
		found := strings.Count(h.text.String(), text) >= times
		if h.more == nil {
			h.more = make(chan struct{})
		}
		more := h.more
		h.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-more:
		case <-late:
			return false
		}
	}
}

// startDev starts the program of this test binary as "j17 dev" and waits until it is ready.
func startDev(t *testing.T, dir string, args ...string) (*process, error) {
	t.Helper()
	return startDevAs(startable(t, "j17", devArgs(args)...), dir) // testscript.Main has put it on the path
}

func devArgs(more []string) []string {
	return append([]string{"dev", "--json", "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"}, more...)
}

func startDevAs(cmd *exec.Cmd, dir string) (*process, error) {
	p := &process{cmd: cmd}
	p.cmd.Dir = dir
	p.cmd.Stderr = &p.err
	out, err := said(p.cmd.StdoutPipe)
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.ready)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("j17 dev did not become ready: %w\n%s", err, p.err.String())
	}
	port := p.ready.URLs["prod"][strings.LastIndexByte(p.ready.URLs["prod"], ':'):]
	p.url = "http://127.0.0.1" + port
	return p, nil
}

// end sends a signal and waits for the process.
func (p *process) end(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return p.cmd.Wait()
}

type serverKey struct{}

// scriptServer holds the server that a script has started, and the context of the test.
type scriptServer struct {
	*process
	ctx context.Context //nolint:containedctx // commands of scripts get none
}

func scriptContext(ts *testscript.TestScript) context.Context { return serverOf(ts).ctx }

func serverOf(ts *testscript.TestScript) *scriptServer {
	s, _ := ts.Value(serverKey{}).(*scriptServer)
	return s
}

func scriptDev(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("dev does not take !")
	}
	args = append([]string{"--data", ts.Getenv("WORK") + "/data"}, args...)
	p, err := startDevAs(
		child(scriptContext(ts), ts.Getenv("WORK"), ts.Defer, "j17", devArgs(args)...), ts.Getenv("WORK"),
	)
	ts.Check(err)
	serverOf(ts).process = p
	host := func(name string) string { return strings.TrimPrefix(p.ready.URLs[name], "http://") }
	for name, v := range map[string]string{
		"KEY": p.ready.Keys["prod"].Write, "READKEY": p.ready.Keys["prod"].Read,
		"STAGINGKEY": p.ready.Keys["staging"].Write,
		"HOST":       host("prod"), "STAGINGHOST": host("staging"), "TESTHOST": host("test"),
		"CONTROLHOST": host("control"),
		"INSTANCEID":  p.ready.Instance.ID, "EMAIL": p.ready.Operator.Email, "PASSWORD": p.ready.Operator.Password,
		"URL": p.url, "PORT": p.url[strings.LastIndexByte(p.url, ':')+1:], "INTERNAL": p.ready.URLs["internal"],
	} {
		ts.Setenv(name, v)
	}
}

func endScriptServer(ts *testscript.TestScript, sig os.Signal) {
	s := serverOf(ts)
	if s.process == nil {
		ts.Fatalf("no server is running")
	}
	err := s.end(sig)
	s.process = nil
	if sig == syscall.SIGTERM {
		ts.Check(err)
	}
}

func scriptHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http METHOD PATH [HEADER...] [@FILE|BODY]")
	}
	url := args[1]
	if strings.HasPrefix(url, "/") {
		url = ts.Getenv("URL") + url
	}
	var body io.Reader
	headers := http.Header{}
	for _, a := range args[2:] {
		switch name, v, ok := strings.Cut(a, ": "); {
		case ok && !strings.HasPrefix(a, "{") && !strings.HasPrefix(a, "["):
			headers.Set(name, v)
		case strings.HasPrefix(a, "@"):
			body = strings.NewReader(ts.ReadFile(a[1:]))
		default:
			body = strings.NewReader(a)
		}
	}
	ctx, cancel := context.WithTimeout(scriptContext(ts), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, args[0], url, body)
	ts.Check(err)
	req.Host = ts.Getenv("HOST")
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("KEY"))
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name := range headers {
		if name == "Host" {
			req.Host = headers.Get(name)
			continue
		}
		req.Header.Set(name, headers.Get(name))
	}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	raw, err := io.ReadAll(resp.Body)
	ts.Check(err)
	out := bytes.NewBufferString(fmt.Sprintln(resp.StatusCode))
	ts.Check(resp.Header.Write(out))
	fmt.Fprintf(out, "\n%s\n", raw)
	_, err = ts.Stdout().Write(out.Bytes())
	ts.Check(err)
}
