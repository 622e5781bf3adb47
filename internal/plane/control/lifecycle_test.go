package control_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// write puts one event into every environment of an instance.
func write(tb testing.TB, s *server, instance string) {
	tb.Helper()
	for _, env := range j17.Environments() {
		unit := store.Append{Events: []store.NewEvent{
			{Key: j17.Key{Type: "note", ID: "global"}, Type: "was_made", Data: []byte("{}"), Metadata: []byte("{}")},
		}}
		if _, err := s.store.Append(tb.Context(), j17.TenantOf(instance, env), []store.Append{unit}); err != nil {
			tb.Fatal(err)
		}
	}
}

func (s *server) tenants(tb testing.TB) []j17.Tenant {
	tb.Helper()
	all, err := s.store.Tenants(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestDeleteInstance(t *testing.T) {
	s := start(t)
	app, other := s.instance(t, "app"), s.instance(t, "other")
	for _, id := range []string{app.ID, other.ID} {
		write(t, s, id)
		if _, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: id, Environment: j17.Prod, Source: []byte("{}"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	key, token := createKey(t, s, app.ID, j17.Prod, j17.ScopeRead)
	_, otherToken := createKey(t, s, other.ID, j17.Prod, j17.ScopeRead)
	op, err := s.Operators.Create(t.Context(), control.NewOperator{
		Email: "a@example.com", Password: password, Role: control.RoleInstanceAdmin,
		Instances: []string{app.ID, other.ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, confirm := range []string{"", "APP", "other", app.ID} {
		want(
			t, "confirmed by "+confirm, s.Instances.Delete(t.Context(), app.ID, confirm), j17.CodeInvalidField,
			"confirm",
		)
	}
	if err := s.Instances.Delete(t.Context(), app.ID, "app"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, _ := s.Operators.ByID(op.ID); !cmp.Equal(got.Instances, []string{other.ID}) {
			t.Errorf("the operator has %v", got.Instances)
		}
		_, byName := s.Instances.ByName("app")
		_, byID := s.Instances.ByID(app.ID)
		_, byToken := s.Keys.ByToken(token)
		_, byKey := s.Keys.ByID(key.ID)
		if byName || byID || byToken || byKey || s.Operators.May(op.ID, app.ID, control.RightView) {
			t.Errorf("left of the instance: %v %v %v %v", byName, byID, byToken, byKey)
		}
		if _, ok := s.Keys.ByToken(otherToken); !ok {
			t.Error("a key of another instance is gone")
		}
		if got := len(s.tenants(t)); got != 4 { // three of the other, and the system's
			t.Errorf("tenants: %v", s.tenants(t))
		}
		s.restart(t)
	}
	for _, space := range []store.Space{"control.keys"} {
		items, err := s.store.Scan(t.Context(), j17.System, space, store.Range{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range items {
			if bytes.Contains(it.Value, []byte(app.ID)) {
				t.Errorf("%s/%s is left", space, it.Key)
			}
		}
	}
	want(t, "again", s.Instances.Delete(t.Context(), app.ID, "app"), j17.CodeNotFound, "")
	if again := s.instance(t, "app"); again.ID == app.ID {
		t.Error("a handle was used twice")
	}
}

// TestDataOfDeletedInstancesIsRemovedLater checks that what is written after a deletion, by what had begun before it,
// goes too.
func TestDataOfDeletedInstancesIsRemovedLater(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	if err := s.Instances.Delete(t.Context(), app.ID, "app"); err != nil {
		t.Fatal(err)
	}
	write(t, s, app.ID)
	runUpkeep(t, s)
	if got := s.tenants(t); len(got) != 1 {
		t.Errorf("tenants: %v", got)
	}
	s.clock.Advance(2 * time.Hour)
	runUpkeep(t, s)
	if items, err := s.store.Scan(
		t.Context(), j17.System, "control.dropped_instances", store.Range{}, 10,
	); err != nil || len(items) != 0 {
		t.Error(items, err)
	}
}

// runUpkeep lets the registry's worker run once from its start to its end.
func runUpkeep(tb testing.TB, s *server) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	w := &waiter{Manual: s.clock, waiting: make(chan struct{})}
	r, err := control.Open(tb.Context(), control.Options{Store: s.store, Clock: w})
	if err != nil {
		tb.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := r.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	<-w.waiting
	cancel()
	done.Wait()
}

// waiter tells when each of the loops of a registry that have an interval waits for it.
type waiter struct {
	*clock.Manual
	loops   atomic.Int32
	waiting chan struct{}
}

// Wait waits like the clock it is made of.
func (w *waiter) Wait(ctx context.Context, t time.Time) error {
	if w.loops.Add(1) == 3 {
		close(w.waiting)
	}
	return w.Manual.Wait(ctx, t)
}

func TestChangeInstance(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	s.instance(t, "other")
	change := func(name, plan string) (control.Instance, error) {
		c := control.InstanceChange{Name: &name, Plan: &plan}
		if name == "" {
			c.Name = nil
		}
		if plan == "" {
			c.Plan = nil
		}
		return s.Instances.Change(t.Context(), app.ID, c)
	}
	_, err := change("other", "")
	want(t, "a taken name", err, j17.CodeConflict, "name")
	_, err = change("Bad", "")
	want(t, "a bad name", err, j17.CodeInvalidField, "name")
	_, err = change("", "gold")
	want(t, "no such plan", err, j17.CodeInvalidField, "plan")
	got, err := change("renamed", "free")
	if err != nil || got.Name != "renamed" || got.Plan != "free" || got.ID != app.ID {
		t.Fatal(got, err)
	}
	for range 2 {
		if _, ok := s.Instances.ByName("app"); ok {
			t.Error("the old name still leads to the instance")
		}
		if i, ok := s.Instances.ByName("renamed"); !ok || i != got {
			t.Errorf("by the new name: %v", i)
		}
		if p := s.Instances.PlanOf(app.ID); p.Name != "free" || p.EventsPerMonth != 1000 || p.StorageBytes != 1<<30 ||
			p.RequestsPerMinute != 100 {
			t.Errorf("plan %+v", p)
		}
		s.restart(t)
	}
	s.instance(t, "app") // The old name is free.
}

func TestPlans(t *testing.T) {
	s := start(t)
	r, err := control.Open(t.Context(), control.Options{
		Store: s.store, Clock: s.clock, Plans: []control.Plan{{Name: "free", EventsPerMonth: 5}, {Name: "gold"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		[]control.Plan{{Name: "free", EventsPerMonth: 5}, {Name: "gold"}, {Name: control.DefaultPlan}},
		r.Instances.Plans(),
	); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	gold, err := r.Instances.Add(t.Context(), control.NewInstance{Name: "app", Plan: "gold"})
	if err != nil {
		t.Fatal(err)
	}
	s.restart(t) // A server whose configuration no longer knows the plan.
	if got := s.Instances.PlanOf(gold.ID); got.Name != control.DefaultPlan {
		t.Errorf("plan %+v", got)
	}
	for _, bad := range []control.Plan{
		{},
		{Name: "Gold"},
		{Name: "-"},
		{Name: "a b"},
		{Name: "a", EventsPerMonth: -1},
		{Name: strings.Repeat("a", 50)},
	} {
		if _, err := control.Open(t.Context(), control.Options{
			Store: s.store, Clock: s.clock, Plans: []control.Plan{bad},
		}); j17.CodeOf(err) != j17.CodeInvalidField {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestRotateKey(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	old, oldToken := createKey(t, s, app.ID, j17.Staging, j17.ScopeWrite)
	fresh, token, err := s.Keys.Rotate(t.Context(), old.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := s.Keys.ByToken(oldToken); ok {
			t.Error("the old token still works")
		}
		if k, ok := s.Keys.ByToken(token); !ok || k.ID != fresh.ID || k.ID == old.ID || k.Name != old.Name ||
			k.Environment != old.Environment || k.Scope != old.Scope {
			t.Errorf("the new token leads to %+v", k)
		}
		s.restart(t)
	}
	_, _, err = s.Keys.Rotate(t.Context(), old.ID)
	want(t, "a revoked key", err, j17.CodeConflict, "")
	_, _, err = s.Keys.Rotate(t.Context(), "key_111111111111111")
	want(t, "no key", err, j17.CodeNotFound, "")
	id := fresh.ID
	codes := race(8, func(int) error {
		_, _, err := s.Keys.Rotate(t.Context(), id)
		return err
	})
	if codes[""] != 1 || codes[j17.CodeConflict] != 7 {
		t.Errorf("rotated at once: %v", codes)
	}
}

// TestMassRotationIsBounded checks that revoked keys do not pile up.
func TestMassRotationIsBounded(t *testing.T) {
	s := start(t)
	k, _ := createKey(t, s, s.instance(t, "app").ID, j17.Prod, j17.ScopeRead)
	for range 600 {
		var err error
		if k, _, err = s.Keys.Rotate(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Keys.Of(k.Instance)); n != 501 {
		t.Errorf("%d keys are kept", n)
	}
	s.restart(t)
	if n := len(s.Keys.Of(k.Instance)); n != 501 {
		t.Errorf("%d keys are kept after a restart", n)
	}
	runUpkeep(t, s)
	s.clock.Advance(89 * 24 * time.Hour)
	runUpkeep(t, s)
	if n := len(s.Keys.Of(k.Instance)); n != 501 {
		t.Errorf("%d keys are kept for 89 days", n)
	}
	s.clock.Advance(2 * 24 * time.Hour)
	runUpkeep(t, s)
	s.restart(t)
	if n := len(s.Keys.Of(k.Instance)); n != 1 {
		t.Errorf("%d keys are kept after three months", n)
	}
}

func TestLastUse(t *testing.T) {
	s := start(t)
	k, token := createKey(t, s, s.instance(t, "app").ID, j17.Prod, j17.ScopeRead)
	unused, _ := createKey(t, s, k.Instance, j17.Prod, j17.ScopeRead)
	s.clock.Advance(time.Hour)
	if _, ok := s.Keys.ByToken(token); !ok {
		t.Fatal("the key does not work")
	}
	used := s.clock.Now().UTC().Truncate(time.Second)
	s.clock.Advance(40 * time.Second) // It is stored later, and shown as it was.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil { // notes uses even when it has to end at once
		t.Fatal(err)
	}
	for range 2 {
		if got, _ := s.Keys.ByID(k.ID); !got.LastUsedAt.Equal(used) {
			t.Errorf("last used at %v, want %v", got.LastUsedAt, used)
		}
		if got, _ := s.Keys.ByID(unused.ID); !got.LastUsedAt.IsZero() {
			t.Errorf("the other was used at %v", got.LastUsedAt)
		}
		s.restart(t)
	}
	revoked, err := s.Keys.Revoke(t.Context(), k.ID, time.Time{})
	if err != nil || !revoked.LastUsedAt.Equal(used) {
		t.Errorf("%+v, %v", revoked, err)
	}
}

func TestFaults(t *testing.T) {
	s := start(t)
	_, token := createKey(t, s, s.instance(t, "app").ID, j17.Prod, j17.ScopeRead)
	s.Faults.Report(control.Fault{
		ID: "err_1", Code: j17.CodeInternal, Status: 500, Message: "It broke.",
		Cause: "dial postgres://me:hunter2@db: token " + token + " and eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0. and Authorization: Bearer abc.def\xff",
		Stack: strings.Repeat("frame\n", 10_000), Path: "/" + strings.Repeat("x", 10_000), Instance: "ins_1",
		Environment: j17.Prod,
	})
	check := func() {
		t.Helper()
		f, err := s.Faults.ByID(t.Context(), "err_1")
		if err != nil || f.Message != "It broke." || !f.At.Equal(s.clock.Now().Truncate(time.Millisecond)) ||
			f.Environment != j17.Prod {
			t.Fatalf("%+v, %v", f, err)
		}
		if len(f.Stack) > 9000 || len(f.Path) > 3000 || !strings.HasPrefix(f.Stack, "frame\n") {
			t.Errorf("stack of %d bytes, path of %d", len(f.Stack), len(f.Path))
		}
		for _, secret := range []string{token, "hunter2", "eyJ", "abc.def"} {
			if strings.Contains(f.Cause, secret) {
				t.Errorf("the cause holds a secret: %s", f.Cause)
			}
		}
		if !strings.Contains(f.Cause, "dial postgres[redacted]db: token [redacted] and [redacted] and") {
			t.Errorf("cause %q", f.Cause)
		}
	}
	check() // at once
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	check()
	s.restart(t)
	check()
	for _, id := range []string{"", "err_2", strings.Repeat("x", 5000)} {
		_, err := s.Faults.ByID(t.Context(), id)
		want(t, id, err, j17.CodeNotFound, "")
	}
	s.clock.Advance(7 * 24 * time.Hour)
	_, err := s.Faults.ByID(t.Context(), "err_1")
	want(t, "a week later", err, j17.CodeNotFound, "")
}

func TestRunReportsWhatFails(t *testing.T) {
	s := start(t)
	var log bytes.Buffer
	r, err := control.Open(t.Context(), control.Options{
		Store: s.store, Clock: s.clock, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Registry = r
	_, token := createKey(t, s, s.instance(t, "app").ID, j17.Prod, j17.ScopeRead)
	s.Keys.ByToken(token)
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "last uses of keys could not be stored") {
		t.Errorf("log: %s", log.String())
	}
}

func TestSigningKeysOfAnotherServerAreSeenAfterAConflict(t *testing.T) {
	s := start(t)
	o := &overtaken{Store: s.store}
	r, err := control.Open(t.Context(), control.Options{Store: o, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	o.first = func() {
		if err := s.Secrets.RotateSigningKey(t.Context(), true); err != nil {
			t.Error(err)
		}
	}
	want(t, "RotateSigningKey", r.Secrets.RotateSigningKey(t.Context(), false), j17.CodeConflict, "")
	if diff := cmp.Diff(s.Secrets.SigningKeys(), r.Secrets.SigningKeys()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSigningKeysAreReplacedWithTime(t *testing.T) {
	s := start(t)
	first := s.Secrets.SigningKeys()[0].ID
	runUpkeep(t, s)
	s.restart(t)
	if s.Secrets.SigningKeys()[0].ID != first {
		t.Error("a fresh key was replaced")
	}
	s.clock.Advance(31 * 24 * time.Hour)
	runUpkeep(t, s)
	s.restart(t)
	if keys := s.Secrets.SigningKeys(); keys[0].ID == first || len(keys) != 2 || keys[1].ID != first {
		t.Errorf("%d keys after a month", len(keys))
	}
	records, _, err := s.Audit.List(t.Context(), control.AuditQuery{Action: "signing_key"}, 10)
	if err != nil || len(records) != 1 || records[0].Actor.Kind != control.ActorServer {
		t.Error(records, err)
	}
}

func TestRedact(t *testing.T) {
	s := start(t)
	for text, want := range map[string]string{
		"plain /order/global":                      "plain /order/global",
		"/note/j17_0_staging_abc9/x":               "/note/[redacted]/x",
		"x eyJhbGciOiJI.eyJzdWIiOiJ.c2lnbmF0dXJl!": "x [redacted]!",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw":   "[redacted]",
		"https://me:pw@example.com/":               "https[redacted]example.com/",
	} {
		if got := s.Faults.Redact(text); got != want {
			t.Errorf("Redact(%q) = %q", text, got)
		}
	}
}

// TestErasedFaults: what is kept of failed requests goes with the stream that it names, written or not, and over a
// restart.
func TestErasedFaults(t *testing.T) {
	s := start(t)
	report := func(n, instance, path string) {
		s.Faults.Report(control.Fault{
			ID: "err_" + n, Code: j17.CodeInternal, Message: "m", Path: path, Instance: instance, Environment: j17.Prod,
		})
	}
	report("1", "ins_a", "/user/alice/was_created")
	report("2", "ins_b", "/user/alice/was_created")
	report("3", "ins_a", "/user/bob/was_created")
	report("5", "ins_a", "/user/usr_7kq2")                     // by its handle
	report("6", "ins_a", "/_admin/audit/merkle-root/user/A-7") // by its public id
	report("7", "ins_a", "/user/alice2")
	report("8", "ins_a", "/superuser/alice")
	report("9", "ins_a", "/order/A-7")
	report("10", "ins_a", "/user/ALICE/was_created")
	report("15", "ins_a", "/_projections/balance/alice")
	report("16", "ins_a", "/_projections/balance/ALICE/stream")
	report("17", "ins_a", "/_projections/balance/A-7")
	report("18", "ins_a", "/_projections/balance/alice2/stream")
	s.Faults.Report(control.Fault{
		ID: "err_19", Code: j17.CodeInternal, Message: "There is no A-7 here.", Path: "/batch", Instance: "ins_a",
		Environment: j17.Prod,
	})
	s.Faults.Report(control.Fault{
		ID: "err_20", Code: j17.CodeInternal, Message: "There is no A-71 here.", Path: "/batch", Instance: "ins_a",
		Environment: j17.Prod,
	})
	s.Faults.Report(control.Fault{
		ID: "err_21", Code: j17.CodeInternal, Cause: "folding alice: damaged", Path: "/_projections/balance",
		Instance: "ins_a", Environment: j17.Prod,
	})
	s.Faults.Report(control.Fault{
		ID: "err_22", Code: j17.CodeInternal, Cause: "folding alice2: damaged", Path: "/_projections/balance",
		Instance: "ins_a", Environment: j17.Prod,
	})
	for n, cause := range map[string]string{
		"11": "the head of user:alice: damaged", "12": "the head of user:alice2: damaged",
		"13": "the head of user:bob, usr_7kq2", "14": "usr_7kq2x", "23": "no number after A-7",
	} {
		s.Faults.Report(control.Fault{
			ID: "err_" + n, Code: j17.CodeInternal, Message: "m", Cause: cause, Path: "/batch", Instance: "ins_a",
			Environment: j17.Prod,
		})
	}
	save := func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		s.restart(t)
	}
	save()
	report("4", "ins_a", "/user/alice")
	e := part.Erased{Keys: []j17.Key{{Type: "user", ID: "alice"}}}
	for range 2 {
		s.Faults.Names = func(_ context.Context, _ j17.Tenant, key j17.Key) (j17.Names, error) {
			return j17.Names{Handle: "usr_7kq2", PublicID: "A-7"}, nil
		}
		if err := s.Faults.Erase(t.Context(), "ins_a/prod", e); err != nil {
			t.Fatal(err)
		}
		for id, kept := range map[string]bool{
			"err_1": false, "err_2": true, "err_3": true, "err_4": false, "err_5": false, "err_6": false, "err_7": true,
			"err_8": true, "err_9": true,
			"err_10": false, "err_11": false, "err_12": true, "err_13": false, "err_14": true,
			"err_15": false, "err_16": false, "err_17": false, "err_18": true, "err_19": false, "err_20": true,
			"err_21": false, "err_22": true, "err_23": false,
		} {
			if _, err := s.Faults.ByID(t.Context(), id); (err == nil) != kept {
				t.Errorf("%s: %v", id, err)
			}
		}
		save()
	}
}

// unheard is a store whose writes, while it is on, are stored without that anybody hears of it.
type unheard struct {
	store.Store
	on bool
}

// Write stores side items.
func (u *unheard) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	err := u.Store.Write(ctx, t, side, fences...)
	if err == nil && u.on {
		err = store.ErrUnknown
	}
	return err
}

// TestErasedFaultsThatNobodyHeardOf: a fault goes that was stored although its write seemed to have failed.
func TestErasedFaultsThatNobodyHeardOf(t *testing.T) {
	s := start(t)
	u := &unheard{Store: s.store, on: true}
	r, err := control.Open(t.Context(), control.Options{Store: u, Clock: s.clock, PasswordMemory: 64})
	if err != nil {
		t.Fatal(err)
	}
	r.Faults.Report(control.Fault{
		ID: "err_1", Code: j17.CodeInternal, Message: "m", Path: "/user/alice", Instance: "ins_a",
		Environment: j17.Prod,
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Faults.ByID(t.Context(), "err_1"); err != nil {
		t.Fatal("it was not stored:", err)
	}
	u.on = false
	if err := r.Faults.Erase(t.Context(), "ins_a/prod", part.Erased{
		Keys: []j17.Key{{Type: "user", ID: "alice"}},
	}); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Faults.ByID(t.Context(), "err_1"); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("%+v is left, %v", f, err)
	}
}

// TestADeploymentThatNobodyHeardOf: one that was stored although its write seemed to have failed is told to the audit
// log by the upkeep.
func TestADeploymentThatNobodyHeardOf(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	u := &unheard{Store: s.store, on: true}
	w := &waiter{Manual: s.clock, waiting: make(chan struct{})}
	r, err := control.Open(t.Context(), control.Options{Store: u, Clock: w, PasswordMemory: 64})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Specs.Put(t.Context(), control.Deployment{Instance: app.ID, Environment: j17.Prod, Source: []byte("{}")})
	want(t, "Put", err, j17.CodeOutcomeUnknown, "")
	u.on = false
	if _, err := r.Instances.Create(t.Context(), "another"); err != nil { // which ends the doubt
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	<-w.waiting
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	records, _, err := r.Audit.List(t.Context(), control.AuditQuery{Action: "spec"}, 10)
	if err != nil || len(records) != 1 {
		t.Errorf("the audit log has %+v, %v", records, err)
	}
}
