// Package storetest is the conformance suite of package store: the engine can use every store that passes it.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
)

// Env describes the store that a test needs.
type Env struct {
	// Clock is the store's clock.
	Clock clock.Clock
	// Data names a set of data. A name that was never used names an empty one; opening a name again, after the store
	// was closed, finds what the store held.
	Data string
	// Beside, if not nil, is a store that is open on the same data, and stays open: see RunBeside.
	Beside store.Store
}

// Run tests the stores that open returns, and closes them. The rest of the suite is RunLong.
func Run(t *testing.T, open func(t *testing.T, env Env) store.Store) {
	t.Helper()
	run(t, open, []test{
		// Units: what commits, and what is refused.
		{"Append", testAppend},
		{"Canonical", testCanonical},
		{"Conflicts", testConflicts},
		{"Duplicates", testDuplicates},
		{"DuplicatesAtOnce", testDuplicatesAtOnce},
		{"CommandExpiry", testCommandExpiry},
		{"Invalid", testInvalid},
		{"Cancelled", testCancelled},
		{"Timestamps", testTimestamps},
		{"Positions", testPositions},

		// Reading, also while others write.
		{"ReadStream", testReadStream},
		{"Streams", testStreams},
		{"ReadStreams", testReadStreams},
		{"Contention", testContention},
		{"Linearizable", testLinearizable},
		{"Feed", testFeed},
		{"FeedFollowed", testFeedFollowed},
		{"Tagged", testTagged},
		{"ManyTags", testManyTags},
		{"Unless", testUnless},
		{"UnlessAtOnce", testUnlessAtOnce},
		{"AwaitFeed", testAwaitFeed},

		// Side items.
		{"Side", testSide},
		{"Assignments", testAssignments},
		{"AssignmentsMixed", testAssignmentsMixed},
		{"AssignmentsAtOnce", testAssignmentsAtOnce},
		{"SideConditions", testSideConditions},
		{"ValueConditions", testValueConditions},
		{"Fences", testFences},
		{"AskedBefore", testAskedBefore},
		{"Raise", testRaise},
		{"Add", testAdd},
		{"Stamps", testStamps},
		{"Plain", testPlain},
		{"DeferCompaction", testDeferCompaction},
		{"BulkWrite", testBulkWrite},
		{"BulkWriteInGeneral", inGeneral(testBulkWrite)},
		{"RolesInGeneral", inGeneral(testRoles)},
		{"Entries", testEntries},
		{"Emptying", testEmptying},
		{"Scan", testScan},
		{"GetEach", testGetEach},
		{"Moment", testMoment},
		{"MomentOfLooks", testMomentOfLooks},
		{"MomentsUnderWrites", testMomentsUnderWrites},
		{"ReadTogether", testReadTogether},
		{"TogetherUnderWrites", testTogetherUnderWrites},
		{"Expiry", testExpiry},
		{"Counter", testCounter},

		// What is due, and who works on it.
		{"Due", testDue},
		{"DueAtOnce", testDueAtOnce},
		{"ReleaseClaims", testReleaseClaims},
		{"ClaimedTwice", testClaimedTwice},
		{"Fencing", testFencing},
		{"DueOverAll", testDueOverAll},
		{"DueAwaited", testDueAwaited},
		{"DueCounted", testDueCounted},

		// Tenants as a whole.
		{"Changed", testChanged},
		{"Atomicity", testAtomicity},
		{"Isolation", testIsolation},
		{"Drop", testDrop},

		// Archives, loads and rewrites.
		{"Archive", testArchive},
		{"ArchiveUnderWrites", testArchiveUnderWrites},
		{"ArchiveMoment", testArchiveMoment},
		{"ArchiveEnded", testArchiveEnded},
		{"LoadRefused", testLoadRefused},
		{"LoadChains", testLoadChains},
		{"LoadItems", testLoadItems},
		{"LoadGivenUp", testLoadGivenUp},
		{"Rewrite", testRewrite},
		{"Notes", testNotes},
		{"HeldBy", testHeldBy},
		{"ForgetCommands", testForgetCommands},

		// The end.
		{"Closed", testClosed},
		{"ClosedUnderReaders", testClosedUnderReaders},
		{"Extent", testExtent},
	})
}

// RunLong is the part of the suite that takes long under the race detector, and is sequential.
func RunLong(t *testing.T, open func(t *testing.T, env Env) store.Store) {
	t.Helper()
	run(t, open, []test{
		{"Histories", testHistories},
		{"Leaves", testLeaves},
		{"Limits", testLimits},
		{"ManyUnits", testManyUnits},
		{"Retag", testRetag},
		{"TaggedTypes", testTaggedTypes},
	})
}

// inGeneral returns a test of optional roles that uses their general implementations (store.Whole).
func inGeneral(of func(*suite)) func(*suite) {
	return func(s *suite) {
		of(&suite{t: s.t, open: func(t *testing.T, env Env) store.Store {
			t.Helper()
			return store.Whole(struct{ store.Engine }{s.open(t, env)})
		}})
	}
}

// testRoles calls the roles that may do nothing, and checks that an erasure ends a bulk write.
func testRoles(s *suite) {
	t := s.t
	f := s.fixture(t)
	commit(t, f, tenant, store.Append{Events: events(order("a"), "1")})
	done := f.DeferCompaction()
	p, err := f.BulkWrite(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Put(space, "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Purge(t.Context(), tenant, []j17.Key{order("a")}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(t.Context(), nil); !errors.Is(err, store.ErrEnded) {
		t.Errorf("a bulk write after an erasure: %v, want ErrEnded", err)
	}
	checked, err := f.CheckTables(t.Context(), "", 1<<30)
	if err != nil || checked.More || len(checked.Damaged) > 0 {
		t.Errorf("the files: %+v, %v", checked, err)
	}
	if err := f.Forget(t.Context()); err != nil {
		t.Error(err)
	}
	f.DiskBytes()
	f.FilterBytes()
	done()
}

// test is one test of the suite.
type test struct {
	name string
	run  func(*suite)
}

func run(t *testing.T, open func(t *testing.T, env Env) store.Store, tests []test) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(&suite{t: t, open: open})
		})
	}
}

// epoch is the time at which the clocks of the tests start.
func epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

const (
	tenant j17.Tenant  = "shop/prod"
	other  j17.Tenant  = "shop/test"
	space  store.Space = "notes"
)

// suite opens stores for one test.
type suite struct {
	t    *testing.T
	open func(t *testing.T, env Env) store.Store
	used atomic.Int64
}

// fixture is an open store and its clock.
type fixture struct {
	store.Store
	suite *suite
	env   Env
	clock *clock.Manual
}

func (s *suite) start(t *testing.T) *fixture {
	t.Helper()
	c := clock.NewManual(epoch())
	f := &fixture{suite: s, clock: c, env: Env{Clock: c, Data: fmt.Sprintf("%s/%d", t.Name(), s.used.Add(1))}}
	f.Store = s.open(t, f.env)
	return f
}

// fixture opens a store that is closed when the test ends.
func (s *suite) fixture(t *testing.T) *fixture {
	t.Helper()
	f := s.start(t)
	t.Cleanup(func() { f.stop(t) })
	return f
}

func (f *fixture) stop(t failer) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// reopen closes the store and opens it again.
func (f *fixture) reopen(t *testing.T, fail failer) {
	t.Helper()
	f.stop(fail)
	f.Store = f.suite.open(t, f.env)
}

// failer is what a *testing.T and a *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// worker is a test as seen by a goroutine that the test has started.
type worker struct{ *testing.T }

// Fatalf reports a failure and ends the goroutine.
func (w worker) Fatalf(format string, args ...any) {
	w.Helper()
	w.Errorf(format, args...)
	runtime.Goexit()
}

func order(id string) j17.Key { return j17.Key{Type: "order", ID: id} }

// event returns an event whose data is the JSON value data.
func event(key j17.Key, data string) store.NewEvent {
	return store.NewEvent{
		Key: key, Type: "was_changed", Data: []byte(data), Metadata: []byte(`{"actor":{"type":"user","id":"u1"}}`),
	}
}

func events(key j17.Key, data ...string) []store.NewEvent {
	list := make([]store.NewEvent, len(data))
	for i := range data {
		list[i] = event(key, data[i])
	}
	return list
}

func pre(key j17.Key, length uint64) store.Pre { return store.Pre{Key: key, Length: length} }

// appendUnit appends one unit and returns its result.
func appendUnit(t failer, s store.Store, tn j17.Tenant, u store.Append) store.Result {
	t.Helper()
	results, err := s.Append(t.Context(), tn, []store.Append{u})
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if len(results) != 1 {
		t.Fatalf("append: %d results for one unit", len(results))
	}
	return results[0]
}

// commit appends one unit that must be committed.
func commit(t failer, s store.Store, tn j17.Tenant, u store.Append) store.Result {
	t.Helper()
	r := appendUnit(t, s, tn, u)
	if r.Outcome != store.Committed {
		t.Fatalf("append: outcome %d with conflicts %v %v, want committed", r.Outcome, r.Streams, r.Sides)
	}
	return r
}

// record is a copy of an event that was read.
type record struct {
	ID        j17.StreamID
	Key       j17.Key
	Version   uint64
	Type      string
	Timestamp int64
	Raw       string
	Data      string
	Metadata  string
	Kept      string
}

func recordOf(e *j17.Event) record {
	return record{
		e.StreamID, e.Key, e.Version, e.Type, e.Timestamp, string(e.Raw), string(e.Data), string(e.Metadata),
		string(e.Kept),
	}
}

func readStream(t failer, s store.Store, tn j17.Tenant, key j17.Key, from, to uint64) []record {
	t.Helper()
	var list []record
	for e, err := range s.ReadStream(t.Context(), tn, key, from, to) {
		if err != nil {
			t.Fatalf("read %s from %d to %d: %v", key, from, to, err)
		}
		list = append(list, recordOf(e))
	}
	return list
}

func readFeed(t failer, s store.Store, tn j17.Tenant, after j17.StreamID, limit int) []record {
	t.Helper()
	var list []record
	for e, err := range s.ReadFeed(t.Context(), tn, after, limit) {
		if err != nil {
			t.Fatalf("read the feed after %s: %v", after, err)
		}
		list = append(list, recordOf(e))
	}
	return list
}

func readTagged(t failer, s store.Store, tn j17.Tenant, after j17.StreamID, limit int, tags ...string) []record {
	t.Helper()
	var list []record
	for e, err := range s.ReadTagged(t.Context(), tn, store.Tagged{Tags: tags}, after, limit, nil) {
		if err != nil {
			t.Fatalf("read %q after %s: %v", tags, after, err)
		}
		list = append(list, recordOf(e))
	}
	return list
}

// everything is a limit that no test reaches.
const everything = 1 << 30

func head(t failer, s store.Store, tn j17.Tenant, key j17.Key) store.Head {
	t.Helper()
	heads, err := s.Heads(t.Context(), tn, []j17.Key{key})
	if err != nil {
		t.Fatalf("heads: %v", err)
	}
	return heads[0]
}

func write(t failer, s store.Store, tn j17.Tenant, side ...store.Side) {
	t.Helper()
	if err := s.Write(t.Context(), tn, side); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func get(t failer, s store.Store, tn j17.Tenant, sp store.Space, key string) store.Item {
	t.Helper()
	item, err := s.Get(t.Context(), tn, sp, key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return item
}

func put(key, value string) store.Side {
	return store.Side{Op: store.Put, Space: space, Key: key, Value: []byte(value)}
}
