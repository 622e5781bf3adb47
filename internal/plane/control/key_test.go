package control_test

import (
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/plane/control"
)

func createKey(tb testing.TB, s *server, instance string, env j17.Environment, scope j17.Scope) (control.Key, string) {
	tb.Helper()
	k, token, err := s.Keys.Create(tb.Context(), control.NewKey{
		Instance: instance, Environment: env, Scope: scope, Name: " backend\n",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k, token
}

func TestKeys(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	var keys []control.Key
	var tokens []string
	for _, env := range j17.Environments() {
		for _, scope := range []j17.Scope{j17.ScopeRead, j17.ScopeWrite} {
			k, token := createKey(t, s, app.ID, env, scope)
			if !regexp.MustCompile(`^j17_0_` + string(env) + `_[1-9a-hjkmnp-z]{39}$`).MatchString(token) {
				t.Errorf("token %q", token)
			}
			if !strings.HasPrefix(token, k.Prefix) || len(k.Prefix) != len("j17_0_"+env+"_")+4 {
				t.Errorf("prefix %q of %q", k.Prefix, token)
			}
			keys, tokens = append(keys, k), append(tokens, token)
		}
	}
	if diff := cmp.Diff(control.Key{
		ID: keys[3].ID, Instance: app.ID, Environment: j17.Staging, Scope: j17.ScopeWrite, Name: "backend",
		Prefix:    keys[3].Prefix,
		CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}, keys[3]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		for i, token := range tokens {
			if got, ok := s.Keys.ByToken(token); !ok || got != keys[i] {
				t.Errorf("KeyByToken = %v, %v; want %v", got, ok, keys[i])
			}
			used := keys[i]
			used.LastUsedAt = s.clock.Now().UTC().Truncate(time.Second)
			if got, ok := s.Keys.ByID(keys[i].ID); !ok || got != used {
				t.Errorf("KeyByID = %v, %v; want %v", got, ok, used)
			}
		}
		if diff := cmp.Diff(keys, s.Keys.Of(app.ID), cmpopts.IgnoreFields(control.Key{}, "LastUsedAt")); diff != "" {
			t.Errorf("Keys (-want +got):\n%s", diff)
		}
		if got := s.Keys.Of(other.ID); len(got) != 0 {
			t.Errorf("keys of another instance: %v", got)
		}
		if _, ok := s.Keys.ByID(tokens[0]); ok {
			t.Error("a key is found by what is no handle")
		}
		s.restart(t)
	}
	all := s.everything(t)
	for i, token := range tokens {
		if !strings.Contains(all, keys[i].ID) {
			t.Error("a key is not stored where this test looks")
		}
		if strings.Contains(all, token) || strings.Contains(all, token[len(token)-39:]) {
			t.Error("a token is stored")
		}
	}
	// What another registry would have issued is well-formed and unknown.
	foreign := start(t)
	_, token := createKey(t, foreign, foreign.instance(t, "app").ID, j17.Prod, j17.ScopeWrite)
	if k, ok := s.Keys.ByToken(token); ok {
		t.Errorf("the token of another server leads to %v", k)
	}
}

func TestTokensEndInTheirCRC32(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	for range 20 {
		_, token := createKey(t, s, app.ID, j17.Test, j17.ScopeRead)
		sum := uint32(0)
		for _, c := range token[len(token)-7:] {
			sum = sum<<5 | uint32(strings.IndexRune("123456789abcdefghjkmnpqrstuvwxyz", c))
		}
		if body := token[:len(token)-7]; sum != crc32.ChecksumIEEE([]byte(body)) {
			t.Errorf("%q ends in %08x", token, sum)
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	s := start(t)
	_, token := createKey(t, s, s.instance(t, "app").ID, j17.Prod, j17.ScopeWrite)
	for _, bad := range []string{
		"", "j17_0_prod_nope", "garbage", token[:len(token)-1], token + "1", " " + token, strings.ToUpper(token),
		strings.Replace(token, "prod", "test", 1),
		strings.Replace(token, "j17_0", "j17_1", 1), strings.Replace(token, "prod_", "", 1),
		strings.Replace(token, "prod_", "_", 1),
		strings.Replace(token, "prod", "staging", 1), strings.Replace(token, "_prod_", "_prod.", 1),
		strings.Repeat("x", 1<<20), "j17_0_" + strings.Repeat("_", 44),
	} {
		if k, ok := s.Keys.ByToken(bad); ok {
			t.Errorf("KeyByToken(%q) = %v", bad, k)
		}
	}
}

func FuzzKeyByToken(f *testing.F) {
	s := start(f)
	_, token := createKey(f, s, s.instance(f, "app").ID, j17.Prod, j17.ScopeWrite)
	for _, seed := range []string{
		"", "j17_0_prod_", "j17_0_staging_" + token[11:], "j17_0__" + token[11:], "a.b.c", "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if k, ok := s.Keys.ByToken(token); ok {
			t.Fatalf("KeyByToken(%q) = %v", token, k)
		}
	})
}

func TestRevocation(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	k, token := createKey(t, s, app.ID, j17.Prod, j17.ScopeWrite)
	works := func() bool {
		t.Helper()
		_, works := s.Keys.ByToken(token)
		if shown, ok := s.Keys.ByID(k.ID); !ok || shown.Active(s.clock.Now()) != works {
			t.Fatalf("the key works: %v; shown as %+v", works, shown)
		}
		return works
	}
	revoke := func(at time.Time) control.Key {
		t.Helper()
		got, err := s.Keys.Revoke(t.Context(), k.ID, at)
		if err != nil {
			t.Fatal(err)
		}
		if shown, _ := s.Keys.ByID(k.ID); shown != got {
			t.Errorf("%+v is shown, %+v was returned", shown, got)
		}
		got.LastUsedAt = time.Time{} // TestLastUse is about that.
		return got
	}
	now := s.clock.Now()
	scheduled := func(at time.Time) control.Key {
		c := k
		c.RevokeAt = at
		return c
	}

	soon, later := now.Add(time.Hour), now.Add(2*time.Hour)
	if diff := cmp.Diff(scheduled(soon), revoke(soon.In(time.FixedZone("x", 3600)))); diff != "" || !works() {
		t.Errorf("scheduled (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(scheduled(later), revoke(later)); diff != "" {
		t.Errorf("scheduled anew (-want +got):\n%s", diff)
	}
	s.clock.Set(later.Add(-1))
	if !works() {
		t.Error("the key ceased to work early")
	}
	s.restart(t)
	s.clock.Set(later)
	if works() {
		t.Error("the key still works")
	}
	_, err := s.Keys.Revoke(t.Context(), k.ID, later.Add(time.Hour))
	want(t, "a second life", err, j17.CodeConflict, "")
	if diff := cmp.Diff(scheduled(later), revoke(time.Time{})); diff != "" {
		t.Errorf("revoked when it had ceased to work (-want +got):\n%s", diff)
	}

	for _, at := range []time.Time{{}, later.Add(-time.Hour), later, time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		k, token = createKey(t, s, app.ID, j17.Prod, j17.ScopeWrite)
		revoked := k
		revoked.RevokedAt = later
		for range 2 {
			if diff := cmp.Diff(revoked, revoke(at)); diff != "" || works() {
				t.Errorf("RevokeKey(%v) (-want +got):\n%s", at, diff)
			}
		}
		_, err := s.Keys.Revoke(t.Context(), k.ID, later.Add(time.Hour))
		want(t, "a second life", err, j17.CodeConflict, "")
		s.restart(t)
		s.clock.Set(now)
		if works() {
			t.Error("a restart and a clock that was set back revived the key")
		}
		s.clock.Set(later)
	}

	k, _ = createKey(t, s, app.ID, j17.Prod, j17.ScopeWrite)
	_, err = s.Keys.Revoke(t.Context(), k.ID, time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("x", -3600)))
	want(t, "beyond the calendar", err, j17.CodeInvalidField, "revoke_at")
	_, err = s.Keys.Revoke(t.Context(), "key_111111111111111", time.Time{})
	want(t, "no key", err, j17.CodeNotFound, "")
}

func TestKeysAreChecked(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	good := control.NewKey{Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k"}
	for _, c := range []struct {
		path string
		code j17.Code
		edit func(*control.NewKey)
	}{
		{"", j17.CodeNotFound, func(k *control.NewKey) { k.Instance = "ins_111111111111111" }},
		{"", j17.CodeNotFound, func(k *control.NewKey) { k.Instance = "app" }},
		{"environment", j17.CodeInvalidField, func(k *control.NewKey) { k.Environment = "" }},
		{"environment", j17.CodeInvalidField, func(k *control.NewKey) { k.Environment = "Prod" }},
		{"scope", j17.CodeInvalidField, func(k *control.NewKey) { k.Scope = "root" }},
		{"scope", j17.CodeInvalidField, func(k *control.NewKey) { k.Scope = "" }},
		{"name", j17.CodeInvalidField, func(k *control.NewKey) { k.Name = " \t " }},
		{"name", j17.CodeInvalidField, func(k *control.NewKey) { k.Name = strings.Repeat("x", 101) }},
		{"name", j17.CodeInvalidField, func(k *control.NewKey) { k.Name = "a\x1b[31mb" }},
		{"name", j17.CodeInvalidField, func(k *control.NewKey) { k.Name = "\xff" }},
	} {
		nk := good
		c.edit(&nk)
		_, token, err := s.Keys.Create(t.Context(), nk)
		want(t, fmt.Sprintf("%+v", nk), err, c.code, c.path)
		if token != "" {
			t.Errorf("%+v: a token is returned", nk)
		}
	}
	if got := s.Keys.Of(app.ID); len(got) != 0 {
		t.Errorf("refused keys exist: %v", got)
	}
}

func TestNumberOfActiveKeysIsBounded(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	var last control.Key
	for range control.MaxActiveKeys {
		last, _ = createKey(t, s, app.ID, j17.Test, j17.ScopeRead)
	}
	nk := control.NewKey{Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "one too many"}
	_, _, err := s.Keys.Create(t.Context(), nk)
	want(t, "one too many", err, j17.CodeConflict, "")
	createKey(t, s, other.ID, j17.Prod, j17.ScopeRead)
	if _, err := s.Keys.Revoke(t.Context(), last.ID, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Keys.Create(t.Context(), nk); err != nil {
		t.Errorf("a key was revoked, yet: %v", err)
	}
	s.restart(t) // More items than one scan reads.
	if n := len(s.Keys.Of(app.ID)); n != control.MaxActiveKeys+1 {
		t.Errorf("%d keys after a restart", n)
	}
}

func TestKeyByTokenDoesNotAllocate(t *testing.T) {
	s := start(t)
	_, token := createKey(t, s, s.instance(t, "app").ID, j17.Staging, j17.ScopeWrite)
	if n := testing.AllocsPerRun(100, func() { _, _ = s.Keys.ByToken(token) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
