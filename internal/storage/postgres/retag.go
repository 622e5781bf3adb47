package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// Retag is part of store.Retagging.
func (e *eraser) Retag(ctx context.Context, t j17.Tenant, events []store.Retagged, fences ...store.Fence) error {
	u := &store.Append{Fences: fences}
	err := errors.Join(store.ValidTenant(t), store.ValidRetagged(events), u.Validate())
	if err != nil {
		return err
	}

	// Events that have these tags already are skipped here, outside the lane.
	events, err = e.otherwiseTagged(ctx, t, events)
	if err != nil || len(events) == 0 {
		return err
	}
	var r store.Result
	err = e.queue.DoFor(ctx, t, queue.Ordinary, func(b *batch) error {
		of := e.tenant(t)
		if err := b.prepareUnit(of, u); err != nil {
			return err
		}
		r = store.Result{}
		if err := b.units.Check(of, u, &r); err != nil || len(r.Sides) > 0 {
			return err
		}
		return b.retag(of, events)
	})
	if err == nil && len(r.Sides) > 0 {
		return &r.Sides[0]
	}
	return err
}

// otherwiseTagged returns the events whose present tags differ.
func (e *eraser) otherwiseTagged(
	ctx context.Context, t j17.Tenant, events []store.Retagged,
) (other []store.Retagged, err error) {
	number, err := e.lookups.number(ctx, t)
	if err != nil {
		return nil, err
	}
	p, tags := namesOf(events)
	differs := map[eventName]bool{}
	err = e.read(ctx, "tags of events", func(conn reading) error {
		return storedEvents(ctx, conn, number, p, false, func(at eventName, old *storedEvent) error {
			if old.kept == nil && !bytes.Equal(old.tags, record.AppendTags(nil, tags[at])) {
				differs[at] = true
			}
			return nil
		})
	})
	for i := range events {
		if differs[eventName{events[i].Key, events[i].Version}] {
			other = append(other, events[i])
		}
	}
	return other, err
}

// namesOf returns the names of events, and the new tags of each. Of several for an event, the last ones are used.
func namesOf(events []store.Retagged) (p *eventNames, tags map[eventName][]string) {
	p, tags = &eventNames{}, make(map[eventName][]string, len(events))
	for i := range events {
		at := eventName{events[i].Key, events[i].Version}
		if _, again := tags[at]; !again {
			p.add(at.key, at.version)
		}
		tags[at] = events[i].Tags
	}
	return p, tags
}

// retag replaces the tags of events.
func (b *batch) retag(t *tenant, events []store.Retagged) error {
	b.units.Touch(t)
	number := int32(t.next.Number)
	b.w.stored.t = number
	p, tags := namesOf(events)
	return b.stored(t, p, false, func(at eventName, old *storedEvent) error {
		if old.kept != nil {
			return nil // it was erased meanwhile
		}
		before, err := record.ParseTags(old.tags)
		if err != nil {
			return corruption(err, "the tags of %s version %d of tenant %s", at.key, at.version, t.name)
		}
		for _, tag := range before {
			if !slices.Contains(tags[at], tag) {
				b.w.stored.untag(old.id, tag)
			}
		}
		for _, tag := range tags[at] {
			if !record.FromMetadata(tag) && !slices.Contains(before, tag) {
				b.w.tags.add(number, tag, old.id)
			}
		}
		b.w.stored.retag(old.id, append([]byte{}, record.AppendTags(nil, tags[at])...))
		return nil
	})
}
