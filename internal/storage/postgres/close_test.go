package postgres_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// TestCloseWhileGone closes a store under load whose server does not answer or has ended. Close returns in bounded
// time, all callers are answered, and no goroutine is left. It is not parallel, since it looks at all goroutines.
func TestCloseWhileGone(t *testing.T) {
	stop := func(t *testing.T, s *pgtest.Server) { t.Helper(); s.Stop(t) }
	kill := func(t *testing.T, s *pgtest.Server) { t.Helper(); s.Kill9(t) }
	for _, c := range []struct {
		name  string
		gone  func(t *testing.T, s *pgtest.Server)
		limit time.Duration // of Shutdown, 0 for Close
		most  time.Duration
	}{
		{"stopped", stop, 0, 20 * time.Second},
		{"killed, in a hurry", kill, time.Second, 5 * time.Second},
		{"killed", kill, 0, 20 * time.Second},
		{"stopped, in a hurry", stop, time.Second, 5 * time.Second},
	}[:rounds(2, 4)] {
		t.Run(c.name, func(t *testing.T) {
			server := pgtest.Start(t)
			before := ofStore()
			s := open(t, postgres.Options{
				Address: server.Address(), AllowSingle: true, Connections: postgres.LeastConnections,
			})
			l := newLoad(t, s)
			l.start(8, 3)
			l.more(20)
			m, err := s.Moment(t.Context(), l.tenants[0])
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			unlock := lockTenants(t, server)
			defer unlock()
			c.gone(t, server)

			begun := time.Now()
			if c.limit == 0 {
				err = s.Close()
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				if err = s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
			}
			if took := time.Since(begun); err != nil || took > c.most {
				t.Errorf("the store is closed after %s with %v", took, err)
			}
			l.end()
			acked, busy, unknown := l.counts()
			t.Logf("%s; %d acknowledged, %d busy, %d unknown", time.Since(begun), acked, busy, unknown)
			if _, err := s.Heads(t.Context(), l.tenants[0], (&written{}).keys()); !errors.Is(err, store.ErrClosed) {
				t.Errorf("a closed store answers %v", err)
			}

			// Remaining goroutines end by themselves at once, or are leaks.
			var left []string
			for range 500 {
				if left = ofStore(); len(left) <= len(before) {
					break
				}
				pause(t.Context(), 10*time.Millisecond)
			}
			if len(left) > len(before) {
				t.Errorf("%d goroutines are left:\n%s", len(left)-len(before), strings.Join(left, "\n\n"))
			}

			// What callers were told must be true.
			if strings.HasPrefix(c.name, "killed") {
				server.Restart(t)
			} else {
				server.Continue(t)
			}
			unlock()
			l.check(server)
		})
	}
}

// ofStore returns the stacks of goroutines that execute code of a store or of pgx.
func ofStore() (stacks []string) {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if (strings.Contains(stack, "storage/postgres.") || strings.Contains(stack, "jackc/")) &&
			!strings.Contains(stack, "postgres_test.ofStore") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
