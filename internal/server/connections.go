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

// connections bounds the open connections of a server, so that clients cannot take the descriptors that the store
// needs. At the bound, idle connections are closed to make room for new ones; if all are in use, new ones are closed.
type connections struct {
	logger *slog.Logger
	// limit returns how many descriptors the process may have open. It is called for each new connection, because the
	// limit can be changed from outside while the process runs.
	limit func() int
	// shared reports whether an address may stand for many clients, so that its connections are not counted together.
	shared func(netip.Addr) bool
	// uses counts how often a connection became idle; it orders idle connections.
	uses atomic.Int64
	// long is how many bytes of long headers are held; mostLong is its bound.
	long, mostLong atomic.Int64

	mu   sync.Mutex
	open map[*connection]struct{}
	// ended is set when no further connections are let in.
	ended     bool
	byAddress map[netip.Addr]int // by the result of auth.Network
	// crowded is set when connections have been closed for lack of room, until there is enough room again.
	crowded bool
}

// connection is a counted connection. For callers it behaves as its TCP connection.
type connection struct {
	*net.TCPConn
	all *connections
	// from is the network that the connection is counted by, or the zero address if it is not counted.
	from netip.Addr
	// idle orders idle connections: those that never had a request have negative numbers, those that became idle after
	// a request positive ones. 0 means that the connection is in use.
	idle atomic.Int64
	// header is how many bytes of the next request's header were read since the connection became idle. long is how
	// many of them are counted in connections.long. Both are 0 if the connection is encrypted.
	header, long atomic.Int64
	encrypted    bool
	// unread holds bytes that were read and put back; late is how long ago the request that begins with them has begun.
	unread []byte
	late   time.Duration
}

const (
	// shortHeader is how many bytes of a header may be read without being counted; allLong bounds the bytes of all
	// headers beyond that, so that clients that send long headers slowly cannot take more memory.
	shortHeader = httpapi.MaxHeader + 16<<10
	allLong     = 32 << 20

	// mostReserved is how many descriptors are reserved for uses other than connections, mostly the store. If the limit
	// is low, half of it is reserved.
	mostReserved = 1536
	// addressShare is the divisor that gives the share of all connections that one address may have.
	addressShare = 2
	// evictShare is the divisor that gives the share of connections that is closed at once to make room.
	evictShare = 32
)

// newConnections returns connections that are not counted by address if they come from trusted proxies or from this
// machine.
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
		return 1024 // the minimum that systems allow
	}
	return int(min(l.Cur, math.MaxInt32))
}

// most returns how many connections may be open.
func (c *connections) most() int {
	limit := c.limit()
	return max(limit-min(limit/2, mostReserved), 1)
}

// watched is a listener whose connections are counted.
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

// admit counts a new connection; it returns nil if there is no room for it.
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

// network returns the network that the connections of an address are counted by, or the zero address if they are not
// counted.
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

// shrink closes some idle connections.
func (c *connections) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evict(max(len(c.open)/evictShare, 1), netip.Addr{})
}

// evict closes up to n idle connections, only those of the address from if it is valid, and reports whether it closed
// any: first those that never had a request, then those idle the longest. c.mu is held.
func (c *connections) evict(n int, from netip.Addr) bool {
	// Candidates at this moment.
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

	// Close the first n, except those that got a request meanwhile.
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

// endIdle closes the idle connections that had a request: the answers to their last requests are still in their memory.
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

// end closes the connections on which no complete request has arrived yet, and lets no further ones in: their clients
// were promised nothing. net/http would wait for the first request of each, though not for later ones.
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

// forget stops counting a connection. c.mu is held.
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

// Read reads what the client sends. A header for which there is no room ends the connection.
func (n *connection) Read(b []byte) (int, error) {
	if len(n.unread) > 0 {
		again := copy(b, n.unread)
		if n.unread = n.unread[again:]; len(n.unread) == 0 {
			n.unread = nil // releases the memory while the connection stays open
		}
		return again, nil
	}
	clear(b) // remove the previous request before waiting for the next
	read, err := n.TCPConn.Read(b)
	if n.encrypted || read == 0 || n.idle.Load() == 0 {
		return read, err
	}
	if over := n.header.Add(int64(read)) - shortHeader; over > 0 {
		more := over - n.long.Load()
		if n.all.long.Add(more) > n.all.mostLong.Load() {
			n.all.long.Add(-more)
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: errLongHeaders} // net/http sends no answer
		}
		n.long.Add(more)
	}
	return read, err
}

// Unread makes Read return b before anything else, without counting it again. late is how much of its time the request
// that begins with b has used. It must not be called while another goroutine reads.
func (n *connection) Unread(b []byte, late time.Duration) { n.unread, n.late = b, late }

// SetReadDeadline ends the wait for what the client sends. The times that the server allows for the header and for the
// whole request count from the first byte, even if other code has read it.
func (n *connection) SetReadDeadline(at time.Time) error {
	if !at.IsZero() && n.idle.Load() != 0 {
		at = at.Add(-n.late)
	}
	return n.TCPConn.SetReadDeadline(at)
}

// errLongHeaders is the error that ends a connection with a long header for which there is no room.
var errLongHeaders = errors.New("too many long headers are held")

// release uncounts the header of the last request.
func (n *connection) release() {
	n.header.Store(0)
	n.all.long.Add(-n.long.Swap(0))
}

// Close closes the connection and stops counting it.
func (n *connection) Close() error {
	n.all.mu.Lock()
	n.all.forget(n)
	n.all.mu.Unlock()
	n.release()
	return n.TCPConn.Close()
}

// observe tracks whether connections are in use. It is an http.Server's ConnState.
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
		n.encrypted = encrypted // nothing was read before
	case http.StateActive:
		n.idle.Store(0)
		n.late = 0
	case http.StateIdle:
		n.release()
		n.idle.Store(c.uses.Add(1))
	case http.StateHijacked, http.StateClosed:
	}
}
