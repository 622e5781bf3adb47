package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"j17/internal/edge/httpapi"
	"j17/internal/plane/auth"
)

// connections bounds the open connections of a server, so that clients can never take the descriptors that the store
// needs. At the bound, connections that nobody uses make room for new ones; where all are in use, new ones are closed.
type connections struct {
	logger *slog.Logger
	// limit returns how many descriptors the process may have open. It is asked again for each connection: it can be
	// changed from outside while the process runs.
	limit func() int
	// shared reports whether many clients may come from an address, so that its connections are not counted together.
	shared func(netip.Addr) bool
	// uses counts how often a connection was left idle, for their order.
	uses atomic.Int64
	// long is how many bytes of long headers are held, up to mostLong.
	long, mostLong atomic.Int64

	mu   sync.Mutex
	open map[*connection]struct{}
	// ended is set when no further ones are let in.
	ended     bool
	byAddress map[netip.Addr]int // by what auth.Network returns
	// crowded is set when connections have been closed for want of room, until there is much room again.
	crowded bool
}

// connection is one of them. It is what a TCP connection is, to those who look.
type connection struct {
	*net.TCPConn
	all *connections
	// from is what the connection is counted by, the zero address if it is not.
	from netip.Addr
	// idle orders connections that nobody uses: those that never had a request have negative numbers, those that were
	// left idle since positive ones. 0 is a connection that is in use.
	idle atomic.Int64
	// header is how many bytes were read since it was left idle, before the next request was there: of its header. long
	// is how many of them count among those of all. Both are 0 where the connection is encrypted.
	header, long atomic.Int64
	encrypted    bool
	// unread is what was read and put back, late how long ago the request that begins with it has begun.
	unread []byte
	late   time.Duration
}

const (
	// shortHeader is how many bytes of a header are read without being counted, allLong how many all headers may have
	// beyond that together: clients that send long ones slowly cannot take more memory.
	shortHeader = httpapi.MaxHeader + 16<<10
	allLong     = 32 << 20

	// mostReserved is how many descriptors are kept for others than connections, which is mostly the store. Where only
	// few may be open at all, it is half of them.
	mostReserved = 1536
	// addressShare is the part of all connections that one address may have.
	addressShare = 2
	// evictShare is the part of all connections that is closed at once to make room.
	evictShare = 32
)

// newConnections returns connections of which those from trusted proxies and from this machine are not counted by
// address.
func newConnections(logger *slog.Logger, trusted []netip.Prefix) *connections {
	c := &connections{
		logger: logger, limit: descriptorLimit, open: map[*connection]struct{}{}, byAddress: map[netip.Addr]int{},
		shared: func(addr netip.Addr) bool {
			return addr.IsLoopback() ||
				slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
		},
	}
	c.mostLong.Store(allLong)
	return c
}

// descriptorLimit returns how many descriptors this process may have open.
func descriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024 // what systems allow at the least
	}
	return int(min(l.Cur, math.MaxInt32))
}

// most returns how many connections may be open.
func (c *connections) most() int {
	limit := c.limit()
	return max(limit-min(limit/2, mostReserved), 1)
}

// watched is one whose connections are counted.
type watched struct {
	net.Listener
	connections *connections
}

// wrap returns the listener with its connections counted.
func (c *connections) wrap(l net.Listener) net.Listener {
	return &watched{Listener: l, connections: c}
}

// Accept returns the next connection that there is room for.
func (l *watched) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.connections.shrink() // Others have taken descriptors. The caller waits a little and tries again.
		}
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return conn, nil
		}
		if counted := l.connections.admit(tcp); counted != nil {
			return counted, nil
		}
		_ = tcp.Close() // there is no room
	}
}

// admit counts a new connection, nil if there is no room for it.
func (c *connections) admit(tcp *net.TCPConn) *connection {
	n := &connection{TCPConn: tcp, all: c, from: c.network(tcp)}
	n.idle.Store(math.MinInt64 + c.uses.Add(1))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	most := c.most()
	if share := max(most/addressShare, 1); n.from.IsValid() && c.byAddress[n.from] >= share {
		if !c.evict(max(share/evictShare, 1), n.from) {
			return nil
		}
	}
	if over := len(c.open) + 1 - most; over > 0 {
		c.evict(over+most/evictShare, netip.Addr{})
		if len(c.open) >= most {
			return nil
		}
	}
	c.open[n] = struct{}{}
	if n.from.IsValid() {
		c.byAddress[n.from]++
	}
	return n
}

// network returns what the connections of an address are counted by; the zero address if they are not.
func (c *connections) network(tcp *net.TCPConn) netip.Addr {
	from, ok := tcp.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := from.AddrPort().Addr().Unmap()
	if c.shared(addr) {
		return netip.Addr{}
	}
	return auth.Network(addr)
}

// shrink closes some connections that nobody uses.
func (c *connections) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict(max(len(c.open)/evictShare, 1), netip.Addr{})
}

// evict closes up to n connections that nobody uses, of one address if it is valid, and reports whether there was one:
// first those that never had a request, then those that were left alone for longest. c.mu is held.
func (c *connections) evict(n int, from netip.Addr) bool {
	// Candidates, as they stand at this moment.
	type candidate struct {
		conn *connection
		idle int64
	}
	var idle []candidate
	for conn := range c.open {
		if at := conn.idle.Load(); at != 0 && (!from.IsValid() || conn.from == from) {
			idle = append(idle, candidate{conn, at})
		}
	}
	slices.SortFunc(idle, func(a, b candidate) int { return cmp.Compare(a.idle, b.idle) })

	// Close the first, but for one that has got a request since.
	closed := 0
	for _, victim := range idle {
		if closed == n {
			break
		}
		if victim.conn.idle.CompareAndSwap(victim.idle, 0) {
			c.forget(victim.conn)
			_ = victim.conn.TCPConn.Close()
			closed++
		}
	}
	if !c.crowded {
		c.crowded = true
		c.logger.Warn("connections are closed to keep descriptors for the store; allow the process more open files (LimitNOFILE)",
			slog.Int("connections", len(c.open)), slog.Int("descriptors", c.limit()))
	}
	return closed > 0
}

// endIdle closes the connections that nobody uses: the answers to their last requests are still in their memory.
func (c *connections) endIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if at := conn.idle.Load(); at > 0 && conn.idle.CompareAndSwap(at, 0) {
			c.forget(conn)
			_ = conn.TCPConn.Close()
		}
	}
}

// end closes the connections on which no request has come whole yet, and lets no further ones in: nothing was promised
// to their clients. net/http would wait for the first request of each; it does not wait for a later one.
func (c *connections) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for conn := range c.open {
		if at := conn.idle.Load(); at < 0 && conn.idle.CompareAndSwap(at, 0) {
			c.forget(conn)
			_ = conn.TCPConn.Close()
		}
	}
}

// forget no longer counts a connection. c.mu is held.
func (c *connections) forget(n *connection) {
	if _, counted := c.open[n]; !counted {
		return
	}
	delete(c.open, n)
	if n.from.IsValid() {
		if c.byAddress[n.from]--; c.byAddress[n.from] == 0 {
			delete(c.byAddress, n.from)
		}
	}
	c.crowded = c.crowded && len(c.open) > c.most()/2
}

// Read reads what the client sends. Where it is a header for which there is no room, the connection ends.
func (n *connection) Read(b []byte) (int, error) {
	if len(n.unread) > 0 {
		again := copy(b, n.unread)
		if n.unread = n.unread[again:]; len(n.unread) == 0 {
			n.unread = nil // the memory of it goes, the connection stays
		}
		return again, nil
	}
	clear(b) // of the request before, while there is no other one
	read, err := n.TCPConn.Read(b)
	if n.encrypted || read == 0 || n.idle.Load() == 0 {
		return read, err
	}
	if over := n.header.Add(int64(read)) - shortHeader; over > 0 {
		more := over - n.long.Load()
		if n.all.long.Add(more) > n.all.mostLong.Load() {
			n.all.long.Add(-more)
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: errLongHeaders} // what net/http answers nothing to
		}
		n.long.Add(more)
	}
	return read, err
}

// Unread makes Read return b before anything else, without counting it again. The request that begins with b has taken
// late of its time. It is not to be called while somebody reads.
func (n *connection) Unread(b []byte, late time.Duration) { n.unread, n.late = b, late }

// SetReadDeadline ends the wait for what the client sends. The head of a request, and all of it, have the time that the
// server gives them from the first byte on, whatever has read that.
func (n *connection) SetReadDeadline(at time.Time) error {
	if !at.IsZero() && n.idle.Load() != 0 {
		at = at.Add(-n.late)
	}
	return n.TCPConn.SetReadDeadline(at)
}

// errLongHeaders is why a connection ends whose header is long.
var errLongHeaders = errors.New("too many long headers are held")

// release gives back what the header of the last request has taken.
func (n *connection) release() {
	n.header.Store(0)
	n.all.long.Add(-n.long.Swap(0))
}

// Close closes the connection and no longer counts it.
func (n *connection) Close() error {
	n.all.mu.Lock()
	n.all.forget(n)
	n.all.mu.Unlock()
	n.release()
	return n.TCPConn.Close()
}

// observe follows what connections are used for. It is an http.Server's ConnState.
func (c *connections) observe(conn net.Conn, state http.ConnState) {
	inner, encrypted := conn.(*tls.Conn)
	if encrypted {
		conn = inner.NetConn()
	}
	n, ok := conn.(*connection)
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		n.encrypted = encrypted // nothing is read before
	case http.StateActive:
		n.idle.Store(0)
		n.late = 0
	case http.StateIdle:
		n.release()
		n.idle.Store(c.uses.Add(1))
	case http.StateHijacked, http.StateClosed:
	}
}
