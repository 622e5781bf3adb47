package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// party is one way to store events, with all processes that belong to it.
type party struct {
	name, address string
	env           []string // of wrk, beside its own
	processes     []int    // their children belong to it too
	disk          func(context.Context) (int64, error)

	before         usage // when it was idle
	after          usage
	settled        int64 // bytes on disk some seconds later
	rounds         []round
	answers, wrong int
}

// parties are all that are measured, and what has to be stopped in the end: the last that was started first.
type parties struct {
	list    []*party
	stops   []func() error
	version map[string]string
}

// stop ends all processes and waits for them.
func (p *parties) stop() error {
	var errs []error
	for _, f := range slices.Backward(p.stops) {
		errs = append(errs, f())
	}
	p.stops = nil
	return errors.Join(errs...)
}

// start starts all parties. What it returns has to be stopped, also after an error.
func start(ctx context.Context, o options, stderr io.Writer) (*parties, error) {
	p := &parties{version: map[string]string{}}
	s := starter{o, p, stderr}
	for _, f := range []func(context.Context) error{s.yardsticks, s.program, s.pocketBase, s.postgres, s.redis} {
		if err := f(ctx); err != nil {
			return p, err
		}
	}
	return p, nil
}

// starter starts one party after the other.
type starter struct {
	options
	*parties
	stderr io.Writer
}

// process starts a program, which is stopped in the end, and returns its number. What it prints goes to out.
func (s starter) process(
	ctx context.Context, out io.Writer, as *syscall.Credential, program string, args ...string,
) (int, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir, c.Stdout, c.Stderr = s.dir, out, s.stderr
	c.Env = append(os.Environ(), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "LC_ALL=C.UTF-8")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 20 * time.Second
	if err := c.Start(); err != nil {
		return 0, err
	}
	s.stops = append(s.stops, func() error {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		late := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		defer late.Stop()
		_ = c.Wait() // it was told to end
		return nil
	})
	return c.Process.Pid, nil
}

// freeAddress is one of loopback at which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// await returns when somebody listens at an address.
func await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at %s: %w", address, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// add adds a party that is a program with an address among its arguments, ADDRESS, and waits for it. others are
// processes that belong to it too.
func (s starter) add(ctx context.Context, p *party, program string, args []string, others ...int) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	args = slices.Clone(args)
	args[slices.Index(args, "ADDRESS")] = address
	pid, err := s.process(ctx, s.stderr, nil, program, args...)
	if err != nil {
		return err
	}
	p.address, p.processes = address, append([]int{pid}, others...)
	s.list = append(s.list, p)
	return await(ctx, address)
}

func folder(paths ...string) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) { return occupied(paths...) }
}

func (s starter) yardsticks(ctx context.Context) error {
	const reply = `{"ok":true,"stream_id":"1706789012345-0","length":1}`
	if err := s.add(ctx, &party{name: "empty net/http", disk: folder()}, s.empty, []string{
		"ADDRESS", "201", reply,
	}); err != nil {
		return err
	}
	log := s.path("log")
	return s.add(ctx, &party{name: "append and sync", disk: folder(log)}, s.empty, []string{
		"ADDRESS", "201", reply, log,
	})
}

// program starts j17.
func (s starter) program(ctx context.Context) error {
	public, err := freeAddress()
	if err != nil {
		return err
	}
	internal, err := freeAddress()
	if err != nil {
		return err
	}
	spec, err := filepath.Abs("bench/spec.json")
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	data := s.path("j17")
	pid, err := s.process(
		ctx, w, nil, s.j17, "dev", spec, "--data", data, "--listen", public, "--internal-listen", internal, "--json",
	)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	var ready struct {
		Version string
		Keys    struct{ Prod struct{ Write string } }
	}
	if err := json.NewDecoder(r).Decode(&ready); err != nil {
		return fmt.Errorf("j17 did not start: %w", err)
	}
	s.version["j17"] = ready.Version
	s.list = append(s.list, &party{
		name: ours, address: public, env: []string{"KEY=" + ready.Keys.Prod.Write}, processes: []int{pid},
		disk: folder(data),
	})
	return nil
}

func (s starter) pocketBase(ctx context.Context) error {
	data := s.path("pocketbase")
	s.version["PocketBase"] = moduleVersion("github.com/pocketbase/pocketbase")
	return s.add(ctx, &party{name: "PocketBase", env: []string{"POCKETBASE=1"}, disk: folder(data)}, s.self, []string{
		"pocketbase", "ADDRESS", data,
	})
}

// postgres starts a cluster with the settings that it comes with, and two parties that use it.
func (s starter) postgres(ctx context.Context) error {
	// Make the cluster, as the user that it runs as: root must not run it.
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(programs) == 0 {
		return errors.New("PostgreSQL is not installed (Debian: postgresql)")
	}
	bin, data := programs[len(programs)-1], s.path("postgres")
	var as *syscall.Credential
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return err
		}
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(data, uid, gid); err != nil {
			return err
		}
	}
	initdb := exec.CommandContext(
		ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C.UTF-8", "--no-instructions",
	)
	initdb.Dir, initdb.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}

	// Start it, and the handlers.
	address, err := freeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	log, err := os.Create(s.path("postgres.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	quiet := s
	quiet.stderr = log
	pid, err := quiet.process(
		ctx, log, as, filepath.Join(bin, "postgres"), "-D", data, "-c", "listen_addresses=127.0.0.1", "-c",
		"port="+port, "-c", "unix_socket_directories="+data,
	)
	if err != nil {
		return err
	}
	if err := await(ctx, address); err != nil {
		return err
	}
	database := "postgres://postgres@" + address + "/postgres?sslmode=disable"
	if s.version["PostgreSQL"], err = ask[string](ctx, database, "SHOW server_version"); err != nil {
		return err
	}
	if on, err := ask[string](ctx, database, "SHOW synchronous_commit"); err != nil || on != "on" {
		return fmt.Errorf("PostgreSQL has synchronous_commit=%s, %w", on, err)
	}
	for _, c := range []struct{ name, command, table string }{
		{"PostgreSQL, transaction", "postgres-tx", "events_tx"},
		{"PostgreSQL, one statement", "postgres-one", "events_one"},
	} {
		size := func(ctx context.Context) (int64, error) {
			return ask[int64](ctx, database, "SELECT pg_total_relation_size('"+c.table+"')")
		}
		if err := s.add(
			ctx, &party{name: c.name, disk: size}, s.self, []string{c.command, "ADDRESS", database}, pid,
		); err != nil {
			return err
		}
	}
	return nil
}

// ask returns the one value that a query finds. It waits while the server starts.
func ask[T any](ctx context.Context, database, query string) (value T, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	for err != nil && strings.Contains(err.Error(), "starting up") && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		conn, err = pgx.Connect(ctx, database)
	}
	if err != nil {
		return value, err
	}
	defer conn.Close(ctx)
	return value, conn.QueryRow(ctx, query).Scan(&value)
}

func (s starter) redis(ctx context.Context) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			s.version["Redis"] = v
		}
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	data := s.path("redis")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	pid, err := s.process(
		ctx, io.Discard, nil, program, "--bind", "127.0.0.1", "--port", port, "--dir", data, "--appendonly", "yes",
		"--appendfsync", "always", "--save", "",
	)
	if err != nil {
		return err
	}
	if err := await(ctx, address); err != nil {
		return err
	}
	return s.add(
		ctx, &party{name: "Redis XADD", disk: folder(data)}, s.self, []string{"redis", "ADDRESS", address}, pid,
	)
}
