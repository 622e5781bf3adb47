package direct_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/base/clock"
	"j17/internal/edge/direct"
)

// single is a listener for one connection.
type single struct {
	net.Listener
	next   chan net.Conn
	closed chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.next:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *single) Close() error {
	close(l.closed)
	return nil
}

// TestSlowReadersHaveLimitedTime reads a piece of a long answer now and then: the time for the answer is that of all
// its pieces together. The next request, of a client that reads on, has its own.
func TestSlowReadersHaveLimitedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, piece, pieces = time.Minute, 32 << 10, 100
		var clk clock.System
		pass := func(d time.Duration) { _ = clk.Wait(t.Context(), clk.Now().Add(d)) }
		took := make(chan time.Duration, 2)
		server := &http.Server{
			ReadHeaderTimeout: limit, WriteTimeout: limit, IdleTimeout: limit,
			BaseContext: func(net.Listener) context.Context { return t.Context() },
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx },
			ConnState:   func(net.Conn, http.ConnState) {},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				began := clk.Now()
				for range pieces {
					if _, err := w.Write([]byte(strings.Repeat("x", piece))); err != nil {
						break
					}
				}
				took <- clk.Now().Sub(began)
			}),
		}
		l := &single{next: make(chan net.Conn, 1), closed: make(chan struct{})}
		front := direct.Before(l, server, func(string, string) bool { return true })
		here, there := net.Pipe()
		l.next <- &conn{Conn: there}
		request := func() {
			t.Helper()
			if _, err := here.Write([]byte(get("/"))); err != nil {
				t.Fatal(err)
			}
		}

		// All of it at once, after most of the time of the connection so far.
		pass(limit - time.Second)
		request()
		c := &client{here, nil}
		c.read(t, pieces*piece)
		if all := <-took; all > 0 {
			t.Errorf("an answer that is read at once takes %v", all)
		}

		// A piece of it in each third of the limit.
		synctest.Wait()
		pass(limit - time.Second)
		request()
		b := make([]byte, piece/2)
		for {
			if _, err := here.Read(b); err != nil {
				break
			}
			pass(limit / 3)
		}
		if all := <-took; all < limit || all > limit+limit/8 {
			t.Errorf("an answer that is read slowly has %v", all)
		}
		if err := front.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestARequestHasItsTimeFromItsFirstByte sends requests that never come whole, the second ones of their connections:
// net/http, which gets them sooner or later, gives them no more time than is left.
func TestARequestHasItsTimeFromItsFirstByte(t *testing.T) {
	t.Parallel()
	const head, whole = 10 * time.Second, time.Minute
	many := strings.Repeat("a", 100)
	for name, tc := range map[string]struct {
		text   string
		pieces int // after the first byte, as many seconds apart
		want   time.Duration
	}{
		"half a head":              {"GET / HTTP/1.1\r\nHost: x\r\nA: ", 0, head},
		"bytes of a head":          {"GET / HTTP/1.1\r\nHost: x\r\nA: " + many, 9, head},
		"half a head of net/http":  {"GET /?a=b HTTP/1.1\r\nHost: x\r\nA", 0, head},
		"no body":                  {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", 0, whole},
		"bytes of a body":          {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + many, 59, whole},
		"no body after a slow one": {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", 3, whole},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var clk clock.System
				server := &http.Server{
					ReadHeaderTimeout: head, ReadTimeout: whole, WriteTimeout: time.Hour, IdleTimeout: time.Hour,
					BaseContext: func(net.Listener) context.Context { return t.Context() },
					ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx },
					ConnState: func(c net.Conn, s http.ConnState) {
						if n, ok := c.(*conn); ok && s == http.StateActive {
							n.late = 0
						}
					},
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if _, err := io.ReadAll(r.Body); err != nil {
							w.WriteHeader(http.StatusBadRequest)
						}
					}),
				}
				l := &single{next: make(chan net.Conn, 1), closed: make(chan struct{})}
				front := direct.Before(l, server, func(string, string) bool { return true })
				served := make(chan error, 1)
				go func() { served <- server.Serve(front) }()
				here, there := net.Pipe()
				l.next <- &conn{Conn: there}
				c := &client{here, bufio.NewReader(here)}
				c.send(t, get("/"))
				if got := c.answer(t, "GET"); !strings.HasPrefix(got, "200 OK|") {
					t.Fatal(got)
				}

				// All but its last pieces at once, and one of these each second.
				began := clk.Now()
				c.send(t, tc.text[:len(tc.text)-tc.pieces])
				go func() {
					for i := range tc.pieces {
						_ = clk.Wait(t.Context(), began.Add(time.Duration(i+1)*time.Second))
						_, _ = io.WriteString(here, tc.text[len(tc.text)-tc.pieces+i:][:1]) // it may have ended
					}
				}()
				_, _ = io.Copy(io.Discard, c.in) // an answer or none
				if took := clk.Now().Sub(began); took.Round(time.Second) != tc.want {
					t.Errorf("the connection ended after %v, want %v", took, tc.want)
				}
				_ = server.Close()
				_ = front.Shutdown(t.Context())
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// TestAnEndOfALineByItself comes behind the body of a POST, as from some clients: it is no request, and no part of one
// that has to come whole soon.
func TestAnEndOfALineByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		var clk clock.System
		server := &http.Server{
			ReadHeaderTimeout: time.Second, WriteTimeout: idle, IdleTimeout: idle,
			BaseContext: func(net.Listener) context.Context { return t.Context() },
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx },
			ConnState:   func(net.Conn, http.ConnState) {},
			Handler:     http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		}
		l := &single{next: make(chan net.Conn, 1), closed: make(chan struct{})}
		front := direct.Before(l, server, func(string, string) bool { return true })
		here, there := net.Pipe()
		l.next <- &conn{Conn: there}
		c := &client{here, bufio.NewReader(here)}
		c.send(t, posted("a"))
		if got := c.answer(t, "POST"); !strings.HasPrefix(got, "200 OK|") {
			t.Error(got)
		}
		c.send(t, "\r\n")
		_ = clk.Wait(t.Context(), clk.Now().Add(idle/2))
		c.send(t, get("/"))
		if got := c.answer(t, "GET"); !strings.HasPrefix(got, "200 OK|") {
			t.Error(got)
		}
		if err := front.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// read reads at least so many bytes, and the end of the answer.
func (c *client) read(t *testing.T, n int) {
	t.Helper()
	b := make([]byte, 64<<10)
	var last string
	for n > 0 || !strings.HasSuffix(last, "\r\n0\r\n\r\n") {
		got, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		n -= got
		last += string(b[:got])
		last = last[max(0, len(last)-16):]
	}
}

// halting is a connection that does something when its first bytes are there, before who reads them hears of it.
type halting struct {
	*conn
	then func()
}

// Read implements net.Conn.
func (h *halting) Read(b []byte) (int, error) {
	n, err := h.conn.Read(b)
	if n > 0 {
		h.then()
	}
	return n, err
}

// halted sends the first part of a request to a server that ends right when it comes, or may be ended later.
func halted(t *testing.T, server *http.Server, when, part string) (front *direct.Front, here net.Conn) {
	t.Helper()
	server.ReadHeaderTimeout, server.IdleTimeout, server.WriteTimeout = time.Minute, time.Hour, time.Minute
	server.BaseContext = func(net.Listener) context.Context { return t.Context() }
	server.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return ctx }
	server.ConnState = func(net.Conn, http.ConnState) {}
	l := &single{next: make(chan net.Conn, 1), closed: make(chan struct{})}
	front = direct.Before(l, server, func(string, string) bool { return true })
	here, there := net.Pipe()
	l.next <- &halting{&conn{Conn: there}, func() {
		if when == "at the same moment" {
			_ = front.Close()
		}
	}}
	if _, err := here.Write([]byte(part)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return front, here
}

// TestHalfARequestIsNotWaitedFor ends a server right when the first half of a request comes, or a while later.
func TestHalfARequestIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"at the same moment", "later"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var clk clock.System
				front, here := halted(t, &http.Server{}, when, get("/")[:10])
				began := clk.Now()
				if err := front.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if waited := clk.Now().Sub(began); waited > 0 {
					t.Errorf("it waited for %v", waited)
				}
				if _, err := here.Read(make([]byte, 1)); err == nil {
					t.Error("half a request was answered")
				}
			})
		})
	}
}

// TestABodyIsWaitedForAtTheEnd ends a server when a request has come but for a part of its body: whoever answers it has
// the rest when it comes, and decides how long to wait for it. Its connection ends with the answer.
func TestABodyIsWaitedForAtTheEnd(t *testing.T) {
	t.Parallel()
	const patience = 5 * time.Second
	const rest = "56789"
	text := strings.TrimSuffix(posted("01234"+rest), rest)
	for _, when := range []string{"at the same moment", "later"} {
		for then, want := range map[string]string{
			"it comes": "0123456789 <nil>", "nothing comes": "01234 i/o timeout",
			"its client goes": "01234 unexpected EOF",
		} {
			t.Run(when+", "+then, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var clk clock.System
					read := make(chan string, 1)
					front, here := halted(t,
						&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							_ = http.NewResponseController(w).SetReadDeadline(clk.Now().Add(patience))
							body, err := io.ReadAll(r.Body)
							read <- fmt.Sprintf("%s %v", body, err)
							if r.ContentLength != int64(len("01234"+rest)) {
								t.Errorf("the length is %d", r.ContentLength)
							}
						})}, when, text)
					_ = front.Close()

					// What becomes of the body, and of the answer where somebody is there.
					switch then {
					case "it comes":
						if _, err := here.Write([]byte(rest)); err != nil {
							t.Fatal(err)
						}
					case "its client goes":
						_ = here.Close()
					}
					if then != "its client goes" {
						c := &client{here, bufio.NewReader(here)}
						if got := c.answer(t, http.MethodPost); !strings.HasPrefix(got, "200 OK|") ||
							!strings.Contains(got, "|true|") {
							t.Errorf("got %s, want one that ends the connection", got)
						}
					}
					if got := <-read; !strings.HasPrefix(got, strings.Fields(want)[0]+" ") ||
						!strings.HasSuffix(got, strings.SplitN(want, " ", 2)[1]) {
						t.Errorf("the handler has read %s, want %s", got, want)
					}
					if err := front.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// told is a connection that does something when it is about to be told that nobody waits for a request any more.
type told struct {
	*conn
	then func()
}

// SetReadDeadline implements net.Conn.
func (c *told) SetReadDeadline(at time.Time) error {
	if !at.IsZero() && !at.After(clock.System{}.Now()) {
		c.then()
	}
	return c.conn.SetReadDeadline(at)
}

// TestABodyIsWaitedForWhileTheServerEnds lets a request without the rest of its body come when the server has begun to
// end, and its connection does not know it yet: what tells it does not end the wait for the body.
func TestABodyIsWaitedForWhileTheServerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		text := posted("0123456789")
		read := make(chan string, 1)
		server := &http.Server{
			ReadHeaderTimeout: time.Minute, IdleTimeout: time.Hour, WriteTimeout: time.Minute,
			BaseContext: func(net.Listener) context.Context { return t.Context() },
			ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return ctx },
			ConnState:   func(net.Conn, http.ConnState) {},
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				read <- fmt.Sprintf("%s %v", body, err)
			}),
		}
		l := &single{next: make(chan net.Conn, 1), closed: make(chan struct{})}
		front := direct.Before(l, server, func(string, string) bool { return true })
		l.next <- &told{&conn{Conn: there}, func() {
			if _, err := here.Write([]byte(text[:len(text)-5])); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}}
		synctest.Wait()
		_ = front.Close()
		synctest.Wait()
		if _, err := here.Write([]byte(text[len(text)-5:])); err != nil {
			t.Error(err)
		}
		if got := <-read; got != "0123456789 <nil>" {
			t.Errorf("the handler has read %s", got)
		}
		c := &client{here, bufio.NewReader(here)}
		if got := c.answer(t, http.MethodPost); !strings.HasPrefix(got, "200 OK|") {
			t.Errorf("got %s", got)
		}
		if err := front.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
