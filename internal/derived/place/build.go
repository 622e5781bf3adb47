package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/core/upcast"
	"j17/internal/derived/build"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The kinds of builds: one reads the places of older events, the other one removes the contents of a slot that is no
// longer needed. Builds are named after their slots.
const (
	filling  = "place"
	emptying = "place-removal"
)

// The results of a build whose slot is not one of the deployed spec's: it fails if the slot is no longer needed, and
// continues in another process if this one does not know the latest deployment.
var (
	errUnneeded = errors.New("place: the slot is no longer needed")
	errBehind   = errors.New("place: this process has not heard of the slot yet")
)

// unknown returns the reason why a slot is not known.
func (s *Service) unknown(ctx context.Context, p *build.Page) error {
	items, err := s.Store.Scan(ctx, p.Tenant, slots, store.Prefix(p.Type+"/"), maxSlots)
	if err != nil {
		return err
	}
	for i := range items {
		if sl, err := readSlot(&items[i]); err != nil || sl.ID == p.Name {
			return cmp.Or(err, errBehind)
		}
	}
	return &build.Failure{Err: errUnneeded}
}

// fill returns the records of a page of aggregates. An aggregate that has a record already got it from a later event.
func (s *Service) fill(ctx context.Context, p *build.Page) ([]store.Side, error) {
	k, _, err := s.known.Present(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	var sl *slot
	for _, one := range k.slots[p.Type] {
		if one.ID == p.Name {
			sl = one
		}
	}
	if sl == nil {
		return nil, s.unknown(ctx, p)
	}

	var sides []store.Side
	for _, id := range p.IDs {
		_, err := s.Store.Get(ctx, p.Tenant, places, sl.key(id))
		if err == nil {
			continue
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, s.met(ctx, p.Tenant, err)
		}
		l, err := s.last(ctx, p.Tenant, k.decider.Types[p.Type], sl, id)
		if err != nil {
			return nil, err
		}
		if l != nil {
			sides = append(sides, sl.record(id, l).On(0))
		}
	}
	return sides, nil
}

// last returns the last place that the events of an aggregate give, nil if none gives one. Invalid ones are skipped.
func (s *Service) last(
	ctx context.Context, t j17.Tenant, typ *spec.AggregateType, sl *slot, id string,
) (*decider.Location, error) {
	l, _, err := s.lastOf(ctx, t, typ, sl, id, 1, 0)
	return l, err
}

// lastOf is last for the events of versions from to to, or of all from there on if to is 0, and also returns the
// version of the event that gives the place.
func (s *Service) lastOf(
	ctx context.Context, t j17.Tenant, typ *spec.AggregateType, sl *slot, id string, from, to uint64,
) (found *decider.Location, version uint64, err error) {
	// The latest events are read first; usually few of them are needed.
	const most = 64
	type candidate struct {
		geo     *spec.Geo
		data    value.Value
		version uint64
	}
	key := j17.Key{Type: sl.typ, ID: id}
	name, b := key.String(), work.New(ctx, work.Replay)
	var window []candidate
	look := func() {
		for _, c := range slices.Backward(window) {
			if l, err := decider.Locate(c.geo, c.data); err == nil && l != nil {
				found, version = l, c.version
				break
			}
		}
		window = window[:0]
	}
	for ev, err := range s.Store.ReadStream(ctx, t, key, from, to) {
		if err != nil {
			return nil, 0, err
		}
		et := typ.Events[ev.Type]
		if et == nil || et.Newest().Geo == nil || et.Newest().Geo.Type.Name != sl.place.Type.Name {
			continue
		}
		b.Renew(work.Replay)
		seen, err := upcast.Read(typ, ev, name, b)
		if upcast.Failure(err) != nil {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("the data of event %d of %s: %w", ev.Version, key, err)
		}
		et = typ.Events[seen.Type]
		data := seen.Data.Value()
		if data.At(et.Geo.Steps).IsMissing() {
			continue
		}
		if window = append(window, candidate{et.Geo, data, ev.Version}); len(window) == most {
			look()
		}
	}
	look()
	return found, version, nil
}

// empty removes the records of a page of aggregates, and their entries.
func (s *Service) empty(ctx context.Context, p *build.Page) ([]store.Side, error) {
	sl := slot{ID: p.Name, typ: p.Type}
	var sides []store.Side
	for _, id := range p.IDs {
		_, err := s.Store.Get(ctx, p.Tenant, places, sl.key(id))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, s.met(ctx, p.Tenant, err)
		}
		sides = append(sides, store.Side{Op: store.Delete, Space: places, Key: sl.key(id), Entries: cells})
	}
	return sides, nil
}
