package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// eraser is the part of the store that changes or removes stored data.
type eraser struct {
	*core
	store.PurgesAtOnce

	bulk *bulk
}

// Rewrite replaces events. See store.Store.
func (s *eraser) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (result store.Result, err error) {
	if err := errors.Join(store.ValidTenant(t), r.Validate()); err != nil {
		return store.Result{}, err
	}
	known, err := s.presentChains(ctx, t, r.Streams)
	if err != nil {
		return store.Result{}, err
	}
	return s.rewrite(ctx, t, &r, known)
}

// rewrite replaces events of streams. known are their present chains, up to the lengths that they had just before.
func (s *eraser) rewrite(
	ctx context.Context, t j17.Tenant, r *store.Rewrite, known []unit.PresentChain,
) (result store.Result, err error) {
	err = s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		with := &rewriting{batch: b, untagged: map[string]uint64{}}
		result, err = b.units.Rewrite(ctx, b.tenant(t), r, known, with)
		return err
	})
	return result, err
}

// Rewrites returns how often events were rewritten. See store.Store.
func (s *feeds) Rewrites() uint64 { return s.rewrites.Load() }

// rewriting stages a rewrite.
type rewriting struct {
	*batch

	// untagged has the entries of tags that were changed.
	untagged map[string]uint64
}

// Replace is part of unit.Rewriter.
func (b *rewriting) Replace(_ context.Context, t *tenant, stream *store.RewrittenStream) error {
	key := stream.Key
	for i := range stream.Events {
		e := &stream.Events[i]
		var old eventRecord
		v, err := b.event(t.next.Number, key, e.Version)
		if err == nil {
			err = old.parse(v)
		}
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return fmt.Errorf("version %d of %s: %w", e.Version, key, store.ErrNotFound)
		case err != nil:
			return corruption(err, "%s version %d of tenant %s", key, e.Version, t.name)
		}
		if err := b.untag(t, &old, b.untagged); err != nil {
			return corruption(err, "the tags of %s version %d of tenant %s", key, e.Version, t.name)
		}
		leaf := old.leaf()
		b.put(appendEventKey(b.key[:0], t.next.Number, key, e.Version),
			appendEventRecord(b.value[:0], old.id, key, e.Type, e.Data, e.Metadata, old.timestamp, leaf[:], nil))
	}
	b.rewritten = true
	return nil
}

// Events is part of unit.Rewriter.
func (b *rewriting) Events(t *tenant) unit.Events { return eventsOf(b.store.db, t.next.Number, t.name) }

// WriteNote is part of unit.Rewriter.
func (b *rewriting) WriteNote(t *tenant, note *store.Note) {
	must(b.writes.Set(appendFeedKey(nil, t.next.Number, note.Position), record.AppendNote(nil, note), nil))
	b.stagePurge(t, note.Position, b.untagged)
}

// presentChains computes the present chains of streams outside the committer, where it would make all writers wait.
func (s *eraser) presentChains(
	ctx context.Context, t j17.Tenant, streams []store.RewrittenStream,
) ([]unit.PresentChain, error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	heads := make([]store.Head, len(streams))
	for i := range streams {
		if r.tenant == 0 {
			break
		}
		if heads[i], err = r.load(streams[i].Key); err != nil {
			return nil, err
		}
	}
	return unit.PresentChains(ctx, r.tenant, streams, heads, eventsOf(r.snapshot, r.tenant, t))
}

// eventsOf returns a function that reads events of a tenant's streams.
func eventsOf(from pebble.Reader, number uint32, name j17.Tenant) unit.Events {
	return func(
		ctx context.Context, key j17.Key, after, upTo uint64, do func(j17.StreamID, int64, []byte),
	) (err error) {
		it, err := newIter(
			from, appendEventKey(nil, number, key, after+1), next(appendEventKey(nil, number, key, upTo)),
		)
		if err != nil {
			return err
		}
		defer closeIter(it, &err, key.String())
		var record eventRecord
		for ok := it.First(); after < upTo; ok = it.Next() {
			after++
			if !ok || !bytes.HasSuffix(it.Key(), binary.BigEndian.AppendUint64(nil, after)) {
				err := errors.Join(errGap, it.Error())
				return corruption(err, "%s version %d of tenant %s", key, after, name)
			}
			v, err := it.ValueAndErr()
			if err == nil {
				err = record.parse(v)
			}
			if err != nil {
				return corruption(err, "%s version %d of tenant %s", key, after, name)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			do(record.id, record.timestamp, record.raw)
		}
		return nil
	}
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
