package backup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// make makes the backup of a job from the current data.
func (s *Service) make(ctx context.Context, j *job) error {
	// Its destination and recipients, by the current settings.
	set, _, err := s.settings.load(ctx, instanceOf(j.row.Scope))
	if err != nil {
		return err
	}
	if err := s.settlePlace(ctx, j, &set); err != nil {
		return err
	}
	repo, err := s.places.open(j.row.Place, &set)
	if err != nil {
		return err
	}
	seal, err := s.sealOf(ctx, j.row.Scope, &set)
	if err != nil {
		return err
	}
	parent, err := s.parent(ctx, repo, j.row, seal)
	if err != nil {
		return err
	}
	j.row.Encrypted, j.row.Kind, j.row.Parent = seal.Encrypted(), repository.Full, ""
	if j.kind != repository.Full && parent != nil {
		j.row.Kind, j.row.Parent = repository.Incremental, parent.ID
	}

	// Its scope, and its first file, which waits until no parts are removed at its place.
	scope, tenants, err := s.covered(ctx, j.row.Scope)
	if err != nil {
		return err
	}
	pace, err := s.newPace(ctx, j.row.Place)
	if err != nil {
		return err
	}
	gate := s.collector.gate(j.row.Place)
	if err := enter(ctx, gate); err != nil {
		return err
	}
	defer gate.RUnlock()
	s.mu.Lock()
	j.to = &destination{j.row.Place, seal}
	s.mu.Unlock()
	w, err := repo.NewBackup(ctx, repository.Head{
		ID: j.row.ID, Scope: scope, Kind: j.row.Kind, Parent: j.row.Parent, CreatedAt: j.row.CreatedAt,
		Program: s.Program, Seal: seal,
	})
	if err != nil {
		return err
	}
	defer w.Abort()

	// Each tenant, and then the manifest, which makes the backup complete.
	p := &pass{Service: s, job: j, repo: repo, writer: w, pace: pace}
	finished := false
	defer func() {
		if !finished || p.dropped {
			s.collector.loosen(j.row) // some of its parts may be stored
		}
	}()
	j.row.Moments = nil
	for _, t := range tenants {
		if err := p.tenant(ctx, t, parent); err != nil {
			return err
		}
	}

	m, err := w.Finish(s.Clock.Now().UTC())
	j.bytes.Store(m.Bytes)
	finished, j.row.Left = err == nil, errors.Is(err, repository.ErrDoubt)
	return err
}

// settlePlace sets the destination of a job's backup by its settings, and stores it if it has changed.
func (s *Service) settlePlace(ctx context.Context, j *job, set *Settings) error {
	to := s.places.of(set)
	moved := !to.same(j.row.Place)
	if moved && j.row.Left { // the other place would be forgotten
		return errMoved
	}
	j.row.Place = to
	if moved { // after a crash the row says where to look
		row, err := j.row.put()
		if err == nil {
			err = s.Store.WriteFreeing(ctx, j.row.Scope, []store.Side{row})
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.remote = to.S3 != nil
	return nil
}

// covered returns the scope of a backup and its tenants, the registry last: so the environments of every instance in
// the registry are in the backup as well.
func (s *Service) covered(ctx context.Context, of j17.Tenant) (repository.Scope, []j17.Tenant, error) {
	if of != j17.System {
		return repository.OfEnvironment, []j17.Tenant{of}, nil
	}
	tenants, err := s.tenants(ctx)
	return repository.OfServer, tenants, err
}

// errMoved is the error of a backup that waits again and may have been stored in its last turn, when backups now go to
// another place.
var errMoved = errors.New("backups go to another place since its last turn, which may have stored it at the one before. What is there is removed; make another one")

// gateLook is how often it is checked whether parts are still being removed at the place of a backup.
const gateLook = 100 * time.Millisecond

// enter waits until no parts are removed at a place, or the context ends: if an object store hangs, that can take a
// while.
func enter(ctx context.Context, gate *sync.RWMutex) error {
	for real := (clock.System{}); !gate.TryRLock(); {
		if err := real.Wait(ctx, real.Now().Add(gateLook)); err != nil {
			return err
		}
	}
	return nil
}

// tenants lists the tenants in a backup of the server.
func (s *Service) tenants(ctx context.Context) ([]j17.Tenant, error) {
	all, err := s.Store.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	of := make([]j17.Tenant, 0, len(all)+1)
	for _, t := range all {
		if _, known := s.Registry.Instances.ByID(instanceOf(t)); known {
			of = append(of, t)
		}
	}
	return append(of, j17.System), nil
}

// parents lists the completed backups of a row's tenant that are at its place, the newest first.
func (s *Service) parents(ctx context.Context, of *Backup) ([]*Backup, error) {
	var all []*Backup
	err := s.rows.each(ctx, of.Scope, func(b *Backup) bool {
		if b.Status == Completed && b.Encrypted == of.Encrypted && b.Place.same(of.Place) {
			all = append(all, b)
		}
		return len(all) < mostParents
	})
	return all, err
}

// mostParents is how many backups are tried as the parent: their files may be gone.
const mostParents = 3

// parent returns the newest backup that one can continue from, nil if there is none.
func (s *Service) parent(
	ctx context.Context, repo *repository.Repository, of *Backup, seal repository.Seal,
) (*repository.Manifest, error) {
	row := *of
	row.Encrypted = seal.Encrypted()
	all, err := s.parents(ctx, &row)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		m, err := repo.Manifest(ctx, b.ID)
		damaged, isDamaged := errors.AsType[*repository.DamagedError](err)
		switch {
		case errors.Is(err, repository.ErrNotFound):
		case isDamaged:
			s.Logger.WarnContext(ctx, "a backup is damaged; the next one does not go on from it", slog.String("backup", b.ID), slog.Any("error", damaged))
		case err != nil:
			return nil, err
		case slices.Equal(m.Recipients, seal.Recipients()):
			return &m, nil
		}
	}
	return nil, nil
}
