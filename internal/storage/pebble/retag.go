package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// Retag gives events other tags. See store.Store.
func (s *eraser) Retag(ctx context.Context, t j17.Tenant, events []store.Retagged, fences ...store.Fence) error {
	err := errors.Join(store.ValidTenant(t), store.ValidRetagged(events), (&store.Append{Fences: fences}).Validate())
	if err != nil {
		return err
	}

	// Leave out those that have the tags already, before other writers have to wait.
	events, err = s.otherwiseTagged(t, events)
	if err != nil || len(events) == 0 {
		return err
	}
	return s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		tn := b.tenant(t)
		var result store.Result
		if err := b.units.Check(tn, &store.Append{Fences: fences}, &result); err != nil {
			return err
		}
		if len(result.Sides) > 0 {
			return &result.Sides[0]
		}
		return b.retag(tn, events)
	})
}

// otherwiseTagged returns the events that have other tags at this moment.
func (s *eraser) otherwiseTagged(t j17.Tenant, events []store.Retagged) (other []store.Retagged, err error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for i := range events {
		e := &events[i]
		v, closer, err := r.snapshot.Get(appendEventKey(nil, r.tenant, e.Key, e.Version))
		if err != nil {
			return nil, notThere(err, e, t)
		}
		var stored eventRecord
		err = stored.parse(v)
		differs := err == nil && stored.kept == nil && !bytes.Equal(stored.tags, record.AppendTags(nil, e.Tags))
		if err = errors.Join(err, closer.Close()); err != nil {
			return nil, corruption(err, "%s version %d of tenant %s", e.Key, e.Version, t)
		}
		if differs {
			other = append(other, *e)
		}
	}
	return other, nil
}

func notThere(err error, e *store.Retagged, t j17.Tenant) error {
	if errors.Is(err, pebble.ErrNotFound) {
		return fmt.Errorf("version %d of %s: %w", e.Version, e.Key, store.ErrNotFound)
	}
	return corruption(err, "%s version %d of tenant %s", e.Key, e.Version, t)
}

// retag stages new tags of events.
func (b *batch) retag(t *tenant, events []store.Retagged) (err error) {
	l, err := newLookup(b.store.db, t.next.Number, &record.TypeNames{})
	if err != nil {
		return err
	}
	defer l.close(&err)
	changed, removed := map[string]tagEntryBits{}, map[string]uint64{}
	for i := range events {
		e := &events[i]
		v, err := b.event(t.next.Number, e.Key, e.Version)
		if err != nil {
			return notThere(err, e, t.name)
		}
		var stored eventRecord
		if err := stored.parse(v); err != nil {
			return corruption(err, "%s version %d of tenant %s", e.Key, e.Version, t.name)
		}
		if stored.kept != nil {
			continue // it was erased meanwhile
		}
		before, err := stored.ownTags()
		if err == nil {
			err = b.retagEntries(l, &stored, before, e.Tags, changed, removed)
		}
		if err != nil {
			return corruption(err, "the tags of %s version %d of tenant %s", e.Key, e.Version, t.name)
		}
		b.put(
			appendEventKey(b.key[:0], t.next.Number, e.Key, e.Version),
			stored.withTags(b.value[:0], v, record.AppendTags(nil, e.Tags)),
		)
	}

	// Stage the index entries. One without events is removed.
	for key, entry := range changed {
		if entry.set != 0 {
			t.tagFilter.Load().add(t.next.Number, tagID([]byte(key)[tenantPrefix+1:]).filtered())
		}
		switch {
		case entry.set == 0:
			b.remove([]byte(key))
		case entry.run == 1:
			must(b.writes.Set([]byte(key), nil, nil))
		default:
			must(b.writes.Set([]byte(key), binary.BigEndian.AppendUint64(nil, entry.set), nil))
		}
	}
	b.stageReplaced(t, removed)
	b.forgetRecent(t)
	return nil
}

// tagEntryBits is an entry of the index: which of a run of events have the tag.
type tagEntryBits struct {
	set uint64
	run int
}

// retagEntries changes the entries of an event's tags. changed has the entries as they will be, removed those that an
// event was removed from.
func (b *batch) retagEntries(
	l *lookup, stored *eventRecord, before, now []string, changed map[string]tagEntryBits, removed map[string]uint64,
) error {
	// The run of the feed that the event is in, and its place there.
	if !l.feed.SeekGE(appendFeedKey(nil, l.tenant, stored.id)) {
		return errors.Join(errGap, l.feed.Error())
	}
	last, err := l.open()
	if err != nil {
		return err
	}
	n := 0
	for n < len(l.run) && ahead(last, n) != stored.id {
		n++
	}
	if n == len(l.run) {
		return errGap
	}

	// Change the entries of the tags that are removed or added.
	change := func(tag string, has bool) error {
		key := string(appendTagKey(nil, l.tenant, idOfTag([]byte(tag)), last))
		entry, ok := changed[key]
		if !ok {
			set, err := b.tagEntry([]byte(key))
			if err != nil {
				return err
			}
			entry = tagEntryBits{set, len(l.run)}
		}
		if entry.set &^= 1 << n; has {
			entry.set |= 1 << n
		} else {
			removed[key] = 0
		}
		changed[key] = entry
		return nil
	}
	had := make(map[string]bool, len(before))
	for _, tag := range before {
		had[tag] = true
	}
	for _, tag := range now {
		if record.FromMetadata(tag) {
			continue
		}
		if err := change(tag, true); err != nil {
			return err
		}
		delete(had, tag)
	}
	for tag := range had {
		if err := change(tag, false); err != nil {
			return err
		}
	}
	return nil
}

// tagEntry returns which events of a run an entry of the index names, none if there is no such entry.
func (b *batch) tagEntry(key []byte) (uint64, error) {
	v, closer, err := b.store.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	set, err := tagBits(v)
	return set, errors.Join(err, closer.Close())
}

// withTags appends the event's value with other tags, in their stored form, to dst. v is the present value.
func (r *eventRecord) withTags(dst, v, tags []byte) []byte {
	start := len(dst)
	dst = append(dst, v[:eventHeader]...)
	if dst[start+1] &^= flagTagged; len(tags) > 0 {
		dst[start+1] |= flagTagged
		dst = append(binary.AppendUvarint(dst, uint64(len(tags))), tags...)
	}
	return append(dst, r.leafInput...)
}

// stageReplaced stages the record of what was replaced without a rewrite (index entries of removed tags, results of
// commands), so that a later erasure finds it.
func (b *batch) stageReplaced(t *tenant, replaced map[string]uint64) {
	if len(replaced) == 0 {
		return
	}
	t.next.Rev++
	b.units.Touch(t)
	key := record.AppendPosition(appendPrefix(nil, t.next.Number, kindPurge), t.next.Last)
	must(b.writes.Set(
		binary.BigEndian.AppendUint64(key, t.next.Rev), purgeRecord(slices.Sorted(maps.Keys(replaced))), nil,
	))
}
