//go:build !race

package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/keyfile"
	shapes "j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/attention"
	"j17/internal/custody/backup"
	"j17/internal/custody/scrub"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/projection"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// provided is an API with all that a server as a whole has. It is made in a bubble of synctest, so that nobody waits in
// real time.
type provided struct {
	*administration
	kit       *worker.Kit
	store     store.Store
	events    *feed.Subscriptions
	builds    *build.Service
	views     *projection.Service
	listeners *listener.Service
}

// provide returns an API with all services. What they do in the background is done once run is called with it.
func provide(tb testing.TB) *provided {
	tb.Helper()
	p := &provided{}
	p.administration = administerWith(tb, func(o *httpapi.Options) {
		st, ok := o.Store.(store.Store)
		whole, also := o.Store.(scrub.Storage)
		backups, too := o.Store.(backup.Storage)
		if !ok || !also || !too {
			tb.Fatal("the fixture's store is not whole")
		}
		p.store, p.kit = st, worker.New(o.Clock, o.Logger)
		o.Worker = p.kit
		o.Usage = usage.New(usage.Options{
			Store: st, Registry: o.Registry, Clock: o.Clock, Logger: o.Logger, Worker: p.kit,
		})
		o.Scrub = scrub.New(scrub.Options{
			Store: whole, Log: o.Logs, Clock: o.Clock, Logger: o.Logger, Worker: p.kit,
			Committed: func() uint64 { return 0 },
		})
		o.AdvanceClock = func(context.Context, time.Duration) (time.Time, error) { return o.Clock.Now(), nil }
		p.events = feed.New(feed.Options{Store: st, Clock: o.Clock, Logger: o.Logger, Worker: p.kit})
		p.indexed(o)
		p.told(tb.Context(), o)
		p.kept(tb, o, backups)
		o.Schedule = schedule.New(schedule.Options{
			Store: st, Clock: o.Clock, Logger: o.Logger, Worker: p.kit, Execute: o.Engine.ExecuteInOrder,
		})
		o.Sagas = saga.New(saga.Options{
			Store: st, Engine: o.Engine, Specs: oneSpec{}, Clock: o.Clock, Logger: o.Logger, Worker: p.kit, Most: 3,
		})
		o.Attention = attention.New(tb.Context(), attention.Options{
			Store: st, Engine: o.Engine, Registry: o.Registry, Deploy: o.Deploy, Usage: o.Usage, Schedule: o.Schedule,
			Sagas: o.Sagas, Listeners: o.Listeners,
			Projections: o.Projections, Places: o.Places, Tagging: o.Tagging, Backups: o.Backups,
			Checkpoints: o.Checkpoints, Erasures: o.Erasures,
			Scrub: o.Scrub, Disk: func() (free, total uint64, err error) { return 1 << 40, 1 << 41, nil },
			Clock: o.Clock, Logger: o.Logger,
		})
	})
	return p
}

// indexed adds projections with indexes, and deployments that wait for them.
func (p *provided) indexed(o *httpapi.Options) {
	p.builds = build.New(build.Options{Store: p.store, Clock: o.Clock, Worker: p.kit, Logger: o.Logger})
	o.Indexes = index.New(index.Options{
		Store: p.store, Feed: p.events, Build: p.builds, Clock: o.Clock, Logger: o.Logger,
	})
	p.views = projection.New(projection.Options{
		Store: p.store, Engine: o.Engine, Indexes: o.Indexes, Places: o.Places, Clock: o.Clock, Logger: o.Logger,
		Worker: p.kit,
		Hold: func(ctx context.Context, t j17.Tenant, f func(*spec.Compiled, store.Fence) error) error {
			return o.Deploy.Hold(ctx, t, f)
		},
	})
	o.Projections = p.views
	o.Deploy = deploy.New(deploy.Options{
		Registry: o.Registry, Engine: o.Engine, Blobs: o.Blobs, Clock: o.Clock, Logger: o.Logger, Store: p.store,
		Worker:  p.kit,
		Settled: p.views.Settled,
	})
	o.Deploy.Use(p.views.Part(), part.Part{
		Deploy: part.Deploy{
			Adopt: func(ctx context.Context, t j17.Tenant) error { return p.listeners.Adopted(ctx, t) },
		},
	})
}

// told adds listeners.
func (p *provided) told(ctx context.Context, o *httpapi.Options) {
	p.listeners = listener.New(ctx, listener.Options{
		Store: p.store, Feed: p.events, Worker: p.kit, Clock: o.Clock, Logger: o.Logger, Spec: o.Engine.Spec,
		Name:     func(j17.Tenant) (string, j17.Environment) { return "app", j17.Staging },
		Disabled: func(context.Context, j17.Tenant, string, string) error { return nil },
		Send: func(context.Context, outbound.Message) (outbound.Answer, error) {
			return outbound.Answer{Status: http.StatusInternalServerError}, errors.New("the answer has the status 500")
		},
	})
	o.Listeners = p.listeners
}

// kept adds backups, which go to a folder.
func (p *provided) kept(tb testing.TB, o *httpapi.Options, st backup.Storage) {
	tb.Helper()
	var err error
	o.Backups, err = backup.New(tb.Context(), backup.Options{
		Store: st, Registry: o.Registry, Clock: o.Clock, Worker: p.kit, Logger: o.Logger, Program: "test",
		Head: func(ctx context.Context, t j17.Tenant, _ j17.StreamID) (size uint64, root [32]byte, err error) {
			extent, err := p.store.Extent(ctx, t)
			return extent.Events, root, err
		},
		Folder: filepath.Join(tb.TempDir(), "backups"), Key: keyfile.At(filepath.Join(tb.TempDir(), "backup.key")),
		Private:   true,
		Free:      func(string) (free, total uint64, err error) { return 1 << 40, 1 << 41, nil },
		Committed: func() uint64 { return 0 },
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// run does work in the background until the test ends.
func (p *provided) run(tb testing.TB, works ...func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, len(works))
	for _, work := range works {
		go func() { ended <- work(ctx) }()
	}
	tb.Cleanup(func() {
		cancel()
		for range works {
			if err := <-ended; err != nil {
				tb.Error(err)
			}
		}
	})
}

// asked is a request that has to succeed, with a status.
type asked struct {
	status               int
	method, target, body string
}

// all asks for one thing after the other, and returns the last answer. Each is held against what its document says of
// it.
func all(tb testing.TB, ask func(tb testing.TB, method, target, body string) answer, requests ...asked) (last answer) {
	tb.Helper()
	for _, r := range requests {
		if last = ask(tb, r.method, r.target, r.body); last.status != r.status {
			tb.Fatalf("%s %s: %d %s, want %d", r.method, r.target, last.status, last.body, r.status)
		}
	}
	return last
}

// TestNodesAreAnswered asks a headnode for what workers ask, and a worker for what a headnode asks.
func TestNodesAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		inside := func(tb testing.TB, method, target, body string) answer {
			tb.Helper()
			return p.insideWith(
				tb, method, "/internal/control/"+target, body, "X-Node-Secret: "+p.registry.Secrets.NodeSecret(),
			)
		}
		id := p.instance.ID
		text := func(v any) string {
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
		const keep, other = `[{"set":{"target":"","value":"$.data"}}]`, `[{"set":{"target":"n","value":1}}]`

		// The first that a headnode hears of a worker lets it have the instance.
		p.Cluster = &httpapi.Cluster{}
		all(t, inside,
			asked{200, "POST", "changes", text(control.Poll{Node: control.Node{
				Name: "n", Identity: "i", Version: "test", PublicURL: "http://n.example",
				InternalURL: "http://10.0.0.1:17001",
			}, AtOnce: true})},
			asked{200, "POST", "specs", text(control.SpecPut{
				Deployment: control.Deployment{Instance: id, Environment: j17.Prod, Source: []byte(noted(keep, ""))},
			})},
			asked{200, "GET", "specs/" + id + "/prod/1", ""},
			asked{200, "POST", "audit", text(control.Record{
				Action: "debug.set", Instance: id, Environment: j17.Prod, Outcome: control.Done,
			})},
		)

		p.Cluster = &httpapi.Cluster{Node: "n"}
		p.registry.Faults.Report(control.Fault{
			ID: "err_1", Code: j17.CodeInternal, Status: 500, Message: "m", Method: "GET", Route: "/{type}",
			Path: "/note", Instance: id, Environment: j17.Prod,
		})
		of := "instances/" + id + "/"
		all(t, inside,
			asked{201, "POST", of + "spec?environment=staging", noted(keep, "")},
			asked{200, "POST", of + "spec?environment=staging", noted(keep, "")},
			asked{201, "POST", of + "spec?environment=staging", noted(other, "")},
			asked{200, "POST", of + "spec/rollback?dry_run=true", `{"version":1,"environment":"staging"}`},
			asked{201, "POST", of + "spec/rollback", `{"version":1,"environment":"staging"}`},
			asked{200, "POST", of + "spec/promote?dry_run=true", `{"from":"staging","to":"test"}`},
			asked{201, "POST", of + "spec/promote", `{"from":"staging","to":"test"}`},
			asked{202, "POST", of + "spec?environment=test&prepare=true", indexedSpec},
			asked{200, "GET", of + "projections?environment=test", ""},
			asked{200, "GET", of + "backup_settings", ""},
			asked{200, "PUT", of + "backup_settings", `{"keep_last":3}`},
			asked{200, "GET", of + "usage", ""},
			asked{200, "GET", of + "month", ""},
			asked{200, "GET", "errors/err_1", ""},
			asked{200, "GET", "scrub", ""},
			asked{200, "POST", "scrub", ""},
		)
	})
}

// TestListenersAreAnswered does all that can be done with listeners whose endpoint fails, and with their deliveries.
func TestListenersAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		p.run(t, p.events.Run, p.listeners.Run)
		all(t, p.deploysTo, asked{201, "POST", "staging", `{"agent_types":["user"],"aggregate_types":{"order":{"events":{"was_made":{"schema":{},"handler":[]}}}},
			"listeners":{"told":{"url":"https://example.com/","events":["order.*"]}}}`})
		write := p.writer(t)
		write("order/"+orderID(1), `{}`)
		synctest.Wait()
		if err := p.listeners.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}

		all(t, p.staging,
			asked{200, "GET", "listeners", ""},
			asked{200, "POST", "listeners/told/pause", ""},
			asked{200, "POST", "listeners/told/resume", ""},
			asked{200, "POST", "listeners/told/rotate_secret", ""},
			asked{200, "POST", "listeners/told/trigger", ""},
			asked{200, "POST", "listeners/told/replay", `{"after":"0","dry_run":true}`},
			asked{400, "POST", "listeners/told/replay", `{"after":"0","until":"0","dry_run":true}`},
			asked{400, "POST", "listeners/told/replay", `{"after":"0","until":"0000000000000-0","dry_run":true}`},
			asked{202, "POST", "listeners/told/replay", `{"after":"0"}`},
		)
		of := all(t, p.staging, asked{200, "GET", "deliveries", ""})
		made := decoded[struct{ Deliveries []shapes.Delivery }](t, of, 200)
		if len(made.Deliveries) == 0 {
			t.Fatal(of.body)
		}
		all(t, p.staging,
			asked{200, "GET", "deliveries/" + made.Deliveries[0].ID, ""},
			asked{200, "POST", "deliveries/" + made.Deliveries[0].ID + "/retry", ""},
		)

		// All are given up, and tried again by their cause.
		for range 5 {
			p.clock.Advance(5 * time.Minute)
			synctest.Wait()
			if err := p.listeners.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		all(t, p.staging, asked{200, "GET", "attention", ""}).wants(t, http.StatusOK, `"kind":"delivery","cause":"500 told order"`)
		all(t, p.staging,
			asked{200, "POST", "attention/retry", `{"kind":"delivery","cause":"500 told order","dry_run":true}`},
			asked{404, "POST", "attention/retry", `{"kind":"delivery","cause":"500 told"}`},
			asked{400, "POST", "attention/retry", `{"kind":"listener","cause":"500 told order"}`},
			asked{400, "POST", "attention/retry", `{"kind":"delivery","cause":"` + strings.Repeat("x", 9<<10) + `"}`},
			asked{202, "POST", "attention/retry", `{"kind":"delivery","cause":"500 told order"}`},
		)
	})
}

// indexedSpec has a projection whose rows are in the order of a value.
const indexedSpec = `{"agent_types":["user"],"aggregate_types":{
	"order":{"events":{"was_made":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}},
	"customer":{"events":{"was_made":{"schema":{},"handler":[]}}},
	"note":{"events":{"was_written":{"schema":{"type":"object"},"handler":[]}}}},
	"projections":{"totals":{"for_each":"order","sources":{"order":"$key"},"select":{"total":"$.order.total"},"index":["total"]}}}`

// TestPreparationsAreAnswered prepares a spec and a definition, which wait for their indexes, gives them up, and does
// all else that takes its time.
func TestPreparationsAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		p.run(t, p.events.Run, p.Indexes.Run)
		all(t, p.deploysTo,
			asked{201, "POST", "staging", ordersSpec("")},
			asked{202, "POST", "staging&prepare=true", indexedSpec},
		)
		all(t, p.staging,
			asked{200, "GET", "spec/prepared", ""},
			asked{200, "DELETE", "spec/prepared", ""},
			asked{
				202, "POST", "projections?prepare=true",
				strings.Replace(summary, `"select"`, `"index":["total"],"select"`, 1),
			},
			asked{200, "DELETE", "projections/summary/build", ""},
			asked{201, "POST", "projections", strings.Replace(summary, `"select"`, `"index":["total"],"select"`, 1)},
		)

		// What is built can be built again, and compared.
		p.run(t, p.builds.Run)
		synctest.Wait()
		all(t, p.staging,
			asked{200, "POST", "projections/summary/verify", ""},
			asked{202, "POST", "projections/summary/rebuild", ""},
		)
	})
}

// TestPlacesAreCompared has the places of an environment compared with the events.
func TestPlacesAreCompared(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		p.deploysTo(t, "POST", "staging", placesSpec).wants(t, 201)
		p.staging(t, "GET", "places", "").wants(t, 200,
			`{"ok":true,"places":[{"type":"area","geo":"zone","shape":"polygon","status":"ready"},{"type":"shop","geo":"point","shape":"point","status":"ready"}]}`)
		p.staging(t, "POST", "places/verify", "").wants(t, 200, `{"ok":true,"verified":true,"position":"0","aggregates":0,"entries":0}`)
		p.inside(
			t, "GET", "/internal/instances/"+p.instance.ID+"/staging/places",
			"X-Node-Secret: "+p.registry.Secrets.NodeSecret(),
		).wants(t, 200, `"shape":"polygon"`)
	})
}

// TestBackupsAreAnswered does all that can be done with backups of an environment and of the whole server.
func TestBackupsAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		ctl := func(tb testing.TB, method, target, body string) answer {
			tb.Helper()
			return p.ask(tb, p.admin, method, "control.j17.example", "/api/"+target, body)
		}
		for _, ask := range []func(testing.TB, string, string, string) answer{p.staging, ctl} {
			made := decoded[shapes.BackupShown](t, all(t, ask, asked{202, "POST", "backups", ""}), 202)
			all(t, ask,
				asked{200, "GET", "backups", ""},
				asked{200, "GET", "backups/" + made.Backup.ID, ""},
				asked{200, "DELETE", "backups/" + made.Backup.ID, ""},
			)
		}
		all(t, ctl,
			asked{200, "GET", "backup_settings", ""},
			asked{200, "PUT", "backup_settings", `{"every_hours":24}`},
			asked{200, "GET", "instances/" + p.instance.ID + "/backup_settings", ""},
			asked{200, "PUT", "instances/" + p.instance.ID + "/backup_settings", `{"keep_last":3}`},
		)
	})
}

// TestOthersAreAnswered asks for what else no test of a service asks for over HTTP.
func TestOthersAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		ctl := func(tb testing.TB, method, target, body string) answer {
			tb.Helper()
			return p.ask(tb, p.admin, method, "control.j17.example", target, body)
		}
		all(t, ctl,
			asked{200, "POST", "/_dev/clock/advance", `{"by":"0s"}`},
			asked{201, "POST", "/api/instances/" + p.instance.ID + "/spec?environment=staging", ordersSpec("")},
			asked{
				200, "POST", "/api/instances/" + p.instance.ID + "/spec/rollback?dry_run=true",
				`{"version":1,"environment":"staging"}`,
			},
		)
		made := decoded[shapes.CheckpointMade](t, all(t, p.staging, asked{
			202, "POST", "checkpoints", `{"wait":false}`,
		}), 202)
		all(t, p.staging,
			asked{200, "GET", "checkpoints/" + made.Checkpoint.ID, ""},
			asked{200, "GET", "audit/keys", ""},
			asked{201, "POST", "audit/keys/rotate", ""},
		)
	})
}

// TestOperatorsAreAnswered asks for what operators read of an environment, and for what goes on in it.
func TestOperatorsAreAnswered(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := provide(t)
		at := p.write(t, "global/was_written", `{"text":"read by an operator"}`)
		all(t, func(tb testing.TB, method, target, body string) answer {
			tb.Helper()
			return p.ops(tb, method, target, body)
		},
			asked{200, "GET", "overview", ""},
			asked{200, "GET", "attention", ""},
			asked{200, "GET", "trace/" + at, ""},
			asked{200, "GET", "audit/proof/inclusion?stream_id=" + at, ""},
			asked{200, "GET", "audit/proof/consistency?from=1", ""},
			asked{200, "HEAD", "events/stream", ""},
			asked{200, "HEAD", "aggregates/note/global/events/stream", ""},
		)
	})
}

// deploysTo deploys a spec to an environment, with parameters behind it.
func (p *provided) deploysTo(tb testing.TB, method, environment, source string) answer {
	tb.Helper()
	return p.control(tb, method, "/spec?environment="+environment, source)
}
