package auth_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

var client = netip.MustParseAddr("192.0.2.1")

// tooLong is a wrong password that is refused without being hashed, which keeps tests with many failures short.
var tooLong = strings.Repeat("x", control.MaxPassword+1)

func login(tb testing.TB, s *server) auth.Session {
	tb.Helper()
	session, err := s.Login(tb.Context(), email, password, client)
	if err != nil {
		tb.Fatal(err)
	}
	return session
}

func TestLogin(t *testing.T) {
	s := start(t)
	session := login(t, s)
	now := s.clock.Now().Unix()
	if session.ExpiresAt != now+86400 || !cmp.Equal(session.Operator, s.operator) {
		t.Errorf("expires at %d, now is %d; operator %+v", session.ExpiresAt, now, session.Operator)
	}
	parts := strings.Split(session.Token, ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts", len(parts))
	}
	decode := func(part string) map[string]any {
		t.Helper()
		b, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if diff := cmp.Diff(
		map[string]any{"alg": "HS256", "typ": "JWT", "kid": s.registry.Secrets.SigningKeys()[0].ID}, decode(parts[0]),
	); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	claims := map[string]any{
		"sub": s.operator.ID, "email": email, "role": "platform_admin", "iat": float64(now),
		"exp": float64(now + 86400),
	}
	got := decode(parts[1])
	if jti, _ := got["jti"].(string); len(jti) < 20 {
		t.Errorf("jti %q", jti)
	}
	delete(got, "jti")
	if diff := cmp.Diff(claims, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}

	p, err := s.Operator(session.Token)
	if err != nil || p != (j17.Principal{Kind: j17.Operator, ID: s.operator.ID, Role: "platform_admin"}) {
		t.Errorf("Operator = %+v, %v", p, err)
	}
	for what, c := range map[string][2]string{
		"wrong password": {email, "x"}, "unknown address": {"no@body.example", password}, "nothing": {"", ""},
	} {
		got, err := s.Login(t.Context(), c[0], c[1], client)
		refused(t, what, err, j17.CodeUnauthorized, "The e-mail address or the password is wrong.")
		if !cmp.Equal(got, auth.Session{}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestTokenExpires(t *testing.T) {
	s := start(t)
	session := login(t, s)
	s.clock.Set(time.Unix(session.ExpiresAt, 0).Add(-1))
	if _, err := s.Operator(session.Token); err != nil {
		t.Errorf("a nanosecond before: %v", err)
	}
	s.clock.Set(time.Unix(session.ExpiresAt, 0))
	_, err := s.Operator(session.Token)
	refused(t, "expired", err, j17.CodeUnauthorized, "Token expired")
	_, err = s.Operator(session.Token[:len(session.Token)-6] + "AAAAAA")
	refused(t, "expired and forged", err, j17.CodeUnauthorized, "Invalid token")
}

func TestTokensThatAreNone(t *testing.T) {
	s := start(t)
	good := login(t, s).Token
	parts := strings.Split(good, ".")
	claims := func(edit func(jwt.MapClaims)) jwt.MapClaims {
		now := s.clock.Now().Unix()
		m := jwt.MapClaims{
			"jti": "1", "sub": s.operator.ID, "email": email, "role": "platform_admin", "iat": now, "exp": now + 60,
		}
		edit(m)
		return m
	}
	same := func(jwt.MapClaims) {}
	kid := any(s.registry.Secrets.SigningKeys()[0].ID)
	sign := func(method jwt.SigningMethod, key any, c jwt.MapClaims) string {
		t.Helper()
		unsigned := jwt.NewWithClaims(method, c)
		unsigned.Header["kid"] = kid
		if kid == nil {
			delete(unsigned.Header, "kid")
		}
		token, err := unsigned.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	key := s.registry.Secrets.SigningKeys()[0].Secret
	if _, err := s.Operator(sign(jwt.SigningMethodHS256, key, claims(same))); err != nil {
		t.Fatalf("the forger of this test is no good: %v", err)
	}
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]string{
		"nothing":           "",
		"a node secret":     s.registry.Secrets.NodeSecret(),
		"dots":              "..",
		"garbage":           "x.y.z",
		"too much":          good + strings.Repeat("A", 1<<20),
		"no signature":      parts[0] + "." + parts[1] + ".",
		"a wrong signature": parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])),
		"other claims": parts[0] + "." + base64.RawURLEncoding.EncodeToString(
			[]byte(`{"sub":"`+s.operator.ID+`","exp":9999999999,"iat":1}`),
		) + "." + parts[2],
		"an algorithm none": sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(same)),
		"another algorithm": sign(jwt.SigningMethodHS512, key, claims(same)),
		"a public key's":    sign(jwt.SigningMethodRS256, pair, claims(same)),
		"another key":       sign(jwt.SigningMethodHS256, []byte("another key"), claims(same)),
		"the key of another": sign(
			jwt.SigningMethodHS256, start(t).registry.Secrets.SigningKeys()[0].Secret, claims(same),
		),
		"an empty key":     sign(jwt.SigningMethodHS256, []byte{}, claims(same)),
		"no expiry":        sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { delete(m, "exp") })),
		"no id":            sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { delete(m, "jti") })),
		"EdDSA":            sign(jwt.SigningMethodEdDSA, ed, claims(same)),
		"no time of issue": sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { delete(m, "iat") })),
		"nobody":           sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { delete(m, "sub") })),
		"an unknown operator": sign(
			jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { m["sub"] = "opr_111111111111111" }),
		),
		"an address":   sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { m["sub"] = email })),
		"a type error": sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { m["exp"] = "never" })),
	} {
		p, err := s.Operator(token)
		refused(t, what, err, j17.CodeUnauthorized, "Invalid token")
		if p != (j17.Principal{}) {
			t.Errorf("%s: %+v", what, p)
		}
	}
	for _, kid = range []any{nil, "", "another", 7, []any{"x"}, map[string]any{}, "../../dev/null"} {
		_, err := s.Operator(sign(jwt.SigningMethodHS256, key, claims(same)))
		refused(t, fmt.Sprintf("kid %v", kid), err, j17.CodeUnauthorized, "Invalid token")
	}
	kid = s.registry.Secrets.SigningKeys()[0].ID
	// The role is the operator's, not the token's.
	p, err := s.Operator(sign(jwt.SigningMethodHS256, key, claims(func(m jwt.MapClaims) { m["role"] = "god" })))
	if err != nil || p.Role != "platform_admin" {
		t.Errorf("Operator = %+v, %v", p, err)
	}
}

func TestPasswordChangeEndsSessions(t *testing.T) {
	s := start(t)
	before := login(t, s).Token
	if err := s.registry.Operators.SetPassword(t.Context(), s.operator.ID, "another long password"); err != nil {
		t.Fatal(err)
	}
	// All within one second.
	_, err := s.Operator(before)
	refused(t, "before the change", err, j17.CodeUnauthorized, "Invalid token")
	after, err := s.Login(t.Context(), email, "another long password", client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Operator(after.Token); err != nil {
		t.Errorf("after the change: %v", err)
	}
}

func TestLoginIsThrottledByAddress(t *testing.T) {
	const wrong = "The e-mail address or the password is wrong."
	for _, address := range []string{email, "no@body.example"} { // Whether it exists does not show.
		s := start(t)
		attempt := func(i int, pw string) error {
			_, err := s.Login(
				t.Context(), strings.ToUpper(address)+strings.Repeat(" ", i%3), pw,
				netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}),
			)
			return err
		}
		for i := range 50 {
			refused(t, "failure", attempt(i, tooLong), j17.CodeUnauthorized, wrong)
		}
		for i := range 3 {
			throttled(t, attempt(60+i, password), 30)
		}
		s.clock.Advance(29 * time.Second)
		throttled(t, attempt(70, password), 1)
		s.clock.Advance(time.Second)
		refused(t, "half a minute later", attempt(71, tooLong), j17.CodeUnauthorized, wrong)
		throttled(t, attempt(72, password), 30)

		// Others are not concerned, but for one in 65,536 who shares the budget.
		free := 0
		for i := range 4 {
			if _, err := s.Login(
				t.Context(), fmt.Sprintf("%d@example.com", i), tooLong, client,
			); j17.CodeOf(err) == j17.CodeUnauthorized {
				free++
			}
		}
		if free < 3 {
			t.Errorf("of 4 other addresses, %d may log in", free)
		}
		s.clock.Advance(30 * time.Second)
		login(t, s)
	}
}

func TestLoginIsThrottledByClient(t *testing.T) {
	for _, c := range []struct {
		same   func(i int) string // Notations and addresses of one client.
		others []string
	}{
		{
			func(i int) string { return []string{"192.0.2.7", "::ffff:192.0.2.7"}[i%2] },
			[]string{"192.0.2.8", "::c000:207", "2001:db8:1:2::1"},
		},
		{
			func(i int) string { return fmt.Sprintf("2001:db8:1:2:%x::1%s", i, []string{"", "%eth0"}[i%2]) },
			[]string{"2001:db8:1:3::1", "192.0.2.7", "::1"},
		},
		{
			func(int) string { return "" },
			[]string{"0.0.0.0", "::", "::1"},
		},
	} {
		s := start(t)
		n := 0
		attempt := func(addr string) error {
			n++
			client, _ := netip.ParseAddr(addr) // What is no address is the zero Addr.
			_, err := s.Login(t.Context(), fmt.Sprintf("%d@example.com", n), tooLong, client)
			return err
		}
		for i := range 50 {
			refused(t, c.same(i), attempt(c.same(i)), j17.CodeUnauthorized, "The e-mail address or the password is wrong.")
		}
		throttled(t, attempt(c.same(50)), 6)
		free := 0
		for _, addr := range c.others {
			if j17.CodeOf(attempt(addr)) == j17.CodeUnauthorized {
				free++
			}
		}
		if free < 2 {
			t.Errorf("after %s, only %d of %q may log in", c.same(0), free, c.others)
		}
		s.clock.Advance(6 * time.Second)
		refused(t, "later", attempt(c.same(51)), j17.CodeUnauthorized, "The e-mail address or the password is wrong.")
		throttled(t, attempt(c.same(52)), 6)
	}
}

// throttled checks for the refusal that names the seconds to wait.
func throttled(tb testing.TB, err error, seconds int64) {
	tb.Helper()
	e, ok := errors.AsType[*j17.Error](err)
	want := &j17.Error{Code: j17.CodeRateLimited, Message: fmt.Sprintf("Too many failed logins. Try again in %ds.", seconds), Details: auth.RetryAfter{Seconds: seconds}}
	if diff := cmp.Diff(want, e); !ok || diff != "" {
		tb.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestSuccessfulLoginsAreNotThrottled(t *testing.T) {
	s := start(t)
	for range 12 {
		login(t, s)
	}
	for range 9 {
		if _, err := s.Login(t.Context(), email, tooLong, client); j17.CodeOf(err) != j17.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	login(t, s) // Neither takes the last try nor gives back more than it took.
	if _, err := s.Login(t.Context(), email, tooLong, client); j17.CodeOf(err) != j17.CodeUnauthorized {
		t.Fatal(err)
	}
	_, err := s.Login(t.Context(), email, password, client)
	throttled(t, err, 30)
}

func TestSuccessfulLoginsDoNotCountAgainstTheClient(t *testing.T) {
	s := start(t)
	fail := func(i int) error {
		_, err := s.Login(t.Context(), fmt.Sprintf("%d@example.com", i), tooLong, client)
		return err
	}
	for i := range 48 {
		if err := fail(i); j17.CodeOf(err) != j17.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	for range 4 {
		login(t, s)
	}
	for i := range 2 {
		refused(t, "the last tries", fail(48+i), j17.CodeUnauthorized, "The e-mail address or the password is wrong.")
	}
	throttled(t, fail(50), 6)
}

func TestGuessesMadeAtOnceCount(t *testing.T) {
	s := start(t)
	codes := map[j17.Code]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			_, err := s.Login(t.Context(), email, fmt.Sprintf("guess %d", i), client)
			mu.Lock()
			defer mu.Unlock()
			codes[j17.CodeOf(err)]++
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[j17.Code]int{j17.CodeUnauthorized: 10, j17.CodeRateLimited: 30}, codes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoCredentialIsEverRepeated(t *testing.T) {
	s := start(t)
	k, apiKey := s.key(t, j17.Prod, j17.ScopeRead)
	session := login(t, s)
	secrets := []string{
		apiKey, apiKey[len(apiKey)-30:], session.Token, strings.Split(session.Token, ".")[2], password,
		"another long password", "short one", s.registry.Secrets.NodeSecret(),
		string(s.registry.Secrets.SigningKeys()[0].Secret),
	}

	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	see := func(values ...any) {
		for _, v := range values {
			logger.LogAttrs(t.Context(), slog.LevelError, "seen", slog.Any("value", v))
			_, _ = fmt.Fprintf(&log, "%v %+v %#v\n", v, v, v)
			if err, ok := v.(error); ok {
				for ; err != nil; err = errors.Unwrap(err) {
					_, _ = fmt.Fprintf(&log, "%+v\n", err)
				}
			}
		}
	}
	p, err := s.APIKey(apiKey)
	see(
		p, err, k, auth.Authorize(p, s.app.ID, j17.Prod, j17.ScopeWrite),
		auth.Authorize(p, s.app.ID, j17.Test, j17.ScopeRead), auth.Authorize(p, "", j17.Prod, j17.ScopeRead),
	)
	for _, secret := range secrets {
		for _, bad := range []string{secret, secret + "1", secret + ".", " " + secret} {
			p, err := s.APIKey(bad)
			see(p, err)
			p, err = s.Operator(bad)
			see(p, err)
			p, err = s.Node(bad)
			see(p, err)
		}
		_, err := s.Login(t.Context(), "b@example.com", secret, client)
		see(err)
		_, err = s.registry.Operators.Create(t.Context(), control.NewOperator{Email: "c", Password: secret})
		see(err)
	}
	see(s.registry.Operators.SetPassword(t.Context(), s.operator.ID, "short one"))
	see(s.registry.Operators.SetPassword(t.Context(), s.operator.ID, "another long password"))
	_, err = s.Operator(session.Token)
	see(err)
	see(s.registry.Operators.All(), s.registry.Keys.Of(s.app.ID), s.registry.Instances.All())
	if _, err := s.registry.Keys.Revoke(t.Context(), k.ID, time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, err = s.APIKey(apiKey)
	see(err)
	if log.Len() < 10_000 {
		t.Fatalf("only %d bytes were seen", log.Len())
	}
	for i, secret := range secrets {
		if strings.Contains(log.String(), secret) {
			t.Errorf("secret %d (%.12s...) shows", i, secret)
		}
	}
}
