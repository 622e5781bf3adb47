package devserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"j17/internal/base/clock"
)

// Client returns a client that takes less processor time than the usual one, so that less of what a benchmark measures
// is its own load: each request is written and read by the goroutine that makes it, on one of the connections that are
// kept. Requests are over when their context ends. It is for servers on loopback that keep their connections for longer
// than keptFor; an answer is to be read and closed before the next request.
func Client(c clock.Clock) *http.Client {
	return &http.Client{Transport: &transport{clock: c, idle: map[string][]*connection{}}}
}

// keptFor is for how long a connection is kept that nobody uses. Servers close such connections, which would fail a
// request.
const keptFor = 10 * time.Second

type transport struct {
	clock clock.Clock

	mu sync.Mutex
	// idle has the connections that are kept, by the address they lead to.
	idle map[string][]*connection
}

type connection struct {
	net.Conn

	in  *bufio.Reader
	out *bufio.Writer
	// since is when it was used last.
	since time.Time
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.connection(r.Context(), r.URL.Host)
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(r.Context(), func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = r.Write(c.out)
	if err == nil {
		err = c.out.Flush()
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(c.in, r)
	}
	if err != nil {
		cut()
		_ = c.Close()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, done: func(read bool) error {
		if !cut() || !read || resp.Close {
			return c.Close()
		}
		t.keep(c, r.URL.Host)
		return nil
	}}
	return resp, nil
}

func (t *transport) connection(ctx context.Context, host string) (*connection, error) {
	if c := t.kept(host); c != nil {
		return c, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}, nil
}

// kept returns the connection that was used last, nil where there is none. Those that were not used for long are
// closed.
func (t *transport) kept(host string) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.idle[host]
	if len(kept) == 0 {
		return nil
	}
	last := kept[len(kept)-1]
	if t.clock.Now().Sub(last.since) < keptFor {
		t.idle[host] = kept[:len(kept)-1]
		return last
	}
	for _, c := range kept {
		_ = c.Close() // the others were not used for longer
	}
	delete(t.idle, host)
	return nil
}

func (t *transport) keep(c *connection, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.since = t.clock.Now()
	t.idle[host] = append(t.idle[host], c)
}

// body is what an answer holds. done is called when it is closed: with true if it was read to its end.
type body struct {
	io.ReadCloser

	done func(read bool) error
	read bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read = b.read || errors.Is(err, io.EOF)
	return n, err
}

func (b *body) Close() error { return b.done(b.read) }
