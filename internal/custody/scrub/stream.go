package scrub

import (
	"context"
	"errors"

	"j17"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

const width = envlog.TileWidth

// stream is a stream that is being checked from its first event on. It is replaced and never changed, since it is
// stored with the state.
type stream struct {
	Key  j17.Key    `json:"key"`
	Head store.Head `json:"head"`
	// Next is the next version; 0 before the first step.
	Next     uint64       `json:"next"`
	Chain    [32]byte     `json:"chain"`
	Present  [32]byte     `json:"present"`
	Last     j17.StreamID `json:"last"`
	LastTime int64        `json:"last_time"`
}

// stepStream checks the next events of a stream, as many as fit into left, and leaves it at its end.
func (s *Service) stepStream(ctx context.Context, left *int64) error {
	x := *s.state.Stream
	t, where := s.state.Tenant, "the stream "+x.Key.String()
	heads, err := s.Store.Heads(ctx, t, []j17.Key{x.Key})
	if err != nil {
		return s.streamFailed(ctx, where, err)
	}
	if heads[0].Length == 0 && x.Next > 0 {
		return s.leaveStream() // the environment was removed
	}
	if x.Next == 0 || heads[0].Generation != x.Head.Generation { // from the beginning, also after an erasure
		x = stream{Key: x.Key, Head: heads[0], Next: 1}
	}

	// Its events, with their chain.
	for ev, err := range s.Store.ReadStream(ctx, t, x.Key, x.Next, x.Head.Length) {
		if err != nil {
			return s.streamFailed(ctx, where, err)
		}
		if ev.StreamID.Compare(x.Last) <= 0 || ev.Timestamp < x.LastTime {
			return s.streamFailed(ctx, where, &store.CorruptionError{
				Where: where, Err: errors.New("its events are not in their order"),
			})
		}
		x.Chain, x.Present = j17.Link(x.Chain, ev.Leaf()), j17.Link(x.Present, j17.Leaf(ev.Raw))
		x.Last, x.LastTime = ev.StreamID, ev.Timestamp
		if x.Next == 1 && ev.Timestamp != x.Head.FirstTime {
			return s.streamFailed(ctx, where, &store.CorruptionError{Where: where, Err: errors.New("its head has another time of its first event")})
		}
		x.Next++
		if *left -= int64(len(ev.Raw)); *left <= 0 && x.Next <= x.Head.Length {
			s.change(func(st *state) { st.Stream = &x })
			return nil
		}
	}

	// They must match the head, unless some were erased meanwhile: then the stream is checked again.
	now, err := s.Store.Heads(ctx, t, []j17.Key{x.Key})
	if err != nil {
		return err
	}
	if now[0].Generation != x.Head.Generation {
		s.change(func(st *state) { st.Stream = &stream{Key: x.Key} })
		return nil
	}
	switch {
	case x.Next != x.Head.Length+1 || x.Last != x.Head.Last || x.LastTime != x.Head.LastTime:
		err = errors.New("its head does not say what its events are")
	case x.Chain != x.Head.Chain:
		err = errors.New("its events are not those of its chain")
	case !x.Head.Rewriting() && x.Present != x.Head.Now():
		err = errors.New("its erased events are not those of its chain")
	}
	s.change(func(st *state) { st.Pass.Streams, st.Stream = st.Pass.Streams+1, nil })
	if err != nil {
		s.found(ctx, "stream", where, err)
	}
	return nil
}

// streamFailed gives up a damaged stream; other errors are those of this attempt.
func (s *Service) streamFailed(ctx context.Context, where string, err error) error {
	if !isDamage(err) {
		return err
	}
	s.found(ctx, "stream", where, err)
	return s.leaveStream()
}

// leaveStream continues after the stream.
func (s *Service) leaveStream() error {
	s.change(func(st *state) { st.Stream = nil })
	return nil
}
