package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// headnode is the upstream of a replica in a test: the registry itself.
type headnode struct {
	*control.Registry
	away bool
}

var errAway = errors.New("away")

func (h *headnode) PutSpec(ctx context.Context, d control.Deployment) (control.Spec, error) {
	if h.away {
		return control.Spec{}, errAway
	}
	return h.Specs.Put(ctx, d)
}

func (h *headnode) SpecVersion(
	ctx context.Context, instance string, env j17.Environment, version int,
) (control.Spec, error) {
	return h.Specs.Version(ctx, instance, env, version)
}

func (h *headnode) Audit(ctx context.Context, rec control.Record) error {
	if h.away {
		return errAway
	}
	return h.Registry.Audit.Add(ctx, rec)
}

// replica returns a second registry, on a store of its own, that follows the first.
func replica(tb testing.TB, of *server) (*server, *headnode) {
	tb.Helper()
	s, up := start(tb), &headnode{Registry: of.Registry}
	s.Replication.Follow(up)
	return s, up
}

// atOnce returns what a replica is sent without waiting.
func atOnce(tb testing.TB, from *control.Registry, position string) (control.Update, error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	return from.Replication.Next(ctx, "one", position)
}

// catchUp brings a replica up to date and returns what it was sent.
func catchUp(tb testing.TB, from *control.Registry, to *server) control.Update {
	tb.Helper()
	position, err := to.Replication.Position(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	rep, err := atOnce(tb, from, position)
	if err != nil {
		tb.Fatal(err)
	}
	if err := to.Replication.Apply(tb.Context(), rep); err != nil {
		tb.Fatal(err)
	}
	return rep
}

func TestReplica(t *testing.T) {
	s := start(t)
	r, up := replica(t, s)
	ctx := t.Context()
	op, err := s.Operators.Create(ctx, control.NewOperator{
		Email: "ann@example.com", Password: password, Role: control.RolePlatformAdmin,
	})
	if err != nil {
		t.Fatal(err)
	}
	app, err := s.Instances.Create(ctx, "app")
	if err != nil {
		t.Fatal(err)
	}
	newKey := func() (control.Key, string) {
		key, token, err := s.Keys.Create(ctx, control.NewKey{
			Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
		})
		if err != nil {
			t.Fatal(err)
		}
		return key, token
	}
	key, token := newKey()
	if rep := catchUp(t, s.Registry, r); !rep.Whole {
		t.Error("an empty replica does not get everything")
	}
	check := func(when string, works bool, name string) {
		t.Helper()
		if _, ok := r.Keys.ByToken(token); ok != works {
			t.Errorf("%s: the key works: %v", when, ok)
		}
		if i, ok := r.Instances.ByName(name); !ok || i.ID != app.ID {
			t.Errorf("%s: the instance is called %v", when, i)
		}
		if got, ok := r.Operators.ByID(op.ID); !ok || got.Email != op.Email {
			t.Errorf("%s: operator %v", when, got)
		}
		if got := r.Secrets.SigningKeys(); got[0].ID != s.Secrets.SigningKeys()[0].ID {
			t.Errorf("%s: signing keys %v", when, got)
		}
	}
	check("first", true, "app")
	if _, err := r.Operators.VerifyPassword(
		ctx, "ann@example.com", password,
	); j17.CodeOf(err) != j17.CodeUnauthorized && err == nil {
		t.Error("a replica knows passwords")
	}
	if text := r.everything(t); strings.Contains(text, "argon2") || strings.Contains(text, s.Secrets.NodeSecret()) {
		t.Error("secrets of the headnode are at the replica")
	}

	if rep := catchUp(t, s.Registry, r); rep.Whole || len(rep.Changes) > 0 {
		t.Errorf("nothing has changed, but %d items are sent", len(rep.Changes))
	}
	if _, err := s.Keys.Revoke(ctx, key.ID, time.Time{}); err != nil {
		t.Fatal(err)
	}
	name := "renamed"
	if _, err := s.Instances.Change(ctx, app.ID, control.InstanceChange{Name: &name}); err != nil {
		t.Fatal(err)
	}
	if err := s.Secrets.RotateSigningKey(ctx, false); err != nil {
		t.Fatal(err)
	}
	if rep := catchUp(t, s.Registry, r); rep.Whole || len(rep.Changes) == 0 {
		t.Errorf("a few changes were sent as %v with %d items", rep.Whole, len(rep.Changes))
	}
	check("revoked and renamed", false, name)
	if _, ok := r.Instances.ByName("app"); ok {
		t.Error("the old name still leads somewhere")
	}
	r.restart(t)
	r.Replication.Follow(up)
	check("after a restart", false, name)

	// What changed before the headnode was started anew is found out all the same, and what is gone goes.
	key, token = newKey()
	catchUp(t, s.Registry, r)
	check("second key", true, name)
	if err := s.Instances.Delete(ctx, app.ID, name); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	up.Registry = s.Registry
	if rep := catchUp(t, s.Registry, r); rep.Whole || len(rep.Changes) == 0 {
		t.Errorf("a headnode that was restarted has sent all, %v, with %d items", rep.Whole, len(rep.Changes))
	}
	if _, ok := r.Keys.ByToken(token); ok {
		t.Error("the key of a deleted instance works")
	}
	if got := r.Instances.All(); len(got) > 0 {
		t.Errorf("instances: %v", got)
	}
	if _, ok := r.Keys.ByID(key.ID); ok {
		t.Error("the key is still there")
	}
}

// TestALateUpdateBringsNoOlderSpec: what the headnode has sent before a deployment may arrive after it.
func TestALateUpdateBringsNoOlderSpec(t *testing.T) {
	s := start(t)
	r, _ := replica(t, s)
	ctx := t.Context()
	app, err := s.Instances.Create(ctx, "app")
	if err != nil {
		t.Fatal(err)
	}
	catchUp(t, s.Registry, r)
	position, err := r.Replication.Position(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := control.Deployment{Instance: app.ID, Environment: j17.Prod, Source: []byte(`{"first":1}`)}
	if _, err := r.Specs.Put(ctx, first); err != nil {
		t.Fatal(err)
	}
	late, err := s.Replication.Next(ctx, "one", position)
	if err != nil || len(late.Changes) == 0 {
		t.Fatalf("%v %v", late, err)
	}
	second := first
	second.Source, second.Base = []byte(`{"second":2}`), 1
	deployed, err := r.Specs.Put(ctx, second)
	if err != nil {
		t.Fatal(err)
	}

	if err := r.Replication.Apply(ctx, late); err != nil {
		t.Fatal(err)
	}
	got, err := r.Specs.Current(ctx, app.ID, j17.Prod)
	if err != nil || got.Version != 2 || string(got.Source) != string(second.Source) {
		t.Errorf("version %d, %s, %v", got.Version, got.Source, err)
	}
	if got.Fence != deployed.Fence {
		t.Errorf("events that are under way are fenced on %v, which is now %v", deployed.Fence, got.Fence)
	}
	catchUp(t, s.Registry, r)
	if got, err := r.Specs.History(ctx, app.ID, j17.Prod, 0, 10); err != nil || len(got) != 2 {
		t.Errorf("history: %v %v", got, err)
	}
}

func TestReplicaIsReadOnly(t *testing.T) {
	s := start(t)
	r, up := replica(t, s)
	ctx := t.Context()
	app, err := s.Instances.Create(ctx, "app")
	if err != nil {
		t.Fatal(err)
	}
	catchUp(t, s.Registry, r)
	_, err = r.Instances.Create(ctx, "other")
	want(t, "create an instance", err, j17.CodeUnavailable, "")
	_, _, err = r.Keys.Create(ctx, control.NewKey{
		Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	want(t, "create a key", err, j17.CodeUnavailable, "")
	err = r.Replication.Apply(ctx, control.Update{
		Position: "x-1", Changes: []control.Change{{Space: "control.secrets", Key: "node", Value: []byte("{}")}},
	})
	want(t, "a secret that is none of the replica's", err, j17.CodeInvalidField, "")
	err = r.Replication.Apply(ctx, control.Update{
		Position: "x-1", Changes: []control.Change{{Space: "usage.days", Key: "x", Value: []byte("{}")}},
	})
	want(t, "another space", err, j17.CodeInvalidField, "")

	// Specs go through the headnode, and are here at once.
	put := func(source string, base int) (control.Spec, error) {
		return r.Specs.Put(ctx, control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte(source), Base: base,
		})
	}
	for i := range 3 {
		if got, err := put(fmt.Sprintf(`{"a":%d}`, i), i); err != nil || got.Version != i+1 {
			t.Fatal(got, err)
		}
	}
	_, err = put(`{"a":9}`, 1)
	want(t, "an old base", err, j17.CodeConflict, "")
	for _, registry := range []*control.Registry{s.Registry, r.Registry} {
		if got, err := registry.Specs.Current(ctx, app.ID, j17.Prod); err != nil || got.Version != 3 ||
			string(got.Source) != `{"a":2}` {
			t.Errorf("%v %v", got, err)
		}
	}
	// A new replica gets the current source, and others when it asks.
	other, otherUp := replica(t, s)
	catchUp(t, s.Registry, other)
	if got, err := other.Specs.Version(ctx, app.ID, j17.Prod, 1); err != nil || string(got.Source) != `{"a":0}` {
		t.Errorf("%v %v", got, err)
	}
	otherUp.away, up.away = true, true
	if got, err := other.Specs.Version(ctx, app.ID, j17.Prod, 1); err != nil || string(got.Source) != `{"a":0}` {
		t.Errorf("the second time: %v %v", got, err)
	}
	if got, err := other.Specs.Current(ctx, app.ID, j17.Prod); err != nil || string(got.Source) != `{"a":2}` {
		t.Errorf("the current one: %v %v", got, err)
	}
	if _, err := put(`{"a":3}`, 3); !errors.Is(err, errAway) {
		t.Errorf("without the headnode: %v", err)
	}
	if err := r.Audit.Add(ctx, control.Record{Action: "blob.put"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Audit.SendUnsent(ctx); !errors.Is(err, errAway) {
		t.Errorf("records were sent to a headnode that is away: %v", err)
	}
	up.away = false
	s.clock.Advance(time.Hour)
	for range 2 { // the second time there is nothing left
		if err := r.Audit.SendUnsent(ctx); err != nil {
			t.Fatal(err)
		}
	}
	log, _, err := s.Audit.List(ctx, control.AuditQuery{Action: "blob"}, 10)
	if err != nil || len(log) != 1 || log[0].Details["happened_at"] != "2026-11-21T12:00:00Z" ||
		log[0].Actor.Kind != control.ActorServer {
		t.Errorf("a record made while the headnode was away: %v %v", log, err)
	}
}

func TestAwaitReplicas(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		s := start(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		whole, err := s.Replication.Next(ctx, "one", "")
		if err != nil {
			t.Fatal(err)
		}
		if missing := s.Replication.AwaitReplicas(ctx); missing != nil {
			t.Errorf("%v are waited for that never came back", missing)
		}
		answers := make(chan control.Update)
		poll := func(position string) {
			rep, err := s.Replication.Next(ctx, "one", position)
			if err != nil {
				t.Error(err)
			}
			answers <- rep
		}
		go poll(whole.Position)
		synctest.Wait()
		if _, err := s.Instances.Create(ctx, "app"); err != nil {
			t.Fatal(err)
		}
		rep := <-answers
		done := make(chan []string)
		go func() { done <- s.Replication.AwaitReplicas(ctx) }()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("it did not wait")
		default:
		}
		go poll(rep.Position)
		if missing := <-done; missing != nil {
			t.Errorf("%v missing", missing)
		}
		// One that does not come back is waited for once.
		if _, err := s.Instances.Create(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		<-answers
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if missing := s.Replication.AwaitReplicas(short); !slices.Equal(missing, []string{"one"}) {
			t.Errorf("%v missing", missing)
		}
		if missing := s.Replication.AwaitReplicas(ctx); missing != nil {
			t.Errorf("%v missing, again", missing)
		}
		go poll(rep.Position) // it is back, and behind
		<-answers
		s.Replication.Disconnected("one")
		if missing := s.Replication.AwaitReplicas(ctx); missing != nil {
			t.Errorf("%v missing, though disconnected", missing)
		}
		_ = s.store.Close() // its goroutines belong to this bubble
	})
}

func TestRegisterNode(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	before, err := s.Instances.Create(ctx, "before")
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string) control.Node {
		return control.Node{
			Name: name, Identity: "folder of " + name, PublicURL: "https://" + name + ".example.com",
			InternalURL: "http://10.0.0.1:17001", Version: "1",
		}
	}
	for _, change := range []func(*control.Node){
		func(n *control.Node) { n.Name = "" },
		func(n *control.Node) { n.Name = "A" },
		func(n *control.Node) { n.Name = strings.Repeat("a", 64) },
		func(n *control.Node) { n.Identity = "" },
		func(n *control.Node) { n.PublicURL = "ftp://example.com" },
		func(n *control.Node) { n.PublicURL = "https://example.com/path" },
		func(n *control.Node) { n.InternalURL = "https://user:password@example.com" },
		func(n *control.Node) { n.InternalURL = "https://" },
	} {
		n := node("one")
		change(&n)
		if err := s.Nodes.Register(ctx, n); j17.CodeOf(err) != j17.CodeInvalidField {
			t.Errorf("%+v: %v", n, err)
		}
	}
	for range 2 {
		if err := s.Nodes.Register(ctx, node("one")); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := s.Instances.ByID(before.ID); got.Node != "one" {
		t.Errorf("the first node has not got what there was: %+v", got)
	}
	if err := s.Nodes.Register(ctx, node("two")); err != nil {
		t.Fatal(err)
	}
	var placed []string
	for _, name := range []string{"a", "b", "c"} {
		i, err := s.Instances.Create(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		placed = append(placed, i.Node)
	}
	if !slices.Equal(placed, []string{"two", "one", "two"}) {
		t.Errorf("placed on %v", placed)
	}
	stranger := node("one")
	stranger.Identity = "another folder"
	want(t, "another folder", s.Nodes.Register(ctx, stranger), j17.CodeConflict, "name")
	s.restart(t)
	if got := s.Nodes.All(); len(got) != 2 || got[0].PublicURL != "https://one.example.com" || !got[0].SeenAt.IsZero() {
		t.Errorf("after a restart: %+v", got)
	}
}

func TestKeyUses(t *testing.T) {
	s := start(t)
	app, err := s.Instances.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := s.Keys.Create(t.Context(), control.NewKey{
		Instance: app.ID, Environment: j17.Prod, Scope: j17.ScopeRead, Name: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	used := s.clock.Now().Unix()
	s.clock.Advance(2 * time.Minute) // The headnode was away.
	s.Keys.NoteUses(map[string]int64{key.ID: used, "key_unknown": 1})
	s.Keys.NoteUses(map[string]int64{key.ID: used - 100})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil { // one round, and the last things before the end
		t.Fatal(err)
	}
	if got, _ := s.Keys.ByID(key.ID); got.LastUsedAt.Unix() != used {
		t.Errorf("the last use was at %d, and %v is noted", used, got.LastUsedAt)
	}
	if got := s.Keys.Uses(time.Unix(used, 0)); got[key.ID] != used {
		t.Errorf("uses: %v", got)
	}
	if got := s.Keys.Uses(s.clock.Now().Add(time.Minute)); len(got) != 0 {
		t.Errorf("uses later: %v", got)
	}
}

// TestAReplicaThatWasAwayRemovesData: a worker that was away for longer than the headnode looks after a deleted
// instance has data of it, and removes these when it is back.
func TestAReplicaThatWasAwayRemovesData(t *testing.T) {
	for _, away := range []time.Duration{0, 2 * time.Hour} {
		s := start(t)
		r, _ := replica(t, s)
		app := s.instance(t, "app")
		catchUp(t, s.Registry, r)
		write(t, r, app.ID)
		if err := s.Instances.Delete(t.Context(), app.ID, "app"); err != nil {
			t.Fatal(err)
		}
		s.clock.Advance(away)
		runUpkeep(t, s)
		catchUp(t, s.Registry, r)
		runUpkeep(t, r)
		if got := r.tenants(t); len(got) != 1 {
			t.Errorf("away for %s: the replica still has data of %v", away, got)
		}
		r.clock.Advance(2 * time.Hour)
		runUpkeep(t, r)
		if items, err := r.store.Scan(
			t.Context(), j17.System, "control.dropped_instances", store.Range{}, 10,
		); err != nil || len(items) != 0 {
			t.Error(items, err)
		}
	}
}
