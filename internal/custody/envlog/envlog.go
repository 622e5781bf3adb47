// Package envlog keeps a log of each environment: one tree of RFC 6962 over the leaves of all of its events in the
// order of the feed. Events that are erased keep their leaves in it, so it only ever grows. It is built from the feed
// after commits, and signed on request.
//
// The decisions behind it are in docs/internals/custody.md.
package envlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Storage is what logs are made from and kept in.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
}

// Options configures a Service. All fields are required unless they say otherwise.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Worker *worker.Kit
	// Origin names the log of an environment, when its first key is made.
	Origin func(j17.Tenant) (string, error)
	// Anchor, if not nil, keeps signed heads elsewhere: lines of JSON, each with its line feed. After a failure it gets
	// the same head again.
	Anchor func(ctx context.Context, lines []byte) error
}

// Service provides the logs of all environments. It is safe for concurrent use.
type Service struct {
	Options

	mu    sync.Mutex
	logs  map[j17.Tenant]*log
	round uint64
}

// New returns a service.
func New(o Options) *Service { return &Service{Options: o, logs: map[j17.Tenant]*log{}} }

// Head is the head of a log.
type Head struct {
	// Size is the number of events, Root that of the tree.
	Size uint64
	Root [sha256.Size]byte
	// Position is that of the last event; zero if there is none.
	Position j17.StreamID
}

// ErrBeyond is the error of a request about a tree that is larger than the log, or about an event that is not in the
// tree.
var ErrBeyond = errors.New("envlog: the log does not reach that far")

// Head returns the head of a log. It covers every event that was acknowledged before the call.
func (s *Service) Head(ctx context.Context, t j17.Tenant) (head Head, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		head = Head{Size: r.log.size, Position: r.log.last}
		head.Root, err = r.root(head.Size)
		return err
	})
	return head, err
}

// HeadAt returns the head that a log had when the event at a position, or the last one before it, was its last one.
func (s *Service) HeadAt(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (head Head, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		found, err := r.log.find(ctx, upTo)
		if err != nil {
			return err
		}
		head = Head{Size: found.upTo, Position: found.last}
		head.Root, err = r.root(head.Size)
		return err
	})
	return head, err
}

// Inclusion proves that a log has an event.
type Inclusion struct {
	Index, Size uint64
	Leaf, Root  [sha256.Size]byte
	Proof       [][sha256.Size]byte
}

// Include proves that the log has a leaf at an index, counted from 0, in the tree of size leaves; nil means the current
// tree.
func (s *Service) Include(ctx context.Context, t j17.Tenant, index uint64, size *uint64) (p Inclusion, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		p, err = r.include(index, size)
		return err
	})
	return p, err
}

// IncludeEvent is Include for the event at a position.
func (s *Service) IncludeEvent(
	ctx context.Context, t j17.Tenant, id j17.StreamID, size *uint64,
) (p Inclusion, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		found, err := r.log.find(ctx, id)
		if err != nil {
			return err
		}
		if found.last != id || found.upTo == 0 {
			return ErrBeyond
		}
		p, err = r.include(found.upTo-1, size)
		return err
	})
	return p, err
}

// Consistency proves that a log has only grown.
type Consistency struct {
	From, To         uint64
	FromRoot, ToRoot [sha256.Size]byte
	Proof            [][sha256.Size]byte
}

// Extend proves that the tree of size to, nil for the current one, begins with that of size from.
func (s *Service) Extend(ctx context.Context, t j17.Tenant, from uint64, to *uint64) (p Consistency, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		p, err = r.extend(from, to)
		return err
	})
	return p, err
}

// Behind returns how many events a log does not have yet. A request for the head of the log waits for them.
func (s *Service) Behind(ctx context.Context, t j17.Tenant) (events uint64, err error) {
	l, leave, err := s.enter(ctx, t)
	if err != nil {
		return 0, err
	}
	defer leave()
	extent, err := l.extent(ctx)
	return extent.Events - min(extent.Events, l.size), err
}

// with calls do with the tree of a log that has every event acknowledged before the call.
func (s *Service) with(ctx context.Context, t j17.Tenant, do func(*tree) error) error {
	l, leave, err := s.enter(ctx, t)
	if err != nil {
		return err
	}
	defer leave()
	if err := l.catchUp(ctx); err != nil {
		return err
	}
	r, err := l.tree(ctx)
	if err != nil {
		return err
	}
	return do(r)
}

// mostLogs is how many logs are kept in memory. Each takes some 20 KB.
const mostLogs = 1000

// enter returns the log of a tenant, as far as it is known, for exclusive use until leave is called.
func (s *Service) enter(ctx context.Context, t j17.Tenant) (l *log, leave func(), err error) {
	// A log with waiting callers is not removed from memory.
	s.mu.Lock()
	if l = s.logs[t]; l == nil {
		l = &log{service: s, tenant: t, turn: make(chan struct{}, 1)}
		s.logs[t] = l
	}
	l.users++
	s.round++
	l.used = s.round
	s.forget()
	s.mu.Unlock()
	left := func() {
		s.mu.Lock()
		l.users--
		s.mu.Unlock()
	}

	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		left()
		return nil, nil, ctx.Err()
	}
	leave = func() {
		<-l.turn
		left()
	}
	return l, leave, nil
}

// forget removes the log that was unused for the longest time from memory, if there are too many. s.mu is held.
func (s *Service) forget() {
	if len(s.logs) <= mostLogs {
		return
	}
	var oldest *log
	for _, l := range s.logs {
		if l.users == 0 && (oldest == nil || l.used < oldest.used) {
			oldest = l
		}
	}
	if oldest != nil {
		delete(s.logs, oldest.tenant)
	}
}

// damage is the error of a damaged log.
func damage(t j17.Tenant, what string, args ...any) error {
	return &store.CorruptionError{Where: "the log of proofs of " + string(t), Err: fmt.Errorf(what, args...)}
}
