//go:build !race

package attention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	raw "github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/keyfile"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/attention"
	"j17/internal/custody/backup"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/erasure"
	"j17/internal/custody/scrub"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// secret is in the data of all events. No cause may have it.
const secret = "hunter2"

// works is a spec with all that can come to wait for a person. A meter takes whole numbers only.
const works = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"job": {"events": {
			"was_timed": {"schema": {}, "handler": [], "implications": [
				{"schedule": {"delay": "5m", "emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}}]},
			"was_pushed": {"schema": {}, "handler": [], "implications": [
				{"emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}]},
			"was_asked": {"schema": {}, "handler": []}}},
		"meter": {"events": {"was_taken": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}}},
		"order": {"events": {"was_made": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}]}}},
		"shop": {"events": {"was_opened": {"schema": {}, "handler": [{"set": {"target": "", "value": "$.data"}}], "geo": {"type": "point", "path": "$.data.at"}}}}
	},
	"listeners": {"told": {"url": "https://example.com/", "events": ["order.*"]}},
	"modules": {"sagas": {"asking": {
		"trigger": {"aggregate_type": "job", "event_type": "was_asked"},
		"steps": [{"name": "measure", "emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}]
	}}}%s
}`

// plain is the spec without more.
func plain() string { return fmt.Sprintf(works, "") }

// indexed is the spec with a projection whose rows are in an order.
func indexed() string {
	return fmt.Sprintf(works, `, "projections": {"totals": {"for_each": "order", "sources": {"order": "$key"}, "select": {"total": "$.order.total"}, "index": ["total"]}}`)
}

// house is all that a server has, at a time that stands still.
type house struct {
	*attention.Service
	tb   testing.TB
	data *testopen.Data
	// reads counts what is read of scheduled events.
	reads    atomic.Int64
	clock    *clock.Manual
	store    store.Store
	registry *control.Registry
	instance control.Instance
	tenant   j17.Tenant

	options     attention.Options
	engine      *engine.Engine
	events      *feed.Subscriptions
	builds      *build.Service
	indexes     *index.Service
	places      *place.Service
	projections *projection.Service
	deploy      *deploy.Service
	schedule    *schedule.Service
	sagas       *saga.Service
	listeners   *listener.Service
	backups     *backup.Service
	erasures    *erasure.Service
	scrub       *scrub.Service

	// answers is the status that listeners' endpoints answer with.
	answers atomic.Int64
	// unerasable, if not nil, is why nothing can be erased.
	unerasable error
	folder     string
	running    context.Context //nolint:containedctx // it is that of what goes on beside a test
	stop       context.CancelFunc
	ended      chan struct{}
}

func newHouse(tb testing.TB) *house {
	tb.Helper()
	return newHouseOn(tb, testopen.NewData(tb))
}

func newHouseOn(tb testing.TB, data *testopen.Data) *house {
	tb.Helper()
	h := &house{tb: tb, data: data, clock: clock.NewManual(time.Unix(1_700_000_000, 0)), folder: tb.TempDir()}
	h.answers.Store(http.StatusInternalServerError)
	h.open()
	tb.Cleanup(h.close)
	h.deployed(plain())
	return h
}

// counting is a store that counts what is read of it.
type counting struct {
	store.Store
	reads *atomic.Int64
}

// Get reads an item.
func (c counting) Get(ctx context.Context, t j17.Tenant, space store.Space, key string) (store.Item, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, t, space, key)
}

// waitless is a clock that waits for nothing.
type waitless struct{ clock.Clock }

// Wait does not wait.
func (waitless) Wait(ctx context.Context, _ time.Time) error { return ctx.Err() }

// open opens the store, with services that know nothing yet.
func (h *house) open() {
	h.tb.Helper()
	ctx := h.tb.Context()
	var err error
	h.store = h.data.Open(h.tb, h.clock)
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(h.clock, log)
	st := h.store
	if h.registry, err = control.Open(ctx, control.Options{Store: st, Clock: h.clock, PasswordMemory: 64}); err != nil {
		h.tb.Fatal(err)
	}
	if known, ok := h.registry.Instances.ByName("app"); ok {
		h.instance = known
	} else if h.instance, err = h.registry.Instances.Create(ctx, "app"); err != nil {
		h.tb.Fatal(err)
	}
	h.tenant = j17.TenantOf(h.instance.ID, j17.Prod)
	meter := usage.New(usage.Options{Store: st, Registry: h.registry, Clock: h.clock, Logger: log, Worker: kit})
	h.engine = engine.New(engine.Options{Store: st, Clock: h.clock, Logger: log})
	blobs := blob.New(blob.Options{Store: st, Clock: h.clock, Worker: kit})
	h.deploy = deploy.New(deploy.Options{
		Registry: h.registry, Engine: h.engine, Blobs: blobs, Clock: h.clock, Logger: log, Store: st, Worker: kit,
	})

	h.events = feed.New(feed.Options{Store: st, Clock: h.clock, Logger: log, Worker: kit})
	h.builds = build.New(build.Options{Store: st, Clock: h.clock, Worker: kit, Logger: log})
	h.indexes = index.New(index.Options{
		Store: st, Feed: h.events, Build: h.builds, Clock: h.clock, Logger: log,
	})
	tagging := build.NewTagger(build.TaggerOptions{Store: st, Engine: h.engine, Builds: h.builds})
	h.places = place.New(place.Options{
		Store: st, Builds: h.builds, Engine: h.engine, Clock: h.clock, Logger: log,
	})
	h.projections = projection.New(projection.Options{
		Store: st, Engine: h.engine, Indexes: h.indexes, Places: h.places, Clock: h.clock, Logger: log, Worker: kit,
		Hold:         h.deploy.Hold,
		SpecPrepared: h.deploy.SpecPrepared,
	})
	h.schedule = schedule.New(schedule.Options{
		Store: counting{st, &h.reads}, Clock: h.clock, Logger: log, Worker: kit, MaxPerInstance: 200_000,
		Execute: h.engine.ExecuteInOrder,
	})
	h.sagas = saga.New(saga.Options{
		Store: st, Engine: h.engine, Specs: h.deploy, Clock: h.clock, Worker: kit, Logger: log,
	})
	h.listeners = listener.New(ctx, listener.Options{
		Store: st, Feed: h.events, Worker: kit, Clock: h.clock, Logger: log, Spec: h.engine.Spec,
		Name:     func(j17.Tenant) (string, j17.Environment) { return "app", j17.Prod },
		Disabled: func(context.Context, j17.Tenant, string, string) error { return nil },
		Send: func(context.Context, outbound.Message) (outbound.Answer, error) {
			switch status := int(h.answers.Load()); {
			case status == 0:
				return outbound.Answer{}, errors.New("no answer from " + secret)
			case status < http.StatusBadRequest:
				return outbound.Answer{Status: status}, nil
			default:
				return outbound.Answer{Status: status, Body: []byte(secret)},
					fmt.Errorf("the answer has the status %d", status)
			}
		},
	})
	logs := envlog.New(envlog.Options{
		Store: st, Clock: h.clock, Worker: kit, Origin: func(t j17.Tenant) (string, error) { return string(t), nil },
	})
	checkpoints := checkpoint.New(checkpoint.Options{
		Store: st, Engine: h.engine, Log: logs, Clock: h.clock, Logger: log, Worker: kit,
	})
	h.scrub = scrub.New(scrub.Options{
		Store: st, Log: logs, Clock: waitless{h.clock}, Logger: log, Worker: kit, Committed: func() uint64 { return 0 },
	})
	if h.backups, err = backup.New(ctx, backup.Options{
		Store: st, Registry: h.registry, Clock: h.clock, Worker: kit, Logger: log, Program: "test", Private: true,
		Head: func(ctx context.Context, t j17.Tenant, _ j17.StreamID) (size uint64, root [32]byte, err error) {
			extent, err := st.Extent(ctx, t)
			return extent.Events, root, err
		},
		Folder: filepath.Join(h.folder, "backups"), Key: keyfile.At(filepath.Join(h.folder, "backup.key")),
		Free:      func(string) (free, total uint64, err error) { return 1 << 40, 1 << 41, nil },
		Committed: func() uint64 { return 0 },
	}); err != nil {
		h.tb.Fatal(err)
	}
	h.erasures = erasure.New(erasure.Options{
		Store: st, Clock: h.clock, Worker: kit, Logger: log, Resolve: h.engine.Resolve, Spec: h.engine.Spec,
		Root: func(ctx context.Context, t j17.Tenant) (root [32]byte, size uint64, err error) {
			extent, err := st.Extent(ctx, t)
			return root, extent.Events, err
		},
		Sign:   func(_ context.Context, _ j17.Tenant, text string) (string, error) { return text, nil },
		By:     func(context.Context) string { return "somebody" },
		Record: func(context.Context, j17.Tenant, *erasure.Act) error { return nil },
	})
	h.options = attention.Options{
		Store: st, Engine: h.engine, Registry: h.registry, Deploy: h.deploy, Usage: meter, Schedule: h.schedule,
		Sagas: h.sagas, Listeners: h.listeners,
		Projections: h.projections, Places: h.places, Tagging: tagging, Backups: h.backups, Checkpoints: checkpoints,
		Erasures: h.erasures, Scrub: h.scrub,
		Disk: func() (free, total uint64, err error) { return 1 << 40, 1 << 41, nil }, Clock: h.clock, Logger: log,
	}
	h.Service = attention.New(ctx, h.options)

	// As a server has them, and one of its own that refuses erasures.
	parts := []part.Part{
		h.schedule.Part(), checkpoints.Part(), h.engine.Part(), h.events.Part(), h.builds.Part(), h.deploy.Part(),
		h.sagas.Part(), h.listeners.Part(), h.places.Part(),
		tagging.Part(), h.indexes.Part(), h.projections.Part(), h.registry.Part(), h.backups.Part(), h.erasures.Part(),
		logs.Part(), h.scrub.Part(),
		meter.Part(), blobs.Part(), h.Part(),
		{
			Name: "test", Erase: part.Erase{
				Streams: func(context.Context, j17.Tenant, part.Erased) error { return h.unerasable },
			},
		},
	}
	h.engine.Use(parts...)
	h.deploy.Use(parts...)
	h.erasures.Use(parts...)

	// Retries, backups and what follows the feed go on beside what a test does.
	h.running, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.ended = make(chan struct{})
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{
		h.Run, h.backups.Run, h.events.Run, h.listeners.Run, h.indexes.Run, h.builds.Run,
	} {
		all.Go(func() {
			if err := run(h.running); err != nil {
				h.tb.Error(err)
			}
		})
	}
	go func() {
		defer close(h.ended)
		all.Wait()
	}()
}

func (h *house) close() {
	h.stop()
	<-h.ended
	_ = h.store.Close()
}

// again opens an embedded store anew, after something was done with its records on the disk.
func (h *house) again(do func(db *raw.DB)) {
	h.tb.Helper()
	h.close()
	db, err := raw.Open("data", &raw.Options{FS: h.data.Disk(), FormatMajorVersion: raw.FormatNewest, Logger: quiet{}})
	if err != nil {
		h.tb.Fatal(err)
	}
	do(db)
	if err := db.Close(); err != nil {
		h.tb.Fatal(err)
	}
	h.open()
	if err := h.deploy.Adopt(h.tb.Context(), h.instance.ID, j17.Prod); err != nil {
		h.tb.Fatal(err)
	}
}

// quiet is a logger that says nothing.
type quiet struct{}

// Infof says nothing.
func (quiet) Infof(string, ...any) {}

// Errorf says nothing.
func (quiet) Errorf(string, ...any) {}

// Fatalf ends the test.
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// spoil changes the first byte of the records of a space.
func spoil(space string) func(db *raw.DB) {
	return func(db *raw.DB) {
		it, err := db.NewIter(nil)
		if err != nil {
			panic(err)
		}
		changed := map[string][]byte{}
		for it.First(); it.Valid(); it.Next() {
			if len(it.Key()) > 5 && it.Key()[4] == 'i' && strings.Contains(string(it.Key()), space) {
				value := bytes.Clone(it.Value())
				if len(value) > 0 {
					value[0] ^= 1
					changed[string(it.Key())] = value
				}
			}
		}
		if err := it.Close(); err != nil {
			panic(err)
		}
		for key, value := range changed {
			if err := db.Set([]byte(key), value, raw.Sync); err != nil {
				panic(err)
			}
		}
	}
}

// deployed deploys a spec.
func (h *house) deployed(source string) {
	h.tb.Helper()
	if _, err := h.deploy.Deploy(h.tb.Context(), deploy.Request{
		Instance: h.instance.ID, Environment: j17.Prod, Source: []byte(source), Force: true,
	}); err != nil {
		h.tb.Fatal(err)
	}
}

// id makes the id number n.
func id(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", n) }

// post writes an event, and returns the error of a write that is refused.
func (h *house) post(path, data string) error {
	h.tb.Helper()
	c := enginetest.Command(h.tb, path, enginetest.Body(data))
	c.Tenant = h.tenant
	_, err := h.engine.Execute(h.tb.Context(), c)
	return err
}

// must is post of what has to work.
func (h *house) must(path, data string) {
	h.tb.Helper()
	if err := h.post(path, data); err != nil {
		h.tb.Fatalf("%s: %v", path, err)
	}
}

// settle does all that is due.
func (h *house) settle() {
	h.tb.Helper()
	for range 3 {
		for _, settle := range []func(context.Context) error{
			h.events.Settle, h.schedule.Settle, h.sagas.Settle, h.listeners.Settle, h.builds.Settle, h.deploy.Settle,
			h.erasures.Settle,
		} {
			if err := settle(h.tb.Context()); err != nil {
				h.tb.Fatal(err)
			}
		}
	}
}

// pass lets time pass, in steps.
func (h *house) pass(d, step time.Duration) {
	h.tb.Helper()
	for ; d > 0; d -= step {
		h.clock.Advance(min(d, step))
		h.settle()
	}
}

// causes returns what waits, of one kind. No cause may have data of events in it.
func (h *house) causes(kind string) (of []wire.Attention) {
	h.tb.Helper()
	all, err := h.Causes(h.tb.Context(), h.tenant)
	if err != nil {
		h.tb.Fatal(err)
	}
	for i := range all {
		if strings.Contains(fmt.Sprintf("%+v", all[i]), secret) {
			h.tb.Errorf("event data in %+v", all[i])
		}
		if all[i].Kind == kind {
			of = append(of, all[i])
		}
	}
	return of
}

// want checks that one thing of a kind waits, for a cause.
func (h *house) want(kind, cause string, actions ...string) wire.Attention {
	h.tb.Helper()
	for _, a := range h.causes(kind) {
		if a.Cause == cause {
			if a.Count != 1 || a.More || a.Title == "" || strings.Join(a.Actions, " ") != strings.Join(actions, " ") {
				h.tb.Errorf("%+v, want the actions %v", a, actions)
			}
			return a
		}
	}
	h.tb.Fatalf("no %s waits for %q: %+v", kind, cause, h.causes(kind))
	return wire.Attention{}
}
