package erasure

import (
	"context"
	"iter"
	"strings"

	"j17"
	"j17/internal/store"
)

// Completion is an erasure as somebody needs it who has to repeat it in a copy of the environment that is older than it.
type Completion struct {
	TombstoneID string
	// Note is a position of the feed: all events that were erased, and the notes about them, stand before it.
	Note j17.StreamID
	// Sides make the tombstone known in the copy, as completed.
	Sides []store.Side
	// Streams are what was made of its streams.
	Streams iter.Seq2[Repeated, error]
}

// Repeated is what has become of a stream by erasures, or of a part of a long one.
type Repeated struct {
	// Stream has the events that were replaced, as they are now. Of those that the copy does not have yet nothing is to be done.
	Stream store.RewrittenStream
	// Sides belong to the stream. A long stream has them with its last part.
	Sides []store.Side
}

// Completed returns the erasures that were completed behind a position, in the order in which they were executed. What it passes is
// valid until the next step.
func (s *Service) Completed(ctx context.Context, t j17.Tenant, after j17.StreamID) iter.Seq2[*Completion, error] {
	return func(yield func(*Completion, error) bool) {
		keys := store.Range{}
		if !after.IsZero() {
			keys.From = store.StampedKey(after.Next(), "")
		}
		for {
			items, err := s.o.Store.Scan(ctx, t, completions, keys, maxListed)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range items {
				c, err := s.completion(ctx, t, &items[i])
				if !yield(c, err) || err != nil {
					return
				}
				keys = keys.After(items[i].Key)
			}
			if len(items) < maxListed {
				return
			}
		}
	}
}

// completion returns what an item of completions is about.
func (s *Service) completion(ctx context.Context, t j17.Tenant, item *store.Item) (*Completion, error) {
	_, id, _ := strings.Cut(item.Key, "/")
	note, _, err := store.ReadStamp(item.Value)
	if err != nil {
		return nil, err
	}
	r, err := s.load(ctx, t, id)
	if err != nil {
		return nil, err
	}
	c := &Completion{TombstoneID: id, Note: note, Streams: s.repeated(ctx, t, id)}

	// The tombstone, whatever the copy knows of it.
	for _, status := range Statuses() {
		if status != r.Status {
			c.Sides = append(c.Sides, store.Side{Op: store.Delete, Space: lists, Key: listed(string(status), r)})
		}
	}
	c.Sides = append(append(c.Sides, r.list()...),
		store.Side{Op: store.Delete, Space: executions, Key: id},
		store.Side{Op: store.Put, Space: rows, Key: id, Value: r.value()},
		store.Side{Op: store.Put, Space: completions, Key: item.Key, Value: item.Value})
	note2, err := s.o.Store.Get(ctx, t, certificates, id)
	if err != nil {
		return nil, err
	}
	c.Sides = append(c.Sides, store.Side{Op: store.Put, Space: certificates, Key: id, Value: note2.Value})
	last, err := s.o.Store.Get(ctx, t, aggregates, r.Key)
	if err != nil {
		return nil, err
	}
	c.Sides = append(c.Sides, store.Side{Op: store.Put, Space: aggregates, Key: r.Key, Value: last.Value})
	return c, nil
}

// repeated returns what has become of the streams of a tombstone.
func (s *Service) repeated(ctx context.Context, t j17.Tenant, id string) iter.Seq2[Repeated, error] {
	return func(yield func(Repeated, error) bool) {
		for cursor := ""; ; {
			some, err := s.entries(ctx, t, id, cursor, streamsAtOnce)
			if err != nil {
				yield(Repeated{}, err)
				return
			}
			for _, e := range some {
				if !s.repeat(ctx, t, id, e, yield) {
					return
				}
				cursor = e.key.String()
			}
			if len(some) < streamsAtOnce {
				return
			}
		}
	}
}

// repeat passes on what has become of a stream, a part at a time, and reports whether more is wanted.
func (s *Service) repeat(ctx context.Context, t j17.Tenant, id string, e *entry, yield func(Repeated, error) bool) bool {
	part := Repeated{Stream: store.RewrittenStream{Key: e.key}}
	for ev, err := range s.o.Store.ReadStream(ctx, t, e.key, 1, e.Events) {
		if err != nil {
			yield(Repeated{}, err)
			return false
		}
		if !ev.Erased() {
			continue
		}
		if len(part.Stream.Events) == maxRewritten {
			if !yield(part, nil) {
				return false
			}
			part.Stream.Events = nil
		}
		own := ev.Clone()
		part.Stream.Events = append(part.Stream.Events, store.Rewritten{
			Version: ev.Version, Type: ev.Type, Data: own.Data, Metadata: withoutTime(own.Metadata),
		})
	}
	part.Sides = []store.Side{e.put(id)}
	return yield(part, nil)
}

// withoutTime returns metadata as they were before the store added the time, which is their last member.
func withoutTime(metadata []byte) []byte {
	i := strings.LastIndex(string(metadata), `"timestamp":`)
	if i < 0 {
		return metadata
	}
	return append(metadata[:max(i-1, 1):max(i-1, 1)], '}')
}
