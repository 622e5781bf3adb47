// Package erasure removes personal data permanently; no other package does. It finds the streams that a tombstone
// concerns, replaces their events by markers, removes data derived from them, removes the old bytes from disk, and
// certifies what was done. Each step records its progress in its own commit, so that an interrupted execution continues
// where it was.
//
// The decisions behind it are in docs/internals/custody.md.
package erasure

import (
	"context"
	"log/slog"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Storage is what the service needs of a store.
type Storage interface {
	store.Aggregates
	store.Feed
	store.Sides
	store.Moments
	store.Erasure
	store.PurgeRequests
	Tenants(ctx context.Context) ([]j17.Tenant, error)
}

// Act is an action on a tombstone, for the audit log.
type Act struct {
	// Action is one of ActionCreate, ActionCancel and ActionExecute.
	Action string
	// Tombstone is its handle, Key that of its aggregate.
	Tombstone, Key string
	// Forced reports that it is executed before its time.
	Forced bool
	// By is the actor, encoded by Options.By; "" for the actor of the context.
	By string
}

// Options configures a service.
type Options struct {
	Store  Storage
	Clock  clock.Clock
	Worker *worker.Kit
	Logger *slog.Logger
	// Resolve returns the key of the aggregate with an id or a name.
	Resolve func(ctx context.Context, t j17.Tenant, aggregateType, id string) (j17.Key, error)
	// Spec returns the spec that is deployed to an environment, nil if there is none; Restoring reports whether it
	// still has to be restored.
	Spec      func(j17.Tenant) *spec.Compiled
	Restoring func(j17.Tenant) bool
	// Root keeps the current head of the log of an environment, and returns its root and size.
	Root func(ctx context.Context, t j17.Tenant) (root [32]byte, size uint64, err error)
	// Sign signs a text with the keys of the log.
	Sign func(ctx context.Context, t j17.Tenant, text string) (note string, err error)
	// By returns the actor of a context, and Record adds an act to the audit log.
	By     func(ctx context.Context) string
	Record func(ctx context.Context, t j17.Tenant, a *Act) error
}

// Service erases. It is safe for concurrent use.
type Service struct {
	o     Options
	parts []part.Part
	mint  *ident.Minter
	queue *worker.Queue
	// part is how many events are rewritten in one commit.
	part uint64
	// kept is how many streams are rewritten before all parts that keep data of them are notified.
	kept uint64
	// purged is the approximate number of streams whose old bytes are removed at a time.
	purged int
}

const tombstonePrefix = ident.TombstonePrefix

// New returns a service. Tombstones are executed only by Run.
func New(o Options) *Service {
	s := &Service{
		o: o, mint: ident.NewMinter(o.Clock.Now), part: maxRewritten, kept: releasedAtOnce, purged: purgedAtOnce,
	}
	s.queue = o.Worker.Queue(worker.Work{
		Name: "erasures", Store: o.Store, Space: executions, DoAll: s.executeAll, Batch: together, Lease: lease,
		AtOnce:  atOnce,
		Freeing: true, // work that waits for space continues when there is some
	})
	return s
}

// Use sets the parts of the program, once, before Run. They are called in this order.
func (s *Service) Use(parts ...part.Part) { s.parts = parts }

// Run executes tombstones until the context ends.
func (s *Service) Run(ctx context.Context) error { return s.queue.Run(ctx) }

// NextDue returns when the next tombstone is due for execution, the zero time for never.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.queue.NextDue(ctx) }

// Settle executes all tombstones that are due now.
func (s *Service) Settle(ctx context.Context) error { return s.queue.Settle(ctx) }

// record adds an act to the audit log. The act stays done if that fails.
func (s *Service) record(ctx context.Context, t j17.Tenant, a *Act) {
	if err := s.o.Record(context.WithoutCancel(ctx), t, a); err != nil {
		s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "what was done with a tombstone could not be added to the audit log",
			slog.String("action", a.Action), slog.String("tombstone", a.Tombstone), slog.Any("error", err))
	}
}
