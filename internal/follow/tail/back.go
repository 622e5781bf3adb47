package tail

import (
	"context"
	"slices"

	"j17"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
)

// Back is a page of events before a position, the newest first.
type Back struct {
	Events []*j17.Event
	// More reports that there may be events before Next, the position before which the next page ends.
	More bool
	Next j17.StreamID
}

const (
	// firstSpan is how many milliseconds the first stretch covers; each further one is spanFactor times as long as the
	// one before.
	firstSpan  = 64
	spanFactor = 4
	// mostBack is how many bytes of events are held for a page.
	mostBack = 8 << 20
)

// Before returns up to count events before a position that a filter selects, the newest first, at the cost of the
// budget. The feed is only read forwards, so it is read in stretches, each before the previous one and longer. A
// stretch with far more events than requested is halved until its newest part is short enough, so that the cost of a
// page depends on its content and not on how events are spread over time. If the budget is used up after the first
// stretch, the page has what was found, and More is true. Before an event that cannot be read in the newest generation
// the page ends, and the next one is the error.
func (t *Tail) Before(
	ctx context.Context, tenant j17.Tenant, f Filter, before j17.StreamID, count int, b *work.Budget,
) (*Back, error) {
	page := &Back{Next: before}
	size := 0
	for span := int64(firstSpan); page.Next.Ms > 0 || page.Next.Seq > 0; {
		from := j17.StreamID{Ms: max(0, page.Next.Ms-span)}
		found, whole, unreadable, err := t.stretch(ctx, tenant, f, from, page.Next, count+1-len(page.Events), b)
		if err != nil {
			if usedUp(b) && page.Next != before {
				page.More = true
				return page, nil
			}
			return nil, err
		}
		if !whole {
			if span == 1 {
				return nil, b.Err()
			}
			span = max(1, min(span, page.Next.Ms-from.Ms)/2)
			continue
		}

		// The newest of them, as many as there is room for.
		for _, ev := range slices.Backward(found) {
			if len(page.Events) == count || len(page.Events) > 0 && size+len(ev.Raw) > mostBack {
				page.More, page.Next = true, page.Events[len(page.Events)-1].StreamID
				return page, nil
			}
			page.Events = append(page.Events, ev)
			size += len(ev.Raw)
		}
		if unreadable != nil {
			if len(page.Events) == 0 {
				return nil, unreadable
			}
			page.More, page.Next = true, page.Events[len(page.Events)-1].StreamID
			return page, nil
		}
		page.Next = from
		span *= spanFactor
	}
	return page, nil
}

// stretch reads the events from one position on and before another one, and returns at most most of those that the
// filter selects, the newest ones. They are those behind the last event that cannot be read, of which unreadable is the
// error. It is not whole if there are far more events to look at, and the stretch can be halved.
func (t *Tail) stretch(
	ctx context.Context, tenant j17.Tenant, f Filter, from, before j17.StreamID, most int, b *work.Budget,
) (found []*j17.Event, whole bool, unreadable, err error) {
	after := j17.StreamID{} // everything comes after it
	if from.Ms > 0 {
		after = j17.StreamID{Ms: from.Ms - 1, Seq: ^uint32(0)}
	}
	limit := 4*most + 256
	if before.Ms-from.Ms <= 1 {
		limit = 1 << 30
	}
	w := t.Walk(tenant, f, after)
	looked := func(steps int, _ j17.StreamID) bool { return b.Spend(steps * unitsPerStep) }
	size, seen := 0, 0
	for ev, err := range w.source(ctx, limit, looked) {
		if err != nil {
			return nil, false, nil, err
		}
		if ev.StreamID.Compare(before) >= 0 {
			return found, true, unreadable, nil
		}
		if !w.afford(b, len(ev.Raw)) {
			break
		}
		seen++
		shown, err := w.show(ctx, ev)
		if shown != nil && !w.test.fits(shown) {
			continue
		}
		if upcast.Failure(err) != nil {
			found, size, unreadable = nil, 0, err
			continue
		}
		if err != nil {
			return nil, false, nil, err
		}
		found = append(found, shown.Clone())
		size += len(ev.Raw)
		for len(found) > most || len(found) > 1 && size > mostBack {
			size -= len(found[0].Raw)
			found, unreadable = found[1:], nil // it is on a page further back
		}
	}
	if err := b.Err(); err != nil {
		return nil, false, nil, err
	}
	return found, seen < limit, unreadable, nil
}
