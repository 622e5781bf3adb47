// Package restore fills an empty store from a backup: with everything as it was, or with the events up to a position,
// without the data that follows from events, which is rebuilt. What was erased after the backup is erased again.
package restore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// Options says what to restore, from where and to where. All fields are required unless they say otherwise.
type Options struct {
	Backup *repository.Reader
	// Erasures yields what was erased of a tenant after a position.
	Erasures func(ctx context.Context, t j17.Tenant, after j17.StreamID) iter.Seq2[*repository.Erasure, error]
	Store    store.Archives
	// Temp is a folder for temporary files.
	Temp string
	// Progress, if not nil, is called now and then.
	Progress func()
}

// Cut is where a restored tenant ends.
type Cut struct {
	// Position is the last position: events after it are left out.
	Position j17.StreamID
	// Time is the requested time in Unix milliseconds: what was deployed later is left out. 0 means that a position was
	// requested.
	Time int64
}

// AtTime returns the cut at a time in Unix milliseconds: events of that millisecond are restored.
func AtTime(ms int64) *Cut {
	return &Cut{Position: j17.StreamID{Ms: ms, Seq: math.MaxUint32}, Time: ms}
}

// Past reports whether a cut leaves out anything that the backup has of a tenant.
func (c *Cut) Past(t *repository.TenantManifest) bool {
	switch {
	case c == nil:
		return false
	case c.Time > 0:
		return c.Time < t.Time
	default:
		return c.Position.Compare(t.Position) < 0
	}
}

// Empty reports whether nothing of a tenant is left.
func (c *Cut) Empty(t *repository.TenantManifest) bool {
	return len(t.Feed) == 0 || c != nil && c.Position.Compare(t.Feed[0].First) < 0
}

// moment is the time of the cut in Unix milliseconds.
func (c *Cut) moment() int64 {
	if c.Time > 0 {
		return c.Time
	}
	return c.Position.Ms
}

// Report describes what was restored of a tenant.
type Report struct {
	Tenant   j17.Tenant
	Events   uint64
	Position j17.StreamID
	// Root is that of the environment's log.
	Root [32]byte
	// Past reports that pending work and data that follows from events were left out, since they are of a later time.
	Past bool
	// Erased counts the streams in which events that were erased after the backup were erased again, and Note is the
	// position of the last note about them.
	Erased int
	Note   j17.StreamID
}

// tenant is the restoration of one tenant.
type tenant struct {
	Options
	ctx  context.Context //nolint:containedctx // lives as long as the call
	from *repository.TenantManifest
	cut  *Cut
	load store.Load
	tree proof.Tree
	log  *envlog.Filling
	out  Report
	// erased is what was erased after the backup.
	erased *erased
	// later are the streams that began after the cut, notes those about existing streams, which are after the last
	// event.
	later map[[keyBytes]byte]bool
	notes []store.Note
	// steps counts what was read.
	steps int
}

// progressSteps is how many events or items are read between two calls of Options.Progress.
const progressSteps = 4096

// Tenant restores a tenant. Nothing of it is visible in the store before it returns without an error. Damage is a
// *repository.DamagedError.
func Tenant(ctx context.Context, o Options, t *repository.TenantManifest, cut *Cut) (_ Report, err error) {
	if t.Tenant == j17.System {
		cut = nil // the registry is always restored as a whole
	}
	r := &tenant{
		Options: o, ctx: ctx, from: t, cut: cut, out: Report{Tenant: t.Tenant, Past: cut.Past(t)},
		later: map[[keyBytes]byte]bool{},
	}
	if r.erased, err = r.readErasures(); err != nil {
		return Report{}, err
	}
	defer r.erased.close()
	if r.load, err = o.Store.Load(ctx, t.Tenant); err != nil {
		return Report{}, fmt.Errorf("the restoration of %s could not begin: %w", t.Tenant, err)
	}
	defer r.load.Discard()
	r.log = envlog.NewFilling(r.load.Item)

	// Events first: the streams that exist decide about names.
	if err := r.feed(); err != nil {
		return Report{}, err
	}
	if err := errors.Join(r.items(), r.log.End()); err != nil {
		return Report{}, err
	}
	for c, err := range o.Backup.Commands(ctx, t) {
		if err == nil && r.carriedOut(&c) {
			err = r.load.Command(c)
		}
		if err != nil {
			return Report{}, r.failed(err)
		}
	}
	if err := r.load.Commit(ctx); err != nil {
		return Report{}, r.failed(err)
	}
	return r.out, nil
}

// carriedOut reports whether everything that a command has written is restored, so that it must not be carried out
// again. Of a command whose events were erased only its existence is known; it is kept for any cut, since what it wrote
// must not come back.
func (r *tenant) carriedOut(c *store.ArchivedCommand) bool {
	if len(c.Lengths) == 0 {
		return !r.out.Past || len(c.Memo) == 0
	}
	last := c.First
	for range len(c.Lengths) - 1 {
		last = last.Next()
	}
	return !r.behind(last)
}

// failed translates an error of the store: an event that does not fit is the backup's fault.
func (r *tenant) failed(err error) error {
	if bad, ok := errors.AsType[*store.LoadError](err); ok {
		return &repository.DamagedError{File: r.Backup.File(), Reason: fmt.Sprintf("the event %s of %s in %s does not fit those before it: %v", bad.Position, bad.Key, r.from.Tenant, bad.Err)}
	}
	return err
}

// feed restores events and notes.
func (r *tenant) feed() error {
	for entry, err := range r.Backup.Feed(r.ctx, r.from) {
		if err == nil {
			r.step()
			err = r.entry(entry)
		}
		if err != nil {
			return r.failed(err)
		}
	}
	r.out.Events, r.out.Root = r.tree.Size(), r.tree.Root()
	if !r.out.Past && (r.out.Events != r.from.Size || r.out.Root != r.from.Root) {
		return &repository.DamagedError{
			File: r.Backup.File(), Reason: fmt.Sprintf("the %d events of %s have the root %x, and that of the log was %x at %d", r.out.Events, r.from.Tenant, r.out.Root, r.from.Root, r.from.Size),
		}
	}

	// Later erasures have their notes after all events.
	r.out.Erased = r.erased.done
	for _, n := range r.notes {
		if err := r.note(n); err != nil {
			return err
		}
	}
	return r.erased.notes(r.later, r.note)
}

// note restores a note after all events, unless it is about no stream.
func (r *tenant) note(n store.Note) error {
	if len(n.Streams) == 0 {
		return nil
	}
	r.out.Note = n.Position
	return r.failed(r.load.Note(n))
}

// step reports the progress now and then.
func (r *tenant) step() {
	if r.steps++; r.steps%progressSteps == 0 && r.Progress != nil {
		r.Progress()
	}
}

// entry restores an element of the feed, or remembers it if it is after the cut.
func (r *tenant) entry(entry *store.Archived) error {
	if entry.Note != nil {
		r.erased.had(entry.Note)
		if !r.behind(entry.Note.Position) {
			return r.load.Note(*entry.Note)
		}
		// Streams that exist have lost events nevertheless.
		note := store.Note{Position: entry.Note.Position}
		for _, s := range entry.Note.Streams {
			if !r.later[hashOf(s.Key)] {
				note.Streams = append(note.Streams, s)
			}
		}
		r.notes = append(r.notes, note)
		return nil
	}
	e := entry.Event
	if r.behind(e.StreamID) {
		if e.Version == 1 {
			r.later[hashOf(e.Key)] = true
		}
		return nil
	}

	r.out.Position = e.StreamID
	tags := entry.Tags
	marker, err := r.erased.of(e)
	if err != nil {
		return err
	}
	if marker != nil {
		e, tags = marker, nil
	}
	leaf, err := r.load.Event(store.LoadedEvent{Event: e, Tags: tags})
	if err != nil {
		return err
	}
	r.tree.Add(leaf)
	if r.from.Tenant == j17.System {
		return nil // its log is in the backup
	}
	return r.log.Add(e.StreamID, leaf)
}

// behind reports whether a position is left out.
func (r *tenant) behind(at j17.StreamID) bool { return r.out.Past && at.Compare(r.cut.Position) > 0 }
