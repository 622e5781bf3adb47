package pgtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17/internal/storage/postgres/pgtest"
)

// insert inserts a number in a statement of its own. It reports whether that was acknowledged without a warning.
func insert(t *testing.T, address string, wait time.Duration, n int) (acknowledged bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	config, err := pgx.ParseConfig(address + "&target_session_attrs=read-write&connect_timeout=2")
	if err != nil {
		t.Fatal(err)
	}
	warned := false
	config.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { warned = true }
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "INSERT INTO kept VALUES ($1)", n)
	return err == nil && !warned
}

// TestCluster loses a primary, promotes the most advanced standby, and takes the old one back; then the new primary is
// only stopped, and both standbys go away.
func TestCluster(t *testing.T) {
	c := pgtest.StartCluster(t, 3)
	c.Primary().Exec(t, "CREATE TABLE kept (n int); GRANT ALL ON kept TO j17")
	write := func(n int) {
		t.Helper()
		if !insert(t, c.Address(), time.Minute, n) {
			t.Errorf("%d is not acknowledged", n)
		}
	}
	holds := func(want int) {
		t.Helper()
		if got := pgtest.Ask[int](t, c.Primary(), "SELECT count(*)::int FROM kept"); got != want {
			t.Errorf("the primary has %d rows, want %d", got, want)
		}
	}
	write(1)

	// The primary is killed.
	c.Servers[1].Stop(t)
	write(2)
	c.Servers[0].Kill9(t)
	c.Servers[1].Continue(t)
	c.Failover(t)
	holds(2)
	write(3)
	c.Rejoin(t, 0)
	write(4)

	// The primary is stopped, and wakes up when another has its place: there nothing is acknowledged any more.
	old := c.Primary()
	old.Stop(t)
	i := c.Failover(t)
	write(5)
	old.Continue(t)
	if insert(t, old.Address(), time.Second, -1) {
		t.Error("the old primary acknowledges commits that no standby has")
	}
	for j, s := range c.Servers {
		if s == old {
			c.Rejoin(t, j)
		}
	}
	holds(5)

	// Both standbys are away. A commit that waits for them is never acknowledged, although its session is ended.
	for j, s := range c.Servers {
		if j != i {
			s.Kill9(t)
		}
	}
	acknowledged := make(chan bool)
	go func() { acknowledged <- insert(t, c.Address(), time.Minute, 6) }()
	for c.Primary().Terminate(t, "wait_event='SyncRep'") == 0 {
		if t.Failed() {
			return
		}
	}
	if <-acknowledged {
		t.Error("a commit without a standby is acknowledged")
	}
	for j, s := range c.Servers {
		if j != i {
			s.Restart(t)
			c.Await(t, j)
		}
	}
	write(7)
	c.Primary().Restart(t)
	write(8)
}

// TestConfigure checks that a changed setting is there when Configure returns, and that it remains.
func TestConfigure(t *testing.T) {
	s := pgtest.Start(t)
	s.Configure(t, "synchronous_commit", "off")
	if got := pgtest.Ask[string](t, s, "SHOW synchronous_commit"); got != "off" {
		t.Errorf("it is %s", got)
	}
	s.Restart(t)
	if got := pgtest.Ask[string](t, s, "SHOW synchronous_commit"); got != "off" {
		t.Errorf("it is %s after a restart", got)
	}
	conn := connect(t, s.Address())
	s.Terminate(t, "usename='j17'")
	_, err := conn.Exec(t.Context(), "SELECT")
	if ended, ok := errors.AsType[*pgconn.PgError](err); !ok || ended.Code != "57P01" {
		t.Errorf("the session goes on: %v", err)
	}
}
