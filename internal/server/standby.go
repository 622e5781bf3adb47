package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"j17/internal/base/clock"
	"j17/internal/edge/httpapi"
	"j17/internal/storage/postgres"
)

// ErrReplaced is the error of a server that ends since another node is active now. Opened again, it waits its turn.
var ErrReplaced = postgres.ErrReplaced

// leaveTime is how long a node that ends tries to tell the others.
const leaveTime = 2 * time.Second

// join makes this process one of the nodes on the database, and returns when it is the active one.
func (s *Server) join(ctx context.Context) error {
	o := &s.options
	undo, err := makeFolder(o.Dir)
	if err != nil {
		return fmt.Errorf("the data folder cannot be made: %w", err)
	}
	p := o.Store.postgres(o.Clock, o.Logger, o.storeKeys())
	name := s.nodeName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("node: the machine has no name that this node could have; name it: %w", err)
		}
		_, port, _ := net.SplitHostPort(s.internal.Addr().String())
		name = net.JoinHostPort(host, port)
	}
	url := cmp.Or(s.internalURL, "http://"+s.internal.Addr().String())
	node, err := postgres.Join(ctx, p, name, url, clock.System{})
	if err != nil {
		undo()
		return err
	}
	s.node = node
	if s.alone {
		return awaitAlone(ctx, node)
	}
	return s.standby(ctx, node.Await)
}

// awaitAlone returns when a node is active. It returns an error if another node shows a sign of life.
func awaitAlone(ctx context.Context, node *postgres.Node) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var seen postgres.Worker
	err := node.Await(ctx, func(w postgres.Worker) {
		if seen.Name == w.Name && seen.Beat != w.Beat {
			stop(fmt.Errorf("store: another j17, %s at %s, works on this schema: stop it, or choose another schema", w.Name, w.URL))
		}
		seen = w
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// watchNode returns ErrReplaced when another node is active, nil when ctx ends.
func (s *Server) watchNode(ctx context.Context) error {
	select {
	case <-s.node.Lost():
		return ErrReplaced
	case <-ctx.Done():
		return nil
	}
}

// standby answers on both listeners until await returns, when this node is active. Until then await tells it which node
// is. The listeners stay open, so that no connection is refused in between.
func (s *Server) standby(ctx context.Context, await func(context.Context, func(postgres.Worker)) error) error {
	var works atomic.Value
	works.Store("")
	handler := httpapi.Standby(func() string { name, _ := works.Load().(string); return name })
	var servers []*http.Server
	var g errgroup.Group
	for _, l := range []net.Listener{s.public, s.internal} {
		h := s.limited(ctx, l, handler)
		servers = append(servers, h)
		g.Go(func() error { return serve(h, s.lent(l)) })
	}
	err := await(ctx, func(w postgres.Worker) {
		if works.Swap(w.Name) != w.Name {
			s.options.Logger.LogAttrs(
				ctx, slog.LevelInfo, "another node works, this one waits", slog.String("works", w.Name),
				slog.String("url", w.URL),
			)
		}
	})

	// Requests to a waiting node are short.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, h := range servers {
		if failed := h.Shutdown(end); failed != nil {
			err = errors.Join(err, h.Close())
		}
	}
	err = errors.Join(err, g.Wait())
	for _, l := range s.sockets {
		err = errors.Join(err, l.SetDeadline(time.Time{}))
	}
	return err
}

// lent is a listener that is used temporarily: Close ends its Accept, but leaves the listener open.
type lent struct {
	net.Listener

	sockets []*net.TCPListener
}

func (s *Server) lent(l net.Listener) net.Listener { return lent{l, s.sockets} }

// Close is part of net.Listener.
func (l lent) Close() error {
	var err error
	for _, socket := range l.sockets {
		err = errors.Join(err, socket.SetDeadline(time.Unix(1, 0)))
	}
	return err
}
