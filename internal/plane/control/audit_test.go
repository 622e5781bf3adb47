package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"j17"
	"j17/internal/plane/control"
)

func auditLog(tb testing.TB, s *server, q control.AuditQuery) []control.Record {
	tb.Helper()
	all, next, err := s.Audit.List(tb.Context(), q, 1000)
	if err != nil || next != "" {
		tb.Fatal(err, next)
	}
	return all
}

func actions(records []control.Record) []string {
	var names []string
	for _, r := range records {
		names = append(names, r.Action)
	}
	return names
}

// TestEveryChangeIsRecorded makes every change that there is and checks that the log tells of it, with nothing secret.
func TestEveryChangeIsRecorded(t *testing.T) {
	s := start(t)
	admin := operator(t, s, "admin@example.com")
	actor := control.Actor{Kind: control.ActorOperator, ID: admin.ID, Email: admin.Email, Address: "192.0.2.1"}
	ctx := control.WithActor(t.Context(), actor, "request-1")
	var tokens []string
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	app, err := s.Instances.Create(ctx, "app")
	must(err)
	other, err := s.Instances.Add(ctx, control.NewInstance{Name: "other", Plan: "free"})
	must(err)
	name, plan := "renamed", "free"
	_, err = s.Instances.Change(ctx, app.ID, control.InstanceChange{Name: &name, Plan: &plan})
	must(err)
	op, err := s.Operators.Create(ctx, control.NewOperator{
		Email: "b@example.com", Password: "the first password", Role: control.RoleAuditor,
	})
	must(err)
	_, err = s.Operators.Grant(ctx, op.ID, app.ID)
	must(err)
	_, err = s.Operators.Withdraw(ctx, op.ID, app.ID)
	must(err)
	_, err = s.Operators.SetRole(ctx, op.ID, control.RolePrivacyOfficer)
	must(err)
	must(s.Operators.SetPassword(ctx, op.ID, "the second password"))
	must(s.Operators.RevokeTokens(ctx, op.ID))
	must(s.Secrets.RevokeToken(ctx, op.ID, "token-id", s.clock.Now().Add(time.Hour)))
	must(s.Operators.Delete(ctx, op.ID))
	key, token, err := s.Keys.Create(ctx, control.NewKey{
		Instance: app.ID, Environment: j17.Staging, Scope: j17.ScopeRead, Name: "k",
	})
	must(err)
	tokens = append(tokens, token)
	if key.CreatedBy != admin.ID {
		t.Errorf("created by %q", key.CreatedBy)
	}
	rotated, token, err := s.Keys.Rotate(ctx, key.ID)
	must(err)
	tokens = append(tokens, token)
	_, err = s.Keys.Revoke(ctx, rotated.ID, s.clock.Now().Add(time.Hour))
	must(err)
	_, err = s.Keys.Revoke(ctx, rotated.ID, time.Time{})
	must(err)
	must(s.Secrets.RotateSigningKey(ctx, true))
	must(s.Instances.Delete(ctx, other.ID, "other"))
	must(s.Audit.Add(ctx, control.Record{
		Action: "blob.upload", Instance: app.ID, Environment: j17.Test, Target: "code", Outcome: control.Refused,
		Code: j17.CodeForbidden,
	}))

	s.restart(t)
	all := auditLog(t, s, control.AuditQuery{})
	if diff := cmp.Diff([]string{
		"blob.upload", "instance.delete", "signing_key.rotate", "key.revoke", "key.schedule_revocation", "key.rotate",
		"key.create",
		"operator.delete", "operator.logout", "operator.revoke_tokens", "operator.set_password", "operator.set_role",
		"operator.withdraw", "operator.grant",
		"operator.create", "instance.change", "instance.create", "instance.create", "operator.create",
	}, actions(all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, r := range all[:len(all)-1] {
		if r.Actor != actor || r.RequestID != "request-1" || !strings.HasPrefix(r.ID, "aud_") || r.At.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	if first := all[len(all)-1]; first.Actor != (control.Actor{Kind: control.ActorServer}) {
		t.Errorf("what the server did itself: %+v", first)
	}
	if diff := cmp.Diff(control.Record{
		At: s.clock.Now().Truncate(time.Millisecond), Action: "key.create", Actor: actor, Instance: app.ID,
		Environment: j17.Staging, Target: key.ID, Outcome: control.Done,
		RequestID: "request-1", Details: map[string]string{"name": "k", "scope": "read", "prefix": key.Prefix},
	}, all[6], cmpopts.IgnoreFields(control.Record{}, "ID")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	shown := fmt.Sprintf("%+v", all)
	for _, secret := range append(
		tokens, password, "the first password", "the second password", "token-id", "argon2id",
	) {
		if strings.Contains(shown, secret) {
			t.Errorf("the log holds a secret: %.8s...", secret)
		}
	}

	// What belongs to an instance can be listed by itself, also when the instance is gone.
	if diff := cmp.Diff(
		[]string{"instance.delete", "instance.create"}, actions(auditLog(t, s, control.AuditQuery{Instance: other.ID})),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for what, c := range map[string]struct {
		q    control.AuditQuery
		want []string
	}{
		"actor":  {control.AuditQuery{Actor: "server"}, []string{"operator.create"}},
		"email":  {control.AuditQuery{Actor: admin.Email, Action: "blob"}, []string{"blob.upload"}},
		"id":     {control.AuditQuery{Actor: admin.ID, Action: "key.rotate"}, []string{"key.rotate"}},
		"nobody": {control.AuditQuery{Actor: "x"}, nil},
		"noun": {
			control.AuditQuery{Action: "key"},
			[]string{"key.revoke", "key.schedule_revocation", "key.rotate", "key.create"},
		},
		"outcome": {control.AuditQuery{Outcome: control.Refused}, []string{"blob.upload"}},
		"target":  {control.AuditQuery{Target: rotated.ID}, []string{"key.revoke", "key.schedule_revocation"}},
		"visible": {
			control.AuditQuery{Visible: func(i string) bool { return i == other.ID }},
			[]string{"instance.delete", "instance.create"},
		},
	} {
		if diff := cmp.Diff(c.want, actions(auditLog(t, s, c.q))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestWhatFailsIsNotRecordedAsDone(t *testing.T) {
	s := start(t)
	s.instance(t, "app")
	_, err := s.Instances.Create(t.Context(), "app")
	want(t, "taken", err, j17.CodeConflict, "name")
	if n := len(auditLog(t, s, control.AuditQuery{})); n != 1 {
		t.Errorf("%d records", n)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "Audit", s.Audit.Add(t.Context(), control.Record{Action: "x.y"}), j17.CodeUnavailable, "")
}

func TestAuditLogPagesAndTimes(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	begin := s.clock.Now()
	for i := range 25 {
		s.clock.Advance(time.Second)
		rec := control.Record{Action: "test.step", Target: fmt.Sprint(i)}
		if i%5 == 0 {
			rec.Instance = app.ID
		}
		if err := s.Audit.Add(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []control.AuditQuery{{Action: "test"}, {Action: "test", Instance: app.ID}} {
		var paged, exported []string
		for {
			page, next, err := s.Audit.List(t.Context(), q, 4)
			if err != nil || len(page) > 4 {
				t.Fatal(err, page)
			}
			for _, r := range page {
				paged = append(paged, r.Target)
			}
			if q.Start = next; next == "" {
				break
			}
		}
		for r, err := range s.Audit.Export(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			exported = append(exported, r.Target)
		}
		wantLen, step := 25, 1
		if q.Instance != "" {
			wantLen, step = 5, 5
		}
		if diff := cmp.Diff(exported, paged); diff != "" || len(paged) != wantLen || paged[len(paged)-1] != "0" ||
			paged[len(paged)-2] != fmt.Sprint(step) {
			t.Errorf("pages %v, export %v", paged, exported)
		}
	}
	between := auditLog(t, s, control.AuditQuery{From: begin.Add(3 * time.Second), To: begin.Add(6 * time.Second)})
	var got []string
	for _, r := range between {
		got = append(got, r.Target)
	}
	if diff := cmp.Diff([]string{"4", "3", "2"}, got); diff != "" {
		t.Errorf("from 3 s to 6 s (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"x", "x/", "\x00", "\xff", strings.Repeat("x", 5000)} {
		_, _, err := s.Audit.List(t.Context(), control.AuditQuery{Instance: bad}, 1)
		want(t, bad, err, j17.CodeInvalidParameter, "instance")
	}
	for _, bad := range []string{
		"x", "zz-1", "ffffffffffffffff", "ffffffffffffffff-\x00", "ffffffffffffffff-" + strings.Repeat("0", 15),
		strings.Repeat("f", 1000),
	} {
		_, _, err := s.Audit.List(t.Context(), control.AuditQuery{Start: bad}, 1)
		want(t, bad, err, j17.CodeInvalidParameter, "start")
	}
}

func TestAuditDetailsAreBounded(t *testing.T) {
	s := start(t)
	details := map[string]string{}
	for i := range 100 {
		details[fmt.Sprint(i)] = strings.Repeat("ü", 1000)
	}
	if err := s.Audit.Add(t.Context(), control.Record{
		Action: "a.b", Target: strings.Repeat("x", 1<<20), Details: details,
	}); err != nil {
		t.Fatal(err)
	}
	r := auditLog(t, s, control.AuditQuery{})[0]
	if len(r.Target) > 400 || len(r.Details) > 16 {
		t.Errorf("target of %d bytes, %d details", len(r.Target), len(r.Details))
	}
	for _, v := range r.Details {
		if len(v) > 400 {
			t.Errorf("a detail of %d bytes", len(v))
		}
	}
}

func TestSetup(t *testing.T) {
	s := start(t)
	old, needed, err := s.Setup.Token(t.Context())
	if err != nil || !needed || len(old) < 20 {
		t.Fatal(old, needed, err)
	}
	token, _, err := s.Setup.Token(t.Context())
	if err != nil || token == old {
		t.Fatal(token, err)
	}
	for _, bad := range []string{"", "x", old, strings.ToLower(token), token + "x"} {
		_, err := s.Setup.Complete(t.Context(), bad, "a@example.com", password)
		want(t, "token "+bad, err, j17.CodeUnauthorized, "")
	}
	_, err = s.Setup.Complete(t.Context(), token, "a@example.com", "short")
	want(t, "password", err, j17.CodeInvalidField, "password")
	if strings.Contains(s.everything(t), token) {
		t.Error("the token is stored")
	}
	s.restart(t)
	got := race(8, func(i int) error {
		_, err := s.Setup.Complete(t.Context(), token, fmt.Sprintf("a%d@example.com", i), password)
		return err
	})
	if diff := cmp.Diff(map[j17.Code]int{"": 1, j17.CodeUnauthorized: 7}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if ops := s.Operators.All(); len(ops) != 1 || ops[0].Role != control.RolePlatformAdmin {
		t.Errorf("operators: %v", ops)
	}
	if _, needed, err := s.Setup.Token(t.Context()); needed || err != nil {
		t.Errorf("a token is needed: %v, %v", needed, err)
	}
}

func TestSetupTokenExpires(t *testing.T) {
	s := start(t)
	token, _, err := s.Setup.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(24 * time.Hour)
	_, err = s.Setup.Complete(t.Context(), token, "a@example.com", password)
	want(t, "a day later", err, j17.CodeUnauthorized, "")
}

func TestEnsureOperator(t *testing.T) {
	s := start(t)
	for _, pw := range []string{password, "a different password"} {
		// The configuration does not overwrite a changed password.
		if err := s.Setup.Ensure(t.Context(), "A@example.com", pw); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Operators.VerifyPassword(t.Context(), "a@example.com", password); err != nil {
		t.Error(err)
	}
	want(t, "a bad address", s.Setup.Ensure(t.Context(), "x", password), j17.CodeInvalidField, "email")
	if err := s.Setup.Ensure(t.Context(), "b@example.com", password); err != nil || len(s.Operators.All()) != 2 {
		t.Error(err, s.Operators.All())
	}
}

// TestRecordsThatAreStoredLate asks for what was recorded before a moment at which some of it was not stored yet:
// another server has stored a later record first.
func TestRecordsThatAreStoredLate(t *testing.T) {
	s := start(t)
	other := s.node(t)
	add := func(r *control.Registry, target string) {
		t.Helper()
		if err := r.Audit.Add(t.Context(), control.Record{Action: "test.step", Target: target}); err != nil {
			t.Fatal(err)
		}
	}
	slow := &overtaken{Store: s.store}
	r, err := control.Open(t.Context(), control.Options{Store: slow, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	s.Registry = r
	add(r, "first")
	s.clock.Advance(time.Second)
	begin := s.clock.Now()
	slow.first = func() {
		s.clock.Advance(time.Minute)
		add(other, "quick")
	}
	add(r, "late")
	for after, want := range map[time.Duration]string{
		0: "[first]", 30 * time.Second: "[late first]", 2 * time.Minute: "[late quick first]",
	} {
		var got []string
		for _, rec := range auditLog(t, s, control.AuditQuery{Action: "test", To: begin.Add(after)}) {
			got = append(got, rec.Target)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%v after it was made there are %v, want %s", after, got, want)
		}
	}
}
