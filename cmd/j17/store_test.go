package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"j17/internal/server"
	"j17/internal/storage/postgres/pgtest"
)

// database is a schema on a server of PostgreSQL for one test.
type database struct {
	server *pgtest.Server
	// address has the password, bare has none; password is the name of a file.
	address, bare, password, schema string
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	return newDatabaseOn(t, pgtest.Shared(t))
}

func newDatabaseOn(t *testing.T, pg *pgtest.Server) *database {
	t.Helper()
	d := &database{
		server: pg, address: pg.Address(), schema: pg.Schema(t), password: filepath.Join(t.TempDir(), "password"),
	}
	u, err := url.Parse(d.address)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	d.bare = u.String()
	if err := os.WriteFile(d.password, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// flags are those of a command on the database, and more.
func (d *database) flags(more ...string) []string {
	return append([]string{
		"--store", d.bare, "--store-password-file", d.password, "--store-schema", d.schema, "--store-connections", "12",
	}, more...)
}

// secret is the password.
func (d *database) secret(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(d.password)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// call runs the program with more variables, and checks what it prints and its exit code. Nothing that it prints has
// the password.
func (d *database) call(t *testing.T, variables []string, code int, parts []string, args ...string) (stdout string) {
	t.Helper()
	cmd := startable(t, "j17", args...)
	cmd.Env = append(cmd.Env, variables...)
	cmd.Dir = t.TempDir()
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	all := out.String() + errs.String()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("j17 %s ends with %d, want %d:\n%s", strings.Join(args[:2], " "), got, code, all)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			t.Errorf("j17 %s does not say %q:\n%s", strings.Join(args[:2], " "), part, all)
		}
	}
	if strings.Contains(all, d.secret(t)) {
		t.Errorf("j17 %s shows the password:\n%s", strings.Join(args[:2], " "), all)
	}
	return out.String()
}

// TestStoreCommands checks, makes and measures the tables of a store.
func TestStoreCommands(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	single := "--store-allow-single"

	// Mistakes, all at once; the password does not stand on the command line.
	d.call(t, nil, exitUsage, []string{"J17_STORE", "list of processes"}, "store", "check", "--store", d.address)
	d.call(t, nil, exitUsage, []string{"name the server"}, "store", "check")
	d.call(
		t, []string{"J17_STORE_CONNECTIONS=3", "J17_STORE_CELLS=17"}, exitUsage,
		[]string{"is another machine", "3 is not between 12", "17 is not between 1 and 16", "pg_x"},
		"store", "check", "--store", "postgres://j17@db/j17?sslmode=disable", "--store-schema", "pg_x",
	)
	d.call(t, []string{"J17_STORE_CONNECTIONS=many"}, exitUsage, []string{`"many" is not what store-connections takes`}, "store", "check")

	for _, command := range []string{"serve", "dev"} {
		d.call(
			t, []string{"J17_STORE_READS=always"}, exitUsage,
			[]string{`store-reads: "always" is none of lease, quorum and primary`}, append([]string{command}, d.flags()...)...,
		)
	}
	d.call(
		t, nil, exitUsage, []string{`"always" is none of`, "the address is missing", "base-domain"},
		"serve", "--check", "--store-reads", "always", "--data", "x",
	)
	d.call(
		t, nil, exitUsage, []string{"the address is missing"},
		"serve", "--check", "--store-reads", "quorum", "--data", "x", "--base-domain", "example.test",
	)

	// A single server is refused, unless that is allowed.
	said := []string{"synchronous_standby_names is empty", "for 1 fault"}
	d.call(t, nil, exitFailure, said, append([]string{"store", "check"}, d.flags()...)...)
	var report server.StoreReport
	out := d.call(
		t, []string{"J17_STORE=" + d.address, "J17_STORE_SCHEMA=" + d.schema, "J17_STORE_ALLOW_SINGLE=true"}, exitOK,
		nil,
		"store", "check", "--json",
	)
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Version != 0 || report.Refused() != 0 {
		t.Errorf("%s %v", out, err)
	}

	// The tables.
	migrate := append([]string{"store", "migrate"}, d.flags(single)...)
	d.call(t, nil, exitOK, []string{"They have version 1"}, migrate...)
	d.call(t, nil, exitOK, []string{`{"from":1,"to":1}`}, append(migrate, "--json")...)
	stats := append([]string{"store", "stats"}, d.flags()...)
	d.call(t, nil, exitOK, []string{"0 events", "tenants"}, stats...)
	d.call(t, nil, exitOK, []string{`"tenants":0`, `"max_connections":600`}, append(stats, "--json")...)
	d.server.Exec(t, "UPDATE "+d.schema+".meta SET value='7' WHERE key='version'")
	d.call(t, nil, exitFailure, []string{"newer version"}, migrate...)
}

// TestStoreSettings checks the settings of servers on PostgreSQL: whatever is wrong is told before anything is made.
func TestStoreSettings(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	d.call(
		t, nil, exitUsage, []string{"store: a worker keeps", "holds a store", "base-domain: name the domain"},
		append([]string{"serve", "--check", "--data", used, "--role", "worker"}, d.flags()...)...,
	)
	d.call(
		t, nil, exitUsage, []string{"holds a store"}, append([]string{"dev", "--data", used}, d.flags()...)...,
	)
	d.call(
		t, nil, exitUsage, []string{"store: the address is missing"}, "dev", "--data", t.TempDir(),
		"--store-allow-single",
	)

	// A folder that was not there is not left behind by a start that fails.
	fresh := filepath.Join(t.TempDir(), "data")
	d.call(
		t, nil, exitFailure, []string{"--store-allow-single"},
		append(
			[]string{"dev", "--data", fresh, "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"},
			d.flags()...,
		)...,
	)
	if _, err := os.Stat(fresh); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the data folder is there: ", err)
	}
	if pgtest.Ask[bool](t, d.server, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname=$1)", d.schema) {
		t.Error("the schema is there")
	}
}

// serving returns a server for others that is not started.
func (d *database) serving(t *testing.T, more ...string) *exec.Cmd {
	t.Helper()
	return startable(t, "j17", append([]string{
		"serve", "--json", "--base-domain", "example.test", "--listen", "127.0.0.1:0", "--internal-listen",
		"127.0.0.1:0", "--no-backups", "--store-allow-single",
	}, append(d.flags(), more...)...)...)
}

// serveOn starts a server for others, and returns it with the address at which the first operator is made; "" for none.
func (d *database) serveOn(t *testing.T, more ...string) (p *process, setup string) {
	t.Helper()
	cmd := d.serving(t, more...)
	p = &process{cmd: cmd}
	cmd.Stderr = &p.err
	out, err := said(cmd.StdoutPipe)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the server does not become ready: %v\n%s", err, p.err.String())
	}
	var ready server.ServeReady
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	p.url = "http://" + ready.Addresses["public"]
	if m := regexp.MustCompile(`"setup_url":"([^"]*)"`).FindStringSubmatch(p.err.String()); m != nil {
		setup = m[1][strings.Index(m[1], "#"):]
	}
	if strings.Contains(p.err.String(), d.secret(t)) {
		t.Errorf("the log has the password:\n%s", p.err.String())
	}
	return p, setup
}

// TestServeOnPostgres starts a server that has nothing of its own: what it keeps for itself is in the store, sealed
// with the node secret, and goes on wherever that is known.
func TestServeOnPostgres(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	secret := func(text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	one, two := strings.Repeat("one-", 10), strings.Repeat("two-", 10)
	folder := t.TempDir()
	p, first := d.serveOn(t, "--data", folder, "--node-secret-file", secret(one))
	resp, err := http.Get(p.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	var ready struct {
		Store *struct {
			Mode  string `json:"mode"`
			Async bool   `json:"async"`
		} `json:"store"`
	}
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&ready), resp.Body.Close())
	if err != nil || ready.Store == nil || ready.Store.Mode != "single" || ready.Store.Async {
		t.Errorf("/readyz shows %+v: %v", ready.Store, err)
	}
	if !strings.HasPrefix(first, "#token=") {
		t.Fatalf("there is no setup token: %s", p.err.String())
	}
	token := strings.TrimPrefix(first, "#token=")
	var files []string
	if err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		files = append(files, name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(
		files, func(f string) bool { return filepath.Base(f) == "backup.key" || filepath.Base(f) == "setup-token" },
	) {
		t.Errorf("the data folder has %q", files)
	}
	// Neither the token nor a key that the server signs with can be read in the database.
	count := func(sql string, args ...any) int {
		return pgtest.Ask[int](
			t, d.server, "SELECT count(*)::int FROM "+strings.ReplaceAll(sql, "$.", d.schema+"."), args...,
		)
	}
	if n := count("$.items WHERE position(convert_to($1,'UTF8') IN value)>0", token); n != 0 {
		t.Error("the setup token can be read in the database")
	}
	const keys = "$.items i JOIN $.spaces s USING (space) WHERE s.name IN ('own_files','control.secrets')"
	if all, sealed := count(keys), count(keys+" AND i.sealed"); all < 2 || sealed != all {
		t.Errorf("of %d secrets, %d are sealed", all, sealed)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err, p.err.String())
	}

	// Another server with the same secret has the token; one with another secret is refused, until it knows both.
	args := []string{"serve", "--base-domain", "example.test", "--no-backups", "--store-allow-single", "--data"}
	d.call(
		t, nil, exitFailure, []string{"another node secret"},
		append(append(args, t.TempDir(), "--node-secret-file", secret(two)), d.flags()...)...,
	)
	d.call(t, nil, exitFailure, []string{"another node secret"}, append(append(args, t.TempDir()), d.flags()...)...)
	for _, known := range []string{one, two + "\n" + one, two} {
		p, again := d.serveOn(t, "--data", t.TempDir(), "--node-secret-file", secret(known))
		if again != first {
			t.Errorf("the setup token is %s, and was %s", again, first)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err, p.err.String())
		}
	}
}

// TestDevOnPostgres writes on a development server, moves its clock and starts it again.
func TestDevOnPostgres(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	h := home(t.TempDir())
	for i, want := range []string{"1", "2"} {
		p, err := startDev(t, dir, d.flags("spec.json", "--store-allow-single")...)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			_, err := startDev(t, dir, d.flags("--store-allow-single")...)
			if err == nil || !strings.Contains(err.Error(), "works on this schema: stop it, or choose another schema") {
				t.Errorf("a second server on the schema: %v", err)
			}
		}
		code, out, errs := h.run(
			t, dir, "", "events", "post", "note/global", "was_written", `{"text":"x"}`, "--actor", "user:global",
			"--json",
		)
		if code != exitOK || !strings.Contains(out, `"length":`+want) {
			t.Errorf("start %d: %d %s%s", i, code, out, errs)
		}
		if code, out, errs := h.run(t, dir, "", "dev", "advance", "1h"); code != exitOK {
			t.Errorf("start %d: %d %s%s", i, code, out, errs)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err, p.err.String())
		}
	}
}
