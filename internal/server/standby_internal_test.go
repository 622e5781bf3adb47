package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"j17/internal/storage/postgres"
)

// TestStandby lets a server wait, and then work: its listeners stay open, and it answers as what it is.
func TestStandby(t *testing.T) {
	t.Parallel()
	s := newServer(Options{
		Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	})
	if err := s.listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ask := func(l net.Listener, path string) (status int, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}

	// Another node works until this one's turn comes.
	turn := make(chan struct{})
	waiting := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- s.standby(t.Context(), func(_ context.Context, told func(postgres.Worker)) error {
			told(postgres.Worker{Name: "node-1", URL: "http://node-1"})
			close(waiting)
			<-turn
			return nil
		})
	}()
	<-waiting
	for _, l := range []net.Listener{s.public, s.internal} {
		if status, _ := ask(l, "/livez"); status != http.StatusOK {
			t.Errorf("/livez: %d", status)
		}
		status, body := ask(l, "/readyz")
		var problem struct {
			Code, Detail string
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusServiceUnavailable || problem.Code != "standby" ||
			!strings.Contains(problem.Detail, "node-1") {
			t.Errorf("/readyz: %d %s", status, body)
		}
	}
	close(turn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// The same listeners serve what comes then.
	h := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: headerTime}
	served := make(chan error, 1)
	go func() { served <- serve(h, s.public) }()
	if status, _ := ask(s.public, "/livez"); status != http.StatusNotFound {
		t.Errorf("a server that works answers %d", status)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
