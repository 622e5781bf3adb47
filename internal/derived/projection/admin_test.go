package projection_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/projection"
	"j17/internal/follow/feed"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// server is all that deploys specs and projections to an environment, at a time that stands still. Nothing is built
// until build is called.
type server struct {
	data  *testopen.Data
	clock *clock.Manual

	store    store.Store
	registry *control.Registry
	engine   *engine.Engine
	builds   *build.Service
	indexes  *index.Service
	views    *projection.Service
	specs    *deploy.Service
	instance string
	tenant   j17.Tenant
	// ready, if not nil, is called once, after it was looked whether a spec is ready, right before that is told.
	ready func() error
	// preparing, if not nil, is called once, before it is looked whether a spec is ready, and asked whenever an index
	// is looked up.
	preparing, asked func()
	// looked, if not nil, is called once, before the streams of a type are looked through for an index.
	looked func()
	// over, if not nil, is what the server has of its store when it is opened.
	over func(store.Store) store.Store

	ctx     context.Context //nolint:containedctx // it ends with the server
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newServer(tb testing.TB) *server {
	tb.Helper()
	s := &server{data: testopen.NewData(tb), clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	s.open(tb)
	app, err := s.registry.Instances.Create(tb.Context(), "app")
	if err != nil {
		tb.Fatal(err)
	}
	s.instance, s.tenant = app.ID, j17.TenantOf(app.ID, j17.Prod)
	tb.Cleanup(func() { s.close(tb) })
	return s
}

func (s *server) open(tb testing.TB) {
	tb.Helper()
	var err error
	logger := slog.New(slog.DiscardHandler)
	s.store = s.data.Open(tb, s.clock)
	st := s.store
	if s.over != nil {
		st = s.over(st)
	}
	if s.registry, err = control.Open(tb.Context(), control.Options{Store: st, Clock: s.clock}); err != nil {
		tb.Fatal(err)
	}
	kit := worker.New(s.clock, logger)
	s.engine = engine.New(engine.Options{Store: st, Clock: s.clock, Logger: logger})
	feeds := feed.New(feed.Options{Store: st, Clock: s.clock, Logger: logger, Worker: kit})
	s.builds = build.New(build.Options{Store: st, Clock: s.clock, Worker: kit, Logger: logger, Parallel: 2})
	s.indexes = index.New(index.Options{
		Store: looked{st, s}, Feed: feeds, Build: s.builds, Clock: s.clock, Logger: logger,
	})
	s.views = projection.New(projection.Options{
		Store: st, Engine: s.engine, Indexes: s.indexes, Clock: s.clock, Logger: logger, Worker: kit,
		SpecPrepared: func(ctx context.Context, t j17.Tenant) (bool, error) { return deploy.IsPrepared(ctx, st, t) },
		Hold: func(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error {
			return s.specs.Hold(ctx, t, f)
		},
	})
	s.views.SettleIn(20 * time.Millisecond)
	s.specs = deploy.New(deploy.Options{
		Registry: s.registry, Engine: s.engine, Blobs: blob.New(blob.Options{Store: st, Clock: s.clock, Worker: kit}),
		Clock: s.clock, Logger: logger,
		Settled: s.views.Settled, Store: st, Worker: kit,
	})
	views := s.views.Part()
	views.Deploy.Ready = func(ctx context.Context, t j17.Tenant, after *decider.Decider) (part.Readiness, error) {
		if hook := s.preparing; hook != nil {
			s.preparing = nil
			hook()
		}
		ready, err := s.views.Ready(ctx, t, after)
		if hook := s.ready; hook != nil && err == nil {
			s.ready = nil
			err = hook()
		}
		return ready, err
	}
	s.engine.Use(s.specs.Part(), views)
	s.specs.Use(views)
	s.ctx, s.stop = context.WithCancel(tb.Context())
	s.run(feeds.Run, s.indexes.Run)
}

// run runs work in the background until the server is closed.
func (s *server) run(works ...func(context.Context) error) {
	for _, work := range works {
		ctx := s.ctx
		s.running.Go(func() { _ = work(ctx) })
	}
}

func (s *server) close(tb testing.TB) {
	tb.Helper()
	s.stop()
	s.running.Wait()
	if err := s.store.Close(); err != nil {
		tb.Error(err)
	}
}

// restart closes the server and opens it again on the same files. Nothing is built again until build is called.
func (s *server) restart(tb testing.TB) {
	tb.Helper()
	s.close(tb)
	s.open(tb)
	if err := s.specs.Adopt(tb.Context(), s.instance, j17.Prod); err != nil {
		tb.Fatal(err)
	}
}

// build lets builds run from here on, and waits until all indexes that there are are built.
func (s *server) build(tb testing.TB) {
	tb.Helper()
	s.run(s.builds.Run)
	s.built(tb)
}

func (s *server) built(tb testing.TB) {
	tb.Helper()
	there, err := s.indexes.List(tb.Context(), s.tenant)
	if err != nil {
		tb.Fatal(err)
	}
	for _, x := range there {
		if got, err := s.indexes.Await(tb.Context(), s.tenant, x.ID); err != nil || !got.Ready {
			tb.Fatalf("%+v: %v", got, err)
		}
	}
}

func (s *server) deploy(tb testing.TB, source string, change ...func(*deploy.Request)) deploy.Result {
	tb.Helper()
	r := deploy.Request{Instance: s.instance, Environment: j17.Prod, Source: []byte(source)}
	for _, c := range change {
		c(&r)
	}
	result, err := s.specs.Deploy(tb.Context(), r)
	if err != nil {
		tb.Fatalf("%v %+v", err, result)
	}
	return result
}

// post posts a definition, which has to be taken.
func (s *server) post(tb testing.TB, definition string, prepare bool) wire.PostedProjection {
	tb.Helper()
	p, err := s.views.PostDefinition(tb.Context(), s.tenant, projection.Posting{
		Definition: []byte(definition), Prepare: prepare,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// shows describes a projection as "status, build's status, definition"; "" for none.
func (s *server) shows(tb testing.TB, name string) string {
	tb.Helper()
	p, err := s.views.Describe(tb.Context(), s.tenant, name)
	if j17.CodeOf(err) == j17.CodeUnknownProjection {
		return ""
	}
	if err != nil {
		tb.Fatal(err)
	}
	of := ""
	if p.Build != nil {
		if of = p.Build.Status; p.Build.Prepared != nil {
			of += " prepared"
		}
	}
	return fmt.Sprintf("%s, %s, %s", p.Status, of, p.Definition)
}

// known returns how many indexes there are.
func (s *server) known(tb testing.TB) int {
	tb.Helper()
	there, err := s.indexes.List(tb.Context(), s.tenant)
	if err != nil {
		tb.Fatal(err)
	}
	return len(there)
}

// write writes twenty red notes.
func (s *server) write(tb testing.TB) {
	tb.Helper()
	for i := range 20 {
		c := enginetest.Command(tb, "note/"+id(i)+"/was_made", enginetest.Body(`{"color":"red"}`))
		c.Tenant = s.tenant
		if _, err := s.engine.Execute(tb.Context(), c); err != nil {
			tb.Fatal(err)
		}
	}
}

// found returns how many notes of a color a projection finds.
func (s *server) found(tb testing.TB, name, color string) int {
	tb.Helper()
	r, err := s.views.Read(tb.Context(), s.tenant, &projection.Ask{
		Name: name, Params: map[string]string{"color": color},
	})
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return strings.Count(string(r.Data), `"color"`)
}

// notes is a spec with notes, whose handler is given, and projections given as members.
func notes(handler, projections string) string {
	return `{"agent_types":["user"],"singletons":["main"],"aggregate_types":{"note":{"events":{"was_made":{"schema":{},"handler":` + handler + `}}}},"projections":{` + projections + `}}`
}

const (
	keep     = `[{"set":{"target":"","value":"$.data"}}]`
	byColor  = `{"sources":[{"aggregate":"note","query":"color = $.color"}]}`
	byColors = `{"name":"posted","sources":[{"aggregate":"note","query":"color = $.color"}]}`
)

// TestDeploymentsBuildAndRemoveIndexes deploys what needs an index, and what no longer needs it.
func TestDeploymentsBuildAndRemoveIndexes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	s.deploy(t, notes(keep, `"mine":`+byColor))
	s.built(t)
	if got := s.shows(t, "mine"); got != "ready, done, "+byColor || s.found(t, "mine", "red") != 20 {
		t.Fatal(got)
	}

	// What is posted shares it. It stays until nobody needs it.
	s.post(t, byColors, false)
	if n := s.known(t); n != 1 {
		t.Fatalf("%d indexes", n)
	}
	s.deploy(t, notes(keep, ""))
	if n := s.known(t); n != 1 || s.found(t, "posted", "red") != 20 {
		t.Fatalf("%d indexes", n)
	}
	if err := s.views.Remove(t.Context(), s.tenant, "posted"); err != nil {
		t.Fatal(err)
	}
	if n := s.known(t); n != 0 {
		t.Fatalf("%d indexes", n)
	}
}

// TestIndexesAreKnownAfterARestart finds what is posted, and its index, after the process has ended in the middle of
// the build.
func TestIndexesAreKnownAfterARestart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	if p := s.post(t, byColors, false); p.Status != "building" || p.Build == nil || p.Build.Status != "running" {
		t.Fatalf("%+v", p)
	}
	s.restart(t)
	s.build(t)
	if n := s.found(t, "posted", "red"); n != 20 {
		t.Fatal(n)
	}
	if v, err := s.views.Verify(t.Context(), s.tenant, "posted"); err != nil || !v.Verified || v.Rows != 20 {
		t.Fatal(v, err)
	}

	// A rebuild ends as well, and can be given up only while it runs.
	if err := s.views.Rebuild(t.Context(), s.tenant, "posted"); err != nil {
		t.Fatal(err)
	}
	s.built(t)
	if got := s.shows(t, "posted"); got != "ready, done, "+byColors || s.found(t, "posted", "red") != 20 {
		t.Fatal(got)
	}
	if err := s.views.CancelBuild(t.Context(), s.tenant, "posted"); j17.CodeOf(err) != j17.CodeConflict {
		t.Fatal(err)
	}
	for _, of := range []func(context.Context, j17.Tenant, string) error{s.views.Rebuild, s.views.CancelBuild} {
		if err := of(t.Context(), s.tenant, "ghost"); j17.CodeOf(err) != j17.CodeUnknownProjection {
			t.Fatal(err)
		}
	}
}

// settle lets what is prepared take its place if it can.
func (s *server) settle(tb testing.TB) {
	tb.Helper()
	s.clock.Advance(10 * time.Second)
	for _, work := range []func(context.Context) error{s.views.Settle, s.specs.Settle} {
		if err := work(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestPreparedDefinitions posts definitions that count only when their indexes are built.
func TestPreparedDefinitions(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	const first = `{"name":"posted","sources":[{"aggregate":"note","id":"$.color"}]}`
	s.post(t, first, false)

	// The one before answers until the index is there, also after a restart.
	if p := s.post(t, byColors, true); p.Created || p.Build == nil || string(p.Build.Prepared) != byColors ||
		string(p.Definition) != first {
		t.Fatalf("%+v", p)
	}
	s.restart(t)
	s.settle(t)
	if got := s.shows(t, "posted"); got != "ready, running prepared, "+first {
		t.Fatal(got)
	}
	s.build(t)
	s.settle(t)
	if got := s.shows(t, "posted"); got != "ready, done, "+byColors || s.found(t, "posted", "red") != 20 {
		t.Fatal(got)
	}

	// What is built already counts at once, and what a spec has made invalid meanwhile never does.
	if p := s.post(t, strings.Replace(byColors, `"posted"`, `"second"`, 1), true); !p.Created ||
		p.Build.Prepared != nil {
		t.Fatalf("%+v", p)
	}
}

// TestPreparationsAreGivenUp cancels one, and has a spec make another one invalid.
func TestPreparationsAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	s.post(t, byColors, true)
	if got := s.shows(t, "posted"); got != "building, running prepared, "+byColors || s.known(t) != 1 {
		t.Fatal(got)
	}
	if err := s.views.CancelBuild(t.Context(), s.tenant, "posted"); err != nil {
		t.Fatal(err)
	}
	if got := s.shows(t, "posted"); got != "" || s.known(t) != 0 {
		t.Fatal(got)
	}

	s.post(t, byColors, true)
	s.deploy(t, strings.Replace(notes(keep, ""), `"note"`, `"memo"`, 1), func(r *deploy.Request) { r.Force = true })
	s.settle(t)
	if got := s.shows(t, "posted"); got != "building, failed prepared, "+byColors || s.known(t) != 0 {
		t.Fatal(got)
	}
	if err := s.views.Remove(t.Context(), s.tenant, "posted"); err != nil || s.shows(t, "posted") != "" {
		t.Fatal(err)
	}
}

// TestSpecsTakeTheNamesOfPreparations deploys a spec that declares the name of what is prepared: it is given up, and
// the deployment says so once.
func TestSpecsTakeTheNamesOfPreparations(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	const first = `{"name":"posted","sources":[{"aggregate":"note","id":"$.color"}]}`
	for _, c := range []struct {
		posted bool
		says   string
	}{
		{false, "a projection 'posted' is prepared in this environment; that is given up, and the spec's definition takes its place"},
		{true, "the projection 'posted' was posted to this environment; the spec's definition takes its place"},
	} {
		if c.posted {
			s.post(t, first, false)
		}
		s.post(t, byColors, true)
		result := s.deploy(t, notes(keep, `"posted":{"sources":[{"aggregate":"note","id":"$.note"}]}`))
		if len(result.Incompatible) != 1 || result.Incompatible[0].Severity != diag.Warning ||
			result.Incompatible[0].Message != c.says || result.Incompatible[0].Pointer != "/projections/posted" {
			t.Errorf("posted %t: %+v", c.posted, result.Incompatible)
		}
		s.settle(t)
		if got := s.shows(t, "posted"); got != `ready, , {"sources":[{"aggregate":"note","id":"$.note"}]}` {
			t.Error(got)
		}
		s.deploy(t, notes(keep, ""))
		if got := s.shows(t, "posted"); got != "" {
			t.Error(got)
		}
	}
}

// TestPreparationsWithoutRoom fills what may be posted to an environment while a definition is prepared, and before
// another one whose index is there already.
func TestPreparationsWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	s.post(t, byColors, true)
	full := store.Side{
		Op: store.Put, Space: "projections.head", Key: "head",
		Value: fmt.Appendf(nil, `{"count":%d,"bytes":1}`, projection.MaxPosted),
	}
	if err := s.store.Write(t.Context(), s.tenant, []store.Side{full}); err != nil {
		t.Fatal(err)
	}
	s.build(t)
	second := strings.Replace(byColors, `"posted"`, `"second"`, 1)
	for _, definition := range []string{byColors, second} {
		name := "posted"
		if definition == second {
			name = "second"
			s.post(t, second, true)
		}
		s.settle(t)
		if got := s.shows(t, name); !strings.HasSuffix(got, "failed prepared, "+definition) {
			t.Fatal(name, got)
		}
		p, err := s.views.Describe(t.Context(), s.tenant, name)
		if err != nil || !strings.Contains(p.Build.Error, "no room for it: The environment has 1000 posted projections") {
			t.Fatalf("%s: %+v, %v", name, p.Build, err)
		}
	}

	// Once there is room, it is posted again.
	if err := s.store.Write(t.Context(), s.tenant, []store.Side{
		{Op: store.Delete, Space: full.Space, Key: full.Key},
	}); err != nil {
		t.Fatal(err)
	}
	if p := s.post(t, second, true); p.Build == nil || p.Build.Prepared != nil || s.found(t, "second", "red") != 20 {
		t.Fatalf("%+v", p)
	}
}

// TestNothingIsBuiltForWhatHasGone gives up what is prepared, and deploys a spec without a projection that is to be
// rebuilt, right before the indexes are begun that they need: nobody would ever remove these.
func TestNothingIsBuiltForWhatHasGone(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	nothing := func(what string) {
		t.Helper()
		if n := s.known(t); n != 0 {
			t.Errorf("%d indexes are there after %s", n, what)
		}
	}

	// A spec.
	s.preparing = func() {
		if err := s.specs.CancelPrepared(t.Context(), s.tenant); err != nil {
			t.Error(err)
		}
	}
	r := deploy.Request{
		Instance: s.instance, Environment: j17.Prod, Source: []byte(notes(keep, `"mine":`+byColor)), Prepare: true,
	}
	if _, err := s.specs.Deploy(t.Context(), r); j17.CodeOf(err) != j17.CodeConflict {
		t.Error(err)
	}
	nothing("a spec")

	// A definition.
	s.post(t, byColors, true)
	s.asked = func() {
		s.asked = nil
		if err := s.views.CancelBuild(t.Context(), s.tenant, "posted"); err != nil {
			t.Error(err)
		}
	}
	s.settle(t)
	nothing("a definition")

	// A projection that is to be rebuilt.
	s.deploy(t, notes(keep, `"mine":`+byColor))
	n := 0
	s.asked = func() {
		if n++; n == 2 { // what there is was looked up before
			s.asked = nil
			s.deploy(t, notes(keep, ""))
		}
	}
	if err := s.views.Rebuild(t.Context(), s.tenant, "mine"); err == nil || n != 2 {
		t.Error(n, err)
	}
	nothing("a projection")
}

// TestPreparedSpecs deploys specs once their indexes are built: under other handlers, whose states the index is of.
func TestPreparedSpecs(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	painted := notes(`[{"set":{"target":"color","value":"blue"}}]`, `"mine":`+byColor)
	prepare := func(r *deploy.Request) { r.Prepare, r.Note = true, "blue" }
	if r := s.deploy(t, painted, prepare); r.Prepared == nil || r.Prepared.Done || r.Created {
		t.Fatalf("%+v", r)
	}
	s.restart(t)
	s.settle(t)
	p, err := s.specs.Prepared(t.Context(), s.tenant)
	if err != nil || p.Failed != "" || p.Note != "blue" || s.shows(t, "mine") != "" || s.known(t) != 1 {
		t.Fatal(p, err)
	}
	s.build(t)
	s.settle(t)
	if _, err := s.specs.Prepared(t.Context(), s.tenant); j17.CodeOf(err) != j17.CodeNotFound {
		t.Fatal(err)
	}
	if s.shows(t, "mine") != "ready, done, "+byColor || s.found(t, "mine", "blue") != 20 ||
		s.found(t, "mine", "red") != 0 {
		t.Fatal(s.shows(t, "mine"))
	}

	// What needs nothing is deployed at once.
	if r := s.deploy(t, notes(keep, ""), prepare); r.Prepared != nil || !r.Created {
		t.Fatalf("%+v", r)
	}
	if err := s.specs.CancelPrepared(t.Context(), s.tenant); j17.CodeOf(err) != j17.CodeNotFound {
		t.Fatal(err)
	}
}

// TestPreparedSpecsAreGivenUp cancels one, and has another one overtaken by a deployment.
func TestPreparedSpecsAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	prepare := func(r *deploy.Request) { r.Prepare = true }
	s.deploy(t, notes(keep, `"mine":`+byColor), prepare)
	if err := s.specs.CancelPrepared(t.Context(), s.tenant); err != nil || s.known(t) != 0 {
		t.Fatal(err, s.known(t))
	}
	s.deploy(t, notes(keep, `"mine":`+byColor), prepare)
	s.deploy(t, notes(`[]`, ""))
	s.settle(t)
	p, err := s.specs.Prepared(t.Context(), s.tenant)
	if err != nil || !strings.HasPrefix(p.Failed, "Another spec has been deployed meanwhile") || s.known(t) != 0 {
		t.Fatal(p, err, s.known(t))
	}
}

// TestPreparedSpecsAreGivenUpLate cancels one, and deploys another, right before the one that is prepared would be
// deployed.
func TestPreparedSpecsAreGivenUpLate(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	prepare := func(r *deploy.Request) { r.Prepare = true }
	cancel := func() error { return s.specs.CancelPrepared(t.Context(), s.tenant) }
	nothing := func() {
		t.Helper()
		if _, err := s.specs.Prepared(t.Context(), s.tenant); j17.CodeOf(err) != j17.CodeNotFound ||
			s.shows(t, "mine") != "" || s.known(t) != 0 {
			t.Fatal(err, s.shows(t, "mine"), s.known(t))
		}
	}

	// In the background.
	s.deploy(t, notes(keep, `"mine":`+byColor), prepare)
	s.build(t)
	s.ready = cancel
	s.settle(t)
	nothing()

	// Before it is answered.
	other := deploy.Request{
		Instance: s.instance, Environment: j17.Prod, Source: []byte(notes(`[]`, "")), Prepare: true, Force: true,
	}
	s.ready = cancel
	if _, err := s.specs.Deploy(t.Context(), other); j17.CodeOf(err) != j17.CodeConflict {
		t.Fatal(err)
	}
	nothing()
	s.ready = func() error { return errors.New("no") }
	if _, err := s.specs.Deploy(t.Context(), other); err == nil {
		t.Fatal("it is ready")
	}
	nothing()

	// Another spec is deployed meanwhile, which matters only to who has named the one before.
	s.ready = func() error {
		s.deploy(t, "{ "+notes(keep, "")[1:])
		return nil
	}
	if r, err := s.specs.Deploy(t.Context(), other); err != nil || !r.Created || r.Spec.Version != 3 {
		t.Fatal(r.Spec, err)
	}
	nothing()
	s.ready = func() error {
		s.deploy(t, "{  "+notes(keep, "")[1:], func(r *deploy.Request) { r.Force = true })
		return nil
	}
	hash := sha256.Sum256(other.Source)
	base := hex.EncodeToString(hash[:])
	other.Base, other.Source = &base, []byte(notes(keep, ""))
	if _, err := s.specs.Deploy(t.Context(), other); j17.CodeOf(err) != j17.CodePreconditionFailed {
		t.Fatal(err)
	}
	nothing()

	// What is deployed already is not prepared any more either.
	if r := s.deploy(t, "{  "+notes(keep, "")[1:], prepare); r.Created || r.Prepared != nil {
		t.Fatalf("%+v", r)
	}
	nothing()
}

// TestThePriceOfAProjection is that of the index which is built for it.
func TestThePriceOfAProjection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	const listed = `{"name":"listed","for_each":"note","sources":{"n":"$key","same":{"type":"note","id":"` + "0b6e9d4e-6f0a-4f3c-8c53-000000000001" + `"},"main":{"type":"note","id":"$.n.color"}},"select":{"color":"$.n.color"},"index":["color"]}`
	tried, err := s.views.Try(t.Context(), s.tenant, projection.Posting{Definition: []byte(listed)}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Price{
		Rows: 20, Entries: 40, Bytes: tried.Price.Bytes, Exact: true,
		Widest: &wire.Fanout{Key: "note:" + id(1), Rows: 9},
	}
	if diff := cmp.Diff(want, tried.Price); diff != "" || tried.Replay.Aggregates != 10 || tried.Replay.Complete {
		t.Fatal(diff, tried.Replay)
	}
	s.post(t, listed, false)
	s.build(t)
	p, err := s.views.Describe(t.Context(), s.tenant, "listed")
	if err != nil || p.Rows == nil || *p.Rows != 20 || p.Entries != 40 || p.Bytes != tried.Price.Bytes {
		t.Fatalf("%+v, tried %+v: %v", p, tried.Price, err)
	}
}

// TestWhatIsTriedLeavesNoIndex: a dry run that has to build an index for its queries releases it, unless others need
// it.
func TestWhatIsTriedLeavesNoIndex(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	const same = `{"name":"same","for_each":"note","sources":{"n":"$key","same":{"type":"note","query":"color = $.n.color"}},"select":{"ids":"$.same[*].id"}}`
	try := func() {
		t.Helper()
		tried, err := s.views.Try(t.Context(), s.tenant, projection.Posting{Definition: []byte(same)}, 10)
		if err != nil || tried.Replay.Aggregates != 10 || tried.Replay.Failed != 0 {
			t.Fatalf("%+v: %v", tried.Replay, err)
		}
	}
	try()
	if n := s.known(t); n != 0 {
		t.Errorf("a definition that was tried has left %d indexes", n)
	}
	after, found := spec.Compile([]byte(notes(keep, `"same":`+strings.Replace(same, `"name":"same",`, "", 1))))
	if after == nil {
		t.Fatal(found)
	}
	if _, err := s.views.TrySpec(t.Context(), s.tenant, decider.New(after, nil), 10); err != nil {
		t.Fatal(err)
	}
	if n := s.known(t); n != 0 {
		t.Errorf("a spec that was tried has left %d indexes", n)
	}

	// What is there for others stays.
	s.post(t, byColors, false)
	s.built(t)
	try()
	if n := s.known(t); n != 1 {
		t.Errorf("there are %d indexes of one that is posted", n)
	}
}

// peeking is a context whose owner looks at something whenever somebody asks whether it has ended.
type peeking struct {
	context.Context //nolint:containedctx // it is one

	peek func()
}

func (p peeking) Err() error {
	p.peek()
	return p.Context.Err()
}

// TestAVerificationIsSeen: a projection shows how far the comparison of its indexes is, as long as it lasts.
func TestAVerificationIsSeen(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run(s.builds.Run)
	s.deploy(t, notes(keep, ""))
	s.write(t)
	s.post(t, byColors, false)
	s.built(t)
	described := func() wire.Projection {
		p, err := s.views.Describe(t.Context(), s.tenant, "posted")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := described(); p.Verification != nil {
		t.Errorf("before there is a comparison: %+v", p.Verification)
	}
	seen := map[wire.Verification]bool{}
	v, err := s.views.Verify(peeking{t.Context(), func() {
		if at := described().Verification; at != nil {
			seen[*at] = true
		}
	}}, s.tenant, "posted")
	if err != nil || !v.Verified {
		t.Fatal(v, err)
	}
	all := v.Rows + v.Entries
	if !seen[wire.Verification{Done: 0, Total: all}] || !seen[wire.Verification{Done: v.Rows, Total: all}] ||
		!seen[wire.Verification{Done: all, Total: all}] {
		t.Errorf("of %+v there was seen %v", v, seen)
	}
	if p := described(); p.Verification != nil {
		t.Errorf("after it: %+v", p.Verification)
	}
}
