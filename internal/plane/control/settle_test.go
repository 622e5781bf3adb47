package control_test

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

// full is a disk that has no room for the log while it is on.
type full struct{ on atomic.Bool }

func (f *full) String() string { return "full" }

func (f *full) MaybeError(op errorfs.Op) error {
	if f.on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
		return syscall.ENOSPC
	}
	return nil
}

// doubtful is a server whose disk can be full.
type doubtful struct {
	*server
	full  *full
	admin control.Operator
	app   control.Instance
	key   control.Key
	token string
}

// inDoubt runs f with a registry whose disk can be full, which is that of the embedded store. Time is that of a bubble,
// since the store waits for room.
func inDoubt(t *testing.T, f func(t *testing.T, d *doubtful)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &doubtful{server: &server{clock: clock.NewManual(time.Now())}, full: &full{}}
		d.store = testopen.Embedded(errorfs.Wrap(vfs.NewMem(), d.full)).Open(t, clock.System{})
		defer d.full.on.Store(false) // the store is closed
		var err error
		if d.Registry, err = control.Open(
			t.Context(), control.Options{Store: d.store, Clock: clock.System{}},
		); err != nil {
			t.Fatal(err)
		}
		d.app = d.instance(t, "app")
		if d.admin, err = d.Operators.Create(t.Context(), control.NewOperator{
			Email: "a@example.com", Password: "correct horse battery", Role: control.RoleInstanceAdmin,
			Instances: []string{d.app.ID},
		}); err != nil {
			t.Fatal(err)
		}
		if d.key, d.token, err = d.Keys.Create(t.Context(), control.NewKey{
			Instance: d.app.ID, Environment: j17.Prod, Scope: j17.ScopeWrite, Name: "n",
		}); err != nil {
			t.Fatal(err)
		}
		f(t, d)
	})
}

// settle makes room again and waits until the registry accepts changes.
func (d *doubtful) settle(t *testing.T) {
	t.Helper()
	d.full.on.Store(false)
	for range 100 {
		if _, err := d.Instances.Create(t.Context(), "after"); err == nil {
			return
		}
		_ = clock.System{}.Wait(t.Context(), time.Now().Add(time.Second)) // of the bubble
	}
	t.Fatal("the registry accepts no changes although there is room")
}

// sameAsStored compares what the registry says with what another one reads from the store.
func (d *doubtful) sameAsStored(t *testing.T) {
	t.Helper()
	other, err := control.Open(t.Context(), control.Options{Store: d.store, Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	stored, _ := other.Keys.ByID(d.key.ID)
	if now, _ := d.Keys.ByID(d.key.ID); now.RevokedAt != stored.RevokedAt || now.RevokeAt != stored.RevokeAt {
		t.Errorf("the key is revoked at %v here, at %v in the store", now.RevokedAt, stored.RevokedAt)
	}
	_, works := d.Keys.ByToken(d.token)
	_, should := other.Keys.ByToken(d.token)
	if works != should {
		t.Errorf("the key works: %v; by the store it should: %v", works, should)
	}
	for _, right := range []control.Right{control.RightView, control.RightManage} {
		if works, should := d.Operators.May(d.admin.ID, d.app.ID, right),
			other.Operators.May(d.admin.ID, d.app.ID, right); works != should {
			t.Errorf("the operator has the right %q: %v; by the store: %v", right, works, should)
		}
	}
	now, _ := d.Operators.ByID(d.admin.ID)
	if stored, _ := other.Operators.ByID(d.admin.ID); now.TokensFrom != stored.TokensFrom || now.Role != stored.Role {
		t.Errorf("the operator is %+v, in the store %+v", now, stored)
	}
}

func TestRightsInDoubt(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(context.Context, *doubtful) error
		denied func(d *doubtful) bool
	}{
		{"revoked key", func(ctx context.Context, d *doubtful) error {
			_, err := d.Keys.Revoke(ctx, d.key.ID, time.Time{})
			return err
		}, (*doubtful).keyDenied},
		{"rotated key", func(ctx context.Context, d *doubtful) error {
			_, _, err := d.Keys.Rotate(ctx, d.key.ID)
			return err
		}, (*doubtful).keyDenied},
		{"deleted instance", func(ctx context.Context, d *doubtful) error {
			return d.Instances.Delete(ctx, d.app.ID, "app")
		}, (*doubtful).keyDenied},
		{"withdrawn grant", func(ctx context.Context, d *doubtful) error {
			_, err := d.Operators.Withdraw(ctx, d.admin.ID, d.app.ID)
			return err
		}, func(d *doubtful) bool { return !d.Operators.May(d.admin.ID, d.app.ID, control.RightView) }},
		{"lower role", func(ctx context.Context, d *doubtful) error {
			_, err := d.Operators.SetRole(ctx, d.admin.ID, control.RoleAuditor)
			return err
		}, func(d *doubtful) bool { return !d.Operators.May(d.admin.ID, d.app.ID, control.RightManage) }},
		{"deleted operator", func(ctx context.Context, d *doubtful) error {
			return d.Operators.Delete(ctx, d.admin.ID)
		}, func(d *doubtful) bool { return !d.Operators.May(d.admin.ID, d.app.ID, control.RightView) }},
		{"revoked tokens", func(ctx context.Context, d *doubtful) error {
			return d.Operators.RevokeTokens(ctx, d.admin.ID)
		}, func(d *doubtful) bool { op, _ := d.Operators.ByID(d.admin.ID); return op.TokensFrom > 0 }},
		{"revoked token", func(ctx context.Context, d *doubtful) error {
			return d.Secrets.RevokeToken(ctx, d.admin.ID, "tok", time.Now().Add(time.Hour))
		}, func(d *doubtful) bool { return d.Secrets.TokenRevoked("tok") }},
		{"signing key", func(ctx context.Context, d *doubtful) error {
			return d.Secrets.RotateSigningKey(ctx, true)
		}, func(d *doubtful) bool { return len(d.Secrets.SigningKeys()) == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDoubt(t, func(t *testing.T, d *doubtful) {
				t.Helper()
				d.full.on.Store(true)
				want(t, "the change", c.change(t.Context(), d), j17.CodeOutcomeUnknown, "")
				if !c.denied(d) {
					t.Error("what may have been taken away is still there")
				}
				_, err := d.Instances.Create(t.Context(), "other")
				if code := j17.CodeOf(err); code != j17.CodeStorageFull && code != j17.CodeUnavailable {
					t.Errorf("a change while another one is in doubt: %v", err)
				}
				d.settle(t)
				d.sameAsStored(t)
			})
		})
	}
}

func (d *doubtful) keyDenied() bool {
	_, ok := d.Keys.ByToken(d.token)
	return !ok
}

// TestGrantInDoubt gives nothing before it is known to be stored, and everything afterwards.
func TestGrantInDoubt(t *testing.T) {
	inDoubt(t, func(t *testing.T, d *doubtful) {
		t.Helper()
		second := d.instance(t, "second")
		d.full.on.Store(true)
		_, err := d.Operators.Grant(t.Context(), d.admin.ID, second.ID)
		want(t, "Grant", err, j17.CodeOutcomeUnknown, "")
		if d.Operators.May(d.admin.ID, second.ID, control.RightView) {
			t.Error("a grant counts that may not be stored")
		}
		if !d.Operators.May(d.admin.ID, d.app.ID, control.RightView) {
			t.Error("a grant that is in no doubt does not count")
		}
		d.settle(t)
		if !d.Operators.May(d.admin.ID, second.ID, control.RightView) {
			t.Error("the grant is stored and does not count")
		}
		d.sameAsStored(t)
	})
}

// TestDoubtsEndByThemselves lets Run find out, and tell, without any other change.
func TestDoubtsEndByThemselves(t *testing.T) {
	inDoubt(t, func(t *testing.T, d *doubtful) {
		t.Helper()
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- d.Run(ctx) }()
		d.full.on.Store(true)
		_, err := d.Instances.Create(t.Context(), "two")
		want(t, "CreateInstance", err, j17.CodeOutcomeUnknown, "")
		if _, ok := d.Instances.ByName("two"); ok {
			t.Error("an instance is shown that may not be stored")
		}
		d.full.on.Store(false)
		<-d.Settled()
		if _, ok := d.Instances.ByName("two"); !ok {
			t.Error("the instance is stored and not shown")
		}
		d.sameAsStored(t)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestReplicaInDoubt takes away what the headnode takes away although it cannot be stored yet.
func TestReplicaInDoubt(t *testing.T) {
	inDoubt(t, func(t *testing.T, d *doubtful) {
		t.Helper()
		head := start(t)
		app := head.instance(t, "elsewhere")
		key, token, err := head.Keys.Create(t.Context(), control.NewKey{
			Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Replication.Follow(nil)
		whole, err := head.Replication.Next(t.Context(), "w", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Replication.Apply(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		if _, ok := d.Keys.ByToken(token); !ok {
			t.Fatal("the replica does not know the key")
		}
		// A spec comes with it, which cannot be stored either and must not stand in the way.
		if _, err := head.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"),
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := head.Keys.Revoke(t.Context(), key.ID, time.Time{}); err != nil {
			t.Fatal(err)
		}
		change, err := head.Replication.Next(t.Context(), "w", whole.Position)
		if err != nil {
			t.Fatal(err)
		}
		d.full.on.Store(true)
		want(t, "Apply", d.Replication.Apply(t.Context(), change), j17.CodeOutcomeUnknown, "")
		if _, ok := d.Keys.ByToken(token); ok {
			t.Error("the headnode has revoked the key, and it still works")
		}
		d.full.on.Store(false)
		for err = d.Replication.Apply(t.Context(), change); err != nil; err = d.Replication.Apply(t.Context(), change) {
			_ = clock.System{}.Wait(t.Context(), time.Now().Add(time.Second)) // of the bubble
		}
		if _, ok := d.Keys.ByToken(token); ok {
			t.Error("the key works again")
		}
	})
}
