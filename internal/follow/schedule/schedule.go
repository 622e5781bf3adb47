// Package schedule keeps the events that are to come later. What an event schedules is written in the commit of that
// event, what cancels it in the commit of the event that does (effects.go, cancel.go); what is due is written with the
// end of its schedule in one commit (fire.go). So nothing of it is lost, and nothing happens twice, wherever a process
// ends.
//
// Of each scheduled event there is a row, and an item in the space of its status, which says what state it is in: the
// writer that removes that item, on the condition that it still exists, has decided the fate of the event. The items
// have the order in which the events were scheduled, which is that of the feed.
package schedule

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/engine"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Limits of what may be pending.
const (
	// MaxPerAggregate is how many events of one aggregate's scheduling may be pending.
	MaxPerAggregate = 100
	// DefaultMaxPerInstance is how many may be pending in an instance where the options do not say.
	DefaultMaxPerInstance = 100_000
)

const (
	// attempts is how often an event is tried in all, attemptPause how long after a failure it is tried again.
	attempts     = 10
	attemptPause = time.Minute
	// keptFor is how long events are kept that are over.
	keptFor = 30 * 24 * time.Hour
	// batch is how many due events one try writes, lease how long it may take.
	batch = 256
	lease = 30 * time.Second
	// atOnce is of how many environments due events are written at once.
	atOnce = 4
)

// Status is what has become of a scheduled event.
type Status string

// The statuses. Dead letters have failed for good and wait for somebody to look into it.
const (
	Pending    Status = "pending"
	Fired      Status = "fired"
	Canceled   Status = "canceled"
	Refused    Status = "refused"
	DeadLetter Status = "dead_letter"
)

// Statuses lists all of them.
func Statuses() []Status { return []Status{Pending, Fired, Canceled, Refused, DeadLetter} }

// space is where the items of the events with a status are.
func (s Status) space() store.Space { return store.Space("scheduled." + string(s)) }

// The other spaces.
const (
	// rows has what is known of each event, under the key of the aggregate that scheduled it and the event's id.
	rows store.Space = "scheduled"
	// ids leads from the id of an event to its row.
	ids store.Space = "scheduled.id"
	// counts has how many are pending, of each aggregate that scheduled some, and under total in all.
	counts store.Space = "scheduled.count"
	// waiting has what an event cancels: under the event's name, an item for each, and one that changes whenever there
	// is another.
	waiting store.Space = "scheduled.waiting"
	// marks has the names of events that have cancelled more than their own commits took away, with the position of
	// each.
	marks store.Space = "scheduled.marks"
	// enders has the ids of events that were cancelled behind the positions of those that have cancelled them, ended
	// these positions under the ids.
	enders store.Space = "scheduled.enders"
	ended  store.Space = "scheduled.ended"
	// watched has the types of events that have ever been waited for.
	watched store.Space = "scheduled.watched"
)

// total is the key of the number of all pending events.
const total = "all"

// Options configures a service.
type Options struct {
	Store  store.Sides
	Clock  clock.Clock
	Logger *slog.Logger
	Worker *worker.Kit
	// Execute carries out commands of one tenant in their order: that of an engine, which is made after the service.
	Execute func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome
	// Restoring, if not nil, reports whether the spec of an environment is still to be restored: that it has none yet
	// says nothing.
	Restoring func(j17.Tenant) bool
	// MaxPerInstance is how many events may be pending in an instance; 0 means DefaultMaxPerInstance. It holds exactly
	// within each environment, and over all of them by what was stored when something was decided.
	MaxPerInstance int
}

// Service schedules events. It is safe for concurrent use.
type Service struct {
	Options
	mint *ident.Minter
	due  *worker.Queue
	// sweeps is what marks have cancelled, over are those that are over.
	sweeps *worker.Queue
	over   []*worker.Queue
	counts counters

	mu sync.Mutex
	// known has what cancels events in each tenant, under the spec that is deployed to it.
	known map[j17.Tenant]*watch
	// contended counts how often somebody was in the way of an event that cancels others.
	contended map[contended]int
}

// Stats counts what has become of scheduled events since the service was made.
type Stats struct {
	Created, Fired, Canceled, Refused, DeadLettered uint64
}

type counters struct {
	created, fired, canceled, refused, deadLettered atomic.Uint64
}

// New returns a service. Run must be called for events to come.
func New(o Options) *Service {
	if o.MaxPerInstance == 0 {
		o.MaxPerInstance = DefaultMaxPerInstance
	}
	s := &Service{
		Options: o, mint: ident.NewMinter(o.Clock.Now), known: map[j17.Tenant]*watch{}, contended: map[contended]int{},
	}
	s.due = o.Worker.Queue(worker.Work{
		Name: "scheduled_events", Store: o.Store, Space: Pending.space(), DoAll: s.fire, Batch: batch, Lease: lease,
		AtOnce: atOnce,
		Retry:  worker.Backoff{Longest: attemptPause},
	})
	s.sweeps = o.Worker.Queue(worker.Work{
		Name: "scheduled_cancel", Store: o.Store, Space: marks, Do: s.sweep, Lease: lease, AtOnce: atOnce, Each: atOnce,
	})
	for _, status := range []Status{Fired, Canceled, Refused} {
		s.over = append(s.over, o.Worker.Queue(worker.Work{
			Name: "scheduled_cleanup_" + string(status), Store: o.Store, Space: status.space(), DoAll: s.forget,
			Batch: batch, Lease: lease, Freeing: true,
		}))
	}
	return s
}

// Queues are those of the work that the service waits with until it is due.
func (s *Service) Queues() worker.Queues {
	return append(worker.Queues{s.due, s.sweeps}, s.over...)
}

// Run writes events as they become due and forgets those that are long over, until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.Queues().Run(ctx) }

// Settle does all of that which is due now.
func (s *Service) Settle(ctx context.Context) error { return s.Queues().Settle(ctx) }

// NextDue returns when something of it is due next, the zero time for nothing.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.Queues().NextDue(ctx) }

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{
		s.counts.created.Load(), s.counts.fired.Load(), s.counts.canceled.Load(), s.counts.refused.Load(),
		s.counts.deadLettered.Load(),
	}
}

// tell logs what has become of events, all of it at once.
func (s *Service) tell(ctx context.Context, t j17.Tenant, became Status, ids []string) {
	if len(ids) == 0 {
		return
	}
	s.Logger.LogAttrs(ctx, slog.LevelDebug, "scheduled events", slog.String("status", string(became)),
		slog.String("tenant", string(t)),
		slog.Int("count", len(ids)), slog.String("first", ids[0]))
}
