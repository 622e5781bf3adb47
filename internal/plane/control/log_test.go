package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

// TestServersOfOneStoreKnowEachOthersChanges changes something by one server and asks another one, which follows the
// log.
func TestServersOfOneStoreKnowEachOthersChanges(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		s := start(t)
		other := s.node(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- other.Run(ctx) }()
		synctest.Wait()
		app, second := s.instance(t, "app"), s.instance(t, "second")
		op, err := s.Operators.Create(ctx, control.NewOperator{
			Email: "a@example.com", Password: password, Role: control.RoleAuditor, Instances: []string{app.ID},
		})
		if err != nil {
			t.Fatal(err)
		}
		key, token := createKey(t, s, app.ID, j17.Prod, j17.ScopeRead)
		_, late := createKey(t, s, second.ID, j17.Prod, j17.ScopeRead)
		node := control.Node{
			Name: "w", Identity: "i", PublicURL: "http://w.example.com", InternalURL: "http://w.internal",
		}
		name := "renamed"
		works := func(token string) func() bool {
			return func() bool { _, ok := other.Keys.ByToken(token); return ok }
		}
		for _, step := range []struct {
			what   string
			change func() error
			known  func() bool
		}{
			{"nothing", func() error { return nil }, works(token)},
			{
				"revoked key", func() error { _, err := s.Keys.Revoke(ctx, key.ID, time.Time{}); return err },
				func() bool { return !works(token)() },
			},
			{"renamed instance", func() error {
				_, err := s.Instances.Change(ctx, app.ID, control.InstanceChange{Name: &name})
				return err
			}, func() bool {
				_, old := other.Instances.ByName("app")
				i, ok := other.Instances.ByName(name)
				return !old && ok && i.ID == app.ID
			}},
			{
				"grant", func() error { _, err := s.Operators.Grant(ctx, op.ID, second.ID); return err },
				func() bool { return other.Operators.May(op.ID, second.ID, control.RightView) },
			},
			{
				"withdrawn grant", func() error { _, err := s.Operators.Withdraw(ctx, op.ID, second.ID); return err },
				func() bool { return !other.Operators.May(op.ID, second.ID, control.RightView) },
			},
			{
				"password", func() error { return s.Operators.SetPassword(ctx, op.ID, "another long password") },
				func() bool {
					now, _ := other.Operators.ByID(op.ID)
					return now.TokensFrom > 0
				},
			},
			{
				"revoked token", func() error {
					return s.Secrets.RevokeToken(ctx, op.ID, "tok", s.clock.Now().Add(time.Hour))
				}, func() bool { return other.Secrets.TokenRevoked("tok") },
			},
			{"signing key", func() error { return s.Secrets.RotateSigningKey(ctx, true) }, func() bool {
				return other.Secrets.SigningKeys()[0].ID == s.Secrets.SigningKeys()[0].ID
			}},
			{
				"node", func() error { return s.Nodes.Register(ctx, node) },
				func() bool { _, ok := other.Nodes.ByName("w"); return ok },
			},
			{"spec", func() error {
				_, err := s.Specs.Put(ctx, control.Deployment{
					Instance: second.ID, Environment: j17.Test, Source: []byte("{}"),
				})
				return err
			}, func() bool {
				<-other.Specs.Moved()
				return slices.Equal(other.Specs.TakeMoved(), []control.Place{
					{Instance: second.ID, Environment: j17.Test},
				})
			}},
			{"deleted instance", func() error { return s.Instances.Delete(ctx, second.ID, "second") }, func() bool {
				_, ok := other.Instances.ByID(second.ID)
				return !ok && !works(late)()
			}},
			{
				"deleted operator", func() error { return s.Operators.Delete(ctx, op.ID) },
				func() bool { _, ok := other.Operators.ByID(op.ID); return !ok },
			},
		} {
			if err := step.change(); err != nil {
				t.Fatal(step.what, err)
			}
			synctest.Wait()
			if !step.known() {
				t.Errorf("%s: the other server does not know of it", step.what)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = s.store.Close() // its goroutines belong to this bubble
	})
}

// TestAChangeBeginsWithWhatOthersHaveDone decides by what another server has changed a moment ago.
func TestAChangeBeginsWithWhatOthersHaveDone(t *testing.T) {
	s := start(t)
	other := s.node(t)
	first, second := admin(t, s, "a@example.com"), admin(t, s, "b@example.com")
	if err := s.Operators.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	want(t, "the last platform admin", other.Operators.Delete(t.Context(), second.ID), j17.CodeConflict, "")
}

func admin(tb testing.TB, s *server, email string) control.Operator {
	tb.Helper()
	op, err := s.Operators.Create(tb.Context(), control.NewOperator{
		Email: email, Password: password, Role: control.RolePlatformAdmin,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return op
}

// TestAChangeItsRecordAndItsEventAreOneCommit looks at the log as it is stored.
func TestAChangeItsRecordAndItsEventAreOneCommit(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	op := admin(t, s, "a@example.com")
	key, token := createKey(t, s, app.ID, j17.Prod, j17.ScopeRead)
	var log []string
	for ev, err := range s.store.ReadFeed(t.Context(), j17.System, j17.StreamID{}, 100) {
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, string(ev.Raw))
	}
	all := strings.Join(log, "\n")
	for _, secret := range []string{"argon2", token, token[6:], "sha256", "secret"} {
		if strings.Contains(all, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	for _, part := range []string{
		`"action":"key.create"`, `"target":"` + key.ID, `"space":"control.keys"`, `"space":"control.operators"`, op.ID,
	} {
		if !strings.Contains(all, part) {
			t.Errorf("the log lacks %s", part)
		}
	}

	// Where it cannot be committed, nothing of it is there.
	before, err := s.store.Extent(t.Context(), j17.System)
	if err != nil {
		t.Fatal(err)
	}
	r, err := control.Open(t.Context(), control.Options{Store: &ending{Store: s.store}, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Keys.Revoke(t.Context(), key.ID, time.Time{}); !errors.Is(err, errEnded) {
		t.Fatal(err)
	}
	after, err := s.store.Extent(t.Context(), j17.System)
	if err != nil || before != after {
		t.Errorf("%+v, it was %+v: %v", after, before, err)
	}
	s.restart(t)
	if _, ok := s.Keys.ByToken(token); !ok {
		t.Error("the key was revoked all the same")
	}
}
