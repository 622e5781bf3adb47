package pgtest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/postgres/pgtest"
)

// TestProxyTrips counts the round trips of what a client does.
func TestProxyTrips(t *testing.T) {
	s := pgtest.Shared(t)
	p := pgtest.NewProxy(t, s)
	schema := s.Schema(t)
	var mu sync.Mutex
	var statements []string
	p.Watch(func(trip pgtest.Trip) {
		mu.Lock()
		defer mu.Unlock()
		statements = append(statements, trip.Statements...)
		if trip.Connection != 1 || trip.Sent == 0 || trip.Received == 0 {
			t.Errorf("%+v", trip)
		}
	})
	conn := connect(t, s.Address(p.Host()))
	if c := p.Count(); c.Connections != 1 || c.Trips != 0 || c.Sent == 0 || c.Received == 0 {
		t.Errorf("%+v has passed when the client has connected", c)
	}
	const sum = "SELECT $1::int + 1"
	for _, step := range []struct {
		name       string
		trips      int
		do         func() error
		statements []string
	}{
		{"simple", 1, func() error {
			_, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema+"; CREATE TABLE "+schema+".x (n int)")
			return err
		}, []string{"CREATE SCHEMA " + schema + "; CREATE TABLE " + schema + ".x (n int)"}},
		{"preparing", 2, func() error {
			_, err := conn.Exec(t.Context(), sum, 1)
			return err
		}, []string{sum}},
		{"prepared", 1, func() error {
			_, err := conn.Exec(t.Context(), sum, 1)
			return err
		}, []string{sum}},
		{"pipeline", 1, func() error {
			var b pgx.Batch
			for i := range 3 {
				b.Queue(sum, i)
			}
			return conn.SendBatch(t.Context(), &b).Close()
		}, []string{sum, sum, sum}},
		{"large", 1, func() error {
			_, err := conn.Exec(t.Context(), "SELECT repeat('x', 100000), generate_series(1, 20)")
			return err
		}, []string{"SELECT repeat('x', 100000), generate_series(1, 20)"}},
		{"copy", 2, func() error { // it asks for the columns first
			rows := pgx.CopyFromRows([][]any{{1}, {2}})
			_, err := conn.CopyFrom(t.Context(), pgx.Identifier{schema, "x"}, []string{"n"}, rows)
			return err
		}, []string{fmt.Sprintf(`copy "%s"."x" ( "n" ) from stdin binary;`, schema)}},
	} {
		before := p.Count().Trips
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := p.Count().Trips - before; got != step.trips {
			t.Errorf("%s takes %d round trips, want %d", step.name, got, step.trips)
		}
		mu.Lock()
		if !slices.Equal(statements, step.statements) {
			t.Errorf("%s executes %q, want %q", step.name, statements, step.statements)
		}
		statements = nil
		mu.Unlock()
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProxyCut cuts a connection at each point of a round trip, and looks at what the server has stored and the client
// knows of it.
func TestProxyCut(t *testing.T) {
	s := pgtest.Shared(t)
	p := pgtest.NewProxy(t, s)
	schema := s.Schema(t)
	table := schema + ".kept"
	s.Exec(t, "CREATE SCHEMA "+schema+" AUTHORIZATION j17; CREATE TABLE "+table+" (n int)")
	s.Exec(t, "GRANT ALL ON "+table+" TO j17")
	for n, c := range []struct {
		name            string
		at              pgtest.Point
		prepared        bool
		told, committed bool
	}{
		{"BeforeRequest", pgtest.BeforeRequest, false, false, false},
		{"BeforeReply", pgtest.BeforeReply, false, false, true},
		{"DuringReply", pgtest.DuringReply, false, false, true},
		{"AfterReply", pgtest.AfterReply, false, true, true},
		{"BeforeRequestPrepared", pgtest.BeforeRequest, true, false, false},
		{"BeforeReplyPrepared", pgtest.BeforeReply, true, false, true},
		{"DuringReplyPrepared", pgtest.DuringReply, true, false, true},
		{"AfterReplyPrepared", pgtest.AfterReply, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := connect(t, s.Address(p.Host()))
			insert := fmt.Sprintf("INSERT INTO %s SELECT %d WHERE $1", table, n)
			args := []any{true}
			if c.prepared {
				if _, err := conn.Exec(t.Context(), insert, false); err != nil {
					t.Fatal(err)
				}
			} else {
				args = slices.Insert(args, 0, any(pgx.QueryExecModeSimpleProtocol))
			}
			done := p.CutNext(c.at, "INSERT")
			if _, err := conn.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Fatalf("another statement: %v", err)
			}
			_, err := conn.Exec(t.Context(), insert, args...)
			if (err == nil) != c.told {
				t.Errorf("the client got %v", err)
			}
			<-done
			if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
				t.Error("the connection is not cut")
			}

			// A server may still be at it; who waits for its lock waits for that.
			got := 0
			for range 1000 {
				s.Exec(t, "BEGIN; LOCK TABLE "+table+"; COMMIT")
				got = pgtest.Ask[int](t, s, "SELECT count(*)::int FROM "+table+" WHERE n=$1", n)
				if got > 0 || !c.committed {
					break
				}
			}
			if (got == 1) != c.committed {
				t.Errorf("%d rows are stored", got)
			}
		})
	}
}

// TestProxyPause checks that nothing passes while the proxy holds it, and that all connections can be cut meanwhile.
func TestProxyPause(t *testing.T) {
	s := pgtest.Shared(t)
	p := pgtest.NewProxy(t, s)
	for _, goOn := range []func(){p.Resume, p.CutAll} {
		conn := connect(t, s.Address(p.Host()))
		p.Pause()
		before := p.Count()
		answered := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), "SELECT 1")
			answered <- err
		}()
		for p.Count().Trips == before.Trips {
			if t.Context().Err() != nil {
				return
			}
		}
		select {
		case err := <-answered:
			t.Errorf("there is an answer while the proxy pauses: %v", err)
		default:
		}
		if c := p.Count(); c.Sent != before.Sent {
			t.Error("something has passed")
		}
		goOn()
		err := <-answered
		if p.Resume(); (err == nil) != (conn.Ping(t.Context()) == nil) {
			t.Errorf("the answer is %v", err)
		}
	}
}

// TestProxyPlain checks that a client which prefers encryption is told that there is none.
func TestProxyPlain(t *testing.T) {
	s := pgtest.Shared(t)
	address := s.Address(pgtest.NewProxy(t, s).Host())
	conn := connect(t, strings.Replace(address, "sslmode=disable", "sslmode=prefer", 1))
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := pgx.Connect(t.Context(), strings.Replace(address, "sslmode=disable", "sslmode=require", 1))
	if err == nil || !strings.Contains(err.Error(), "refused TLS") {
		t.Errorf("%v", err)
	}
}
