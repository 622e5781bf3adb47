package generation

import (
	"context"
	"maps"
	"slices"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/spec"
)

// List returns the event types of the deployed spec that have generations or are retired, with the numbers of what is
// stored of them. It looks at the events that came since the last trial.
func (s *Service) List(ctx context.Context, t j17.Tenant) (all wire.Generations, err error) {
	all.Types = []wire.TypeGenerations{}
	end, err := s.turn(ctx, t)
	if err != nil {
		return all, err
	}
	defer end()
	d, _, err := s.Engine.Deployed(t)
	if err != nil || whole(d).empty() {
		return all, err
	}
	var plan *plan
	err = again(func() error {
		plan = whole(d)
		p, err := s.begin(ctx, t, plan)
		if err != nil {
			return err
		}
		return p.follow(ctx)
	})
	if err != nil {
		return all, err
	}
	plan.tell()
	all.Trial = *plan.trial()
	for _, of := range plan.sorted() {
		for _, name := range slices.Sorted(maps.Keys(of.typ.Events)) {
			if e := of.typ.Events[name]; keyed(e) || of.readAs(e) {
				all.Types = append(all.Types, of.list(e))
			}
		}
	}
	return all, nil
}

// readAs reports whether another event type is read as e.
func (of *typePlan) readAs(e *spec.EventType) bool {
	for _, other := range of.typ.Events {
		if other != e && other.Newest() == e {
			return true
		}
	}
	return false
}

// list returns what is stored of the events that are read as an event type, or of one that is retired as another.
func (of *typePlan) list(e *spec.EventType) wire.TypeGenerations {
	shape := wire.TypeGenerations{
		Type: of.name + "." + e.Name, Newest: e.Generation, Assume: e.Assumed, Retired: e.Retired,
		Stored: []wire.StoredGeneration{},
	}
	for _, k := range slices.SortedFunc(maps.Keys(of.counted.of), kind.compare) {
		stored := of.typ.Events[k.Name]
		if stored == nil || stored != e && stored.Newest() != e {
			continue
		}
		n := wire.StoredGeneration{Name: k.Name, Generation: k.Generation, Events: of.counted.of[k]}
		if n.Events == 0 {
			continue
		}
		if r := of.readings[k]; r != nil {
			n.Failed = r.failed
		} else if !stored.Knows(k.Generation) {
			n.Failed = n.Events
		}
		shape.Stored = append(shape.Stored, n)
	}
	return shape
}
