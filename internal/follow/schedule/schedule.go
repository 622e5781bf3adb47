// Package schedule keeps events that are to be written later. What an event schedules is written in the commit of that
// event, what cancels it in the commit of the event that does (effects.go, cancel.go); a due event is written with the
// end of its schedule in one commit (fire.go). So nothing is lost, and nothing happens twice, wherever a process ends.
//
// Each scheduled event has a row, and an item in the space of its status, which is its state: the writer that removes
// that item, on the condition that it still exists, has decided the fate of the event. The items have the order in
// which the events were scheduled, which is that of the feed.
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

// Limits on pending events.
const (
	// MaxPerAggregate is how many events scheduled by one aggregate may be pending.
	MaxPerAggregate = 100
	// DefaultMaxPerInstance is how many events may be pending in an instance unless the options set it.
	DefaultMaxPerInstance = 100_000
)

const (
	// attempts is the total number of tries of an event, attemptPause the pause after a failed one.
	attempts     = 10
	attemptPause = time.Minute
	// keptFor is how long ended events are kept.
	keptFor = 30 * 24 * time.Hour
	// batch is how many due events one try writes, lease how long it may take.
	batch = 256
	lease = 30 * time.Second
	// atOnce is the number of environments whose due events are written at a time.
	atOnce = 4
)

// Status is the status of a scheduled event.
type Status string

// The statuses. Dead letters have failed for good and wait for an operator.
const (
	Pending    Status = "pending"
	Fired      Status = "fired"
	Canceled   Status = "canceled"
	Refused    Status = "refused"
	DeadLetter Status = "dead_letter"
)

// Statuses lists all of them.
func Statuses() []Status { return []Status{Pending, Fired, Canceled, Refused, DeadLetter} }

// space returns the space of the items of a status.
func (s Status) space() store.Space { return store.Space("scheduled." + string(s)) }

// The other spaces.
const (
	// rows has the row of each event, under the key of the aggregate that scheduled it and the event's ID.
	rows store.Space = "scheduled"
	// ids has the place of the row of each event under the event's ID.
	ids store.Space = "scheduled.id"
	// counts has the number of pending events of each aggregate that scheduled some, and of all under total.
	counts store.Space = "scheduled.count"
	// waiting has the events that an event cancels: under the event's name, an item for each, and one that changes
	// whenever another is added.
	waiting store.Space = "scheduled.waiting"
	// marks has, under their names, the positions of events that have canceled more than their own commits removed.
	marks store.Space = "scheduled.marks"
	// enders has the IDs of canceled events under the positions of the events that have canceled them; ended has these
	// positions under the IDs.
	enders store.Space = "scheduled.enders"
	ended  store.Space = "scheduled.ended"
	// watched has the event types that have ever been awaited.
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
	// Execute carries out commands of one tenant in order: the Execute of an engine, which is made after the service.
	Execute func(ctx context.Context, t j17.Tenant, commands []*engine.Command) []engine.Outcome
	// Restoring, if not nil, reports whether the spec of an environment is still being restored: the lack of a spec
	// means nothing then.
	Restoring func(j17.Tenant) bool
	// MaxPerInstance is how many events may be pending in an instance; 0 means DefaultMaxPerInstance. The bound is
	// exact within each environment; the other environments count as they were at the time of the decision.
	MaxPerInstance int
}

// Service schedules events. It is safe for concurrent use.
type Service struct {
	Options
	mint *ident.Minter
	due  *worker.Queue
	// sweeps has the marks to be swept, over the ended events to be removed.
	sweeps *worker.Queue
	over   []*worker.Queue
	counts counters

	mu sync.Mutex
	// known has the watch of each tenant, under its deployed spec.
	known map[j17.Tenant]*watch
	// contended counts the conflicts of events that cancel others.
	contended map[contended]int
}

// Stats counts the ends of scheduled events since the service was made.
type Stats struct {
	Created, Fired, Canceled, Refused, DeadLettered uint64
}

type counters struct {
	created, fired, canceled, refused, deadLettered atomic.Uint64
}

// New returns a service. Run must be called for events to be written.
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

// Queues returns the queues of the service's due work.
func (s *Service) Queues() worker.Queues {
	return append(worker.Queues{s.due, s.sweeps}, s.over...)
}

// Run writes events as they become due and removes those that ended long ago, until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.Queues().Run(ctx) }

// Settle does all work that is due now.
func (s *Service) Settle(ctx context.Context) error { return s.Queues().Settle(ctx) }

// NextDue returns when the next work is due, the zero time for none.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.Queues().NextDue(ctx) }

// Stats returns the counters.
func (s *Service) Stats() Stats {
	return Stats{
		s.counts.created.Load(), s.counts.fired.Load(), s.counts.canceled.Load(), s.counts.refused.Load(),
		s.counts.deadLettered.Load(),
	}
}

// tell logs the new status of events, all of them at once.
func (s *Service) tell(ctx context.Context, t j17.Tenant, became Status, ids []string) {
	if len(ids) == 0 {
		return
	}
	s.Logger.LogAttrs(ctx, slog.LevelDebug, "scheduled events", slog.String("status", string(became)),
		slog.String("tenant", string(t)),
		slog.Int("count", len(ids)), slog.String("first", ids[0]))
}
