package tail

import (
	"context"
	"errors"
	"iter"

	"j17"
	"j17/internal/work"
)

// Walk goes through the events of an environment that a filter lets through, in their order. It is for one goroutine.
type Walk struct {
	tail     *Tail
	tenant   j17.Tenant
	filter   Filter
	position j17.StreamID
	ended    bool
}

// Walk returns a walk that begins after a position.
func (t *Tail) Walk(tenant j17.Tenant, f Filter, after j17.StreamID) *Walk {
	return &Walk{tail: t, tenant: tenant, filter: f, position: after}
}

// Position is how far the walk has come: everything up to it was looked at, and what the filter lets through was taken.
func (w *Walk) Position() j17.StreamID { return w.position }

// Ended reports whether there was nothing more when the walk stopped.
func (w *Walk) Ended() bool { return w.ended }

// What it costs to look at an event, beside its bytes: some two microseconds.
const unitsPerEvent = 40

// Events goes on from where the walk is: it looks at up to limit events at the cost of the budget and yields those that the filter
// lets through. Where the budget is used up the walk stops without an error, having looked at one event at least, and can go on
// with another one. An event that makes the loop break counts as not taken. Events are valid until the next step.
func (w *Walk) Events(ctx context.Context, limit int, b *work.Budget) iter.Seq2[*j17.Event, error] {
	return func(yield func(*j17.Event, error) bool) {
		// What is there. All that comes later is left to another call, so that there is an end.
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
		seen := 0
		for ev, err := range w.source(ctx, limit) {
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
			if w.filter.matches(ev) && !yield(ev, nil) {
				return
			}
			w.position = ev.StreamID
			seen++
		}
		if seen < limit {
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

// usedUp reports whether a budget ended because it was used up, and for no other reason.
func usedUp(b *work.Budget) bool {
	e, ok := errors.AsType[*j17.Error](b.Err())
	return ok && e.Code == j17.CodeWorkLimit
}

// source yields up to limit events after the position, among which are all that the filter lets through.
func (w *Walk) source(ctx context.Context, limit int) iter.Seq2[*j17.Event, error] {
	s := w.tail.store
	if w.filter.Key != (j17.Key{}) {
		return func(yield func(*j17.Event, error) bool) {
			from, err := s.VersionAfter(ctx, w.tenant, w.filter.Key, w.position)
			if err != nil {
				yield(nil, err)
				return
			}
			s.ReadStream(ctx, w.tenant, w.filter.Key, from, from+uint64(limit)-1)(yield)
		}
	}
	if tags := w.filter.tags(); tags != nil {
		return s.ReadTagged(ctx, w.tenant, tags, w.position, limit)
	}
	return s.ReadFeed(ctx, w.tenant, w.position, limit)
}
