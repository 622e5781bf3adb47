package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/server"
)

// TestStoppingDoesNotWaitForASlowReader stops a server while a client reads a large page and takes no more of it.
func TestStoppingDoesNotWaitForASlowReader(t *testing.T) {
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{},
		Logger: slog.New(slog.DiscardHandler), DrainTime: time.Millisecond,
	}, SpecFile: specFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx) }()
	ready := dev.Ready()
	key, base := ready.Keys[j17.Prod].Write, dev.URL()

	// Enough events that no socket holds a page.
	const actor = `"metadata":{"actor":{"type":"user","id":"global"}}`
	event := fmt.Sprintf(`{"data":{"t":%q},%s}`, strings.Repeat("x", 900_000), actor)
	for range 9 {
		r, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, base+"/note/global/was_written", strings.NewReader(event),
		)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatal(resp.Status)
		}
	}

	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()                          //nolint:errcheck // it was only read
	_ = conn.(*net.TCPConn).SetReadBuffer(4096) //nolint:errcheck,forcetypeassert // a dialled TCP connection
	_, _ = fmt.Fprintf(conn, "GET /note/global/events HTTP/1.1\r\nHost: app.localhost\r\nAuthorization: Bearer %s\r\n\r\n", key)
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	stop()
	guard, cancel := context.WithTimeout(t.Context(), time.Minute) // half of what a client has for an answer
	defer cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-guard.Done():
		t.Fatal("the server waits for its client")
	}
	closed := make(chan error, 1)
	go func() { closed <- dev.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-guard.Done():
		t.Fatal("the store waits for a reader")
	}
}

// TestARemovedFolderIsNoticed removes the data folder under a running server: events are refused, and it is not ready.
func TestARemovedFolderIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	lost := make(chan struct{})
	dev, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
		Dir: dir, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test", Clock: clock.System{},
		Logger:    slog.New(&telling{Handler: slog.DiscardHandler, of: "the data folder is gone", told: lost}),
		DrainTime: time.Millisecond,
	}, SpecFile: specFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Log(err) // the same
		}
		if err := dev.Close(); err != nil {
			t.Log(err) // its folder is gone
		}
	}()
	ask := func(method, path, body string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, dev.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+dev.Ready().Keys[j17.Prod].Write)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	const event = `{"data":{},"metadata":{"actor":{"type":"user","id":"global"}}}`
	if got := ask("POST", "/note/global/was_written", event); got != http.StatusCreated {
		t.Fatal(got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	guard, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	select {
	case <-lost:
	case <-guard.Done():
		t.Fatal("nobody notices that the folder is gone")
	}
	if got := ask("GET", "/readyz", ""); got != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d", got)
	}
	if got := ask("POST", "/note/global/was_written", event); got != http.StatusServiceUnavailable {
		t.Errorf("a write: %d", got)
	}
}

// telling is a logger that tells when a message was logged.
type telling struct {
	slog.Handler
	of   string
	told chan struct{}
}

func (h *telling) Enabled(context.Context, slog.Level) bool { return true }

func (h *telling) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.of) {
		close(h.told)
	}
	return nil
}

// TestASpecWithErrorsLeavesNoFolder: nor does one that is not there.
func TestASpecWithErrorsLeavesNoFolder(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "spec.json")
	if err := os.WriteFile(wrong, []byte(`{"aggregate_type": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{wrong, wrong + ".typo"} {
		dir := filepath.Join(t.TempDir(), "data")
		_, err := server.OpenDev(t.Context(), server.DevOptions{Options: server.Options{
			Dir: dir, Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Clock: clock.System{},
			Logger: slog.New(slog.DiscardHandler),
		}, SpecFile: file})
		if err == nil {
			t.Fatalf("%s: the server starts", file)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the data folder is there: %v", file, err)
		}
	}
}

// specFile writes a spec to a folder of the test's.
func specFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spec.json")
	spec := `{"agent_types": ["user"], "aggregate_types": {"note": {"events": {"was_written": {"schema": {"type": "object"}, "handler": []}}}}}`
	if err := os.WriteFile(file, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
