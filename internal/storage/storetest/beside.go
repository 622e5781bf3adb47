package storetest

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// RunBeside tests two stores that are open on the same data at once: the first opened as by Run, the other one with
// Env.Beside set. Calls go to them in turn, so each has to see immediately what the other one writes.
func RunBeside(t *testing.T, open func(t *testing.T, env Env) store.Store) {
	t.Helper()
	both := func(t *testing.T, env Env) store.Store {
		t.Helper()
		first := open(t, env)
		env.Beside = first
		return &pair{Store: first, other: open(t, env)}
	}
	run(t, both, []test{
		// Units of several writers, as the model and the checker of histories see them.
		{"Append", testAppend},
		{"Conflicts", testConflicts},
		{"Duplicates", testDuplicates},
		{"DuplicatesAtOnce", testDuplicatesAtOnce},
		{"Timestamps", testTimestamps},
		{"Contention", testContention},
		{"Linearizable", testLinearizable},
		{"Unless", testUnless},
		{"UnlessAtOnce", testUnlessAtOnce},
		{"AssignmentsAtOnce", testAssignmentsAtOnce},
		{"Atomicity", testAtomicity},

		// A feed without gaps, and waiting for what the other one writes.
		{"ReadStream", testReadStream},
		{"Feed", testFeed},
		{"FeedFollowed", testFeedFollowed},
		{"Tagged", testTagged},
		{"AwaitFeed", testAwaitFeed},
		{"Changed", testChanged},
		{"Notes", testNotes},

		// Items, fences and leases.
		{"Side", testSide},
		{"SideConditions", testSideConditions},
		{"ValueConditions", testValueConditions},
		{"Fences", testFences},
		{"Add", testAdd},
		{"Entries", testEntries},
		{"MomentsUnderWrites", testMomentsUnderWrites},
		{"TogetherUnderWrites", testTogetherUnderWrites},
		{"Due", testDue},
		{"DueAtOnce", testDueAtOnce},
		{"Fencing", testFencing},
		{"DueOverAll", testDueOverAll},
		{"DueAwaited", testDueAwaited},
		{"DueCounted", testDueCounted},

		// The end of one of them.
		{"OneCloses", testOneCloses},
	})
}

// testOneCloses closes one of two stores: the other one stays usable.
func testOneCloses(s *suite) {
	t := s.t
	f := s.fixture(t)
	commit(t, f, tenant, store.Append{Events: events(order("a"), "1")})
	both, is := f.Store.(*pair)
	if !is {
		t.Fatal("there are no two stores")
	}
	if err := both.other.Close(); err != nil {
		t.Fatal(err)
	}
	f.Store = both.Store
	commit(t, f, tenant, store.Append{Events: events(order("a"), "2"), Pre: []store.Pre{pre(order("a"), 1)}})
	if got := readFeed(t, f, tenant, j17.StreamID{}, everything); len(got) != 2 {
		t.Errorf("the feed has %d events, want 2", len(got))
	}
}

// pair has two stores on the same data. Methods that it does not define are those of the first one.
type pair struct {
	store.Store

	other store.Store
	calls atomic.Uint64
}

// next returns the store whose turn it is.
func (p *pair) next() store.Store {
	if p.calls.Add(1)%2 == 0 {
		return p.other
	}
	return p.Store
}

// Append is part of store.Store.
func (p *pair) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	return p.next().Append(ctx, t, units)
}

// Command is part of store.Store.
func (p *pair) Command(ctx context.Context, t j17.Tenant, id store.CommandID) (*store.Result, error) {
	return p.next().Command(ctx, t, id)
}

// Heads is part of store.Store.
func (p *pair) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	return p.next().Heads(ctx, t, keys)
}

// ReadStream is part of store.Store.
func (p *pair) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	return p.next().ReadStream(ctx, t, key, from, to)
}

// ReadFeed is part of store.Store.
func (p *pair) ReadFeed(ctx context.Context, t j17.Tenant, after j17.StreamID, limit int) iter.Seq2[*j17.Event, error] {
	return p.next().ReadFeed(ctx, t, after, limit)
}

// ReadChanges is part of store.Store.
func (p *pair) ReadChanges(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Entry, error] {
	return p.next().ReadChanges(ctx, t, after, limit)
}

// ReadTagged is part of store.Store.
func (p *pair) ReadTagged(
	ctx context.Context, t j17.Tenant, of store.Tagged, after j17.StreamID, limit int,
	looked func(int, j17.StreamID) bool,
) iter.Seq2[*j17.Event, error] {
	return p.next().ReadTagged(ctx, t, of, after, limit, looked)
}

// AwaitFeed is part of store.Store.
func (p *pair) AwaitFeed(ctx context.Context, t j17.Tenant, after j17.StreamID) error {
	return p.next().AwaitFeed(ctx, t, after)
}

// Extent is part of store.Store.
func (p *pair) Extent(ctx context.Context, t j17.Tenant) (store.Extent, error) {
	return p.next().Extent(ctx, t)
}

// Get is part of store.Store.
func (p *pair) Get(ctx context.Context, t j17.Tenant, sp store.Space, key string) (store.Item, error) {
	return p.next().Get(ctx, t, sp, key)
}

// Scan is part of store.Store.
func (p *pair) Scan(
	ctx context.Context, t j17.Tenant, sp store.Space, keys store.Range, limit int,
) ([]store.Item, error) {
	return p.next().Scan(ctx, t, sp, keys, limit)
}

// Write is part of store.Store.
func (p *pair) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	return p.next().Write(ctx, t, side, fences...)
}

// ClaimDue is part of store.Store.
func (p *pair) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) ([]store.Item, error) {
	return p.next().ClaimDue(ctx, t, c)
}

// NextDue is part of store.Store.
func (p *pair) NextDue(ctx context.Context, sp store.Space) (time.Time, error) {
	return p.next().NextDue(ctx, sp)
}

// CountDue is part of store.Store.
func (p *pair) CountDue(
	ctx context.Context, t j17.Tenant, sp store.Space, before time.Time, limit int,
) (int, time.Time, error) {
	return p.next().CountDue(ctx, t, sp, before, limit)
}

// DueTenants is part of store.Store.
func (p *pair) DueTenants(ctx context.Context, sp store.Space, limit int) ([]j17.Tenant, error) {
	return p.next().DueTenants(ctx, sp, limit)
}

// AwaitDue is part of store.Store.
func (p *pair) AwaitDue(ctx context.Context, sp store.Space, before time.Time) error {
	return p.next().AwaitDue(ctx, sp, before)
}

// Moment is part of store.Store.
func (p *pair) Moment(ctx context.Context, t j17.Tenant) (store.Moment, error) {
	return p.next().Moment(ctx, t)
}

// ReadTogether is part of store.Store.
func (p *pair) ReadTogether(ctx context.Context, t j17.Tenant, what store.Wanted) (store.Found, error) {
	return p.next().ReadTogether(ctx, t, what)
}

// Rewrite is part of store.Store.
func (p *pair) Rewrite(ctx context.Context, t j17.Tenant, r store.Rewrite) (store.Result, error) {
	return p.next().Rewrite(ctx, t, r)
}

// Close is part of store.Store.
func (p *pair) Close() error { return errors.Join(p.other.Close(), p.Store.Close()) }
