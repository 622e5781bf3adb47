package pgtest_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"j17/internal/storage/postgres/pgtest"
)

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// TestShared checks what the role of the shared server may do, and that schemas go with their tests.
func TestShared(t *testing.T) {
	s := pgtest.Shared(t)
	var schema string
	t.Run("Schema", func(t *testing.T) {
		schema = s.Schema(t)
		if again := pgtest.Shared(t); again != s || again.Schema(t) == schema {
			t.Error("two tests have the same schema, or another server")
		}
		conn := connect(t, s.Address())
		for _, sql := range []string{
			"CREATE SCHEMA " + schema, "CREATE TABLE " + schema + ".x (a int)", "CHECKPOINT",
			"SELECT pg_switch_wal(), count(*) FROM pg_ls_waldir()",
		} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
		_, err := conn.Exec(t.Context(), "CREATE ROLE other")
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "42501" {
			t.Errorf("the role may create others: %v", err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if n := pgtest.Ask[int](t, s, "SELECT count(*)::int FROM pg_namespace WHERE nspname=$1", schema); n != 0 {
		t.Errorf("%s is still there", schema)
	}
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "data_checksums": "on", "max_connections": "600",
		"listen_addresses": "127.0.0.1",
	} {
		if got := pgtest.Ask[string](t, s, "SELECT current_setting($1)", name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestStart checks that a server has the settings that its test wants.
func TestStart(t *testing.T) {
	s := pgtest.Start(t, "fsync=off")
	if got := pgtest.Ask[string](t, s, "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s", got)
	}
	if s.Host() == pgtest.Shared(t).Host() {
		t.Error("it is the shared server")
	}
}

// childVariable is set for the test program that TestKilled kills.
const childVariable = "J17_TEST_PGTEST_CHILD"

// TestKilled checks that a test program that is killed leaves neither a server nor its data.
func TestKilled(t *testing.T) {
	pgtest.Skip(t)
	if os.Getenv(childVariable) != "" {
		s := pgtest.Shared(t)
		_, _ = os.Stdout.WriteString(s.Address() + "\n" + pgtest.Ask[string](t, s, "SHOW data_directory") + "\n")
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}

	// Start the program and its server.
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), childVariable+"=yes")
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	said.Scan()
	address := said.Text()
	said.Scan()
	data := said.Text()
	if _, err := os.Stat(data); err != nil {
		t.Fatal(err)
	}

	// Kill it. Its server ends, and then the folder is removed.
	conn := connect(t, address)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if _, err := conn.Exec(t.Context(), "SELECT pg_sleep(60)"); err == nil {
		t.Error("the server goes on")
	}
	tick, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s is still there", data)
		}
	}
}
