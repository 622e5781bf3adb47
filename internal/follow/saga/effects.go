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

// What is due of a saga.
const (
	// starts and goesOn carry out the next task; the first one of a saga is distinguished so that it is counted.
	starts = "s"
	goesOn = "g"
	// timesOut ends a wait. An answer has the position of the event in front.
	timesOut = "t"
	answer   = "a"
)

// Effects says what events bring about: sagas that they start, and answers that sagas wait for. It is one of the
// engine's effects, so that all of it is in the commit of the events.
func (s *Service) Effects(ctx context.Context, d *part.Decided) (part.Effects, error) {
	// Few events have to do with sagas: of the others it only has to stay so that none waits for them.
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

	stays.Fences = slices.Clone(stays.Fences) // they are those of all
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

// limited is the details of the error of a write that would start too many sagas.
type limited struct {
	Limit int `json:"limit"`
	Sagas int `json:"sagas"`
}

// tooMany is the error of a write that would start n sagas, of which limit are allowed.
func tooMany(n, limit int) error {
	err := j17.Errorf(j17.CodeImplicationLimit, "One write starts at most %d sagas, and this one would start %d. Nothing was written. Split it into smaller writes.", limit, n)
	err.Details, err.Plain = limited{Limit: limit, Sagas: n}, true
	return err
}

// maxDepth is how many sagas may trigger each other, one after the other.
const maxDepth = 50

// tooDeep is the error of an event of a saga that would trigger n others, at the end of too many.
func tooDeep(n int) error {
	err := j17.Errorf(j17.CodeImplicationLimit, "Sagas trigger each other %d deep at most, and the event would trigger another one. Nothing was written. "+
		"Let the spec end the circle by a condition, an answer that is awaited, or a schedule.", maxDepth)
	err.Details, err.Plain = limited{Limit: maxDepth, Sagas: n}, true
	return err
}

// effects gathers what is to be written with events.
type effects struct {
	*Service
	*part.Decided
	part.Effects
}

func (e *effects) put(side ...store.Side) { e.Side = append(e.Side, side...) }

func (e *effects) fence(space store.Space, key string, rev uint64) {
	e.Fences = append(e.Fences, store.Fence{Space: space, Key: key, Rev: rev})
}

// get returns an item, the zero one where there is none.
func (s *Service) get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	it, err := s.store.Get(ctx, t, space, key)
	if isAbsent(err) {
		return store.Item{}, nil
	}
	return it, err
}

// answers finds the sagas that wait for one of the events, which can only be of the known types, and resumes them. A
// saga that begins to wait at the same moment breaks one of the fences, and then the events are examined again.
func (e *effects) answers(ctx context.Context, known map[string]bool) (err error) {
	var waits map[j17.Key][]*waiter
	for i := range e.Events {
		ev := &e.Events[i]
		if !known[awaited(ev.Key.Type, ev.Type)] {
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
			if w.answered || !slices.Contains(w.types, ev.Type) {
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

// resumes records a saga that event number i resumes, where the command is a dry run.
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

// await returns the writes by which a saga begins to wait for events of an aggregate.
func await(key, id string, types []string, until time.Time) []store.Side {
	return []store.Side{
		{
			Op: store.Put, Space: waitSpace, Key: key + "/" + id, Value: []byte(strings.Join(types, "\n")),
			Expires: until,
		},
		{Op: store.Add, Space: waitSpace, Key: key, Value: []byte("1")},
	}
}

// forget returns the writes by which a saga no longer waits.
func forget(key, id string) []store.Side {
	return []store.Side{
		{Op: store.Delete, Space: waitSpace, Key: key + "/" + id},
		{Op: store.Add, Space: waitSpace, Key: key, Value: []byte("-1")},
	}
}

// awaited names an event type among all.
func awaited(aggregateType, eventType string) string { return aggregateType + "." + eventType }

// knownTypes is which event types sagas of an environment have ever awaited, by a revision of what says so.
type knownTypes struct {
	types map[string]bool
	rev   uint64
	// fences hold as long as these are all, and changed receives those that no longer hold.
	fences  []store.Fence
	changed func(*store.SideConflict)
}

// awaitedTypes keeps what was read last of some environments. What is kept may be old: a caller that relies on it
// fences on its revision.
type awaitedTypes struct {
	mu sync.Mutex
	of map[j17.Tenant]knownTypes
}

// maxAwaited is of how many environments the awaited types are kept in memory.
const maxAwaited = 1000

// forget makes sure that what is known of an environment is read the next time.
func (a *awaitedTypes) forget(t j17.Tenant) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, t)
}

// knownTypes returns what is kept, and reads it where nothing is: a read for each write would cost it a tenth.
func (s *Service) knownTypes(ctx context.Context, t j17.Tenant) (knownTypes, error) {
	s.awaited.mu.Lock()
	k, kept := s.awaited.of[t]
	s.awaited.mu.Unlock()
	if kept {
		return k, nil
	}

	// Read it.
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

	// Keep it.
	s.awaited.mu.Lock()
	defer s.awaited.mu.Unlock()
	if s.awaited.of == nil || len(s.awaited.of) >= maxAwaited {
		s.awaited.of = map[j17.Tenant]knownTypes{}
	}
	s.awaited.of[t] = k
	return k, nil
}

// learn makes the types of an await known.
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

// triggers starts the sagas of events that trigger some, as far as there is room, and queues the others.
func (e *effects) triggers(ctx context.Context) error {
	var r *room
	version, started, late := 0, int64(0), false
	for i := range e.Events {
		ev := &e.Events[i]
		if ev.Spec == nil {
			continue
		}
		for _, def := range ev.Spec.Sagas {
			// The first one looks how many may run, and which spec this is: the engine's own fence holds as long as it
			// is.
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

	// A saga that starts at once must be the first in the queue.
	if started > 0 {
		e.fence(admissionSpace, admissionKey, 0)
		e.put(take(started, r.bound))
	}
	if late {
		e.put(wake(e.at(e.Timestamp)))
	}
	return nil
}
