package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/derived/build"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

const (
	// patience is how long a reader waits for an index to be up to date. lookEvery is how often it checks without being
	// woken, because another process may do the upkeep.
	patience  = 5 * time.Second
	lookEvery = 20 * time.Millisecond
	// quietEvents is how many events of other types a reader looks through before it waits for the feed.
	quietEvents = 256
	// quietFirst is how many of them it looks at first.
	quietFirst = 4
)

// NotReadyError reports that an index cannot be read: it is being built, or is too far behind.
type NotReadyError struct {
	// Done and Total count the rows of a build, or of a change of many rows; otherwise events.
	Done, Total uint64
	// Failed is the error of a failed first build, "" if it has not failed.
	Failed string
}

// Error describes the state.
func (e *NotReadyError) Error() string {
	if e.Failed != "" {
		return "the index could not be built: " + e.Failed
	}
	return "the index is being built, or is behind: try again in a moment"
}

// View is an index as of one position. It must be closed, and soon. It is safe for concurrent use.
type View struct {
	moment reader
	slot   *slot
	at     j17.StreamID
	// held is the number of IDs that a query may hold in memory: mostIDs.
	held int
	// large is the pool of places for queries that hold few IDs (fewIDs) or more; placed is what the view has taken of
	// it.
	large  *work.Pool
	few    int
	tenant string
	mu     sync.Mutex
	placed int64
	// told handles a read error, and returns the error for the reader.
	told func(err error) error
}

// At returns an index as it is at a position or a later one, for which it waits up to five seconds; for the zero
// position it returns the index as it is. The error is a *NotReadyError while the index cannot be read,
// store.ErrNotFound if there is none.
func (s *Service) At(ctx context.Context, t j17.Tenant, id string, p j17.StreamID) (*View, error) {
	machine := clock.System{}
	var until time.Time
	roused := false
	var next *wait
	defer func() { next.leave() }()
	for {
		v, behind, err := s.open(ctx, t, id, p)
		next.leave()
		next = behind
		if v != nil || err != nil {
			if v != nil {
				s.counts.views.Add(1)
			}
			return v, err
		}

		// The upkeep is under way, here or in another process.
		now := machine.Now()
		if until.IsZero() {
			s.counts.waited.Add(1)
			until = now.Add(patience)
		}
		if !now.Before(until) || ctx.Err() != nil {
			s.counts.late.Add(1)
			return nil, errors.Join(ctx.Err(), s.late(ctx, t, id))
		}
		if !clock.Either(ctx, machine, now.Add(lookEvery), next.moved) && !roused {
			roused = true
			s.rouse(ctx, t, id)
		}
	}
}

// rouse wakes the upkeep of an index, which may rest in another process.
func (s *Service) rouse(ctx context.Context, t j17.Tenant, id string) {
	if h, err := s.head(ctx, t, id); err == nil && h.Serving != "" {
		// otherwise the upkeep continues by itself, a little later
		s.deferrals.resume(ctx, t, h.Serving)
	}
}

// late returns the error for a reader that has waited in vain.
func (s *Service) late(ctx context.Context, t j17.Tenant, id string) error {
	status, err := s.Status(context.WithoutCancel(ctx), t, id)
	if err != nil {
		return err
	}
	if f := status.Fanout; f != nil {
		return &NotReadyError{Done: f.Done, Total: f.Total}
	}
	return &NotReadyError{Total: status.Lag}
}

// open opens a view. If the index has not reached the position yet, it returns the wait for its next step instead,
// which the caller leaves.
func (s *Service) open(ctx context.Context, t j17.Tenant, id string, p j17.StreamID) (v *View, next *wait, err error) {
	// The progress is read before the moment is opened, so that the moment contains all events handled up to there.
	h, err := s.head(ctx, t, id)
	if err != nil {
		return nil, nil, err
	}
	if h.Serving == "" {
		return nil, nil, s.unbuilt(ctx, t, &h)
	}
	behind := s.waiters.next(t, h.Serving)
	defer func() {
		if v == nil && err == nil {
			next = behind
		} else {
			behind.leave()
		}
	}()
	s.deferrals.asked(ctx, t, h.Serving)
	known, err := s.handled(ctx, t, h.Serving)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.o.Store.Moment(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if v == nil {
			m.Close()
		}
	}()

	// The slot as it is in the moment.
	sl, err := readSlot(m.Get, h.Serving)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil // another slot serves by now
	}
	if err != nil {
		return nil, nil, s.reset(ctx, t, err)
	}
	v, err = s.viewOf(ctx, place{t, id}, sl, m, known, p)
	return v, nil, err
}

// viewOf returns the view of a slot as it is in a moment. It returns nil if the slot has not reached the position.
func (s *Service) viewOf(
	ctx context.Context, of place, sl *slot, m reader, known reach, p j17.StreamID,
) (*View, error) {
	if sl.Fanout != nil {
		return nil, nil //nolint:nilnil // stated
	}

	// The slot shows the position, or nothing up to the position concerns it.
	reached := known.of(sl)
	if reached.Compare(p) < 0 {
		quiet, err := s.quiet(ctx, of.tenant, sl, reached, p)
		if err != nil || !quiet {
			return nil, err
		}
		reached = p
	}
	s.mu.Lock()
	if s.known[of] != nil {
		s.serving[of] = sl.name
	}
	s.mu.Unlock()
	told := func(err error) error {
		return s.noticed(context.WithoutCancel(ctx), of.tenant, of.name, sl.name, err)
	}
	return &View{
		moment: m, slot: sl, at: reached, held: mostIDs, few: fewIDs, large: s.large, tenant: string(of.tenant),
		told: told,
	}, nil
}

// noticed begins to rebuild an index if the error is damage to a stored slot, and returns a *NotReadyError. It returns
// any other error unchanged.
func (s *Service) noticed(ctx context.Context, t j17.Tenant, id, slot string, err error) error {
	damage, is := errors.AsType[*store.CorruptionError](err)
	if !is {
		return err
	}
	if failed := s.replace(ctx, place{t, id}, slot, &build.Difference{What: damage.Error()}); failed != nil {
		return errors.Join(err, failed)
	}
	return &NotReadyError{}
}

// unbuilt returns the error for an index that has no serving slot.
func (s *Service) unbuilt(ctx context.Context, t j17.Tenant, h *head) error {
	if h.rev == 0 {
		return store.ErrNotFound
	}
	status, err := s.buildOf(ctx, t, h)
	if err != nil {
		return err
	}
	if status == nil {
		return &NotReadyError{}
	}
	e := &NotReadyError{Done: status.Done, Total: status.Total}
	if status.State == build.Failed {
		e.Failed = status.Error
	}
	return e
}

// handled returns the position up to which a slot shows all events, as far as that is known outside the slot.
func (s *Service) handled(ctx context.Context, t j17.Tenant, name string) (known reach, err error) {
	// Only what was noted of this revision of the slot applies to it.
	sl, err := s.slot(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		return known, nil // it is about to be removed
	}
	if err != nil {
		return known, err
	}
	known = s.noted(t, sl)

	// The subscription is read after the slot: if the slot has the same revision later, nobody has written it in
	// between.
	of := feed.StoredIn(kind, name)
	stored, err := s.o.Store.Get(ctx, t, of.Space, of.Key)
	if errors.Is(err, store.ErrNotFound) {
		return known, nil // it does not follow the feed yet, or no longer
	}
	if err != nil {
		return known, err
	}
	return s.followed(t, known, &stored)
}

// followed adds to what is known of a slot how far its subscription is.
func (s *Service) followed(t j17.Tenant, known reach, stored *store.Item) (reach, error) {
	after, err := s.o.Feed.After(t, stored)
	if after.Compare(known.at) > 0 {
		known.at = after
	}
	return known, err
}

// noted returns what was noted of a slot as it was read.
func (s *Service) noted(t j17.Tenant, sl *slot) reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.reached[place{t, sl.name}]; known.rev == sl.rev {
		return known
	}
	return reach{rev: sl.rev}
}

// of returns the position up to which a slot shows all events, by its own record or by what is known of its revision.
func (r reach) of(sl *slot) j17.StreamID {
	at := sl.after()
	if r.rev == sl.rev && r.at.Compare(at) > 0 {
		at = r.at
	}
	return at
}

// quiet reports whether no event or note between two positions concerns a slot; false if that takes too many reads. It
// looks at a few entries first: where many events are written, one of the first ones usually concerns the slot.
func (s *Service) quiet(ctx context.Context, t j17.Tenant, sl *slot, after, upTo j17.StreamID) (bool, error) {
	for _, some := range []int{quietFirst, quietEvents - quietFirst} {
		n := 0
		for e, err := range s.o.Store.ReadChanges(ctx, t, after, some) {
			if err != nil {
				return false, err
			}
			at := positionOf(&e)
			if at.Compare(upTo) > 0 {
				return true, nil
			}
			if e.Event == nil || slices.Contains(sl.Types, e.Event.Key.Type) {
				return false, nil
			}
			n, after = n+1, at
		}
		if n < some {
			return true, nil
		}
	}
	return false, nil
}

// Touched returns the aggregates of some types that have events after one position and up to another. It reads at most
// most entries of the feed, and reports false if there are more.
func (s *Service) Touched(
	ctx context.Context, t j17.Tenant, types []string, after, upTo j17.StreamID, most int,
) (keys []j17.Key, ok bool, err error) {
	seen, n := map[j17.Key]bool{}, 0
	for e, err := range s.o.Store.ReadChanges(ctx, t, after, most+1) {
		if err != nil {
			return nil, false, err
		}
		if positionOf(&e).Compare(upTo) > 0 {
			return keys, true, nil
		}
		if n++; n > most {
			return nil, false, nil
		}
		for _, key := range appendTouched(nil, &e) {
			if slices.Contains(types, key.Type) && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys, true, nil
}

// Position is the position of the view: rows computed as of it are those that the index shows.
func (v *View) Position() j17.StreamID { return v.at }

// Close releases the view. Further calls do nothing.
func (v *View) Close() {
	v.moment.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placed > 0 {
		v.large.Give(v.tenant, v.placed)
		v.placed = 0
	}
}

// room takes a place in the pool when a query comes to hold n IDs, where n is the limit for few; the view keeps it
// until it is closed.
func (v *View) room(b *work.Budget, n int) error {
	if n != v.few {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.placed > 0 {
		return nil
	}
	var err error
	v.placed, err = b.Take(v.large, v.tenant, 1, "memory for the rows of such a question")
	return err
}

// Query selects entries of an index.
type Query struct {
	// Lanes are sets of ranges of one index. The ranges of a lane have the same given values, ascend and do not
	// overlap; all lanes have the same number of given values, but different ones. The entries of all lanes are merged
	// in the order of the values behind the given ones, then of IDs. A row that has several entries in them is found
	// once, at the first of these.
	Lanes [][]Range
	// Backward reverses the order exactly.
	Backward bool
}

// Hit is a row that was found.
type Hit struct {
	ID string
	// Cursor is the place to continue after the row. It is not printable text.
	Cursor string
}

// lane is the state of reading one lane.
type lane struct {
	number int
	ranges []Range
	// left has the parts of the ranges that are still to be read, in the order of reading.
	left []store.Range
	page []found
	// size is how many entries are read next.
	size int
	// backward is the direction.
	backward bool
	skip     int
}

// found is an entry.
type found struct {
	lane int
	// text is the entry, id the ID of the row; tail is the part of the key behind the given values, including the ID.
	text, id, tail string
	many           bool
}

// lanes returns the lanes of a query, ready to be read.
func (v *View) lanes(q *Query) []*lane {
	lanes := make([]*lane, 0, len(q.Lanes))
	for i, ranges := range q.Lanes {
		l := &lane{number: i, ranges: ranges, backward: q.Backward, size: firstPage}
		if len(ranges) > 0 {
			l.skip = len(v.slot.name) + 1 + len(ranges[0].head)
		}
		for j := range ranges {
			if ranges[j].empty() {
				continue
			}
			keys := ranges[j].in(v.slot.name)
			keys.Backward = q.Backward
			if n := len(l.left); n > 0 && keys.From < l.left[n-1].To {
				// Both ranges begin or end within values that are cut at the same place, which have to be tested; they
				// are read as one.
				l.left[n-1].To = max(l.left[n-1].To, keys.To)
				continue
			}
			l.left = append(l.left, keys)
		}
		if q.Backward {
			slices.Reverse(l.left)
		}
		lanes = append(lanes, l)
	}
	return lanes
}

const (
	// firstPage and lastPage are how many entries of a lane are read at a time, at first and in the end.
	firstPage = 64
	lastPage  = 1024
)

// seek continues after a cursor.
func (l *lane) seek(cursor string, backward bool) {
	if cursor == "" || len(l.ranges) == 0 {
		return
	}
	for i := range l.left {
		at := l.left[i].From[:min(l.skip, len(l.left[i].From))] + cursor
		if backward {
			l.left[i].To = min(l.left[i].To, at)
		} else {
			l.left[i] = l.left[i].After(at)
		}
	}
}

// first returns the lane whose next entry comes first, nil at the end.
func first(b *work.Budget, v *View, lanes []*lane, backward bool) (best *lane, err error) {
	for _, l := range lanes {
		if err := l.fill(b, v); err != nil {
			return nil, err
		}
		if len(l.page) == 0 {
			continue
		}
		if best == nil || (l.head().tail < best.head().tail) != backward && l.head().tail != best.head().tail {
			best = l
		}
	}
	return best, nil
}

func (l *lane) head() *found { return &l.page[0] }
func (l *lane) pop()         { l.page = l.page[1:] }

// fill reads more entries if the page is used up.
func (l *lane) fill(b *work.Budget, v *View) error {
	for len(l.page) == 0 && len(l.left) > 0 {
		keys := &l.left[0]
		n := 0
		var last string
		err := v.each(b, *keys, func(key, value []byte) bool {
			n++
			last = string(key)
			if f, ok := l.found(last, value); ok {
				l.page = append(l.page, f)
			}
			return n < l.size
		})
		if err != nil {
			return err
		}
		switch {
		case n < l.size:
			l.left = l.left[1:]
		case keys.Backward:
			keys.To = last
		default:
			*keys = keys.After(last)
		}
		l.size = min(4*l.size, lastPage)
	}
	return nil
}

// found parses an entry of the lane, and reports whether it is in one of its ranges.
func (l *lane) found(key string, value []byte) (found, bool) {
	slotBytes := l.skip - len(l.ranges[0].head)
	at := strings.LastIndex(key, end)
	if at < l.skip {
		return found{}, false // not an entry of the given values
	}
	whole, many := wholeOf(value)
	text := key[slotBytes:at]
	for i := range l.ranges {
		if l.ranges[i].has(text, whole) {
			return found{lane: l.number, text: text, id: key[at+len(end):], tail: key[l.skip:], many: many}, true
		}
	}
	return found{}, false
}

// idOf returns the ID of the row from the key of an entry.
func idOf(key []byte) string { return string(key[bytes.LastIndexByte(key, end[0])+len(end):]) }

// each passes entries to do, as long as the budget lasts.
func (v *View) each(b *work.Budget, keys store.Range, do func(key, value []byte) bool) error {
	return v.eachIn(b, entrySpace, keys, do)
}

// eachIn passes the items of a space to do, as long as the budget lasts.
func (v *View) eachIn(b *work.Budget, space store.Space, keys store.Range, do func(key, value []byte) bool) error {
	err := v.moment.Each(
		space, keys, func(key, value []byte) bool { return b.SpendBytes(len(key)+len(value)) && do(key, value) },
	)
	return cmp.Or(err, b.Err())
}

// Count returns how many rows a query finds. Its errors are those of Scan. To count each row once, it holds the IDs of
// rows with several entries in memory; when there are too many, it looks up the records of further ones instead.
func (v *View) Count(b *work.Budget, q Query) (n uint64, err error) {
	defer func() { err = v.told(err) }()
	seen, some := firsts{}, newIDs(v.held)
	for _, l := range v.lanes(&q) {
		tested := slices.ContainsFunc(l.ranges, func(r Range) bool { return len(r.tests) > 0 })
		for _, keys := range l.left {
			var failed error
			err := v.each(b, keys, func(key, value []byte) bool {
				if len(value) == 0 || !tested && value[0] == only {
					n++ // the row has no other entry, and this one is in the range
					return true
				}
				f, ok := l.found(string(key), value)
				if !ok {
					return true
				}
				if some.full() {
					if ok = !some.has(f.id); ok {
						ok, failed = v.isFirst(b, seen, &q, &f)
					}
				} else if ok = some.add(f.id); ok {
					failed = v.room(b, some.len())
				}
				n += uint64(one(ok))
				return failed == nil && b.Spend(idCost)
			})
			if err = cmp.Or(err, failed, b.Err()); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}
