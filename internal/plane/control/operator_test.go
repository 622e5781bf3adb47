package control_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/control"
)

const password = "correct horse battery"

func operator(tb testing.TB, s *server, email string) control.Operator {
	tb.Helper()
	op, err := s.Operators.Create(tb.Context(), control.NewOperator{
		Email: email, Password: password, Role: control.RolePlatformAdmin,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return op
}

func TestOperators(t *testing.T) {
	s := startHashing(t, 0)
	a := operator(t, s, "  Admin@Example.COM ")
	b := operator(t, s, "b@example.com")
	if diff := cmp.Diff(control.Operator{
		ID: a.ID, Email: "admin@example.com", Role: control.RolePlatformAdmin,
		CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}, a); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		if diff := cmp.Diff([]control.Operator{a, b}, s.Operators.All()); diff != "" {
			t.Errorf("Operators (-want +got):\n%s", diff)
		}
		if got, ok := s.Operators.ByID(a.ID); !ok || !cmp.Equal(got, a) {
			t.Errorf("OperatorByID = %v, %v", got, ok)
		}
		if _, ok := s.Operators.ByID(a.Email); ok {
			t.Error("an operator is found by what is no handle")
		}
		for _, email := range []string{"admin@example.com", " ADMIN@example.com\n"} {
			if got, err := s.Operators.VerifyPassword(t.Context(), email, password); err != nil || !cmp.Equal(got, a) {
				t.Errorf("VerifyPassword(%q) = %v, %v", email, got, err)
			}
		}
		_, err := s.Operators.Create(t.Context(), control.NewOperator{
			Email: "ADMIN@example.com", Password: password, Role: control.RolePlatformAdmin,
		})
		want(t, "taken address", err, j17.CodeConflict, "email")
		s.restart(t)
	}
	all := s.everything(t)
	if !strings.Contains(all, a.ID) || !strings.Contains(all, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Error("the password is not stored as an argon2id hash")
	}
	if strings.Contains(all, password) {
		t.Error("the password is stored")
	}
}

func TestWrongPasswordAndUnknownAddressLookTheSame(t *testing.T) {
	s := startHashing(t, 0)
	operator(t, s, "a@example.com")
	var messages []string
	for _, c := range [][2]string{
		{"a@example.com", "wrong"},
		{"a@example.com", ""},
		{"a@example.com", strings.ToUpper(password)},
		{"b@example.com", password},
		{"", ""},
		{"\xff", "\xff"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.Operators.VerifyPassword(t.Context(), c[0], c[1])
		runtime.ReadMemStats(&after)
		want(t, c[0], err, j17.CodeUnauthorized, "")
		messages = append(messages, err.Error())
		// The memory of a hash is a witness that does not depend on how busy the machine is.
		if n := after.TotalAlloc - before.TotalAlloc; n < 19<<20 {
			t.Errorf("%q: %d bytes were used; the password was not hashed", c[0], n)
		}
	}
	_, err := s.Operators.VerifyPassword(t.Context(), "a@example.com", strings.Repeat("x", control.MaxPassword+1))
	want(t, "too long", err, j17.CodeUnauthorized, "")
	for _, m := range append(messages, err.Error()) {
		if m != messages[0] {
			t.Errorf("%q and %q tell cases apart", m, messages[0])
		}
	}
}

func TestOperatorsAreChecked(t *testing.T) {
	s := start(t)
	good := control.NewOperator{Email: "a@example.com", Password: password, Role: control.RoleInstanceAdmin}
	for _, email := range []string{
		"", "a", "a@", "@b", "a b@example.com", "A <a@example.com>", "a@example.com, b@example.com",
		strings.Repeat("a", 250) + "@b.example",
	} {
		op := good
		op.Email = email
		_, err := s.Operators.Create(t.Context(), op)
		want(t, email, err, j17.CodeInvalidField, "email")
	}
	for _, pw := range []string{
		"", "eleven char", strings.Repeat("ü", 11), strings.Repeat("x", control.MaxPassword+1),
	} {
		op := good
		op.Password = pw
		_, err := s.Operators.Create(t.Context(), op)
		want(t, pw, err, j17.CodeInvalidField, "password")
	}
	for _, role := range []control.Role{"", "root", "Platform_Admin"} {
		op := good
		op.Role = role
		_, err := s.Operators.Create(t.Context(), op)
		want(t, string(role), err, j17.CodeInvalidField, "role")
	}
	if got := s.Operators.All(); len(got) != 0 {
		t.Errorf("refused operators exist: %v", got)
	}
}

func TestSetPassword(t *testing.T) {
	s := start(t)
	op := operator(t, s, "a@example.com")
	s.clock.Advance(time.Minute)
	if err := s.Operators.SetPassword(t.Context(), op.ID, "another long password"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.Operators.VerifyPassword(t.Context(), op.Email, password)
		want(t, "old password", err, j17.CodeUnauthorized, "")
		got, err := s.Operators.VerifyPassword(t.Context(), op.Email, "another long password")
		if err != nil {
			t.Fatal(err)
		}
		changed := op
		changed.TokensFrom = s.clock.Now().Unix() + 1
		if diff := cmp.Diff(changed, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		s.restart(t)
	}
	// Each change ends what was issued after the one before it, however fast they follow each other.
	if err := s.Operators.SetPassword(t.Context(), op.ID, password); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Operators.ByID(op.ID); got.TokensFrom != s.clock.Now().Unix()+2 {
		t.Errorf("TokensFrom = %d at %d", got.TokensFrom, s.clock.Now().Unix())
	}
	want(t, "short password", s.Operators.SetPassword(t.Context(), op.ID, "short"), j17.CodeInvalidField, "password")
	want(t, "nobody", s.Operators.SetPassword(t.Context(), "opr_111111111111111", password), j17.CodeNotFound, "")
}

func TestPasswordsAreNotHashedForWhoHasLeft(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Whether a free slot or the end of the context is seen first is open; that nothing hangs or breaks is not.
	_, err := s.Operators.VerifyPassword(ctx, "a@example.com", "wrong")
	if code := j17.CodeOf(err); code != j17.CodeUnavailable && code != j17.CodeUnauthorized {
		t.Errorf("VerifyPassword = %v", err)
	}
	if j17.CodeOf(err) == j17.CodeUnavailable && !errors.Is(err, context.Canceled) {
		t.Errorf("VerifyPassword = %v", err)
	}
}
