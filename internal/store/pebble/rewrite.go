package pebble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// Rewrite replaces events. See store.Store.
func (s *Store) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (result store.Result, err error) {
	if err := errors.Join(store.ValidTenant(t), r.Validate()); err != nil {
		return store.Result{}, err
	}

	// The conditions are those of a unit without events.
	err = s.run(ctx, ordinary, func(b *batch) error {
		tn := b.tenant(t)
		u := &store.Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}
		result = store.Result{Outcome: store.Committed, Timestamp: tn.next.raise(0)}
		if err := b.checkUnit(tn, u, &result); err != nil {
			return err
		}
		if len(result.Streams) > 0 || len(result.Sides) > 0 {
			result.Outcome = store.Conflict
			return nil
		}

		// What can fail for its side writes comes before the first change.
		if err := b.loadUnit(tn, u); err != nil {
			return err
		}

		// The events, each stream under a new generation.
		note, untagged := store.Note{Position: b.position(tn)}, map[string]uint64{}
		for i := range r.Streams {
			stream := &r.Streams[i]
			if len(stream.Events) == 0 {
				continue
			}
			generation, err := b.rewrite(tn, stream, untagged)
			if err != nil {
				return err
			}
			note.Streams = append(note.Streams, store.Generation{Key: stream.Key, Number: generation})
		}

		// Readers of the feed meet the note where they would meet an event.
		if len(note.Streams) > 0 {
			b.stageNote(tn, &note)
			b.stagePurge(tn, note.Position, untagged)
			result.IDs = []j17.StreamID{note.Position}
		}
		for i := range u.Side {
			b.stageSide(tn, &u.Side[i], b.sides[i], nil)
		}
		return nil
	})
	return result, err
}

// Rewrites returns how often events were rewritten. See store.Store.
func (s *Store) Rewrites() uint64 { return s.rewrites.Load() }

// rewrite stages the new content of a stream's events and returns the stream's generation. The entries of tags that it changes are added
// to untagged.
func (b *batch) rewrite(t *tenant, stream *store.RewrittenStream, untagged map[string]uint64) (uint64, error) {
	// The events.
	key, leaves := stream.Key, map[uint64][hashBytes]byte{}
	for i := range stream.Events {
		e := &stream.Events[i]
		var old eventRecord
		v, err := b.event(t.nextNumber, key, e.Version)
		if err == nil {
			err = old.parse(v)
		}
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return 0, fmt.Errorf("version %d of %s: %w", e.Version, key, store.ErrNotFound)
		case err != nil:
			return 0, corruption(err, "%s version %d of tenant %s", key, e.Version, t.name)
		}
		if err := b.untag(t, &old, untagged); err != nil {
			return 0, corruption(err, "the tags of %s version %d of tenant %s", key, e.Version, t.name)
		}
		leaf := old.leaf()
		b.put(appendEventKey(b.key[:0], t.nextNumber, key, e.Version),
			appendEventRecord(b.value[:0], old.id, key, e.Type, e.Data, e.Metadata, old.timestamp, leaf[:], nil))
		leaves[e.Version] = sha256.Sum256(b.value[eventHeader+hashBytes:])
	}
	b.rewritten = true

	// The head.
	h, err := b.head(t.nextNumber, key)
	if err != nil {
		return 0, err
	}
	if h.Present, err = b.presentChain(t, key, h.Length, leaves); err != nil {
		return 0, err
	}
	h.Generation++
	if !h.changed {
		h.changed = true
		b.changed = append(b.changed, h)
	}
	return h.Generation, nil
}

// presentChain returns the chain over the bytes that the events of a stream have now. leaves are those of the events that the batch
// rewrites.
func (b *batch) presentChain(t *tenant, key j17.Key, length uint64, leaves map[uint64][hashBytes]byte) (chain [hashBytes]byte, err error) {
	it, err := newIter(b.store.db, appendEventPrefix(nil, t.nextNumber, key), next(appendEventKey(nil, t.nextNumber, key, length)))
	if err != nil {
		return chain, err
	}
	defer closeIter(it, &err, key.String())
	var record eventRecord
	ok := it.First()
	for version := uint64(1); version <= length; version, ok = version+1, it.Next() {
		if !ok || !bytes.HasSuffix(it.Key(), binary.BigEndian.AppendUint64(nil, version)) {
			return chain, corruption(errors.Join(errGap, it.Error()), "%s version %d of tenant %s", key, version, t.name)
		}
		leaf, changed := leaves[version]
		if !changed {
			v, err := it.ValueAndErr()
			if err == nil {
				err = record.parse(v)
			}
			if err != nil {
				return chain, corruption(err, "%s version %d of tenant %s", key, version, t.name)
			}
			leaf = sha256.Sum256(record.leafInput)
		}
		chain = j17.Link(chain, leaf)
	}
	return chain, nil
}

// stageNote stages a note in the feed.
func (b *batch) stageNote(t *tenant, note *store.Note) {
	b.stage(t)
	must(b.writes.Set(appendFeedKey(nil, t.nextNumber, note.Position), appendNote(nil, note), nil))
	t.next.last = note.Position
}

// event returns a copy of an event's value.
func (b *batch) event(tenant uint32, key j17.Key, version uint64) ([]byte, error) {
	v, closer, err := b.store.db.Get(appendEventKey(nil, tenant, key, version))
	if err != nil {
		return nil, err
	}
	v = append([]byte(nil), v...)
	return v, closer.Close()
}
