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
)

// Client returns a client that takes less processor time than the usual one, so that less of what a benchmark measures is its own load: each
// request is written and read by the goroutine that makes it, on one of the connections that are kept. Requests are over when their context ends.
// It is for servers on loopback that keep their connections; an answer is to be read and closed before the next request.
func Client() *http.Client {
	return &http.Client{Transport: &transport{idle: map[string][]*connection{}}}
}

type transport struct {
	mu sync.Mutex
	// idle has the connections that are kept, by the address they lead to.
	idle map[string][]*connection
}

type connection struct {
	net.Conn

	in  *bufio.Reader
	out *bufio.Writer
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
	t.mu.Lock()
	kept := t.idle[host]
	if n := len(kept); n > 0 {
		defer t.mu.Unlock()
		t.idle[host] = kept[:n-1]
		return kept[n-1], nil
	}
	t.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}, nil
}

func (t *transport) keep(c *connection, host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
