package saga

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The values of work items: what is due of a saga.
const (
	// starts and goesOn carry out the next task; starts marks the first one of a saga, so that it is counted.
	starts = "s"
	goesOn = "g"
	// timesOut ends a wait. An answer has the position of its event in front of the value.
	timesOut = "t"
	answer   = "a"
)

// Effects returns what events cause: sagas that they start, and answers that sagas wait for. It is one of the engine's
// effects, so that all of it is in the commit of the events.
func (s *Service) Effects(ctx context.Context, d *part.Decided) (part.Effects, error) {
	// Few events concern sagas. For the others it suffices that no saga begins to wait for them.
	known, err := s.knownTypes(ctx, d.Tenant)
	if err != nil {
		return part.Effects{}, store.UserError(err)
	}
	stays, begun := part.Effects{Fences: known.fences, Changed: known.changed}, triggered(d)
	if begun == 0 && len(known.types) == 0 {
		return stays, nil
	}
	switch {
	case begun > s.perWrite:
		return part.Effects{}, tooMany(begun, s.perWrite)
	case begun > 0 && d.Depth >= maxDepth:
		return part.Effects{}, tooDeep(begun)
	case !d.Work.Start(work.Saga, begun, 0):
		return part.Effects{}, d.Work.Err()
	}

	stays.Fences = slices.Clone(stays.Fences) // the slice is shared by all
	e := &effects{Service: s, Decided: d, Effects: stays}
	if err := e.answers(ctx, known.types); err != nil {
		return part.Effects{}, store.UserError(err)
	}
	if err := e.triggers(ctx); err != nil {
		return part.Effects{}, store.UserError(err)
	}
	return e.Effects, nil
}

// triggered counts the sagas that the events of a command trigger.
func triggered(d *part.Decided) (n int) {
	for i := range d.Events {
		if of := d.Events[i].Spec; of != nil {
			n += len(of.Sagas)
		}
	}
	return n
}

// limited has the details of the error of a write that would start too many sagas.
type limited struct {
	Limit int `json:"limit"`
	Sagas int `json:"sagas"`
}

// tooMany returns the error of a write that would start n sagas, of which limit are allowed.
func tooMany(n, limit int) error {
	err := j17.Errorf(j17.CodeImplicationLimit, "One write starts at most %d sagas, and this one would start %d. Nothing was written. Split it into smaller writes.", limit, n)
	err.Details, err.Plain = limited{Limit: limit, Sagas: n}, true
	return err
}

// maxDepth is the maximum length of a chain of sagas that trigger each other.
const maxDepth = 50

// tooDeep returns the error of a saga's event that would trigger n other sagas beyond maxDepth.
func tooDeep(n int) error {
	err := j17.Errorf(j17.CodeImplicationLimit, "Sagas trigger each other %d deep at most, and the event would trigger another one. Nothing was written. "+
		"Let the spec end the circle by a condition, an answer that is awaited, or a schedule.", maxDepth)
	err.Details, err.Plain = limited{Limit: maxDepth, Sagas: n}, true
	return err
}

// effects collects what is to be written with events.
type effects struct {
	*Service
	*part.Decided
	part.Effects
}

func (e *effects) put(side ...store.Side) { e.Side = append(e.Side, side...) }

func (e *effects) fence(space store.Space, key string, rev uint64) {
	e.Fences = append(e.Fences, store.Fence{Space: space, Key: key, Rev: rev})
}

// get returns an item, the zero one if there is none.
func (s *Service) get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	it, err := s.store.Get(ctx, t, space, key)
	if isAbsent(err) {
		return store.Item{}, nil
	}
	return it, err
}

// answers finds the sagas that wait for one of the events, which can only be of the known types, and resumes them. If a
// saga begins to wait at the same time, one of the fences fails, and the events are examined again.
func (e *effects) answers(ctx context.Context, known map[string]bool) (err error) {
	var waits map[j17.Key][]*waiter
	for i := range e.Events {
		ev := &e.Events[i]
		if !ev.Is(func(name string) bool { return known[awaited(ev.Key.Type, name)] }) {
			continue
		}
		all, looked := waits[ev.Key]
		if !looked {
			if all, err = e.waiters(ctx, ev.Key); err != nil {
				return err
			}
			if waits == nil {
				waits = map[j17.Key][]*waiter{}
			}
			waits[ev.Key] = all
		}
		if !e.Work.Spend(len(all)) {
			return e.Work.Err()
		}
		for _, w := range all {
			if w.answered || !ev.Is(func(name string) bool { return slices.Contains(w.types, name) }) {
				continue
			}
			w.answered = true
			if !e.Work.Start(work.Answer, 1, 0) {
				return e.Work.Err()
			}
			if e.Tried {
				if err := e.resumes(ctx, w.id, i); err != nil {
					return err
				}
			}
			e.put(forget(ev.Key.String(), w.id)...)
			e.put(causes(w.id, i))
			e.put(store.Side{
				Op: store.Put, Space: workSpace, Key: w.id, Value: []byte(answer), Stamps: []int{i},
				Due: e.at(e.Timestamp),
			})
		}
	}
	return nil
}

// resumes records a saga that event number i resumes, for a dry run.
func (e *effects) resumes(ctx context.Context, id string, i int) error {
	by := &e.Events[i]
	g, err := e.load(ctx, e.Tenant, id)
	if isAbsent(err) {
		return nil
	}
	if err == nil {
		e.Consequences.Sagas = append(e.Consequences.Sagas, part.Moved{
			ID: id, Type: g.Type, Status: string(g.Status), By: by.Key, ByType: by.Type,
		})
	}
	return err
}

// waiter is a saga that waits for events of an aggregate.
type waiter struct {
	id       string
	types    []string
	answered bool
}

// waiters returns the sagas that wait for events of an aggregate.
func (e *effects) waiters(ctx context.Context, key j17.Key) (all []*waiter, err error) {
	name := key.String()
	number, err := e.get(ctx, e.Tenant, waitSpace, name)
	if err != nil {
		return nil, err
	}
	e.fence(waitSpace, name, number.Rev)
	if number.Rev == 0 {
		return nil, nil
	}
	const page = 500
	for it, err := range store.Items(ctx, e.store, e.Tenant, waitSpace, store.Prefix(name+"/"), page) {
		if err != nil {
			return nil, err
		}
		all = append(all, &waiter{id: it.Key[len(name)+1:], types: strings.Split(string(it.Value), "\n")})
	}
	return all, nil
}

// await returns the writes that make a saga wait for events of an aggregate.
func await(key, id string, types []string, until time.Time) []store.Side {
	return []store.Side{
		{
			Op: store.Put, Space: waitSpace, Key: key + "/" + id, Value: []byte(strings.Join(types, "\n")),
			Expires: until,
		},
		{Op: store.Add, Space: waitSpace, Key: key, Value: []byte("1")},
	}
}

// forget returns the writes that end the waiting of a saga.
func forget(key, id string) []store.Side {
	return []store.Side{
		{Op: store.Delete, Space: waitSpace, Key: key + "/" + id},
		{Op: store.Add, Space: waitSpace, Key: key, Value: []byte("-1")},
	}
}

// awaited returns the full name of an event type.
func awaited(aggregateType, eventType string) string { return aggregateType + "." + eventType }

// knownTypes has the event types that sagas of an environment have ever awaited, as of one revision.
type knownTypes struct {
	types map[string]bool
	rev   uint64
	// fences hold as long as these are all; changed receives those that no longer hold.
	fences  []store.Fence
	changed func(*store.SideConflict)
}

// awaitedTypes caches the known types of some environments. A cached entry may be outdated: a caller that relies on it
// fences on its revision.
type awaitedTypes struct {
	mu sync.Mutex
	of map[j17.Tenant]knownTypes
}

// maxAwaited is the number of environments whose awaited types are cached.
const maxAwaited = 1000

// forget drops the cached types of an environment.
func (a *awaitedTypes) forget(t j17.Tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, t)
}

// knownTypes returns the cached types, or reads them. A read for each write would cost a tenth of its time.
func (s *Service) knownTypes(ctx context.Context, t j17.Tenant) (knownTypes, error) {
	s.awaited.mu.Lock()
	k, kept := s.awaited.of[t]
	s.awaited.mu.Unlock()
	if kept {
		return k, nil
	}

	// Read the types.
	it, err := s.get(ctx, t, knownSpace, knownKey)
	if err != nil {
		return knownTypes{}, err
	}
	k = knownTypes{rev: it.Rev, types: map[string]bool{}}
	var names []string
	if it.Rev != 0 {
		if err := json.Unmarshal(it.Value, &names); err != nil {
			return k, &store.CorruptionError{Where: string(knownSpace), Err: err}
		}
	}
	for _, name := range names {
		k.types[name] = true
	}
	k.fences = []store.Fence{{Space: knownSpace, Key: knownKey, Rev: it.Rev}}
	k.changed = func(c *store.SideConflict) {
		if c.Space == knownSpace {
			s.awaited.forget(t)
		}
	}

	// Cache them.
	s.awaited.mu.Lock()
	defer s.awaited.mu.Unlock()
	if s.awaited.of == nil || len(s.awaited.of) >= maxAwaited {
		s.awaited.of = map[j17.Tenant]knownTypes{}
	}
	s.awaited.of[t] = k
	return k, nil
}

// learn adds the types of an await to the known ones.
func (e *effects) learn(ctx context.Context, a *spec.Await) error {
	known, err := e.knownTypes(ctx, e.Tenant)
	if err != nil {
		return err
	}
	all := map[string]bool{}
	maps.Copy(all, known.types)
	for _, typ := range a.EventTypes {
		all[awaited(a.AggregateType, typ)] = true
	}
	if len(all) == len(known.types) {
		return nil
	}
	raw, err := json.Marshal(slices.Sorted(maps.Keys(all)))
	if err != nil {
		return err
	}
	e.fence(knownSpace, knownKey, known.rev)
	e.put(store.Side{Op: store.Put, Space: knownSpace, Key: knownKey, Value: raw})
	return nil
}

// triggers starts the sagas that the events trigger, as far as there is room, and queues the others.
func (e *effects) triggers(ctx context.Context) error {
	var r *room
	version, started, late := 0, int64(0), false
	for i := range e.Events {
		ev := &e.Events[i]
		if ev.Spec == nil {
			continue
		}
		for _, def := range ev.Spec.Sagas {
			// The first one determines how many may run, and the version of the spec: the engine's own fence holds as
			// long as that is deployed.
			if r == nil {
				var err error
				if r, err = e.room(ctx, e.Tenant); err != nil {
					return err
				}
				if version, err = e.definitions.specs.Deployed(ctx, e.Tenant); err != nil {
					return err
				}
			}

			m := &machine{def: def, now: e.Timestamp, Saga: begin(
				e.mint.Handle(ident.SagaPrefix), version, def,
				Trigger{Key: ev.Key.String(), EventType: ev.Type, StreamID: stamped},
			)}
			m.Order, m.Depth = e.order(e.Timestamp), e.Depth
			if !r.queued && started < r.free {
				started++
				m.start()
				e.put(store.Side{
					Op: store.Put, Space: workSpace, Key: m.ID, Value: []byte(starts), Due: e.at(e.Timestamp),
				})
			} else {
				late = true
				m.queue()
				e.put(store.Side{Op: store.Put, Space: arrivalSpace, Key: m.ID, Stamps: []int{i}})
			}
			if e.Tried {
				e.Consequences.Sagas = append(e.Consequences.Sagas, part.Moved{
					Type: m.Type, Status: string(m.Status), By: ev.Key, ByType: ev.Type,
				})
			}
			sides, err := save(m.Saga, []int{i}, e.Timestamp)
			if err != nil {
				return err
			}
			e.put(sides...)
			e.put(causes(m.ID, i))
		}
	}

	// A saga that starts at once must not overtake queued ones.
	if started > 0 {
		e.fence(admissionSpace, admissionKey, 0)
		e.put(take(started, r.bound))
	}
	if late {
		e.put(wake(e.at(e.Timestamp)))
	}
	return nil
}
