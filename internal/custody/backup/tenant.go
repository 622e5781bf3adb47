package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// mostIdle is how often in a row an archive may end without any progress of the backup in the feed.
const mostIdle = 20

// pass is one backup in progress.
type pass struct {
	*Service
	job    *job
	repo   *repository.Repository
	writer *repository.Writer
	pace   *pace
	// dropped is set if something was stored that the backup may not need.
	dropped bool
}

// section is a segment of the feed that is stored already, with its content as of a position.
type section struct {
	repository.Segment
	asOf j17.StreamID
	// anew is set if it is copied nevertheless, because a part of it is missing.
	anew bool
}

// tenant adds a tenant as it is now. An erasure in any tenant ends the archive that is read: a new one then shows the
// tenant as of that time, and what was copied of the feed stays except for erased events. So a backup makes progress
// however many erasures there are.
func (p *pass) tenant(ctx context.Context, t j17.Tenant, parent *repository.Manifest) error {
	var before repository.TenantManifest
	if parent != nil {
		if at := slices.IndexFunc(
			parent.Tenants, func(m repository.TenantManifest) bool { return m.Tenant == t },
		); at >= 0 {
			before = parent.Tenants[at]
		}
	}
	var have []section
	if p.job.row.Kind != repository.Full {
		for _, s := range before.Feed {
			have = append(have, section{Segment: s, asOf: before.Moment})
		}
	}

	var furthest, looked j17.StreamID
	done, total, moments := p.job.done.Load(), p.job.total.Load(), len(p.job.row.Moments)
	for idle, first := 0, true; idle < mostIdle; first = false {
		w, asOf, err := p.try(ctx, t, before, &have, first)
		if w == nil || !errors.Is(err, store.ErrEnded) {
			return err
		}

		// The next try continues from what it has.
		p.dropped = true
		got, err := w.Drop()
		if err != nil {
			return err
		}
		have = goOn(have, got, asOf)
		idle++
		if n := len(got); n > 0 && got[n-1].Last.Compare(furthest) > 0 {
			furthest, idle = got[n-1].Last, 0
		}
		if at := oldest(have); at.Compare(looked) > 0 {
			looked, idle = at, 0
		}
		p.job.done.Store(done)
		p.job.total.Store(total)
		p.job.row.Moments = p.job.row.Moments[:moments]
	}
	return fmt.Errorf("erasures have ended %d tries in a row to copy what %s has beside its events; try again when fewer are under way", mostIdle, t)
}

// goOn returns what is stored after an archive as of a position has ended: what was copied from it, followed by what
// was there before.
func goOn(have []section, got []repository.Segment, asOf j17.StreamID) []section {
	all := make([]section, 0, len(got)+len(have))
	var last j17.StreamID
	for _, s := range got {
		all = append(all, section{Segment: s, asOf: asOf})
		last = s.Last
	}
	for _, s := range have {
		if s.Last.Compare(last) > 0 {
			s.anew = s.anew || s.First.Compare(last) <= 0
			all = append(all, s)
		}
	}
	return all
}

// try adds a tenant from one archive, and returns the archive's position. before is what the previous backup has of it,
// have what is stored of the feed.
func (p *pass) try(
	ctx context.Context, t j17.Tenant, before repository.TenantManifest, have *[]section, first bool,
) (_ *repository.TenantWriter, asOf j17.StreamID, _ error) {
	taken := p.Clock.Now()
	a, err := p.Store.Archive(ctx, t)
	if err != nil {
		return nil, asOf, err
	}
	defer a.Close()
	a.Rest(p.pace.step)
	head, err := p.head(ctx, t, a)
	if err != nil {
		return nil, asOf, err
	}
	head.Time = taken.UnixMilli()
	p.job.total.Add(head.Size)
	w := p.writer.Tenant(head)

	// The feed. A full backup cuts it where the previous one does.
	if p.job.row.Kind == repository.Full {
		w.Bounds(before.Feed)
	} else if first {
		*have = (*have)[:repository.Resume(before.Feed, head.Size-min(before.Size, head.Size))]
	}
	if err := p.feed(ctx, t, a, w, *have); err != nil {
		return w, a.Position(), err
	}

	// Items and commands.
	if err := p.others(ctx, t, a, w); err != nil {
		return w, a.Position(), err
	}
	return w, a.Position(), w.Close()
}

// others adds the items and the results of commands of a tenant.
func (p *pass) others(ctx context.Context, t j17.Tenant, a store.Archive, w *repository.TenantWriter) error {
	for item, err := range a.Items(ctx, store.ItemName{}) {
		if err == nil && p.passedOver(t, item.Space) {
			continue
		}
		if open := p.spaces[item.Space].Open; err == nil && open != nil && !p.job.row.Encrypted {
			if item.Value = open(item.Value); item.Value == nil {
				continue
			}
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
	return nil
}

// head describes a tenant in the backup.
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

	// The data of the registry that is needed to serve an environment again.
	instance, env := split(t)
	i, ok := p.Registry.Instances.ByID(instance)
	if !ok {
		return head, fmt.Errorf("the instance %s was deleted meanwhile", instance)
	}
	head.Instance, head.Name, head.Plan, head.InstanceCreatedAt, head.Environment = i.ID, i.Name, i.Plan, i.CreatedAt,
		env
	p.job.row.Moments = append(p.job.row.Moments, Moment{
		Tenant: t, Position: extent.Last, Size: head.Size, Root: head.Root[:],
	})
	return head, nil
}

// feed adds the events and notes of a tenant: those that are not stored, and again those of the sections that an
// erasure has changed.
func (p *pass) feed(
	ctx context.Context, t j17.Tenant, a store.Archive, w *repository.TenantWriter, have []section,
) error {
	if err := p.look(ctx, t, a, have); err != nil {
		return err
	}
	var after j17.StreamID
	for i := range have {
		s := &have[i]
		err := repository.ErrMissing
		if !s.anew {
			err = w.Keep(s.Segment)
		}
		switch {
		case errors.Is(err, repository.ErrMissing):
			if err := p.copy(ctx, a, w, after, s.Last); err != nil {
				return err
			}
			if err := w.Cut(); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			p.job.done.Add(s.Events)
		}
		after = s.Last
	}
	return p.copy(ctx, a, w, after, a.Position())
}

// copy adds the part of the feed after a position, up to another one.
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

// oldest returns the position of the oldest section's content.
func oldest(have []section) (at j17.StreamID) {
	for i := range have {
		if i == 0 || have[i].asOf.Compare(at) < 0 {
			at = have[i].asOf
		}
	}
	return at
}

// look finds the sections that hold events which were erased since they were stored. Its progress is noted in them, so
// that the next try continues from there.
func (p *pass) look(ctx context.Context, t j17.Tenant, a store.Archive, have []section) error {
	if len(have) == 0 {
		return nil
	}
	from := oldest(have)
	at := from
	defer func() {
		for i := range have {
			if have[i].asOf.Compare(at) < 0 {
				have[i].asOf = at
			}
		}
	}()
	for e, err := range a.Changes(ctx, from) {
		if err != nil {
			return err
		}
		if e.Note == nil {
			at = e.Event.StreamID
			if err := p.pace.step(len(e.Event.Raw)); err != nil {
				return err
			}
			continue
		}
		for _, stream := range e.Note.Streams {
			if err := p.erased(ctx, t, stream.Key, e.Note.Position, have); err != nil {
				return err
			}
		}
		at = e.Note.Position
	}
	at = a.Position()
	return nil
}

// erased marks the sections that were stored before a note, and hold events of a stream that are erased by now.
func (p *pass) erased(ctx context.Context, t j17.Tenant, key j17.Key, note j17.StreamID, have []section) error {
	for e, err := range p.Store.ReadStream(ctx, t, key, 1, 0) {
		if err != nil {
			return err
		}
		if !e.Erased() {
			continue
		}
		at, _ := slices.BinarySearchFunc(
			have, e.StreamID, func(s section, id j17.StreamID) int { return s.Last.Compare(id) },
		)
		if at < len(have) && have[at].asOf.Compare(note) < 0 {
			have[at].anew = true
		}
	}
	return nil
}

// step is called after each event and item, with its size.
func (p *pass) step(size int) error {
	_, stored := p.writer.Stored()
	p.job.bytes.Store(stored)
	return p.pace.step(size)
}

// passedOver reports whether backups leave out the items of a space: what is rebuilt from events, the list of backups
// itself, and secrets in a backup in clear.
func (p *pass) passedOver(t j17.Tenant, space store.Space) bool {
	switch space {
	case rowSpace, idSpace, unfinishedSpace, dueSpace, erasedSpace:
		return true
	}
	if p.spaces[space].Derived {
		return t != j17.System
	}
	return !p.job.row.Encrypted && p.spaces[space].Secret
}
