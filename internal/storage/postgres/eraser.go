package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"j17"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// eraser is the store in the roles of store.Erasure and store.Retagging.
type eraser struct {
	*core

	lookups *lookups
	cells   *cellJob
}

// Rewrite is part of store.Erasure.
func (e *eraser) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (result store.Result, err error) {
	if err := errors.Join(store.ValidTenant(t), r.Validate()); err != nil {
		return store.Result{}, err
	}
	known, err := e.presentChains(ctx, t, r.Streams)
	if err != nil {
		return store.Result{}, err
	}
	err = e.queue.DoFor(ctx, t, queue.Ordinary, func(b *batch) error {
		of := e.tenant(t)
		for i := range r.Streams {
			needed{b, of}.Head(r.Streams[i].Key)
		}
		if err := b.prepareUnit(of, &store.Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}); err != nil {
			return err
		}
		result, err = b.units.Rewrite(ctx, of, &r, known, b)
		for _, h := range b.units.Changed() {
			b.w.stored.head(&h.Head)
		}
		return err
	})
	if err == nil && len(result.IDs) > 0 && e.o.Shared {
		e.beside.outlast()
	}
	return result, err
}

// presentChains computes the chains over the present bytes of streams, outside the lanes.
func (e *eraser) presentChains(
	ctx context.Context, t j17.Tenant, streams []store.RewrittenStream,
) ([]unit.PresentChain, error) {
	keys := make([]j17.Key, len(streams))
	for i := range streams {
		keys[i] = streams[i].Key
	}
	number, err := e.lookups.number(ctx, t)
	if err != nil {
		return nil, err
	}
	heads, err := e.lookups.Heads(ctx, t, keys)
	if err != nil {
		return nil, err
	}
	return unit.PresentChains(ctx, number, streams, heads, e.eventsOf(t))
}

// number returns the number of a tenant, 0 if it holds nothing.
func (l *lookups) number(ctx context.Context, t j17.Tenant) (uint32, error) {
	extent, err := l.Extent(ctx, t)
	return uint32(extent.Life), err
}

// eventsOf returns a function that reads events of streams of a tenant.
func (c *core) eventsOf(t j17.Tenant) unit.Events {
	return func(ctx context.Context, key j17.Key, after, upTo uint64, do func(j17.StreamID, int64, []byte)) error {
		for e, err := range (&streams{core: c}).ReadStream(ctx, t, key, after+1, upTo) {
			if err != nil {
				return err
			}
			do(e.StreamID, e.Timestamp, e.Raw)
			after++
		}
		if after < upTo {
			return corruption(errGap, "%s version %d of tenant %s", key, after+1, t)
		}
		return nil
	}
}

// Events is part of unit.Rewriter.
func (b *batch) Events(t *tenant) unit.Events { return b.lane.eventsOf(t.name) }

// Replace is part of unit.Rewriter.
func (b *batch) Replace(_ context.Context, t *tenant, stream *store.RewrittenStream) error {
	rewritten := make(map[uint64]*store.Rewritten, len(stream.Events))
	names := &eventNames{}
	for i := range stream.Events {
		version := stream.Events[i].Version
		if rewritten[version] == nil {
			names.add(stream.Key, version)
		}
		rewritten[version] = &stream.Events[i]
	}
	b.w.stored.t, b.w.stored.rewritten = int32(t.next.Number), true
	if len(names.list) == 0 {
		return nil
	}
	var raw []byte
	return b.stored(t, names, true, func(at eventName, old *storedEvent) error {
		e := rewritten[at.version]
		tags, err := old.allTags()
		if err != nil {
			return corruption(err, "the tags of %s version %d of tenant %s", stream.Key, at.version, t.name)
		}
		for _, tag := range tags {
			b.w.stored.untag(old.id, tag)
		}
		var layout j17.Layout
		raw, layout = j17.AppendEvent(raw[:0], old.id, stream.Key, e.Type, e.Data, e.Metadata, old.time)
		leaf := old.leaf()
		b.w.stored.replace(old.id, e.Type, bytes.Clone(raw), layout, bytes.Clone(leaf[:]))
		return nil
	})
}

// WriteNote is part of unit.Rewriter.
func (b *batch) WriteNote(_ *tenant, note *store.Note) {
	b.w.stored.note, b.w.stored.noted = note.Position, record.AppendNote(nil, note)
}

// eventName names an event.
type eventName struct {
	key     j17.Key
	version uint64
}

// eventNames are events that are asked for together.
type eventNames struct {
	list     []eventName
	streams  [][]byte
	versions []int64
}

func (p *eventNames) add(key j17.Key, version uint64) {
	p.list = append(p.list, eventName{key, version})
	p.streams, p.versions = append(p.streams, record.Stream(key)), append(p.versions, int64(version))
}

// storedEvent has the fields of a stored event that its changes depend on.
type storedEvent struct {
	id         j17.StreamID
	time       int64
	kept, tags []byte
	// metadataAt is the offset of the metadata in raw, which is nil unless it was asked for.
	metadataAt int
	raw        []byte
}

// leaf returns the leaf hash of the event's original content.
func (e *storedEvent) leaf() [32]byte {
	if e.kept != nil {
		return [32]byte(e.kept)
	}
	return j17.Leaf(e.raw)
}

// allTags returns the tags of the event, none if it was erased.
func (e *storedEvent) allTags() ([]string, error) {
	if e.kept != nil {
		return nil, nil
	}
	own, err := record.ParseTags(e.tags)
	if e.metadataAt <= 0 || e.metadataAt >= len(e.raw) {
		err = errors.Join(err, errLayout)
	}
	if err != nil {
		return nil, err
	}
	return append(j17.MetadataTags(j17.Layout{Metadata: e.metadataAt}.MetadataOf(e.raw)), own...), nil
}

// errLayout is the cause of a CorruptionError for wrong offsets of data and metadata.
var errLayout = errors.New("the places of data and metadata are wrong")

const selectStored = `SELECT u.i, e.ms, e.n, e.time, e.kept, e.tags, e.metadata_at, CASE WHEN $4 THEN e.raw END
FROM unnest($2::bytea[], $3::bigint[]) WITH ORDINALITY u (stream, version, i),
LATERAL (SELECT * FROM events e WHERE e.t = $1 AND e.stream = u.stream AND e.version = u.version AND e.kind = 0 LIMIT 1) e`

// storedEvents calls do for each of some events of a tenant. The error wraps store.ErrNotFound if one does not exist.
func storedEvents(
	ctx context.Context, conn reading, number uint32, p *eventNames, raw bool,
	do func(at eventName, e *storedEvent) error,
) error {
	rows, err := conn.Query(ctx, selectStored, int32(number), p.streams, p.versions, raw)
	if err != nil {
		return err
	}
	found := make([]bool, len(p.list))
	var at, seq int64
	var e storedEvent
	_, err = pgx.ForEachRow(
		rows, []any{&at, &e.id.Ms, &seq, &e.time, &e.kept, &e.tags, &e.metadataAt, &e.raw}, func() error {
			e.id.Seq = uint32(seq)
			found[at-1] = true
			one := e
			e.kept, e.tags, e.raw = nil, nil, nil
			return do(p.list[at-1], &one)
		},
	)
	for i := range found {
		if err == nil && !found[i] {
			err = fmt.Errorf("version %d of %s: %w", p.list[i].version, p.list[i].key, store.ErrNotFound)
		}
	}
	return err
}

// stored is storedEvents on the connection of the lane.
func (b *batch) stored(t *tenant, p *eventNames, raw bool, do func(at eventName, e *storedEvent) error) error {
	err := storedEvents(b.lane.ending, b.lane.conn, t.next.Number, p, raw, do)
	if errors.Is(err, store.ErrNotFound) {
		return err
	}
	if damage, is := errors.AsType[*store.CorruptionError](err); is {
		return damage
	}
	return b.lane.failed("stored events", err)
}
