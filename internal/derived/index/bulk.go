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
	// bulkSlice is how many rows are computed before other goroutines may run while the row size is unknown, mostSlice
	// how many if rows are small. With small slices much of the work would be going over all levels of the store again.
	bulkSlice, mostSlice = 128, 512
	// bulkTurns is how many commits follow each other before other subscriptions run.
	bulkTurns = 16
	// leisure is how long writers have the processors to themselves after a commit, as a multiple of its duration,
	// while no reader waits for the rows.
	leisure = 1
)

// limits decide when upkeep rests, and when events are processed in bulk. Only tests change them.
type limits struct {
	// restFrom is the backlog in events at which the upkeep of a slot may rest. For each second beyond restAfter
	// without a reader, restEach more events may be left; at restMost the upkeep continues in any case.
	restFrom, restEach, restMost uint64
	// bulkFrom is the backlog in events at which they are processed in the order of rows; bulkMost is the most events,
	// and rows, at a time. bulkRows is how many rows change in one commit then.
	bulkFrom           uint64
	bulkMost, bulkRows int
}

// usual returns the limits of a service.
func usual() limits {
	return limits{
		restFrom: 1 << 5, restEach: 10_000, restMost: 100_000, bulkFrom: 8 << 10, bulkMost: 128 << 10,
		bulkRows: 2 << 10,
	}
}

// bulk has the rows that a part of a feed concerns, sorted. Processed in that order, many rows share blocks of the
// store that are read once, whereas a single event reads blocks of its own.
type bulk struct {
	of  place
	to  j17.StreamID
	ids []string
}

// far reports whether the backlog, whose first entry is at a position, is large enough to be processed in bulk.
func (u *upkeep) far(behind uint64, at j17.StreamID) bool {
	return behind >= u.s.limits.bulkFrom && u.attempt == 1 && at.Compare(u.slot.after()) > 0 &&
		at.Compare(u.s.deferrals.singlyUpTo(u.t, u.slot.name)) > 0
}

// begunFirst is how long no new bulk work begins after work already begun has failed to get the lock: the slot of begun
// work cannot be read until it is done.
const begunFirst = 5 * catchUp

// inBulk processes the following events of the feed in bulk. It does nothing if they concern too many rows, or if other
// bulk work is under way or has precedence.
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
		// No visible change: the feed keeps the progress by itself.
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

// errTooMany means that a backlog already begun concerns more rows than can be counted. It is handled as damage, so
// that the index is rebuilt.
var errTooMany = errors.New("more rows follow from a backlog than there were")

// continued continues bulk work on rows, or postpones it while other bulk work is under way.
func (u *upkeep) continued(ctx context.Context) error {
	if !u.s.bulking.TryLock() {
		u.s.begun.Store(u.s.o.Clock.Now().UnixNano())
		return feed.Later{For: catchUp}
	}
	defer u.s.bulking.Unlock()

	// The rows are still in memory, unless another process has begun this work or other bulk work came in between.
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

// collect finds the rows that depend on the events after the slot's position: up to a given position, or for the zero
// one up to the limit of events at a time. The bulk is nil if they are too many; for a position, that limit is
// maxCounted.
func (u *upkeep) collect(ctx context.Context, to j17.StreamID) (b *bulk, last j17.StreamID, err error) {
	// The changed aggregates. Usually they are all of one type.
	b = &bulk{of: place{u.t, u.slot.name}}
	events := u.s.limits.bulkMost
	if !to.IsZero() {
		events = math.MaxInt // the process that began may have taken more at a time
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

	// The rows that depend on them. Work that was begun has to be completed: if more rows depend on its events by now,
	// these were recomputed since.
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

// made is the content of one commit in bulk: the changes of the first n of the requested rows.
type made struct {
	*changes

	n   int
	err error
	// bytes is the size of the entries of these rows, changed or not.
	bytes int
}

// goOn commits rows for some turns, and computes the next ones while a commit is being stored.
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
		// This turn's commit, and the progress with it.
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

		// The next rows are computed during the commit.
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

		// Another process may have removed the slot, or advanced it.
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
			return feed.Later{} // another process has advanced it: the rows were compared with old records
		}
		if u.unawaited() && u.events(ctx) >= events+u.s.limits.restFrom {
			u.s.deferrals.pause(ctx, u.t, u.slot.name, leisure*u.s.o.Clock.Now().Sub(began))
		}
	}
	return feed.Later{}
}

// events returns the number of events, 0 if it cannot be read.
func (u *upkeep) events(ctx context.Context) uint64 {
	extent, err := u.s.o.Store.Extent(ctx, u.t)
	if err != nil {
		return 0
	}
	return extent.Events
}

// unawaited reports whether a backlog may take its time: no reader waits for it, and it is below twice restMost.
func (u *upkeep) unawaited() bool {
	return u.behind < 2*u.s.limits.restMost && !u.s.deferrals.isWanted(u.t, u.slot.name)
}

// pace returns how the rows of a backlog are computed.
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

// beside returns how rows outside a backlog are computed.
func (u *upkeep) beside() pace {
	if u.s.deferrals.isWanted(u.t, u.slot.name) {
		return wantedPace()
	}
	return backgroundPace()
}

// pace says how rows are computed: on how many processors, 0 for all, and how many at a time. Between slices it yields
// to other goroutines if givesWay is set.
type pace struct {
	on, slice int
	givesWay  bool
}

// bulkPace is for backlogs, backgroundPace for rows that no reader waits for, and wantedPace for rows that one waits
// for.
func bulkPace() pace       { return pace{slice: bulkSlice, givesWay: true} }
func backgroundPace() pace { return pace{on: 1, slice: slice, givesWay: true} }
func wantedPace() pace     { return pace{slice: slice} }

// several computes rows and their changes. If the changes exceed maxBytes, it returns those of the first rows only.
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

	// Only consecutive rows from the first one on count.
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

// part computes rows, and compares them with their records, until the changes exceed most bytes.
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

// records returns the records of rows whose IDs are sorted, nil for rows without one.
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
