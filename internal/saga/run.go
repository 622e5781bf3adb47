package saga

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"j17"
	"j17/internal/engine"
	"j17/internal/spec"
	"j17/internal/store"
	"j17/internal/work"
	"j17/internal/worker"
)

// step is one saga while something of it is carried out.
type step struct {
	*Service
	machine
	claim *worker.Claim
	// ended are the writes by which the saga waits no more, if it has until now.
	ended []store.Side
}

// do carries out what is due of one saga: up to the next event that it writes, and that in one commit with what follows from it.
func (s *Service) do(ctx context.Context, c *worker.Claim) error {
	g, err := s.load(ctx, c.Tenant, c.Key)
	if isAbsent(err) {
		s.logger.LogAttrs(ctx, slog.LevelError, "work of a saga that is gone was removed", slog.String("tenant", string(c.Tenant)), slog.String("saga", c.Key))
		if _, lost := conflict(s.store.Write(ctx, c.Tenant, []store.Side{c.Remove()})); lost != nil {
			return lost
		}
		return nil
	}
	if err != nil {
		return err
	}
	def, err := s.definition(ctx, c.Tenant, g)
	if err != nil {
		return err
	}
	st := &step{Service: s, claim: c, machine: machine{Saga: g, def: def, now: s.clock.Now().Unix()}}
	if err := st.take(ctx); err != nil {
		return err
	}
	return st.carryOn(ctx)
}

// load returns a saga; store.ErrNotFound where there is none.
func (s *Service) load(ctx context.Context, t j17.Tenant, id string) (*Saga, error) {
	it, err := s.store.Get(ctx, t, rowSpace, id)
	if err != nil {
		return nil, err
	}
	return decode(it.Value)
}

// definition returns what a saga is defined by.
func (s *Service) definition(ctx context.Context, t j17.Tenant, g *Saga) (*spec.Saga, error) {
	compiled, err := s.definitions.of(ctx, t, g.Version)
	if err != nil {
		return nil, err
	}
	def := compiled.Sagas[g.Type]
	if def == nil || len(def.Steps) != len(g.Steps) {
		return nil, &store.CorruptionError{Where: string(rowSpace), Err: errors.New("the spec of the saga " + g.ID + " does not define it")}
	}
	return def, nil
}

// take takes in what the saga was woken by.
func (st *step) take(ctx context.Context) error {
	value := st.claim.Value
	switch string(value) {
	case starts, goesOn:
		return nil
	case timesOut:
		if st.Waits != "" {
			st.ended = forget(st.Waits, st.ID)
			st.timedOut()
		}
		return nil
	}
	at, what, err := store.ReadStamp(value)
	if err != nil || string(what) != answer || st.Waits == "" {
		return &store.CorruptionError{Where: string(workSpace), Err: errors.Join(err, errors.New("the saga "+st.ID+" was woken by nothing that is known"))}
	}
	ev, err := st.event(ctx, st.claim.Tenant, at.String())
	if err != nil {
		return err
	}
	st.answered(at.String(), ev.Timestamp)
	return nil
}

// carryOn does one task after the other until something is stored.
func (st *step) carryOn(ctx context.Context) error {
	var sc *scene
	for {
		t, ok := st.task()
		if !ok {
			return st.rest(ctx, 0)
		}

		// What it writes, if anything.
		if sc == nil {
			var err error
			if sc, err = st.scene(ctx, st.claim.Tenant, st.Saga); err != nil {
				return err
			}
		}
		sc.work.Renew(work.Command)
		c, key, err := sc.prepare(ctx, &t)
		if err == nil && c == nil {
			st.skipped()
			continue
		}

		// Write it.
		if err == nil {
			err = st.write(ctx, &t, c, key)
			if err == nil || errors.Is(err, errLost) {
				return nil
			}
		}
		if !isRefusal(err, st.claim.Attempt) {
			return err
		}
		if st.refused(err.Error()) {
			return st.rest(ctx, attemptPause)
		}
	}
}

// prepare makes the command of a task, nil where it has nothing to write, and finds the aggregate that it awaits an answer of: the
// zero key where that is the one it writes to.
func (sc *scene) prepare(ctx context.Context, t *task) (*engine.Command, j17.Key, error) {
	if t.condition != nil {
		holds, err := sc.holds(ctx, t.condition.Condition)
		if err != nil || !holds {
			return nil, j17.Key{}, err
		}
	}
	c, err := sc.command(ctx, t)
	if err != nil || c == nil {
		return nil, j17.Key{}, err
	}
	key, err := sc.awaited(ctx, t.await)
	return c, key, err
}

// errLost tells that somebody else goes on with the saga.
var errLost = errors.New("saga: the claim is lost")

// write writes the event of a task together with what it makes of the saga.
func (st *step) write(ctx context.Context, t *task, c *engine.Command, key j17.Key) error {
	c.Side = append([]store.Side{st.claim.Remove()}, st.ended...)
	var next *Saga
	c.Effects = func(ctx context.Context, d *engine.Decided) (engine.Effects, error) {
		e := &effects{Service: st.Service, Decided: d}
		m := machine{Saga: st.clone(), def: st.def, now: d.Timestamp}
		if err := m.follow(ctx, e, t, key); err != nil {
			return engine.Effects{}, engine.StorageError(err)
		}
		next = m.Saga
		return e.Effects, nil
	}
	if _, err := st.engine.Execute(ctx, c); err != nil {
		if _, ok := errors.AsType[*store.SideConflict](err); ok {
			return errLost
		}
		return err
	}
	st.counts.events.Add(1)
	if t.phase == Compensating {
		st.counts.compensations.Add(1)
	}
	st.after(ctx, next)
	return nil
}

// follow takes in that the event of a task is about to be written, and puts what follows into its commit.
func (m *machine) follow(ctx context.Context, e *effects, t *task, key j17.Key) error {
	// Without an answer to wait for, or with one that has come with the event itself, the saga goes on at once.
	now := time.Unix(e.Timestamp, 0)
	wakes := store.Side{Op: store.Put, Space: workSpace, Key: m.ID, Value: []byte(goesOn), Due: now}
	waits := ""
	if t.await != nil {
		if key == (j17.Key{}) {
			key = e.Events[0].Key
		}
		waits = key.String()
		if i := answeredBy(e, key, t.await); i > 0 {
			wakes.Value, wakes.Stamps = []byte(answer), []int{i}
		} else {
			wakes.Value, wakes.Due = []byte(timesOut), e.clock.Now().Add(t.timeout)
			if err := e.learn(ctx, t.await); err != nil {
				return err
			}
			e.put(await(waits, m.ID, t.await.EventTypes, wakes.Due)...)
		}
	}

	m.emitted(waits)
	if m.Status == Running {
		e.put(wakes)
	}
	return e.keep(ctx, m.Saga, []int{0})
}

// answeredBy returns the number of the event that answers an await in the commit of the step's own event, 0 for none. The own event
// asks and does not answer.
func answeredBy(e *effects, key j17.Key, a *spec.Await) int {
	for i := 1; i < len(e.Events); i++ {
		if e.Events[i].Key == key && slices.Contains(a.EventTypes, e.Events[i].Type) {
			return i
		}
	}
	return 0
}

// rest stores what has become of the saga where no event is written, and lets it go on after a pause if it still runs.
func (st *step) rest(ctx context.Context, pause time.Duration) error {
	t := st.claim.Tenant
	for {
		e := &effects{Service: st.Service, Decided: &engine.Decided{Tenant: t, Timestamp: st.now}}
		e.put(st.claim.Remove())
		e.put(st.ended...)
		if st.Status == Running {
			e.put(store.Side{Op: store.Put, Space: workSpace, Key: st.ID, Value: []byte(goesOn), Due: st.clock.Now().Add(pause)})
		}
		if err := e.keep(ctx, st.Saga, nil); err != nil {
			return err
		}
		c, err := conflict(st.Service.store.Write(ctx, t, e.Side, e.Fences...))
		switch {
		case err != nil:
			return err
		case c == nil:
			st.after(ctx, st.Saga)
			return nil
		case c.Space == workSpace:
			return nil // somebody else goes on with it
		}
	}
}

// conflict tells a condition that did not hold from other errors.
func conflict(err error) (*store.SideConflict, error) {
	if c, ok := errors.AsType[*store.SideConflict](err); ok {
		return c, nil
	}
	return nil, err
}

// keep puts a saga into the commit, and what follows from that it ends.
func (e *effects) keep(ctx context.Context, g *Saga, stamps []int) error {
	sides, err := save(g, stamps, e.Timestamp)
	if err != nil {
		return err
	}
	e.put(sides...)
	if g.stored != Running || g.Status == Running {
		return nil
	}

	// There is room for another one now. Who comes to wait at the same moment has to see it.
	e.put(store.Side{Op: store.Add, Space: countSpace, Key: runningKey, Value: []byte("-1")})
	next, err := e.get(ctx, e.Tenant, admissionSpace, admissionKey)
	switch {
	case err != nil:
		return err
	case next.Rev == 0:
		e.fence(admissionSpace, admissionKey, 0)
	default:
		e.put(wake(e.Timestamp))
	}
	return nil
}

// save returns the writes that store a saga, at a time in Unix seconds; stamps has the number of the event that it is stored with, if
// there is one.
func save(g *Saga, stamps []int, at int64) ([]store.Side, error) {
	raw, err := g.encode()
	if err != nil {
		return nil, err
	}
	row := store.Side{Op: store.Put, Space: rowSpace, Key: g.ID, Value: raw, Stamps: stamps}
	if stamps == nil {
		row.Value = append(store.AppendStamp(nil, j17.StreamID{}), raw...)
	}
	if g.Status == Completed {
		row.Expires = time.Unix(at, 0).Add(retention)
	}
	sides := []store.Side{row}
	if g.stored == g.Status {
		return sides, nil
	}
	if g.stored != "" {
		for _, key := range g.listed(g.stored) {
			sides = append(sides, store.Side{Op: store.Delete, Space: listSpace, Key: key})
		}
	}
	for _, key := range g.listed(g.Status) {
		sides = append(sides, store.Side{Op: store.Put, Space: listSpace, Key: key, Expires: row.Expires})
	}
	return sides, nil
}

// after does what has to follow a commit: counting, and telling the other environments of the instance that there is room.
func (st *step) after(ctx context.Context, g *Saga) {
	c := &st.counts
	switch string(st.claim.Value) {
	case starts:
		c.started.Add(1)
	case timesOut:
		c.timedOut.Add(1)
	}
	switch g.Status {
	case Queued, Running:
		return
	case Completed:
		c.completed.Add(1)
	case Failed:
		c.failed.Add(1)
	case DeadLettered:
		c.deadLettered.Add(1)
		st.logger.LogAttrs(ctx, slog.LevelWarn, "a saga was given up; an operator has to look at it", slog.String("tenant", string(st.claim.Tenant)),
			slog.String("saga", g.ID), slog.String("type", g.Type), slog.String("step", g.CurrentStep()))
	}
	st.tell(ctx, st.claim.Tenant)
}
