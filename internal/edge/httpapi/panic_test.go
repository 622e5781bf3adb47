package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"j17/internal/edge/httpapi"
	"j17/internal/plane/control"
)

// panicking reaches no other node.
type panicking struct{}

// RoundTrip panics.
func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a fault") }

// TestPanicsOfQuestionsToWorkers lets the question to a worker panic, on a goroutine of its own: it is the failure of
// that request alone.
func TestPanicsOfQuestionsToWorkers(t *testing.T) {
	p := newPlane(t, nil)
	p.Cluster = &httpapi.Cluster{Transport: panicking{}}
	node := control.Node{
		Name: "n", Identity: "i", Version: "test", PublicURL: "http://n.example", InternalURL: "http://10.0.0.1:17001",
	}
	if err := p.registry.Nodes.Register(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	p.must(t, 404, "GET", "/api/errors/err_unknown", "")
	p.must(t, 500, "GET", "/api/scrub", "")
}

// TestAnAnswerThatBreaksOff lets a handler panic behind the beginning of its answer: the client is not told that it has
// all of it.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	f := newFixture(t, nil)
	s := httptest.NewUnstartedServer(f.ServeBroken())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.HasPrefix(string(body), "the first line") || err == nil {
		t.Errorf("status %d, body %q, and whoever reads it is told %v", resp.StatusCode, body, err)
	}
}
