package pgtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Proxy stands between clients and a server. It counts round trips, holds what passes, and cuts connections at chosen
// points of a round trip.
//
// A round trip is what a client sends before it waits, and what the server answers to it. A COPY with its data is one,
// since clients need not wait between them; connecting is none.
type Proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	links map[*link]bool
	count Count
	cuts  []*cut
	watch func(Trip)
	// open is closed while what passes is not held.
	open chan struct{}
}

// Count is how much has passed a proxy.
type Count struct {
	Connections, Trips int
	// Sent and Received are bytes from and to clients.
	Sent, Received int64
}

// Trip is a round trip.
type Trip struct {
	// Connection is the number of the connection among all of the proxy, from 1 on.
	Connection int
	// Statements are the texts that were executed, in their order.
	Statements     []string
	Sent, Received int64
}

// Point is where in a round trip a connection is cut.
type Point int

// The points at which connections are cut.
const (
	// BeforeRequest cuts before the statement reaches the server.
	BeforeRequest Point = iota
	// BeforeReply cuts when the server has all of the request, and does not wait until it has executed it.
	BeforeReply
	// DuringReply cuts when the client has half of the bytes of the reply.
	DuringReply
	// AfterReply cuts when the client has all of the reply.
	AfterReply
)

// cut is the order to cut a connection.
type cut struct {
	at   Point
	text string
	done chan struct{}
	once sync.Once
}

func (c *cut) end() { c.once.Do(func() { close(c.done) }) }

// NewProxy starts a proxy to a server, which ends with the test.
func NewProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	l, err := listen(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: l, target: s.Host(), links: map[*link]bool{}, open: make(chan struct{})}
	close(p.open)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	tb.Cleanup(func() {
		stop()
		_ = l.Close()
		p.CutAll()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			running.Go(func() { p.serve(ctx, client) })
		}
	})
	return p
}

// Host returns where the proxy listens, for Server.Address.
func (p *Proxy) Host() string { return p.listener.Addr().String() }

// Count returns how much has passed so far. A round trip is counted when it begins.
func (p *Proxy) Count() Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Watch calls f with each round trip when it ends, before the client has all of the reply. Several goroutines may call
// it at once, one for each connection.
func (p *Proxy) Watch(f func(Trip)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// CutNext cuts the connection of the next round trip that executes a statement with a text in it. The channel is closed
// when the connection is cut, or has ended for another reason meanwhile. Several orders stand beside each other; each
// is for one round trip.
func (p *Proxy) CutNext(at Point, text string) (done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &cut{at: at, text: text, done: make(chan struct{})}
	p.cuts = append(p.cuts, c)
	return c.done
}

// CutAll cuts all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Pause holds what passes in both directions, and whoever connects, until Resume.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Resume lets pass what Pause holds.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// ordered takes an order to cut a statement, if there is one.
func (p *Proxy) ordered(statement string) *cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.cuts {
		if strings.Contains(statement, c.text) {
			p.cuts = append(p.cuts[:i:i], p.cuts[i+1:]...)
			return c
		}
	}
	return nil
}

// passed counts bytes.
func (p *Proxy) passed(sent, received int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Sent += int64(sent)
	p.count.Received += int64(received)
}

// link is a connection of a client and the one to the server that belongs to it.
type link struct {
	proxy          *Proxy
	number         int
	client, server net.Conn
	closed         chan struct{}
	closing        sync.Once

	mu sync.Mutex
	// connected is set when the server is ready for the first request.
	connected bool
	texts     map[string]string // of prepared statements
	trip      *Trip             // under way, or nil
	// synced and ready count ends of requests, and of the replies to them.
	synced, ready int
	// flushed is set when the client asks for replies before the end of the request, answered when one has come.
	flushed, answered bool
	cut               *cut // the order for the request with the number cutAt
	cutAt             int
	held              []byte // of the reply that is cut in its middle
}

// The codes in the place of a version with which a connection may begin.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// serve serves a client until it or the server ends the connection, or it is cut.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	l := &link{proxy: p, client: client, closed: make(chan struct{}), texts: map[string]string{}}
	defer l.close()
	p.mu.Lock()
	p.count.Connections++
	l.number = p.count.Connections
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()

	// What a client sends first has no kind. Requests for encryption are answered with no.
	in := bufio.NewReader(client)
	var first []byte
	for {
		var err error
		if first, err = readPacket(in, 0); err != nil || len(first) < 8 {
			return
		}
		if code := binary.BigEndian.Uint32(first[4:]); code != sslRequest && code != gssRequest {
			break
		}
		if _, err := client.Write([]byte("N")); err != nil {
			return
		}
	}
	if !l.passes() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }() // the client has its reply
	p.mu.Lock()
	l.server = server
	p.mu.Unlock()
	p.passed(len(first), 0)
	if _, err := server.Write(first); err != nil {
		return
	}
	if binary.BigEndian.Uint32(first[4:]) == cancelRequest {
		_, _ = io.Copy(io.Discard, server) // until it has done it
		return
	}

	var both sync.WaitGroup
	both.Go(func() { l.requests(in) })
	both.Go(func() { l.replies(bufio.NewReader(server)) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endTrip()
	if l.cut != nil {
		l.cut.end()
	}
}

// readPacket reads a message that begins with so many bytes and its length.
func readPacket(in io.Reader, kind int) ([]byte, error) {
	head := make([]byte, kind+4)
	if _, err := io.ReadFull(in, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[kind:])
	if length < 4 || length > 1<<30 {
		return nil, errors.New("this is no message of PostgreSQL")
	}
	packet := make([]byte, kind+int(length))
	copy(packet, head)
	_, err := io.ReadFull(in, packet[len(head):])
	return packet, err
}

// close cuts both connections.
func (l *link) close() {
	l.closing.Do(func() { close(l.closed) })
	_ = l.client.Close() // it may be closed
	if l.server != nil {
		_ = l.server.Close() // as well
	}
}

// passes waits until nothing is held, and reports whether the link is still there.
func (l *link) passes() bool {
	l.proxy.mu.Lock()
	open := l.proxy.open
	l.proxy.mu.Unlock()
	select {
	case <-l.closed:
		return false
	case <-open:
		return true
	}
}

// requests passes on what the client sends.
func (l *link) requests(in io.Reader) {
	for {
		packet, err := readPacket(in, 1)
		if err != nil {
			break
		}
		order := l.request(packet)
		if order != nil && order.at == BeforeRequest {
			break
		}
		if !l.passes() {
			return
		}
		l.proxy.passed(len(packet), 0)
		if order != nil && order.at == BeforeReply {
			_ = l.client.Close() // before the server has the request, and can answer it
		}
		if _, err := l.server.Write(packet); err != nil {
			break
		}
		if order != nil && order.at == BeforeReply {
			order.end()
			return // replies goes on until the server has answered
		}
	}
	l.close()
}

// request looks at a message of the client. It returns the order to cut the link before or behind the message.
func (l *link) request(packet []byte) *cut {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected || packet[0] == 'X' {
		return nil // credentials, or the end
	}

	// Begin a round trip, unless the client goes on with one.
	if l.trip != nil && l.flushed && l.answered {
		l.endTrip()
	}
	if l.trip == nil {
		l.trip = &Trip{Connection: l.number}
		l.proxy.mu.Lock()
		l.proxy.count.Trips++
		l.proxy.mu.Unlock()
	}
	l.trip.Sent += int64(len(packet))
	l.flushed, l.answered = packet[0] == 'H', false

	// Look for statements. A text that cannot be read is for the server to refuse.
	switch body := packet[5:]; packet[0] {
	case 'P':
		var m pgproto3.Parse
		if m.Decode(body) == nil {
			l.texts[m.Name] = m.Query
		}
	case 'B':
		var m pgproto3.Bind
		if m.Decode(body) == nil {
			l.execute(l.texts[m.PreparedStatement], l.synced+1)
		}
	case 'Q':
		l.synced++
		var m pgproto3.Query
		if m.Decode(body) == nil {
			l.execute(m.String, l.synced)
		}
	case 'S', 'F':
		l.synced++
	}
	if l.cut != nil && (l.cut.at == BeforeRequest || l.cut.at == BeforeReply && l.synced == l.cutAt) {
		return l.cut
	}
	return nil
}

// execute notes a statement that is part of the request with a number.
func (l *link) execute(statement string, request int) {
	l.trip.Statements = append(l.trip.Statements, statement)
	if l.cut == nil {
		l.cut, l.cutAt = l.proxy.ordered(statement), request
	}
}

// replies passes on what the server sends.
func (l *link) replies(in io.Reader) {
	for {
		packet, err := readPacket(in, 1)
		if err != nil {
			break
		}
		out, order := l.reply(packet)
		if !l.passes() {
			return
		}
		l.proxy.passed(0, len(out))
		_, _ = l.client.Write(out) // requests notices when the client has gone
		if order != nil {
			break
		}
	}
	l.close()
}

// reply looks at a message of the server. It returns what the client gets now, and at the end of a reply the order to
// cut the link there.
func (l *link) reply(packet []byte) (out []byte, order *cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := packet[0]
	if !l.connected {
		l.connected = kind == 'Z'
		return packet, nil
	}
	if l.trip != nil {
		l.trip.Received += int64(len(packet))
		l.answered = true
	}

	if kind == 'Z' {
		if l.ready++; l.ready == l.synced {
			l.endTrip()
		}
		if l.cut != nil && l.ready == l.cutAt {
			order = l.cut
		}
	}
	if l.cut != nil && l.cut.at == DuringReply {
		l.held = append(l.held, packet...)
		if order == nil {
			return nil, nil
		}
		return l.held[:len(l.held)/2], order
	}
	return packet, order
}

// endTrip tells of the round trip that has ended.
func (l *link) endTrip() {
	if l.trip == nil {
		return
	}
	l.proxy.mu.Lock()
	watch := l.proxy.watch
	l.proxy.mu.Unlock()
	if watch != nil {
		watch(*l.trip)
	}
	l.trip = nil
}
