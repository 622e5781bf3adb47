// Package direct answers plain requests on their connections: those that arrived whole, with nothing unusual about
// them. A connection on which anything else arrives goes to net/http's server for the rest of its life, with everything
// that was read of it. Every question of HTTP is therefore decided by net/http, and this package handles only requests
// that raise none.
//
// The decisions behind it are in docs/internals/edge.md.
package direct

import (
	"context"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"j17/internal/base/clock"
	"j17/internal/base/panics"
)

// Conn is a connection that bytes read from it can be returned to.
type Conn interface {
	net.Conn
	// Unread makes Read return b before anything else. It keeps b. The request that begins with b has taken late so
	// far: until its server says that it is active, deadlines for reading are earlier by that than asked for.
	Unread(b []byte, late time.Duration)
}

const (
	// longest is how many bytes a request may have to be answered directly, and mostReads in how many pieces it may
	// come.
	longest   = 4 << 10
	mostReads = 4
	// slack is how much later than asked for an idle connection, or one whose client reads nothing, may end: moving a
	// deadline for each request costs as much as reading the request.
	slack = 16
)

// Front answers what it can of the connections of another listener, and hands out the others. The connections are to be
// of the type Conn; any others are handed out as they come.
type Front struct {
	net.Listener
	server *http.Server
	takes  func(method, path string) bool
	// connected is the context that those of all connections derive from.
	connected context.Context //nolint:containedctx // the life of the server, as in its BaseContext

	// handed are connections for net/http, failed what went wrong with accepting one.
	handed chan net.Conn
	failed chan error
	// ending is closed when no more requests are to be answered, halted once all waits for one have been ended.
	ending, halted chan struct{}

	mu   sync.Mutex
	open map[Conn]struct{}
	// work has one for each of those that are open.
	work sync.WaitGroup
}

// Before returns a listener for server.Serve, and begins to answer: with the server's own handler, time limits,
// contexts and states. takes reports whether a request, by its method and path, may be answered without net/http: then
// it goes unnoticed when its client leaves, its context ends with the connection and not with the answer, and the
// answer can be neither flushed nor hijacked.
func Before(l net.Listener, server *http.Server, takes func(method, path string) bool) *Front {
	f := &Front{
		Listener: l, server: server, takes: takes, connected: server.BaseContext(l),
		handed: make(chan net.Conn), failed: make(chan error), ending: make(chan struct{}), halted: make(chan struct{}),
		open: map[Conn]struct{}{},
	}
	go f.accept()
	return f
}

// Accept returns the next connection that net/http is to serve.
func (f *Front) Accept() (net.Conn, error) {
	select {
	case c := <-f.handed:
		return c, nil
	case err := <-f.failed:
		return nil, err
	case <-f.ending:
		return nil, net.ErrClosed
	}
}

// Close ends listening. Requests that are there are still answered; their connections end after them, and all others at
// once, half a request or not.
func (f *Front) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended() {
		return nil
	}
	close(f.ending)
	for c := range f.open {
		_ = c.SetReadDeadline(now()) // ends a wait for a request
	}
	close(f.halted)
	return f.Listener.Close()
}

// Shutdown closes the listener and waits until the last answer has been given, or until the context ends.
func (f *Front) Shutdown(ctx context.Context) error {
	err := f.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.work.Wait()
	}()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abort closes all connections, answered or not.
func (f *Front) Abort() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.open {
		_ = c.Close() // its reads and writes fail
	}
}

// accept takes connections until the listener is closed. An error is held until Accept is called: its caller knows how
// long to wait before the next try.
func (f *Front) accept() {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			select {
			case f.failed <- err:
				continue
			case <-f.ending:
				return
			}
		}
		n, ok := c.(Conn)
		switch {
		case !ok:
			f.handOn(c)
		case f.add(n):
			go f.serve(n)
		default:
			_ = n.Close() // the server ends
		}
	}
}

// handOn gives a connection to net/http.
func (f *Front) handOn(c net.Conn) {
	select {
	case f.handed <- c:
	case <-f.ending:
		_ = c.Close() // nobody will serve it
	}
}

func (f *Front) add(c Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended() {
		return false
	}
	f.open[c] = struct{}{}
	f.work.Add(1)
	return true
}

func (f *Front) remove(c Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
	f.work.Done()
}

func (f *Front) ended() bool {
	select {
	case <-f.ending:
		return true
	default:
		return false
	}
}

// connection is one on which requests are answered.
type connection struct {
	Conn
	front *Front
	// in is what comes, body what is gathered of an answer, out what goes.
	in, body, out []byte
	// like is what all requests of the connection have in common, including the context, which lives as long as the
	// connection.
	like *http.Request
	// readBy and writeBy are the deadlines that are set.
	readBy, writeBy time.Time
	// posted reports that the last request was a POST, and that nothing has arrived since.
	posted bool
	// begun is when the first part of the request under way came, zero where no more of it has been waited for.
	begun time.Time
}

// late returns how long ago the request under way began.
func (c *connection) late() time.Duration {
	if c.begun.IsZero() {
		return 0
	}
	return now().Sub(c.begun)
}

// serve answers requests until the connection ends, or goes to net/http.
func (f *Front) serve(n Conn) {
	ctx, cancel := context.WithCancel(f.connected)
	defer cancel()
	c := &connection{Conn: n, front: f, in: make([]byte, longest)}
	c.like = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: n.RemoteAddr().String(),
	}).WithContext(f.server.ConnContext(ctx, n))

	idle := f.server.ReadHeaderTimeout // of one that has never asked for anything
	for {
		var p *request
		var rest []byte
		c.begun = time.Time{}
		fault := panics.Caught(func() error {
			p, rest = c.receive(idle)
			return nil
		})
		if fault != nil {
			f.server.ErrorLog.Printf("reading a request of %s: %v", c.like.RemoteAddr, fault)
		}
		if p == nil {
			f.remove(n)
			if len(rest) == 0 {
				_ = n.Close() // its client has gone, or has nothing to ask
				return
			}
			// A connection that has ended says so when it is read.
			_, _ = n.SetReadDeadline(time.Time{}), n.SetWriteDeadline(time.Time{})
			n.Unread(rest, c.late())
			f.handOn(n)
			return
		}
		f.server.ConnState(n, http.StateActive)
		if !c.answer(p) || f.ended() {
			f.remove(n)
			_ = n.Close()
			return
		}
		f.server.ConnState(n, http.StateIdle)
		idle, c.posted = f.server.IdleTimeout, p.method == http.MethodPost
	}
}

// receive waits for a request. Where none arrives that is to be answered directly, it returns what was read instead.
// When the server ends, it no longer waits for the rest of a request whose head has arrived: the handler waits for the
// rest of the body.
func (c *connection) receive(idle time.Duration) (*request, []byte) {
	if at := now(); c.readBy.Sub(at) < idle || c.readBy.Sub(at) > idle+idle/slack {
		c.readBy = at.Add(idle + idle/slack)
		_ = c.SetReadDeadline(c.readBy) // as below
	}
	if c.front.ended() {
		return nil, nil
	}
	read := 0
	var begun *request
	for pieces := 1; ; pieces++ {
		n, err := c.Read(c.in[read:])
		if read += n; c.posted && n > 0 {
			c.posted = false
			read = copy(c.in, afterBody(c.in[:n]))
			if read == 0 && err == nil {
				pieces = 0 // the next request has not begun
				continue
			}
		}
		if err != nil {
			return c.last(begun), c.in[:read]
		}
		p, more := parse(c.in[:read])
		if begun = nil; p != nil && more && c.front.takes(p.method, p.path) {
			begun = p
		}
		switch {
		case p != nil && !more && c.front.takes(p.method, p.path):
			return p, nil
		case !more || pieces == mostReads || read == len(c.in):
			return c.last(begun), c.in[:read]
		case pieces == 1:
			c.begun = now()
			c.readBy = c.begun.Add(c.front.server.ReadHeaderTimeout)
			_ = c.SetReadDeadline(c.readBy) // a connection that has ended says so when it is read
			if c.front.ended() {
				return c.last(begun), nil // Close may have set a deadline before this one
			}
		}
	}
}

// last returns a request part of whose body is missing, to be answered all the same because the server ends; else nil.
func (c *connection) last(begun *request) *request {
	if begun == nil || !c.front.ended() {
		return nil
	}
	begun.rest.Conn, begun.rest.left = c.Conn, begun.missing
	begun.rest.first.Reset(begun.body.text)
	<-c.front.halted                   // else what ends a wait for requests would end that for the body
	_ = c.SetReadDeadline(time.Time{}) // its handler, or the end of the server, does not wait forever
	return begun
}

// afterBody returns what comes behind a body without the ends of lines that some clients send there, as net/http does.
func afterBody(b []byte) []byte {
	const most = 4
	n := 0
	for n < min(len(b), most) && (b[n] == '\r' || b[n] == '\n') {
		n++
	}
	return b[n:]
}

// answer has a request answered, and reports whether there may be another one.
func (c *connection) answer(p *request) (again bool) {
	c.writable()
	w := &p.answer
	*w = answer{conn: c, header: make(http.Header), buffered: c.body[:0], late: p.missing > 0}
	defer func() {
		if thrown := recover(); thrown != nil {
			again = false
			if thrown != http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
				c.front.server.ErrorLog.Printf("panic serving %s: %v\n%s", c.like.RemoteAddr, thrown, debug.Stack())
			}
		}
	}()
	c.front.server.Handler.ServeHTTP(w, p.http(c.like))
	return w.end()
}

// writable gives a request the server's write timeout to be answered: for the whole answer, however many pieces it
// comes in.
func (c *connection) writable() {
	limit := c.front.server.WriteTimeout
	if at := now(); c.writeBy.Sub(at) < limit {
		c.writeBy = at.Add(limit + limit/slack)
		_ = c.SetWriteDeadline(c.writeBy) // a connection that has ended says so when it is written to
	}
}

// now is the machine's time: sockets know no other one.
func now() time.Time { return clock.System{}.Now() }
