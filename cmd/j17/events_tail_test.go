package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// relay passes connections on to wherever the server is at the moment, so that it keeps its address over restarts.
func relay(t *testing.T) (address string, to *atomic.Pointer[string]) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	to = new(atomic.Pointer[string])
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", *to.Load())
			if err != nil {
				_ = here.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}
			go pass(here, there)
			go pass(there, here)
		}
	}()
	return l.Addr().String(), to
}

// TestEventsTail follows an environment over a crash of its server, until it is interrupted.
func TestEventsTail(t *testing.T) {
	if signal.Ignored(os.Interrupt) {
		t.Skip("the tests run under nohup, and so does what they start")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	address, to := relay(t)
	var p *process
	start := func() {
		t.Helper()
		var err error
		if p, err = startDev(t, dir, "spec.json", "--data", "data"); err != nil {
			t.Fatal(err)
		}
		to.Store(new(strings.TrimPrefix(p.url, "http://")))
	}
	write := func(n int) {
		t.Helper()
		body := fmt.Sprintf(`{"data":{"by":%d},"metadata":{"actor":{"type":"user","id":"global"}}}`, n)
		r, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, p.url+"/note/global/was_written", strings.NewReader(body),
		)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+p.ready.Keys["prod"].Write)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusCreated {
			t.Fatal(resp.Status)
		}
	}

	start()
	write(1)
	key := p.ready.Keys["prod"].Read
	lines, people := new(heard), new(heard)
	followers := []*process{}
	for out, args := range map[*heard]string{lines: "--after 0 --type note --json", people: "--after 0 --actor user:global --event was_written"} {
		cmd := startable(t, "j17", strings.Fields("events tail --url http://"+address+" --key "+key+" "+args)...)
		f := &process{cmd: cmd}
		cmd.Stdout, cmd.Stderr = out, &f.err
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		followers = append(followers, f)
	}
	await := func(n int) {
		t.Helper()
		if !lines.await("\n", n) || !people.await("\n", n) {
			t.Fatalf("there is %q and %q, and %q, %q", lines, people, &followers[0].err, &followers[1].err)
		}
	}
	await(1)
	write(2)
	await(2)
	_ = p.end(syscall.SIGKILL)
	start()
	write(3)
	await(3)

	for i, line := range strings.Split(strings.TrimSpace(lines.String()), "\n") {
		if !strings.HasPrefix(line, `{"stream_id":"`) || !strings.Contains(line, fmt.Sprintf(`"data":{"by":%d}`, i+1)) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(people.String()), "\n") {
		if !strings.HasSuffix(line, fmt.Sprintf("  note:global  was_written  {\"by\":%d}  by user:global", i+1)) {
			t.Errorf("line %d is %s", i, line)
		}
	}
	for _, f := range followers {
		if err := f.end(os.Interrupt); err != nil {
			t.Errorf("interrupted, it ends with %v: %s", err, &f.err)
		}
	}
}
