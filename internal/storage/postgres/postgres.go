// Package postgres is the event store on a database that speaks the PostgreSQL protocol. All data is in one schema.
//
// Lanes do all writing: a lane takes the calls of tenants that no other lane works on, reads what they depend on in one
// round trip, has package unit decide them, and commits the result by one statement. The statement begins with a
// compare-and-set on the row of each tenant, so a decision takes effect only if nothing was written to the tenant since
// its data was read. Positions, bytes, hashes and revisions are computed here; the database only stores them.
//
// docs/internals/storage.md has the reasons for this design.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/base/panics"
	"j17/internal/storage/leaves"
	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// Options specify where and how a store is opened.
type Options struct {
	// Address, Password and Plain are those of ParseAddress.
	Address, Password string
	Plain             bool
	// Schema is the schema that has all tables; "" means DefaultSchema. It is created if it does not exist.
	Schema string
	// Clock is the source of time for positions and expiry; nil means the machine's clock.
	Clock clock.Clock
	// Logger gets messages for the operator; nil means that nothing is logged.
	Logger *slog.Logger
	// Connections is how many connections the store uses; 0 means DefaultConnections, LeastConnections is the least.
	Connections int
	// Cells is how many partitions the large tables get if the store creates them, of which a rewrite copies one at a
	// time; 0 means DefaultCells, MostCells is the most.
	Cells int
	// Sealed are the spaces with values that must not be readable in the database or a copy of it; the function selects
	// the values, nil selects all. They are sealed with a key that the schema stores sealed with Key. If that was one
	// of Keys until now, it is resealed with Key. Without Key nothing is sealed.
	Sealed map[store.Space]func(value []byte) bool
	Key    *keyfile.File
	Keys   []*keyfile.File
	// Shared reports whether other stores write to the same schema at the same time, so that this one has to ask for
	// their changes.
	Shared bool
	// Node, if not nil, is the active node that this store belongs to: the store writes only while no other node is
	// active, and answers only while none can be.
	Node *Node
	// AllowAsync accepts a server whose settings can lose acknowledged writes, AllowSingle one without standbys.
	AllowAsync, AllowSingle bool
	// Reads is what an answer relies on; "" means ReadLease.
	Reads Reads
	// Restoring allows a schema to be opened between BeginRestoration and FinishRestoration.
	Restoring bool
	// EraseEvery is the least time between two rewrites of a cell. Erasures that come meanwhile share the next one.
	EraseEvery time.Duration
}

const (
	// DefaultSchema is the schema of a store if Options do not name one.
	DefaultSchema = "j17"
	// DefaultConnections is the number of connections of a store if Options do not set it.
	DefaultConnections = 32
	// LeastConnections is the least number of connections of a store.
	LeastConnections = 12
	// DefaultCells is the number of cells of a new schema if Options do not set it.
	DefaultCells = 8
	// MostCells is the greatest number of cells of a new schema.
	MostCells = 16

	// Of the connections, laneCount are for lanes, lookupCount for look-ups, guardCount for checks of the server's
	// settings, and beatCount for the node and the search for the primary. Readers share the others, of which moments
	// and archives hold at most mostMoments.
	laneCount   = 2
	guardCount  = 2
	lookupCount = 2
	beatCount   = 1
	mostMoments = 16
)

// readers returns how many connections readers share.
func (o *Options) readers() int {
	return o.Connections - laneCount - lookupCount - guardCount - beatCount
}

// Store is the event store on PostgreSQL. It implements store.Engine. Each of its parts implements some of the roles.
type Store struct {
	*core
	*appender
	*lookups
	*streams
	*feeds
	*sides
	*dueItems
	*moments
	*directory
	*bulk
	*eraser

	sweeper *sweeper
}

// core is shared by all parts of the store.
type core struct {
	o       Options
	clock   clock.Clock
	logger  *slog.Logger
	address *Address
	// hosts has a configuration for each server of the address.
	hosts   []*pgx.ConnConfig
	primary primary
	// pool has the connections of readers, lookupPool those of look-ups.
	pool, lookupPool *pgxpool.Pool

	queue   *queue.Writes[*batch]
	counts  counts
	spaces  spaces
	texts   sync.Map
	sealing record.Sealing
	cache   cache
	leaves  *leaves.Latest
	full    fullness
	guard   *guard
	// confirm, if not nil, returns when a commit that began after the call was acknowledged by the primary.
	confirm func(ctx context.Context) error
	// key seals what belongs to the schema; nil seals nothing.
	key *keyfile.File
	// start is the number of this start among all starts of stores on the schema.
	start int64
	// rewrites counts how often events were rewritten. It grows when the new content is committed, before Rewrite
	// returns.
	rewrites atomic.Uint64
	// capture, if not nil, records what lanes write.
	capture atomic.Pointer[capture]
	// working counts the goroutines of the store. closing ends work that is not completed when the store is closed,
	// ending all work that still waits after that.
	working sync.WaitGroup
	life    context.Context //nolint:containedctx // never ends, and has the values of the one that Open was given
	closing context.Context //nolint:containedctx // ends with the call of Close
	ending  context.Context //nolint:containedctx // the lifetime of the store
	shut    context.CancelFunc
	end     context.CancelFunc
	// sweepable has an element if there may be rows to delete.
	sweepable chan struct{}

	closed atomic.Bool

	// beside finds out what other stores change, if Options.Shared is set.
	beside beside

	mu      sync.Mutex
	tenants map[j17.Tenant]*tenant
	changes changes
	// followed has the changes of the tenants that loads copy, by their numbers, and archives has the open archives.
	followed map[int32]*followed
	archives map[*archive]bool
	// loads has the numbers of the loads that have not ended; beginning is how many more are about to have one.
	loads     map[int32]bool
	beginning int
}

var _ store.Engine = (*Store)(nil)

// Open opens a store, and creates its tables if they do not exist. It returns an error for a server that may lose what
// it acknowledges, and for a schema that belongs to something else.
func Open(ctx context.Context, o Options) (*Store, error) {
	c, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	s := newStore(c)
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare connects to the database for the first time, and creates the tables if they do not exist. It returns an error
// if the server or the schema cannot be used.
func prepare(ctx context.Context, o Options) (*core, error) {
	c, err := newCore(ctx, o)
	if err != nil {
		return nil, err
	}
	conn, err := c.dialFirst(ctx)
	if err == nil {
		err = errors.Join(c.take(ctx, conn), conn.Close(c.life))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// take checks the server, migrates the schema, and opens its key.
func (c *core) take(ctx context.Context, conn *pgx.Conn) (err error) {
	if err := c.guard.begin(ctx, conn); err != nil {
		return err
	}
	if _, _, err = c.migrate(ctx, conn, c.migrations()); err != nil {
		return err
	}
	c.guard.measure(ctx, conn)
	if err := c.mustBeFinished(ctx, conn); err != nil {
		return err
	}
	if c.key, err = c.clusterKey(ctx, conn); err != nil {
		return err
	}
	c.sealing, err = record.NewSealing(c.o.Sealed, c.key)
	return err
}

// newCore returns a core, which has no connection yet.
func newCore(ctx context.Context, o Options) (*core, error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	o.Connections = max(o.Connections, LeastConnections)
	o.Cells = cmp.Or(o.Cells, DefaultCells)
	c := &core{
		o: o, clock: o.Clock, logger: o.Logger, tenants: map[j17.Tenant]*tenant{}, followed: map[int32]*followed{},
		archives: map[*archive]bool{}, loads: map[int32]bool{}, leaves: leaves.New(),
	}
	c.beside.core = c
	c.life = context.WithoutCancel(ctx)
	c.ending, c.end = context.WithCancel(c.life)
	c.closing, c.shut = context.WithCancel(c.ending)
	c.sweepable = make(chan struct{}, 1)
	c.guard = newGuard(c)
	c.queue = queue.NewShared[*batch](c.admit, laneCount, mostUnits, now)
	c.spaces.core, c.primary.core, c.full.core = c, c, c
	return c, c.connect(ctx)
}

// newStore returns a store with all its parts.
func newStore(c *core) *Store {
	lookups := newLookups(c)
	if c.o.Reads == ReadQuorum {
		c.confirm = lookups.confirm
	}
	appends := &appender{core: c}
	moments := newMoments(c, c.o.readers())
	sweeper := &sweeper{core: c}
	return &Store{
		core: c, appender: appends, lookups: lookups, streams: &streams{core: c},
		feeds: &feeds{core: c}, sides: &sides{core: c, appender: appends, lookups: lookups},
		dueItems: &dueItems{core: c}, moments: moments, directory: &directory{core: c},
		bulk: &bulk{core: c, moments: moments, spoolAfter: spoolAfter}, sweeper: sweeper,
		eraser: &eraser{core: c, lookups: lookups, cells: newCellJob(c, sweeper)},
	}
}

// begin reads what the store keeps in memory, and starts its goroutines.
func (s *Store) begin(ctx context.Context) error {
	if err := s.spaces.load(ctx); err != nil {
		return err
	}
	if err := s.changes.open(ctx, s.core); err != nil {
		return err
	}
	if err := s.endLoads(ctx); err != nil {
		return err
	}
	for n := range laneCount {
		l := newLane(s.core, n)
		s.working.Go(l.run)
	}
	s.working.Go(func() { _ = panics.Caught(s.guard.watch) }) // each look logs its own
	s.working.Go(s.sweeper.run)
	s.working.Go(s.cells.run)
	if s.o.Shared {
		s.working.Go(func() { _ = panics.Caught(s.beside.run) }) // each question catches its own
	}
	return nil
}

// Close is part of store.Engine.
func (s *Store) Close() error { return s.Shutdown(s.life) }

// Shutdown is part of store.Engine.
func (s *Store) Shutdown(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}

	// Waiting calls are still executed, or answered that their outcome is not known; the waits of readers end.
	s.queue.Shut(store.ErrClosed)
	s.shut()
	s.changes.close(s.core)
	s.guard.stop()
	err := s.queue.Answered(ctx)
	s.close()
	return err
}

// close ends all work in progress, and closes the connections.
func (c *core) close() {
	c.primary.shut()
	c.end()
	c.working.Wait()
	c.pool.Close()
	c.lookupPool.Close()
	c.primary.end()
}

// admit returns the error of calls that would fail, nil for others.
func (c *core) admit(need queue.Need) error {
	if err := c.primary.admit(); err != nil {
		return err
	}
	if err := c.guard.admit(need); err != nil {
		return err
	}
	return c.full.admit(need)
}

// holder returns the number by which claims and loads refer to their store.
func (c *core) holder() int64 { return c.start }

// isClosed reports whether the store was closed.
func (c *core) isClosed() bool { return c.closed.Load() }

// admits returns an error if a tenant cannot be read: its name is invalid, or the store is closed.
func (c *core) admits(t j17.Tenant) error { return c.unlessClosed(store.ValidTenant(t)) }
