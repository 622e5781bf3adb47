package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
	"j17/internal/storage/store"
)

// refused opens a store that must be refused with an error that contains some parts, and returns its text.
func refused(t *testing.T, o postgres.Options, parts ...string) (text string) {
	t.Helper()
	s, err := postgres.Open(t.Context(), o)
	if err == nil {
		t.Fatal("the store was opened", s.Close())
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not have %q: %v", part, err)
		}
	}
	return err.Error()
}

// TestOpenUnreachable opens stores at addresses without a usable server.
func TestOpenUnreachable(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	listening := func(serve func(net.Conn)) string {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
				_ = c.Close()
			}
		})
		t.Cleanup(func() {
			_ = l.Close()
			serving.Wait()
		})
		return l.Addr().String()
	}
	web := listening(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1024))
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	})
	old := listening(func(c net.Conn) {
		b := pgproto3.NewBackend(c, c)
		for {
			if m, err := b.ReceiveStartupMessage(); err != nil {
				return
			} else if _, is := m.(*pgproto3.StartupMessage); is {
				break
			}
			_, _ = c.Write([]byte("N")) // no TLS
		}
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "14.9 (Debian 14.9-1)"})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = b.Flush()
		_, _ = c.Read(make([]byte, 1024))
	})
	password, _, _ := strings.Cut(strings.TrimPrefix(server.Address(), "postgres://j17:"), "@")

	for name, c := range map[string]struct {
		address string
		parts   []string
	}{
		"NoPostgreSQL": {server.Address(web), []string{web, "no PostgreSQL"}},
		"Version14":    {server.Address(old), []string{old, "version is 14.9", "15 or later"}},
		"Password": {
			strings.Replace(server.Address(), password, "wrong", 1),
			[]string{"refuses the role j17", "--store-password-file"},
		},
		"Host":     {server.Address("host.invalid:5432"), []string{"host.invalid"}},
		"Database": {strings.Replace(server.Address(), "/j17?", "/none?", 1), []string{`"none" does not exist`}},
		"NoTLS": {
			strings.Replace(server.Address(), "sslmode=disable", "sslmode=verify-full", 1),
			[]string{"no connections with TLS", "--store-plain"},
		},
		"Port":     {server.Address("127.0.0.1:1"), []string{"127.0.0.1:1", "connection refused"}},
		"Mistakes": {"postgres://j17@one/j17?sslmode=disable&sslmod=1", []string{"sslmod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			o := postgres.Options{Address: c.address, AllowSingle: true}
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if text := refused(t, o, c.parts...); strings.Contains(text+log.String(), password) {
				t.Errorf("the password is shown: %s\n%s", text, &log)
			}
		})
	}
}

// TestOpenCertificate opens stores on a server with a certificate of an unknown authority, and with one for another
// host.
func TestOpenCertificate(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	trusted := filepath.Join(t.TempDir(), "ca.crt")
	encrypt := func(host string) {
		if err := os.WriteFile(trusted, server.Encrypt(t, host), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := postgres.Options{
		Address: strings.Replace(server.Address(), "sslmode=disable", "sslmode=verify-full", 1), AllowSingle: true,
	}
	knowing := o
	knowing.Address += "&sslrootcert=" + url.QueryEscape(trusted)

	encrypt("127.0.0.1")
	store := "the store postgres://j17@" + server.Host() + "/j17 cannot be opened"
	text := refused(t, o, store, "unknown authority", "sslrootcert")
	if strings.Count(text, "certificate is not trusted") != 1 || strings.Contains(text, "\n") {
		t.Errorf("it is not one sentence: %s", text)
	}
	if err := open(t, knowing).Close(); err != nil {
		t.Error(err)
	}

	encrypt("10.0.0.1")
	text = refused(t, knowing, "its certificate is for another host", "10.0.0.1", "sslmode=verify-ca")
	if strings.Contains(text, "sslrootcert") {
		t.Errorf("it names the authority as the fault: %s", text)
	}
	knowing.Address = strings.Replace(knowing.Address, "verify-full", "verify-ca", 1)
	if err := open(t, knowing).Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenSettings opens stores on a server without the settings that a store needs. Nothing is created there.
func TestOpenSettings(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	o := postgres.Options{Address: server.Address(), AllowSingle: true}

	for _, c := range []struct{ name, value, sentence string }{
		{"fsync", "off", "fsync is off"},
		{"full_page_writes", "off", "full_page_writes is off"},
		{"synchronous_commit", "off", "synchronous_commit is off"},
		{"synchronous_commit", "remote_write", "synchronous_commit is remote_write"},
	} {
		server.Configure(t, c.name, c.value)
		refused(t, o, c.sentence, "or allow that with --store-allow-async")
		server.Configure(t, c.name, "on")
	}
	single := o
	single.AllowSingle = false
	refused(t, single, "synchronous_standby_names is empty", "or allow a single server with --store-allow-single")
	report, err := postgres.Check(t.Context(), o)
	if i := slices.IndexFunc(report.Findings, func(f postgres.Finding) bool {
		return f.Name == "synchronous_standby_names"
	}); err != nil || i < 0 || !strings.HasSuffix(report.Findings[i].Text, "; --store-allow-single accepts it") {
		t.Errorf("with the flag, it is found that %+v: %v", report.Findings, err)
	}
	server.Configure(t, "synchronous_standby_names", "ANY 1 (away)")
	refused(t, o, "synchronous_standby_names is ANY 1 (away)", "no standby of these is attached")
	server.Configure(t, "synchronous_standby_names", "")

	// Connections, and the database.
	many := o
	many.Connections = 600
	refused(t, many, "max_connections is 600", "603 or more")
	server.Exec(t, "ALTER ROLE j17 CONNECTION LIMIT 20")
	refused(t, o, "ALTER ROLE \"j17\" CONNECTION LIMIT 32")
	server.Exec(t, "ALTER ROLE j17 CONNECTION LIMIT -1")
	server.Exec(t, "CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0")
	latin := o
	latin.Address = strings.Replace(o.Address, "/j17?", "/latin?", 1)
	refused(t, latin, "server_encoding is LATIN1", "ENCODING 'UTF8'")

	// Several faults at once, each with its own message.
	server.Configure(t, "fsync", "off")
	server.Configure(t, "synchronous_commit", "off")
	refused(t, single, "fsync is off", "synchronous_commit is off", "synchronous_standby_names is empty")

	// Nothing was created. With the options that allow all of this, the store is opened.
	if pgtest.Ask[bool](t, server, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname='j17')") {
		t.Error("a schema was made")
	}
	o.AllowAsync = true
	s := open(t, o)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	want := store.Replication{Mode: store.Single, Async: true}
	if is := s.Status(); !is.Writable || is.Replication == nil || *is.Replication != want {
		t.Errorf("the status is %+v", is)
	}
}

// TestSettingsChange changes the settings of a server while a store is open: writes stop, reads go on, and writes
// resume when the settings are good again.
func TestSettingsChange(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2)
	server := c.Primary()
	s := openStrictly(t, postgres.Options{Address: server.Address(), Connections: postgres.LeastConnections})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	look := func() {
		t.Helper()
		if err := s.Look(); err != nil {
			t.Error(err)
		}
	}
	write := func() error {
		return s.Write(t.Context(), "a/prod", []store.Side{{Space: "x", Key: "k", Value: []byte("v"), Op: store.Put}})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if is := s.Status(); is.Replication.Mode != store.Quorum || is.Replication.Standbys != 1 {
		t.Errorf("the replication is %+v", is.Replication)
	}

	for _, change := range []struct{ name, bad, good, sentence string }{
		{"synchronous_commit", "off", "on", "synchronous_commit is off"},
		{"synchronous_standby_names", "", "ANY 1 (s1)", "synchronous_standby_names is empty"},
	} {
		server.Configure(t, change.name, change.bad)
		look()
		if err := write(); err != nil {
			t.Errorf("%s: writes stop before it is found twice: %v", change.name, err)
		}
		look()
		err := store.UserError(write())
		if j17.CodeOf(err) != j17.CodeUnavailable || !errors.Is(err, store.ErrBusy) ||
			!strings.Contains(err.Error(), change.sentence) {
			t.Errorf("%s: a write ends with %v", change.name, err)
		}
		if is := s.Status(); is.Writable || !is.Readable || !strings.Contains(is.Reason, change.sentence) {
			t.Errorf("%s: the status is %+v", change.name, is)
		}
		if _, err := s.Get(t.Context(), "a/prod", "x", "k"); err != nil {
			t.Errorf("%s: a read ends with %v", change.name, err)
		}
		server.Configure(t, change.name, change.good)
		c.Await(t, 1)
		look()
		if err := write(); err != nil {
			t.Errorf("%s: a write ends with %v when all is well again", change.name, err)
		}
	}
}

// TestOpenStandby opens a store on a cluster: by a standby's address alone, which is refused, and by all addresses.
func TestOpenStandby(t *testing.T) {
	t.Parallel()
	c := pgtest.StartCluster(t, 2)
	refused(t, postgres.Options{Address: c.Servers[1].Address()}, c.Servers[1].Host(), "standby", "primary")
	o := postgres.Options{Address: c.Servers[0].Address(c.Servers[1].Host(), c.Servers[0].Host())}
	if err := openStrictly(t, o).Close(); err != nil {
		t.Error(err)
	}

	// A role that cannot see standbys cannot tell whether commits wait for one.
	c.Primary().Exec(t, "REVOKE pg_monitor FROM j17")
	refused(t, o, "GRANT pg_monitor TO \"j17\"")
}

// TestOpenSchema opens stores in schemas that are not theirs. Each schema is left unchanged.
func TestOpenSchema(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	key := keyfile.OfSecret("a secret that all nodes share, and nobody else")
	o := postgres.Options{Address: server.Address(), AllowSingle: true, Key: key}
	if err := open(t, o).Close(); err != nil {
		t.Fatal(err)
	}

	// A schema of another program, and one of a newer version.
	other := o
	other.Schema = "theirs"
	server.Exec(t, "CREATE SCHEMA theirs AUTHORIZATION j17; CREATE TABLE theirs.meta (key text)")
	refused(t, other, "theirs", "has meta, and no table", "--store-schema")
	server.Exec(t, "UPDATE j17.meta SET value='99' WHERE key='version'")
	refused(t, o, "newer version", "99")
	server.Exec(t, "UPDATE j17.meta SET value='1' WHERE key='version'")

	// A schema of other nodes, or of a data folder with another key.
	before := pgtest.Ask[[]byte](t, server, "SELECT value FROM j17.meta WHERE key='cluster'")
	folder := filepath.Join(t.TempDir(), "key")
	stranger := o
	for _, key := range []*keyfile.File{keyfile.OfSecret("another secret"), keyfile.At(folder)} {
		stranger.Key = key
		refused(t, stranger, "another node secret", "--node-secret-file")
	}
	if keyfile.At(folder).Exists() {
		t.Error("a key file was made")
	}
	after := pgtest.Ask[[]byte](t, server, "SELECT value FROM j17.meta WHERE key='cluster'")
	if !bytes.Equal(before, after) {
		t.Error("the key of the schema has changed")
	}

	// A secret that replaces another one, which is useless from then on.
	changed := o
	changed.Key, changed.Keys = keyfile.OfSecret("the next secret"), []*keyfile.File{key}
	for range 2 {
		if err := open(t, changed).Close(); err != nil {
			t.Fatal(err)
		}
		changed.Keys = nil
	}
	refused(t, o, "another node secret")

	// Rights.
	server.Exec(t, "ALTER SCHEMA j17 OWNER TO postgres; ALTER TABLE j17.meta OWNER TO postgres")
	refused(t, changed, "belongs to the role postgres")
	server.Exec(t, "REVOKE CREATE ON DATABASE j17 FROM j17")
	other.Schema = "new"
	refused(t, other, "no right to make the schema new", "AUTHORIZATION")
	server.Exec(t, "CREATE SCHEMA new AUTHORIZATION j17")
	if err := open(t, other).Close(); err != nil {
		t.Error(err)
	}
}

// TestReport checks and measures a server: before there is a schema, and with one.
func TestReport(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	o := postgres.Options{
		Address: server.Address(), Schema: server.Schema(t), Connections: postgres.LeastConnections,
		Key: keyfile.OfSecret("a secret"),
	}
	texts := func() (version int, refused, warned []string) {
		r, err := postgres.Check(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			switch {
			case f.Refused:
				refused = append(refused, f.Name)
			case f.Text != "":
				warned = append(warned, f.Name)
			}
		}
		if r.Refused() != len(refused) || r.Newest != 1 || !strings.HasPrefix(r.Server, "1") || r.Schema != o.Schema {
			t.Errorf("the report is %+v", r)
		}
		return r.Version, refused, warned
	}
	if version, wrong, _ := texts(); version != 0 || !slices.Equal(wrong, []string{"synchronous_standby_names"}) {
		t.Errorf("version %d, refused are %q", version, wrong)
	}
	if _, _, err := postgres.Migrate(t.Context(), o); err == nil {
		t.Error("a server that is refused was migrated")
	}
	o.AllowSingle = true
	if from, to, err := postgres.Migrate(t.Context(), o); from != 0 || to != 1 || err != nil {
		t.Errorf("migrated from %d to %d: %v", from, to, err)
	}
	s := open(t, o)
	if err := s.Write(t.Context(), "a/prod", []store.Side{{Space: "x", Key: "k", Op: store.Put}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	version, wrong, warned := texts()
	if version != 1 || len(wrong) > 0 || !slices.Equal(warned, []string{"synchronous_standby_names"}) {
		t.Errorf("version %d, refused are %q, warnings %q", version, wrong, warned)
	}
	m, err := postgres.Measure(t.Context(), o)
	if err != nil || m.Tenants != 1 || m.Events != 0 || m.Bytes == 0 || m.Most != 600 || len(m.Tables) == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	o.Key = keyfile.OfSecret("another secret")
	if _, wrong, _ := texts(); !slices.Equal(wrong, []string{"schema"}) {
		t.Errorf("with another key, refused are %q", wrong)
	}
}

// TestOpenTogether opens stores at the same time in a schema that does not exist yet.
func TestOpenTogether(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	o := postgres.Options{
		Address: server.Address(), Schema: server.Schema(t), AllowSingle: true, Connections: postgres.LeastConnections,
		Key: keyfile.OfSecret("one for all"), Shared: true,
	}
	const together = 4
	stores, errs := make([]*postgres.Store, together), make([]error, together)
	var opening sync.WaitGroup
	for i := range together {
		opening.Go(func() { stores[i], errs[i] = postgres.Open(t.Context(), o) })
	}
	opening.Wait()
	seal := func(s *postgres.Store) *keyfile.Box {
		box, err := s.Key().Box("a test")
		if err != nil {
			t.Fatal(err)
		}
		return box
	}
	for i, s := range stores {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		if _, err := seal(stores[0]).Open("here", seal(s).Seal("here", nil)); err != nil {
			t.Error("two stores of one schema have different keys: ", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMigrate migrates a schema by several stores at once. A step that fails changes nothing.
func TestMigrate(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	o := postgres.Options{Address: server.Address(), Schema: server.Schema(t), AllowSingle: true}
	steps := append(
		postgres.Migrations(), "CREATE TABLE second (n int)",
		"INSERT INTO second VALUES (1); ALTER TABLE second ADD m int",
	)
	half := append(slices.Clone(steps), "CREATE TABLE half (n int); SELECT 1/0")
	if _, _, err := postgres.Migrated(t.Context(), o, half); err == nil {
		t.Error("a step that fails has succeeded")
	}
	count := func(sql string) int {
		return pgtest.Ask[int](t, server, strings.ReplaceAll(sql, "$", o.Schema))
	}
	if got := count("SELECT convert_from(value,'UTF8')::int FROM $.meta WHERE key='version'"); got != 3 {
		t.Errorf("the version is %d after the steps that have succeeded", got)
	}
	if got := count("SELECT count(*)::int FROM pg_tables WHERE schemaname='$' AND tablename='half'"); got != 0 {
		t.Error("a part of a step that failed is there")
	}

	const together = 4
	var migrating sync.WaitGroup
	errs := make([]error, together)
	steps = append(steps, "INSERT INTO second VALUES (2)", "INSERT INTO second VALUES (3)")
	for i := range together {
		migrating.Go(func() {
			var to int
			if _, to, errs[i] = postgres.Migrated(t.Context(), o, steps); to != len(steps) {
				errs[i] = errors.Join(errs[i], fmt.Errorf("it ends at version %d", to))
			}
		})
	}
	migrating.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if got := count("SELECT count(*)::int FROM $.second"); got != 3 {
		t.Errorf("the steps were made %d times", got)
	}
	refused(t, o, "newer version", "version is 5")
}

// TestOpenPooler opens a store behind a pooler that gives each transaction another session.
func TestOpenPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if err := pool(context.WithoutCancel(t.Context()), c, server.Address()); err != nil {
					t.Log("the pooler:", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	refused(
		t, postgres.Options{Address: server.Address(l.Addr().String()), Schema: server.Schema(t), AllowSingle: true},
		"pool_mode = session",
	)
}

// pool is a pooler in transaction mode: a client gets two sessions of the server alternately.
func pool(ctx context.Context, c net.Conn, address string) error {
	defer func() { _ = c.Close() }()
	client := pgproto3.NewBackend(c, c)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return err
	}
	var sessions [2]*pgproto3.Frontend
	for i := range sessions {
		conn, err := pgconn.Connect(ctx, address)
		if err != nil {
			return err
		}
		h, err := conn.Hijack()
		if err != nil {
			return err
		}
		defer func() { _ = h.Conn.Close() }()
		sessions[i] = h.Frontend
		if i > 0 {
			continue
		}
		client.Send(&pgproto3.AuthenticationOk{})
		for name, value := range h.ParameterStatuses {
			client.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
		}
	}
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for n := 0; ; {
		if err := client.Flush(); err != nil {
			return err
		}
		m, err := client.Receive()
		if err != nil {
			return nil
		}
		server := sessions[n%len(sessions)]
		server.Send(m)
		switch m.(type) {
		case *pgproto3.Terminate:
			return nil
		case *pgproto3.Sync, *pgproto3.Query:
		default:
			continue
		}
		if err := server.Flush(); err != nil {
			return err
		}
		for ready := false; !ready; {
			answer, err := server.Receive()
			if err != nil {
				return err
			}
			client.Send(answer)
			if err := client.Flush(); err != nil {
				return err
			}
			if end, is := answer.(*pgproto3.ReadyForQuery); is {
				if ready = true; end.TxStatus == 'I' {
					n++
				}
			}
		}
	}
}

// TestConnectionsUsedUp takes all connections away from a store that is open, and gives them back.
func TestConnectionsUsedUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := open(t, postgres.Options{Address: server.Address(), Connections: postgres.LeastConnections})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error {
		return s.Write(t.Context(), "a/prod", []store.Side{{Space: "x", Key: "k", Op: store.Put}})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "ALTER ROLE j17 CONNECTION LIMIT 0")
	server.Terminate(t, "usename='j17'")
	err := write()
	if errors.Is(err, store.ErrUnknown) {
		err = write() // the first one may have met the end of its connection
	}
	lacking := func(err error) bool {
		return errors.Is(err, store.ErrBusy) &&
			strings.Contains(store.UserError(err).Error(), "lacks connections to its database")
	}
	if !lacking(err) {
		t.Errorf("a write ends with %v", err)
	}
	if _, err := s.Get(t.Context(), "a/prod", "x", "k"); !lacking(err) {
		t.Errorf("a read ends with %v", err)
	}
	server.Exec(t, "ALTER ROLE j17 CONNECTION LIMIT -1")
	system := clock.System{}
	for err = write(); errors.Is(err, store.ErrBusy); err = write() {
		if system.Wait(t.Context(), system.Now().Add(10*time.Millisecond)) != nil {
			break
		}
	}
	if err != nil || !s.Status().Writable {
		t.Errorf("a write ends with %v when there are connections again", err)
	}
}
