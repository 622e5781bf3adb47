package unique

import (
	"context"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// maxOvertaken bounds how often a step is repeated because of concurrent writes.
const maxOvertaken = 100

var errOvertaken = errors.New("unique: others change who holds values over and over; it is tried again")

// Erase gives back what rewritten streams hold, unless their present events take it.
func (s *Service) Erase(ctx context.Context, t j17.Tenant, e part.Erased) error {
	// Fillings first: a page that was read before can then no longer be written.
	for _, key := range []string{deployment, prepared} {
		if err := s.again(func() error { return s.eraseFilled(ctx, t, key, e.Keys) }); err != nil {
			return err
		}
	}
	for _, key := range e.Keys {
		err := s.again(func() error {
			items, err := s.Store.Scan(ctx, t, held, store.Prefix(key.String()+"/"), maxGenerations)
			if err != nil {
				return err
			}
			for i := range items {
				if err := s.eraseHeld(ctx, t, key, &items[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// again repeats a step while concurrent writes overtake it.
func (s *Service) again(do func() error) error {
	for range maxOvertaken {
		if err := do(); !overtaken(err) {
			return store.UserError(err)
		}
	}
	return errOvertaken
}

// eraseHeld removes what a stream has in a generation in force, unless its present events take it. What it has in a
// generation that is neither in force nor being filled is removed too.
func (s *Service) eraseHeld(ctx context.Context, t j17.Tenant, key j17.Key, item *store.Item) error {
	g := &generation{ID: item.Key[strings.LastIndexByte(item.Key, '/')+1:]}
	filled, err := s.filled(ctx, t, g.ID)
	if err != nil || filled {
		return err
	}
	inForce, err := s.get(ctx, t, sets, g.ID)
	if err != nil {
		return err
	}
	if inForce.Rev != 0 {
		if g, err = readGeneration(&inForce); err != nil {
			return err
		}
		if mine, err := s.stands(ctx, t, g, key, item); err != nil || mine {
			return err
		}
	}
	sides, err := g.removal(item)
	if err != nil {
		return err
	}
	sides[0].Cond, sides[0].Rev = store.IfRev, item.Rev
	return s.Store.Write(ctx, t, sides)
}

// filled reports whether a generation is being filled.
func (s *Service) filled(ctx context.Context, t j17.Tenant, id string) (bool, error) {
	for _, key := range []string{deployment, prepared} {
		item, err := s.get(ctx, t, fillings, key)
		if err != nil {
			return false, err
		}
		if item.Rev == 0 {
			continue
		}
		began, err := readFilling(&item)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(began.Generations, func(g *generation) bool { return g.ID == id }) {
			return true, nil
		}
	}
	return false, nil
}

// stands reports whether the present events of a stream take what it holds.
func (s *Service) stands(
	ctx context.Context, t j17.Tenant, g *generation, key j17.Key, item *store.Item,
) (bool, error) {
	h, err := readHolding(item)
	if h == nil || err != nil {
		return false, err
	}
	d, _, err := s.Engine.Deployed(t)
	if err != nil {
		return false, err
	}
	typ := d.Types[g.Type]
	if typ == nil || typ.Unique[g.Name] == nil {
		return false, nil
	}
	last, _, err := s.last(ctx, t, d, typ.Unique[g.Name], key, j17.StreamID{Ms: 1<<63 - 1})
	return last != nil && last.Value == h.digest, err
}

// eraseFilled recomputes what streams hold in the sets of a filling from their present events, up to the position it
// has reached. If this process does not know the filling's spec, because nobody has continued it since the program
// started, the filling is discarded and begins again.
func (s *Service) eraseFilled(ctx context.Context, t j17.Tenant, key string, keys []j17.Key) error {
	item, err := s.get(ctx, t, fillings, key)
	if err != nil || item.Rev == 0 {
		return err
	}
	began, err := readFilling(&item)
	if err != nil {
		return err
	}
	after, ok := s.deciders.Load(began.Generations[0].ID)
	if !ok {
		return s.Store.Write(ctx, t, s.discard(t, key, item.Rev, began.Generations))
	}

	f := &filling{s: s, t: t, key: key}
	f.d, _ = after.(*decider.Decider)
	if err := f.resume(&item, began); err != nil {
		return err
	}
	for _, k := range keys {
		if err := f.rewritten(ctx, k, f.at); err != nil {
			return err
		}
	}
	return f.flush(ctx)
}
