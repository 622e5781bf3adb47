package engine

import (
	"errors"
	"strings"

	"j17"
	"j17/internal/base/work"
)

// What a plan makes is charged to the budget of its command, by the table of package work: each effect as it is made,
// and all stored data by its bytes. The budget is used up before a unit of the store is full, so that a write is
// refused while it is planned, and not at the commit for its size.

// chargeEvents charges what the events of a plan cost beyond their decision: their bytes, and the deliveries to
// listeners.
func (p *plan) chargeEvents(b *work.Budget) error {
	told := 0
	for i := range p.unit.Events {
		ev := &p.unit.Events[i]
		size := len(ev.Type) + len(ev.Data) + len(ev.Metadata)
		for _, tag := range ev.Tags {
			size += len(tag)
		}
		if !b.Start(work.Tag, 0, size) {
			return usedUp(b, "the size of its events, with those that they imply")
		}
	}
	for i := range p.events {
		if of := p.events[i].Spec; of != nil {
			told += of.Listeners
		}
	}
	if !b.Start(work.Delivery, told, 0) {
		return usedUp(b, j17.Count(told, "delivery")+" to listeners")
	}
	return nil
}

// chargeItems charges the side writes that were not charged yet.
func (p *plan) chargeItems(b *work.Budget) error {
	size := 0
	more := p.unit.Side[p.charged:]
	for i := range more {
		size += len(more[i].Key) + len(more[i].Value)
	}
	p.charged = len(p.unit.Side)
	if !b.Start(work.Item, len(more), size) {
		return usedUp(b, "what is stored with its events")
	}
	return nil
}

// usedUp returns the error of a budget that has ended; what names the cost that has used it up.
func usedUp(b *work.Budget, what string) error {
	cause, ok := errors.AsType[*j17.Error](b.Err())
	if !ok || cause.Code != j17.CodeWorkLimit {
		return b.Err()
	}
	return j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by %s. Nothing was written. Split it into smaller writes.", strings.TrimSuffix(cause.Message, "."), what).Because(cause)
}
