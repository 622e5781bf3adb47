package listener

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/core/upcast"
	"j17/internal/core/worker"
	"j17/internal/follow/outbound"
	"j17/internal/storage/store"
)

// noListener is the error of deliveries that end because their listener was removed.
const noListener = "the listener was removed from the spec"

// gone is the status of an endpoint that wants no further messages.
const gone = 410

// maxLog is how many tries a log keeps, the latest ones.
const maxLog = 20

// begin tries a delivery that this process has made ready, unless another process has taken it over.
func (s *Service) begin(j job) {
	err := panics.Caught(func() error {
		it, err := s.leased(j)
		if err == nil && it.Rev != 0 {
			err = s.attempt(s.sending, j, it.Rev)
		}
		return err
	})
	if err != nil {
		s.o.Logger.LogAttrs(s.sending, slog.LevelWarn, "a delivery could not be made; it is tried again", slog.String("tenant", string(j.at.tenant)),
			slog.String("listener", j.at.name), slog.String("delivery", j.delivery.ID), slog.Any("error", err))
	}
}

// tryTime is more than a try takes, including its reads and its commit: a sender gives up after 10 seconds.
const tryTime = 15 * time.Second

// leased returns the lane of a delivery that this process has made ready, with a lease that outlasts a try; the zero
// Item if another process has taken the delivery over.
func (s *Service) leased(j job) (store.Item, error) {
	it, err := s.held(j.delivery, j.at.tenant)
	if err != nil || !it.Due.Equal(j.due) {
		return store.Item{}, err
	}
	now := s.o.Clock.Now()
	if j.due.Sub(now) >= tryTime {
		return it, nil
	}

	// The delivery has waited long for its turn. Without a new lease another process would deliver it too.
	renewed := claimedLane(j.delivery, now)
	err = s.o.Store.Write(context.WithoutCancel(s.sending), j.at.tenant, []store.Side{renewed.On(it.Rev)})
	if overtaken(err) {
		return store.Item{}, nil
	}
	if err != nil {
		return store.Item{}, err
	}
	if it, err = s.held(j.delivery, j.at.tenant); err != nil || !it.Due.Equal(renewed.Due) {
		return store.Item{}, err
	}
	return it, nil
}

// ready submits a delivery that this process has made ready. If the service is ending, the delivery is made due for the
// next process.
func (s *Service) ready(line *line, j job) error {
	if s.pool.submit(line, func() { s.begin(j) }) {
		return nil
	}
	it, err := s.held(j.delivery, j.at.tenant)
	if err != nil || !it.Due.Equal(j.due) {
		return err
	}
	back := laneSide(j.delivery, s.o.Clock.Now()).On(it.Rev)
	if err = s.o.Store.Write(context.WithoutCancel(s.sending), j.at.tenant, []store.Side{back}); overtaken(err) {
		return nil
	}
	return err
}

// held returns the lane of a delivery, the zero Item if the lane has no or another delivery.
func (s *Service) held(d *delivery, t j17.Tenant) (store.Item, error) {
	it, err := s.o.Store.Get(context.WithoutCancel(s.sending), t, laneSpace, d.lane())
	if errors.Is(err, store.ErrNotFound) {
		return store.Item{}, nil
	}
	if err != nil {
		return store.Item{}, err
	}
	_, id, err := worker.ReadAttempts(it.Value)
	if err != nil || string(id) != d.ID {
		return store.Item{}, err
	}
	return it, nil
}

// retry tries a delivery that is due, because its pause is over or its process has ended. If the lane has no delivery,
// retry continues the search for the next one.
func (s *Service) retry(ctx context.Context, c *worker.Claim) error {
	if len(c.Value) == 0 {
		return s.search(ctx, c)
	}
	d, _, err := read[*delivery](ctx, s.o.Store, c.Tenant, deliverySpace, string(c.Value))
	if errors.Is(err, store.ErrNotFound) {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Remove()})
	}
	if err != nil {
		return err
	}

	// A slow endpoint fills only its own room: a delivery without room waits on.
	where := at{c.Tenant, d.Listener}
	line := s.pool.use(where)
	defer s.pool.leave(line)
	after, ok := s.pool.enter(line)
	if !ok && after == 0 {
		side := claimedLane(d, s.o.Clock.Now())
		if err := s.o.Store.Write(ctx, c.Tenant, []store.Side{side.On(c.Remove().Rev)}); err != nil {
			return err
		}
		return s.ready(line, job{at: where, delivery: d, due: side.Due})
	}
	if !ok {
		return s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(c.Value, s.o.Clock.Now().Add(after))})
	}
	defer s.pool.exit(line)
	return s.attempt(ctx, job{at: where, delivery: d}, c.Remove().Rev)
}

// attempt tries a delivery whose lane has the given revision, and commits the outcome.
func (s *Service) attempt(ctx context.Context, j job, rev uint64) error {
	kept := context.WithoutCancel(ctx)
	l, err := s.find(kept, j.at.tenant, j.at.name) // it may have been paused while the delivery waited for its turn
	if err != nil {
		return err
	}
	if l == nil && !s.restored(j.at.tenant) {
		return errNoSpec
	}
	j.listener = l
	var o outcome
	switch {
	case l == nil:
		o = outcome{over: true, try: try{Error: noListener}}
	case l.state.Status != Active:
		o.park = true
	default:
		j, err = s.log.present(kept, j)
		if upcast.Failure(err) != nil {
			o.try.Error = err.Error() // it has no values of the event
			break
		}
		if err != nil {
			return err
		}
		if j.event.Erased() && j.event.Type != j.delivery.Type {
			o = outcome{over: true, try: try{Error: "the event was erased"}}
			break
		}
		o = s.send(ctx, l, j)
	}
	o.at = s.o.Clock.Now()
	return s.settle(kept, j, rev, o)
}

// asOf returns the listener of a job, possibly as it was a moment ago: all commits are conditional on its revision.
func (s *Service) asOf(ctx context.Context, j job) (*listener, error) {
	if j.listener != nil && s.definition(j.at.tenant, j.at.name) == j.listener.definition {
		return j.listener, nil
	}
	return s.find(ctx, j.at.tenant, j.at.name)
}

// outcome is the outcome of a try.
type outcome struct {
	at time.Time
	// park reports that nothing was sent because the listener is not active; again that the try was cut off and does
	// not count.
	park, again bool
	// delivered reports that the endpoint accepted the message, gone that it wants no further ones, over that further
	// tries are useless.
	delivered, gone, over bool
	try                   try
}

// send sends the message of a delivery once.
func (s *Service) send(ctx context.Context, l *listener, j job) outcome {
	m := j.delivery.message(l.env, j.event)
	m.URL, m.Keys = l.definition.URLs[l.env], l.state.keys(s.o.Clock.Now())
	maps.Copy(m.Headers, l.definition.Headers)
	stopwatch := clock.System{} // real time, whatever the server's clock shows
	began := stopwatch.Now()
	answer, err := s.o.Send(ctx, m)
	took := stopwatch.Now().Sub(began)
	return judge(answer, err, took, ctx.Err() != nil, secretsOf(&l.state, l.definition))
}

// judge turns an answer into an outcome.
func judge(a outbound.Answer, err error, took time.Duration, ended bool, secrets []string) outcome {
	const maxError = 500
	o := outcome{try: try{
		Status: a.Status, Millis: float64(took.Microseconds()) / 1000, Response: excerpt(a.Body, secrets...),
	}}
	switch {
	case err == nil:
		o.delivered = true
	case a.Status == 0 && ended:
		o.again = true
	default:
		o.try.Error = cut(excerpt([]byte(err.Error()), secrets...), maxError)
		o.gone = a.Status == gone
	}
	return o
}

// settle commits the outcome of a try, and begins the delivery that waited for it. If another process has taken the
// delivery over, nothing is committed.
func (s *Service) settle(ctx context.Context, j job, rev uint64, o outcome) error {
	line := s.pool.use(j.at)
	defer s.pool.leave(line)
	if !o.park && !o.again && !o.over {
		s.pool.took(line, time.Duration(o.try.Millis*float64(time.Millisecond)))
	}
	for n := range maxTries {
		next, again, err := s.settleOnce(ctx, j, rev, o, line, n == 0)
		if again {
			j.listener = nil // its state may be what has changed
			if it, failed := s.held(j.delivery, j.at.tenant); failed != nil || it.Rev != rev {
				return failed
			}
			continue
		}
		if err != nil {
			return err
		}
		return s.goOn(ctx, line, next)
	}
	return errContended
}

// goOn begins the next delivery of a lane, if not nil, and wakes the feed if the listener has room again.
func (s *Service) goOn(ctx context.Context, line *line, next *job) error {
	var err error
	if next != nil {
		err = s.ready(line, *next)
	}
	return errors.Join(err, s.wake(ctx, line))
}

// settleOnce is one try of settle. It asks for another one if the state that it rests on has changed. The first try
// assumes that nothing waits for the delivery, which is usually true, and does not look.
func (s *Service) settleOnce(
	ctx context.Context, j job, rev uint64, o outcome, line *line, first bool,
) (next *job, again bool, err error) {
	line.decide.RLock()
	defer line.decide.RUnlock()
	l, err := s.asOf(ctx, j)
	if err != nil {
		return nil, false, err
	}
	if l == nil && !s.restored(j.at.tenant) {
		return nil, false, errNoSpec // the spec was removed during the try
	}
	if o, err = s.log.withoutErased(ctx, l, j, o); err != nil {
		return nil, false, err
	}
	e := ending{s: s, l: l, j: j, rev: rev, o: o, d: *j.delivery, alone: first}
	if err := e.decide(ctx); err != nil {
		return nil, false, err
	}
	if next, again, err = s.commit(ctx, &e, line); err == nil && !again {
		s.count(e)
	}
	return next, again, err
}

// count counts an outcome.
func (s *Service) count(e ending) {
	switch {
	case e.o.park || e.o.again:
	case e.o.delivered:
		s.counts.delivered.Add(1)
	case e.d.Status == Failed:
		s.counts.failed.Add(1)
	default:
		s.counts.retried.Add(1)
	}
	if e.o.gone {
		s.counts.disabled.Add(1)
	}
}

// ending collects the consequences of a try.
type ending struct {
	s *Service
	// l is nil if the listener was removed.
	l   *listener
	j   job
	rev uint64
	o   outcome
	d   delivery

	sides  []store.Side
	fences []store.Fence
	next   *job
	// freed reports that the lane becomes empty.
	freed bool
	// alone assumes that nothing waits for the delivery.
	alone bool
}

// decide collects the writes of an ending.
func (e *ending) decide(ctx context.Context) error {
	if e.l != nil {
		e.fences = append(e.fences, e.l.state.fence(e.l.name))
	}
	active := e.l != nil && e.l.state.Status == Active

	// Nothing was sent: the delivery is unchanged, and due at once or when the listener is resumed.
	if e.o.park || e.o.again {
		due := time.Time{}
		if active || e.l == nil {
			due = e.o.at
		}
		e.sides = append(e.sides, laneSide(&e.d, due).On(e.rev))
		return nil
	}

	// The listener was removed during the try, so there will be no other try.
	if e.l == nil && !e.o.delivered {
		e.o.over, e.o.try.Error = true, noListener
	}

	// The delivery, and its log.
	d := &e.d
	d.LastStatus, d.LastError = e.o.try.Status, e.o.try.Error
	if d.Attempts++; e.o.at.IsZero() {
		e.o.at = e.s.o.Clock.Now()
	}
	pauses := pausesBetweenTries()
	switch {
	case e.o.delivered:
		d.Status = Delivered
	case e.o.gone || e.o.over || d.Attempts > len(pauses):
		d.Status = Failed
	default:
		d.Next = e.o.at.Add(pauses[d.Attempts-1])
	}
	if err := e.log(ctx); err != nil {
		return err
	}
	if e.o.gone {
		e.disable()
		active = false
	}
	if d.Status == Pending {
		due := d.Next
		if !active {
			due = time.Time{}
		}
		e.sides = append(e.sides, put(deliverySpace, d.ID, d, time.Time{}), laneSide(d, due).On(e.rev))
		return nil
	}
	return e.end(ctx, active)
}

// log adds the try to the log.
func (e *ending) log(ctx context.Context) error {
	key := e.d.logKey()
	side := put(logSpace, key, nil, expires(e.d.Status, e.o.at))
	var tries []try
	if e.d.Attempts > 1 || e.d.Track == e.d.ID { // otherwise the log is new
		known, rev, err := read[[]try](ctx, e.s.o.Store, e.j.at.tenant, logSpace, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		tries, side = known, side.On(rev) // the condition keeps erased answers from being written back
	}
	e.o.try.At = e.o.at
	tries = append(tries, e.o.try)
	if n := len(tries) - maxLog; n > 0 {
		tries = slices.Delete(tries, 0, n)
	}
	side.Value = put(logSpace, key, tries, time.Time{}).Value
	e.sides = append(e.sides, side)
	return nil
}

// disable stops deliveries to the listener until it is resumed, and notifies operators.
func (e *ending) disable() {
	if e.l == nil {
		return
	}
	st := e.l.state
	st.Status = Disabled
	e.sides = append(e.sides, put(stateSpace, e.l.name, st, time.Time{}).On(st.rev))
	told := put(noticeSpace, e.l.name, notice{Delivery: e.d.ID}, time.Time{})
	told.Due = e.o.at
	e.sides = append(e.sides, told)
}

// end ends a delivery: it is listed as delivered or failed, and the next delivery moves into its lane.
func (e *ending) end(ctx context.Context, active bool) error {
	d := &e.d
	d.Next = time.Time{}
	until := expires(d.Status, e.o.at)
	e.sides = append(
		e.sides, put(deliverySpace, d.ID, d, until),
		store.Side{Op: store.Put, Space: listSpace, Key: d.listKey(d.Status), Expires: until},
	)
	switch {
	case d.Status == Failed:
		e.sides = append(e.sides, store.Side{
			Op: store.Put, Space: failedSpace, Key: d.failedKey(), Value: []byte(d.ID), Expires: until,
		})
	case d.Again:
		e.sides = append(e.sides, remove(failedSpace, d.failedKey()))
	}

	return e.follow(ctx, active)
}

// pausesBetweenTries returns the pauses after failed tries; the last one is followed by a last try.
func pausesBetweenTries() []time.Duration {
	return []time.Duration{5 * time.Second, 25 * time.Second, 125 * time.Second}
}
