package auth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

const (
	email    = "admin@example.com"
	password = "correct horse battery"
)

// server is an authenticator with the instance "app" and one operator.
type server struct {
	*auth.Authenticator
	registry *control.Registry
	clock    *clock.Manual
	app      control.Instance
	operator control.Operator
}

func start(tb testing.TB) *server {
	tb.Helper()
	s := &server{clock: clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))}
	var err error
	if s.registry, err = control.Open(tb.Context(), control.Options{
		Store: testopen.Open(tb, s.clock), Clock: s.clock, PasswordMemory: 64,
	}); err != nil {
		tb.Fatal(err)
	}
	if s.app, err = s.registry.Instances.Create(tb.Context(), "app"); err != nil {
		tb.Fatal(err)
	}
	s.operator, err = s.registry.Operators.Create(tb.Context(), control.NewOperator{
		Email: email, Password: password, Role: control.RolePlatformAdmin,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.Authenticator = auth.New(s.registry, s.clock)
	return s
}

func (s *server) key(tb testing.TB, env j17.Environment, scope j17.Scope) (control.Key, string) {
	tb.Helper()
	k, token, err := s.registry.Keys.Create(tb.Context(), control.NewKey{
		Instance: s.app.ID, Environment: env, Scope: scope, Name: "k",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k, token
}

// refused checks that err is exactly the given refusal.
func refused(tb testing.TB, what string, err error, code j17.Code, message string) {
	tb.Helper()
	e, ok := errors.AsType[*j17.Error](err)
	if !ok {
		tb.Errorf("%s: %v is no *j17.Error", what, err)
		return
	}
	if diff := cmp.Diff(
		&j17.Error{Code: code, Message: message}, e, cmpopts.IgnoreFields(j17.Error{}, "Plain"),
	); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAPIKey(t *testing.T) {
	s := start(t)
	k, token := s.key(t, j17.Staging, j17.ScopeWrite)
	p, err := s.APIKey(token)
	if err != nil {
		t.Fatal(err)
	}
	want := j17.Principal{
		Kind: j17.APIKey, ID: k.ID, Instance: s.app.ID, Environment: j17.Staging, Scope: j17.ScopeWrite,
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	session, err := s.Login(t.Context(), email, password, client)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign := start(t).key(t, j17.Staging, j17.ScopeWrite)
	mistyped := token[:len(token)-10] + strings.Repeat("1", 10)
	for what, bad := range map[string]string{
		"nothing": "", "an invented key": "j17_0_prod_nope", "garbage": "garbage", "a mistyped key": mistyped,
		"a key of another server": foreign,
		"a node secret":           s.registry.Secrets.NodeSecret(), "a handle": k.ID, "a prefix": k.Prefix,
		"too much": strings.Repeat("x", 1<<20),
	} {
		p, err := s.APIKey(bad)
		refused(t, what, err, j17.CodeUnauthorized, "Invalid API key")
		if p != (j17.Principal{}) {
			t.Errorf("%s: %+v", what, p)
		}
	}

	// One credential in the place of the other, whether it is right there or not.
	for _, bad := range []string{session.Token, session.Token + "x"} {
		_, err := s.APIKey(bad)
		refused(t, "an operator's token", err, j17.CodeUnauthorized, "Invalid API key: this has the form of an operator's token, and events and states take an API key.")
	}
	for _, bad := range []string{token, mistyped} {
		_, err := s.Operator(bad)
		refused(t, "an API key", err, j17.CodeUnauthorized, "Invalid token: this has the form of an API key. Send the token of POST /api/login, or a key where events and states are.")
	}
}

func TestRevokedAPIKey(t *testing.T) {
	s := start(t)
	k, token := s.key(t, j17.Prod, j17.ScopeRead)
	at := s.clock.Now().Add(time.Hour)
	if _, err := s.registry.Keys.Revoke(t.Context(), k.ID, at); err != nil {
		t.Fatal(err)
	}
	s.clock.Set(at.Add(-1))
	if _, err := s.APIKey(token); err != nil {
		t.Errorf("before the time: %v", err)
	}
	s.clock.Set(at)
	_, err := s.APIKey(token)
	refused(t, "at the time", err, j17.CodeUnauthorized, "Invalid API key")

	k, token = s.key(t, j17.Prod, j17.ScopeRead)
	if _, err := s.registry.Keys.Revoke(t.Context(), k.ID, time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, err = s.APIKey(token)
	refused(t, "revoked", err, j17.CodeUnauthorized, "Invalid API key")
}

func TestAuthorize(t *testing.T) {
	const app, other = "ins_111111111111111", "ins_222222222222222"
	key := func(env j17.Environment, scope j17.Scope) j17.Principal {
		return j17.Principal{Kind: j17.APIKey, ID: "key_111111111111111", Instance: app, Environment: env, Scope: scope}
	}
	for _, env := range j17.Environments() {
		for _, c := range []struct{ has, need j17.Scope }{
			{j17.ScopeRead, j17.ScopeRead}, {j17.ScopeWrite, j17.ScopeRead}, {j17.ScopeWrite, j17.ScopeWrite},
		} {
			if err := auth.Authorize(key(env, c.has), app, env, c.need); err != nil {
				t.Errorf("%s key for %s in %s: %v", c.has, c.need, env, err)
			}
		}
	}
	const (
		noKey     = "This needs an API key. Send one as a bearer token."
		elsewhere = "This key belongs to another instance. Use a key of the instance in the host name."
		readOnly  = "Read-only key cannot write events"
	)
	for _, c := range []struct {
		what     string
		p        j17.Principal
		instance string
		env      j17.Environment
		need     j17.Scope
		code     j17.Code
		message  string
	}{
		{
			"staging to prod", key(j17.Staging, j17.ScopeWrite), app, j17.Prod, j17.ScopeRead, j17.CodeWrongEnvironment,
			"Staging key cannot access production",
		},
		{
			"test to prod", key(j17.Test, j17.ScopeWrite), app, j17.Prod, j17.ScopeRead, j17.CodeWrongEnvironment,
			"Test key cannot access production",
		},
		{
			"test to staging", key(j17.Test, j17.ScopeRead), app, j17.Staging, j17.ScopeWrite, j17.CodeWrongEnvironment,
			"Test key cannot access staging",
		},
		{
			"prod to test", key(j17.Prod, j17.ScopeRead), app, j17.Test, j17.ScopeRead, j17.CodeWrongEnvironment,
			j17.Prod.Title() + " key cannot access test",
		},
		{
			"no environment", key("", j17.ScopeWrite), app, j17.Prod, j17.ScopeRead, j17.CodeWrongEnvironment,
			" key cannot access production",
		},
		{
			"read to write", key(j17.Prod, j17.ScopeRead), app, j17.Prod, j17.ScopeWrite, j17.CodeInsufficientScope,
			readOnly,
		},
		{"no scope", key(j17.Prod, ""), app, j17.Prod, j17.ScopeRead, j17.CodeInsufficientScope, readOnly},
		{
			"a scope that is none", key(j17.Prod, "admin"), app, j17.Prod, j17.ScopeRead, j17.CodeInsufficientScope,
			readOnly,
		},
		{
			"another instance", key(j17.Prod, j17.ScopeWrite), other, j17.Prod, j17.ScopeRead, j17.CodeWrongInstance,
			elsewhere,
		},
		{
			"another instance and environment", key(j17.Prod, j17.ScopeRead), other, j17.Test, j17.ScopeWrite,
			j17.CodeWrongInstance, elsewhere,
		},
		{"nobody", j17.Principal{}, "", "", "", j17.CodeUnauthorized, noKey},
		{"an operator", j17.Principal{
			Kind: j17.Operator, Role: "platform_admin", Instance: app, Environment: j17.Prod, Scope: j17.ScopeWrite,
		}, app, j17.Prod, j17.ScopeRead, j17.CodeUnauthorized, noKey},
		{
			"a node",
			j17.Principal{Kind: j17.Node, Instance: app, Environment: j17.Prod, Scope: j17.ScopeWrite},
			app,
			j17.Prod, j17.ScopeRead, j17.CodeUnauthorized, noKey,
		},
	} {
		refused(t, c.what, auth.Authorize(c.p, c.instance, c.env, c.need), c.code, c.message)
	}
}

func TestNode(t *testing.T) {
	s := start(t)
	p, err := s.Node(s.registry.Secrets.NodeSecret())
	if err != nil || p != (j17.Principal{Kind: j17.Node}) {
		t.Errorf("Node = %+v, %v", p, err)
	}
	_, token := s.key(t, j17.Prod, j17.ScopeWrite)
	for _, bad := range []string{
		"", "wrong", s.registry.Secrets.NodeSecret() + "x", s.registry.Secrets.NodeSecret()[1:],
		strings.ToLower(s.registry.Secrets.NodeSecret()), token,
	} {
		p, err := s.Node(bad)
		refused(t, bad, err, j17.CodeUnauthorized, "Invalid node secret")
		if p != (j17.Principal{}) {
			t.Errorf("Node(%q) = %+v", bad, p)
		}
	}
}

func TestDataPlaneCheckDoesNotAllocate(t *testing.T) {
	s := start(t)
	_, token := s.key(t, j17.Prod, j17.ScopeWrite)
	if n := testing.AllocsPerRun(100, func() {
		p, err := s.APIKey(token)
		if err != nil || auth.Authorize(p, s.app.ID, j17.Prod, j17.ScopeWrite) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkDataPlaneCheck is what every request with an API key pays.
func BenchmarkDataPlaneCheck(b *testing.B) {
	s := start(b)
	_, token := s.key(b, j17.Prod, j17.ScopeWrite)
	for range control.MaxActiveKeys - 1 {
		s.key(b, j17.Prod, j17.ScopeWrite)
	}
	a := auth.New(s.registry, clock.System{})
	b.Run("good", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := a.APIKey(token)
			if err != nil || auth.Authorize(p, s.app.ID, j17.Prod, j17.ScopeWrite) != nil {
				b.Fatal("refused")
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := a.APIKey(token); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("mistyped", func(b *testing.B) {
		bad := token[:len(token)-1] + "!"
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.APIKey(bad); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
