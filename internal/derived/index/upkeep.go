package index

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

const (
	// maxBatch is how many events are handled at a time.
	maxBatch = 512
	// maxRows is how many rows change in one commit; maxBytes is the size above which a commit is split.
	maxRows  = 1024
	maxBytes = 8 << 20
	// fanoutTurns is how many commits of a change of many rows follow each other before other subscriptions run.
	fanoutTurns = 8
	// unknownFor is how long a subscription rests if its definition is not known, unless it is woken.
	unknownFor = 5 * time.Second
)

// types returns the aggregate types whose events can change rows of a slot.
func (s *Service) types(ctx context.Context, t j17.Tenant, name string) ([]string, error) {
	sl, err := s.slot(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // hand ends the subscription
	}
	if err != nil {
		return nil, err
	}
	return sl.Types, nil
}

// hand brings a slot up to the end of a batch. The slot's position shows what was done, so entries that are delivered
// again after a crash are skipped.
func (s *Service) hand(ctx context.Context, b *feed.Batch) error {
	sl, err := s.slot(ctx, b.Tenant, b.Name)
	if errors.Is(err, store.ErrNotFound) {
		// The slot was removed, by a process that did not get any further.
		return s.o.Feed.Unsubscribe(ctx, b.Tenant, kind, b.Name)
	}
	if err != nil {
		return err
	}
	d := s.definition(b.Tenant, sl)
	for d == nil {
		if s.rest(b.Tenant, sl) {
			return feed.Later{For: unknownFor}
		}
		d = s.definition(b.Tenant, sl)
	}
	// The slot is not written for events that change nothing; the subscription has passed them.
	if sl.Fanout == nil && b.After.Compare(sl.after()) > 0 {
		sl.After = writePosition(b.After)
	}
	u := &upkeep{
		s: s, t: b.Tenant, d: d, slot: sl, behind: b.Behind, attempt: b.Attempt,
		size: max(maxRows>>min(b.Attempt-1, 10), 1),
	}
	defer func() {
		s.deferrals.setBusy(b.Tenant, u.slot.name, u.slot.Fanout != nil)
		s.waiters.wake(b.Tenant, u.slot.name)
	}()
	s.deferrals.setBehind(b.Tenant, sl.name, time.UnixMilli(positionOf(&b.Entries[0]).Ms))

	// A change of many rows that was begun comes first.
	if sl.Fanout != nil {
		if err := u.fanout(ctx); err != nil {
			return u.mend(ctx, err)
		}
		sl = u.slot // the slot has advanced
	}
	if u.far(b.Behind, positionOf(&b.Entries[0])) {
		s.waiters.show(ctx, b.Tenant, sl.name)
		if err := u.inBulk(ctx); err != nil {
			return u.mend(ctx, err)
		}
		sl = u.slot
	}
	b.Passed(sl.after())
	n, touched, events := len(b.Entries), []j17.Key(nil), []*j17.Event(nil)
	for _, e := range b.Entries {
		if positionOf(&e).Compare(sl.after()) > 0 {
			touched = appendTouched(touched, &e)
			if e.Event != nil {
				events = append(events, e.Event)
			}
		}
	}
	if d.Learn != nil && len(events) > 0 {
		err = d.Learn(ctx, b.Tenant, events, b.Rewrites)
	}
	if len(touched) > 0 && err == nil {
		s.counts.batches.Add(1)
		err = u.batch(ctx, touched, positionOf(&b.Entries[n-1]), func() []store.Side { return b.Done(n) })
	}
	if err == nil {
		b.Passed(u.slot.after())
		s.deferrals.setBehind(b.Tenant, sl.name, time.Time{})
	}
	return u.mend(ctx, err)
}

// damage is an error in the stored data of an index, as opposed to the sources of its rows.
type damage struct{ error }

// Unwrap returns the read error.
func (d damage) Unwrap() error { return d.error }

// mend ends the subscription of a slot that was removed, and begins a rebuild if the index's own data cannot be read,
// which removes the subscription with the slot. The batch does not count as handled in that case: if the slot still
// exists, it is about to be removed, and shows its old position until then.
func (u *upkeep) mend(ctx context.Context, err error) error {
	if errors.Is(err, errRemoved) {
		u.slot.Fanout = nil // nobody waits for it
		return u.s.o.Feed.Unsubscribe(ctx, u.t, kind, u.slot.name)
	}
	if _, is := errors.AsType[damage](err); !is {
		return err
	}
	told := u.s.noticed(ctx, u.t, u.d.ID, u.slot.name, err)
	if _, begun := errors.AsType[*NotReadyError](told); begun {
		u.s.deferrals.setBehind(u.t, u.slot.name, time.Time{})
		return feed.Later{For: catchUp}
	}
	return told
}

// positionOf returns the position of a feed entry.
func positionOf(e *store.Entry) j17.StreamID {
	if e.Event != nil {
		return e.Event.StreamID
	}
	return e.Note.Position
}

// appendTouched appends the aggregates that a feed entry concerns.
func appendTouched(keys []j17.Key, e *store.Entry) []j17.Key {
	if e.Event != nil {
		return append(keys, e.Event.Key)
	}
	for i := range e.Note.Streams {
		keys = append(keys, e.Note.Streams[i].Key)
	}
	return keys
}

// upkeep brings one slot up to a position.
type upkeep struct {
	s    *Service
	t    j17.Tenant
	d    *Definition
	slot *slot
	// behind is how many events are still to be handled.
	behind uint64
	// attempt counts the tries, from 1; size is how many rows are computed for a commit. light reports that the last
	// rows were small; writes is the average number of writes per row into each space.
	attempt, size int
	light         bool
	writes        [allSpaces]int
}

// batch recomputes the rows that some aggregates can have changed, as of a position. done returns the writes that
// record it in the feed.
func (u *upkeep) batch(ctx context.Context, touched []j17.Key, to j17.StreamID, done func() []store.Side) error {
	sources := u.sources(touched)
	ids, all, err := u.rows(ctx, sources, u.size)
	if err != nil {
		return err
	}
	if !all {
		return u.many(ctx, touched, sources, to)
	}
	c := u.several(ctx, ids, to, u.beside())
	switch {
	case c.err != nil:
		return c.err
	case c.n < len(ids) || c.size > maxBytes:
		return u.begin(ctx, sources, to)
	case c.len() == 0:
		u.s.reach(u.t, u.slot, to) // no visible change: the feed keeps the progress by itself
		return nil
	}
	u.slot.After = writePosition(to)
	u.s.counts.writes.Add(uint64(c.len()))
	return u.s.o.Store.Write(ctx, u.t, append(append(c.writes(), u.slot.put()), done()...))
}

// many begins a change of many rows together with later entries of the feed: in bulk, which computes each row once
// however many aggregates have changed. Where bulk work is not possible, the changed sources are stored by name.
func (u *upkeep) many(ctx context.Context, touched []j17.Key, sources []string, to j17.StreamID) error {
	u.s.waiters.show(ctx, u.t, u.slot.name)
	if u.attempt == 1 && to.Compare(u.s.deferrals.singlyUpTo(u.t, u.slot.name)) > 0 {
		before := u.slot.after()
		if err := u.inBulk(ctx); err != nil {
			return err
		}
		switch after := u.slot.after(); {
		case after.Compare(to) >= 0:
			return nil
		case after.Compare(before) > 0:
			return feed.Later{} // the rest of the batch is delivered again
		}
	}
	sources, to, err := u.together(ctx, touched, sources, to)
	if err != nil {
		return err
	}
	return u.begin(ctx, sources, to)
}

// ownMark prefixes the ID of an aggregate that is itself a row in a list of sources.
const ownMark = "r"

// sources returns what some aggregates can have changed, sorted: rows of their own, and sources of rows.
func (u *upkeep) sources(touched []j17.Key) (names []string) {
	seen := make(map[j17.Key]bool, len(touched))
	for _, key := range touched {
		if seen[key] {
			continue
		}
		seen[key] = true
		if key.Type == u.d.Type {
			names = append(names, ownMark+key.ID)
		}
		if slices.Contains(u.d.Types, key.Type) {
			names = append(names, sourceName(key))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rows returns the IDs of the rows that depend on sources, if there are at most limit. It reports whether the list is
// complete.
func (u *upkeep) rows(ctx context.Context, sources []string, limit int) (ids []string, all bool, err error) {
	seen := map[string]bool{}
	for _, name := range sources {
		if own, is := strings.CutPrefix(name, ownMark); is {
			seen[own] = true
			continue
		}
		prefix := sourceKey(u.slot.name, name, "")
		items, err := u.s.o.Store.Scan(ctx, u.t, sourceSpace, store.Prefix(prefix), limit+1)
		if err != nil {
			return nil, false, damage{err}
		}
		for i := range items {
			seen[items[i].Key[len(prefix):]] = true
		}
		if len(seen) > limit {
			return nil, false, nil
		}
	}
	return slices.Sorted(maps.Keys(seen)), len(seen) <= limit, nil
}

// afterKey returns the key after which a scan of a source continues, "" for the beginning.
func afterKey(prefix, id string) string {
	if id == "" {
		return ""
	}
	return prefix + id
}

// readRecord returns the record of a row, nil if there is none.
func readRecord(get getter, slot, id string) (*record, error) {
	it, err := get(rowSpace, slot+"/"+id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec, err := parseRecord(it.Value)
	if err != nil {
		return nil, recordDamage(slot, id, err)
	}
	return rec, nil
}

// recordDamage reports that the record of a row cannot be read.
func recordDamage(slot, id string, err error) error {
	return &store.CorruptionError{Where: string(rowSpace) + "/" + slot + "/" + id, Err: err}
}

// maxTogether is the number of aggregates whose events can be combined into one change of many rows.
const maxTogether = 2 << 10

// together extends a change of many rows with later entries of the feed. Otherwise the same rows would be computed
// again for each batch of a burst, and the slot could not be read meanwhile. It returns the changed sources and the new
// position.
func (u *upkeep) together(
	ctx context.Context, touched []j17.Key, sources []string, to j17.StreamID,
) ([]string, j17.StreamID, error) {
	if u.attempt > 1 {
		return sources, to, nil
	}
	seen := make(map[j17.Key]bool, len(touched))
	for _, key := range touched {
		seen[key] = true
	}
	last, keys, some := to, touched, []j17.Key(nil)
	for e, err := range u.s.o.Store.ReadNames(ctx, u.t, to, u.s.limits.bulkMost) {
		if err != nil {
			return nil, to, err
		}
		before := len(keys)
		some = appendTouched(some[:0], &e)
		for _, key := range some {
			if !seen[key] && (key.Type == u.d.Type || slices.Contains(u.d.Types, key.Type)) {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		if len(keys) > maxTogether {
			keys = keys[:before]
			break // this entry and those after it come later
		}
		last = positionOf(&e)
	}
	if last == to {
		return sources, to, nil
	}
	return u.sources(keys), last, nil
}

// begin stores a change of many rows, so that it is completed even after a crash.
func (u *upkeep) begin(ctx context.Context, sources []string, to j17.StreamID) error {
	f := &fanout{To: writePosition(to), Sources: sources}
	for _, name := range sources {
		if strings.HasPrefix(name, ownMark) {
			f.Total++
			continue
		}
		n, err := u.s.o.Store.Count(ctx, u.t, sourceSpace, store.Prefix(sourceKey(u.slot.name, name, "")), maxCounted)
		if err != nil {
			return damage{err}
		}
		f.Total += uint64(n)
	}
	u.slot.Fanout = f
	if err := u.s.o.Store.Write(ctx, u.t, []store.Side{u.slot.put()}); err != nil {
		return err
	}
	u.large(ctx, f.Total)
	return feed.Later{} // the next turn begins with it
}

// large logs that a change concerns many rows.
func (u *upkeep) large(ctx context.Context, rows uint64) {
	u.s.o.Logger.LogAttrs(ctx, slog.LevelInfo, "a change concerns many rows of an index", slog.String("tenant", string(u.t)),
		slog.String("index", u.slot.ID), slog.Uint64("rows", rows))
}

// maxCounted bounds how many rows of one source are counted beforehand.
const maxCounted = 10_000_000

// fanout continues a change of many rows. At its end the slot is at the change's position; before that it asks for
// another turn.
func (u *upkeep) fanout(ctx context.Context) error {
	if u.slot.Fanout.Feed {
		return u.continued(ctx)
	}
	u.s.counts.fanouts.Add(1)
	defer u.s.counts.fanouts.Add(-1)
	for turns := 0; turns < fanoutTurns; {
		f := u.slot.Fanout
		ids, at, row, err := u.next(ctx, f)
		if err != nil {
			return err
		}
		c := u.several(ctx, ids, readPosition(f.To), u.beside())
		if c.err != nil {
			return c.err
		}
		if (c.n < len(ids) || c.size > maxBytes) && len(ids) > 1 {
			u.size = len(ids) / 2
			continue
		}
		turns++

		// The progress commits with the rows.
		f.At, f.Row, f.Done = at, row, f.Done+uint64(len(ids))
		ended := at == len(f.Sources)
		if ended {
			u.slot.After, u.slot.Fanout = f.To, nil
		}
		u.s.counts.writes.Add(uint64(c.len()))
		if err := u.s.o.Store.Write(ctx, u.t, append(c.writes(), u.slot.put())); err != nil {
			return err
		}
		if err := u.reload(ctx); ended || err != nil {
			return err
		}
	}
	return feed.Later{}
}

// errRemoved means that a slot was removed during its upkeep.
var errRemoved = errors.New("the slot was removed")

// reload reads the slot again after a commit. On an error it leaves u.slot unchanged; the error is errRemoved, or one
// of the store.
func (u *upkeep) reload(ctx context.Context) error {
	sl, err := u.s.slot(ctx, u.t, u.slot.name)
	if errors.Is(err, store.ErrNotFound) {
		return errRemoved
	}
	if err == nil {
		u.slot = sl
	}
	return err
}

// next returns the next rows of a change of many, and the progress after them.
func (u *upkeep) next(ctx context.Context, f *fanout) (ids []string, at int, row string, err error) {
	at, row = f.At, f.Row
	for at < len(f.Sources) && len(ids) < u.size {
		name := f.Sources[at]
		if own, is := strings.CutPrefix(name, ownMark); is {
			ids = append(ids, own)
			at, row = at+1, ""
			continue
		}
		prefix, limit := sourceKey(u.slot.name, name, ""), u.size-len(ids)
		items, err := u.s.o.Store.Scan(ctx, u.t, sourceSpace, store.Prefix(prefix).After(afterKey(prefix, row)), limit)
		if err != nil {
			return nil, 0, "", damage{err}
		}
		for i := range items {
			row = items[i].Key[len(prefix):]
			ids = append(ids, row)
		}
		if len(items) < limit {
			at, row = at+1, ""
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), at, row, nil
}
