package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"j17/internal/base/clock"
)

// The superuser of servers, and the role with few rights with the database in which it may create schemas. The role may
// also see the state of the server, and ask for checkpoints and for a new file of the log.
const (
	superuser = "postgres"
	role      = "j17"
	database  = "j17"
)

// patience is how long a test waits for something that a server has to do.
const patience = time.Minute

// settings are those of all servers, beside those that PostgreSQL comes with. What they acknowledge is on disk: fsync
// and synchronous_commit are on.
func settings() []string {
	return []string{
		"max_connections=600",
		"shared_buffers=64MB",
		"min_wal_size=32MB",
		"max_wal_size=512MB",
		"wal_recycle=off",
		"dynamic_shared_memory_type=mmap", // in the folder, so that nothing is left of a server that was killed
		"log_line_prefix='%m [%p] %a '",
	}
}

// Server is a server of PostgreSQL on this machine. Any number of goroutines may use its addresses and execute
// statements, but one at a time may end, stop and start it.
type Server struct {
	home   *home
	folder string
	port   int

	name    string // as a standby, if it is in a cluster
	schemas atomic.Int64

	process *os.Process
	ended   chan struct{} // closed when process has ended
	stopped bool
}

// Shared returns the server that all tests of a program share. They must not change its settings. Without PostgreSQL
// the test is skipped; see Skip.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	Skip(tb)
	var s *Server
	if err := atHome(tb.Context(), func(h *home) error {
		if h.shared == nil {
			made, err := h.newServer(tb.Context(), "")
			if err != nil {
				return err
			}
			h.shared = made
		}
		s = h.shared
		return nil
	}); err != nil {
		tb.Fatal("there is no shared server of PostgreSQL: ", err)
	}
	return s
}

// Start starts a server for one test, with settings such as "fsync=off" beside the usual ones. Without PostgreSQL the
// test is skipped; see Skip.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	Skip(tb)
	var s *Server
	if err := atHome(tb.Context(), func(h *home) (err error) {
		s, err = h.newServer(tb.Context(), "", settings...)
		return err
	}); err != nil {
		tb.Fatal("the server of PostgreSQL does not start: ", err)
	}
	tb.Cleanup(func() { s.remove(tb) })
	return s
}

// newServer starts a server on a copy of the template.
func (h *home) newServer(ctx context.Context, name string, more ...string) (*Server, error) {
	s, err := h.place(name)
	if err != nil {
		return nil, err
	}
	if _, err := h.run(ctx, "", "/bin/cp", "-a", h.template, s.data()); err != nil {
		return nil, err
	}
	config, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = config.WriteString("\n" + strings.Join(slices.Concat(settings(), more), "\n") + "\n")
	if err := errors.Join(err, config.Close()); err != nil {
		return nil, err
	}
	return s, s.startSomewhere(ctx)
}

// place returns a server with a folder that has no data yet.
func (h *home) place(name string) (*Server, error) {
	h.servers++
	s := &Server{home: h, name: name, folder: filepath.Join(h.folder, strconv.Itoa(h.servers))}
	if err := os.Mkdir(s.folder, 0o700); err != nil || h.as == nil {
		return s, err
	}
	return s, os.Chown(s.folder, int(h.as.Uid), int(h.as.Gid))
}

func (s *Server) data() string    { return filepath.Join(s.folder, "data") }
func (s *Server) logFile() string { return filepath.Join(s.folder, "log") }

// Log returns what the server has logged.
func (s *Server) Log(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// errPort says that a server could not listen.
var errPort = errors.New("the port is in use")

// startSomewhere starts the server on a port of its own. Ports above 32767 may belong to the other end of somebody's
// connection at any moment, so lower ones are tried.
func (s *Server) startSomewhere(ctx context.Context) error {
	for range 20 {
		var err error
		if s.port, err = FreePort(ctx); err != nil {
			return err
		}
		if err = s.start(ctx); !errors.Is(err, errPort) {
			return err
		}
	}
	return errPort
}

// FreePort returns a port of 127.0.0.1 below 32768 of which nobody makes use at the moment.
func FreePort(ctx context.Context) (int, error) {
	l, err := listen(ctx)
	if err != nil {
		return 0, err
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errPort
	}
	return address.Port, l.Close()
}

// listen listens at a port of 127.0.0.1 of which nobody else makes use.
func listen(ctx context.Context) (net.Listener, error) {
	const first, end = 12000, 32768
	for tries := 100; ; tries-- {
		n, err := rand.Int(rand.Reader, big.NewInt(end-first))
		if err != nil {
			return nil, err
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback(first+int(n.Int64())))
		if err == nil || tries == 0 {
			return l, err
		}
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// start starts the server on its port and returns when it takes connections.
func (s *Server) start(ctx context.Context) error {
	// It outlives the test that needs it first.
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has it
	before, err := log.Stat()
	if err != nil {
		return err
	}
	c := s.home.command(
		context.WithoutCancel(ctx), "postgres", "-D", s.data(), "-c", "port="+strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.folder,
		"-c", "cluster_name="+s.name,
	)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait() // how it has ended says its log
		close(ended)
	}()
	s.process, s.ended, s.stopped = c.Process, ended, false

	// The last line of postmaster.pid says how far it is.
	err = await(ctx, func() (bool, error) {
		select {
		case <-ended:
			text, err := os.ReadFile(s.logFile())
			if err != nil {
				return false, err
			}
			text = text[min(before.Size(), int64(len(text))):]
			if strings.Contains(string(text), "could not create any TCP/IP sockets") {
				return false, errPort
			}
			return false, fmt.Errorf("postgres has ended:\n%s", text)
		default:
		}
		lines := s.postmaster()
		return len(lines) > 7 && lines[0] == strconv.Itoa(c.Process.Pid) && strings.TrimSpace(lines[7]) == "ready", nil
	})
	if err != nil {
		_ = c.Process.Kill() // it may have ended
		<-ended
	}
	return err
}

// postmaster returns the lines of the file in which the server says how it runs, and nil where there is none.
func (s *Server) postmaster() []string {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return nil
	}
	return strings.Split(string(text), "\n")
}

// await asks again and again, until is returns true or an error; at the latest after a time that no machine needs.
func await(ctx context.Context, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if done, err := is(); done || err != nil {
			return err
		}
		if err := (clock.System{}).Wait(ctx, clock.System{}.Now().Add(10*time.Millisecond)); err != nil {
			return errors.New("the time for that is over")
		}
	}
}

// remove ends the server and removes its data. Where the test has failed, its log is shown.
func (s *Server) remove(tb testing.TB) {
	tb.Helper()
	if tb.Failed() {
		text := s.Log(tb)
		tb.Logf("the log of the server at port %d ends so:\n%s", s.port, text[max(0, len(text)-8<<10):])
	}
	if s.process != nil {
		s.end(tb, syscall.SIGQUIT)
	}
	if err := os.RemoveAll(s.folder); err != nil {
		tb.Error(err)
	}
}

// Host returns where the server listens, as 127.0.0.1:12345.
func (s *Server) Host() string { return loopback(s.port) }

// Address returns the address of the server for the role with few rights, which may create schemas in its database.
// With hosts it leads there instead: to proxies, or to several servers.
func (s *Server) Address(hosts ...string) string { return s.address(role, s.home.role, hosts) }

// Superuser returns the address of the same database for the superuser.
func (s *Server) Superuser(hosts ...string) string {
	return s.address(superuser, s.home.superuser, hosts)
}

func (s *Server) address(user, password string, hosts []string) string {
	if len(hosts) == 0 {
		hosts = []string{s.Host()}
	}
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword(user, password), Host: strings.Join(hosts, ","),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}

// Schema returns the name of a schema that does not exist, for one test. The schema is dropped when the test ends: it
// is an error if sessions are still using it then.
func (s *Server) Schema(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", s.schemas.Add(1))
	tb.Cleanup(func() {
		if err := s.exec(
			context.WithoutCancel(tb.Context()), "SET lock_timeout='10s'; DROP SCHEMA IF EXISTS "+name+" CASCADE",
		); err != nil {
			tb.Errorf("the schema of %s cannot be dropped: %v", tb.Name(), err)
		}
	})
	return name
}

// Exec executes SQL as the superuser in the database of tests, on a connection of its own.
func (s *Server) Exec(tb testing.TB, sql string, args ...any) {
	tb.Helper()
	if err := s.exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func (s *Server) exec(ctx context.Context, sql string, args ...any) error {
	return s.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if len(args) > 0 {
			_, err := conn.Exec(ctx, sql, args...)
			return err
		}
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol) // of several statements
		return err
	})
}

// Ask returns the one value that a query of the superuser in the database of tests finds.
func Ask[T any](tb testing.TB, s *Server, sql string, args ...any) T {
	tb.Helper()
	value, err := ask[T](tb.Context(), s, sql, args...)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return value
}

func ask[T any](ctx context.Context, s *Server, sql string, args ...any) (value T, err error) {
	err = s.connected(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&value)
	})
	return value, err
}

// connected calls do with a connection of the superuser.
func (s *Server) connected(ctx context.Context, do func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.Superuser())
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, conn), conn.Close(ctx))
}
