package checkpoint

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/storage/store"
)

// The reasons for which root checkpoints are made.
const (
	Manual    = "manual"
	Auto      = "auto"
	Tombstone = "tombstone"
)

func (s *Service) roots() *list[wire.RootCheckpoint] {
	return &list[wire.RootCheckpoint]{store: s.Store, rows: roots, ids: rootIDs}
}

// Root makes a root checkpoint of all events that are there, for a reason.
func (s *Service) Root(ctx context.Context, t j17.Tenant, reason string) (wire.RootCheckpoint, error) {
	return s.makeRoot(ctx, t, reason, nil)
}

// RootOf makes one because somebody asks for it; with an aggregate type, its aggregates are counted and no others.
func (s *Service) RootOf(ctx context.Context, t j17.Tenant, ask wire.NewRootCheckpoint) (wire.RootCheckpoint, error) {
	if ask.AggregateType != nil {
		d, err := s.Engine.Decider(t)
		if err == nil {
			_, err = d.AggregateType(*ask.AggregateType)
		}
		if err != nil {
			return wire.RootCheckpoint{}, err
		}
	}
	return s.makeRoot(ctx, t, Manual, ask.AggregateType)
}

func (s *Service) makeRoot(ctx context.Context, t j17.Tenant, reason string, aggregateType *string) (wire.RootCheckpoint, error) {
	// What it says.
	head, err := s.Log.Head(ctx, t)
	if err != nil {
		return wire.RootCheckpoint{}, engine.StorageError(err)
	}
	counted, err := s.count(ctx, t, head.Position)
	if err != nil {
		return wire.RootCheckpoint{}, engine.StorageError(err)
	}
	made := wire.RootCheckpoint{
		ID: s.mint.Handle(ident.CheckpointPrefix), Reason: reason, Position: head.Position.PositionText(), Size: head.Size, Root: hex.EncodeToString(head.Root[:]),
		AggregateType: aggregateType, CreatedAt: s.now(),
	}
	for typ, n := range counted.Types {
		if aggregateType == nil || typ == *aggregateType {
			made.Aggregates += n
		}
	}

	// It is added with what was counted for it.
	s.turn.Lock()
	defer s.turn.Unlock()
	sides, err := s.roots().add(ctx, t, made.ID, &made)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	put, err := counted.put()
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	sides = append(sides, put)
	if reason == Auto {
		rest, err := s.tooMany(ctx, t)
		if err != nil {
			return wire.RootCheckpoint{}, err
		}
		sides = append(sides, rest...)
	}
	return made, engine.StorageError(s.Store.Write(ctx, t, sides))
}

// tooMany returns the writes that remove automatic checkpoints, so that with another one there are as many as are to be kept.
func (s *Service) tooMany(ctx context.Context, t j17.Tenant) (sides []store.Side, err error) {
	set, err := s.Settings(ctx, t)
	if err != nil {
		return nil, err
	}
	left := set.Keep - 1
	err = s.roots().each(ctx, t, func(n *numbered[wire.RootCheckpoint]) bool {
		switch {
		case n.row.Reason != Auto:
		case left > 0:
			left--
		default:
			sides = append(sides, s.roots().remove(n.key)...)
		}
		return true
	})
	return sides, err
}

// Roots returns up to limit root checkpoints behind the first offset ones, the newest first.
func (s *Service) Roots(ctx context.Context, t j17.Tenant, offset, limit int) ([]wire.RootCheckpoint, error) {
	return s.roots().page(ctx, t, offset, limit)
}

// LatestRoot returns the newest root checkpoint.
func (s *Service) LatestRoot(ctx context.Context, t j17.Tenant) (wire.RootCheckpoint, error) {
	page, err := s.roots().page(ctx, t, 0, 1)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	if len(page) == 0 {
		return wire.RootCheckpoint{}, j17.Errorf(j17.CodeNotFound, "There is no root checkpoint in this environment yet")
	}
	return page[0], nil
}

// GetRoot returns a root checkpoint by its id.
func (s *Service) GetRoot(ctx context.Context, t j17.Tenant, id string) (wire.RootCheckpoint, error) {
	found, err := s.findRoot(ctx, t, id)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	return found.row, nil
}

func (s *Service) findRoot(ctx context.Context, t j17.Tenant, id string) (*numbered[wire.RootCheckpoint], error) {
	found, err := s.roots().get(ctx, t, id)
	if err == nil && found == nil {
		err = j17.Errorf(j17.CodeNotFound, "There is no root checkpoint with this id in this environment")
	}
	return found, err
}

// DeleteRoot removes a root checkpoint.
func (s *Service) DeleteRoot(ctx context.Context, t j17.Tenant, id string) (wire.RootCheckpoint, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	found, err := s.findRoot(ctx, t, id)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	return found.row, engine.StorageError(s.Store.WriteFreeing(ctx, t, s.roots().remove(found.key)))
}

// counted is how many aggregates of some types there are up to a position.
type counted struct {
	Position string            `json:"position"`
	Types    map[string]uint64 `json:"types"`
}

const (
	// countKey is that of the only item of counts.
	countKey = "streams"
	// countPage is how many events, or ids, are read at a time.
	countPage = 10_000
	// countAttempts is how often aggregates are counted by their ids, if events are written meanwhile, before all events are gone through.
	countAttempts = 3
)

// count counts the aggregates of the declared types that have events up to a position: from where they were counted last, by the first
// events of those that are new.
func (s *Service) count(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (*counted, error) {
	var types []string
	d, unknown := s.Engine.Decider(t)
	if unknown == nil { // without a spec there are no types, and an erasure goes on
		types = slices.Sorted(maps.Keys(d.Types))
	}

	// What was counted before, or is now. A type that the spec has no more does not count, whoever has counted it before.
	c, err := s.counted(ctx, t)
	if err != nil {
		return nil, err
	}
	if unknown == nil {
		maps.DeleteFunc(c.Types, func(typ string, _ uint64) bool { return !slices.Contains(types, typ) })
	}
	if !c.has(types) {
		if c, err = s.countIDs(ctx, t, types); err != nil {
			return nil, err
		}
	}
	after, err := j17.ParseStreamID(c.Position)
	if err != nil {
		return nil, &store.CorruptionError{Where: "the count of aggregates", Err: err}
	}

	// Events behind it add aggregates; where somebody else has counted further, those in between take them away again.
	step, end := uint64(1), upTo
	if after.Compare(upTo) > 0 {
		step, after, end = ^uint64(0), upTo, after
	}
	c.Position = upTo.String()
	for more := true; more && after.Compare(end) < 0; {
		more = false
		for ev, err := range s.Store.ReadFeed(ctx, t, after, countPage) {
			if err != nil {
				return nil, err
			}
			if more = ev.StreamID.Compare(end) <= 0; !more {
				break
			}
			after = ev.StreamID
			if _, declared := c.Types[ev.Key.Type]; declared && ev.Version == 1 {
				c.Types[ev.Key.Type] += step
			}
		}
	}
	return c, nil
}

// counted returns what was counted last.
func (s *Service) counted(ctx context.Context, t j17.Tenant) (*counted, error) {
	c := &counted{}
	item, err := s.Store.Get(ctx, t, counts, countKey)
	if errors.Is(err, store.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(item.Value, c); err != nil {
		return nil, &store.CorruptionError{Where: "the count of aggregates", Err: err}
	}
	return c, nil
}

// has reports whether types were counted.
func (c *counted) has(types []string) bool {
	return c.Types != nil && !slices.ContainsFunc(types, func(typ string) bool {
		_, ok := c.Types[typ]
		return !ok
	})
}

// countIDs counts the aggregates of types by their ids, which are fewer than events. It is a count as of a position where no event is written
// meanwhile; where there is no such moment, it is that of before the first event.
func (s *Service) countIDs(ctx context.Context, t j17.Tenant, types []string) (*counted, error) {
	for range countAttempts {
		before, err := s.Store.Extent(ctx, t)
		if err != nil {
			return nil, err
		}
		c := &counted{Position: before.Last.String(), Types: make(map[string]uint64, len(types))}
		for _, typ := range types {
			c.Types[typ] = 0
			for after, more := "", true; more; {
				ids, err := s.Store.Streams(ctx, t, typ, after, countPage)
				if err != nil {
					return nil, err
				}
				if more = len(ids) == countPage; len(ids) > 0 {
					after = ids[len(ids)-1]
				}
				c.Types[typ] += uint64(len(ids))
			}
		}
		now, err := s.Store.Extent(ctx, t)
		if err != nil {
			return nil, err
		}
		if now == before {
			return c, nil
		}
	}
	c := &counted{Position: j17.StreamID{}.String(), Types: make(map[string]uint64, len(types))}
	for _, typ := range types {
		c.Types[typ] = 0
	}
	return c, nil
}

// put is the write that keeps what was counted.
func (c *counted) put() (store.Side, error) {
	raw, err := json.Marshal(c)
	return store.Side{Op: store.Put, Space: counts, Key: countKey, Value: raw}, err
}

// bounded returns the error of a setting that is not between 1 and most.
func bounded(name string, n *uint64, most uint64) error {
	if n != nil && (*n < 1 || *n > most) {
		return j17.Errorf(j17.CodeInvalidField, "'%s' must be a whole number from 1 to %d", name, most).At(name)
	}
	return nil
}

// The most that settings may be.
const (
	mostEvents = 1_000_000_000_000
	mostHours  = 24 * 365 * 10
	mostKept   = 10_000
)

// validChange checks a change of settings.
func validChange(change *wire.RootCheckpointSettingsChange) error {
	return cmp.Or(bounded("every_events", change.EveryEvents, mostEvents), bounded("every_hours", change.EveryHours, mostHours), bounded("keep", change.Keep, mostKept))
}
