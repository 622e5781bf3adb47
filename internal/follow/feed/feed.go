// Package feed reads the feeds of environments on behalf of durable subscriptions: catch-up readers whose checkpoints
// are side items of the tenant. Any number of sets of workers share the tenants by leases, and what a set commits after
// it has lost a lease is refused. Environments without activity cost nothing.
//
// A checkpoint is never ahead of what was handled, and a running hash over the leaves of all passed events shows that
// none was skipped: see check.go.
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
	// Lease is how long a set that no longer responds keeps its tenants, and how long one call of a handler may take; 0
	// means 30 seconds.
	Lease time.Duration
	// AtOnce and Each bound the calls of handlers under way, over all tenants and for each one; 0 means 32 and 8.
	AtOnce, Each int
	// Tenants bounds the tenants that are held at once; 0 means 512. Others wait for their turn.
	Tenants int
	// Sole declares that no other set works on the store: a lease of another set was left by a process that has ended,
	// and is not waited for.
	Sole bool
}

// Kind is a kind of subscriptions, with their handlers.
type Kind struct {
	// Name identifies the kind in keys, in the log and in metrics, such as "listener".
	Name string
	// Filter, if not nil, reports which of some events a subscription wants, in order. It is called for every page that
	// is read, so that a change applies from the next page on. It may return fewer results than there are events, but
	// at least one, if looking at all would take too much at once; the rest comes with the next page. It is called like
	// Do, and its errors count like those of Do.
	Filter func(ctx context.Context, t j17.Tenant, name string, events []*j17.Event) (wanted []bool, err error)
	// Types, if not nil, returns the types of the aggregates whose events a subscription can want, nil for all types.
	// It is called like Filter, and replaces it. Its answer stays valid until another event of these types comes:
	// events of other types that are in memory are passed without being read.
	Types func(ctx context.Context, t j17.Tenant, name string) (types []string, err error)
	// Notes declares that notes about rewritten events are handed out too.
	Notes bool
	// Batch bounds the entries of one call; 0 means 256.
	Batch int
	// Rest, if not nil, returns how long a subscription may leave its backlog, 0 for not at all: it is called again
	// when something is written, and after that time. behind is the number of events in the backlog, end the position
	// of the last of them. With Types only events of wanted types count, and Rest is not called while their number is
	// unknown, or if all types are wanted. It is called often, and has to answer from memory. A subscription that is
	// woken does not rest until it has reached the end that the feed had then.
	Rest func(t j17.Tenant, name string, behind uint64, end j17.StreamID) time.Duration
	// Do handles a batch. If it returns nil, all of the batch is handled, unless Batch.Done was called: then what was
	// committed is. After an error, a panic, or the end of the lease's time, the unhandled entries come again, fewer at
	// a time, after a pause or as Later says. Calls for one subscription do not overlap; those for different ones are
	// concurrent.
	Do func(ctx context.Context, b *Batch) error
	// Retry sets the pauses after errors. Subscriptions are never given up.
	Retry worker.Backoff
}

// Batch is a part of a feed to be handled.
type Batch struct {
	Tenant j17.Tenant
	// Name is the name of the subscription.
	Name string
	// Entries are those that the subscription wants, in the feed's order. They are valid until Do returns.
	Entries []store.Entry
	// Rewrites is the store's count of rewrites before the entries were read.
	Rewrites uint64
	// After is the position up to which everything was handled before the batch.
	After j17.StreamID
	// Behind is the number of events of the feed, wanted or not, from the first entry on when the batch was handed out.
	Behind uint64
	// Attempt counts the tries of the first entry, from 1. Tries that ended with their process are not counted.
	Attempt int

	// move returns the writes that move the checkpoint past an entry.
	move  func(i int) []store.Side
	done  int
	asked bool
	// passed is the position up to which everything is handled.
	passed j17.StreamID
}

// Passed reports that everything up to a position is handled, including entries that are not in this batch and were
// never handed out. It takes effect if Do returns nil or Later, in addition to what is handled otherwise.
func (b *Batch) Passed(upTo j17.StreamID) { b.passed = upTo }

// Done returns the writes that move the checkpoint past the first n entries, from 1 to all. A handler that commits them
// together with its own writes for these entries handles them exactly once: they only hold while the lease does and
// nobody has changed the subscription. A call of Do may commit them once, and then has to return; the remaining entries
// come with the next call.
func (b *Batch) Done(n int) []store.Side {
	b.done, b.asked = n, true
	return b.move(n - 1)
}

// Later is returned by Do if it cannot take the rest of a batch now: the rest comes again when Wake is called, or after
// a while. It does not count as a failure.
type Later struct{ For time.Duration }

// Error describes the pause.
func (l Later) Error() string { return "the subscription takes no more for " + l.For.String() }

// Start is where a new subscription begins.
type Start struct {
	after j17.StreamID
	end   bool
}

// Beginning is the position before the first event.
func Beginning() Start { return Start{} }

// End is the end of the feed when the subscription is created.
func End() Start { return Start{end: true} }

// After begins after a position. The cost of beginning there depends on the number of events that follow.
func After(position j17.StreamID) Start { return Start{after: position} }

// Status is the progress of a subscription.
type Status struct {
	Name   string
	Paused bool
	// After is the position of the checkpoint, Count the number of events up to there.
	After j17.StreamID
	Count uint64
	// Lag is the number of events after the checkpoint, wanted or not.
	Lag uint64
	// Failures counts the failed tries of the next entry, Error is the error of the last one, RetryAt the time of the
	// next try.
	Failures int
	Error    string
	RetryAt  time.Time
	// Checked is the number of events, from the subscription's beginning, for which it was shown that none was skipped.
	Checked uint64
}

// Counts has the counters of a set since it was made.
type Counts struct {
	// Held is the number of tenants that the set holds.
	Held int
	// Read counts the events passed by all subscriptions, Handled the handled entries, Failed the failed calls.
	Read, Handled, Failed uint64
	// Taken counts the leases taken, Lost those that another set took over.
	Taken, Lost uint64
	// LeftBehind counts the calls that did not return in time.
	LeftBehind uint64
	// Checked counts the stretches compared with the feed, Gaps those that did not match.
	Checked, Gaps uint64
	// Behind is the number of events that the subscriptions of the held tenants have not passed.
	Behind uint64
}

// reference identifies a subscription.
type reference struct {
	tenant j17.Tenant
	key    string
}

type counters struct {
	read, handled, failed, taken, lost, left, checked, gaps atomic.Uint64
}

// Subscriptions is a set of workers, and the means to create, change and inspect subscriptions. It is safe for
// concurrent use.
type Subscriptions struct {
	o     Options
	id    string
	kinds map[string]*Kind
	count counters

	// free is the number of calls that may begin; thirsty has the holdings that found no free slot.
	slots   sync.Mutex
	free    int
	thirsty map[*holding]bool
	// lost counts the calls left behind that have not returned yet.
	lost map[reference]int
	// nextCheck is when the next stretch may be checked.
	nextCheck time.Time
	// ahead is the number of holdings that pages are read ahead for.
	ahead atomic.Int32
	// aheadEntries is only changed by tests.
	aheadEntries int

	// following is held while changes are read. since is the number of the last change seen.
	following sync.Mutex
	since     uint64

	mu sync.Mutex
	// held has the tenants whose leases the set has, waiting those that it will try to take, in order.
	held    map[j17.Tenant]*holding
	waiting []j17.Tenant
	pending map[j17.Tenant]*pending
	// moved is signaled when any of that changes; more when a tenant may be taken.
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

// Handle adds a kind of subscriptions. It must not be called after Run. Subscriptions of kinds that a set does not know
// do not advance in it.
func (s *Subscriptions) Handle(k Kind) {
	if k.Batch == 0 {
		k.Batch = 256
	}
	s.kinds[k.Name] = &k
}

// Counts returns the counters.
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
