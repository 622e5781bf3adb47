package backup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"j17"
	"j17/internal/backup/repository"
	"j17/internal/store"
)

// mostTries is how often a backup is begun that erasures end.
const mostTries = 5

// make makes the backup of a job. What is erased meanwhile must not be in it: then it begins anew, and finds what it has stored already.
func (s *Service) make(ctx context.Context, j *job) error {
	for tries := 1; ; tries++ {
		j.done.Store(0)
		j.total.Store(0)
		err := s.try(ctx, j)
		if !errors.Is(err, store.ErrEnded) {
			return err
		}
		if tries == mostTries {
			return fmt.Errorf("data was erased meanwhile, %d times in a row; try again when no erasures are under way", tries)
		}
	}
}

// try makes the backup of a job from what there is at this moment.
func (s *Service) try(ctx context.Context, j *job) error {
	// Where it goes, and to whom it is encrypted: the settings of this moment count.
	set, _, err := s.settings(ctx, instanceOf(j.row.Scope))
	if err != nil {
		return err
	}
	j.row.Place = s.placeOf(&set)
	repo, err := s.open(j.row.Place, &set)
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

	// What it is of, the registry last: an instance that is in it has its environments in it too.
	tenants := []j17.Tenant{j.row.Scope}
	scope := repository.OfEnvironment
	if j.row.Scope == j17.System {
		scope = repository.OfServer
		if tenants, err = s.tenants(ctx); err != nil {
			return err
		}
	}
	pace, err := s.newPace(ctx, j.row.Place)
	if err != nil {
		return err
	}
	gate := s.gate(j.row.Place)
	gate.RLock()
	defer gate.RUnlock()
	s.mu.Lock()
	j.to = &destination{j.row.Place, seal}
	s.mu.Unlock()
	w, err := repo.NewBackup(ctx, repository.Head{
		ID: j.row.ID, Scope: scope, Kind: j.row.Kind, Parent: j.row.Parent, CreatedAt: j.row.CreatedAt, Program: s.Program, Seal: seal,
	})
	if err != nil {
		return err
	}
	defer w.Abort()
	p := &pass{Service: s, job: j, repo: repo, writer: w, pace: pace}
	finished := false
	defer func() {
		if !finished {
			s.loosen(j.row) // some of its parts may be stored
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
	finished = err == nil
	return err
}

// tenants lists what a backup of the server is of.
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
	err := s.each(ctx, of.Scope, func(b *Backup) bool {
		if b.Status == Completed && b.Encrypted == of.Encrypted && b.Place.same(of.Place) {
			all = append(all, b)
		}
		return len(all) < mostParents
	})
	return all, err
}

// mostParents is how many backups are tried as the one to go on from: their files may be gone.
const mostParents = 3

// parent returns the newest backup that one can go on from, nil where there is none.
func (s *Service) parent(ctx context.Context, repo *repository.Repository, of *Backup, seal repository.Seal) (*repository.Manifest, error) {
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

// pass is one backup on its way.
type pass struct {
	*Service
	job    *job
	repo   *repository.Repository
	writer *repository.Writer
	pace   *pace
}

// tenant adds a tenant as it is now.
func (p *pass) tenant(ctx context.Context, t j17.Tenant, parent *repository.Manifest) error {
	taken := p.Clock.Now()
	a, err := p.Store.Archive(ctx, t)
	if err != nil {
		return err
	}
	defer a.Close()
	head, err := p.head(ctx, t, a)
	if err != nil {
		return err
	}
	head.Time = taken.UnixMilli()
	p.job.total.Add(head.Size)
	w := p.writer.Tenant(head)

	// What happened, on from what the backup before has.
	var before repository.TenantManifest
	if parent != nil {
		if at := slices.IndexFunc(parent.Tenants, func(m repository.TenantManifest) bool { return m.Tenant == t }); at >= 0 {
			before = parent.Tenants[at]
		}
	}
	if err := p.feed(ctx, t, a, w, head.Size, before); err != nil {
		return err
	}

	// What else there is.
	for item, err := range a.Items(ctx, store.ItemName{}) {
		if err == nil && p.passedOver(t, item.Space) {
			continue
		}
		if err == nil {
			err = w.Item(item)
		}
		if err == nil {
			err = p.step(len(item.Value))
		}
		if err != nil {
			return err
		}
	}
	for command, err := range a.Commands(ctx) {
		if err == nil {
			err = w.Command(command)
		}
		if err == nil {
			err = p.step(len(command.Memo))
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// head is what a backup says of a tenant.
func (p *pass) head(ctx context.Context, t j17.Tenant, a store.Archive) (repository.TenantHead, error) {
	extent := a.Extent()
	head := repository.TenantHead{Tenant: t, Position: extent.Last, Moment: a.Position(), Size: extent.Events}
	var err error
	if head.Size, head.Root, err = p.Head(ctx, t, extent.Last); err != nil {
		return head, err
	}
	if head.Size != extent.Events {
		return head, fmt.Errorf("the log of %s has %d events and its feed %d: one of them is damaged", t, head.Size, extent.Events)
	}
	if t == j17.System {
		return head, nil
	}

	// What of the registry is needed to serve an environment again.
	instance, env := split(t)
	i, ok := p.Registry.Instances.ByID(instance)
	if !ok {
		return head, fmt.Errorf("the instance %s was deleted meanwhile", instance)
	}
	head.Instance, head.Name, head.Plan, head.InstanceCreatedAt, head.Environment = i.ID, i.Name, i.Plan, i.CreatedAt, env
	p.job.row.Moments = append(p.job.row.Moments, Moment{Tenant: t, Position: extent.Last, Size: head.Size, Root: head.Root[:]})
	return head, nil
}

// feed adds the events and notes of a tenant: for an incremental backup those that the one before does not have, and anew those of its
// segments that an erasure has changed. size is how many events there are.
func (p *pass) feed(ctx context.Context, t j17.Tenant, a store.Archive, w *repository.TenantWriter, size uint64, before repository.TenantManifest) error {
	var after j17.StreamID
	if p.job.row.Kind == repository.Full {
		w.Bounds(before.Feed)
		return p.copy(ctx, a, w, after, a.Position())
	}

	// What the backup before has.
	kept := before.Feed
	kept = kept[:repository.Resume(kept, size-min(before.Size, size))]
	changed, err := p.changed(ctx, t, a, before)
	if err != nil {
		return err
	}
	for _, segment := range kept {
		err := repository.ErrMissing
		if !changed[segment.Last] {
			err = w.Keep(segment)
		}
		switch {
		case errors.Is(err, repository.ErrMissing):
			if err := p.copy(ctx, a, w, after, segment.Last); err != nil {
				return err
			}
			if err := w.Cut(); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			p.job.done.Add(segment.Events)
		}
		after = segment.Last
	}
	return p.copy(ctx, a, w, after, a.Position())
}

// copy adds what stands in the feed greater than after, up to a position.
func (p *pass) copy(ctx context.Context, a store.Archive, w *repository.TenantWriter, after, upTo j17.StreamID) error {
	if after.Compare(upTo) >= 0 {
		return nil
	}
	for e, err := range a.Changes(ctx, after) {
		switch {
		case err != nil:
			return err
		case e.Note != nil:
			if e.Note.Position.Compare(upTo) > 0 {
				return nil
			}
			err = w.Note(*e.Note)
		default:
			if e.Event.StreamID.Compare(upTo) > 0 {
				return nil
			}
			p.job.done.Add(1)
			if err = w.Event(e.Event, e.Tags); err == nil {
				err = p.step(len(e.Event.Raw))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// changed returns the segments of the backup before, by their ends, that hold events which were erased since.
func (p *pass) changed(ctx context.Context, t j17.Tenant, a store.Archive, before repository.TenantManifest) (map[j17.StreamID]bool, error) {
	changed := map[j17.StreamID]bool{}
	if len(before.Feed) == 0 {
		return changed, nil
	}
	for e, err := range a.Changes(ctx, before.Moment) {
		if err != nil {
			return nil, err
		}
		if e.Note == nil {
			if err := p.pace.step(len(e.Event.Raw)); err != nil {
				return nil, err
			}
			continue
		}
		for _, stream := range e.Note.Streams {
			for ev, err := range p.Store.ReadStream(ctx, t, stream.Key, 1, 0) {
				if err != nil {
					return nil, err
				}
				if !ev.Erased() {
					continue
				}
				at, _ := slices.BinarySearchFunc(before.Feed, ev.StreamID, func(s repository.Segment, id j17.StreamID) int { return s.Last.Compare(id) })
				if at < len(before.Feed) {
					changed[before.Feed[at].Last] = true
				}
			}
		}
	}
	return changed, nil
}

// step is called after each event and item, with its size.
func (p *pass) step(size int) error {
	_, stored := p.writer.Stored()
	p.job.bytes.Store(stored)
	return p.pace.step(size)
}

// passedOver reports whether the items of a space are in no backup: what is made anew from events, what the list of backups itself
// consists of, and secrets in a backup in clear.
func (p *pass) passedOver(t j17.Tenant, space store.Space) bool {
	switch space {
	case rowSpace, idSpace, unfinishedSpace, dueSpace, erasedSpace:
		return true
	}
	if slices.Contains(p.Derived, space) {
		return t != j17.System
	}
	return !p.job.row.Encrypted && slices.Contains(p.Secrets, space)
}
