package auth_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/plane/auth"
	"j17/internal/plane/control"
)

func TestLogout(t *testing.T) {
	s := start(t)
	one, two := login(t, s), login(t, s)
	if err := s.Logout(t.Context(), one.Token); err != nil {
		t.Fatal(err)
	}
	_, err := s.Operator(one.Token)
	refused(t, "the token of the logout", err, j17.CodeUnauthorized, "Invalid token")
	refused(t, "logout twice", s.Logout(t.Context(), one.Token), j17.CodeUnauthorized, "Invalid token")
	if _, err := s.Operator(two.Token); err != nil {
		t.Errorf("another session: %v", err)
	}
	if err := s.registry.Operators.RevokeTokens(t.Context(), s.operator.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.Operator(two.Token)
	refused(t, "after all were revoked", err, j17.CodeUnauthorized, "Invalid token")
}

func TestSigningKeyRotation(t *testing.T) {
	s := start(t)
	before := login(t, s)
	if err := s.registry.Secrets.RotateSigningKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	after := login(t, s)
	if strings.Split(before.Token, ".")[0] == strings.Split(after.Token, ".")[0] {
		t.Error("both tokens name the same key")
	}
	for _, session := range []auth.Session{before, after} {
		if _, err := s.Operator(session.Token); err != nil {
			t.Error(err)
		}
	}
	// A name of one key on a signature of the other.
	a, b := strings.Split(before.Token, "."), strings.Split(after.Token, ".")
	_, err := s.Operator(a[0] + "." + b[1] + "." + b[2])
	refused(t, "mixed", err, j17.CodeUnauthorized, "Invalid token")

	// Keys whose tokens have all expired are dropped.
	s.clock.Advance(auth.TokenLifetime + time.Second)
	for range 2 {
		if err := s.registry.Secrets.RotateSigningKey(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.registry.Secrets.SigningKeys()); n != 3 {
		// The newest, and those before it that may have signed within a day.
		t.Errorf("%d signing keys", n)
	}

	now := login(t, s)
	if err := s.registry.Secrets.RotateSigningKey(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	_, err = s.Operator(now.Token)
	refused(t, "after the keys were revoked", err, j17.CodeUnauthorized, "Invalid token")
}

func TestWhatHappensToAnOperatorCountsAtOnce(t *testing.T) {
	s := start(t)
	op, err := s.registry.Operators.Create(t.Context(), control.NewOperator{
		Email: "b@example.com", Password: password, Role: control.RoleInstanceAdmin, Instances: []string{s.app.ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Login(t.Context(), op.Email, password, client)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.registry.Operators.SetRole(t.Context(), op.ID, control.RoleAuditor); err != nil {
		t.Fatal(err)
	}
	if p, err := s.Operator(session.Token); err != nil || p.Role != string(control.RoleAuditor) {
		t.Errorf("%+v, %v", p, err)
	}
	if err := s.registry.Operators.Delete(t.Context(), op.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.Operator(session.Token)
	refused(t, "gone", err, j17.CodeUnauthorized, "Invalid token")
}

func TestChangePassword(t *testing.T) {
	s := start(t)
	session := login(t, s)
	err := s.ChangePassword(t.Context(), s.operator.ID, "not the password", "another long password", client)
	if j17.CodeOf(err) != j17.CodeForbidden {
		t.Errorf("wrong present password: %v", err)
	}
	if _, err := s.Operator(session.Token); err != nil {
		t.Errorf("a refused change ended the session: %v", err)
	}
	if err := s.ChangePassword(
		t.Context(), s.operator.ID, password, password, client,
	); j17.CodeOf(err) != j17.CodeInvalidField {
		t.Errorf("the present password again: %v", err)
	}
	if err := s.ChangePassword(t.Context(), s.operator.ID, password, "another long password", client); err != nil {
		t.Fatal(err)
	}
	_, err = s.Operator(session.Token)
	refused(t, "after the change", err, j17.CodeUnauthorized, "Invalid token")
	for range 10 {
		_ = s.ChangePassword(t.Context(), s.operator.ID, tooLong, password, client)
	}
	throttled(t, s.ChangePassword(t.Context(), s.operator.ID, "another long password", password, client), 30)
}

// TestAFloodOfGuessesDoesNotLockOut checks that an operator can log in from where they have logged in before, however
// many others try to guess the password.
func TestAFloodOfGuessesDoesNotLockOut(t *testing.T) {
	s := start(t)
	login(t, s)
	guess := func(i int) error {
		_, err := s.Login(t.Context(), email, tooLong, netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", i%250)))
		return err
	}
	codes := map[j17.Code]int{}
	for i := range 500 {
		codes[j17.CodeOf(guess(i))]++
	}
	if codes[j17.CodeUnauthorized] > 50 || codes[j17.CodeRateLimited] < 450 {
		t.Errorf("guesses: %v", codes)
	}
	login(t, s)
	// From elsewhere the right password has to wait, like a wrong one, but not for ever.
	elsewhere := netip.MustParseAddr("198.51.100.9")
	_, err := s.Login(t.Context(), email, password, elsewhere)
	throttled(t, err, 30)
	s.clock.Advance(30 * time.Second)
	if _, err := s.Login(t.Context(), email, password, elsewhere); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestSetupIsThrottled(t *testing.T) {
	s := start(t)
	for range 50 {
		_, err := s.Setup(t.Context(), "wrong", "c@example.com", password, client)
		if j17.CodeOf(err) != j17.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	_, err := s.Setup(t.Context(), "wrong", "c@example.com", password, client)
	throttled(t, err, 6)
}

// TestAPasswordChangeEndsLoginsThatAreUnderWay checks that no token of the old password outlives the change, whenever
// it was asked for, and that of changes with the same present password one succeeds.
func TestAPasswordChangeEndsLoginsThatAreUnderWay(t *testing.T) {
	s := start(t)
	tokens := make(chan string, 6)
	changes := make(chan error, 3)
	var all sync.WaitGroup
	for range cap(tokens) {
		all.Go(func() {
			if session, err := s.Login(t.Context(), s.operator.Email, password, client); err == nil {
				tokens <- session.Token
			}
		})
	}
	for i := range cap(changes) {
		all.Go(func() {
			changes <- s.ChangePassword(
				t.Context(), s.operator.ID, password, fmt.Sprint("another long password ", i), client,
			)
		})
	}
	all.Wait()
	close(tokens)
	close(changes)
	changed := 0
	for err := range changes {
		if err == nil {
			changed++
		} else if code := j17.CodeOf(err); code != j17.CodeForbidden && code != j17.CodeUnauthorized {
			t.Error(err)
		}
	}
	if changed != 1 {
		t.Errorf("%d changes of the same password succeeded", changed)
	}
	for token := range tokens {
		if p, err := s.Operator(token); err == nil {
			t.Errorf("a token of the old password is that of %v", p)
		}
	}
}
