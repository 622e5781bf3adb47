package postgres_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
)

// TestRole makes the role of role.sql on a server, opens a store with it, and takes each right away again: what the
// file says is lost without it.
func TestRole(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	address, err := url.Parse(server.Superuser())
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/postgres"
	psql := func(args ...string) {
		t.Helper()
		program := filepath.Join(pgtest.Programs(t), "psql")
		c := exec.Command(program, append([]string{"-Xq", address.String()}, args...)...)
		c.Env = append(os.Environ(), "STORE_PASSWORD="+password)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("psql: %v\n%s", err, out)
		}
	}
	// Servers of tests come with a role and a database of this name.
	psql("-c", "DROP DATABASE j17", "-c", `\c template1`, "-c", "DROP OWNED BY j17", "-c", "DROP ROLE j17")
	psql("-f", "role.sql")

	address.Path, address.User = "/j17", url.UserPassword("j17", password)
	o := postgres.Options{Address: address.String(), AllowSingle: true}
	s, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if pgtest.Ask[bool](t, server, `SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls
		OR has_database_privilege('j17', 'j17', 'CREATE') FROM pg_roles WHERE rolname = 'j17'`) {
		t.Error("the role may do more than it needs")
	}

	// found is what a look at the server says of something.
	found := func(name string) string {
		t.Helper()
		report, err := postgres.Check(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Name == name {
				return f.Text
			}
		}
		t.Fatalf("nothing is said of %s", name)
		return ""
	}
	const erasures = "rights for erasures"
	for _, right := range []struct{ name, lost string }{
		{"pg_monitor", erasures}, {"pg_checkpoint", erasures}, {"EXECUTE ON FUNCTION pg_switch_wal()", erasures},
	} {
		if text := found(right.lost); text != "" {
			t.Errorf("with all rights: %s", text)
		}
		server.Exec(t, "REVOKE "+right.name+" FROM j17")
		if text := found(right.lost); !strings.Contains(text, "GRANT "+right.name+" TO") {
			t.Errorf("without %s: %s", right.name, text)
		}
		server.Exec(t, "GRANT "+right.name+" TO j17")
	}

	// Another schema needs a right to make it.
	o.Schema = "other"
	if text := found("schema"); !strings.Contains(text, "GRANT CREATE ON DATABASE") {
		t.Errorf("of a schema that the role may not make: %q", text)
	}
	server.Exec(t, "GRANT CREATE ON DATABASE j17 TO j17")
	if text := found("schema"); text != "" {
		t.Errorf("of a schema that the role may make: %s", text)
	}
}
