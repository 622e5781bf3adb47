package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Cluster is a primary and its standbys. A commit is acknowledged when one of the standbys has it on disk.
type Cluster struct {
	// Servers are named s0, s1 and so on. The first one is primary until another is promoted.
	Servers []*Server
	primary int
}

// StartCluster starts a primary and n-1 standbys for one test, with settings beside the usual ones. Each server keeps
// 128 MB of the log (wal_keep_size) for standbys that are away. Without PostgreSQL the test is skipped; see Skip.
func StartCluster(tb testing.TB, n int, settings ...string) *Cluster {
	tb.Helper()
	Skip(tb)
	c := &Cluster{Servers: make([]*Server, n)}
	var names []string
	for i := range n {
		names = append(names, c.name(i))
	}
	settings = append([]string{
		fmt.Sprintf("synchronous_standby_names='ANY 1 (%s)'", strings.Join(names, ", ")), "wal_keep_size=128MB",
		"wal_retrieve_retry_interval=100ms",
	}, settings...)
	if err := atHome(tb.Context(), func(h *home) (err error) {
		if c.Servers[0], err = h.newServer(tb.Context(), c.name(0), settings...); err != nil {
			return err
		}
		for i := range c.Servers[1:] {
			if c.Servers[i+1], err = h.place(c.name(i + 1)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		tb.Fatal("the primary does not start: ", err)
	}
	tb.Cleanup(func() {
		for _, s := range c.Servers {
			s.remove(tb)
		}
	})
	for i := range c.Servers[1:] {
		c.Rejoin(tb, i+1)
	}
	return c
}

func (*Cluster) name(i int) string { return fmt.Sprintf("s%d", i) }

// Primary returns the server that was promoted last.
func (c *Cluster) Primary() *Server { return c.Servers[c.primary] }

// Address returns an address with all servers for the role with few rights.
func (c *Cluster) Address() string {
	hosts := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		hosts[i] = s.Host()
	}
	return c.Primary().Address(hosts...)
}

// standbys are the numbers of the servers that follow a primary and answer.
func (c *Cluster) standbys() (numbers []int) {
	for i, s := range c.Servers {
		if i != c.primary && s.running() {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// MostAdvanced returns the number of the standby that has most of the log, among those that run. No standby receives
// more of it from then on, until one is promoted.
func (c *Cluster) MostAdvanced(tb testing.TB) int {
	tb.Helper()
	best, most := -1, int64(-1)
	for _, i := range c.standbys() {
		s := c.Servers[i]
		s.Configure(tb, "primary_conninfo", "")
		if err := await(tb.Context(), func() (bool, error) {
			return ask[bool](tb.Context(), s, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
		}); err != nil {
			tb.Fatalf("%s goes on to receive: %v", s.name, err)
		}
		has := Ask[int64](
			tb, s, "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')::bigint",
		)
		if has > most {
			best, most = i, has
		}
	}
	if best < 0 {
		tb.Fatal("no standby runs")
	}
	return best
}

// Promote makes a standby the primary, and lets the other standbys that run follow it. They must not have more of the
// log than it: see MostAdvanced. Nothing is done to the old primary, which has to be ended or stopped before, and may
// come back by Rejoin.
func (c *Cluster) Promote(tb testing.TB, i int) {
	tb.Helper()
	if !Ask[bool](tb, c.Servers[i], "SELECT pg_promote(true, 60)") {
		tb.Fatalf("%s is not promoted", c.Servers[i].name)
	}
	others := c.standbys()
	c.primary = i
	for _, other := range others {
		if other != i {
			c.Servers[other].Configure(tb, "primary_conninfo", c.Primary().connection())
		}
	}
}

// Failover promotes the most advanced of the standbys that run, and returns its number.
func (c *Cluster) Failover(tb testing.TB) int {
	tb.Helper()
	i := c.MostAdvanced(tb)
	c.Promote(tb, i)
	return i
}

// Rejoin makes a server a standby of the primary, with a copy of the primary's data in place of its own, and returns
// when it has all of the log. What was left of it is ended.
func (c *Cluster) Rejoin(tb testing.TB, i int) {
	tb.Helper()
	s := c.Servers[i]
	if s.process != nil {
		s.end(tb, syscall.SIGQUIT)
	}
	if err := s.follow(tb.Context(), c.Primary()); err != nil {
		tb.Fatalf("%s cannot become a standby: %v", s.name, err)
	}
	c.Await(tb, i)
}

// Await returns when a standby has all of the log that the primary has at the moment, and commits may wait for it.
func (c *Cluster) Await(tb testing.TB, i int) {
	tb.Helper()
	at := Ask[string](tb, c.Primary(), "SELECT pg_current_wal_flush_lsn()::text")
	if err := await(tb.Context(), func() (bool, error) {
		return ask[bool](
			tb.Context(), c.Primary(),
			"SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name=$1 AND state='streaming' AND sync_state='quorum' AND flush_lsn>=$2::text::pg_lsn)",
			c.Servers[i].name, at,
		)
	}); err != nil {
		tb.Fatalf("%s does not follow: %v", c.Servers[i].name, err)
	}
}

// follow starts the server on a copy of the data of a primary.
func (s *Server) follow(ctx context.Context, primary *Server) error {
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	if _, err := s.home.run(
		ctx, "", "pg_basebackup", "-D", s.data(), "-d", primary.connection(), "-c", "fast", "--write-recovery-conf",
		"--no-sync",
	); err != nil {
		return err
	}
	if s.port == 0 {
		return s.startSomewhere(ctx)
	}
	return s.start(ctx)
}

// connection is how a standby connects to the server.
func (s *Server) connection() string {
	host, port, _ := net.SplitHostPort(s.Host())
	return fmt.Sprintf("host=%s port=%s user=%s password=%s sslmode=disable", host, port, superuser, s.home.superuser)
}
