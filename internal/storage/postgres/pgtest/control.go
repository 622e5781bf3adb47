package pgtest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// shutdownTime is how long a server may take to end in order; it waits for standbys, which may be stopped.
const shutdownTime = 5 * time.Second

// running reports whether the server answers.
func (s *Server) running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return !s.stopped
	}
}

// signalAll sends all processes of the server a signal, after it has stopped the one that begins the others. It needs
// Linux, which names the children of a process.
func (s *Server) signalAll(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	pid := s.process.Pid
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatalf("the server at %s does not run: %v", s.Host(), err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		_ = s.process.Signal(syscall.SIGCONT) // the test fails anyway
		tb.Fatalf("the processes of a server are found on Linux only: %v", err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if number, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(number, signal) // it may have ended
		}
	}
	if err := s.process.Signal(signal); err != nil {
		tb.Fatal(err)
	}
}

// Kill9 kills all processes of the server at once.
func (s *Server) Kill9(tb testing.TB) {
	tb.Helper()
	s.signalAll(tb, syscall.SIGKILL)
	<-s.ended
	s.stopped = false

	// A server that is started again removes what the killed one has left in shared memory; nobody else does.
	if lines := s.postmaster(); len(lines) > 6 {
		var key, segment int
		if _, err := fmt.Sscan(lines[6], &key, &segment); err == nil {
			_, _ = unix.SysvShmCtl(segment, unix.IPC_RMID, nil) // it is some bytes
		}
	}
}

// Stop stops all processes of the server. Its connections remain, and nothing is answered until Continue.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.signalAll(tb, syscall.SIGSTOP)
	s.stopped = true
}

// Continue lets a stopped server go on.
func (s *Server) Continue(tb testing.TB) {
	tb.Helper()
	s.signalAll(tb, syscall.SIGCONT)
	s.stopped = false
}

// end sends the server a signal that ends it, whether it is stopped or not, and waits until it has ended; from the time
// for an orderly shutdown on with a stronger signal.
func (s *Server) end(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	_ = s.process.Signal(signal) // it may have ended
	if s.stopped {
		s.Continue(tb)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), shutdownTime)
	defer cancel()
	select {
	case <-s.ended:
	case <-ctx.Done():
		_ = s.process.Signal(syscall.SIGQUIT) // it may have ended
		<-s.ended
	}
}

// Shutdown ends the server as its operators would: commits that wait for a standby do so no longer, and are kept.
func (s *Server) Shutdown(tb testing.TB) {
	tb.Helper()
	s.end(tb, syscall.SIGINT)
}

// Restart starts the server again, after Shutdown if it still runs. It listens where it did before.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Shutdown(tb)
	if err := s.start(tb.Context()); err != nil {
		tb.Fatal("the server of PostgreSQL does not start again: ", err)
	}
}

// Configure changes a setting of the running server. It returns when new sessions have it; those that are open take it
// over before their next statement.
func (s *Server) Configure(tb testing.TB, name, value string) {
	tb.Helper()
	if err := s.configure(tb.Context(), name, value); err != nil {
		tb.Fatalf("the setting %s of the server at %s: %v", name, s.Host(), err)
	}
}

func (s *Server) configure(ctx context.Context, name, value string) error {
	var before time.Time
	if err := s.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(
			ctx, "ALTER SYSTEM SET "+pgx.Identifier{name}.Sanitize()+" = '"+strings.ReplaceAll(value, "'", "''")+"'",
		); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&before); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_reload_conf()")
		return err
	}); err != nil {
		return err
	}
	return await(ctx, func() (bool, error) {
		return ask[bool](ctx, s, "SELECT pg_conf_load_time() > $1", before)
	})
}

// Terminate ends the sessions of the server that fulfil a condition on the columns of pg_stat_activity, such as
// wait_event='SyncRep', as its operators would, and returns how many there were.
func (s *Server) Terminate(tb testing.TB, where string) int {
	tb.Helper()
	return s.interrupt(tb, "pg_terminate_backend", where)
}

// Cancel cancels what sessions do at the moment, as Terminate ends them.
func (s *Server) Cancel(tb testing.TB, where string) int {
	tb.Helper()
	return s.interrupt(tb, "pg_cancel_backend", where)
}

func (s *Server) interrupt(tb testing.TB, how, where string) int {
	tb.Helper()
	return Ask[int](tb, s, "SELECT count("+how+"(pid))::int FROM pg_stat_activity WHERE pid<>pg_backend_pid() AND ("+where+")")
}

// Processor returns the processor time that the server's present processes have taken, except those without a row in
// pg_stat_activity. It needs Linux.
func (s *Server) Processor(tb testing.TB) (sum time.Duration) {
	tb.Helper()
	const tick = 10 * time.Millisecond
	for _, pid := range Ask[[]int32](tb, s, `SELECT array_agg(pid) FROM pg_stat_activity`) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		for _, ticks := range fields[11:13] {
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}
