// Package listener delivers events to the endpoints that specs name, by signed requests. Nothing is lost and nothing is
// skipped: a subscription of internal/follow/feed hands over the events of an environment, and the commit that moves
// its checkpoint has a delivery for each event that can be sent now, or a note that it waits for another delivery of
// its aggregate. A delivery is attempted, and its outcome is committed with the consequences. No process owns a
// listener: every commit depends on what it was decided with, and a delivery whose process has ended comes up again as
// a due item.
//
// An event takes this way: Service.hand makes deliveries (deliver.go), pool.submit begins their tries (pool.go),
// Service.attempt sends and settles them (attempt.go), and Service.retry those that come up again.
//
// The decisions behind it are in docs/internals/follow.md.
package listener

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Storage is what listeners need of a store.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
}

// Options configures a Service. All fields are required.
type Options struct {
	Store Storage
	// Shown shows events as they are delivered.
	Shown  *upcast.Reader
	Feed   *feed.Subscriptions
	Worker *worker.Kit
	// Clock decides when deliveries are due. Signatures and measured times use the machine's clock, whatever Clock
	// shows.
	Clock  clock.Clock
	Logger *slog.Logger
	// Send sends a message once: the Send of an outbound.Sender, with its guard and limits.
	Send func(context.Context, outbound.Message) (outbound.Answer, error)
	// Spec returns the spec deployed to a tenant, nil for none.
	Spec func(j17.Tenant) *spec.Compiled
	// Name returns the name of a tenant's instance, and its environment.
	Name func(j17.Tenant) (instance string, env j17.Environment)
	// Disabled is called for listeners whose endpoints are gone, at least once each.
	Disabled func(ctx context.Context, t j17.Tenant, listener, delivery string) error
}

// Service delivers events to listeners. It is safe for concurrent use, and so are several of them over one store.
type Service struct {
	o    Options
	mint *ident.Minter
	pool *pool
	// turns has the processor turns for conditions.
	turns *work.Pool
	// states and log access the stored state of listeners and deliveries; source finds what a replay delivers again.
	states *stateStore
	log    *deliveryLog
	source *replaySource
	// lagWork bounds the work of a request that counts undelivered events, listWork that of a page of deliveries.
	lagWork, listWork int64
	retries           *worker.Queue
	replays           *worker.Queue
	notices           *worker.Queue
	counts            counters

	// sending is the context of all tries; cut ends it.
	sending context.Context //nolint:containedctx // it lives as long as the service
	cut     context.CancelFunc
}

// Counts has the counters of a service since it was made.
type Counts struct {
	// Delivered, Retried and Failed count the tries by outcome: delivered, to be tried again, given up.
	Delivered, Retried, Failed uint64
	// Disabled counts the listeners whose endpoints have answered that they are gone.
	Disabled uint64
	// InFlight is the number of tries under way.
	InFlight int
}

type counters struct {
	delivered, retried, failed, disabled atomic.Uint64
}

// kind names the subscriptions of listeners.
const kind = "listener"

const (
	// lease is how long a delivery stays with the process that has made it ready: enough to wait for its turn and be
	// tried.
	lease = time.Minute
	// pausedFor is the pause of a subscription whose listener is not active, crowdedFor of one without room, unless it
	// is woken.
	pausedFor  = time.Hour
	crowdedFor = 5 * time.Second
	// drainTime is how long tries may continue when the service ends.
	drainTime = 5 * time.Second
)

// New returns a service and registers its kind of subscriptions.
func New(ctx context.Context, o Options) *Service {
	turns := int64(max(runtime.NumCPU(), 2))
	s := &Service{
		o: o, mint: ident.NewMinter(o.Clock.Now), pool: newPool(), turns: work.NewPool(turns, turns/2),
		lagWork: lagWork, listWork: listWork,
	}
	s.states, s.log, s.source = &stateStore{&s.o}, &deliveryLog{&s.o}, &replaySource{o: &s.o, countWork: countWork}
	s.sending, s.cut = context.WithCancel(context.WithoutCancel(ctx))
	s.retries = o.Worker.Queue(worker.Work{
		Name: "listener_retries", Store: o.Store, Space: laneSpace, Do: s.retry, Lease: lease, AtOnce: 256, Each: 64,
	})
	s.replays = o.Worker.Queue(worker.Work{
		Name: "listener_replays", Store: o.Store, Space: replaySpace, Do: s.replayPage, Lease: lease, AtOnce: 16,
		Each: 4,
	})
	s.notices = o.Worker.Queue(worker.Work{
		Name: "listener_notices", Store: o.Store, Space: noticeSpace, Do: s.tell, Lease: lease, AtOnce: 4, Each: 1,
	})
	o.Feed.Handle(feed.Kind{Name: kind, Filter: s.filter, Do: s.hand})
	return s
}

// Counts returns the counters.
func (s *Service) Counts() Counts {
	c := &s.counts
	return Counts{c.delivered.Load(), c.retried.Load(), c.failed.Load(), c.disabled.Load(), s.pool.inFlight()}
}

// Run processes what is due until the context ends, and then waits for the tries under way; tries that exceed drainTime
// are cut off, and repeated by the next process.
func (s *Service) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.queues().Run(ctx) }()
	<-ctx.Done()

	// Drain.
	over, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		_ = clock.System{}.Wait(over, clock.System{}.Now().Add(drainTime)) // in either case the drain is over
		s.cut()
	}()
	left := s.pool.close(over)
	stop()
	s.cut()

	// Deliveries that were cut off or have not begun are given back: in an ended context, a try does not count.
	s.pool.wait(context.WithoutCancel(ctx))
	var giving sync.WaitGroup
	for _, job := range left {
		giving.Go(job)
	}
	giving.Wait()
	return <-ended
}

func (s *Service) queues() worker.Queues { return worker.Queues{s.retries, s.replays, s.notices} }

// Settle processes all that is due and returns when nothing is due or under way.
func (s *Service) Settle(ctx context.Context) error {
	for {
		before := s.pool.wait(ctx)
		if err := s.queues().Settle(ctx); err != nil {
			return err
		}
		if err := s.o.Feed.Settle(ctx); err != nil {
			return err
		}
		if s.pool.wait(ctx) == before || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// NextDue returns when the next try, or the next page of a replay, is due; the zero time for never.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.queues().NextDue(ctx) }

// errNoSpec postpones decisions while an environment has no spec, because it is being restored, or this version cannot
// read the spec. Its listeners are not removed, so their events wait.
var errNoSpec = errors.New("the environment has no spec yet; it is tried again")

// restored reports whether an environment has a spec.
func (s *Service) restored(t j17.Tenant) bool { return s.o.Spec(t) != nil }

// definition returns the present definition of a listener; nil if the environment has no such listener.
func (s *Service) definition(t j17.Tenant, name string) *spec.Listener {
	compiled := s.o.Spec(t)
	if compiled == nil {
		return nil
	}
	l := compiled.Listeners[name]
	if _, env := s.o.Name(t); l == nil || l.URLs[env] == "" {
		return nil
	}
	return l
}

// listener is a listener of an environment at a moment.
type listener struct {
	at
	definition *spec.Listener
	state      state
	env        j17.Environment
	source     string
}

// find returns a listener, nil if the spec has none of that name for the environment, or it has no state yet.
func (s *Service) find(ctx context.Context, t j17.Tenant, name string) (*listener, error) {
	l := s.definition(t, name)
	if l == nil {
		return nil, nil
	}
	st, rev, err := s.states.stateOf(ctx, t, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err == nil && st.Secret == "" {
		if err = s.states.resecret(ctx, t, name); err == nil {
			st, rev, err = s.states.stateOf(ctx, t, name)
		}
	}
	st.rev = rev
	instance, env := s.o.Name(t)
	return &listener{at: at{t, name}, definition: l, state: st, env: env, source: Source(instance, env)}, err
}
