package checkpoint

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/panics"
	"j17/internal/base/wire"
	"j17/internal/storage/store"
)

// The states of a checkpoint.
const (
	running   = "running"
	completed = "completed"
	failed    = "failed"
)

const (
	// atOnce is how many checkpoints are made in the background at a time, mostUnfinished how many of one environment
	// may be in progress or wait there.
	atOnce         = 2
	mostUnfinished = 4
	// mostFailed is how many failed background checkpoints are remembered.
	mostFailed = 100
)

// making is a checkpoint in progress. Its states become visible only at its end, and are removed if this process does
// not reach that.
type making struct {
	tenant j17.Tenant
	ask    wire.NewCheckpoint
	first  *States
	// begun is the checkpoint at its beginning, made its progress, which belongs to the goroutine that makes it.
	begun wire.Checkpoint
	made  row
	// background reports that no caller waits for it.
	background bool
	// done and total count the aggregates.
	done, total atomic.Uint64
	// cancelled is closed when it is cancelled, ended when all work on it has ended.
	cancelled, ended chan struct{}
	// given is set if it will not be completed, and err says why. The service's mu guards them, and the closing of
	// cancelled.
	given bool
	err   error
}

// shown is the checkpoint as clients see it.
func (m *making) shown() wire.Checkpoint {
	c, done := m.begun, m.done.Load()
	c.Aggregates, c.Progress = done, &wire.CheckpointProgress{Done: done, Total: max(m.total.Load(), done)}
	if m.err != nil {
		c.Status, c.Error = failed, told(m.err)
	}
	return c
}

// isCancelled reports whether the checkpoint was cancelled.
func (m *making) isCancelled() bool {
	select {
	case <-m.cancelled:
		return true
	default:
		return false
	}
}

// told returns the part of an error that may be shown.
func told(err error) string {
	if e, ok := errors.AsType[*j17.Error](err); ok {
		return e.Message
	}
	return "The server has failed to make it; its log says why."
}

// errCancelled is the error of a cancelled checkpoint.
func errCancelled() error { return j17.Errorf(j17.CodeConflict, "The checkpoint was cancelled.") }

// Create keeps the states that aggregates have now. It takes as long as folding them; if ctx ends nothing is kept.
func (s *Service) Create(ctx context.Context, t j17.Tenant, ask wire.NewCheckpoint) (wire.Checkpoint, error) {
	m, err := s.begin(ctx, t, ask, false)
	if err != nil {
		return wire.Checkpoint{}, err
	}
	s.make(ctx, m)
	return m.made.Checkpoint, m.err
}

// Start is Create in the background: it returns when it is certain that the checkpoint will be made, or fail. Get shows
// its progress.
func (s *Service) Start(ctx context.Context, t j17.Tenant, ask wire.NewCheckpoint) (wire.Checkpoint, error) {
	m, err := s.begin(ctx, t, ask, true)
	if err != nil {
		return wire.Checkpoint{}, err
	}
	shown := m.shown()
	s.mu.Lock()
	s.waiting = append(s.waiting, m)
	s.mu.Unlock()
	s.signal()
	return shown, nil
}

// signal wakes the goroutines that make waiting checkpoints.
func (s *Service) signal() {
	select {
	case s.more <- struct{}{}:
	default: // all are notified already
	}
}

// begin determines the scope of a checkpoint, and plans the removal of its states, which takes place if this process
// does not finish it.
func (s *Service) begin(ctx context.Context, t j17.Tenant, ask wire.NewCheckpoint, background bool) (*making, error) {
	if err := s.admit(ctx, t, ask.Name); err != nil {
		return nil, err
	}
	first, err := s.wanted(ctx, t, &ask)
	if err != nil {
		return nil, err
	}
	m := &making{
		tenant: t, ask: ask, first: first, background: background, cancelled: make(chan struct{}),
		ended: make(chan struct{}),
	}
	m.made = rowOf(first)
	m.made.ID, m.made.Name, m.made.Status, m.made.CreatedAt, m.made.Position = s.mint.Handle(ident.CheckpointPrefix),
		ask.Name, running, s.now(), first.Position().PositionText()
	m.begun = m.made.Checkpoint
	if err := s.enter(m); err != nil {
		return nil, err
	}
	if err := s.plan(ctx, t, &m.made); err != nil {
		s.mu.Lock()
		m.background = false // the caller gets the error directly
		s.mu.Unlock()
		s.leave(m, err)
		return nil, err
	}
	return m, nil
}

// enter adds a checkpoint to those in progress.
func (s *Service) enter(m *making) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, other := range s.making {
		if other.background && other.tenant == m.tenant {
			n++
		}
	}
	if m.background && n >= mostUnfinished {
		return j17.Errorf(j17.CodeConflict, "%d checkpoints are being made or wait already. Wait until one of them is completed, or delete one.", n)
	}
	s.making[m.made.ID] = m
	return nil
}

// leave removes it from these. A failed background checkpoint is remembered.
func (s *Service) leave(m *making, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.making, m.made.ID)
	m.first = nil // states hold on to what folds them
	if m.err = err; err != nil && m.background {
		s.failed = append(s.failed, m)
		s.failed = s.failed[max(0, len(s.failed)-mostFailed):]
	}
	close(m.ended)
}

// next makes waiting checkpoints, until there are none.
func (s *Service) next(ctx context.Context) error {
	for ctx.Err() == nil {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.mu.Unlock()
			return nil
		}
		m := s.waiting[0]
		s.waiting = s.waiting[1:]
		left := len(s.waiting)
		s.mu.Unlock()
		if left > 0 {
			s.signal() // for another goroutine
		}
		if s.make(ctx, m); m.err != nil && !m.isCancelled() {
			s.Logger.LogAttrs(
				ctx, slog.LevelError, "a checkpoint could not be made", slog.String("checkpoint", m.made.ID),
				slog.String("tenant", string(m.tenant)), slog.Any("error", m.err),
			)
		}
	}
	return nil
}

// make makes a checkpoint, unless it is cancelled.
func (s *Service) make(ctx context.Context, m *making) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-m.cancelled:
			stop()
		case <-work.Done():
		}
	}()
	err := errCancelled()
	if !m.isCancelled() {
		err = panics.Logged(
			work, s.Logger, "making checkpoint "+m.made.ID+" of "+string(m.tenant),
			func() error { return s.keep(work, m) },
		)
	}
	if err != nil {
		if m.isCancelled() {
			err = errCancelled()
		}
		s.mu.Lock()
		m.given = true // its states may be removed
		s.mu.Unlock()
		err = errors.Join(err, s.giveUp(ctx, m.tenant, m.made.ID))
	}
	s.leave(m, err)
}

// keep gathers the states of a checkpoint, again from the beginning if some were erased meanwhile, and lists it.
func (s *Service) keep(ctx context.Context, m *making) error {
	total, err := m.first.count(ctx)
	if err != nil {
		return err
	}
	m.total.Store(total)
	err = s.gather(ctx, m, m.first)
	for range keepAttempts - 1 {
		if !errors.Is(err, errErased) {
			break
		}
		var again *States
		if again, err = s.wanted(ctx, m.tenant, &m.ask); err != nil {
			break
		}
		if !slices.Equal(rowOf(again).Types, m.made.Types) { // its removal is planned for the first types
			err = j17.Errorf(j17.CodeBusy, "Events were erased while their states were gathered, and a spec with other types was deployed. Try again.")
			break
		}
		err = s.gather(ctx, m, again)
	}
	if errors.Is(err, errErased) {
		err = j17.Errorf(j17.CodeBusy, "Events were erased again and again while their states were gathered. Try again in a moment.")
	}
	if err == nil {
		m.made.Status = completed
		err = s.addNamed(ctx, m.tenant, &m.made)
	}
	return err
}

// count returns how many aggregates exist now; the states are those of the ones that existed at their moment.
func (x *States) count(ctx context.Context) (n uint64, err error) {
	if x.only != (j17.Key{}) {
		return 1, nil
	}
	for _, typ := range x.types {
		for after, more := "", true; more; {
			ids, err := x.s.Store.Streams(ctx, x.t, typ, after, countPage)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return 0, store.UserError(err)
			}
			if more = len(ids) == countPage; len(ids) > 0 {
				after = ids[len(ids)-1]
			}
			n += uint64(len(ids))
		}
	}
	return n, nil
}

// unfinished returns the checkpoints of an environment that are in progress or have failed in the background, the
// newest first.
func (s *Service) unfinished(t j17.Tenant) (all []wire.Checkpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.making {
		if m.tenant == t {
			all = append(all, m.shown())
		}
	}
	for _, m := range s.failed {
		if m.tenant == t {
			all = append(all, m.shown())
		}
	}
	slices.SortFunc(all, func(a, b wire.Checkpoint) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all
}

// unfinishedOne returns one of these by its id.
func (s *Service) unfinishedOne(t j17.Tenant, id string) (wire.Checkpoint, bool) {
	all := s.unfinished(t)
	at := slices.IndexFunc(all, func(c wire.Checkpoint) bool { return c.ID == id })
	if at < 0 {
		return wire.Checkpoint{}, false
	}
	return all[at], true
}

// cancel ends the making of a checkpoint and waits for that, or forgets a failed one; nil if there is none, or it was
// completed first.
func (s *Service) cancel(ctx context.Context, t j17.Tenant, id string) (*wire.Checkpoint, error) {
	s.mu.Lock()
	m := s.making[id]
	if m == nil || m.tenant != t {
		at := slices.IndexFunc(s.failed, func(m *making) bool { return m.tenant == t && m.made.ID == id })
		if at < 0 {
			s.mu.Unlock()
			return nil, nil //nolint:nilnil // stated
		}
		shown := s.failed[at].shown()
		s.failed = slices.Delete(s.failed, at, at+1)
		s.mu.Unlock()
		return &shown, nil
	}
	if !m.isCancelled() {
		close(m.cancelled)
	}
	at := slices.Index(s.waiting, m)
	if at >= 0 {
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	s.mu.Unlock()
	if at >= 0 {
		s.make(ctx, m) // this ends at once
	}
	select {
	case <-m.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.err == nil {
		return nil, nil //nolint:nilnil // stated
	}
	shown := m.shown()
	s.mu.Lock()
	s.failed = slices.DeleteFunc(s.failed, func(other *making) bool { return other == m })
	s.mu.Unlock()
	return &shown, nil
}
