package scrub

import (
	"context"
	"errors"

	"j17"
	"j17/internal/envlog"
	"j17/internal/store"
)

const width = envlog.TileWidth

// stream is a stream that is being looked at from its first event on.
type stream struct {
	key  j17.Key
	head store.Head
	// next is the version that comes next; 0 before the first look.
	next           uint64
	chain, present [32]byte
	last           j17.StreamID
	lastTime       int64
}

// stepStream looks at the next events of a stream, as many as are left, and forgets it when it has come to its end.
func (s *Service) stepStream(ctx context.Context, left *int64) error {
	x := s.stream
	t, where := s.state.Tenant, "the stream "+x.key.String()
	heads, err := s.Store.Heads(ctx, t, []j17.Key{x.key})
	if err != nil {
		return s.streamFailed(ctx, where, err)
	}
	if heads[0].Length == 0 && x.next > 0 {
		s.stream = nil // the environment was removed
		return nil
	}
	if x.next == 0 || heads[0].Generation != x.head.Generation { // from its beginning, also after an erasure
		*x = stream{key: x.key, head: heads[0], next: 1}
	}

	// Its events, with their chain.
	for ev, err := range s.Store.ReadStream(ctx, t, x.key, x.next, x.head.Length) {
		if err != nil {
			return s.streamFailed(ctx, where, err)
		}
		if ev.StreamID.Compare(x.last) <= 0 || ev.Timestamp < x.lastTime {
			return s.streamFailed(ctx, where, &store.CorruptionError{Where: where, Err: errors.New("its events are not in their order")})
		}
		x.chain, x.present = j17.Link(x.chain, ev.Leaf()), j17.Link(x.present, j17.Leaf(ev.Raw))
		x.last, x.lastTime = ev.StreamID, ev.Timestamp
		if x.next == 1 && ev.Timestamp != x.head.FirstTime {
			return s.streamFailed(ctx, where, &store.CorruptionError{Where: where, Err: errors.New("its head has another time of its first event")})
		}
		x.next++
		if *left -= int64(len(ev.Raw)); *left <= 0 && x.next <= x.head.Length {
			return nil
		}
	}

	// They are those that the head says, unless somebody has erased some meanwhile: then it is looked at again.
	if now, err := s.Store.Heads(ctx, t, []j17.Key{x.key}); err != nil || now[0].Generation != x.head.Generation {
		return err
	}
	switch {
	case x.next != x.head.Length+1 || x.last != x.head.Last || x.lastTime != x.head.LastTime:
		err = errors.New("its head does not say what its events are")
	case x.chain != x.head.Chain:
		err = errors.New("its events are not those of its chain")
	case x.present != x.head.Now():
		err = errors.New("its erased events are not those of its chain")
	}
	s.change(func(st *state) { st.Pass.Streams++ })
	s.stream = nil
	if err != nil {
		s.found(ctx, "stream", where, err)
	}
	return nil
}

// streamFailed gives a stream up that is damaged; other errors are those of this look.
func (s *Service) streamFailed(ctx context.Context, where string, err error) error {
	if !isDamage(err) {
		return err
	}
	s.found(ctx, "stream", where, err)
	s.stream = nil
	return nil
}
