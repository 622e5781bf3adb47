package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/plane/control"
)

func begin(tb testing.TB, s *server, op control.Operator) (string, control.Session) {
	tb.Helper()
	token, session, err := s.Sessions.Begin(tb.Context(), op, s.clock.Now(), "192.0.2.1")
	if err != nil {
		tb.Fatal(err)
	}
	return token, session
}

func TestSessionsOutliveARestart(t *testing.T) {
	s := start(t)
	op := operator(t, s, "a@example.com")
	token, session := begin(t, s, op)
	ended, other := begin(t, s, op)
	if err := s.Sessions.End(t.Context(), op.ID, other.ID); err != nil {
		t.Fatal(err)
	}
	want(t, "ending twice", s.Sessions.End(t.Context(), op.ID, other.ID), j17.CodeNotFound, "")
	code, _, err := s.Sessions.NewLoginCode(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	used, _, err := s.Sessions.NewLoginCode(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sessions.Redeem(t.Context(), used); err != nil {
		t.Fatal(err)
	}

	// What is stored lets nobody in.
	all := s.everything(t)
	for _, secret := range []string{token, ended, code, used} {
		if strings.Contains(all, secret) || len(secret) < 26 {
			t.Errorf("the store has %s", secret)
		}
	}

	s.restart(t)
	if got, ok := s.Sessions.Use(t.Context(), token); !ok || got.ID != session.ID || got.Operator != op.ID ||
		!got.ExpiresAt.Equal(session.ExpiresAt) {
		t.Errorf("after a restart: %+v %v", got, ok)
	}
	if _, ok := s.Sessions.Use(t.Context(), ended); ok {
		t.Error("a restart brings back a session that has ended")
	}
	if _, err := s.Sessions.Redeem(t.Context(), code); err != nil {
		t.Errorf("a code after a restart: %v", err)
	}
	_, err = s.Sessions.Redeem(t.Context(), used)
	want(t, "a used code after a restart", err, j17.CodeUnauthorized, "")
	if err := s.Operators.RevokeTokens(t.Context(), op.ID); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	if _, ok := s.Sessions.Use(t.Context(), token); ok {
		t.Error("a restart brings back a session whose operator's tokens are void")
	}
}

// TestSessionsEndUnused checks that the time without use counts over restarts, as far as uses are stored: within five
// minutes.
func TestSessionsEndUnused(t *testing.T) {
	s := start(t)
	token, _ := begin(t, s, operator(t, s, "a@example.com"))
	use := func() bool {
		_, ok := s.Sessions.Use(t.Context(), token)
		return ok
	}
	s.clock.Advance(time.Hour)
	if !use() {
		t.Fatal("ended after an hour")
	}
	s.restart(t)
	s.clock.Advance(control.SessionIdle - time.Second)
	if !use() {
		t.Error("the use before the restart does not count")
	}
	s.clock.Advance(control.SessionIdle)
	if use() {
		t.Error("it works after two hours without use")
	}
	s.restart(t)
	if use() {
		t.Error("a restart brings it back")
	}
}

// TestACodeIsRedeemedOnce: of many who use a code at once, one is let in.
func TestACodeIsRedeemedOnce(t *testing.T) {
	s := start(t)
	op := operator(t, s, "a@example.com")
	code, _, err := s.Sessions.NewLoginCode(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	codes := race(20, func(int) error {
		_, err := s.Sessions.Redeem(t.Context(), code)
		return err
	})
	if codes[""] != 1 || codes[j17.CodeUnauthorized] != 19 {
		t.Errorf("%v", codes)
	}
}

func TestSessionsAreFew(t *testing.T) {
	s := start(t)
	op := operator(t, s, "a@example.com")
	race(3*control.MaxSessions, func(i int) error {
		_, _, err := s.Sessions.Begin(t.Context(), op, s.clock.Now(), fmt.Sprint("192.0.2.", i))
		return err
	})
	count := func() int { return strings.Count(s.everything(t), `"space":"control.sessions"`) }
	if n := len(s.Sessions.List(op.ID)); n != control.MaxSessions || count() != n {
		t.Errorf("%d sessions, %d stored", n, count())
	}
	if s.Sessions.List("opr_000000000000000") != nil {
		t.Error("somebody else has sessions")
	}
}

// TestLoginCodesOfAnOperator makes more codes than an operator may have: the oldest do not work any more, those of
// others do.
func TestLoginCodesOfAnOperator(t *testing.T) {
	s := start(t)
	op, other := operator(t, s, "a@example.com"), operator(t, s, "b@example.com")
	newCode := func(of control.Operator) string {
		code, expires, err := s.Sessions.NewLoginCode(t.Context(), of)
		if err != nil || !expires.Equal(s.clock.Now().Add(control.LoginCodeTime).Truncate(time.Second)) {
			t.Fatal(expires, err)
		}
		s.clock.Advance(10 * time.Millisecond) // within one second there is an oldest, too
		return code
	}
	theirs := newCode(other)
	var mine []string
	for range control.MaxLoginCodes + 3 {
		mine = append(mine, newCode(op))
	}
	s.restart(t)
	mine = append(mine, newCode(op))
	for i, code := range mine {
		got, err := s.Sessions.Redeem(t.Context(), code)
		if works := i >= len(mine)-control.MaxLoginCodes; works != (err == nil) || works && got.ID != op.ID {
			t.Errorf("code %d of %d: %v", i, len(mine), err)
		}
	}
	if got, err := s.Sessions.Redeem(t.Context(), theirs); err != nil || got.ID != other.ID {
		t.Errorf("the code of another operator: %v", err)
	}

	// Codes that have expired take no room.
	old := newCode(op)
	s.clock.Advance(control.LoginCodeTime)
	for range control.MaxLoginCodes {
		mine = append(mine, newCode(op))
	}
	for _, code := range mine[len(mine)-control.MaxLoginCodes:] {
		if _, err := s.Sessions.Redeem(t.Context(), code); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Sessions.Redeem(t.Context(), old); j17.CodeOf(err) != j17.CodeUnauthorized {
		t.Errorf("a code after its hour: %v", err)
	}
}
