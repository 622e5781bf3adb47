// Package feed reads the feeds of environments on behalf of durable subscriptions: catch-up readers whose checkpoints
// are side items of the tenant. Any number of sets of workers share the tenants by leases, and what a set commits after
// it has lost a lease is refused. Environments in which nothing happens cost nothing.
//
// A checkpoint never stands ahead of what was handled, and a running hash over the leaves of all events that were
// passed shows that none was skipped: see check.go.
//
// The decisions behind it are in docs/internals/follow.md.
package feed

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// Store is what subscriptions need of a store.
type Store interface {
	store.Feed
	store.Sides
}

// Options configures a set of workers.
type Options struct {
	Store  Store
	Clock  clock.Clock
	Logger *slog.Logger
	Worker *worker.Kit
	// Lease is how long a set that is no longer heard of keeps its tenants, and how long one call of a handler may
	// take; 0 means 30 seconds.
	Lease time.Duration
	// AtOnce and Each bound the calls of handlers under way, of all tenants and of one; 0 means 32 and 8.
	AtOnce, Each int
	// Tenants bounds the tenants that are held at once; 0 means 512. Those beyond wait for their turn.
	Tenants int
	// Sole reports that no other set works on the store: a lease that is not of this set is what a process has left
	// behind that has ended, and is not waited for.
	Sole bool
}

// Kind is a kind of subscriptions: what the handlers of all of them do.
type Kind struct {
	// Name tells kinds apart in keys, in the log and in metrics, such as "listener".
	Name string
	// Filter, if not nil, tells which of some events a subscription wants, in their order. It is asked for every page
	// that is read, so that a change counts from the next page on. What it says nothing about, because to look at all
	// would take too much at once, comes with the next page; about the first event it says something. It is called as
	// Do is, and its errors count like those.
	Filter func(ctx context.Context, t j17.Tenant, name string, events []*j17.Event) (wanted []bool, err error)
	// Types, if not nil, returns the types of the aggregates whose events a subscription can want, nil for all types.
	// It is called as Filter is, and replaces it. Until another event of these comes, its answer stays in force: as far
	// as they are in memory, events of other types are passed without being read.
	Types func(ctx context.Context, t j17.Tenant, name string) (types []string, err error)
	// Notes reports that notes about rewritten events are handed on too.
	Notes bool
	// Batch bounds the entries of one call; 0 means 256.
	Batch int
	// Rest, if not nil, says for how long a subscription may leave the events that it has not passed where they are, 0
	// for not at all: it is asked again when something is written, and after that time. behind is how many events they
	// are, end is where the last one of them is. Where there is Types, these are the wanted ones, and it is not asked
	// while it is not known how many they are, or where all types are wanted. It is called often, and has to answer
	// from memory. A subscription that is woken does not rest before it has come to where the feed ended then.
	Rest func(t j17.Tenant, name string, behind uint64, end j17.StreamID) time.Duration
	// Do handles a batch. After nil all of it is handled, unless Batch.Done was called: then what was committed is.
	// After an error, a panic, or when the lease's time is over, what is not handled comes again, fewer entries at a
	// time, after a pause, or as Later says. Calls for one subscription do not overlap, those for different ones run
	// beside each other.
	Do func(ctx context.Context, b *Batch) error
	// Retry says how long the pauses after errors are. Subscriptions are never given up.
	Retry worker.Backoff
}

// Batch is a part of a feed that is to be handled.
type Batch struct {
	Tenant j17.Tenant
	// Name is that of the subscription.
	Name string
	// Entries are what the subscription wants, in the feed's order. They are valid until Do returns.
	Entries []store.Entry
	// Rewrites is how often events had been rewritten, by the store's count, before the entries were read.
	Rewrites uint64
	// After is up to where everything was handled before the batch.
	After j17.StreamID
	// Behind is how many events the feed had, wanted or not, from the first entry on when it was handed out.
	Behind uint64
	// Attempt counts the tries of the first entry from 1. Tries that their process did not survive are not counted.
	Attempt int

	// move returns the writes that move the checkpoint behind an entry.
	move  func(i int) []store.Side
	done  int
	asked bool
	// passed is the position up to which everything is handled.
	passed j17.StreamID
}

// Passed says that everything up to a position is handled, also what is not of this batch and was never handed out. It
// counts when Do returns nil, or Later, in addition to everything else that is reported.
func (b *Batch) Passed(upTo j17.StreamID) { b.passed = upTo }

// Done returns the writes that move the checkpoint behind the first n entries, from 1 to all. A handler that commits
// them together with what it does for these entries does that exactly once: they hold only as long as the lease does
// and nobody has changed the subscription. A call commits them once, and returns; the rest of the entries comes with
// the next call.
func (b *Batch) Done(n int) []store.Side {
	b.done, b.asked = n, true
	return b.move(n - 1)
}

// Later is what Do returns when the rest of a batch cannot be taken now: it comes again when Wake is called, or after a
// while. It is no failure.
type Later struct{ For time.Duration }

// Error describes the pause.
func (l Later) Error() string { return "the subscription takes no more for " + l.For.String() }

// Start is where a new subscription begins.
type Start struct {
	after j17.StreamID
	end   bool
}

// Beginning is before the first event.
func Beginning() Start { return Start{} }

// End is behind what the feed holds when the subscription is made.
func End() Start { return Start{end: true} }

// After is behind a position. What it costs to begin there depends on the events that follow.
func After(position j17.StreamID) Start { return Start{after: position} }

// Status is how far a subscription is.
type Status struct {
	Name   string
	Paused bool
	// After is the position of the checkpoint, Count the number of events up to there.
	After j17.StreamID
	Count uint64
	// Lag is the number of events behind the checkpoint, wanted or not.
	Lag uint64
	// Failures counts the tries of the next entry that failed, Error is that of the last one, RetryAt when the next one
	// comes.
	Failures int
	Error    string
	RetryAt  time.Time
	// Checked is the number of events, from where the subscription began, of which it was shown that none was skipped.
	Checked uint64
}

// Counts is what a set has done since it began.
type Counts struct {
	// Held is the number of tenants that the set holds now.
	Held int
	// Read counts the events that were passed for any subscription, Handled the entries that were handled, Failed the
	// calls that failed.
	Read, Handled, Failed uint64
	// Taken counts the leases that were taken, Lost those that others took over.
	Taken, Lost uint64
	// LeftBehind counts the calls that did not return when they had to.
	LeftBehind uint64
	// Checked counts the stretches that were compared with the feed, Gaps those that did not match.
	Checked, Gaps uint64
	// Behind is the number of events that the subscriptions of the tenants held have not passed.
	Behind uint64
}

// reference names a subscription.
type reference struct {
	tenant j17.Tenant
	key    string
}

type counters struct {
	read, handled, failed, taken, lost, left, checked, gaps atomic.Uint64
}

// Subscriptions is a set of workers and the way to make, change and see subscriptions. It is safe for concurrent use.
type Subscriptions struct {
	o     Options
	id    string
	kinds map[string]*Kind
	count counters

	// free is the number of calls that may begin, thirsty are the holdings that have found none.
	slots   sync.Mutex
	free    int
	thirsty map[*holding]bool
	// lost counts the calls that were left behind and have not returned.
	lost map[reference]int
	// nextCheck is when a stretch may be checked again.
	nextCheck time.Time
	// ahead is for how many holdings pages are read ahead.
	ahead atomic.Int32
	// aheadEntries is a constant but in tests.
	aheadEntries int

	// following is held while changes are looked at. since is the number of the last one that was seen.
	following sync.Mutex
	since     uint64

	mu sync.Mutex
	// held are the tenants whose leases the set has, waiting those that it will try to take, in order of their turn.
	held    map[j17.Tenant]*holding
	waiting []j17.Tenant
	pending map[j17.Tenant]*pending
	// moved is signalled when any of that changes; more when a tenant may be taken.
	moved sync.Cond
	more  chan struct{}
}

// New returns a set of workers that does nothing before Run.
func New(o Options) *Subscriptions {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.AtOnce == 0 {
		o.AtOnce = 32
	}
	if o.Each == 0 {
		o.Each = 8
	}
	if o.Tenants == 0 {
		o.Tenants = 512
	}
	s := &Subscriptions{
		o: o, id: rand.Text(), aheadEntries: aheadEntries, kinds: map[string]*Kind{}, free: o.AtOnce,
		thirsty: map[*holding]bool{}, lost: map[reference]int{},
		held: map[j17.Tenant]*holding{}, pending: map[j17.Tenant]*pending{}, more: make(chan struct{}, 1),
	}
	s.moved.L = &s.mu
	return s
}

// Handle adds a kind of subscriptions. All are added before Run. Subscriptions whose kind a set does not know stand
// still in it.
func (s *Subscriptions) Handle(k Kind) {
	if k.Batch == 0 {
		k.Batch = 256
	}
	s.kinds[k.Name] = &k
}

// Counts returns what the set has done so far.
func (s *Subscriptions) Counts() Counts {
	s.mu.Lock()
	held := slices.Collect(maps.Values(s.held))
	s.mu.Unlock()
	c := Counts{
		Held: len(held), Read: s.count.read.Load(), Handled: s.count.handled.Load(), Failed: s.count.failed.Load(),
		Taken: s.count.taken.Load(), Lost: s.count.lost.Load(), LeftBehind: s.count.left.Load(),
		Checked: s.count.checked.Load(), Gaps: s.count.gaps.Load(),
	}
	for _, h := range held {
		c.Behind += h.behind.Load()
	}
	return c
}
