package backup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/panics"
	"j17/internal/custody/backup/repository"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// job is a backup in progress, or one that has not begun.
type job struct {
	row *Backup
	// kind is the requested kind, "" for incremental if possible.
	kind repository.Kind
	// done and total count events, bytes what was newly stored.
	done, total atomic.Uint64
	bytes       atomic.Int64
	// began is when it has begun, remote reports that it goes to an object store. The service's mu guards them.
	began  time.Time
	remote bool
	// cut ends the work, with the reason; nil while it has not begun. cancelled reports that it was cancelled on
	// request, turns how often it has waited again. The service's mu guards them.
	cut       context.CancelCauseFunc
	cancelled bool
	turns     int
	// patient is until when a waiting job does not end the turns of others; the service's mu guards it.
	patient time.Time
	// to is its destination, nil until that is known. From before the moment of the backup until its row is completed,
	// erasures in its scope are noted there for it. The service's mu guards it.
	to *destination
	// ended is closed when all work on it has ended.
	ended chan struct{}
}

// destination is the place of a backup, and the recipients that can read it there.
type destination struct {
	place place
	seal  repository.Seal
}

// mostUnfinished is how many backups of one tenant may be in progress or wait.
const mostUnfinished = 4

// The reasons why a backup is interrupted.
var (
	errStopped   = errors.New("the server was stopped before the backup was finished")
	errCancelled = errors.New("the backup was cancelled")
	errTurn      = errors.New("others wait for their object stores")
)

// Create begins a backup of a tenant, and returns when it is certain to be made or to fail. With kind "" it is
// incremental if there is one to continue from.
func (s *Service) Create(ctx context.Context, t j17.Tenant, kind repository.Kind) (Backup, error) {
	b, err := s.create(ctx, t, kind)
	if err != nil {
		return Backup{}, failure(err)
	}
	details := map[string]string{"storage": b.Storage()}
	if kind != "" {
		details["kind"] = string(kind)
	}
	instance, env := split(t)
	return *b, s.Registry.Audit.Add(ctx, control.Record{
		Action: "backup.create", Instance: instance, Environment: env, Target: b.ID, Details: details,
	})
}

func (s *Service) create(ctx context.Context, t j17.Tenant, kind repository.Kind) (*Backup, error) {
	// Check whether there is room for it.
	s.mu.Lock()
	unfinished := 0
	if s.active[t] != nil {
		unfinished++
	}
	for _, j := range s.waiting {
		if j.row.Scope == t {
			unfinished++
		}
	}
	s.mu.Unlock()
	if unfinished >= mostUnfinished {
		return nil, j17.Errorf(j17.CodeConflict, "%d backups are under way or wait already. Wait until one of them is completed, or delete one.", unfinished)
	}

	// Find its kind and destination, as far as they are known.
	set, _, err := s.settings.load(ctx, instanceOf(t))
	if err != nil {
		return nil, err
	}
	seal, err := s.sealOf(ctx, t, &set)
	if err != nil {
		return nil, err
	}
	b := &Backup{
		ID: s.mint.Handle(ident.BackupPrefix), Status: Running, Scope: t, Kind: kind, Encrypted: seal.Encrypted(),
		CreatedAt: s.Clock.Now().UTC().Truncate(time.Millisecond), Place: s.places.of(&set), key: s.mint.UUIDv7(),
	}
	if kind != repository.Full {
		b.Kind = repository.Full
		parents, err := s.parents(ctx, b)
		if err != nil {
			return nil, err
		}
		if len(parents) > 0 {
			b.Kind = repository.Incremental
		}
	}

	// It is recorded before it is signalled, so that a process can find it after a crash.
	row, err := b.put()
	if err != nil {
		return nil, err
	}
	mark := store.Side{Op: store.Put, Space: unfinishedSpace, Key: string(t), Value: []byte("{}")}
	if err := s.Store.Write(ctx, j17.System, []store.Side{mark}); err != nil {
		return nil, err
	}
	id := store.Side{Op: store.Put, Space: idSpace, Key: b.ID, Value: []byte(b.key)}
	if err := s.Store.Write(ctx, t, []store.Side{row, id}); err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	shown := *b
	s.waiting = append(s.waiting, &job{row: b, kind: kind, remote: b.Place.S3 != nil, ended: make(chan struct{})})
	s.signal()
	return &shown, nil
}

// signal reports that a job may begin. The caller holds mu.
func (s *Service) signal() {
	select {
	case s.more <- struct{}{}:
	default: // signalled already
	}
}

// next waits for a job and does it.
func (s *Service) next(ctx context.Context) error {
	for {
		j, work, again := s.take(ctx)
		if j != nil {
			s.do(ctx, work, j)
			return nil
		}
		if ctx.Err() != nil {
			return s.leave(ctx)
		}
		s.awaitMore(ctx, again)
	}
}

// awaitMore waits until a job may begin, and no longer than until a given time if that is not zero.
func (s *Service) awaitMore(ctx context.Context, until time.Time) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan struct{})
	if !until.IsZero() {
		go func() {
			defer close(over)
			_ = s.Clock.Wait(waiting, until) // the queue is checked again in either case
		}()
	}
	select {
	case <-s.more:
	case <-over:
	case <-ctx.Done():
	}
}

// take takes a job whose instance has none in progress: the first of the instance that has waited longest for its turn.
// A job for an object store waits while mostRemote of them are in progress. If there is none, again is when one may
// begin without the end of another, the zero time for never.
func (s *Service) take(ctx context.Context) (_ *job, _ context.Context, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || len(s.waiting) == 0 || len(s.active) >= most {
		return nil, nil, again
	}

	// Check whether there is room for one.
	now, counted, remote, busy := s.Clock.Now(), 0, 0, map[string]bool{}
	for t, j := range s.active {
		busy[instanceOf(t)] = true
		if j.remote {
			remote++
		}
		slow := j.began.Add(slowAfter)
		if j.remote && !now.Before(slow) {
			continue
		}
		if counted++; j.remote {
			again = earlier(again, slow)
		}
	}
	if counted >= atOnce {
		return nil, nil, again
	}

	// Find whose turn it is.
	at, crowded := -1, false
	var patient time.Time // until when all of them are patient
	for i, j := range s.waiting {
		instance := instanceOf(j.row.Scope)
		if j.remote && remote >= mostRemote {
			if !busy[instance] && (!crowded || j.patient.Before(patient)) {
				crowded, patient = true, j.patient
			}
			continue
		}
		if !busy[instance] && (at < 0 || s.turns[instance] < s.turns[instanceOf(s.waiting[at].row.Scope)]) {
			at = i
		}
	}
	if at < 0 {
		switch {
		case !crowded:
			return nil, nil, time.Time{}
		case now.Before(patient):
			return nil, nil, patient
		}
		return nil, nil, s.endTurn(now)
	}
	j := s.waiting[at]
	s.waiting = slices.Delete(s.waiting, at, at+1)
	s.active[j.row.Scope] = j
	s.begun++
	s.turns[instanceOf(j.row.Scope)] = s.begun
	if len(s.waiting) > 0 {
		s.signal() // for another worker
	}
	var work context.Context
	work, j.cut = context.WithCancelCause(ctx)
	j.began = now
	return j, work, again
}

// endTurn ends the turn of a backup that has used its object store for as long as it may while others wait for theirs,
// and returns when the next turn ends. The caller holds mu.
func (s *Service) endTurn(now time.Time) (next time.Time) {
	var over *job
	for _, j := range s.active {
		if !j.remote {
			continue
		}
		ends := j.turnEnds()
		if now.Before(ends) {
			next = earlier(next, ends)
		} else if over == nil || ends.Before(over.turnEnds()) {
			over = j
		}
	}
	if over == nil {
		return next
	}
	over.cut(errTurn)
	return time.Time{} // its end is signalled
}

// turnEnds is until when a backup may use its object store if others wait.
func (j *job) turnEnds() time.Time { return j.began.Add(turnTime << min(j.turns, mostTurns)) }

// leave ends the jobs that have not begun when the server stops.
func (s *Service) leave(ctx context.Context) error {
	s.mu.Lock()
	left := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, j := range left {
		s.end(context.WithoutCancel(ctx), j, errStopped)
		close(j.ended)
	}
	return nil
}

// do makes the backup of a job and records its outcome, or makes it wait again.
func (s *Service) do(loop, ctx context.Context, j *job) {
	err := panics.Logged(ctx, s.Logger, "backup "+j.row.ID, func() error { return s.make(ctx, j) })
	if err != nil && errors.Is(context.Cause(ctx), errTurn) && s.waitAgain(loop, j) {
		return
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		s.mu.Lock()
		cancelled := j.cancelled
		s.mu.Unlock()
		if err = errStopped; cancelled || errors.Is(cause, errCancelled) {
			err = errCancelled
		}
	}
	j.cut(nil)
	s.end(context.WithoutCancel(ctx), j, err)

	s.mu.Lock()
	delete(s.active, j.row.Scope)
	close(j.ended)
	s.signal()
	s.collector.resume()
	s.mu.Unlock()
}

// waitAgain puts a job behind those that wait, unless it must not continue.
func (s *Service) waitAgain(loop context.Context, j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.cancelled || loop.Err() != nil {
		return false
	}
	delete(s.active, j.row.Scope)
	j.cut, j.to, j.turns = nil, nil, j.turns+1
	// Otherwise jobs whose turns ended would end each other's turns in quick succession.
	j.patient = s.Clock.Now().Add(turnTime)
	j.done.Store(0)
	j.total.Store(0)
	j.row.Moments = nil
	s.waiting = append(s.waiting, j)
	s.signal()
	return true
}

// maxError bounds the text of a stored error, in bytes.
const maxError = 1000

// saidScope is the scope of a backup as shown in lists.
func saidScope(t j17.Tenant) string {
	if t == j17.System {
		return string(repository.OfServer)
	}
	return string(t)
}

// end records the outcome of a job.
func (s *Service) end(ctx context.Context, j *job, err error) {
	b := *j.row
	b.CompletedAt = s.Clock.Now().UTC().Truncate(time.Millisecond)
	b.Done, b.Total, b.Bytes = j.done.Load(), j.total.Load(), j.bytes.Load()
	b.Status = Completed
	at := []slog.Attr{
		slog.String("backup", b.ID), slog.String("of", saidScope(b.Scope)), slog.String("storage", b.Storage()),
	}
	switch {
	case errors.Is(err, errCancelled):
		b.Status, b.Error, b.Moments = Failed, err.Error(), nil
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "a backup was cancelled", at...)
	case err != nil:
		b.Status, b.Moments = Failed, nil
		b.Error = strings.ToValidUTF8(err.Error(), "?")
		if len(b.Error) > maxError {
			b.Error = strings.ToValidUTF8(b.Error[:maxError], "")
		}
		s.counts.failed.Add(1)
		s.Logger.LogAttrs(ctx, slog.LevelError, "a backup has failed", append(at, slog.Any("error", err))...)
	default:
		s.counts.completed.Add(1)
		s.counts.bytes.Add(uint64(max(b.Bytes, 0)))
		s.completed(&b)
		s.Logger.LogAttrs(ctx, slog.LevelInfo, "a backup is completed",
			append(at, slog.String("kind", string(b.Kind)), slog.Int64("bytes", b.Bytes),
				slog.Duration("took", b.CompletedAt.Sub(b.CreatedAt)))...)
	}

	// It is stored even on a full disk, and its tenant is checked again.
	row, failed := b.put()
	if failed == nil {
		failed = s.Store.WriteFreeing(ctx, b.Scope, []store.Side{row})
	}
	if failed == nil {
		failed = s.touch(ctx, b.Scope)
	}
	if failed != nil {
		s.Logger.LogAttrs(ctx, slog.LevelError, "what has become of a backup could not be noted; after a restart it counts as failed", append(at, slog.Any("error", failed))...)
	}
}

// Delete removes a backup of a tenant. One in progress is cancelled. Parts that no other backup needs are removed
// later.
func (s *Service) Delete(ctx context.Context, t j17.Tenant, id string) error {
	b, err := s.rows.find(ctx, t, id)
	if err != nil {
		return failure(err)
	}

	// Once begun it is carried out, even if the caller no longer waits for it. A cancelled backup may have been
	// completed just before.
	ctx = context.WithoutCancel(ctx)
	s.cancel(ctx, b)
	if b, err = s.rows.find(ctx, t, id); err != nil {
		return failure(err)
	}
	if err := s.remove(ctx, b); err != nil {
		return failure(err)
	}
	instance, env := split(t)
	return s.Registry.Audit.Add(ctx, control.Record{
		Action: "backup.delete", Instance: instance, Environment: env, Target: id,
		Details: map[string]string{"storage": b.Storage()},
	})
}

// cancel ends the job of a backup, if there is one, and waits for its end. Its row has failed then, unless it was
// completed first.
func (s *Service) cancel(ctx context.Context, b *Backup) {
	s.mu.Lock()
	if at := slices.IndexFunc(s.waiting, func(j *job) bool { return j.row.ID == b.ID }); at >= 0 {
		j := s.waiting[at]
		s.waiting = slices.Delete(s.waiting, at, at+1)
		s.mu.Unlock()
		s.end(ctx, j, errCancelled)
		close(j.ended)
		return
	}
	j := s.active[b.Scope]
	if j == nil || j.row.ID != b.ID {
		s.mu.Unlock()
		return
	}
	j.cancelled = true
	j.cut(errCancelled)
	s.mu.Unlock()
	<-j.ended
}

// remove removes a backup that is not in progress: first from its place, then from the list.
func (s *Service) remove(ctx context.Context, b *Backup) error {
	if b.Status != Failed || b.Left {
		if err := s.removeThere(ctx, b); err != nil {
			return j17.Errorf(j17.CodeUnavailable, "The backup cannot be removed from %s: %s", b.Storage(), err.Error()).Because(err)
		}
	}
	if err := s.Store.WriteFreeing(ctx, b.Scope, b.removed()); err != nil {
		return err
	}
	s.collector.loosen(b)
	return nil
}

// removeThere removes a backup from its place. It may be gone already.
func (s *Service) removeThere(ctx context.Context, b *Backup) error {
	set, _, err := s.settings.load(ctx, instanceOf(b.Scope))
	if err != nil {
		return err
	}
	repo, err := s.places.open(b.Place, &set)
	if err == nil && b.Left { // the mark of its writer may be left too, which blocks collection
		err = repo.Abandon(ctx, b.ID)
	}
	if err == nil {
		err = repo.Delete(ctx, b.ID)
	}
	if errors.Is(err, repository.ErrNotFound) {
		return nil
	}
	return err
}

// clear removes what a failed backup may have left.
func (s *Service) clear(ctx context.Context, b *Backup) error {
	if err := s.removeThere(ctx, b); err != nil {
		return err
	}
	s.collector.loosen(b)
	b.Left = false
	row, err := b.put()
	if err != nil {
		return err
	}
	row.Cond, row.Rev = store.IfRev, b.rev
	err = s.Store.WriteFreeing(ctx, b.Scope, []store.Side{row})
	if _, removed := errors.AsType[*store.SideConflict](err); removed {
		return nil
	}
	return err
}

// endInterrupted marks the backups as failed that were not finished when the previous process ended.
func (s *Service) endInterrupted(ctx context.Context) error {
	for {
		marks, err := s.Store.Scan(ctx, j17.System, unfinishedSpace, store.Range{}, rowPage)
		if err != nil || len(marks) == 0 {
			return err
		}
		for _, mark := range marks {
			t := j17.Tenant(mark.Key)
			if err := s.endInterruptedOf(ctx, t); err != nil {
				return err
			}
			done := store.Side{Op: store.Delete, Space: unfinishedSpace, Key: mark.Key}
			if err := s.Store.WriteFreeing(ctx, j17.System, []store.Side{done}); err != nil {
				return err
			}
		}
	}
}

func (s *Service) endInterruptedOf(ctx context.Context, t j17.Tenant) error {
	var interrupted []*Backup
	looked := 0
	err := s.rows.each(ctx, t, func(b *Backup) bool { // They are among the latest.
		if b.Status == Running {
			interrupted = append(interrupted, b)
		}
		looked++
		return looked < rowPage
	})
	if err != nil {
		return err
	}
	for _, b := range interrupted {
		b.Status, b.Error, b.CompletedAt = Failed, errStopped.Error(), s.Clock.Now().UTC().Truncate(time.Millisecond)
		if b.Place.S3 == nil {
			s.endInFolder(ctx, b)
		} else {
			b.Left = true // the start does not wait for an object store
		}
		row, err := b.put()
		if err != nil {
			return err
		}
		if err := s.Store.WriteFreeing(ctx, t, []store.Side{row}); err != nil {
			return err
		}
		if b.Left {
			if err := s.touch(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// endInFolder cleans up after an interrupted backup in a folder. One that has its manifest is complete: its process has
// ended before it could record that. The mark of its writer blocks collection; if it cannot be removed now, it expires.
func (s *Service) endInFolder(ctx context.Context, b *Backup) {
	repo := repository.OpenFolder(b.Place.Folder, s.Clock)
	if err := repo.Abandon(ctx, b.ID); err != nil {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "what a crash has left of a backup could not be removed", slog.String("backup", b.ID), slog.Any("error", err))
	}
	m, err := repo.Manifest(ctx, b.ID)
	if err != nil {
		return // it has failed, whatever is there
	}
	b.Status, b.Error, b.CompletedAt = Completed, "", m.CompletedAt
	b.Kind, b.Parent, b.Encrypted, b.Bytes, b.Moments = m.Kind, m.Parent, m.Encrypted(), m.Bytes, nil
	for i := range m.Tenants {
		of := &m.Tenants[i].TenantHead
		b.Done, b.Total = b.Done+of.Size, b.Total+of.Size
		if of.Tenant != j17.System {
			b.Moments = append(b.Moments, Moment{
				Tenant: of.Tenant, Position: of.Position, Size: of.Size, Root: of.Root[:],
			})
		}
	}
}
