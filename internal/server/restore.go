package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/worker"
	"j17/internal/plane/control"
)

// restoration hands the deployed specs to the engine. It goes on while the server answers: an environment that was not
// tried yet is not ready, and one that cannot be restored holds up no other.
type restoration struct {
	server *Server
	stop   context.CancelFunc
	// all is closed when every environment was tried, ended when the restoration has ended.
	all, ended chan struct{}

	mu sync.Mutex
	// waiting are the environments that were not tried yet, failing those whose attempts have failed so far.
	waiting, failing map[j17.Tenant]bool
}

// environment is one environment of an instance.
type environment struct {
	instance string
	env      j17.Environment
}

const (
	// restoreTime is how long the start of a server waits for environments to be restored. Most servers have restored
	// all of them by then.
	restoreTime = 3 * time.Second
	// Pauses between attempts to restore an environment.
	firstRetry, longestRetry = time.Second, time.Minute
)

// restore begins to restore the environments that this server has, and waits up to restoreTime for them.
func (s *Server) restore(ctx context.Context) {
	r := &restoration{
		server: s, all: make(chan struct{}), ended: make(chan struct{}), waiting: map[j17.Tenant]bool{},
		failing: map[j17.Tenant]bool{},
	}
	environments := s.owned()
	for _, e := range environments {
		r.waiting[j17.TenantOf(e.instance, e.env)] = true
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	s.restoration = r
	go r.run(work, environments)

	wait, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	select {
	case <-r.all:
	case <-wait.Done():
		s.options.Logger.InfoContext(ctx, "environments are still being restored; the others are served meanwhile", slog.Int("environments", r.left()))
	}
}

// run restores environments until all are, or until ctx ends.
func (r *restoration) run(ctx context.Context, environments []environment) {
	defer close(r.ended)
	tried := func(e environment, again bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		t := j17.TenantOf(e.instance, e.env)
		delete(r.waiting, t)
		if r.failing[t] = true; !again {
			delete(r.failing, t)
		}
	}
	r.server.handover(tried, func() { close(r.all) }).run(ctx, environments)
}

// left returns how many environments were not tried yet.
func (r *restoration) left() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// of reports whether an environment was not tried yet, or could not be restored so far.
func (r *restoration) of(t j17.Tenant) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[t] || r.failing[t]
}

// close stops the restoration and waits for its end.
func (r *restoration) close() {
	if r != nil {
		r.stop()
		<-r.ended
	}
}

// handover hands the specs of environments to the engine. A failure holds up no other environment: it is logged, and
// the attempt is repeated until it succeeds.
type handover struct {
	hand   func(ctx context.Context, instance string, env j17.Environment) error
	worker *worker.Kit
	logger *slog.Logger
	// tried, if not nil, is called after each attempt with an environment, possibly concurrently; again reports whether
	// another attempt follows. all, if not nil, is called once, when each environment was tried once.
	tried func(e environment, again bool)
	all   func()
}

func (s *Server) handover(tried func(e environment, again bool), all func()) *handover {
	return &handover{hand: s.deploy.Adopt, worker: s.worker, logger: s.options.Logger, tried: tried, all: all}
}

// handoverWorkers is how many environments are handed over at a time, so that a slow one, such as one whose code has to
// be compiled, does not hold up all others.
const handoverWorkers = 4

// run hands over environments until all have succeeded or ctx ends.
func (h *handover) run(ctx context.Context, environments []environment) {
	ctx, done := context.WithCancel(ctx)
	defer done()
	h.worker.Every(ctx, worker.Loop{
		Name: "specs", Retry: worker.Backoff{First: firstRetry, Longest: longestRetry},
		Do: func(ctx context.Context) error {
			environments = h.round(ctx, environments)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if h.all != nil {
				h.all()
			}
			h.all = nil
			if len(environments) == 0 {
				done()
			}
			return leftOver(environments)
		},
	})
}

// leftOver is the error of a round in which some environments failed.
func leftOver(failed []environment) error {
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d environments could not be taken over", len(failed))
}

// round tries each environment once, in order and several at a time, and returns those that failed.
func (h *handover) round(ctx context.Context, environments []environment) []environment {
	failed := make([]bool, len(environments))
	var workers errgroup.Group
	workers.SetLimit(handoverWorkers)
	for i, e := range environments {
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() error {
			failed[i] = h.try(ctx, e)
			return nil
		})
	}
	_ = workers.Wait() // they return no errors
	var again []environment
	for i, e := range environments {
		if failed[i] {
			again = append(again, e)
		}
	}
	return again
}

// try hands over one environment, and reports whether it has to be tried again.
func (h *handover) try(ctx context.Context, e environment) bool {
	err := panics.Caught(func() error { return h.hand(ctx, e.instance, e.env) })
	again := ctx.Err() == nil && err != nil && j17.CodeOf(err) != j17.CodeNotFound // not found: it was deleted
	if h.tried != nil {
		h.tried(e, again)
	}
	if !again {
		return false
	}
	h.logger.LogAttrs(ctx, slog.LevelError, "a deployed spec could not be taken over; it is tried again",
		slog.String("instance", e.instance), slog.String("environment", string(e.env)), slog.Any("error", err))
	return true
}

// owned returns the environments that this server has.
func (s *Server) owned() []environment {
	var environments []environment
	for _, instance := range s.registry.Instances.All() {
		for _, env := range j17.Environments() {
			if s.owns(instance) {
				environments = append(environments, environment{instance.ID, env})
			}
		}
	}
	return environments
}

// restoreAll restores the environments and waits for all of them.
func (s *Server) restoreAll(ctx context.Context) error {
	var errs []error
	for _, e := range s.owned() {
		if err := s.deploy.Adopt(ctx, e.instance, e.env); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// owns reports whether this server has the events of an instance.
func (s *Server) owns(i control.Instance) bool {
	switch c := s.options.cluster; {
	case c == nil:
		return true
	case c.upstream == nil:
		return false
	default:
		return i.Node == c.node
	}
}
