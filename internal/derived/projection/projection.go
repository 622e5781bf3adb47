// Package projection answers reads of projections: views over several aggregates that a spec declares, or that were
// posted to an environment. Everything that a read returns is as of one position of the feed, and that position is not
// before any write that was acknowledged when the request came.
//
// Reading: now takes the position (projection.go), evaluate.go loads sources stage by stage and computes the result,
// kept.go caches results while none of their sources has changed (read.go).
//
// The decisions behind it are in docs/internals/derived.md.
package projection

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/fold"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/place"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Storage is what a service needs of a store.
type Storage interface {
	store.Sides
	store.Moments
	store.Feed
	store.Aggregates
}

// Options configures a service. All fields are required unless they say otherwise.
type Options struct {
	Store  Storage
	Engine *engine.Engine
	// Indexes answers queries and lists.
	Indexes *index.Service
	// Places finds rows by their places.
	Places *place.Service
	Clock  clock.Clock
	Logger *slog.Logger
	// CacheBytes bounds the memory for cached values; 0 means DefaultCacheBytes.
	CacheBytes int64
	// Hold calls f while no spec is deployed to an environment, with its deployed spec and a fence that holds while
	// that stays deployed. It is a method of the deploying service, which is made after this one.
	Hold func(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error
	// SpecPrepared, if not nil, reports whether a spec of an environment waits for its indexes to be built.
	SpecPrepared func(ctx context.Context, t j17.Tenant) (bool, error)
	// Worker runs background work.
	Worker *worker.Kit
	// Changed, if not nil, is called for environments whose projections or handlers have changed, so that code that
	// shows their values can read them again.
	Changed func(j17.Tenant)
}

// DefaultCacheBytes is the memory for cached values unless the options set it.
const DefaultCacheBytes = 64 << 20

// Service answers reads of projections. It is safe for concurrent use.
type Service struct {
	store        Storage
	engine       *engine.Engine
	indexes      *index.Service
	places       *place.Service
	clock        clock.Clock
	logger       *slog.Logger
	hold         func(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error
	changed      func(j17.Tenant)
	specPrepared func(ctx context.Context, t j17.Tenant) (bool, error)

	// waiting is the queue of prepared definitions, adopting serializes changes to the indexes of an environment, specs
	// has the prepared specs.
	waiting  *worker.Queue
	adopting turns
	specs    nextSpecs
	// settle is how long a change waits for indexes: settleTime.
	settle time.Duration

	// readings creates readings, lookups finds rows by indexes, values computes and caches values.
	readings *readings
	lookups  *indexReader
	values   *evaluator
	// verifying has the comparisons with events under way.
	verifying *build.Comparisons
}

// New returns a service.
func New(o Options) *Service {
	if o.SpecPrepared == nil {
		o.SpecPrepared = func(context.Context, j17.Tenant) (bool, error) { return false, nil }
	}
	s := &Service{
		store: o.Store, engine: o.Engine, indexes: o.Indexes, places: o.Places, clock: o.Clock, logger: o.Logger,
		hold: o.Hold, changed: o.Changed, specPrepared: o.SpecPrepared, settle: settleTime,
		verifying: build.NewComparisons(mostVerified, sharedVerified),
	}
	s.readings = &readings{store: o.Store, engine: o.Engine}
	s.lookups = &indexReader{indexes: o.Indexes, readings: s.readings, adopting: &s.adopting}
	s.values = &evaluator{
		engine: o.Engine, indexes: o.Indexes, lookups: s.lookups, clock: o.Clock,
		kept: newKeptValues(cmp.Or(o.CacheBytes, DefaultCacheBytes)),
	}
	s.values.bound(maxStates)
	if o.Worker != nil {
		s.waiting = o.Worker.Queue(worker.Work{
			Name: "prepared_projections", Store: o.Store, Space: preparedSpace, Do: s.carryOn, Lease: preparedLease,
			AtOnce: preparedAtOnce,
		})
	}
	return s
}

// bound sets the size of the states of one evaluation; all evaluations together may have twice as much, and those of
// one environment three quarters of that.
func (s *evaluator) bound(states int) {
	s.maxStates, s.memory = states, work.NewPool(2*int64(states), int64(states)*3/2)
}

// Run puts prepared definitions into force, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	return s.waiting.Run(ctx)
}

// Settle does all due work on prepared definitions.
func (s *Service) Settle(ctx context.Context) error { return s.waiting.Settle(ctx) }

// NextDue returns when the next prepared definition is checked.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.waiting.NextDue(ctx) }

// readings creates the readings of reads.
type readings struct {
	store  Storage
	engine *engine.Engine
	// sets caches the projections in force of each environment.
	sets sets
}

// reading is what a read sees: aggregates as of one position, and the projections in force.
type reading struct {
	t  j17.Tenant
	m  *fold.Moment
	in *inForce
}

// postedItem names the item that changes with every posted definition.
func postedItem() store.ItemName { return store.ItemName{Space: headSpace, Key: headKey} }

// now returns a reading at the present position, which includes everything acknowledged before.
func (s *readings) now(ctx context.Context, t j17.Tenant) (*reading, error) {
	found, err := s.store.ReadTogether(ctx, t, store.Wanted{Items: []store.ItemName{postedItem()}})
	if err != nil {
		return nil, store.UserError(err)
	}
	if r, err := s.known(t, found.Position, found.Items[0].Rev); r != nil || err != nil {
		return r, err
	}

	// The projections in force are not known yet, or others were posted since.
	sm, err := s.store.Moment(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	defer sm.Close()
	return s.of(t, sm)
}

// known returns the reading of a position at which the posted definitions have a revision, nil if the projections in
// force there are not known.
func (s *readings) known(t j17.Tenant, at j17.StreamID, posted uint64) (*reading, error) {
	m, err := s.engine.Moment(t, at)
	if err != nil {
		return nil, err
	}
	if in := s.sets.of(t); in != nil && in.compiled == m.Decider().Compiled && in.posted.rev == posted {
		return &reading{t: t, m: m, in: in}, nil
	}
	return nil, nil //nolint:nilnil // stated
}

// of returns the reading of a moment of the store.
func (s *readings) of(t j17.Tenant, sm store.Moment) (*reading, error) {
	m, err := s.engine.Moment(t, sm.Position())
	if err != nil {
		return nil, err
	}
	in, err := s.inForce(t, m.Decider().Compiled, sm)
	if err != nil {
		return nil, store.UserError(err)
	}
	return &reading{t: t, m: m, in: in}, nil
}

// as returns a reading of another moment, with the same projections.
func (r *reading) as(m *fold.Moment) *reading { return &reading{t: r.t, m: m, in: r.in} }

// definition returns a projection in force; CodeUnknownProjection if there is none of that name.
func (r *reading) definition(name string) (*definition, error) {
	if d := r.in.all[name]; d != nil {
		return d, nil
	}
	return nil, j17.Errorf(j17.CodeUnknownProjection, "There is no projection '%s' in this environment.%s", j17.Printable(name), r.in.nearest(name))
}
