package checkpoint

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// The reasons for making root checkpoints.
const (
	Manual    = "manual"
	Auto      = "auto"
	Tombstone = "tombstone"
)

// rootStore makes and keeps root checkpoints, and has the settings for the automatic ones.
type rootStore struct {
	store  Storage
	engine *engine.Engine
	log    *envlog.Service
	clock  clock.Clock
	mint   *ident.Minter
	// turn is held while a row is added or removed, or settings are changed.
	turn sync.Mutex
}

func (r *rootStore) roots() *list[wire.RootCheckpoint] {
	return &list[wire.RootCheckpoint]{store: r.store, rows: roots, ids: rootIDs}
}

// Root makes a root checkpoint of all existing events, for a reason.
func (r *rootStore) Root(ctx context.Context, t j17.Tenant, reason string) (wire.RootCheckpoint, error) {
	return r.makeRoot(ctx, t, reason, nil)
}

// RootOf makes one on request; with an aggregate type, only its aggregates are counted.
func (r *rootStore) RootOf(ctx context.Context, t j17.Tenant, ask wire.NewRootCheckpoint) (wire.RootCheckpoint, error) {
	if ask.AggregateType != nil {
		d, err := r.engine.Decider(t)
		if err == nil {
			_, err = d.AggregateType(*ask.AggregateType)
		}
		if err != nil {
			return wire.RootCheckpoint{}, err
		}
	}
	return r.makeRoot(ctx, t, Manual, ask.AggregateType)
}

func (r *rootStore) makeRoot(
	ctx context.Context, t j17.Tenant, reason string, aggregateType *string,
) (wire.RootCheckpoint, error) {
	// Its content.
	head, err := r.log.Head(ctx, t)
	if err != nil {
		return wire.RootCheckpoint{}, store.UserError(err)
	}
	counted, err := r.count(ctx, t, head.Position)
	if err != nil {
		return wire.RootCheckpoint{}, store.UserError(err)
	}
	made := wire.RootCheckpoint{
		ID: r.mint.Handle(ident.CheckpointPrefix), Reason: reason, Position: head.Position.PositionText(),
		Size: head.Size, Root: hex.EncodeToString(head.Root[:]),
		AggregateType: aggregateType, CreatedAt: r.now(),
	}
	for typ, n := range counted.Types {
		if aggregateType == nil || typ == *aggregateType {
			made.Aggregates += n
		}
	}

	// Add it, together with the new count.
	r.turn.Lock()
	defer r.turn.Unlock()
	sides, err := r.roots().add(ctx, t, made.ID, &made)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	put, err := counted.put()
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	sides = append(sides, put)
	if reason == Auto {
		rest, err := r.tooMany(ctx, t)
		if err != nil {
			return wire.RootCheckpoint{}, err
		}
		sides = append(sides, rest...)
	}
	return made, store.UserError(r.store.Write(ctx, t, sides))
}

// tooMany returns the writes that remove automatic checkpoints, so that the number to be kept is right after one more
// is added.
func (r *rootStore) tooMany(ctx context.Context, t j17.Tenant) (sides []store.Side, err error) {
	set, err := r.Settings(ctx, t)
	if err != nil {
		return nil, err
	}
	left := set.Keep - 1
	err = r.roots().each(ctx, t, func(n *numbered[wire.RootCheckpoint]) bool {
		switch {
		case n.row.Reason != Auto:
		case left > 0:
			left--
		default:
			sides = append(sides, r.roots().remove(n.key)...)
		}
		return true
	})
	return sides, err
}

// Roots returns up to limit root checkpoints after skipping offset of them, the newest first.
func (r *rootStore) Roots(ctx context.Context, t j17.Tenant, offset, limit int) ([]wire.RootCheckpoint, error) {
	return r.roots().page(ctx, t, offset, limit)
}

// LatestRoot returns the newest root checkpoint.
func (r *rootStore) LatestRoot(ctx context.Context, t j17.Tenant) (wire.RootCheckpoint, error) {
	page, err := r.roots().page(ctx, t, 0, 1)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	if len(page) == 0 {
		return wire.RootCheckpoint{}, j17.Errorf(j17.CodeNotFound, "There is no root checkpoint in this environment yet")
	}
	return page[0], nil
}

// GetRoot returns a root checkpoint by its id.
func (r *rootStore) GetRoot(ctx context.Context, t j17.Tenant, id string) (wire.RootCheckpoint, error) {
	found, err := r.findRoot(ctx, t, id)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	return found.row, nil
}

func (r *rootStore) findRoot(ctx context.Context, t j17.Tenant, id string) (*numbered[wire.RootCheckpoint], error) {
	found, err := r.roots().get(ctx, t, id)
	if err == nil && found == nil {
		err = j17.Errorf(j17.CodeNotFound, "There is no root checkpoint with this id in this environment")
	}
	return found, err
}

// DeleteRoot removes a root checkpoint.
func (r *rootStore) DeleteRoot(ctx context.Context, t j17.Tenant, id string) (wire.RootCheckpoint, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	found, err := r.findRoot(ctx, t, id)
	if err != nil {
		return wire.RootCheckpoint{}, err
	}
	return found.row, store.UserError(r.store.WriteFreeing(ctx, t, r.roots().remove(found.key)))
}

// counted is the number of aggregates of some types up to a position.
type counted struct {
	Position string            `json:"position"`
	Types    map[string]uint64 `json:"types"`
}

const (
	// countKey is that of the only item of counts.
	countKey = "streams"
	// countPage is how many events, or ids, are read at a time.
	countPage = 10_000
	// countAttempts is how often aggregates are counted by their ids, if events are written meanwhile, before all
	// events are read instead.
	countAttempts = 3
)

// count counts the aggregates of the declared types that have events up to a position: it starts from the last count
// and adds the first events of new aggregates.
func (r *rootStore) count(ctx context.Context, t j17.Tenant, upTo j17.StreamID) (*counted, error) {
	var types []string
	d, unknown := r.engine.Decider(t)
	if unknown == nil { // without a spec there are no types, but an erasure must not fail
		types = slices.Sorted(maps.Keys(d.Types))
	}

	// The last count, or a new one. Types that the spec no longer has are not counted, even if they were before.
	c, err := r.counted(ctx, t)
	if err != nil {
		return nil, err
	}
	if unknown == nil {
		maps.DeleteFunc(c.Types, func(typ string, _ uint64) bool { return !slices.Contains(types, typ) })
	}
	if !c.has(types) {
		if c, err = r.countIDs(ctx, t, types); err != nil {
			return nil, err
		}
	}
	after, err := j17.ParseStreamID(c.Position)
	if err != nil {
		return nil, &store.CorruptionError{Where: "the count of aggregates", Err: err}
	}

	// Later events add aggregates; if the count is of a later position, the events in between are subtracted.
	step, end := uint64(1), upTo
	if after.Compare(upTo) > 0 {
		step, after, end = ^uint64(0), upTo, after
	}
	c.Position = upTo.String()
	for more := true; more && after.Compare(end) < 0; {
		more = false
		for ev, err := range r.store.ReadFeed(ctx, t, after, countPage) {
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

// counted returns the last count.
func (r *rootStore) counted(ctx context.Context, t j17.Tenant) (*counted, error) {
	c := &counted{}
	item, err := r.store.Get(ctx, t, counts, countKey)
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

// countIDs counts the aggregates of types by their ids, which are fewer than events. The count is valid for a position
// if no event is written meanwhile; if that fails each time, it returns the zero count before the first event.
func (r *rootStore) countIDs(ctx context.Context, t j17.Tenant, types []string) (*counted, error) {
	for range countAttempts {
		before, err := r.store.Extent(ctx, t)
		if err != nil {
			return nil, err
		}
		c := &counted{Position: before.Last.String(), Types: make(map[string]uint64, len(types))}
		for _, typ := range types {
			c.Types[typ] = 0
			for after, more := "", true; more; {
				ids, err := r.store.Streams(ctx, t, typ, after, countPage)
				if err != nil {
					return nil, err
				}
				if more = len(ids) == countPage; len(ids) > 0 {
					after = ids[len(ids)-1]
				}
				c.Types[typ] += uint64(len(ids))
			}
		}
		now, err := r.store.Extent(ctx, t)
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

// put is the write that stores the count.
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

// The upper bounds of settings.
const (
	mostEvents = 1_000_000_000_000
	mostHours  = 24 * 365 * 10
	mostKept   = 10_000
)

// validChange checks a change of settings.
func validChange(change *wire.RootCheckpointSettingsChange) error {
	return cmp.Or(
		bounded("every_events", change.EveryEvents, mostEvents), bounded("every_hours", change.EveryHours, mostHours),
		bounded("keep", change.Keep, mostKept),
	)
}

// now is the creation time for a new item.
func (r *rootStore) now() time.Time { return r.clock.Now().UTC().Truncate(time.Millisecond) }

// Settings returns the settings of automatic root checkpoints.
func (r *rootStore) Settings(ctx context.Context, t j17.Tenant) (wire.RootCheckpointSettings, error) {
	set := defaultSettings()
	item, err := r.store.Get(ctx, t, settings, settingsKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return set, nil
	case err != nil:
		return set, store.UserError(err)
	}
	if err := json.Unmarshal(item.Value, &set); err != nil {
		return set, store.UserError(&store.CorruptionError{Where: "the settings of root checkpoints", Err: err})
	}
	return set, nil
}
