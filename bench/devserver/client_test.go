package devserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17/bench/devserver"
	"j17/internal/base/clock"
)

// TestClient makes requests one after the other to two servers: each has one connection, and answers are its own. A
// request whose context has ended is over, and takes its connection with it.
func TestClient(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	start := func(name string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return
			}
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, name+" "+string(body))
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	one, two := start("one"), start("two")
	manual := clock.NewManual(time.Unix(1_700_000_000, 0))
	client := devserver.Client(manual)
	ask := func(ctx context.Context, url, body string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := devserver.Answer(client, r)
		return string(text), err
	}
	for range 3 {
		for _, c := range []struct{ url, want string }{{one.URL, "one a"}, {two.URL, "two a"}} {
			if got, err := ask(t.Context(), c.url, "a"); err != nil || got != c.want {
				t.Errorf("%q: %v, not %q", got, err, c.want)
			}
		}
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("%d connections were opened", n)
	}

	// One that is given up in the middle of its answer.
	ctx, stop := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, one.URL+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	begun := make([]byte, len("begun"))
	_, err = io.ReadFull(resp.Body, begun)
	stop()
	_, ended := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); string(begun) != "begun" || ended == nil {
		t.Errorf("%q: %v, and it ended with %v", begun, err, ended)
	}
	if got, err := ask(t.Context(), one.URL, "b"); err != nil || got != "one b" || opened.Load() != 3 {
		t.Errorf("then %q: %v, on connection %d", got, err, opened.Load())
	}

	// One that nobody has used for long is not used again.
	manual.Advance(time.Minute)
	if got, err := ask(t.Context(), one.URL, "c"); err != nil || got != "one c" || opened.Load() != 4 {
		t.Errorf("a minute later %q: %v, on connection %d", got, err, opened.Load())
	}
}
