package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
)

// endpoint returns an endpoint that keeps what it is sent.
func endpoint(t *testing.T) (url string, got chan *http.Request) {
	t.Helper()
	got = make(chan *http.Request, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		got <- r
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// TestListen forwards the events of an environment to an endpoint until it is interrupted, and sends a listener a
// sample.
func TestListen(t *testing.T) {
	if signal.Ignored(os.Interrupt) {
		t.Skip("the tests run under nohup, and so does what they start")
	}
	url, got := endpoint(t)
	dir := t.TempDir()
	text := strings.Replace(strings.TrimSpace(plainSpec), "{", `{"listeners": {"hook": {"url": "`+url+`/hook", "events": ["note.was_written"]}},`, 1)
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, dir, "spec.json", "--data", "data", "--allow-private-listeners")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")

	// A sample is sent and stored nowhere; of what is not there the exit code tells.
	out, err := startable(t, "j17", "listener", "trigger", "hook", "--url", p.url, "--data", data).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "200 ") {
		t.Fatalf("%v: %s", err, out)
	}
	if r := <-got; r.URL.Path != "/hook" || r.Header.Get("Webhook-Signature") == "" {
		t.Errorf("the sample is %s %v", r.URL, r.Header)
	}
	ghost := startable(t, "j17", "listener", "trigger", "ghost", "--url", p.url, "--data", data)
	if out, err := ghost.CombinedOutput(); err == nil || ghost.ProcessState.ExitCode() != exitNotFound {
		t.Errorf("a listener that is not there: %v: %s", err, out)
	}
	if out, err := startable(t, "j17", "listener", "list", "--url", p.url, "--data", data).Output(); err != nil ||
		!strings.Contains(string(out), "hook") {
		t.Errorf("%v: %s", err, out)
	}

	// What is forwarded is signed with a secret that stays the same.
	var secrets []string
	for range 2 {
		lines := new(heard)
		cmd := startable(
			t, "j17", "listen", "--forward-to", url+"/forward", "--events", "note.*", "--json", "--url", p.url,
			"--data", data,
		)
		f := &process{cmd: cmd}
		cmd.Stdout, cmd.Stderr = lines, &f.err
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !lines.await("\n", 1) {
			t.Fatalf("it is not ready: %s", &f.err)
		}
		var ready listenReady
		if err := json.Unmarshal([]byte(lines.String()), &ready); err != nil || !ready.Ready ||
			ready.ForwardTo != url+"/forward" {
			t.Errorf("%v: %s", err, lines)
		}
		secrets = append(secrets, ready.Secret)
		body := `{"data":{"by":1},"metadata":{"actor":{"type":"user","id":"global"}}}`
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
		paths := map[string]bool{}
		for range 2 { // the listener of the spec hears of it too
			paths[(<-got).URL.Path] = true
		}
		if !paths["/hook"] || !paths["/forward"] {
			t.Errorf("what came went to %v", paths)
		}
		if !lines.await("\n", 2) || !strings.Contains(lines.String(), `"key":"note:global","type":"was_written","status":200}`) {
			t.Errorf("it says %s", lines)
		}
		if err := f.end(os.Interrupt); err != nil {
			t.Errorf("interrupted, it ends with %v: %s", err, &f.err)
		}
	}
	if secrets[0] == "" || secrets[0] != secrets[1] {
		t.Errorf("the secrets are %q", secrets)
	}

	// What cannot be done is said before anything is.
	for args, want := range map[string]string{
		"listen": "--forward-to must be a URL", "listen --forward-to http://localhost:1/x --events note": "--events takes type.event",
	} {
		cmd := startable(t, "j17", append(strings.Fields(args), "--url", p.url, "--data", data)...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitUsage ||
			!strings.Contains(string(out), want) {
			t.Errorf("%s: %s", args, out)
		}
	}
}
