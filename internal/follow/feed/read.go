package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// reader is a subscription of a held tenant. Its fields are guarded by the holding's mu; fields that only the reader's
// own work changes can be read by that work without it.
type reader struct {
	h    *holding
	kind *Kind
	key  string
	name string

	// saved is the stored checkpoint, rev its revision; now is the progress in memory, since the time when it got ahead
	// of saved.
	saved checkpoint
	rev   uint64
	now   state
	since time.Time
	// marks are to be stored with now.
	marks []state
	// checked reports that the stored state was compared with the feed since the set has the tenant; shown is the mark
	// up to which all stretches were compared.
	checked bool
	shown   uint64
	running bool
	// missed is set if the stored state should have been read again while work was under way.
	missed bool
	// idle is one more than the number of changes after which nothing was found.
	idle uint64
	// until is the end of a pause; woken is set when it was ended early.
	until time.Time
	woken bool
	// quick is the end of a page that was handled at once and was not the last one.
	quick j17.StreamID
	// types is the last answer of the kind's Types, nil before that; backlog counts events of these types.
	types   []string
	backlog backlog
	// resting reports that the kind lets the reader rest, timed that the rest has an end; up to the position awake it
	// does not rest.
	resting, timed bool
	awake          j17.StreamID
}

// adopt takes a stored state over. Progress in memory is kept if nobody else has moved the checkpoint. The caller holds
// the holding's mu.
func (r *reader) adopt(it *item) {
	if it.ID != r.saved.ID || it.state != r.saved.state && it.state != r.now {
		r.now, r.marks, r.checked, r.shown, r.idle = it.state, nil, false, it.Checked, 0
	}
	if it.ID != r.saved.ID {
		r.types = nil
	}
	if it.Failures == 0 && r.saved.Failures > 0 || it.Paused != r.saved.Paused {
		r.until, r.idle = time.Time{}, 0
	}
	if it.RetryAt.After(r.until) && !it.RetryAt.Equal(r.saved.RetryAt) {
		// otherwise the pause is known already, and was ended
		r.pauseFor(r.h.s.o.Clock.Now(), it.RetryAt.Sub(r.h.s.o.Clock.Now()))
	}
	r.saved, r.rev = it.checkpoint, it.rev
	r.shown = max(r.shown, it.Checked)
	r.marks = slices.DeleteFunc(r.marks, func(m state) bool { return m.Count <= it.Count })
}

// pauseFor pauses the reader. The caller holds the holding's mu.
func (r *reader) pauseFor(now time.Time, d time.Duration) {
	r.idle = 0
	if r.woken {
		r.woken = false
		return
	}
	until := now.Add(d)
	r.until = until
	go func() {
		if r.h.s.o.Clock.Wait(r.h.work, until) == nil {
			r.h.poke()
		}
	}()
}

// move returns the writes that move the checkpoint. They hold as long as nobody has written it since it was read.
func (r *reader) move(to *state) []store.Side { return r.mover([]state{*to})(0) }

// mover is move for several states; its result does not access the reader.
func (r *reader) mover(to []state) func(i int) []store.Side {
	key, rev, c := r.key, r.rev, r.saved
	c.Checked, c.Failures, c.Error, c.RetryAt = r.shown, 0, "", time.Time{}
	marks := slices.Clone(r.marks)
	return func(i int) []store.Side {
		c := c
		c.state = to[i]
		sides := []store.Side{
			{Op: store.Put, Space: subscriptions, Key: key, Value: c.encode(), Cond: store.IfRev, Rev: rev},
		}
		for i := range marks {
			if marks[i].Count <= c.Count {
				sides = append(sides, marks[i].mark(key))
			}
		}
		return sides
	}
}

// take hands out a page.
func (r *reader) take(p *page) {
	ctx, began := r.h.work, r.h.s.o.Clock.Now()
	wanted, err := r.wanted(ctx, p)
	if err != nil {
		r.interrupt(ctx, err)
		return
	}

	// All events are passed; the wanted ones are handed out.
	var entries []store.Entry
	var ends []state
	if wanted == nil {
		entries, ends = make([]store.Entry, 0, len(p.entries)), make([]state, 0, len(p.entries))
	}
	end := r.now
	marks := slices.DeleteFunc(r.marks, func(m state) bool { return m.Count > end.Count })
	passed, events := 0, 0
	for i, e := range p.entries {
		want := r.kind.Notes
		if e.Event != nil {
			if wanted != nil && events == len(wanted) {
				break // the rest comes with the next page
			}
			end.pass(e.Event.StreamID, p.leaves[i])
			if end.Count%markEvery == 0 {
				marks = append(marks, end)
			}
			want = wanted == nil || wanted[events]
			events++
		} else {
			end.After = e.Note.Position
		}
		passed++
		if want {
			entries, ends = append(entries, e), append(ends, end)
		}
	}
	r.h.s.count.read.Add(uint64(passed))
	r.lock(func() { r.marks, r.woken = marks, false })
	if len(ends) == 0 {
		r.handled(&end)
	}
	for len(entries) > 0 {
		ends[len(ends)-1] = end
		n, ok := r.call(ctx, p, entries, ends)
		if !ok {
			return
		}
		entries, ends = entries[n:], ends[n:]
	}

	// After the last entry of the feed the reader waits for a change; otherwise for the next page.
	if passed < len(p.entries) {
		return
	}
	quick := r.h.s.o.Clock.Now().Sub(began) < aheadTime/2
	r.lock(func() {
		if p.last && r.now == end {
			r.idle = p.seen + 1
		}
		if !p.last && quick {
			r.quick = p.end
		}
	})
}

func (r *reader) lock(change func()) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	change()
}

// handled records that everything up to a state was handled.
func (r *reader) handled(to *state) {
	now := r.h.s.o.Clock.Now()
	r.lock(func() {
		if r.now == r.saved.state {
			r.since = now
		}
		r.now = *to
	})
}

// skip passes the following events that are in memory and of types that the subscription does not want. It reports
// whether nothing else follows. seen is the number of changes before. The caller holds the holding's mu.
func (r *reader) skip(now time.Time, seen uint64) (all bool) {
	if r.types == nil {
		return false
	}
	r.marks = slices.DeleteFunc(r.marks, func(m state) bool { return m.Count > r.now.Count })
	for some := pageEvents; some == pageEvents; {
		leaves, more := r.h.s.o.Store.ReadOthers(r.h.tenant, r.now.After, r.types, pageEvents)
		if some = len(leaves); some > 0 {
			r.h.busy = now
		}
		r.pass(now, leaves)
		r.h.s.count.read.Add(uint64(some))
		all = !more
	}
	if all {
		r.idle = seen + 1
	}
	return all
}

// pass passes events. The caller holds the holding's mu.
func (r *reader) pass(now time.Time, leaves []store.Leaf) {
	if len(leaves) > 0 && r.now == r.saved.state {
		r.since = now
	}
	for i := range leaves {
		r.now.pass(leaves[i].Position, leaves[i].Hash)
		if r.now.Count%markEvery == 0 {
			r.marks = append(r.marks, r.now)
		}
	}
}

// passAtOnce is how many events are passed at a time.
const passAtOnce = 8 << 10

// passTo passes everything up to a position, which the kind has handled without being handed it.
func (r *reader) passTo(ctx context.Context, upTo j17.StreamID) error {
	r.lock(func() { r.marks = slices.DeleteFunc(r.marks, func(m state) bool { return m.Count > r.now.Count }) })
	for some := make([]store.Leaf, 0, passAtOnce); ; some = some[:0] {
		for leaf, err := range r.h.s.o.Store.ReadLeaves(ctx, r.h.tenant, r.now.After, passAtOnce) {
			if err != nil {
				return err
			}
			if leaf.Position.Compare(upTo) > 0 {
				break
			}
			some = append(some, leaf)
		}
		now := r.h.s.o.Clock.Now()
		r.lock(func() { r.pass(now, some) })
		r.h.s.count.read.Add(uint64(len(some)))
		if len(some) < passAtOnce {
			break
		}
	}
	end := r.now
	end.After = upTo // a note may be at that position
	r.handled(&end)
	r.store(ctx)
	return nil
}

// rests reports whether the subscription leaves its backlog for now. seen is the number of changes before. The caller
// holds the holding's mu.
func (r *reader) rests(now time.Time, seen uint64) bool {
	if r.kind.Rest == nil || r.saved.Failures > 0 || r.now.After.Compare(r.awake) < 0 {
		return false
	}
	extent, err := r.h.s.o.Store.Extent(r.h.work, r.h.tenant)
	if err != nil || extent.Events <= r.now.Count {
		return false
	}
	behind, end := extent.Events-r.now.Count, extent.Last
	if r.kind.Types != nil {
		if behind, end = r.concerned(); behind == 0 {
			return false
		}
	}
	d := r.kind.Rest(r.h.tenant, r.name, behind, end)
	if r.resting = d > 0; !r.resting {
		return false
	}
	r.idle, r.h.busy = seen+1, now
	if !r.timed {
		r.timed = true
		until := now.Add(d)
		go func() {
			err := r.h.s.o.Clock.Wait(r.h.work, until)
			r.lock(func() { r.timed, r.idle = false, 0 })
			if err == nil {
				r.h.poke()
			}
		}()
	}
	return true
}

// backlog is the number of known events of wanted types that a subscription has not passed: those after from, up to a
// position.
type backlog struct {
	from, upTo, last j17.StreamID
	events           uint64
}

// concerned returns the number of events of wanted types that the subscription has not passed, and the position of the
// last one; 0 if that is not known. The caller holds the holding's mu.
func (r *reader) concerned() (behind uint64, end j17.StreamID) {
	if r.types == nil {
		return 0, end
	}
	if r.backlog.from != r.now.After {
		r.backlog = backlog{from: r.now.After, upTo: r.now.After}
	}
	n, last, upTo, ok := r.h.s.o.Store.CountRecent(r.h.tenant, r.backlog.upTo, r.types)
	if !ok {
		r.backlog = backlog{}
		return 0, end
	}
	if r.backlog.upTo = upTo; n > 0 {
		r.backlog.last = last
	}
	r.backlog.events += n
	return r.backlog.events, r.backlog.last
}

// rouse keeps the subscription from resting until it has reached the present end of the feed. The caller holds the
// holding's mu.
func (r *reader) rouse() {
	if extent, err := r.h.s.o.Store.Extent(r.h.work, r.h.tenant); err == nil {
		r.awake, r.idle = extent.Last, 0
	}
}

// wanted asks the kind which events of a page are wanted; nil means all. The answer may be shorter than the page.
func (r *reader) wanted(ctx context.Context, p *page) ([]bool, error) {
	if len(p.events) == 0 {
		return nil, nil
	}
	if r.kind.Types != nil {
		return r.ofTypes(ctx, p)
	}
	if r.kind.Filter == nil {
		return nil, nil
	}
	answer := make(chan []bool, 1)
	err := r.guard(ctx, func(ctx context.Context) error {
		wanted, err := r.kind.Filter(ctx, r.h.tenant, r.name, p.events)
		answer <- wanted
		return err
	})
	if err != nil {
		return nil, err
	}
	wanted := <-answer
	if len(wanted) == 0 || len(wanted) > len(p.events) {
		return nil, fmt.Errorf("the filter of the subscription answers for %d events of %d", len(wanted), len(p.events))
	}
	return wanted, nil
}

// ofTypes asks the kind which types are wanted, and returns which events of a page are of these; nil means all.
func (r *reader) ofTypes(ctx context.Context, p *page) (wanted []bool, err error) {
	answer := make(chan []string, 1)
	err = r.guard(ctx, func(ctx context.Context) error {
		types, err := r.kind.Types(ctx, r.h.tenant, r.name)
		answer <- types
		return err
	})
	if err != nil {
		return nil, err
	}
	types := <-answer
	r.lock(func() { r.types, r.backlog = types, backlog{} })
	if types == nil {
		return nil, nil
	}
	wanted = make([]bool, len(p.events))
	for i, e := range p.events {
		wanted[i] = slices.Contains(types, e.Key.Type)
	}
	return wanted, nil
}

const (
	// graceTime is how long a call may run after its context has ended. After that it is left behind.
	graceTime = 5 * time.Second
	// maxLost is how many calls of a subscription can be left behind before it waits for one of them to return.
	maxLost = 3
)

var (
	errLease = errors.New("the handler took longer than the lease")
	errLost  = errors.New("the handler took longer than the lease and did not return when its context ended; what it does is left behind")
)

// guard calls a function of the kind within the time that a call may take, and turns a panic into an error.
func (r *reader) guard(ctx context.Context, do func(context.Context) error) error {
	clk := r.h.s.o.Clock
	limited, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	until := clk.Now().Add(r.h.s.o.Lease)
	go func() {
		if clk.Wait(limited, until) == nil {
			cut(errLease)
		}
	}()
	done := make(chan error, 1)
	go func() {
		what := "the handler of subscription " + r.key + " of " + string(r.h.tenant)
		done <- panics.Logged(ctx, r.h.s.o.Logger, what, func() error { return do(limited) })
	}()
	select {
	case err := <-done:
		return err
	case <-limited.Done():
	}

	// The call has been asked to end. A handler that does not end only holds up its own subscription.
	grace, returned := context.WithCancel(context.WithoutCancel(ctx))
	defer returned()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = clk.Wait(grace, clk.Now().Add(graceTime)) // in either case the wait is over
	}()
	select {
	case err := <-done:
		return err
	case <-over:
	}
	r.h.s.leaveBehind(r.h.tenant, r.key, done)
	return errLost
}

// call hands out the first of a page's wanted entries. It returns how many were handled, and whether the next ones can
// follow at once.
func (r *reader) call(ctx context.Context, p *page, entries []store.Entry, ends []state) (n int, ok bool) {
	// Nothing is handed out if the subscription was changed, or another set has taken the tenant over.
	if r.saved.Paused || !r.unchanged(ctx) {
		return 0, false
	}
	size := r.kind.Batch >> min(r.saved.Failures, 30)
	size = min(max(size, 1), len(entries))
	b := &Batch{
		Tenant: r.h.tenant, Name: r.name, Entries: entries[:size], Rewrites: p.rewrites, After: r.now.After,
		Attempt: r.saved.Failures + 1,
	}
	if extent, err := r.h.s.o.Store.Extent(ctx, r.h.tenant); err == nil && extent.Events > r.now.Count {
		b.Behind = extent.Events - r.now.Count
	}
	b.move = r.mover(ends[:size])
	err := r.guard(ctx, func(ctx context.Context) error { return r.kind.Do(ctx, b) })

	// Committed moves count, whatever was returned.
	switch {
	case errors.Is(err, errLost): // a call left behind may still commit, which the stored state shows
	case b.asked:
		moved, same := r.committed(ctx, &ends[b.done-1])
		if moved {
			n = b.done
		}
		if !moved && !same {
			return 0, false
		}
		if !moved && err == nil {
			err = errors.New("the handler asked for the writes that move the checkpoint, and did not commit them")
		}
	case err == nil:
		n = size
		r.handled(&ends[n-1])
		if r.saved.Failures > 0 || r.now.Count-r.saved.Count >= flushEvery {
			r.store(ctx)
		}
	default:
		if !r.unchanged(ctx) {
			return 0, false
		}
	}
	r.h.s.count.handled.Add(uint64(n))
	_, later := errors.AsType[Later](err)
	if (err == nil || later) && !b.asked && b.passed.Compare(p.end) > 0 {
		if err := r.passTo(ctx, b.passed); err != nil {
			r.interrupt(ctx, err)
			return n, false
		}
	}
	if err == nil {
		return n, b.passed.Compare(p.end) <= 0
	}
	r.interrupt(ctx, err)
	return n, false
}

// interrupt records why a call of the kind was incomplete.
func (r *reader) interrupt(ctx context.Context, err error) {
	if later, is := errors.AsType[Later](err); is {
		r.lock(func() { r.pauseFor(r.h.s.o.Clock.Now(), later.For) })
		return
	}
	r.fail(ctx, err)
}

// end records the failure of work that is not guarded. If that fails too, the reader is paused.
func (r *reader) end(cause error) {
	err := panics.Caught(func() error {
		r.interrupt(r.h.work, cause)
		return nil
	})
	if err == nil {
		return
	}
	r.h.s.warn(r.h.work, "take down a failure", r.h.tenant, err)
	r.lock(func() {
		r.missed = true // the stored state may have changed
		r.pauseFor(r.h.s.o.Clock.Now(), readPause)
	})
}

// flushEvery is the number of events after which a checkpoint is stored at the latest.
const flushEvery = 8 * markEvery

// unchanged reports whether the stored state is the one that the reader knows. If not, it is read again.
func (r *reader) unchanged(ctx context.Context) bool {
	it, err := r.h.s.o.Store.Get(ctx, r.h.tenant, subscriptions, r.key)
	if err == nil && it.Rev == r.rev {
		return true
	}
	r.lock(func() {
		if r.missed = true; err != nil && !errors.Is(err, store.ErrNotFound) {
			r.pauseFor(r.h.s.o.Clock.Now(), readPause)
		}
	})
	return false
}

// committed determines whether a handler has committed a move. same reports that nobody has written the checkpoint.
func (r *reader) committed(ctx context.Context, to *state) (moved, same bool) {
	it, err := r.h.s.get(context.WithoutCancel(ctx), r.h.tenant, r.key)
	if err == nil && it.rev == r.rev {
		return false, true
	}
	if err != nil || it.ID != r.saved.ID || it.state != *to {
		r.lock(func() { r.missed = true })
		return false, false
	}
	r.lock(func() {
		r.now = *to
		r.adopt(&it)
	})
	return true, false
}

// store stores the reader's progress.
func (r *reader) store(ctx context.Context) {
	if err := r.h.flush(r.move(&r.now), []*reader{r}); err != nil {
		r.h.s.warn(ctx, "store a checkpoint", r.h.tenant, err)
	}
}

// fail records a failure, and pauses before the next try.
func (r *reader) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the set ends, or has lost the tenant: not a failure of the handler
	}
	s := r.h.s
	s.count.failed.Add(1)
	now := s.o.Clock.Now()
	c := r.saved
	if r.now != r.saved.state {
		c.Failures = 0 // those of an entry that was handled since
	}
	c.Failures, c.Error = c.Failures+1, j17.Record(err)
	c.RetryAt = now.Add(r.kind.Retry.After(c.Failures))
	if c.Failures == 1 || c.Error != r.saved.Error {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "a subscription failed; it is tried again", slog.String("tenant", string(r.h.tenant)),
			slog.String("subscription", r.key), slog.Int("attempt", c.Failures), slog.Any("error", err))
	}
	sides := r.move(&r.now)
	c.state, c.Checked = r.now, r.shown
	sides[0].Value = c.encode()
	if failed := r.h.flush(sides, []*reader{r}); failed != nil {
		r.lock(func() {
			r.saved.Failures, r.saved.Error = c.Failures, c.Error
			r.pauseFor(now, c.RetryAt.Sub(now))
		})
	}
}
