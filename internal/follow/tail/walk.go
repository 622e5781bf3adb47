package tail

import (
	"context"
	"errors"
	"iter"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/storage/store"
)

// Walk goes through the events of an environment that a filter selects, in order. It is for one goroutine.
type Walk struct {
	tail     *Tail
	tenant   j17.Tenant
	test     test
	position j17.StreamID
	ended    bool
}

// Walk returns a walk that begins after a position.
func (t *Tail) Walk(tenant j17.Tenant, f Filter, after j17.StreamID) *Walk {
	return &Walk{tail: t, tenant: tenant, test: newTest(f), position: after}
}

// Position returns the walk's position: everything up to it was looked at, and the selected events were taken.
func (w *Walk) Position() j17.StreamID { return w.position }

// Ended reports whether the walk stopped because there were no more events.
func (w *Walk) Ended() bool { return w.ended }

// The cost of looking at an event, without its bytes, and at an entry of the index of tags: some two microseconds, and
// one.
const (
	unitsPerEvent = 40
	unitsPerStep  = 20
)

// Events continues from the walk's position: it looks at up to limit events at the cost of the budget and yields those
// that the filter selects. If the budget is used up, the walk stops without an error after at least some progress, and
// can continue with another budget. An event at which the loop breaks counts as not taken. Events are valid until the
// next step.
func (w *Walk) Events(ctx context.Context, limit int, b *work.Budget) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		// The present events. Later ones are left to another call, so that the walk ends.
		w.ended = false
		head, err := w.tail.Head(ctx, w.tenant)
		if err != nil {
			yield(nil, err)
			return
		}
		if head.Compare(w.position) <= 0 {
			w.ended = true
			return
		}

		// The events.
		seen, stopped := 0, false
		looked := func(steps int, upTo j17.StreamID) bool {
			if !upTo.IsZero() {
				w.position = upTo
			}
			stopped = !b.Spend(steps * unitsPerStep)
			return !stopped
		}
		for ev, err := range w.source(ctx, limit, looked) {
			if err != nil {
				yield(nil, err)
				return
			}
			if seen > 0 && !w.afford(b, len(ev.Raw)) {
				if !usedUp(b) {
					yield(nil, b.Err())
				}
				return
			}
			shown, err := w.show(ctx, ev)
			if err != nil && upcast.Failure(err) == nil {
				yield(nil, err)
				return
			}
			if fits := w.test.fits(shown); fits && err != nil {
				yield(nil, err)
				return
			} else if fits && !yield(shown, nil) {
				return
			}
			w.position = ev.StreamID
			seen++
		}
		if stopped && !usedUp(b) {
			yield(nil, b.Err())
		}
		if !stopped && seen < limit {
			w.ended = true
			if head.Compare(w.position) > 0 {
				w.position = head
			}
		}
	}
}

func (w *Walk) afford(b *work.Budget, size int) bool {
	return b.Spend(unitsPerEvent + size/work.BytesPerUnit)
}

// show returns an event as the walk hands it out. An event that cannot be read is returned with the error and what is
// known of it.
func (w *Walk) show(ctx context.Context, ev *j17.Event) (*j17.Event, error) {
	if !w.test.filter.Stored {
		return w.tail.shown.Show(ctx, w.tenant, ev)
	}
	name := w.tail.shown.Type(w.tenant, ev)
	if name == ev.Type {
		return ev, nil
	}
	named := *ev
	named.Type, named.Stored = name, ev
	return &named, nil
}

// usedUp reports whether a budget ended because it was used up, and for no other reason.
func usedUp(b *work.Budget) bool {
	e, ok := errors.AsType[*j17.Error](b.Err())
	return ok && e.Code == j17.CodeWorkLimit
}

// source yields up to limit events after the position, among which are all that the filter selects. It reports entries
// that it looks at without an event to looked, which may end it.
func (w *Walk) source(
	ctx context.Context, limit int, looked func(steps int, upTo j17.StreamID) bool,
) iter.Seq2[*j17.Event, error] {
	s := w.tail.store
	if key := w.test.filter.Key; key != (j17.Key{}) {
		return func(yield func(*j17.Event, error) bool) {
			from, err := s.VersionAfter(ctx, w.tenant, key, w.position)
			if err != nil {
				yield(nil, err)
				return
			}
			s.ReadStream(ctx, w.tenant, key, from, from+uint64(limit)-1)(yield)
		}
	}
	if w.test.tags != nil {
		return s.ReadTagged(
			ctx, w.tenant, store.Tagged{Tags: w.test.tags, Types: w.test.stored(w.tail.shown, w.tenant)}, w.position,
			limit, looked,
		)
	}
	return s.ReadFeed(ctx, w.tenant, w.position, limit)
}
