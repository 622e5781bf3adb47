package saga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// step is a saga while due work of it is carried out.
type step struct {
	*Service
	machine
	tenant j17.Tenant
	// woken is the value of its work item, and attempt counts the tries from 1.
	woken   []byte
	attempt int
	// claim is the write that finishes the work item. It fails if another process continues the saga.
	claim store.Side
	// ended are the writes that end the saga's waiting, if it has waited until now.
	ended []store.Side
	// bound is how many sagas of the environment may run, if this one begins to.
	bound int64
	// scene is what its templates see, loaded on demand.
	scene *scene
}

// do carries out the due work of one saga: up to the next event that it writes, in one commit with the consequences.
func (s *Service) do(ctx context.Context, c *worker.Claim) error {
	g, err := s.load(ctx, c.Tenant, c.Key)
	if isAbsent(err) {
		s.logger.LogAttrs(ctx, slog.LevelError, "work of a saga that is gone was removed", slog.String("tenant", string(c.Tenant)), slog.String("saga", c.Key))
		_, err := conflict(s.store.Write(ctx, c.Tenant, []store.Side{c.Remove()}))
		return err
	}
	if err == nil {
		err = panics.Logged(
			ctx, s.logger, "saga "+c.Key+" of "+string(c.Tenant), func() error { return s.move(ctx, c, g) },
		)
	}
	switch {
	case err == nil:
		return nil
	case isPassing(err) && c.Attempt >= maxTries && worker.Overdue(ctx):
		// a step exceeded the time of a try, and another try would not be faster
		return s.giveUp(context.WithoutCancel(ctx), c, fmt.Errorf("a step, with all that its event implies, could not be carried out within %d seconds: custom code takes too long, or the server was too busy",
			int(lease.Seconds())))
	case isPassing(err):
		return s.later(ctx, c, err)
	case c.Attempt < maxTries:
		return err
	default:
		return s.giveUp(ctx, c, err)
	}
}

// later makes the work due again, after a failure that says nothing about the saga: such a try does not count. If the
// write fails too, the try counts.
func (s *Service) later(ctx context.Context, c *worker.Claim, cause error) error {
	const pause = time.Second
	if ctx.Err() != nil {
		return cause
	}
	if _, err := conflict(s.store.Write(ctx, c.Tenant, []store.Side{
		c.Replace(c.Value, s.clock.Now().Add(pause)),
	})); err != nil {
		return cause
	}
	return nil
}

// move carries out the due work of a saga.
func (s *Service) move(ctx context.Context, c *worker.Claim, g *Saga) error {
	st, err := s.step(ctx, c.Tenant, g)
	if err != nil {
		return err
	}
	st.woken, st.attempt, st.claim = c.Value, c.Attempt, c.Remove()
	if err := st.take(ctx); err != nil {
		return err
	}
	return st.carryOn(ctx)
}

// maxTries is how often work of a saga may fail in a row, other than by the refusal of an event, before the saga is
// given up: it holds a place that others wait for.
const maxTries = 10

// giveUp ends a saga that cannot be continued: its definition, its trigger, an answer or an aggregate that it writes to
// cannot be read. An operator can retry it, and then it continues with the same work item.
func (s *Service) giveUp(ctx context.Context, c *worker.Claim, cause error) error {
	g, err := s.load(ctx, c.Tenant, c.Key)
	if isAbsent(err) {
		return err
	}
	st := &step{Service: s, tenant: c.Tenant, claim: c.Remove(), machine: machine{Saga: g, now: s.clock.Now().Unix()}}
	if err == nil {
		st.gaveUp(c.Value, fmt.Sprintf("The saga could not be carried on in %d tries. Retry it when the cause is mended: %s", c.Attempt, j17.Record(cause)))
		return st.rest(ctx, 0)
	}

	// The saga itself cannot be read. Its row stays as it is, and its place is freed.
	s.logger.LogAttrs(ctx, slog.LevelError, "a saga cannot be read and is not carried on", slog.String("tenant", string(c.Tenant)),
		slog.String("saga", c.Key), slog.Any("error", err))
	e := &effects{Service: s, Decided: &part.Decided{Tenant: c.Tenant, Timestamp: st.now}}
	e.put(st.claim)
	if err := e.leave(ctx); err != nil {
		return err
	}
	lost, err := conflict(s.store.Write(ctx, c.Tenant, e.Side, e.Fences...))
	if err == nil && lost != nil && lost.Space != st.claim.Space {
		return lost // a saga has begun to wait for a place: the next try wakes it
	}
	return err
}

// step prepares a saga for its work.
func (s *Service) step(ctx context.Context, t j17.Tenant, g *Saga) (*step, error) {
	def, err := s.definition(ctx, t, g)
	return &step{Service: s, tenant: t, attempt: 1, machine: machine{Saga: g, def: def, now: s.clock.Now().Unix()}}, err
}

// load returns a saga; store.ErrNotFound if there is none.
func (s *Service) load(ctx context.Context, t j17.Tenant, id string) (*Saga, error) {
	it, err := s.store.Get(ctx, t, rowSpace, id)
	if err != nil {
		return nil, err
	}
	return decode(it.Value)
}

// definition returns the definition of a saga.
func (s *Service) definition(ctx context.Context, t j17.Tenant, g *Saga) (*spec.Saga, error) {
	compiled, err := s.definitions.of(ctx, t, g.Version)
	if err != nil {
		return nil, err
	}
	def := compiled.Sagas[g.Type]
	if def == nil || len(def.Steps) != len(g.Steps) {
		return nil, &store.CorruptionError{
			Where: string(rowSpace), Err: errors.New("the spec of the saga " + g.ID + " does not define it"),
		}
	}
	return def, nil
}

// take records the event that the work item stands for: a start, an answer or a timeout.
func (st *step) take(ctx context.Context) error {
	st.Woken = nil
	switch string(st.woken) {
	case starts, goesOn:
		return nil
	case timesOut:
		if st.Waits != "" {
			st.ended = forget(st.Waits, st.ID)
			st.timedOut()
		}
		return nil
	}
	at, what, err := store.ReadStamp(st.woken)
	if err != nil || string(what) != answer || st.Waits == "" {
		return &store.CorruptionError{
			Where: string(workSpace),
			Err:   errors.Join(err, errors.New("the saga "+st.ID+" was woken by nothing that is known")),
		}
	}
	ev, err := st.event(ctx, st.tenant, at.String())
	if err != nil {
		return err
	}
	st.answered(at.String(), ev.Timestamp)
	return nil
}

// carryOn carries out tasks until something is stored.
func (st *step) carryOn(ctx context.Context) error {
	for {
		w, err := st.next(ctx)
		if w == nil || err != nil {
			return err
		}
		_, err = st.engine.Execute(ctx, w.command)
		if done, err := st.wrote(ctx, w, err); done || err != nil {
			return err
		}
	}
}

// writing is an event that is about to be written, with the resulting state of the saga.
type writing struct {
	phase   Phase
	command *engine.Command
	next    *Saga
}

// next returns the next event that the saga writes, nil if there is none and the saga's state is stored.
func (st *step) next(ctx context.Context) (*writing, error) {
	for {
		t, ok := st.task()
		if !ok {
			return nil, st.rest(ctx, 0)
		}
		if st.scene == nil {
			var err error
			if st.scene, err = st.look(ctx, st.tenant, st.Saga); err != nil {
				return nil, err
			}
		}
		st.scene.work.Renew(work.Command)
		c, err := st.scene.prepare(ctx, &t)
		switch {
		case err == nil && c != nil:
			return st.writing(&t, c), nil
		case err == nil:
			st.skipped()
		default:
			if done, err := st.wrote(ctx, nil, err); done || err != nil {
				return nil, err
			}
		}
	}
}

// wrote records the result of writing an event, nil for one that could not be made. done reports that the saga's state
// is stored.
func (st *step) wrote(ctx context.Context, w *writing, err error) (done bool, _ error) {
	if err == nil {
		st.counts.events.Add(1)
		if w.phase == Compensating {
			st.counts.compensations.Add(1)
		}
		st.after(ctx, w.next)
		return true, nil
	}
	if _, lost := errors.AsType[*store.SideConflict](err); lost || errors.Is(err, errNoRoom) {
		return true, nil // another process continues it, or it stays queued
	}
	if !isRefusal(err, st.attempt) {
		return false, err
	}
	if st.refused(because(err)) {
		return true, st.rest(ctx, attemptPause)
	}
	return false, nil
}

// prepare creates the command of a task, nil if it has nothing to write, and determines the aggregate whose answer the
// task awaits, and until when.
func (sc *scene) prepare(ctx context.Context, t *task) (*engine.Command, error) {
	if t.condition != nil {
		holds, err := sc.holds(ctx, t.condition)
		if err != nil || !holds {
			return nil, err
		}
	}
	c, err := sc.command(ctx, t)
	if err != nil || c == nil {
		return nil, err
	}
	return c, sc.await(ctx, t)
}

// writing combines the event of a task with the resulting state of the saga.
func (st *step) writing(t *task, c *engine.Command) *writing {
	w := &writing{phase: t.phase, command: c}
	c.Side = append([]store.Side{st.claim}, st.ended...)
	c.Effects = func(ctx context.Context, d *part.Decided) (part.Effects, error) {
		e := &effects{Service: st.Service, Decided: d}
		m := machine{Saga: st.clone(), def: st.def, now: d.Timestamp}
		if err := m.follow(ctx, e, t, st.bound); err != nil {
			return part.Effects{}, store.UserError(err)
		}
		w.next = m.Saga
		return e.Effects, nil
	}
	return w
}

// follow records that the event of a task is about to be written, and adds the consequences to its commit.
func (m *machine) follow(ctx context.Context, e *effects, t *task, bound int64) error {
	// If no answer is awaited, or it comes with the event itself, the saga continues at once.
	wakes := store.Side{Op: store.Put, Space: workSpace, Key: m.ID, Value: []byte(goesOn), Due: e.at(e.Timestamp)}
	waits := ""
	if t.await != nil {
		key := t.awaited
		if key == (j17.Key{}) {
			key = e.Events[0].Key
		}
		waits = key.String()
		if i := answeredBy(e, key, t.await); i > 0 {
			wakes.Value, wakes.Stamps = []byte(answer), []int{i}
		} else {
			wakes.Value, wakes.Due = []byte(timesOut), t.ends(e.clock.Now())
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
	return e.keep(ctx, m.Saga, []int{0}, bound)
}

// answeredBy returns the number of the event that answers an await in the commit of the step's own event, 0 for none.
// The step's own event does not count as an answer.
func answeredBy(e *effects, key j17.Key, a *spec.Await) int {
	for i := 1; i < len(e.Events); i++ {
		if e.Events[i].Key == key && slices.Contains(a.EventTypes, e.Events[i].Type) {
			return i
		}
	}
	return 0
}

// rest stores the saga's state when no event is written, and continues it after a pause if it still runs.
func (st *step) rest(ctx context.Context, pause time.Duration) error {
	for {
		e := &effects{Service: st.Service, Decided: &part.Decided{Tenant: st.tenant, Timestamp: st.now}}
		e.put(st.claim)
		e.put(st.ended...)
		if st.Status == Running {
			e.put(st.wakes(st.clock.Now().Add(pause)))
		}
		if err := e.keep(ctx, st.Saga, nil, st.bound); err != nil {
			return err
		}
		c, err := conflict(st.store.Write(ctx, st.tenant, e.Side, e.Fences...))
		switch {
		case err != nil:
			return err
		case c == nil:
			st.after(ctx, st.Saga)
			return nil
		case c.Full || c.Space == st.claim.Space && c.Key == st.claim.Key:
			return nil // it stays queued, or another process continues it
		}
	}
}

// conflict separates failed conditions from other errors.
func conflict(err error) (*store.SideConflict, error) {
	if c, ok := errors.AsType[*store.SideConflict](err); ok {
		return c, nil
	}
	return nil, err
}

// errNoRoom reports that there is no room for a saga about to start.
var errNoRoom = errors.New("saga: too many sagas run")

// keep adds the saga's state to the commit, with what follows if it begins to run, as one of bound at most, or ends.
func (e *effects) keep(ctx context.Context, g *Saga, stamps []int, bound int64) error {
	sides, err := save(g, stamps, e.Timestamp)
	if err != nil {
		return err
	}
	e.put(sides...)
	switch {
	case (g.stored == Running) == (g.Status == Running):
		return nil
	case g.Status == Running:
		e.put(take(1, bound))
		e.Full = func(c *store.SideConflict) error {
			if c.Space == countSpace {
				return errNoRoom
			}
			return nil
		}
		return nil
	}

	return e.leave(ctx)
}

// leave frees the place of a running saga. A saga that is queued at the same time has to notice that.
func (e *effects) leave(ctx context.Context) error {
	e.put(store.Side{Op: store.Add, Space: countSpace, Key: runningKey, Value: []byte("-1")})
	next, err := e.get(ctx, e.Tenant, admissionSpace, admissionKey)
	switch {
	case err != nil:
		return err
	case next.Rev == 0:
		e.fence(admissionSpace, admissionKey, 0)
	default:
		e.put(wake(e.at(e.Timestamp)))
	}
	return nil
}

// save returns the writes that store a saga, at a time in Unix seconds; stamps has the number of the event that it is
// stored with, if there is one.
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
	if g.Status == Completed {
		sides = append(sides, g.forgetCauses(row.Expires)...)
	}
	return sides, nil
}

// after does what follows a commit: it updates the counters, and tells the other environments of the instance that
// there is room.
func (st *step) after(ctx context.Context, g *Saga) {
	c := &st.counts
	if st.stored == Queued {
		c.queued.Add(1)
	}
	switch string(st.woken) {
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
		st.logger.LogAttrs(ctx, slog.LevelWarn, "a saga was given up; an operator has to look at it", slog.String("tenant", string(st.tenant)),
			slog.String("saga", g.ID), slog.String("type", g.Type), slog.String("step", g.CurrentStep()))
	}
	st.tell(ctx, st.tenant)
}
