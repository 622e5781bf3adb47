package unit

import (
	"context"

	"j17"
	"j17/internal/storage/store"
)

// PresentChain is the chain over the bytes that the first events of a stream have once some of them are rewritten. It
// is valid as long as the tenant has this number and the stream this generation.
type PresentChain struct {
	store.PresentChain

	Number     uint32
	Generation uint64
	// Rewriting reports that parts of the stream were rewritten before.
	Rewriting bool
}

// Events calls do for the events of a stream of a tenant with versions greater than after, up to upTo, in order. The
// canonical bytes raw are valid until do returns. If an event is missing the error is a *store.CorruptionError.
type Events func(
	ctx context.Context, key j17.Key, after, upTo uint64, do func(id j17.StreamID, timestamp int64, raw []byte),
) error

// Rewriter is the engine's part of a rewrite.
type Rewriter[T Stateful] interface {
	// Replace writes the new content of a stream's events, without tags, each with the leaf hash of its first content.
	// The error wraps store.ErrNotFound if a version is missing.
	Replace(ctx context.Context, t T, stream *store.RewrittenStream) error
	// Events returns a function that reads the stored events of a tenant.
	Events(t T) Events
	// WriteNote writes a note. It cannot fail.
	WriteNote(t T, note *store.Note)
}

// PresentChains computes the present chains of streams that are to be rewritten, whose heads are given, before the
// rewrite is decided: it hashes all of their events, and other writers wait during a decision.
func PresentChains(
	ctx context.Context, number uint32, streams []store.RewrittenStream, heads []store.Head, events Events,
) ([]PresentChain, error) {
	known := make([]PresentChain, len(streams))
	for i := range streams {
		c, h := &known[i], &heads[i]
		*c = PresentChain{Number: number, Generation: h.Generation, Rewriting: h.Rewriting()}
		if streams[i].From.Version <= h.Length {
			c.PresentChain = streams[i].From
		}
		if streams[i].More || !c.rewrites(&streams[i]) {
			continue
		}
		if err := c.extend(ctx, &streams[i], h.Length, events); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// rewrites reports whether a stream gets another generation: some of its events are replaced, or the last part is done
// and the chain has to be computed.
func (c *PresentChain) rewrites(stream *store.RewrittenStream) bool {
	return len(stream.Events) > 0 || c.Rewriting && !stream.More
}

// extend links the events after those that the chain has, up to a length; rewritten events with the bytes that they
// will have.
func (c *PresentChain) extend(ctx context.Context, stream *store.RewrittenStream, length uint64, events Events) error {
	if c.Version == length {
		return nil
	}
	rewritten := make(map[uint64]*store.Rewritten, len(stream.Events))
	for i := range stream.Events {
		rewritten[stream.Events[i].Version] = &stream.Events[i]
	}
	var fresh []byte
	return events(ctx, stream.Key, c.Version, length, func(id j17.StreamID, timestamp int64, raw []byte) {
		c.Version++
		if e := rewritten[c.Version]; e != nil {
			fresh, _ = j17.AppendEvent(fresh[:0], id, stream.Key, e.Type, e.Data, e.Metadata, timestamp)
			raw = fresh
		}
		c.Chain = j17.Link(c.Chain, j17.Leaf(raw))
	})
}

// Rewrite decides a rewrite and writes it if its conditions hold. known is what PresentChains has returned for its
// streams. After an error the batch must not be committed.
func (b *Batch[T]) Rewrite(
	ctx context.Context, t T, r *store.Rewrite, known []PresentChain, with Rewriter[T],
) (result store.Result, err error) {
	// The conditions are those of a unit without events.
	u := &store.Append{Pre: r.Pre, Fences: r.Fences, Side: r.Side}
	result = store.Result{Outcome: store.Committed, Timestamp: t.Now().Raise(0)}
	if err := b.Check(t, u, &result); err != nil {
		return result, err
	}
	if len(result.Streams) > 0 || len(result.Sides) > 0 {
		result.Outcome = store.Conflict
		return result, nil
	}
	if err := b.Load(t, u); err != nil {
		return result, err
	}

	// The events, each stream under a new generation.
	note := store.Note{Position: b.Position(t)}
	for i := range r.Streams {
		stream := &r.Streams[i]
		if !known[i].rewrites(stream) {
			continue
		}
		generation, err := b.rewriteStream(ctx, t, stream, known[i], with)
		if err != nil {
			return result, err
		}
		note.Streams = append(note.Streams, store.Generation{Key: stream.Key, Number: generation})
	}

	// The note has a position in the feed as an event has.
	if len(note.Streams) > 0 {
		b.Touch(t)
		t.Now().Last = note.Position
		with.WriteNote(t, &note)
		result.IDs = []j17.StreamID{note.Position}
	}
	b.WriteSides(t, u, nil)
	return result, nil
}

// rewriteStream writes the new content of a stream's events and returns the stream's generation.
func (b *Batch[T]) rewriteStream(
	ctx context.Context, t T, stream *store.RewrittenStream, known PresentChain, with Rewriter[T],
) (uint64, error) {
	if err := with.Replace(ctx, t, stream); err != nil {
		return 0, err
	}

	// Usually only events appended meanwhile have to be linked.
	h, err := b.Head(t, stream.Key)
	if err != nil {
		return 0, err
	}
	number := t.Now().Number
	if known.Number != number || known.Generation != h.Generation || known.Version > h.Length {
		known = PresentChain{Number: number}
	}
	if h.Present = [32]byte{}; !stream.More {
		if err := known.extend(ctx, stream, h.Length, with.Events(t)); err != nil {
			return 0, err
		}
		h.Present = known.Chain
	}
	h.Generation++
	b.Change(h)
	return h.Generation, nil
}
