package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// onCluster opens a store on a cluster.
func onCluster(t *testing.T, c *pgtest.Cluster) *postgres.Store {
	t.Helper()
	return open(t, postgres.Options{Address: c.Address(), Connections: postgres.LeastConnections})
}

// closeStore closes a store before its servers end.
func closeStore(t *testing.T, s *postgres.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// failoverTime is how long writes may be interrupted after a standby was promoted.
const failoverTime = 2 * time.Second

// resumes measures the time from promoted until more than before units are acknowledged.
func (l *load) resumes(promoted time.Time, before int) time.Duration {
	l.t.Helper()
	l.await("a unit after the promotion", func() bool { return l.acked > before && l.last.After(promoted) })
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.Sub(promoted)
}

// TestPrimaryKilled kills the primary under load and promotes the most advanced standby: nothing is lost or duplicated,
// no read returns an earlier state, and writes resume by themselves.
func TestPrimaryKilled(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 3)
	s := onCluster(t, c)
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(8, 3)
	for round := range rounds(2, 10) {
		l.more(100)
		killed := 0
		for i, server := range c.Servers {
			if server == c.Primary() {
				killed = i
			}
		}
		c.Primary().Kill9(t)
		c.Failover(t)
		promoted := time.Now()
		acked, _, _ := l.counts()
		took := l.resumes(promoted, acked)
		t.Logf("round %d: writes went on %s after the promotion", round, took)
		if took > failoverTime {
			t.Errorf("writes stood still for %s", took)
		}
		c.Rejoin(t, killed)
	}
	l.more(100)
	units := l.check(c.Primary())
	acked, busy, unknown := l.counts()
	t.Logf("%d units, %d acknowledged, %d busy, %d unknown, the slowest took %s", units, acked, busy, unknown, l.slowest)
	if unknown > 0 || busy > 0 {
		t.Error("callers did not wait for the failover")
	}
}

// TestWaitInterrupted cancels and terminates sessions that wait for a standby while there is none. What they have
// written is visible on the primary then, but the store neither acknowledges nor shows it until a standby is back. If
// the primary is lost instead, callers that retry write once.
func TestWaitInterrupted(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancelled", "ended"} {
		for _, then := range []string{"the standbys return", "the primary is lost"} {
			t.Run(how+", "+then, func(t *testing.T) {
				t.Parallel()
				waitInterrupted(t, how == "ended", then == "the primary is lost")
			})
		}
	}
}

func waitInterrupted(t *testing.T, end, lose bool) {
	t.Helper()
	c := pgtest.StartCluster(t, 3)
	s := onCluster(t, c)
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(1, 0)
	l.more(5)
	l.end()

	// A writer waits for standbys that do not answer.
	c.Servers[1].Stop(t)
	c.Servers[2].Stop(t)
	acked, _, _ := l.counts()
	w := l.begin()
	w.again = true
	l.stopped, l.stop = context.WithCancel(t.Context())
	l.working.Go(func() { l.write(w) })
	interrupt := c.Primary().Cancel
	if end {
		interrupt = c.Primary().Terminate
	}
	waits := "wait_event='SyncRep' AND query LIKE '%UPDATE tenants x%'"
	for interrupt(t, waits) == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}

	// On the primary the write is visible.
	seen := "SELECT count(*)::int FROM j17.items WHERE key = '" + itoa(w.number) + "'"
	for pgtest.Ask[int](t, c.Primary(), seen) == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}

	// The store does not show it, whichever connection it reads with.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for range 3 {
		if heads, err := s.Heads(ctx, w.tenant, w.keys()); err == nil {
			t.Errorf("a read shows %+v, of which no standby has everything", heads)
		}
	}
	if now, _, _ := l.counts(); now != acked {
		t.Error("a commit that no standby has was acknowledged")
	}

	if lose {
		c.Primary().Kill9(t)
		c.Servers[1].Continue(t)
		c.Servers[2].Continue(t)
		c.Failover(t)
	} else {
		c.Servers[1].Continue(t)
		c.Servers[2].Continue(t)
	}
	l.await("the unit", func() bool { return w.told == stored })
	if _, err := s.Heads(t.Context(), w.tenant, w.keys()); err != nil {
		t.Error(err)
	}
	l.start(2, 1)
	l.more(5)
	l.check(c.Primary())
}

// TestRestartedAlone restarts the primary while both standbys are down. It then shows commits that were waiting for
// them, but readers of the store must not see these before a standby has them.
func TestRestartedAlone(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 3)
	s := onCluster(t, c)
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(4, 2)
	l.more(20)
	c.Servers[1].Kill9(t)
	c.Servers[2].Kill9(t)
	waiting := "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event='SyncRep' AND query LIKE '%UPDATE tenants x%'" +
		" AND NOT EXISTS (SELECT FROM pg_stat_replication)" // which might still have an answer
	for pgtest.Ask[int](t, c.Primary(), waiting) == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}
	acked, _, _ := l.counts()
	c.Primary().Restart(t)

	// It shows more units than were acknowledged.
	shown := pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM j17.items")
	if shown <= acked {
		t.Fatalf("the primary shows %d units, and %d were acknowledged: the test shows nothing", shown, acked)
	}
	l.await("what cannot be told", func() bool { return l.unknown > 0 })
	looked := 0
	l.await("readers that are refused", func() bool { looked = l.looked; return l.busy > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, tenant := range l.tenants {
		if extent, err := s.Extent(ctx, tenant); err == nil {
			t.Errorf("a read shows %d events of %s, which no standby may have", extent.Events, tenant)
		}
	}
	if now, _, _ := l.counts(); now != acked {
		t.Errorf("%d units were acknowledged while there was no standby", now-acked)
	}

	// A standby returns.
	c.Servers[1].Restart(t)
	l.more(20)
	l.await("reads", func() bool { return l.looked > looked })
	l.check(c.Primary())
}

// TestStandbysAway stops both standbys for longer than callers wait, and restarts them: nothing is acknowledged
// meanwhile, waiting callers are told the truth, and writes resume by themselves.
func TestStandbysAway(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 3)
	s := onCluster(t, c)
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(8, 2)
	for range rounds(1, 3) {
		l.more(50)
		c.Servers[1].Kill9(t)
		c.Servers[2].Kill9(t)

		// Commits in progress by now either reached a standby, or are not acknowledged without one.
		for pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event='SyncRep'") == 0 {
			pause(t.Context(), 10*time.Millisecond)
		}
		acked, busy, unknown := l.counts()
		l.await("what is refused and what is not known", func() bool { return l.unknown > unknown && l.busy > busy })
		if s.Status().Writable {
			t.Error("the store says that it can be written to")
		}
		barrier := make(chan error, 1)
		go func() { barrier <- s.Barrier(t.Context()) }()
		used := pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM pg_stat_activity WHERE usename='j17'")
		pause(t.Context(), time.Duration(rounds(2, 18))*time.Second)
		if now := pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM pg_stat_activity WHERE usename='j17'"); now > used+4 {
			t.Errorf("connections pile up: %d, after %d", now, used)
		}
		if now, _, _ := l.counts(); now != acked {
			t.Errorf("%d units were acknowledged without a standby", now-acked)
		}
		select {
		case err := <-barrier:
			t.Errorf("the barrier has ended with %v while commits are under way", err)
		default:
		}

		// One of them is enough.
		c.Servers[2].Restart(t)
		c.Await(t, 2)
		if err := <-barrier; err != nil {
			t.Error(err)
		}
		l.more(50)
		c.Servers[1].Restart(t)
		c.Await(t, 1)
	}
	l.check(c.Primary())
	acked, busy, unknown := l.counts()
	t.Logf("%d acknowledged, %d busy, %d unknown, the slowest took %s", acked, busy, unknown, l.slowest)
	if l.slowest > 25*time.Second {
		t.Errorf("a caller has waited for %s", l.slowest)
	}
}

// TestOldPrimaryWakes pauses the primary, promotes a standby, and continues the old one: no commit is acknowledged
// there, and the store works with the new one.
func TestOldPrimaryWakes(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 3)
	s := onCluster(t, c)
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(8, 3)
	for round := range rounds(2, 6) {
		l.more(50)
		old, number := c.Primary(), 0
		for i, server := range c.Servers {
			if server == old {
				number = i
			}
		}
		old.Stop(t)
		c.Failover(t)
		promoted := time.Now()
		if round%2 == 1 {
			old.Continue(t) // before the store may have found out
		}
		acked, _, _ := l.counts()
		took := l.resumes(promoted, acked)
		t.Logf("round %d: writes went on %s after the promotion", round, took)
		if round%2 == 0 {
			old.Continue(t)
		}

		// A commit waits there forever.
		before := pgtest.Ask[int](t, old, "SELECT count(*)::int FROM j17.items")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if commits(ctx, t, old) {
			t.Error("the old primary acknowledges a commit")
		}
		cancel()
		l.more(50)
		if after := pgtest.Ask[int](t, old, "SELECT count(*)::int FROM j17.items"); after > before {
			t.Errorf("%d units were written to the old primary", after-before)
		}
		c.Rejoin(t, number)
	}
	l.check(c.Primary())
	acked, busy, unknown := l.counts()
	t.Logf("%d acknowledged, %d busy, %d unknown, the slowest took %s", acked, busy, unknown, l.slowest)
}

// TestServerStops pauses a server for longer than callers wait: they are told that nothing was written or that the
// outcome is unknown, and a barrier waits until it is known.
func TestServerStops(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := open(t, postgres.Options{
		Address: server.Address(), AllowSingle: true, Connections: postgres.LeastConnections,
	})
	defer closeStore(t, s)
	l := newLoad(t, s)
	l.start(8, 2)
	for range rounds(1, 3) {
		l.more(50)
		_, busy, unknown := l.counts()
		unlock := lockTenants(t, server)
		server.Stop(t)
		l.await("what is refused and what is not known", func() bool { return l.unknown > unknown && l.busy > busy })
		barrier := make(chan error, 1)
		go func() { barrier <- s.Barrier(t.Context()) }()
		pause(t.Context(), time.Second)
		select {
		case err := <-barrier:
			t.Errorf("the barrier has ended with %v while commits are under way", err)
		default:
		}
		server.Continue(t)
		unlock()
		if err := <-barrier; err != nil {
			t.Error(err)
		}
		l.settled()
		l.more(50)
	}
	l.check(server)
	acked, busy, unknown := l.counts()
	t.Logf("%d acknowledged, %d busy, %d unknown, the slowest took %s", acked, busy, unknown, l.slowest)
	if l.slowest > 25*time.Second {
		t.Errorf("a caller has waited for %s", l.slowest)
	}
}

// lockTenants makes commits wait until unlock is called, and returns when one waits.
func lockTenants(t *testing.T, s *pgtest.Server) (unlock func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.Superuser())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE j17.tenants IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	waiting := "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type='Lock' AND query LIKE '%UPDATE tenants x%'"
	for pgtest.Ask[int](t, s, waiting) == 0 {
		pause(t.Context(), 10*time.Millisecond)
	}
	return func() { _ = conn.Close(t.Context()) }
}

// settled reads the outcome of units for which it was not known when the barrier began. It must not change later.
func (l *load) settled() {
	l.t.Helper()
	l.mu.Lock()
	var list []*written
	for _, w := range l.units {
		if w.told == unknown && !w.again {
			list = append(list, w)
		}
	}
	l.mu.Unlock()
	there := map[int]bool{}
	for _, w := range list {
		_, err := l.store.Load().Get(l.t.Context(), w.tenant, "notes", itoa(w.number))
		for errors.Is(err, store.ErrBusy) {
			pause(l.t.Context(), 10*time.Millisecond)
			_, err = l.store.Load().Get(l.t.Context(), w.tenant, "notes", itoa(w.number))
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			l.t.Errorf("unit %d: %v", w.number, err)
		}
		there[w.number] = err == nil
	}
	l.t.Cleanup(func() {
		for n, was := range there {
			if l.found != nil && l.found[n] != was {
				l.t.Errorf("unit %d changed its fate behind a barrier", n)
			}
		}
	})
}
