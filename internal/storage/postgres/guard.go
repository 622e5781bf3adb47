package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/queue"
	"j17/internal/storage/store"
)

// The settings of the server are checked every lookEvery while they are good, and every lookAgain otherwise. A fault
// has to be found twice before writes stop: a standby may be restarting.
const (
	lookEvery = time.Minute
	lookAgain = time.Second
)

// guard checks the settings of the server, and stops writes while acknowledged ones might be lost.
type guard struct {
	*core

	now atomic.Pointer[condition]
	// measured is what the metrics show of the database, as of the last time that it was asked.
	measured atomic.Pointer[measurement]
	// found describes the faults that the last look has found, "" for none. Only one goroutine looks.
	found string
	stop  context.CancelFunc
	end   context.Context //nolint:containedctx // the time in which it looks
}

// condition is what is known of the server.
type condition struct {
	// refused is why no writes are taken, unreached why the server could not be asked; each is "" if that is not so.
	refused, unreached string
	store.Replication
}

func newGuard(c *core) *guard {
	g := &guard{core: c}
	g.end, g.stop = context.WithCancel(c.life)
	g.now.Store(&condition{})
	g.measured.Store(&measurement{})
	return g
}

// admit returns the error of calls while writes are stopped.
func (g *guard) admit(queue.Need) error {
	if why := g.now.Load().refused; why != "" {
		return j17.Errorf(j17.CodeUnavailable, "No writes are taken, since they might be lost: %s. Nothing was written. Reads go on, and writes do so by themselves once that has changed.", why).Because(store.ErrBusy)
	}
	return nil
}

// Status is part of store.Health.
func (c *core) Status() store.Status {
	if c.isClosed() {
		return store.Status{Reason: "the store is closed"}
	}
	is := c.guard.now.Load()
	why := is.refused
	switch err := cmp.Or(c.primary.admit(), c.full.admit(queue.Ordinary)); {
	case why != "":
	case err != nil:
		why = err.Error()
	default:
		why = is.unreached
	}
	return store.Status{Readable: true, Writable: why == "", Reason: why, Replication: &is.Replication}
}

// begin looks for the first time. It returns an error if the server is refused.
func (g *guard) begin(ctx context.Context, conn *pgx.Conn) error {
	s, found, err := g.look(ctx, conn)
	if err != nil {
		return err
	}
	var refused []string
	for _, f := range found {
		switch {
		case f.Refused:
			refused = append(refused, f.Text)
		case f.Text != "":
			g.logger.LogAttrs(ctx, slog.LevelWarn, "a setting of the store's server should be another one", slog.String("setting", f.Name), slog.String("why", f.Text))
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("the store %s cannot be used: %s", g.address, strings.Join(refused, "; "))
	}
	g.now.Store(s.condition(&g.o))
	return nil
}

// look asks a server for its settings, and returns its findings. It makes a second connection, to check whether both
// keep their sessions.
func (g *guard) look(ctx context.Context, conn *pgx.Conn) (s serverSettings, found []Finding, err error) {
	other, err := g.dialAny(ctx)
	if err != nil {
		return s, nil, whyUnreachable(g.address, err)
	}
	defer func() { err = errors.Join(err, other.Close(g.life)) }()
	session := Finding{Name: sessionsName, Value: "session"}
	switch err := sessions(ctx, conn, other); {
	case errors.Is(err, errPooled): // nothing else can be asked for certain
		session = Finding{Name: sessionsName, Value: "transaction", Text: err.Error(), Refused: true}
		return s, []Finding{session}, nil
	case err != nil:
		return s, nil, err
	}
	if s, err = settings(ctx, conn); err != nil {
		return s, nil, err
	}
	return s, append(s.findings(&g.o), session), nil
}

// condition returns the condition of a server none of whose settings is refused.
func (s *serverSettings) condition(o *Options) *condition {
	is := &condition{Replication: store.Replication{Mode: store.Quorum, Standbys: s.standbys, LagBytes: s.lag}}
	if s.quorum == "" {
		is.Mode = store.Single
	}
	for _, f := range s.lossy(o) {
		is.Async = is.Async || f.Text != ""
	}
	return is
}

// watch looks again and again until the store closes.
func (g *guard) watch() error {
	for {
		after := lookEvery
		if is := g.now.Load(); g.found != "" || is.refused != "" || is.unreached != "" {
			after = lookAgain
		}
		if wait(g.end, after) != nil {
			return nil //nolint:nilerr // it is logged, and tried again
		}
		_ = panics.Logged(g.end, g.logger, "the look at the settings of the store's server", g.lookNow)
	}
}

// lookNow looks once, and tells writers and the log what has changed.
func (g *guard) lookNow() error {
	ctx, cancel := context.WithTimeout(g.end, patience)
	defer cancel()
	was := *g.now.Load()
	conn, err := g.dialAny(ctx)
	if err != nil {
		err = whyUnreachable(g.address, err)
	}
	var s serverSettings
	var found []Finding
	if err == nil {
		if s, found, err = g.look(ctx, conn); err == nil {
			g.measure(ctx, conn)
		}
		err = errors.Join(err, conn.Close(g.life))
	}
	if err != nil {
		if g.end.Err() == nil && was.unreached == "" {
			g.logger.LogAttrs(ctx, slog.LevelWarn, "the store cannot be reached", slog.Any("error", err))
		}
		was.unreached = err.Error()
		g.now.Store(&was)
		return nil
	}

	// Faults stop writes if the previous look has found some too.
	var wrong []string
	for _, f := range found {
		if f.Refused {
			wrong = append(wrong, f.Text)
		}
	}
	why, is := strings.Join(wrong, "; "), s.condition(&g.o)
	if why != "" && (g.found != "" || was.refused != "") {
		is.refused = why
	}
	g.found = why
	g.now.Store(is)
	switch {
	case is.refused != "" && is.refused != was.refused:
		g.logger.LogAttrs(ctx, slog.LevelError, "writes have stopped, since they might be lost", slog.String("why", why))
	case is.refused == "" && was.refused != "":
		g.logger.LogAttrs(ctx, slog.LevelInfo, "writes go on: the settings of the store's server are good again")
	}
	return nil
}
