// Package control keeps what exists on this server: operators, instances, API keys, the deployed specs and the server's
// own secrets. It is kept as JSON side items: deployed specs in the tenant of their environment, everything else in the
// store's System tenant. Credentials are kept as hashes only, except for the two secrets that the server itself must
// know.
//
// The decisions behind it are in docs/internals/plane.md.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// The side spaces of the System tenant. Items are kept under their UUIDv7, which never leaves the store, so that a scan
// returns them in the order of their creation. Names and e-mail addresses are items of their own, because a conditional
// write is what makes them unique.
const (
	instanceSpace store.Space = "control.instances"
	nameSpace     store.Space = "control.instance_names"
	operatorSpace store.Space = "control.operators"
	emailSpace    store.Space = "control.operator_emails"
	keySpace      store.Space = "control.keys"
	// SecretSpace holds the keys that sign tokens and the secret of the nodes. It is left out of everything that others
	// can read.
	SecretSpace store.Space = "control.secrets"
)

// scanLimit is the number of items read at once.
const scanLimit = 1000

// Registry is what exists on this server, in parts that share one registry of items. Run must be called for the
// background work.
type Registry struct {
	Instances   *Instances
	Operators   *Operators
	Setup       *Setup
	Keys        *Keys
	Nodes       *Nodes
	Specs       *Specs
	Secrets     *Secrets
	Sessions    *Sessions
	Audit       *AuditLog
	Faults      *Faults
	Replication *Replication

	items *items
}

// items is the basis of all parts of a registry: the items of the store's System tenant, and the memory of those that
// every request looks up. Instances, operators and keys are held in memory as well, a few hundred bytes each;
// MaxActiveKeys and the fact that only operators create anything keep that small. Specs are read from the store. Every
// change is durable before any look-up shows it, and is shown when the method that made it returns. All parts are safe
// for concurrent use.
type items struct {
	journal
	memory
	logger *slog.Logger
	worker *worker.Kit
	mint   *ident.Minter
	hasher *hasher
	// replication is the state of the replicas; upstream is nil unless this registry is a replica itself.
	replication *replication
	upstream    Upstream

	signing atomic.Pointer[signingRecord]

	// change is held from before a write until memory shows it, so that memory applies changes in the store's order.
	// See lock.
	change turns
	// inDoubt reports that memory may lack a write that the store holds or is about to hold; it is changed under
	// change. doubted is signalled when it becomes true, settled when it becomes false.
	inDoubt          atomic.Bool
	doubted, settled chan struct{}
}

// memory is what every request looks up.
type memory struct {
	mu    sync.RWMutex
	known *known
	// read is how far known has followed the log. movedSpecs are the environments to which other servers have deployed;
	// moved is signalled when there are some.
	read       place
	movedSpecs map[j17.Tenant]bool
	moved      chan struct{}
	// altered counts the changes of known, of the keys that check tokens, and of the sessions that end.
	altered atomic.Uint64
}

// Alterations counts the changes that may affect anyone's rights. A caller that admits a client for long checks its
// rights again when the number has changed.
func (r *Registry) Alterations() uint64 { return r.items.altered.Load() }

// known is the memory of a registry, guarded by its mu. The records in it are never modified, only replaced.
type known struct {
	instances map[string]*instanceRecord // by handle
	names     map[string]*instanceRecord
	operators map[string]*operatorRecord // by handle
	emails    map[string]*operatorRecord
	keys      map[string]*keyRecord // by handle
	hashes    map[tokenHash]*keyRecord
	// instanceKeys are the keys of each instance by handle.
	instanceKeys map[string]map[string]*keyRecord
	revoked      map[string]time.Time // tokens of operators by id, until they expire
	nodes        map[string]*Node     // by name
}

// Storage is what the control plane needs of a store.
type Storage interface {
	// Events is for the System tenant alone: the registry is the only one to write its log.
	store.Events //nolint:forbidigo // see above; journal.append is the only caller
	store.Aggregates
	store.Sides
	store.Tenants
	// AwaitFeed is that of store.Feed.
	AwaitFeed(ctx context.Context, t j17.Tenant, after j17.StreamID) error
	// Barrier is that of store.Health.
	Barrier(ctx context.Context) error
}

// Options configures a registry.
type Options struct {
	Store Storage
	Clock clock.Clock
	// Logger gets messages of the background work; nil for no log.
	Logger *slog.Logger
	// Worker does the background work; nil means a kit of the registry's own.
	Worker *worker.Kit
	// Plans are added to the built-in ones, or replace those with the same name.
	Plans []Plan
	// PasswordMemory is how many KiB of memory hashing a password takes; 0 means as many as OWASP recommends. Tests of
	// other things take little.
	PasswordMemory uint32
}

// Open reads the registry from the store, and creates the server's secrets on the first start.
func Open(ctx context.Context, o Options) (*Registry, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Worker == nil {
		o.Worker = worker.New(o.Clock, o.Logger)
	}

	// All parts share the same items, so that each sees the changes of the others.
	i := &items{
		journal: journal{o.Store, o.Clock},
		memory:  memory{movedSpecs: map[j17.Tenant]bool{}, moved: make(chan struct{}, 1)},
		logger:  o.Logger, worker: o.Worker, mint: ident.NewMinter(o.Clock.Now), hasher: newHasher(o.PasswordMemory),
		replication: newReplication(),
		change:      newTurns(), doubted: make(chan struct{}, 1), settled: make(chan struct{}, 1),
	}
	planned, err := plansOf(o.Plans)
	if err != nil {
		return nil, err
	}
	operators := &Operators{i}
	r := &Registry{
		Instances: &Instances{i, planned}, Operators: operators, Setup: &Setup{i, operators}, Keys: &Keys{i},
		Nodes: &Nodes{i}, Specs: &Specs{items: i, late: map[j17.Tenant]bool{}},
		Secrets: &Secrets{items: i}, Sessions: &Sessions{items: i}, Audit: &AuditLog{i}, Faults: newFaults(i),
		Replication: &Replication{i}, items: i,
	}

	// Read what the store holds.
	if err := i.load(ctx); err != nil {
		return nil, err
	}
	if err := r.Faults.load(ctx); err != nil {
		return nil, err
	}
	if err := r.Secrets.open(ctx); err != nil {
		return nil, err
	}
	if err := r.Sessions.open(ctx); err != nil {
		return nil, err
	}

	// Convert what earlier versions have kept elsewhere, and add to the log what a crash has left out.
	if err := r.Specs.migrate(ctx); err != nil {
		return nil, err
	}
	if err := r.Specs.findLate(ctx); err != nil {
		return nil, err
	}
	if err := r.Audit.migrate(ctx); err != nil {
		return nil, err
	}

	return r, nil
}

// load replaces the memory by what the store holds.
func (r *items) load(ctx context.Context) error {
	k := &known{
		instances:    map[string]*instanceRecord{},
		names:        map[string]*instanceRecord{},
		operators:    map[string]*operatorRecord{},
		emails:       map[string]*operatorRecord{},
		keys:         map[string]*keyRecord{},
		hashes:       map[tokenHash]*keyRecord{},
		instanceKeys: map[string]map[string]*keyRecord{},
		revoked:      map[string]time.Time{},
		nodes:        map[string]*Node{},
	}

	// The place in the log comes first: entries that are added while the rest is read are then read twice rather than
	// missed.
	end, err := r.logEnd(ctx)
	if err != nil {
		return err
	}
	if err := scan(ctx, r.store, instanceSpace, k.putInstance); err != nil {
		return err
	}
	if err := scan(ctx, r.store, operatorSpace, k.putOperator); err != nil {
		return err
	}
	if err := scan(ctx, r.store, keySpace, k.putKey); err != nil {
		return err
	}
	if err := scan(ctx, r.store, revokedSpace, func(t *revokedToken) { k.revoked[t.ID] = t.Expires }); err != nil {
		return err
	}
	if err := scan(ctx, r.store, nodeSpace, func(n *Node) { k.nodes[n.Name] = n }); err != nil {
		return err
	}
	if err := loadUses(ctx, r.store, k); err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known != nil { // keep uses of keys that are not stored yet
		for id, rec := range k.keys {
			if before := r.known.keys[id]; before != nil {
				rec.use = before.use
			}
		}
	}
	r.known, r.read = k, end
	r.altered.Add(1)
	return nil
}

// each calls do with every item of a space whose key starts with prefix, until do fails.
func each(
	ctx context.Context, st store.Sides, t j17.Tenant, space store.Space, prefix string, do func(store.Item) error,
) error {
	for it, err := range store.Items(ctx, st, t, space, store.Prefix(prefix), scanLimit) {
		if err != nil {
			return failure(err)
		}
		if err := do(*it); err != nil {
			return err
		}
	}
	return nil
}

// scan calls put with everything in a space of the System tenant.
func scan[T any](ctx context.Context, st store.Sides, space store.Space, put func(*T)) error {
	return each(ctx, st, j17.System, space, "", func(it store.Item) error {
		v, err := decode[T](space, it)
		if err == nil {
			put(v)
		}
		return err
	})
}

func decode[T any](space store.Space, it store.Item) (*T, error) {
	v, err := store.Decode[T](space, &it)
	if err != nil {
		return nil, failure(err)
	}
	return &v, nil
}

// get reads one item of the System tenant and its revision. It returns store.ErrNotFound unchanged.
func get[T any](ctx context.Context, st store.Sides, space store.Space, key string) (*T, uint64, error) {
	return getOf[T](ctx, st, j17.System, space, key)
}

// getOf is get for any tenant.
func getOf[T any](
	ctx context.Context, st store.Sides, t j17.Tenant, space store.Space, key string,
) (*T, uint64, error) {
	it, err := st.Get(ctx, t, space, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, store.ErrNotFound
	}
	if err != nil {
		return nil, 0, failure(err)
	}
	v, err := decode[T](space, it)
	return v, it.Rev, err
}

// putNew returns the write that creates an item and fails if it exists.
func putNew(space store.Space, key string, v any) (store.Side, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return store.Side{}, internal(err)
	}
	return store.Side{Op: store.Put, Space: space, Key: key, Value: b, Cond: store.IfAbsent}, nil
}

// putOver returns the write that replaces revision rev of an item.
func putOver(space store.Space, key string, v any, rev uint64) (store.Side, error) {
	side, err := putNew(space, key, v)
	side.Cond, side.Rev = store.IfRev, rev
	return side, err
}

// commit commits side writes with their entry in the log and, if that succeeds, lets apply change the memory. The
// caller has begun with lock. A failed condition is returned as *store.SideConflict; the memory then differs from the
// store, and is read again. If the outcome is unknown, the memory is in doubt.
func (r *items) commit(ctx context.Context, rec *Record, freeing bool, apply func(*known), side ...store.Side) error {
	if r.upstream != nil {
		return readOnly()
	}
	unit, err := r.logUnit(rec, side)
	if err != nil {
		return err
	}
	unit.Freeing = freeing
	res, err := r.append(ctx, unit)
	if err == nil {
		r.mu.Lock()
		apply(r.known)
		r.altered.Add(1)
		r.mu.Unlock()
		r.seeOwn(&res)
		return nil
	}
	if conflict, ok := errors.AsType[*store.SideConflict](err); ok {
		// Writes in doubt were decided before the conflict.
		if r.reload(context.WithoutCancel(ctx)) != nil {
			r.doubt(nil)
		}
		return conflict
	}
	if !unwritten(err) {
		r.doubt(side)
	}
	return failure(err)
}

// unwritten reports whether the error of a write guarantees that nothing was written.
func unwritten(err error) bool {
	if errors.Is(err, store.ErrUnknown) {
		return false
	}
	_, conflict := errors.AsType[*store.SideConflict](err)
	return conflict || errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrFailed) ||
		errors.Is(err, store.ErrClosed) ||
		errors.Is(err, store.ErrLimit) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrBusy) ||
		errors.Is(err, store.ErrClock)
}

// isConflict reports whether a commit failed because a condition on an item of the space did not hold.
func isConflict(err error, space store.Space) bool {
	conflict, ok := errors.AsType[*store.SideConflict](err)
	return ok && conflict.Space == space
}

// failure turns an error of the store into one for users. A side conflict that the caller has not handled comes from
// another server on the same store.
func failure(err error) error {
	var (
		public   *j17.Error
		conflict *store.SideConflict
		corrupt  *store.CorruptionError
		told     *j17.Error
	)

	// Each message says whether something was changed and what to do; the cause is for the log.
	switch {
	case errors.As(err, &public):
		return err
	case errors.As(err, &conflict):
		told = j17.Errorf(j17.CodeConflict, "Someone else changed the same thing at the same moment. Try again.")
	case errors.As(err, &corrupt):
		told = j17.Errorf(j17.CodeCorruption, "The server's registry is damaged. Its operator has to restore it.")
	case errors.Is(err, store.ErrFull):
		told = j17.Errorf(j17.CodeStorageFull, "The server is short of disk space and accepts no changes until there is room again.")
	case errors.Is(err, store.ErrLimit):
		told = j17.Errorf(j17.CodePayloadTooLarge, "This is more than the server can save at once.")
	case errors.Is(err, store.ErrFailed) && !errors.Is(err, store.ErrUnknown):
		told = j17.Errorf(j17.CodeUnavailable, "The server's disk has failed. Nothing was changed; its operator has to restart the server on a sound disk.")
	case errors.Is(err, store.ErrClock):
		told = j17.Errorf(j17.CodeUnavailable, "The server's clock has jumped and is not believed. Nothing was changed; its operator has to set the clock right or confirm it.")
	case errors.Is(err, store.ErrBusy):
		told = j17.Errorf(j17.CodeBusy, "The server lacks %s for a moment. Nothing was changed; try again in a moment.", store.Lacking(err))
	case errors.Is(err, store.ErrUnknown):
		told = j17.Errorf(j17.CodeOutcomeUnknown, "It is not known whether the change was saved. Look it up before you try again.")
	case errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		told = j17.Errorf(j17.CodeUnavailable, "The server did not finish in time or is shutting down. Try again.")
	default:
		return internal(err)
	}
	return told.Because(err)
}

func internal(err error) error {
	return j17.Errorf(j17.CodeInternal, "The server could not read or write its registry.").Because(err)
}
