package postgres

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

const (
	// patience is how long calls wait for a database that cannot be reached.
	patience = 10 * time.Second
	// slow is how long a call may take until it is checked whether the server still takes commits.
	slow = time.Second
	// retryAfter is the first pause between two attempts to connect. The pause grows up to retryMost.
	retryAfter = 50 * time.Millisecond
	retryMost  = 4 * retryAfter
)

// server is a server that has taken a commit of this process, so that it was the primary and what it showed is kept.
type server struct {
	// config connects to this server only.
	config *pgx.ConnConfig
	// started is the time of its start, which distinguishes it from others at the same address.
	started string
	// left ends when another server has become the primary, which closes all connections to this one.
	left  context.Context //nolint:containedctx // the time for which it is the primary
	leave context.CancelFunc
}

// primary tracks which server takes writes, and whether all that it shows is kept: safe from a failover.
//
// A server may show commits that no standby has, since after a restart those that waited for a standby are visible. So
// a connection is used only after a first commit: that was acknowledged, and all that is before it in the log is as
// safe. One goroutine searches the primary, with one connection to each server: a commit that waits for a standby is
// never cancelled, and many waiting commits would use up the server's connections.
type primary struct {
	*core

	mu sync.Mutex
	// server is the one that was found last. lost reports whether it can no longer be used.
	server *server
	lost   bool
	search *search
	// answering, if not nil, is a server that takes writes as it says. It is found by the search.
	answering *server
	// reasons are the errors of the latest attempts to connect, by the names of servers. acknowledged is when a commit
	// was last acknowledged.
	reasons      map[string]error
	acknowledged time.Time
	// down reports whether the database is unreachable for longer than callers wait, closed whether the store ended.
	down, closed bool

	// doubted counts the events after which something visible may not be kept. proven is the count up to which a later
	// commit has proven that all is kept. progress, if not nil, is closed when proven or server changes.
	doubted, proven uint64
	progress        chan struct{}
	// order is that of the last acknowledged commit on server.
	order int64
}

// commitStart is what was known when a commit began: the count of doubts, and the commit's order among those of the
// node and its store.
type commitStart struct {
	doubted uint64
	order   int64
}

// search is a search for the primary. found is closed when it ends, late when callers have waited long enough.
type search struct {
	begun       time.Time
	found, late chan struct{}
	stop        context.CancelFunc
}

// errMoved is the error of a read from a server that is no longer the primary.
var errMoved = errors.New("another server has become the primary")

// now returns the time of the machine: networks do not follow the store's clock.
func now() time.Time { return time.Now() } //nolint:forbidigo // see above

// hosts returns a configuration for each server, with all its ways to connect (with and without TLS).
func hosts(all *pgx.ConnConfig) (list []*pgx.ConnConfig) {
	first := &pgconn.FallbackConfig{Host: all.Host, Port: all.Port, TLSConfig: all.TLSConfig}
	ways := append([]*pgconn.FallbackConfig{first}, all.Fallbacks...)
	known := map[string]*pgx.ConnConfig{}
	for _, way := range ways {
		name := hostName(way.Host, way.Port)
		if host := known[name]; host != nil {
			host.Fallbacks = append(host.Fallbacks, way)
			continue
		}
		host := all.Copy()
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = way.Host, way.Port, way.TLSConfig, nil
		known[name] = host
		list = append(list, host)
	}
	return list
}

func hostName(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// find returns the primary. While it is being searched, find waits for up to patience.
func (p *primary) find(ctx context.Context) (*server, error) {
	for {
		p.mu.Lock()
		if p.server != nil && !p.lost && p.search == nil {
			defer p.mu.Unlock()
			return p.server, nil
		}
		s := p.seek()
		p.mu.Unlock()
		if err := p.join(ctx, s, nil); err != nil {
			return nil, err
		}
	}
}

// reachable returns the primary, or while it is being searched, a server that takes writes as it says. It waits for up
// to patience until there is one.
func (p *primary) reachable(ctx context.Context) (*server, error) {
	for {
		p.mu.Lock()
		if p.server != nil && !p.lost {
			defer p.mu.Unlock()
			return p.server, nil
		}
		s := p.seek()
		if p.answering != nil {
			defer p.mu.Unlock()
			return p.answering, nil
		}
		progress := p.awaited()
		p.mu.Unlock()
		if err := p.join(ctx, s, progress); err != nil {
			return nil, err
		}
	}
}

// reached records that a server takes writes as it says. The reason for which it could not be reached before counts
// until then, so that it is told also while the next attempt is in progress.
func (p *primary) reached(s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.reasons, s.name())
	p.answering = s
	p.tell()
}

// check returns when a server has taken a commit since the call, or with an error when that takes longer than patience.
func (p *primary) check(ctx context.Context) error {
	begun := now()
	p.mu.Lock()
	s := p.seek()
	p.mu.Unlock()
	err := p.join(ctx, s, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil && p.acknowledged.After(begun) {
		return nil
	}
	return err
}

// join waits for the end of a search, or until another channel is closed.
func (p *primary) join(ctx context.Context, s *search, other <-chan struct{}) error {
	select {
	case <-s.found:
		return nil
	case <-other:
		return nil
	case <-s.late:
		return p.unreachable()
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ending.Done():
		return store.ErrClosed
	}
}

// unreachable returns the error of calls that have waited long enough for the database.
func (p *primary) unreachable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	lack := &store.LackError{Of: store.OfDatabase}
	var why []string
	for _, config := range p.hosts {
		name := hostName(config.Host, config.Port)
		text := "it does not answer, or no standby confirms its commits"
		if err := p.reasons[name]; err != nil {
			text = whyUnreachable(p.address, err).reasons[0].text
			if crowded(err) {
				lack.Of = store.OfConnections
			}
		}
		why = append(why, name+": "+text)
	}
	lack.Why = "the database cannot be written to: " + strings.Join(why, "; ")
	return lack
}

// failed records that a connection could not be made. A server that has no connections left is not lost.
func (p *primary) failed(err *pgconn.ConnectError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := hostName(err.Config.Host, err.Config.Port)
	p.reasons[name] = err
	if crowded(err) {
		return
	}
	if s := p.server; s != nil && s.name() == name {
		p.lost = true
	}
	if s := p.answering; s != nil && s.name() == name {
		p.answering = nil
	}
}

// lose records that a server takes no writes.
func (p *primary) lose(s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == p.server {
		p.lost = true
	}
}

// admit returns the error of calls while the database is down.
func (p *primary) admit() error {
	p.mu.Lock()
	down := p.down
	p.mu.Unlock()
	if down {
		return p.unreachable()
	}
	return nil
}

// seek begins a search for the primary, unless one is in progress, and returns it. The caller holds mu.
func (p *primary) seek() *search {
	if p.search != nil {
		return p.search
	}
	ctx, stop := context.WithCancel(p.ending)
	s := &search{begun: now(), found: make(chan struct{}), late: make(chan struct{}), stop: stop}
	p.search, p.reasons, p.answering = s, map[string]error{}, nil
	if p.closed {
		return s // nobody waits for it
	}
	p.working.Go(func() {
		_ = panics.Logged(p.ending, p.logger, "the search for the primary", func() error {
			p.run(ctx, s)
			return nil
		})
	})
	return s
}

// run tries all servers, until one of them has taken a commit or the search ends for another reason.
func (p *primary) run(ctx context.Context, s *search) {
	defer s.stop()
	timer := time.AfterFunc(patience, func() { p.miss(s) }) //nolint:forbidigo // see now
	defer timer.Stop()
	var trying panics.Parts
	for _, config := range p.hosts {
		trying.Go(func() {
			for pause := retryAfter; ctx.Err() == nil; pause = min(2*pause, retryMost) {
				conn, err := p.connectTo(ctx, &server{config: config}, &p.counts.other)
				if err == nil {
					p.finish(s, sessionOf(conn))
					hangUp(p.life, conn)
					return
				}
				if failed, is := errors.AsType[*pgconn.ConnectError](err); is && ctx.Err() == nil {
					p.failed(failed)
				}
				_ = wait(ctx, pause) // the loop checks ctx
			}
		})
	}
	trying.Wait()
}

// miss records that a search has lasted for longer than callers wait.
func (p *primary) miss(s *search) {
	p.mu.Lock()
	if p.search != s {
		p.mu.Unlock()
		return
	}
	close(s.late)
	p.down = p.acknowledged.Before(s.begun)
	down := p.down
	p.mu.Unlock()
	if down {
		err := p.unreachable()
		p.logger.Error("the database cannot be reached: nothing is written", slog.Any("error", err))
		p.queue.RefuseWaiting(err)
	}
}

// finish ends a search with a connection to the server that was found.
func (p *primary) finish(s *search, found *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.search != s {
		return
	}
	p.become(found.server)
	p.shown(found.began)
}

// shown records that the primary has taken a commit, which ends a search, and that all that was visible when begins has
// returned began is kept. The caller holds mu.
func (p *primary) shown(began commitStart) {
	p.acknowledged, p.order = now(), max(p.order, began.order)
	if began.doubted > p.proven {
		p.proven = began.doubted
		p.tell()
	}
	p.lost = false
	if p.search == nil {
		return
	}
	if p.down {
		p.logger.Warn("the database can be reached again")
	}
	close(p.search.found)
	p.search.stop()
	p.search, p.down = nil, false
}

// become sets the primary. The caller holds mu.
func (p *primary) become(found *server) {
	was := p.server
	if was == found {
		return
	}
	p.server, p.lost, p.order = found, false, 0
	p.tell()
	if was != nil {
		p.logger.Warn("another server is the primary", slog.String("server", found.name()))
		was.leave()
	}
}

func (s *server) name() string { return hostName(s.config.Host, s.config.Port) }

// met returns the server that a connection to s has reached, which has taken a commit, by the time of its start: s
// itself, or the one that has replaced it.
func (p *primary) met(s *server, started string) *server {
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.server
	switch {
	case s.started == started:
		return s
	case current != nil && current.started == started && current.name() == s.name():
		return current
	}
	found := &server{config: s.config, started: started}
	found.left, found.leave = context.WithCancel(p.life)
	context.AfterFunc(found.left, func() {
		p.pool.Reset()
		p.lookupPool.Reset()
	})
	if s == current {
		p.become(found)
	}
	return found
}

// doubt records that from now on something visible may not be kept: answers wait for the next commit.
func (p *primary) doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubted++
}

// begins returns the value to pass to acknowledge after a commit. It is called before the commit.
func (p *primary) begins() commitStart {
	began := commitStart{}
	if n := p.o.Node; n != nil {
		began.order = n.order.Add(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	began.doubted = p.doubted
	return began
}

// acknowledge records that a server has acknowledged a commit without a warning. All that was visible there when the
// commit began is kept.
func (p *primary) acknowledge(s *server, began commitStart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == p.server {
		p.shown(began)
	}
}

// tell wakes the callers that wait for progress. The caller holds mu.
func (p *primary) tell() { wake(&p.progress) }

// awaited returns a channel that is closed at the next progress. The caller holds mu.
func (p *primary) awaited() <-chan struct{} {
	if p.progress == nil {
		p.progress = make(chan struct{})
	}
	return p.progress
}

// kept returns when all that a server has shown so far is kept, or with ReadPrimary at once. The error is errMoved if
// the primary is another server.
func (p *primary) kept(ctx context.Context, s *server) error {
	for {
		p.mu.Lock()
		moved, proven, progress := s != p.server, p.proven == p.doubted, p.awaited()
		switch n := p.o.Node; {
		case p.o.Reads == ReadPrimary:
			known := p.server != nil && !p.lost
			moved, proven = known && s.name() != p.server.name(), true
		case !moved && n != nil && n.hasLeft(s, p.order):
			moved, p.lost = true, true
		}
		p.mu.Unlock()
		if moved {
			return errMoved
		}
		if proven {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// attend watches the database for a caller that waits for it: if no server takes commits for as long as patience, it
// calls giveUp. It goes on until stop is called.
func (p *primary) attend(giveUp func(error)) (stop func()) {
	ctx, cancel := context.WithCancel(p.ending)
	timer := time.AfterFunc(slow, func() { //nolint:forbidigo // see now
		for ctx.Err() == nil {
			if err := p.check(ctx); err != nil {
				if ctx.Err() == nil {
					giveUp(err)
				}
				return
			}
			_ = wait(ctx, slow) // the loop checks ctx
		}
	})
	return func() {
		timer.Stop()
		cancel()
	}
}

// shut prevents further searches.
func (p *primary) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// end closes the remaining connections to the primary.
func (p *primary) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		p.server.leave()
	}
}
