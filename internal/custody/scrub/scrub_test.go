package scrub_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/scrub"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const tenant = j17.Tenant("ins_test/prod")

// waitless is a clock on which whoever waits has waited already.
type waitless struct{ *clock.Manual }

// Wait moves the clock to where it is waited for.
func (h waitless) Wait(ctx context.Context, until time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d := until.Sub(h.Now()); d > 0 {
		h.Advance(d)
	}
	return nil
}

// fixture is a store and what looks for damage in it.
type fixture struct {
	data  *testopen.Data
	clock *clock.Manual
	store store.Store
	// committed is how many events the service is told to have been written.
	committed uint64
	logs      *envlog.Service
	log       bytes.Buffer
	// whole counts how often the leaves of an environment were read from its beginning on.
	whole int
	*scrub.Service
}

// counting is a store that counts who begins to read all leaves of an environment.
type counting struct {
	store.Store
	whole *int
}

// ReadLeaves reads leaves.
func (c counting) ReadLeaves(
	ctx context.Context, t j17.Tenant, after j17.StreamID, limit int,
) iter.Seq2[store.Leaf, error] {
	if after == (j17.StreamID{}) {
		*c.whole++
	}
	return c.Store.ReadLeaves(ctx, t, after, limit)
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, testopen.NewData(t))
}

func newFixtureOn(t *testing.T, data *testopen.Data) *fixture {
	t.Helper()
	f := &fixture{data: data, clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	f.open(t)
	return f
}

// open opens the store, with services that know nothing yet.
func (f *fixture) open(t *testing.T) {
	t.Helper()
	f.store = f.data.Open(t, f.clock)
	logger := slog.New(slog.NewTextHandler(&f.log, nil))
	kit := worker.New(f.clock, logger)
	f.logs = envlog.New(envlog.Options{
		Store: counting{f.store, &f.whole}, Clock: f.clock, Worker: kit,
		Origin: func(t j17.Tenant) (string, error) { return string(t), nil },
	})
	f.Service = scrub.New(scrub.Options{
		Store: f.store, Log: f.logs, Clock: waitless{f.clock}, Logger: logger, Worker: kit,
		Committed: func() uint64 { return f.committed },
		Spaces: slices.Concat(
			f.logs.Part().Spaces, (*checkpoint.Service)(nil).Part().Spaces,
			[]part.Space{{Declared: store.Declared{Space: "void"}, Void: true}},
		),
	})
}

func (f *fixture) close(t *testing.T) {
	t.Helper()
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
}

// write writes events to streams, in units of four.
func (f *fixture) write(t *testing.T, n int) {
	t.Helper()
	const metadata = `{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}`
	for i := 0; i < n; i += 4 {
		var unit store.Append
		for j := range 4 {
			unit.Events = append(unit.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: fmt.Sprint((i + j) % 37)}, Type: "was_made",
				Data: []byte(fmt.Sprintf(`{"n":%d}`, i+j)), Metadata: []byte(metadata),
				Tags: j17.MetadataTags([]byte(metadata)),
			})
		}
		unit.Side = []store.Side{{Op: store.Put, Space: "work", Key: fmt.Sprint(i), Value: []byte("v")}}
		if _, err := f.store.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
			t.Fatal(err)
		}
	}
}

// pass looks at everything once.
func (f *fixture) pass(t *testing.T) scrub.Status {
	t.Helper()
	before := f.Status().Pass.Number
	f.Begin()
	for range 10_000 {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := f.Status(); st.Phase == "idle" && st.Pass.Number > before && !st.Pass.EndedAt.IsZero() {
			return st
		}
	}
	t.Fatal("a pass has no end")
	return scrub.Status{}
}

// TestWholeDataHaveNoDamage looks at a store that is as it should be, with an erased event and a long stream, and goes
// on after the end of its process where it was.
func TestWholeDataHaveNoDamage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, 1200)
	if _, err := f.store.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: j17.Key{Type: "order", ID: "3"}, Events: []store.Rewritten{
			{Version: 2, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
		},
	}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.logs.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	st := f.pass(t)
	if len(st.Damaged) > 0 || st.Pass.Events < 1200 || st.Pass.Streams < 37 || st.Pass.Items < 300 ||
		st.Pass.Bytes == 0 {
		t.Errorf("after a pass: %+v", st)
	}

	// In the middle of the next one.
	f.Begin()
	for range 3 {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := f.Run(ctx); err != nil {
		t.Fatal(err)
	}
	was := f.Status()
	f.close(t)
	f.open(t)
	if err := f.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := f.Status(); now.Pass.Number != was.Pass.Number ||
		now.Pass.Events+now.Pass.Items < was.Pass.Events+was.Pass.Items || now.Last == nil {
		t.Errorf("it was %+v, and is %+v", was, now)
	}
	if st := f.pass(t); len(st.Damaged) > 0 {
		t.Errorf("after all: %+v", st)
	}
}

// large is a store that has one file of 64 MiB.
type large struct{ store.Store }

// CheckTables finds nothing in it.
func (large) CheckTables(context.Context, string, int64) (store.TablesChecked, error) {
	return store.TablesChecked{Tables: 1, Bytes: 64 << 20}, nil
}

// TestALargeFileIsPaidFor looks at a file of 64 MiB in one go: what comes after it waits as long as for 64 files of 1
// MiB.
func TestALargeFileIsPaidFor(t *testing.T) {
	f := newFixture(t)
	f.Service = scrub.New(scrub.Options{
		Store: large{f.store}, Log: f.logs, Clock: waitless{f.clock}, Logger: slog.New(slog.DiscardHandler),
		Worker: worker.New(f.clock, slog.New(slog.DiscardHandler)), Committed: func() uint64 { return 0 },
	})
	for f.Status().Pass.Tables == 0 {
		began := f.clock.Now()
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := f.clock.Now().Sub(began); f.Status().Pass.Tables == 1 && took != 16*time.Second {
			t.Errorf("the next round begins after %v, want 16 s", took)
		}
	}
}

// TestItStandsBackForWriters looks at events while others are written: the next ones are looked at later.
func TestItStandsBackForWriters(t *testing.T) {
	f := newFixture(t)
	f.write(t, 4000)
	f.Begin()
	var pauses []time.Duration
	for f.Status().Pass.Events < 2000 {
		began, before := f.clock.Now(), f.Status().Pass.Events
		if f.committed += 63; before > 1000 {
			f.committed++
		}
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if before > 0 {
			pauses = append(pauses, f.clock.Now().Sub(began))
		}
	}
	if first, last := pauses[0], pauses[len(pauses)-1]; first != 250*time.Millisecond || last != 2*time.Second {
		t.Errorf("rounds follow each other after %v and, while much is written, %v; want 250 ms and 2 s", first, last)
	}
}

// TestAnEnvironmentMadeAnewIsNoDamage removes an environment while a stream of it is looked at, and makes it again with
// other events under the same keys: what was seen of the first one does not count.
func TestAnEnvironmentMadeAnewIsNoDamage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	fill := func(n int, text string) {
		t.Helper()
		for i := range n {
			unit := store.Append{Events: []store.NewEvent{{
				Key: j17.Key{Type: "order", ID: "long"}, Type: "was_made", Data: fmt.Appendf(
					nil, `{"n":%d,"text":%q}`, i, strings.Repeat(text, 30_000),
				), Metadata: []byte("{}"),
			}}}
			if _, err := f.store.Append(t.Context(), tenant, []store.Append{unit}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(80, "a")
	before := f.Status().Pass.Number
	f.Begin()
	for f.Status().Pass.Number == before || f.Status().Pass.Events == 0 {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if st := f.Status(); st.Pass.Streams > 0 {
		t.Fatalf("the stream was looked at as a whole: %+v", st)
	}
	if err := f.store.DropTenant(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	fill(90, "b")
	if _, err := f.logs.Upkeep(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for f.Status().Phase != "idle" {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if st := f.Status(); len(st.Damaged) > 0 || st.Pass.Streams != 1 || st.Pass.Events < 91 {
		t.Errorf("after the pass: %+v", st)
	}
}

// TestVoidItemsAreRemoved looks at items without a value of a space in which these say nothing: they go, and others
// stay.
func TestVoidItemsAreRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var sides []store.Side
	for i := range 1200 {
		sides = append(sides, store.Side{Op: store.Put, Space: "void", Key: fmt.Sprint(i)})
	}
	sides = append(
		sides, store.Side{Op: store.Put, Space: "void", Key: "held", Value: []byte("by somebody")},
		store.Side{Op: store.Put, Space: "marks", Key: "done"},
	)
	if err := f.store.Write(t.Context(), tenant, sides); err != nil {
		t.Fatal(err)
	}
	if st := f.pass(t); len(st.Damaged) > 0 {
		t.Errorf("after the pass: %+v", st)
	}
	for space, want := range map[store.Space]int{"void": 1, "marks": 1} {
		if n, err := f.store.Count(t.Context(), tenant, space, store.Range{}, 2000); err != nil || n != want {
			t.Errorf("%s: %d, %v", space, n, err)
		}
	}
}

// TestEndsWhileOthersWrite looks at an environment to which more is written, as long as it is looked at, than a round
// looks at: the pass ends, and finds nothing.
func TestEndsWhileOthersWrite(t *testing.T) {
	t.Parallel()
	const rate, before = 300, 250
	f := newFixture(t)
	f.write(t, before)
	f.Begin()
	began, written := f.clock.Now(), 0
	for f.Status().Pass.EndedAt.IsZero() && f.clock.Now().Sub(began) < 5*time.Minute {
		if err := f.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if due := int(f.clock.Now().Sub(began).Seconds() * rate); due > written {
			f.write(t, due-written)
			f.committed += uint64(due - written)
			written = due
		}
	}
	if st := f.Status(); st.Pass.EndedAt.IsZero() || st.Pass.Events < before || len(st.Damaged) > 0 {
		t.Errorf("%s, ended at %s, %d of %d events looked at, found %v", st.Phase, st.Pass.EndedAt, st.Pass.Events, written+before, st.Damaged)
	}
}

// full is a store without room.
type full struct{ store.Store }

func (full) Write(context.Context, j17.Tenant, []store.Side, ...store.Fence) error {
	return store.ErrFull
}

// TestAFullDiskIsNoFailureOfTheEnd ends the service where its state cannot be stored: the server has stopped in order
// all the same.
func TestAFullDiskIsNoFailureOfTheEnd(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := scrub.New(scrub.Options{
		Store: full{f.store}, Log: f.logs, Clock: waitless{f.clock}, Logger: logger,
		Worker:    worker.New(f.clock, logger),
		Committed: func() uint64 { return 0 },
	})
	if err := s.Round(t.Context()); err != nil && !strings.Contains(err.Error(), store.ErrFull.Error()) {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended); err != nil {
		t.Errorf("the end failed: %v", err)
	}
	if !strings.Contains(log.String(), "could not be stored") {
		t.Errorf("nothing was said of it: %s", &log)
	}
}
