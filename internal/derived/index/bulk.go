package index

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

const (
	// bulkSlice is how many rows are computed together, before others may run, as long as nothing is known of their
	// size, and mostSlice how many of such as are small: to go over all levels of the store again for each few rows is
	// a good part of their work.
	bulkSlice, mostSlice = 128, 512
	// bulkTurns is how many commits follow each other before others have their turn.
	bulkTurns = 16
	// leisure is how much longer than a commit takes those who write have the processors to themselves behind it, where
	// nobody waits for the rows.
	leisure = 1
)

// limits say when upkeep rests, and when events are worked off in bulk. They are the same for all services, but in
// tests.
type limits struct {
	// restFrom is how many events a slot is behind when its upkeep may rest, restEach how many more of them may be left
	// for each second after restAfter in which nobody has asked for it, and restMost when it goes on whatever happens.
	restFrom, restEach, restMost uint64
	// bulkFrom is how many events a slot is behind when they are worked off in the order of rows, and bulkMost how many
	// of them are at a time, and how many rows that may be. bulkRows is how many rows change in one commit then.
	bulkFrom           uint64
	bulkMost, bulkRows int
}

// usual are the limits of a service.
func usual() limits {
	return limits{
		restFrom: 1 << 5, restEach: 10_000, restMost: 100_000, bulkFrom: 8 << 10, bulkMost: 128 << 10,
		bulkRows: 2 << 10,
	}
}

// bulk is what follows from a part of a feed: the rows that its events concern, in order. Many of them, taken in their
// order, are in blocks of the store that are read once, where an event by itself reads blocks of its own.
type bulk struct {
	of  place
	to  j17.StreamID
	ids []string
}

// far reports whether so many events follow, the first of them at a position, that they are worked off in bulk.
func (u *upkeep) far(behind uint64, at j17.StreamID) bool {
	return behind >= u.s.limits.bulkFrom && u.attempt == 1 && at.Compare(u.slot.after()) > 0 &&
		at.Compare(u.s.deferrals.singlyUpTo(u.t, u.slot.name)) > 0
}

// begunFirst is for how long nobody begins after somebody who has begun has found no turn: until that one is done its
// slot is not read.
const begunFirst = 5 * catchUp

// inBulk works off what follows in the feed. It does nothing where too many rows follow from it, or somebody else is at
// it or is to be.
func (u *upkeep) inBulk(ctx context.Context) error {
	waited := u.s.o.Clock.Now().Sub(time.Unix(0, u.s.begun.Load()))
	if waited >= 0 && waited < begunFirst || !u.s.bulking.TryLock() {
		return nil
	}
	defer u.s.bulking.Unlock()
	b, last, err := u.collect(ctx, j17.StreamID{})
	switch {
	case err != nil:
		return err
	case b == nil:
		u.s.deferrals.setSinglyUpTo(u.t, u.slot.name, last)
		return nil
	case len(b.ids) == 0:
		// Nothing that the index shows has changed; the feed keeps how far it is by itself.
		u.s.reach(u.t, u.slot, b.to)
		u.slot.After = writePosition(b.to)
		return nil
	}
	u.s.bulk = b
	u.slot.Fanout = &fanout{To: writePosition(b.to), Feed: true, Total: uint64(len(b.ids))}
	if u.behind < u.s.limits.bulkFrom {
		u.large(ctx, u.slot.Fanout.Total) // few events, many rows
	}
	return u.goOn(ctx)
}

// errTooMany says that more rows follow from what was begun than are counted. It is tried again; a rebuild gets past
// it.
var errTooMany = errors.New("more rows follow from a backlog than there were")

// continued goes on with rows that are worked off in bulk. It leaves them for later where somebody else is at it.
func (u *upkeep) continued(ctx context.Context) error {
	if !u.s.bulking.TryLock() {
		u.s.begun.Store(u.s.o.Clock.Now().UnixNano())
		return feed.Later{For: catchUp}
	}
	defer u.s.bulking.Unlock()

	// Which rows they are is in memory, unless another process has begun or somebody else came in between.
	to := readPosition(u.slot.Fanout.To)
	if b := u.s.bulk; b == nil || b.of != (place{u.t, u.slot.name}) || b.to != to {
		u.s.bulk = nil
		b, _, err := u.collect(ctx, to)
		if err != nil {
			return err
		}
		if b == nil {
			return damage{errTooMany}
		}
		u.s.bulk = b
	}
	return u.goOn(ctx)
}

// collect finds the rows that follow from the events behind the slot: from all up to a position, or from as many as are
// worked off at a time for the zero one. There are none where these are too many, which never happens for a change that
// was begun.
func (u *upkeep) collect(ctx context.Context, to j17.StreamID) (b *bulk, last j17.StreamID, err error) {
	// What has changed. One type mostly is all there is.
	b = &bulk{of: place{u.t, u.slot.name}}
	events := u.s.limits.bulkMost
	if !to.IsZero() {
		events = math.MaxInt // the process that has begun may have taken more at a time
	}
	var others, touched []j17.Key
	for e, err := range u.s.o.Store.ReadNames(ctx, u.t, u.slot.after(), events) {
		if err != nil {
			return nil, last, err
		}
		at := positionOf(&e)
		if !to.IsZero() && at.Compare(to) > 0 {
			break
		}
		last = at
		touched = appendTouched(touched[:0], &e)
		for _, key := range touched {
			if key.Type == u.d.Type {
				b.ids = append(b.ids, key.ID)
			}
			if slices.Contains(u.d.Types, key.Type) {
				others = append(others, key)
			}
		}
	}
	b.to = last
	if !to.IsZero() {
		b.to = to
	}

	// What follows from it. What was begun is gone on with: the rows that follow from more by now are such as were
	// rebuilt since.
	most := u.s.limits.bulkMost
	if !to.IsZero() {
		most = maxCounted
	}
	more, all, err := u.rows(ctx, u.sources(others), most)
	if err != nil || !all {
		return nil, last, err
	}
	b.ids = append(b.ids, more...)
	slices.Sort(b.ids)
	b.ids = slices.Compact(b.ids)
	return b, last, nil
}

// made is what one commit of rows in bulk has: the changes of the first n of those that it was asked for.
type made struct {
	*changes

	n   int
	err error
	// bytes is how many the entries of these rows have, changed or not.
	bytes int
}

// goOn commits rows for some turns. The next ones are computed while some are being stored.
func (u *upkeep) goOn(ctx context.Context) error {
	u.s.counts.fanouts.Add(1)
	defer u.s.counts.fanouts.Add(-1)
	if !u.unawaited() {
		defer u.s.o.Store.DeferCompaction()()
	}
	f := u.slot.Fanout
	to := readPosition(f.To)
	at, found := slices.BinarySearch(u.s.bulk.ids, f.Row)
	left := u.s.bulk.ids[at+int(one(found)):]
	rows := max(u.s.limits.bulkRows>>min(u.attempt-1, 10), 1)

	var next made
	prepare := func(ids []string) made {
		m := u.several(ctx, ids[:min(rows, len(ids))], to, u.pace())
		u.light = m.n > 0 && m.bytes/m.n <= maxBytes/mostSlice
		return m
	}
	for turn := range bulkTurns {
		began, events := u.s.o.Clock.Now(), u.events(ctx)
		// What is committed now, and how far that gets.
		if turn == 0 {
			next = prepare(left)
		}
		if next.err != nil {
			return next.err
		}
		now := next
		if now.n > 0 {
			f.Row = left[now.n-1]
		}
		left, f.Done = left[now.n:], f.Done+uint64(now.n)
		ended := len(left) == 0
		if ended {
			u.slot.After, u.slot.Fanout = f.To, nil
		}

		// The next rows are computed meanwhile.
		var preparing panics.Parts
		if !ended && turn+1 < bulkTurns {
			preparing.Go(func() { next = prepare(left) })
		}
		u.s.counts.writes.Add(uint64(now.len()))
		err := u.s.o.Store.Write(ctx, u.t, append(now.writes(), u.slot.put()))
		preparing.Wait()
		if err != nil {
			return err
		}

		// Somebody else may have removed the slot, or gone on with it.
		if err := u.reload(ctx); err != nil {
			return err
		}
		if ended {
			u.s.bulk = nil
			u.s.counts.batches.Add(1)
			return nil
		}
		before := f.Row
		if f = u.slot.Fanout; f == nil || !f.Feed || f.Row != before || readPosition(f.To) != to {
			return feed.Later{} // somebody else has gone on with it: what was compared with records is of before
		}
		if u.unawaited() && u.events(ctx) >= events+u.s.limits.restFrom {
			u.s.deferrals.pause(ctx, u.t, u.slot.name, leisure*u.s.o.Clock.Now().Sub(began))
		}
	}
	return feed.Later{}
}

// events returns how many events there are, 0 where that is not known.
func (u *upkeep) events(ctx context.Context) uint64 {
	extent, err := u.s.o.Store.Extent(ctx, u.t)
	if err != nil {
		return 0
	}
	return extent.Events
}

// unawaited reports whether a backlog may take its time: nobody waits for it, and it has not become much more than what
// may be left.
func (u *upkeep) unawaited() bool {
	return u.behind < 2*u.s.limits.restMost && !u.s.deferrals.isWanted(u.t, u.slot.name)
}

// pace is how the rows of a backlog are computed.
func (u *upkeep) pace() pace {
	p := bulkPace()
	if u.light {
		p.slice = mostSlice
	}
	if u.unawaited() {
		p.on = 1
	}
	return p
}

// beside is how rows are computed that are no backlog.
func (u *upkeep) beside() pace {
	if u.s.deferrals.isWanted(u.t, u.slot.name) {
		return wantedPace()
	}
	return backgroundPace()
}

// pace is how rows are computed: on how many processors, 0 for all, and how many of them before others may run. Where
// it does not give way others have to wait for a processor.
type pace struct {
	on, slice int
	givesWay  bool
}

// bulkPace is that of a backlog, backgroundPace that of what nobody waits for, and wantedPace that of what somebody
// does.
func bulkPace() pace       { return pace{slice: bulkSlice, givesWay: true} }
func backgroundPace() pace { return pace{on: 1, slice: slice, givesWay: true} }
func wantedPace() pace     { return pace{slice: slice} }

// several computes rows and what is to be written of them. Where that is more than maxBytes, it is of the first ones.
func (u *upkeep) several(ctx context.Context, ids []string, to j17.StreamID, p pace) made {
	if len(ids) == 0 {
		return made{changes: &changes{slot: u.slot.name}}
	}
	n := min(cmp.Or(p.on, runtime.GOMAXPROCS(0)), (len(ids)+p.slice-1)/p.slice)
	parts := make([]made, n)
	part := func(i int) []string { return ids[len(ids)*i/n : len(ids)*(i+1)/n] }
	var computing panics.Parts
	for i := range parts {
		computing.Go(func() { parts[i] = u.part(ctx, part(i), to, p, maxBytes/n) })
	}
	computing.Wait()

	// Those that follow each other from the first one on.
	all := made{changes: &changes{slot: u.slot.name}}
	var changed []*changes
	for i := range parts {
		changed = append(changed, parts[i].changes)
		all.bytes += parts[i].bytes
		if all.n, all.err = all.n+parts[i].n, parts[i].err; all.err != nil {
			return all
		}
		if parts[i].n < len(part(i)) {
			break
		}
	}
	all.merge(changed)
	if all.n > 0 {
		u.writes = all.each(all.n)
	}
	return all
}

// part computes rows, and compares them with their records.
func (u *upkeep) part(ctx context.Context, ids []string, to j17.StreamID, p pace, most int) made {
	m := made{changes: &changes{slot: u.slot.name}}
	for some := range slices.Chunk(ids, p.slice) {
		each := u.writes
		if m.n > 0 {
			each = m.each(m.n)
		}
		m.grow(len(some), each)
		if p.givesWay {
			runtime.Gosched()
		}
		var rows []Row
		if rows, m.err = u.s.computeSome(ctx, u.t, u.d, to, some); m.err != nil {
			return m
		}
		u.s.counts.rows.Add(uint64(len(rows)))
		var old []*record
		if old, m.err = u.records(ctx, some); m.err != nil {
			return m
		}
		for i := range rows {
			now := recordOf(&rows[i])
			m.bytes += now.entryBytes()
			m.replace(rows[i].ID, old[i], now)
			m.n++
			if m.size > most {
				return m
			}
		}
	}
	return m
}

// records returns what is kept of rows whose ids are in order, nil for those of which nothing is.
func (u *upkeep) records(ctx context.Context, ids []string) ([]*record, error) {
	keys, records := make([]string, len(ids)), make([]*record, len(ids))
	for i, id := range ids {
		keys[i] = u.slot.name + "/" + id
	}
	err := u.s.o.Store.GetEach(ctx, u.t, rowSpace, keys, func(i int, value []byte) (err error) {
		if records[i], err = parseRecord(value); err != nil {
			err = &store.CorruptionError{Where: string(rowSpace) + "/" + keys[i], Err: err}
		}
		return err
	})
	if err != nil {
		return nil, damage{err}
	}
	return records, nil
}
