package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/base/work"
	"j17/internal/follow/tail"
)

// Limits on streams that the options do not state.
const (
	DefaultStreamsPerKey = 100
	DefaultStreams       = 10_000
)

const (
	// patience is how long a client may take nothing while there is something for it. Where it is not known what the
	// client has taken, it is the time for each write.
	patience = 5 * time.Second
	// holdPatience is how long a client that takes little may keep a part of the memory that all streams share.
	holdPatience = 5 * time.Minute
	// pulseInterval is how often streams are looked at. checkInterval is how often it is checked that the key of each
	// is still valid, while no rights have changed.
	pulseInterval = 500 * time.Millisecond
	checkInterval = 5 * time.Second
	// reservedShare is the part of all streams that no single environment can take.
	reservedShare = 16
	// socketBytes is how much the system may buffer for a client that takes nothing, writeBytes how much is written at
	// a time, and sharedBytes how much where other answers share the connection.
	socketBytes = 128 << 10
	writeBytes  = 16 << 10
	sharedBytes = 4 << 10
	// wokenAtOnce is how many streams with something due are woken together, and wakeRest the time before the next
	// ones. hungUpAtOnce is how many connections of clients that take nothing are closed at a time.
	wokenAtOnce  = 128
	wakeRest     = 5 * time.Millisecond
	hungUpAtOnce = 16
)

// streams are the answers under way that have no end of their own: event streams, and pages that wait for an event. One
// goroutine watches all of them, while there are any.
type streams struct {
	api       *API
	sent, cut atomic.Uint64
	// taken returns what a client has taken, as the function taken does.
	taken func(net.Conn) (uint64, bool)
	// ends are the places of streams whose clients are hung up on.
	ends *work.Pool
	// passes are those of live views.
	passes livePasses
	// alterations returns a number that changes whenever keys or rights may have changed.
	alterations func() uint64

	mu            sync.Mutex
	running       map[*stream]struct{}
	relays        map[*relay]struct{}
	byKey         map[string]*keyStreams
	byEnvironment map[j17.Tenant]int
	// unwatch ends the goroutine; nil while there is none.
	unwatch context.CancelFunc
}

// keyStreams are how many streams an API key has open, and the pace of its live views.
type keyStreams struct {
	open int
	pace pace
}

// stream is one of them.
type stream struct {
	all       *streams
	call      *call
	w         http.ResponseWriter
	control   *http.ResponseController
	heartbeat time.Duration // 0 for none
	// pace is that of the live views of its key.
	pace *pace
	// pulse receives when the stream is to check what is due.
	pulse chan struct{}
	// frame is where events are put together; pending reports that there is something to flush.
	frame   []byte
	pending bool
	// wrote is when something was last written, in Unix nanoseconds; told is the position that the client was last
	// sent; failure is the error of a write.
	wrote   atomic.Int64
	told    j17.StreamID
	placed  bool // a position was sent
	failure error
	// conn is its connection, nil where others share it or there is none; writing is since when a write is under way,
	// in Unix nanoseconds, 0 while none is.
	conn    net.Conn
	writing atomic.Int64
	// holding is since when what is being written holds a part of the memory that all streams share, in Unix
	// nanoseconds, 0 while it holds none.
	holding atomic.Int64
	// The rest belongs to the watching goroutine. checked is when the stream's key was last checked. taken is what its
	// client had taken when the write that began at looked was last looked at.
	checked time.Time
	looked  int64
	taken   uint64

	mu   sync.Mutex
	over bool
}

func newStreams(a *API, alterations func() uint64) *streams {
	return &streams{
		api: a, taken: taken, ends: work.NewPool(hungUpAtOnce, hungUpAtOnce/2),
		passes:      livePasses{all: map[string]*question{}},
		alterations: alterations, relays: map[*relay]struct{}{},
		running: map[*stream]struct{}{}, byKey: map[string]*keyStreams{}, byEnvironment: map[j17.Tenant]int{},
	}
}

// open lets a call have an answer without an end. It has to be closed.
func (all *streams) open(c *call, w http.ResponseWriter, heartbeat time.Duration) (*stream, error) {
	s := &stream{all: all, call: c, w: plain(w), heartbeat: heartbeat, pulse: make(chan struct{}, 1)}
	s.control = http.NewResponseController(s.w)
	s.checked = s.now()
	s.wrote.Store(s.checked.UnixNano())
	if err := all.add(s); err != nil {
		return nil, err
	}
	if heartbeat > 0 {
		// Where there is no connection, as in tests, there are no limits either.
		_ = s.control.SetReadDeadline(time.Time{})
		conn := socketOf(c.request.Context())
		limitSocket(conn)
		if c.request.ProtoMajor == 1 {
			s.conn = conn
		}
	}
	return s, nil
}

// add counts a stream, if there may be one more.
func (all *streams) add(s *stream) error {
	c := s.call
	all.mu.Lock()
	defer all.mu.Unlock()
	perKey, most := all.api.StreamsPerKey, all.api.Streams
	of := all.byKey[c.principal.ID]
	if of == nil {
		of = &keyStreams{}
	}
	switch inEnvironment := most - most/reservedShare; {
	case of.open >= perKey:
		return tooManyStreams(perKey, scopeKey, "an API key")
	case len(all.running) >= most:
		return tooManyStreams(most, "server", "the server")
	case all.byEnvironment[c.tenant] >= inEnvironment:
		return tooManyStreams(inEnvironment, "environment", "an environment")
	}
	all.running[s] = struct{}{}
	of.open++
	all.byKey[c.principal.ID], s.pace = of, &of.pace
	all.byEnvironment[c.tenant]++
	all.beginWatch(c)
	return nil
}

// beginWatch starts the watching goroutine, unless it is running. The caller holds mu.
func (all *streams) beginWatch(c *call) {
	if all.unwatch == nil {
		watching, stop := context.WithCancel(context.WithoutCancel(c.request.Context()))
		all.unwatch = stop
		go all.watch(watching)
	}
}

// endWatch ends the watching goroutine when there is nothing left to watch. The caller holds mu.
func (all *streams) endWatch() {
	if len(all.running) == 0 && len(all.relays) == 0 {
		all.unwatch()
		all.unwatch = nil
	}
}

// relay is an answer without an end of its own that comes from another node and that this one passes on. Only this node
// knows whether the caller still has the right to it.
type relay struct {
	call    *call
	checked time.Time
	end     context.CancelCauseFunc
}

// errStopping is the cause with which relays end when the server stops.
var errStopping = errors.New("the server stops")

// relay calls end when the caller no longer has the right to the answer, or when the server is about to stop. done has
// to be called at the end.
func (all *streams) relay(c *call, end context.CancelCauseFunc) (done func()) {
	r := &relay{c, clock.System{}.Now(), end}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.relays[r] = struct{}{}
	all.beginWatch(c)
	select {
	case <-all.api.draining: // endAll may have run before this one was added
		end(errStopping)
	default:
	}
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.relays, r)
		all.endWatch()
	}
}

// checkRelays ends the relays whose callers no longer have the right to them.
func (all *streams) checkRelays(now time.Time, altered bool) {
	all.mu.Lock()
	var due []*relay
	for r := range all.relays {
		if altered || now.Sub(r.checked) >= checkInterval {
			r.checked = now
			due = append(due, r)
		}
	}
	all.mu.Unlock()
	for _, r := range due {
		if !all.api.guard.stillAllowed(r.call) {
			r.end(j17.Errorf(j17.CodeUnauthorized, "You may not read this any more. Sign in again, or ask an administrator."))
		}
	}
}

// close ends a stream. Its last bytes have a moment.
func (s *stream) close() {
	if s.failure != nil {
		s.hangUp()
	}
	all, c := s.all, s.call
	all.mu.Lock()
	delete(all.running, s)
	if of := all.byKey[c.principal.ID]; of.open > 1 {
		of.open--
	} else {
		delete(all.byKey, c.principal.ID)
	}
	if all.byEnvironment[c.tenant]--; all.byEnvironment[c.tenant] == 0 {
		delete(all.byEnvironment, c.tenant)
	}
	all.endWatch()
	all.mu.Unlock()
	if s.heartbeat > 0 {
		_ = s.control.SetWriteDeadline(s.now().Add(time.Second))
	}
}

// hangUp closes the connection of a client that has taken nothing. Where one event was too much for very many clients,
// their connections are not all closed at the same moment.
func (s *stream) hangUp() {
	c := s.call
	n, err := s.all.ends.Take(context.WithoutCancel(c.request.Context()), string(c.tenant), 1)
	if err != nil {
		return
	}
	defer s.all.ends.Give(string(c.tenant), n)
	if s.conn != nil {
		_ = s.conn.Close() // nothing more goes out
	}
}

// count returns how many streams are open.
func (all *streams) count() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.running)
}

// list returns the open streams, in the memory of into; none once ended, which is closed under mu.
func (all *streams) list(into []*stream, ended <-chan struct{}) []*stream {
	all.mu.Lock()
	defer all.mu.Unlock()
	into = into[:0]
	select {
	case <-ended:
		return into
	default:
	}
	for s := range all.running {
		into = append(into, s)
	}
	return into
}

// look wakes a stream for what is due, and ends it where its key is no longer valid, which it checks at once after a
// change of rights. It reports whether it did either.
func (s *stream) look(now time.Time, altered bool) (woken bool) {
	if altered || now.Sub(s.checked) >= checkInterval {
		s.checked = now
		if woken = !s.all.api.guard.stillAllowed(s.call); woken {
			s.end()
		}
	}
	if s.due(now) {
		s.wake()
		woken = true
	}
	s.attend(now)
	return woken
}

// watch wakes streams for what is due and ends those whose keys are no longer valid, until ctx ends.
func (all *streams) watch(ctx context.Context) {
	var open []*stream
	seen := all.alterations()
	for clk := (clock.System{}); clk.Wait(ctx, clk.Now().Add(pulseInterval)) == nil; {
		open = all.list(open, ctx.Done())
		now, woken := clk.Now(), 0
		all.passes.forget(now.Add(-pulseInterval))
		before := seen
		seen = all.alterations()
		altered := seen != before
		if err := panics.Caught(func() error { all.checkRelays(now, altered); return nil }); err != nil {
			all.api.Logger.LogAttrs(ctx, slog.LevelError, "streams of other nodes could not be looked at", slog.Any("error", err))
		}
		for _, s := range open {
			err := panics.Caught(func() error {
				if s.look(now, altered) {
					woken++
				}
				return nil
			})
			if err != nil { // whether it may go on is not known
				all.api.Logger.LogAttrs(
					ctx, slog.LevelError, "a live stream was ended", slog.String("tenant", string(s.call.tenant)),
					slog.Any("error", err),
				)
				s.end()
			}
			if woken == wokenAtOnce {
				woken = 0
				_ = clk.Wait(ctx, clk.Now().Add(wakeRest)) // the end is seen above
			}
		}
		clear(open)
	}
}

// endAll ends all streams at once: the server stops.
func (all *streams) endAll() {
	for _, s := range all.list(nil, nil) {
		s.end()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for r := range all.relays {
		r.end(errStopping)
	}
}

// end makes the stream end, even while it waits for its client.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.heartbeat > 0 {
		_ = s.control.SetWriteDeadline(s.now())
	}
	s.wake()
}

func (s *stream) wake() {
	select {
	case s.pulse <- struct{}{}:
	default:
	}
}

// ended reports whether the stream has to end.
func (s *stream) ended() bool {
	select {
	case <-s.all.api.draining:
		return true
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// now returns real time, the only time that deadlines of connections know.
func (*stream) now() time.Time { return clock.System{}.Now() }

// due reports whether it is time for a heartbeat.
func (s *stream) due(now time.Time) bool {
	return s.heartbeat > 0 && now.Sub(time.Unix(0, s.wrote.Load())) >= s.heartbeat-pulseInterval/2
}

// allow gives the client its time to take what is written next.
func (s *stream) allow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return http.ErrAbortHandler
	}
	now := s.now()
	s.writing.Store(now.UnixNano())
	_ = s.control.SetWriteDeadline(now.Add(patience)) // where there is no connection there are no limits either
	return nil
}

// hold notes whether the next write holds a part of the memory that all streams share.
func (s *stream) hold(has bool) {
	since := int64(0)
	if has {
		since = s.now().UnixNano()
	}
	s.holding.Store(since)
}

// attend extends the deadline of a client that has taken some of what is being written, however little: without end, as
// long as it holds none of the shared memory for too long. A connection becomes writable only once much of its buffer
// was taken, which takes a slow client longer than the deadline.
func (s *stream) attend(now time.Time) {
	since := s.writing.Load()
	if held := s.holding.Load(); held != 0 && now.Sub(time.Unix(0, held)) > holdPatience {
		return
	}
	if since == 0 || s.conn == nil || now.Sub(time.Unix(0, since)) < pulseInterval {
		return
	}
	n, known := s.all.taken(s.conn)
	if !known {
		return
	}
	more := s.looked == since && n != s.taken
	s.looked, s.taken = since, n
	if !more {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		_ = s.control.SetWriteDeadline(now.Add(patience))
	}
}

// put writes a part of the stream. After a failure it does nothing; flush returns the error.
func (s *stream) put(part []byte) {
	s.pending = true
	size := writeBytes
	if s.conn == nil {
		size = sharedBytes
	}
	defer s.writing.Store(0)
	for len(part) > 0 && s.failure == nil {
		if s.failure = s.allow(); s.failure != nil {
			return
		}
		n, err := s.w.Write(part[:min(len(part), size)])
		s.call.bytes += int64(n)
		s.failure, part = err, part[n:]
	}
}

// flush sends what was put. An error ends the stream.
func (s *stream) flush() error {
	if !s.pending {
		return s.failure
	}
	s.pending = false
	if s.failure == nil {
		s.failure = s.allow()
	}
	if s.failure == nil {
		s.failure = s.control.Flush()
		s.writing.Store(0)
	}
	if s.failure != nil {
		if errors.Is(s.failure, os.ErrDeadlineExceeded) && !s.ended() {
			s.all.cut.Add(1)
		}
		return s.failure
	}
	if s.call.request.ProtoMajor > 1 {
		_ = s.control.SetWriteDeadline(time.Time{}) // which would end the stream while it is idle
	}
	s.wrote.Store(s.now().UnixNano())
	return nil
}

// plain returns the writer below compression, which would buffer what it is given and take much memory.
func plain(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapped.Unwrap()
	}
}

// connectionKey is the key of a request's connection among the values of its context.
type connectionKey struct{}

// ConnContext is the ConnContext of an http.Server: it makes connections available to socketOf.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// socketOf returns the connection of a request, below TLS; nil where it is not known.
func socketOf(ctx context.Context) net.Conn {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn)
	if encrypted, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return encrypted.NetConn()
	}
	return conn
}

// limitSocket bounds what the system buffers for the client of a stream.
func limitSocket(conn net.Conn) {
	if socket, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = socket.SetWriteBuffer(socketBytes) // the usual size does no harm
	}
}

// typeStream is the media type of server-sent events.
const typeStream = "text/event-stream"

// headerLastEvent is where a client of server-sent events names the last event that it received.
const headerLastEvent = "Last-Event-Id"

// startStream sends the headers of a stream.
func (c *call) startStream(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", typeStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies would wait for more
	if c.request.ProtoMajor == 1 {
		h.Set("Connection", "close") // whose buffers are those of a stream
	}
	c.status = http.StatusOK
	w.WriteHeader(http.StatusOK)
}

// sleep waits until a channel is closed or receives, and sends heartbeats meanwhile, each with the position that at
// returns. It reports false at the end of the stream, which at can bring about.
func (s *stream) sleep(ctx context.Context, until <-chan struct{}, at func() (position j17.StreamID, alive bool)) bool {
	for {
		select {
		case <-until:
			return ctx.Err() == nil && !s.ended()
		case <-ctx.Done():
			return false
		case <-s.pulse:
		}
		if s.ended() {
			return false
		}
		if !s.due(s.now()) {
			continue
		}
		position, alive := at()
		if !alive {
			return false
		}
		s.beat(position)
		if s.flush() != nil {
			return false
		}
	}
}

// beat writes a heartbeat, with the position that the stream has reached.
func (s *stream) beat(at j17.StreamID) {
	s.put([]byte(":\n"))
	s.position(at)
}

// position tells the client the position that the stream has reached, from which it goes on when it reconnects.
func (s *stream) position(at j17.StreamID) {
	if at != s.told || !s.placed {
		s.told, s.placed = at, true
		s.put(at.AppendPosition([]byte("id: ")))
		s.put([]byte("\n"))
	}
	s.put([]byte("\n"))
}

// events writes events of a feed.
func (s *stream) events(events []tail.Event) {
	for i := range events {
		s.event("", events[i].ID, events[i].Raw)
	}
	s.send()
	s.all.sent.Add(uint64(len(events)))
}

// event adds an event to what send writes: its name, "" for none, the position that the client has reached with it, and
// its data in parts.
func (s *stream) event(name string, at j17.StreamID, data ...[]byte) {
	s.told, s.placed = at, true
	if name != "" {
		s.frame = append(append(append(s.frame, "event: "...), name...), '\n')
	}
	s.frame = append(at.AppendPosition(append(s.frame, "id: "...)), "\ndata: "...)
	for _, part := range data {
		if len(part) > writeBytes {
			s.send()
			s.put(part)
			continue
		}
		s.frame = append(s.frame, part...)
	}
	if s.frame = append(s.frame, "\n\n"...); len(s.frame) >= writeBytes {
		s.send()
	}
}

// send writes the events that were added. Their memory is kept for the next ones where it is not much.
func (s *stream) send() {
	if len(s.frame) > 0 {
		s.put(s.frame)
	}
	if s.frame = s.frame[:0]; cap(s.frame) > 2*writeBytes {
		s.frame = nil
	}
}
