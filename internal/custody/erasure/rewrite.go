package erasure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

const (
	// maxRewritten is how many events are rewritten in one commit. A longer stream takes several. It is well below the
	// limit of the store, so that other writes do not wait long behind such a commit.
	maxRewritten = 10_000
	// tries is how often a stream is rewritten on the condition that nothing was written to it since it was read. After
	// that, events written meanwhile stay, like any that are written a moment later.
	tries = 3
	// triesBeside is how often the parts' writes for the same commit are requested, since what they depend on may have
	// changed meanwhile.
	triesBeside = 10
)

// errLost reports that another process has the execution.
var errLost = errors.New("another process goes on with the tombstone")

// rewrite replaces the events of streams by markers: those of several short streams in one commit, those of a long one
// in parts.
func (x *execution) rewrite(ctx context.Context, some []*entry) error {
	for {
		// As many as fit into a commit.
		var open []*entry
		var keys []j17.Key
		for _, e := range some {
			if !e.Done {
				open = append(open, e)
				keys = append(keys, e.key)
			}
		}
		if len(open) == 0 {
			return nil
		}
		heads, err := x.o.Store.Heads(ctx, x.tenant, keys)
		if err != nil {
			return err
		}
		n, size := 0, uint64(0)
		for n < len(open) && (n == 0 || size+heads[n].Length-open[n].Events <= x.part) {
			size += heads[n].Length - open[n].Events
			n++
		}
		if err := x.rewriteUnit(ctx, open[:n]); err != nil {
			return err
		}
	}
}

// rewriteUnit replaces events of streams in one commit: all of them, or the next ones of a single stream.
func (x *execution) rewriteUnit(ctx context.Context, some []*entry) error {
	for try, beside := 1, x.beside; ; try++ {
		keys := make([]j17.Key, len(some))
		for i, e := range some {
			keys[i] = e.key
		}
		seen, err := x.present(ctx)
		if err != nil {
			return err
		}
		heads, err := x.o.Store.Heads(ctx, x.tenant, keys)
		if err != nil {
			return err
		}

		// The markers, and the new entries of the streams.
		unit := store.Rewrite{Fences: []store.Fence{x.claim.Fence()}}
		after, replaced := make([]*entry, len(some)), make([]part.Replaced, len(some))
		for i, e := range some {
			markers, next, err := x.markers(ctx, e, &heads[i])
			if err != nil {
				return err
			}
			next.Seen = seen.String()
			whole := next.Done && try <= tries // otherwise events written meanwhile stay
			after[i], replaced[i] = next, part.Replaced{Key: e.key, To: next.Events, Last: whole}
			unit.Streams = append(unit.Streams, store.RewrittenStream{
				Key: e.key, Events: markers, More: !next.Done,
				From: store.PresentChain{Version: e.Events, Chain: e.Present},
			})
			unit.Side = append(unit.Side, next.put(x.row.id))
			if whole {
				unit.Pre = append(unit.Pre, store.Pre{Key: e.key, Length: heads[i].Length})
			}
		}

		if beside != nil {
			sides, fences, err := beside(ctx, x.tenant, replaced)
			if err != nil {
				beside, sides, fences = nil, nil, nil // the parts remove it later
			}
			unit.Side, unit.Fences = append(unit.Side, sides...), append(unit.Fences, fences...)
		}

		result, err := x.o.Store.Rewrite(ctx, x.tenant, unit)
		_, damaged := errors.AsType[*store.CorruptionError](err)
		switch {
		case damaged && beside != nil:
			beside = nil // the damage may be in what they concern
			continue
		case err != nil:
			return err
		case result.Outcome == store.Conflict &&
			slices.ContainsFunc(result.Sides, func(c store.SideConflict) bool { return c.Space == executions }):
			return errLost
		case result.Outcome == store.Conflict:
			if try >= triesBeside {
				beside = nil
			}
			continue
		}
		for i := range some {
			*some[i] = *after[i]
		}
		return nil
	}
}

// present returns the end of the environment's feed.
func (x *execution) present(ctx context.Context) (j17.StreamID, error) {
	moment, err := x.o.Store.Moment(ctx, x.tenant)
	if err != nil {
		return j17.StreamID{}, err
	}
	defer moment.Close()
	return moment.Position(), nil
}

// markers returns the replacements of a stream's next events, and the stream's entry after that. Events that were
// erased before stay as they are.
func (x *execution) markers(
	ctx context.Context, e *entry, head *store.Head,
) (markers []store.Rewritten, next *entry, err error) {
	to := min(head.Length, e.Events+x.part)
	next = &entry{
		key: e.key, Events: to, Done: to == head.Length, Chain: e.Chain, Present: e.Present, First: e.First,
		Before: e.Before.clone(), After: e.After.clone(), Last: e.Last,
	}
	at := x.row.StartedAt.Format(time.RFC3339)
	version, stands := e.Events, e.Present
	if to > e.Events {
		for ev, err := range x.o.Store.ReadStream(ctx, x.tenant, e.key, e.Events+1, to) {
			if err != nil {
				return nil, nil, err
			}
			version++
			next.Last = ev.StreamID.String()
			leaf := j17.Leaf(ev.Raw)
			next.Chain, stands, next.First = j17.Link(next.Chain, leaf), j17.Link(stands, leaf),
				j17.Link(next.First, ev.Leaf())
			next.Before.add(leaf)
			if ev.Erased() {
				next.replaced(leaf)
				continue
			}
			m := store.Rewritten{
				Version: version, Type: ident.WasTombstoned, Data: marker(ev, next.Chain, x.row.id, at),
				Metadata: []byte(markerMetadata),
			}
			raw, _ := j17.AppendEvent(nil, ev.StreamID, e.key, m.Type, m.Data, m.Metadata, ev.Timestamp)
			next.replaced(j17.Leaf(raw))
			markers = append(markers, m)
		}
	}
	if version != to {
		return nil, nil, &store.CorruptionError{Where: e.key.String(), Err: fmt.Errorf("%d events were found where %d should be", version, to)}
	}
	if !next.Done {
		return markers, next, nil
	}

	// The whole stream was read: it must match the store's chain.
	whole := e.Events == 0 || e.First != hash{} // entries of older versions do not say what their events were at first
	if !head.Rewriting() && stands != hash(head.Now()) || whole && next.First != hash(head.Chain) {
		return nil, nil,
			&store.CorruptionError{Where: e.key.String(), Err: errors.New("its events are not those of its chain")}
	}
	next.Chain, next.Present, next.First = hash{}, hash{}, hash{}
	next.Before.Edge, next.After.Edge = []hash{next.Before.root()}, []hash{next.After.root()}
	return markers, next, nil
}

// replaced adds the replacement of the next event.
func (e *entry) replaced(leaf hash) {
	e.Present = j17.Link(e.Present, leaf)
	e.After.add(leaf)
}

// markerMetadata is the metadata of every marker; the store adds the time of the event.
const markerMetadata = `{"actor":{"type":"system","id":"system"}}`

// marker is the data of an event's replacement. chain is that of its stream up to the event, before any replacement.
func marker(ev *j17.Event, chain hash, id, at string) []byte {
	original := sha256.Sum256(ev.Raw)
	b := make([]byte, 0, 320+len(ev.Type))
	b = append(b, `{"original_hash":"`...)
	b = hex.AppendEncode(b, original[:])
	b = append(b, `","chain_hash":"`...)
	b = hex.AppendEncode(b, chain[:])
	b = append(b, `","original_type":"`...)
	b = append(b, ev.Type...) // it needs no escapes
	b = append(b, `","tombstone_id":"`...)
	b = append(b, id...)
	b = append(b, `","tombstoned_at":"`...)
	b = append(b, at...)
	return append(b, `"}`...)
}

// beside returns the writes of all parts that belong to the commit that replaces events of streams, and the fences that
// they depend on.
func (s *Service) beside(
	ctx context.Context, t j17.Tenant, of []part.Replaced,
) (sides []store.Side, fences []store.Fence, err error) {
	for i := range s.parts {
		if beside := s.parts[i].Erase.Beside; beside != nil {
			more, on, err := beside(ctx, t, of)
			if err != nil {
				return nil, nil, err
			}
			sides, fences = append(sides, more...), append(fences, on...)
		}
	}
	return sides, fences, nil
}
