package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

// server is a registry on a store of its own, whose data outlive both.
type server struct {
	*control.Registry
	data  *testopen.Data
	clock *clock.Manual
	store store.Store
	// passwordMemory is little, unless a test is about hashing.
	passwordMemory uint32
}

func start(tb testing.TB) *server {
	tb.Helper()
	return startHashing(tb, 64)
}

// startHashing is start with so many KiB of memory for the hash of a password; 0 as for users.
func startHashing(tb testing.TB, passwordMemory uint32) *server {
	tb.Helper()
	s := &server{
		data: testopen.NewData(tb), clock: clock.NewManual(time.Date(2026, 11, 21, 12, 0, 0, 500, time.UTC)),
		passwordMemory: passwordMemory,
	}
	s.open(tb)
	return s
}

func (s *server) open(tb testing.TB) {
	tb.Helper()
	s.store = s.data.Open(tb, s.clock)
	s.Registry = s.node(tb)
}

// node returns one more registry on the same store, as another server would open it.
func (s *server) node(tb testing.TB) *control.Registry {
	tb.Helper()
	r, err := control.Open(tb.Context(), control.Options{
		Store: s.store, Clock: s.clock, PasswordMemory: s.passwordMemory,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func (s *server) restart(tb testing.TB) {
	tb.Helper()
	s.open(tb)
}

// everything returns all that the registry has stored: the lines of a dump, each followed by the value that it holds
// in base64.
func (s *server) everything(tb testing.TB) string {
	tb.Helper()
	text, err := storetest.Dump(tb.Context(), s.store, j17.System)
	if err != nil {
		tb.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(text) {
		var dumped struct {
			Item struct {
				Value []byte `json:"value"`
			} `json:"item"`
		}
		if err := json.Unmarshal([]byte(line), &dumped); err != nil {
			tb.Fatal(err)
		}
		all.WriteString(line)
		all.Write(dumped.Item.Value)
		all.WriteByte('\n')
	}
	return all.String()
}

func (s *server) instance(tb testing.TB, name string) control.Instance {
	tb.Helper()
	i, err := s.Instances.Create(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// want checks code and path of an error.
func want(tb testing.TB, what string, err error, code j17.Code, path string) {
	tb.Helper()
	e, ok := errors.AsType[*j17.Error](err)
	if !ok || e.Code != code || e.Path != path {
		tb.Errorf("%s: %v; want code %s at %q", what, err, code, path)
	}
}

// race runs f n times at once and returns the codes of its errors with their number; "" counts successes.
func race(n int, f func(i int) error) map[j17.Code]int {
	codes := map[j17.Code]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			err := f(i)
			mu.Lock()
			defer mu.Unlock()
			codes[j17.CodeOf(err)]++
		})
	}
	wg.Wait()
	return codes
}

func TestInstances(t *testing.T) {
	s := start(t)
	if got := s.Instances.All(); len(got) != 0 {
		t.Errorf("a new server has instances: %v", got)
	}
	a := s.instance(t, "app")
	s.clock.Advance(-time.Hour) // Order is that of creation, whatever the clock does.
	b := s.instance(t, "app-2")
	if !regexp.MustCompile(`^ins_[1-9a-hjkmnp-z]{15}$`).MatchString(a.ID) {
		t.Errorf("handle %q", a.ID)
	}
	if diff := cmp.Diff(control.Instance{
		ID: a.ID, Name: "app", Plan: control.DefaultPlan, CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}, a); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 2 {
		if diff := cmp.Diff([]control.Instance{a, b}, s.Instances.All()); diff != "" {
			t.Errorf("Instances (-want +got):\n%s", diff)
		}
		if got, ok := s.Instances.ByName("app-2"); !ok || got != b {
			t.Errorf("InstanceByName = %v, %v", got, ok)
		}
		if got, ok := s.Instances.ByID(a.ID); !ok || got != a {
			t.Errorf("InstanceByID = %v, %v", got, ok)
		}
		_, byName := s.Instances.ByName("nope")
		_, byID := s.Instances.ByID("app")
		if byName || byID {
			t.Error("an instance that does not exist is found")
		}
		_, err := s.Instances.Create(t.Context(), "app")
		want(t, "taken name", err, j17.CodeConflict, "name")
		s.restart(t)
	}
}

func TestInstanceNames(t *testing.T) {
	for _, name := range []string{
		"a", "app", "my-app", "0", "7up", "staging", "test", "stagings", "controls", "x-staging-x",
		strings.Repeat("a", 55),
	} {
		if err := control.CheckInstanceName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "UP", "a b", "x-staging", "x-test", "-staging", "control", "-a", "a-", "-", "a--b", "xn--bcher-kva", "a_b",
		"a.b", "ü", "a\x00", "a/b",
		strings.Repeat("a", 56), strings.Repeat("a", 1<<20),
	} {
		err := control.CheckInstanceName(name)
		want(t, name, err, j17.CodeInvalidField, "name")
		if len(err.Error()) > 200 {
			t.Errorf("the message has %d bytes", len(err.Error()))
		}
	}
	_, err := start(t).Instances.Create(t.Context(), "x-test")
	want(t, "CreateInstance", err, j17.CodeInvalidField, "name")
}

func TestConcurrentCreationHasOneWinner(t *testing.T) {
	s := start(t)
	nodes := []*control.Registry{s.Registry, s.node(t), s.node(t)}
	got := race(18, func(i int) error {
		_, err := nodes[i%3].Instances.Create(t.Context(), "app")
		return err
	})
	if diff := cmp.Diff(map[j17.Code]int{"": 1, j17.CodeConflict: 17}, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	first := s.node(t).Instances.All()
	if len(first) != 1 {
		t.Fatalf("%d instances of one name", len(first))
	}
	for i, n := range nodes { // Who lost knows who won.
		if diff := cmp.Diff(first, n.Instances.All()); diff != "" {
			t.Errorf("node %d (-want +got):\n%s", i, diff)
		}
	}

	got = race(6, func(i int) error {
		_, err := nodes[i%3].Operators.Create(t.Context(), control.NewOperator{
			Email: "a@example.com", Password: "a long password", Role: control.RolePlatformAdmin,
		})
		return err
	})
	if diff := cmp.Diff(map[j17.Code]int{"": 1, j17.CodeConflict: 5}, got); diff != "" {
		t.Errorf("operators (-want +got):\n%s", diff)
	}
}

func TestSecretsAreMadeOnceAndKept(t *testing.T) {
	s := start(t)
	key, node := s.Secrets.SigningKeys()[0].Secret, s.Secrets.NodeSecret()
	if len(key) != 32 || len(node) < 40 || bytes.Equal(key, make([]byte, 32)) {
		t.Errorf("secrets of %d and %d bytes", len(key), len(node))
	}
	s.restart(t)
	if !bytes.Equal(key, s.Secrets.SigningKeys()[0].Secret) || node != s.Secrets.NodeSecret() {
		t.Error("a restart changed the secrets")
	}
	other := start(t)
	if bytes.Equal(key, other.Secrets.SigningKeys()[0].Secret) || node == other.Secrets.NodeSecret() {
		t.Error("two servers have the same secrets")
	}
}

func TestServersThatStartAtOnceAgreeOnSecrets(t *testing.T) {
	clk := clock.NewManual(time.Unix(1, 0))
	st := testopen.Open(t, clk)
	nodes := make([]*control.Registry, 8)
	race(len(nodes), func(i int) (err error) {
		nodes[i], err = control.Open(t.Context(), control.Options{Store: st, Clock: clk})
		return err
	})
	for _, n := range nodes {
		if n == nil || !cmp.Equal(n.Secrets.SigningKeys(), nodes[0].Secrets.SigningKeys()) ||
			n.Secrets.NodeSecret() != nodes[0].Secrets.NodeSecret() {
			t.Fatal("servers on one store disagree")
		}
	}
}

func TestDamageIsReported(t *testing.T) {
	for _, item := range []store.Side{
		{Space: "control.instances", Key: "x", Value: []byte("{")},
		{Space: "control.operators", Key: "x", Value: []byte(`{"created_at":7}`)},
		{Space: "control.keys", Key: "x", Value: []byte(`{"sha256":"00"}`)},
		{Space: "control.secrets", Key: "signing_keys", Value: []byte(`{}`)},
	} {
		s := start(t)
		item.Op = store.Put
		if err := s.store.Write(t.Context(), j17.System, []store.Side{item}); err != nil {
			t.Fatal(err)
		}
		_, err := control.Open(t.Context(), control.Options{Store: s.store, Clock: s.clock})
		want(t, string(item.Space), err, j17.CodeCorruption, "")
	}
	s := start(t)
	app := s.instance(t, "app")
	if _, err := s.Specs.Put(t.Context(), control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"),
	}); err != nil {
		t.Fatal(err)
	}
	tenant := j17.TenantOf(app.ID, j17.Prod)
	items, err := s.store.Scan(t.Context(), tenant, "spec.versions", store.Range{}, 10)
	if err != nil || len(items) == 0 {
		t.Fatal(items, err)
	}
	for _, it := range items {
		if err := s.store.Write(t.Context(), tenant, []store.Side{
			{Op: store.Delete, Space: "spec.versions", Key: it.Key},
		}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Specs.Current(t.Context(), app.ID, j17.Prod)
	want(t, "a version that is gone", err, j17.CodeCorruption, "")
}

func TestClosedStoreRefusesChangesAndKeepsAnswering(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	key, token, err := s.Keys.Create(t.Context(), control.NewKey{
		Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Instances.Create(t.Context(), "two")
	want(t, "CreateInstance", err, j17.CodeUnavailable, "")
	_, err = s.Keys.Revoke(t.Context(), key.ID, time.Time{})
	want(t, "RevokeKey", err, j17.CodeUnavailable, "")
	if got, ok := s.Keys.ByToken(token); !ok || got != key {
		t.Errorf("KeyByToken = %v, %v", got, ok)
	}
	if _, ok := s.Instances.ByName("two"); ok {
		t.Error("an instance that was not stored is shown")
	}
}

// overtaken is a store on which someone else is a little faster.
type overtaken struct {
	store.Store
	first func()
}

func (o *overtaken) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	o.overtake()
	return o.Store.Append(ctx, t, units)
}

func (o *overtaken) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	o.overtake()
	return o.Store.Write(ctx, t, side, fences...)
}

func (o *overtaken) overtake() {
	if first := o.first; first != nil {
		o.first = nil
		first()
	}
}

func TestNoChangeOfAnotherServerIsOverwritten(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	key, _, err := s.Keys.Create(t.Context(), control.NewKey{
		Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	op := operator(t, s, "a@example.com")
	o := &overtaken{Store: s.store}
	r, err := control.Open(t.Context(), control.Options{Store: o, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}

	o.first = func() {
		if _, err := s.Keys.Revoke(t.Context(), key.ID, time.Time{}); err != nil {
			t.Error(err)
		}
	}
	_, err = r.Keys.Revoke(t.Context(), key.ID, s.clock.Now().Add(time.Hour))
	want(t, "RevokeKey", err, j17.CodeConflict, "")
	if got, _ := r.Keys.ByID(key.ID); got.RevokedAt.IsZero() {
		t.Error("the key was revoked elsewhere and still works here")
	}

	o.first = func() {
		if err := s.Operators.SetPassword(t.Context(), op.ID, "the faster password"); err != nil {
			t.Error(err)
		}
	}
	want(t, "SetPassword", r.Operators.SetPassword(t.Context(), op.ID, "the slower password"), j17.CodeConflict, "")
	if _, err := r.Operators.VerifyPassword(t.Context(), op.Email, "the faster password"); err != nil {
		t.Errorf("the password was changed elsewhere, yet here: %v", err)
	}

	deploy := control.Deployment{Instance: app.ID, Environment: j17.Prod, Source: []byte("{}")}
	for base := range 2 {
		deploy.Base = base
		o.first = func() {
			faster := deploy
			faster.Source = []byte{byte('0' + base)}
			if _, err := s.Specs.Put(t.Context(), faster); err != nil {
				t.Error(err)
			}
		}
		_, err = r.Specs.Put(t.Context(), deploy)
		want(t, "PutSpec", err, j17.CodeConflict, "")
	}
}

func TestInternalIDsStayInside(t *testing.T) {
	s := start(t)
	app := s.instance(t, "app")
	op, err := s.Operators.Create(t.Context(), control.NewOperator{
		Email: "a@example.com", Password: "a long password", Role: control.RoleInstanceAdmin,
	})
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := s.Keys.Create(t.Context(), control.NewKey{
		Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := s.Specs.Put(t.Context(), control.Deployment{
		Instance: app.ID, Environment: j17.Prod, Source: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal([]any{app, op, key, spec})
	if err != nil {
		t.Fatal(err)
	}
	v7 := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-`)
	if v7.Match(shown) || bytes.Contains(shown, []byte("argon2id")) ||
		regexp.MustCompile(`"[0-9a-f]{64}"`).Match(bytes.ReplaceAll(shown, []byte(spec.Hash), nil)) {
		t.Errorf("what can be shown contains an internal id or a hash: %s", shown)
	}
	if !v7.MatchString(s.everything(t)) {
		t.Error("what is stored has no UUIDv7")
	}
}
