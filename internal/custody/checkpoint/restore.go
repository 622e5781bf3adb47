package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Restore makes the states of a checkpoint a base for replays, after all of them were compared with its hash: later
// states are folded from them instead of from the first event. This never changes states. It is CodeCheckpointOutdated
// if the states would differ by now, since handlers have changed or events were erased. If ctx ends, the states adopted
// so far stay in use, and another restoration adopts all.
func (s *Service) Restore(ctx context.Context, t j17.Tenant, id string) (uint64, wire.Checkpoint, error) {
	found, err := s.find(ctx, t, id)
	if err != nil {
		return 0, wire.Checkpoint{}, err
	}

	// All states are compared before any is adopted.
	r := &restoring{s: s, t: t, row: &found.row}
	defer s.restores(r)()
	if err := r.each(ctx, nil); err != nil {
		return 0, wire.Checkpoint{}, store.UserError(err)
	}
	if err := r.each(ctx, func(key j17.Key, k *kept) error { return s.adopt(ctx, t, key, k) }); err != nil {
		return 0, wire.Checkpoint{}, store.UserError(err)
	}
	return found.row.Aggregates, found.row.Checkpoint, nil
}

// adopt hands a state to the engine, unless its stream is being erased: an erasure reaches this package before the
// engine.
func (s *Service) adopt(ctx context.Context, t j17.Tenant, key j17.Key, k *kept) error {
	s.erasing.RLock()
	defer s.erasing.RUnlock()
	return s.Engine.Adopt(ctx, t, key, &k.base, k.generation)
}

// restoring is a restoration of a checkpoint.
type restoring struct {
	s   *Service
	t   j17.Tenant
	row *row
	// erased reports that events of an aggregate without a kept state were erased.
	erased bool
	// done counts the states that were compared, and those that were adopted.
	done atomic.Uint64
}

// restores registers a restoration in progress, until end is called.
func (s *Service) restores(r *restoring) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restoring[r] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.restoring, r)
	}
}

// restored adds the progress of the furthest restoration to a checkpoint.
func (s *Service) restored(t j17.Tenant, c wire.Checkpoint) wire.Checkpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.restoring {
		if r.t == t && r.row.ID == c.ID && (c.Restoring == nil || r.done.Load() > c.Restoring.Done) {
			c.Restoring = &wire.CheckpointProgress{Done: r.done.Load(), Total: 2 * c.Aggregates}
		}
	}
	return c
}

// each calls use, which may be nil, with the states of the checkpoint, and compares all of them with its hash.
func (r *restoring) each(ctx context.Context, use func(j17.Key, *kept) error) error {
	// All kept states, in their original order.
	sum, n := sha256.New(), uint64(0)
	page := func(keys []j17.Key) (bool, error) {
		all, err := r.page(ctx, keys)
		if err != nil {
			return false, err
		}
		for i, k := range all {
			if k == nil {
				continue
			}
			hashLine(sum, k.line)
			n++
			if use != nil {
				if err := use(keys[i], k); err != nil {
					return false, err
				}
			}
			r.done.Add(1)
		}
		return true, nil
	}
	var err error
	if r.row.Key != "" {
		key, _ := j17.ParseKey(r.row.Key) // it was made from a key
		_, err = page([]j17.Key{key})
	} else {
		err = r.s.streams(ctx, r.t, r.row.Types, "", page)
	}

	// They must be those of the checkpoint.
	switch {
	case err != nil:
		return err
	case n < r.row.Aggregates && r.erased:
		return outdated("Events of an aggregate that it is of were erased.")
	case n != r.row.Aggregates:
		return r.damaged(fmt.Errorf("it has the states of %d aggregates, and should have those of %d", n, r.row.Aggregates))
	case hex.EncodeToString(sum.Sum(nil)) != r.row.StateHash:
		return r.damaged(errors.New("its states have another hash than it says"))
	}
	return nil
}

// page returns the kept states of aggregates, nil for those without one.
func (r *restoring) page(ctx context.Context, keys []j17.Key) ([]*kept, error) {
	d, err := r.s.Engine.Decider(r.t)
	if err != nil {
		return nil, err
	}
	heads, err := r.s.Store.Heads(ctx, r.t, keys)
	if err != nil {
		return nil, err
	}
	all := make([]*kept, len(keys))
	for i, key := range keys {
		item, err := r.s.Store.Get(ctx, r.t, states, keptKey(key, r.row.ID))
		if errors.Is(err, store.ErrNotFound) {
			r.erased = r.erased || heads[i].Generation > 0
			continue
		}
		if err != nil {
			return nil, err
		}
		k, err := readKept(&item)
		if err != nil {
			return nil, err
		}
		switch program := d.Program(key.Type); {
		case k.generation != heads[i].Generation:
			return nil, outdated("Events of an aggregate that it is of were erased.")
		case program == nil || program.Fingerprint != k.base.Fingerprint:
			return nil, outdated("The handlers of the type '" + key.Type + "' have changed.")
		}
		all[i] = k
	}
	return all, nil
}

func (r *restoring) damaged(err error) error {
	return &store.CorruptionError{Where: "the checkpoint " + r.row.ID, Err: err}
}

func outdated(why string) error {
	return j17.Errorf(j17.CodeCheckpointOutdated, "The checkpoint no longer matches its aggregates: %s Make a new one.", why)
}

// Erase removes the kept states of streams that were rewritten, from all checkpoints.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	// A writer that checked the streams before they were rewritten has written by now, and one that checks later sees
	// that they were.
	s.erasing.Lock()
	defer s.erasing.Unlock()
	for _, key := range e.Keys {
		held, err := store.HeldBy(ctx, s.Store, t, []store.Declared{{Space: states, OfStreams: true}}, key)
		if err != nil {
			return err
		}
		sides := make([]store.Side, len(held))
		for i := range held {
			sides[i] = store.Side{Op: store.Delete, Space: held[i].Space, Key: held[i].Key, Plain: true}
		}
		if len(sides) == 0 {
			continue
		}
		if err := s.Store.WriteFreeing(ctx, t, sides); err != nil {
			return err
		}
	}
	return nil
}
