package direct_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"j17/internal/edge/direct"
)

// conn takes back what was read from it.
type conn struct {
	net.Conn
	unread []byte
	late   time.Duration
}

func (c *conn) Unread(b []byte, late time.Duration) { c.unread, c.late = b, late }

func (c *conn) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		at = at.Add(-c.late)
	}
	return c.Conn.SetReadDeadline(at)
}

func (c *conn) Read(b []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// listener makes connections of the type conn.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &conn{Conn: c}, err
}

// fixture is a server, with a front or without.
type fixture struct {
	*direct.Front
	*http.Server
	address string
	served  chan error
	logged  *lines

	mu     sync.Mutex
	states []http.ConnState
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// long is how long clients may take in tests that are not about that.
const long = time.Hour

func start(t *testing.T, directly bool, handle http.HandlerFunc, change ...func(*http.Server)) *fixture {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{address: l.Addr().String(), served: make(chan error, 1), logged: &lines{}}
	f.Server = &http.Server{
		Handler: handle, ReadHeaderTimeout: long, IdleTimeout: long, WriteTimeout: long,
		ErrorLog:    slog.NewLogLogger(slog.NewTextHandler(f.logged, nil), slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return t.Context() },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx },
		ConnState: func(_ net.Conn, s http.ConnState) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.states = append(f.states, s)
		},
	}
	for _, do := range change {
		do(f.Server)
	}
	if l = (listener{l}); directly {
		f.Front = direct.Before(l, f.Server, takes)
		l = f.Front
	}
	go func() { f.served <- f.Serve(l) }()
	t.Cleanup(func() {
		_ = f.Server.Close()
		if directly {
			f.Abort()
			if err := f.Front.Shutdown(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
	return f
}

// faultyPath is that of a request whose reading panics.
const faultyPath = "/fault"

// takes lets all requests be answered directly but those of one path.
func takes(_, path string) bool {
	if path == faultyPath {
		panic("a fault")
	}
	return path != "/net/http"
}

// client is one connection.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (f *fixture) dial(t *testing.T) *client {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// answer reads an answer: what of it counts, or the error.
func (c *client) answer(t *testing.T, method string) string {
	t.Helper()
	r, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close() //nolint:errcheck // it is read to its end
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Date") == "" {
		t.Error("the answer has no date")
	}
	r.Header.Del("Date")
	return fmt.Sprintf("%s|%v|%d|%t|%s|%v", r.Status, r.Header, r.ContentLength, r.Close, body, err)
}

// by tells who has read a request.
func by(r *http.Request) string {
	if r.Context().Value(http.ServerContextKey) != nil {
		return "net/http"
	}
	return "direct"
}

func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

func posted(body string) string {
	return fmt.Sprintf("POST /a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestAnswersAreThoseOfNetHTTP compares answers with those of net/http to the same handler.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"/nothing": func(http.ResponseWriter, *http.Request) {},
		"/text":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"/pieces": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "hel")
			_, _ = io.WriteString(w, "lo")
		},
		"/fields": func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h["A"], h["Content-Type"] = []string{"b", "c\r\nD: e"}, []string{"application/json"}
			_, _ = io.WriteString(w, "{}")
		},
		"/empty": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"/known": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"a"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"/provisional": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"/end":         func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") },
		"/long": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			w.WriteHeader(http.StatusOK)
			for range 10 {
				_, _ = io.WriteString(w, strings.Repeat("x", 10000))
			}
		},
		"/chunks": func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				_, _ = io.WriteString(w, strings.Repeat("<p>x</p>", 1000))
			}
		},
		"/short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "hello")
		},
		"/nobody": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Error(err)
			}
		},
		"/too/much": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			if _, err := io.WriteString(w, "xyz"); !errors.Is(err, http.ErrContentLength) {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "ab")
		},
		"/abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"/panic": func(http.ResponseWriter, *http.Request) { panic("oh") },
		"/echo":  func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
	}
	front := start(t, true, func(w http.ResponseWriter, r *http.Request) {
		if by(r) != "direct" {
			t.Errorf("%s went to net/http", r.URL.Path)
		}
		handlers[r.URL.Path](w, r)
	})
	plain := start(t, false, func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Path](w, r) })
	for path := range handlers {
		t.Run(path[1:], func(t *testing.T) {
			got, want := front.dial(t), plain.dial(t)
			for range 2 { // what comes after an answer, too
				for _, c := range []*client{got, want} {
					_, _ = io.WriteString(c, get(path)) // it may have ended
				}
				if got, want := got.answer(t, "GET"),
					want.answer(t, "GET"); got != want && (!ended(got) || !ended(want)) {
					t.Errorf("got\n%.300s\nnet/http answers\n%.300s", got, want)
				}
			}
		})
	}
	if text := front.logged.String(); !strings.Contains(text, "panic serving 127.0.0.1:") ||
		!strings.Contains(text, "oh") || strings.Contains(text, "abort") {
		t.Errorf("logged was %q", text)
	}
}

// ended reports whether there was no answer, since the connection had ended.
func ended(answer string) bool {
	return answer == io.ErrUnexpectedEOF.Error() || answer == io.EOF.Error() ||
		strings.Contains(answer, "reset by peer")
}

// TestWhoAnswers checks which requests go to net/http, with all that was read of them, and that what follows them does.
func TestWhoAnswers(t *testing.T) {
	f := start(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprint(w, by(r), " ", string(body))
	})
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name string
		send []string
		want []string
	}{
		{"whole", []string{posted("a"), get("/"), posted("b")}, []string{"direct a", "direct ", "direct b"}},
		{
			"not one of those",
			[]string{posted("a"), get("/net/http"), posted("b")},
			[]string{"direct a", "net/http ", "net/http b"},
		},
		{"unusual", []string{get("/?a"), get("/")}, []string{"net/http ", "net/http "}},
		{"chunked", []string{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"}, []string{"net/http a"}},
		{"long", []string{posted(long)}, []string{"net/http " + long}},
		{
			"an end of a line behind a body",
			[]string{posted("a"), "\r\n" + posted("b"), "\r\n" + get("/"), get("/")},
			[]string{"direct a", "direct b", "direct ", "direct "},
		},
		{"other ends of lines", []string{"GET / HTTP/1.1\nHost: x\n\n"}, []string{"net/http "}},
		{"two at once", []string{posted("a") + posted("b"), ""}, []string{"net/http a", "net/http b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := f.dial(t)
			for i, text := range c.send {
				conn.send(t, text)
				if got := conn.answer(t, "POST"); !strings.HasSuffix(got, "|"+c.want[i]+"|<nil>") {
					t.Errorf("request %d: got %.300q, want %.100q", i, got, c.want[i])
				}
			}
		})
	}
}

// TestPiecesAreAnswered sends a request in pieces: of few it is answered directly, of many by net/http.
func TestPiecesAreAnswered(t *testing.T) {
	f := start(t, true, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	for _, size := range []int{40, 1} {
		c, text := f.dial(t), posted("hello")
		for text != "" {
			n := min(size, len(text))
			c.send(t, text[:n])
			text = text[n:]
		}
		if got := c.answer(t, "POST"); !strings.HasSuffix(got, "|hello|<nil>") {
			t.Errorf("in pieces of %d: %s", size, got)
		}
	}
}

// TestStates checks that what observes connections sees those that are answered directly.
func TestStates(t *testing.T) {
	f := start(t, true, func(http.ResponseWriter, *http.Request) {})
	c := f.dial(t)
	for range 2 {
		c.send(t, get("/"))
		c.answer(t, "GET")
	}
	c.send(t, get("/net/http"))
	c.answer(t, "GET")
	f.mu.Lock()
	defer f.mu.Unlock()
	want := []http.ConnState{
		http.StateActive, http.StateIdle, http.StateActive, http.StateIdle, http.StateNew, http.StateActive,
	}
	if len(f.states) < len(want) || !reflect.DeepEqual(f.states[:len(want)], want) {
		t.Errorf("got %v, want %v", f.states, want)
	}
}

// TestTheContextEndsWithTheConnection checks that what a handler has left behind is told that nobody waits for it, at
// the latest when its client has gone.
func TestTheContextEndsWithTheConnection(t *testing.T) {
	contexts := make(chan context.Context, 2)
	f := start(t, true, func(_ http.ResponseWriter, r *http.Request) { contexts <- r.Context() })
	c := f.dial(t)
	for range 2 {
		c.send(t, get("/"))
		c.answer(t, "GET")
	}
	first, second := <-contexts, <-contexts
	if first.Err() != nil || second.Err() != nil {
		t.Error("the connection is open, and its context has ended")
	}
	_ = c.Close()
	<-first.Done()
	<-second.Done()
}

// TestClientsHaveLimitedTime checks that connections end whose clients ask nothing, go on with nothing, or read
// nothing.
func TestClientsHaveLimitedTime(t *testing.T) {
	const short = 10 * time.Millisecond
	end := func(t *testing.T, c *client) {
		t.Helper()
		if _, err := io.Copy(io.Discard, c.in); err != nil {
			t.Log(err) // reset
		}
	}
	quiet := func(http.ResponseWriter, *http.Request) {}
	t.Run("the first request", func(t *testing.T) {
		end(t, start(t, true, quiet, func(s *http.Server) { s.ReadHeaderTimeout = short }).dial(t))
	})
	t.Run("half a request", func(t *testing.T) {
		f := start(t, true, quiet, func(s *http.Server) { s.ReadHeaderTimeout = short })
		c := f.dial(t)
		_, _ = io.WriteString(c, "GET /") // it may have ended
		end(t, c)
	})
	t.Run("half of the next request", func(t *testing.T) {
		f := start(t, true, quiet, func(s *http.Server) { s.ReadHeaderTimeout = short })
		c := f.dial(t)
		_, _ = io.WriteString(c, get("/")) // it may have ended
		c.answer(t, "GET")
		_, _ = io.WriteString(c, "GET /") // the same
		end(t, c)
	})
	t.Run("the next request", func(t *testing.T) {
		f := start(t, true, quiet, func(s *http.Server) { s.IdleTimeout = short })
		c := f.dial(t)
		c.send(t, get("/"))
		c.answer(t, "GET")
		end(t, c)
	})
	t.Run("an answer", func(t *testing.T) {
		failed := make(chan error)
		f := start(t, true, func(w http.ResponseWriter, _ *http.Request) {
			const size = 1 << 30 // more than sockets hold
			w.Header().Set("Content-Length", fmt.Sprint(size))
			piece := make([]byte, 1<<20)
			for range size / len(piece) {
				if _, err := w.Write(piece); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}, func(s *http.Server) { s.WriteTimeout = short })
		f.dial(t).send(t, get("/"))
		if err := <-failed; err == nil {
			t.Error("all was written, and nobody has read it")
		}
	})
}

// TestShutdown stops a server: connections without a request end at once, a request is answered and ends its
// connection, and nothing else is accepted.
func TestShutdown(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	f := start(t, true, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-goOn
	})
	idle, busy := f.dial(t), f.dial(t)
	busy.send(t, get("/"))
	<-began
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.Front.Shutdown(given); !errors.Is(err, context.Canceled) {
		t.Errorf("it does not wait for the answer: %v", err)
	}
	if _, err := idle.in.ReadByte(); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("an idle connection: %v", err)
	}
	close(goOn)
	if got := busy.answer(t, "GET"); !strings.HasPrefix(got, "200 OK|") || !strings.Contains(got, "|true|") {
		t.Errorf("got %s, want one that ends the connection", got)
	}
	if err := f.Front.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-f.served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if _, err := f.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it accepts connections: %v", err)
	}
}

// TestAbort closes a connection under its request.
func TestAbort(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	f := start(t, true, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-goOn
	})
	c := f.dial(t)
	c.send(t, get("/"))
	<-began
	f.Abort()
	if _, err := c.in.ReadByte(); err == nil {
		t.Error("there is an answer")
	}
	close(goOn)
}
