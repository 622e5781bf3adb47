package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// openBehind opens a store behind a proxy to a server, and returns it with a function that writes an item.
func openBehind(t *testing.T, server *pgtest.Server, p *pgtest.Proxy) (s *Store, write func() error) {
	t.Helper()
	s, err := Open(t.Context(), Options{
		Address: server.Address(p.Host()), Schema: server.Schema(t), Connections: LeastConnections, AllowSingle: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, func() error {
		return s.Write(t.Context(), "a/prod", []store.Side{{Op: store.Put, Space: "notes", Key: "k"}})
	}
}

// TestCommitsCounted counts batches, the units in them, and how long they take.
func TestCommitsCounted(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	s, write := openBehind(t, server, pgtest.NewProxy(t, server))
	begun, was := now(), s.Figures()
	const times = 5
	for range times {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	f, took := s.Figures(), now().Sub(begun)
	if f.Batches-was.Batches != times || f.Units-was.Units != times || f.Waits-was.Waits != times {
		t.Errorf("%d writes are counted as %+v, before %+v", times, f, was)
	}
	commits, waited := f.Commits-was.Commits, f.Waited-was.Waited
	if commits < time.Microsecond || waited <= 0 || commits+waited > took {
		t.Errorf("of %s, calls waited %s, and commits took %s", took, waited, commits)
	}

	// Units of one call share a batch. One that is refused was decided in it too.
	unit := store.Append{Side: []store.Side{{Op: store.Put, Space: "notes", Key: "k"}}}
	refused := unit
	refused.Fences = []store.Fence{{Space: "notes", Key: "k", Rev: 1 << 40}}
	for _, c := range []struct {
		units          []store.Append
		batches, count uint64
	}{{[]store.Append{unit, unit, refused}, 1, 3}, {[]store.Append{refused}, 0, 0}} {
		was = s.Figures()
		if _, err := s.Append(t.Context(), "a/prod", c.units); err != nil {
			t.Fatal(err)
		}
		f = s.Figures()
		if f.Batches-was.Batches != c.batches || f.Units-was.Units != c.count || f.Waits-was.Waits != 1 {
			t.Errorf("a call of %d units is counted as %+v, before %+v", len(c.units), f, was)
		}
	}
}

// TestDoubtsCounted cuts connections during commits: what callers are told about them is counted.
func TestDoubtsCounted(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	p := pgtest.NewProxy(t, server)
	s, write := openBehind(t, server, p)
	const commit = "UPDATE tenants x SET ver"
	if err := write(); err != nil {
		t.Fatal(err)
	}
	want := s.Figures()
	if want.Doubts != (store.Doubts{}) {
		t.Errorf("without a doubt, %+v are counted", want.Doubts)
	}
	for _, c := range []struct {
		at      pgtest.Point
		counted *uint64
	}{{pgtest.BeforeRequest, &want.Doubts.NotWritten}, {pgtest.DuringReply, &want.Doubts.Committed}} {
		*c.counted++
		want.Batches++ // that of the last try
		cut := p.CutNext(c.at, commit)
		if err := write(); err != nil {
			t.Fatal(err)
		}
		<-cut
		if f := s.Figures(); f.Doubts != want.Doubts || f.Batches != want.Batches {
			t.Errorf("after a cut: %+v in %d batches, want %+v in %d", f.Doubts, f.Batches, want.Doubts, want.Batches)
		}
	}

	// The caller of a commit has waited long enough, or the store ends while it waits.
	for _, c := range []struct {
		what string
		end  func()
	}{
		{"the longest wait", func() {
			s.primary.mu.Lock()
			search := s.primary.seek()
			s.primary.mu.Unlock()
			s.primary.miss(search)
		}},
		{"the end of the store", func() {
			ended, end := context.WithCancel(t.Context())
			end()
			_ = s.Shutdown(ended)
		}},
	} {
		held := hold(p, commit)
		written := make(chan error, 1)
		go func() { written <- write() }()
		<-held
		c.end()
		if err := <-written; !errors.Is(err, store.ErrUnknown) {
			t.Errorf("at %s, the write ends with %v, want ErrUnknown", c.what, err)
		}
		want.Doubts.Unknown++
		if f := s.Figures(); f.Doubts != want.Doubts {
			t.Errorf("after %s: %+v, want %+v", c.what, f.Doubts, want.Doubts)
		}
		if s.isClosed() {
			return
		}

		// Nobody waits any longer for the commit, which is counted as a batch when it ends.
		p.Resume()
		for err := write(); err != nil; err = write() {
			if !errors.Is(err, store.ErrBusy) || wait(t.Context(), retryAfter) != nil {
				t.Fatal(err)
			}
		}
		want.Batches += 2
		if f := s.Figures(); f.Doubts != want.Doubts || f.Batches != want.Batches {
			t.Errorf("after it: %+v in %d batches, want %+v in %d", f.Doubts, f.Batches, want.Doubts, want.Batches)
		}
	}
}

// hold holds everything from the next reply on to a statement with a text in it. The channel is closed then.
func hold(p *pgtest.Proxy, text string) <-chan struct{} {
	held := make(chan struct{})
	var once sync.Once
	p.Watch(func(trip pgtest.Trip) {
		if strings.Contains(strings.Join(trip.Statements, " "), text) {
			once.Do(func() {
				p.Pause()
				close(held)
			})
		}
	})
	return held
}

// measured makes the store measure its database now.
func measured(t *testing.T, s *Store) store.Figures {
	t.Helper()
	s.guard.measured.Store(&measurement{})
	if err := s.Look(); err != nil {
		t.Fatal(err)
	}
	return s.Figures()
}

// TestDatabaseMeasured measures the age of the oldest snapshot, and counts dead rows that it keeps.
func TestDatabaseMeasured(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := pgtest.NewProxy(t, server)
	s, write := openBehind(t, server, p)
	if err := write(); err != nil {
		t.Fatal(err)
	}
	m, err := s.Moment(t.Context(), "a/prod")
	if err != nil {
		t.Fatal(err)
	}

	// The age grows while the snapshot is open.
	begun := now()
	first := measured(t, s)
	second := measured(t, s)
	if first.Moments != 1 || first.OldestSnapshot <= 0 || second.OldestSnapshot <= first.OldestSnapshot ||
		second.OldestSnapshot-first.OldestSnapshot > now().Sub(begun) {
		t.Errorf("the snapshot is %s old, then %s", first.OldestSnapshot, second.OldestSnapshot)
	}

	// Its server keeps the old versions of rows. The statistics of a connection are sent at its next commit.
	before := second.DeadRows
	conn, err := s.dial(t.Context(), &s.counts.other)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for sql, times := range map[string]int{
		`UPDATE items SET rev = rev`: 5, `UPDATE tenants SET ver = ver`: 4, `UPDATE cluster SET beat = beat`: 3,
	} {
		for range times {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	const flush = `SELECT pg_stat_force_next_flush()`
	if _, err := conn.Exec(t.Context(), flush, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	dead := measured(t, s).DeadRows
	if dead.Items-before.Items != 5 || dead.Tenants-before.Tenants < 4 || dead.Other-before.Other < 3 ||
		dead.Events != 0 || dead.Tags != 0 || dead.Commands != 0 {
		t.Errorf("the dead rows are %+v, before %+v", dead, before)
	}

	// When it is closed, only what lasts for a moment is left.
	m.Close()
	for f := second; f.OldestSnapshot >= second.OldestSnapshot || f.Moments > 0; f = measured(t, s) {
		if t.Context().Err() != nil {
			t.Fatal("the snapshot stays open")
		}
	}

	// The database is asked once a minute, whoever looks at the figures or at the settings.
	var asked atomic.Int32
	p.Watch(func(trip pgtest.Trip) {
		if strings.Contains(strings.Join(trip.Statements, " "), "pg_stat_user_tables") {
			asked.Add(1)
		}
	})
	for range 3 {
		s.Figures()
		if err := s.Look(); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("it is asked %d times within the minute", n)
	}
	is := *s.guard.measured.Load()
	is.at = is.at.Add(-lookEvery)
	s.guard.measured.Store(&is)
	if err := s.Look(); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("it is asked %d times after the minute, want 1", n)
	}
}
