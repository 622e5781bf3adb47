package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/edge/httpapi"
)

// counted is a server on a loopback address whose connections are bounded.
type counted struct {
	*connections
	address string
	limit   atomic.Int64
	// alone makes the connections of this machine count together, as those of one address.
	alone atomic.Bool
}

func newCounted(t *testing.T, limit int, handle http.HandlerFunc) *counted {
	t.Helper()
	c := &counted{connections: newConnections(slog.New(slog.DiscardHandler), nil)}
	c.limit.Store(int64(limit))
	c.connections.limit = func() int { return int(c.limit.Load()) }
	c.shared = func(netip.Addr) bool { return !c.alone.Load() }
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	h := &http.Server{
		Handler: handle, ConnState: c.observe, ReadHeaderTimeout: headerTime, MaxHeaderBytes: httpapi.LongestHeader,
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Serve(c.wrap(l)) }()
	t.Cleanup(func() { _ = h.Close(); <-done })
	return c
}

// client is one connection to the server.
type client struct {
	net.Conn
	in *bufio.Reader
}

func (c *counted) dial(t *testing.T) *client {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

// get sends a request and returns the status of the answer, 0 if the connection is closed.
func (c *client) get() int {
	_, _ = fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return c.status()
}

func (c *client) status() int {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func answerOK(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// TestUnusedConnectionsMakeRoom opens many connections that ask for nothing, beside one that is used.
func TestUnusedConnectionsMakeRoom(t *testing.T) {
	c := newCounted(t, 40, answerOK)
	used := c.dial(t)
	if got := used.get(); got != http.StatusNoContent {
		t.Fatal(got)
	}
	for range 100 {
		c.dial(t)
	}
	last := c.dial(t)
	if got := last.get(); got != http.StatusNoContent {
		t.Errorf("a new client is answered %d", got)
	}
	if got := used.get(); got != http.StatusNoContent {
		t.Errorf("a client that has asked before is answered %d", got)
	}
	if n := c.count(); n > 20 {
		t.Errorf("%d connections are open, of 40 descriptors 20 may be connections", n)
	}
}

// TestNobodyWaitsForHalfARequest ends the connections whose first request has not come, or only a part of it, while
// others are used.
func TestNobodyWaitsForHalfARequest(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	c := newCounted(t, 40, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-proceed
		}
		answerOK(w, r)
	})
	silent, half := c.dial(t), c.dial(t)
	_, _ = fmt.Fprint(half, "POST / HTTP/1.1\r\nHost: x\r\nContent-Le")
	used, slow := c.dial(t), c.dial(t)
	_, _ = fmt.Fprint(slow, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun // connections are accepted one after the other
	if got := used.get(); got != http.StatusNoContent {
		t.Fatal(got)
	}

	c.end()
	if n := c.count(); n != 2 {
		t.Errorf("%d connections are open, want those two that had a request", n)
	}
	for _, closed := range []*client{silent, half, c.dial(t)} {
		if got := closed.status(); got != 0 {
			t.Errorf("a connection without a request is answered %d", got)
		}
	}
	close(proceed)
	for _, open := range []int{slow.status(), used.get()} { // the second is net/http's to close
		if open != http.StatusNoContent {
			t.Errorf("a connection that had a request is answered %d", open)
		}
	}
}

// TestTheLimitOfDescriptorsIsReadAgain lowers it while connections are open.
func TestTheLimitOfDescriptorsIsReadAgain(t *testing.T) {
	c := newCounted(t, 200, answerOK)
	for range 60 {
		if got := c.dial(t).get(); got != http.StatusNoContent {
			t.Fatal(got)
		}
	}
	c.limit.Store(40)
	if got := c.dial(t).get(); got != http.StatusNoContent {
		t.Errorf("a new client is answered %d", got)
	}
	if n := c.count(); n > 20 {
		t.Errorf("%d connections are open", n)
	}
}

// TestConnectionsInUseAreNotClosed fills the server with requests that are under way.
func TestConnectionsInUseAreNotClosed(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	c := newCounted(t, 8, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-end
		w.WriteHeader(http.StatusNoContent)
	})
	var used []*client
	for range 4 {
		one := c.dial(t)
		_, _ = fmt.Fprint(one, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-arrived
		used = append(used, one)
	}
	if got := c.dial(t).get(); got != 0 {
		t.Errorf("a client without room is answered %d", got)
	}
	close(end)
	for _, one := range used {
		if got := one.status(); got != http.StatusNoContent {
			t.Errorf("a request that was under way is answered %d", got)
		}
	}
	_, _ = fmt.Fprint(c.dial(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived // there is room again
}

// TestEndIdle ends the connections that nobody uses, and leaves those on which a request is under way.
func TestEndIdle(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	c := newCounted(t, 100, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			arrived <- struct{}{}
			<-end
		}
		w.WriteHeader(http.StatusNoContent)
	})
	long, idle := c.dial(t), c.dial(t)
	_, _ = fmt.Fprint(long, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	if got := idle.get(); got != http.StatusNoContent {
		t.Fatalf("a request is answered %d", got)
	}
	for c.idling() == 0 { // the server notes that after the answer
		runtime.Gosched()
	}
	c.endIdle()
	if got := idle.get(); got != 0 {
		t.Errorf("a connection that nobody used goes on: %d", got)
	}
	close(end)
	if got := long.status(); got != http.StatusNoContent {
		t.Errorf("a request that was under way is answered %d", got)
	}
}

// idling returns how many connections nobody uses.
func (c *counted) idling() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn.idle.Load() > 0 {
			n++
		}
	}
	return n
}

// TestOneAddressHasAShare counts loopback as if it were one client.
func TestOneAddressHasAShare(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	c := newCounted(t, 16, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-end
		w.WriteHeader(http.StatusNoContent)
	})
	defer close(end)
	c.alone.Store(true)
	for range 4 {
		_, _ = fmt.Fprint(c.dial(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-arrived
	}
	if got := c.dial(t).get(); got != 0 {
		t.Errorf("the fifth connection of an address that may have four is answered %d", got)
	}
	c.alone.Store(false)
	_, _ = fmt.Fprint(c.dial(t), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived // there is room for others
}

// TestLongHeadersAreCountedTogether holds one long header: another one for which there is no room ends its connection,
// short ones are answered, and what was held is given back with the answer.
func TestLongHeadersAreCountedTogether(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	c := newCounted(t, 200, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			held <- struct{}{}
			<-release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	c.mostLong.Store(100 << 10)
	long := "GET /?" + strings.Repeat("1", 130<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n"
	first := c.dial(t)
	for range 3 {
		go func() { _, _ = io.WriteString(first, long) }()
		<-held
		other := c.dial(t)
		go func() { _, _ = io.WriteString(other, long) }() // it is not read to its end
		if got := other.status(); got != 0 {
			t.Errorf("a second long header is answered %d", got)
		}
		if got := c.dial(t).get(); got != http.StatusNoContent {
			t.Errorf("a short one is answered %d", got)
		}
		release <- struct{}{}
		if got := first.status(); got != http.StatusNoContent {
			t.Errorf("the first one is answered %d", got)
		}
	}
}

// TestWhatIsPutBackIsReadAgain checks that bytes that were put back come first, count once among those of long headers,
// and are not kept.
func TestWhatIsPutBackIsReadAgain(t *testing.T) {
	c := newConnections(slog.New(slog.DiscardHandler), nil)
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was only accepted from
	var d net.Dialer
	out, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // it was only written to
	if _, err := io.WriteString(out, "some text"); err != nil {
		t.Fatal(err)
	}
	in, err := c.wrap(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	n, ok := in.(*connection)
	if !ok {
		t.Fatalf("a connection is %T", in)
	}
	read := make([]byte, 4)
	if _, err := io.ReadFull(n, read); err != nil {
		t.Fatal(err)
	}
	n.Unread(append([]byte(nil), read...), 0)
	all := make([]byte, len("some text"))
	if _, err := io.ReadFull(n, all); err != nil || string(all) != "some text" {
		t.Errorf("read was %q: %v", all, err)
	}
	if got := n.header.Load(); got != int64(len(all)) {
		t.Errorf("%d bytes are counted", got)
	}
	if n.unread != nil {
		t.Error("what was read again is kept in memory")
	}
}

// TestARequestThatWasBegunHasLessTime takes a request over that has come in part a while ago: until it is there, who
// reads it waits less long than he says.
func TestARequestThatWasBegunHasLessTime(t *testing.T) {
	c := newCounted(t, 1000, answerOK)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was only accepted from
	out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // it was only written to
	in, err := c.wrap(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	n, ok := in.(*connection)
	if !ok {
		t.Fatalf("a connection is %T", in)
	}

	n.Unread(nil, time.Hour)
	if err := n.SetReadDeadline(clock.System{}.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the time that is left was not over: %v", err)
	}

	c.observe(n, http.StateActive)
	if err := n.SetReadDeadline(clock.System{}.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Read(make([]byte, 1)); err != nil {
		t.Errorf("a request that is there has less time: %v", err)
	}
}

// TestAServerThatStopsEndsHalfARequest shuts a server of the program's down, and waits for nothing: net/http would
// close such a connection as well, but only some seconds later, and not any longer where nobody waits for it.
func TestAServerThatStopsEndsHalfARequest(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	s := &Server{options: Options{Logger: logger}, connections: newConnections(logger, nil)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := s.httpServer(t.Context(), l, http.HandlerFunc(answerOK))
	done := make(chan struct{})
	go func() { defer close(done); _ = h.Serve(s.connections.wrap(l)) }()
	t.Cleanup(func() { _ = h.Close(); <-done })
	c := &counted{connections: s.connections, address: l.Addr().String()}
	half, used := c.dial(t), c.dial(t)
	_, _ = fmt.Fprint(half, "POST / HTTP/1.1\r\nHost: x\r\nContent-Le")
	if got := used.get(); got != http.StatusNoContent { // connections are accepted one after the other
		t.Fatal(got)
	}

	ended, end := context.WithCancel(t.Context())
	end()
	_ = h.Shutdown(ended)
	if err := half.SetReadDeadline(clock.System{}.Now().Add(5 * time.Minute)); err != nil {
		// it ends what would never end
		t.Fatal(err)
	}
	if _, err := half.in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("half a request holds its connection: %v", err)
	}
}
