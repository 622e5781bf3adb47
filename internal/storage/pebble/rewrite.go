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
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// eraser is the part of the store that changes or removes stored data.
type eraser struct {
	*core

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

// rewrite replaces events of streams. Their chains are known up to the lengths that they had just before.
func (s *eraser) rewrite(
	ctx context.Context, t j17.Tenant, r *store.Rewrite, known []presentChain,
) (result store.Result, err error) {
	// The conditions are those of a unit without events.
	err = s.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		tn := b.tenant(t)
		u := &store.Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}
		result = store.Result{Outcome: store.Committed, Timestamp: tn.next.Raise(0)}
		if err := b.units.Check(tn, u, &result); err != nil {
			return err
		}
		if len(result.Streams) > 0 || len(result.Sides) > 0 {
			result.Outcome = store.Conflict
			return nil
		}

		// What can fail for its side writes comes before the first change.
		if err := b.units.Load(tn, u); err != nil {
			return err
		}

		// The events, each stream under a new generation.
		note, untagged := store.Note{Position: b.units.Position(tn)}, map[string]uint64{}
		for i := range r.Streams {
			stream := &r.Streams[i]
			if !rewrites(stream, known[i].rewriting) {
				continue
			}
			generation, err := b.rewrite(ctx, tn, stream, known[i], untagged)
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
		b.units.WriteSides(tn, u, nil)
		return nil
	})
	return result, err
}

// Rewrites returns how often events were rewritten. See store.Store.
func (s *feeds) Rewrites() uint64 { return s.rewrites.Load() }

// rewrite stages the new content of a stream's events and returns the stream's generation. The entries of tags that it
// changes are added to untagged.
func (b *batch) rewrite(
	ctx context.Context, t *tenant, stream *store.RewrittenStream, known presentChain, untagged map[string]uint64,
) (uint64, error) {
	// The events.
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
			return 0, fmt.Errorf("version %d of %s: %w", e.Version, key, store.ErrNotFound)
		case err != nil:
			return 0, corruption(err, "%s version %d of tenant %s", key, e.Version, t.name)
		}
		if err := b.untag(t, &old, untagged); err != nil {
			return 0, corruption(err, "the tags of %s version %d of tenant %s", key, e.Version, t.name)
		}
		leaf := old.leaf()
		b.put(appendEventKey(b.key[:0], t.next.Number, key, e.Version),
			appendEventRecord(b.value[:0], old.id, key, e.Type, e.Data, e.Metadata, old.timestamp, leaf[:], nil))
	}
	b.rewritten = true

	// The head. Mostly only events appended meanwhile have to be linked.
	h, err := b.units.Head(t, key)
	if err != nil {
		return 0, err
	}
	if known.tenant != t.next.Number || known.generation != h.Generation || known.length > h.Length {
		known = presentChain{tenant: t.next.Number, generation: h.Generation}
	}
	if h.Present = [hashBytes]byte{}; !stream.More {
		if err := known.extend(ctx, b.store.db, t.name, stream, h.Length); err != nil {
			return 0, err
		}
		h.Present = known.chain
	}
	h.Generation++
	b.units.Change(h)
	return h.Generation, nil
}

// presentChain is the chain over the bytes that the events of a stream have once some of them are rewritten, up to a
// length. It holds as long as the stream has this generation.
type presentChain struct {
	tenant     uint32
	generation uint64
	length     uint64
	chain      [hashBytes]byte
	// rewriting reports that parts of the stream were rewritten before.
	rewriting bool
}

// rewrites reports whether a stream gets another generation: some of its events are replaced, or the last part is done
// and the chain is to be made.
func rewrites(stream *store.RewrittenStream, rewriting bool) bool {
	return len(stream.Events) > 0 || rewriting && !stream.More
}

// presentChains computes the present chains of streams outside the committer: that hashes all of their events, and
// hashing a long stream in the committer would make all writers wait.
func (s *eraser) presentChains(
	ctx context.Context, t j17.Tenant, streams []store.RewrittenStream,
) ([]presentChain, error) {
	r, err := s.read(t)
	if err != nil {
		return nil, err
	}
	defer r.close()
	known := make([]presentChain, len(streams))
	for i := range streams {
		if r.tenant == 0 || !canExist(streams[i].Key) {
			continue
		}
		h, err := r.load(streams[i].Key)
		if err != nil {
			return nil, err
		}
		from := streams[i].From
		if from.Version > h.Length {
			from = store.PresentChain{}
		}
		known[i] = presentChain{
			tenant: r.tenant, generation: h.Generation, length: from.Version, chain: from.Chain,
			rewriting: h.Rewriting(),
		}
		if streams[i].More || !rewrites(&streams[i], h.Rewriting()) {
			continue
		}
		if err := known[i].extend(ctx, r.snapshot, t, &streams[i], h.Length); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// extend links the events behind those that the chain has, up to a length: those that are rewritten with the bytes that
// they will have.
func (c *presentChain) extend(
	ctx context.Context, from pebble.Reader, name j17.Tenant, stream *store.RewrittenStream, length uint64,
) (err error) {
	if c.length == length {
		return nil
	}
	key, rewritten := stream.Key, make(map[uint64]*store.Rewritten, len(stream.Events))
	for i := range stream.Events {
		rewritten[stream.Events[i].Version] = &stream.Events[i]
	}
	it, err := newIter(
		from, appendEventKey(nil, c.tenant, key, c.length+1), next(appendEventKey(nil, c.tenant, key, length)),
	)
	if err != nil {
		return err
	}
	defer closeIter(it, &err, key.String())

	var record eventRecord
	var fresh []byte
	for ok := it.First(); c.length < length; ok = it.Next() {
		version := c.length + 1
		if !ok || !bytes.HasSuffix(it.Key(), binary.BigEndian.AppendUint64(nil, version)) {
			return corruption(errors.Join(errGap, it.Error()), "%s version %d of tenant %s", key, version, name)
		}
		v, err := it.ValueAndErr()
		if err == nil {
			err = record.parse(v)
		}
		if err != nil {
			return corruption(err, "%s version %d of tenant %s", key, version, name)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		leafInput := record.leafInput
		if e := rewritten[version]; e != nil {
			var kept [hashBytes]byte
			fresh = appendEventRecord(
				fresh[:0], record.id, key, e.Type, e.Data, e.Metadata, record.timestamp, kept[:], nil,
			)
			leafInput = fresh[eventHeader+hashBytes:]
		}
		c.chain, c.length = j17.Link(c.chain, sha256.Sum256(leafInput)), version
	}
	return nil
}

// stageNote stages a note in the feed.
func (b *batch) stageNote(t *tenant, note *store.Note) {
	b.units.Touch(t)
	must(b.writes.Set(appendFeedKey(nil, t.next.Number, note.Position), record.AppendNote(nil, note), nil))
	t.next.Last, t.noted = note.Position, note.Position
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
