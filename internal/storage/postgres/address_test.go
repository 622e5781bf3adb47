package postgres_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"j17/internal/storage/postgres"
)

// TestAddress parses valid and invalid addresses. No error shows the password.
func TestAddress(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "s3cr3t"
	const with = "postgres://j17:" + secret + "@"
	for _, c := range []struct {
		text, password string
		plain          bool
		// shown is the text of the address after the role, wrong are parts of the errors; one of the two is empty.
		shown string
		wrong []string
	}{
		{text: "postgres://j17@localhost/j17", shown: "localhost:5432/j17"},
		{text: "postgresql://j17:" + secret + "@127.0.0.1:5433/j17", shown: "127.0.0.1:5433/j17"},
		{text: "postgres://j17@[::1]:5433/j17?sslmode=disable", shown: "[::1]:5433/j17"},
		{text: "postgres://j17@/j17?host=/run/postgresql", shown: "/j17"},
		{text: "postgres://j17@one:5432,two:5433/j17", password: secret, shown: "one:5432,two:5433/j17"},
		{text: "postgres://j17@one,two/j17?target_session_attrs=read-write", shown: "one:5432,two:5432/j17"},
		{text: "postgres://j17@one/j17?sslmode=verify-ca", shown: "one:5432/j17"},
		{text: "postgres://j17@one/j17?sslmode=require", plain: true, shown: "one:5432/j17"},

		{wrong: []string{"begin with postgres://"}},
		{text: "mysql://j17:" + secret + "@host/j17", wrong: []string{"begin with postgres://"}},
		{text: with + "host:none/j17", wrong: []string{"not of the form"}},
		{text: with + "one:1,two:2,three:x/j17", wrong: []string{"not of the form"}},
		{text: with + "host/j17?a=%zz", wrong: []string{"behind the question mark"}},
		{text: with + "localhost,one/j17?sslmode=prefer", wrong: []string{"one:5432 is another machine"}},
		{text: with + "localhost/j17?sslmode=sometimes", wrong: []string{`cannot be "sometimes"`}},
		{text: "postgres://j17@localhost/j17?password=" + secret, wrong: []string{"password as a parameter"}},
		{text: "postgres://j17@host/j17?sslrootcert=" + empty, wrong: []string{"holds no certificate"}},
		{
			text:     with + "host/j17?sslkey=/none&sslcert=/none&sslmod=disable&target_session_attrs=any",
			password: secret,
			wrong:    []string{"sslkey", "sslcert", `did you mean "sslmode"`, "read-write only", "two passwords"},
		},
	} {
		text := c.text
		a, found := postgres.ParseAddress(text, c.password, c.plain)
		all := errors.Join(found...)
		if len(found) != len(c.wrong) || all != nil && strings.Contains(all.Error(), secret) {
			t.Errorf("%s: there are %d mistakes, not %d: %v", text, len(found), len(c.wrong), all)
			continue
		}
		for _, want := range c.wrong {
			if !strings.Contains(all.Error(), want) {
				t.Errorf("%s: none of the mistakes is %q: %v", text, want, all)
			}
		}
		if all != nil {
			continue
		}
		if want := "postgres://j17@" + c.shown; a.String() != want {
			t.Errorf("%s is shown as %s, want %s", text, a, want)
		}
		if want := strings.Contains(text, secret); a.HasPassword() != want {
			t.Errorf("%s: that it has a password is %t", text, !want)
		}
	}
}
