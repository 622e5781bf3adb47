package saga_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/follow/saga"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	prod    = j17.Tenant("ins_test/prod")
	staging = j17.Tenant("ins_test/staging")
	user    = "550e8400-e29b-41d4-a716-446655440001"
)

// id makes the id number n.
func id(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", n) }

// shop is a spec with sagas of all kinds. Steps write to legs and measures; a measure takes whole numbers only.
const shop = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"trip": {"events": {"was_requested": {"schema": {"type": "object"}, "handler": []}, "was_asked": {"schema": {"type": "object"}, "handler": []}, "was_completed": {"schema": {"type": "object"}, "handler": []}, "had_failure": {"schema": {"type": "object"}, "handler": []}}},
		"leg": {"events": {"was_booked": {"schema": {"type": "object"}, "handler": []}, "was_undone": {"schema": {"type": "object"}, "handler": []}}},
		"desk": {"events": {
			"was_asked": {"schema": {"type": "object"}, "handler": [], "implications": [{"condition": {"equals": ["$.data.how", "at once"]}, "emit": {"aggregate_type": "desk", "id": "$.key", "event_type": "was_answered", "data": {"n": "$.data.n"}}}]},
			"was_answered": {"schema": {"type": "object"}, "handler": []}, "was_told": {"schema": {"type": "object"}, "handler": []}}},
		"measure": {"events": {"was_taken": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}}}
	},
	"modules": {"sagas": {
		"trip": {
			"trigger": {"aggregate_type": "trip", "event_type": "was_requested"},
			"steps": [
				{"name": "hotel", "emit": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_booked", "data": {"what": "hotel", "of": "$.key"}},
				 "compensate": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_undone", "data": {"what": "hotel", "step": "$error.step"}}},
				{"name": "flight", "condition": {"exists": "$.data.fly"}, "emit": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_booked", "data": {"what": "flight", "prev": "$prev.data.what"}}},
				{"name": "car", "emit": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_booked", "data": {"what": "car", "prev": "$prev.data.what", "hotel": "$context.hotel.data.of"}},
				 "compensate": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_undone", "data": {"what": "car"}}},
				{"name": "meter", "emit": {"aggregate_type": "measure", "id": "$.data.leg", "event_type": "was_taken", "data": {"n": "$.data.n"}}}],
			"on_complete": {"aggregate_type": "trip", "id": "$.key", "event_type": "was_completed", "data": {}},
			"on_failed": {"aggregate_type": "trip", "id": "$.key", "event_type": "had_failure", "data": {"step": "$error.step", "error": "$error.message"}}
		},
		"desk": {
			"trigger": {"aggregate_type": "trip", "event_type": "was_asked"},
			"steps": [
				{"name": "first", "emit": {"aggregate_type": "leg", "id": "$.data.leg", "event_type": "was_booked", "data": {}},
				 "compensate": {"aggregate_type": "measure", "id": "$.data.leg", "event_type": "was_taken", "data": {"n": {"coalesce": ["$.data.undo", 1]}}}},
				{"name": "ask", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_asked", "data": {"how": "$.data.how", "n": "$.data.n"}},
				 "await": {"aggregate_type": "desk", "event_types": ["was_answered"]}, "timeout_ms": 30000},
				{"name": "tell", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_told", "data": {"n": "$prev.data.n"}}}],
			"on_failed": {"aggregate_type": "trip", "id": "$.key", "event_type": "had_failure", "data": {"step": "$error.step"}}
		}
	}}
}`

// versions are the specs of all environments; deployments append to them.
type versions struct {
	mu  sync.Mutex
	all []*spec.Compiled
	// refused is a version that is no longer valid, 0 for none, and panics reports that compiling it panics.
	refused int
	panics  bool
}

// refuse makes a version invalid; 0 makes all of them valid.
func (v *versions) refuse(version int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refused = version
}

// Deployed is part of saga.Specs.
func (v *versions) Deployed(context.Context, j17.Tenant) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.all), nil
}

// Compiled is part of saga.Specs.
func (v *versions) Compiled(_ context.Context, _ j17.Tenant, version int) (*spec.Compiled, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if version == v.refused && v.panics {
		panic("an array out of its bounds")
	}
	if version == v.refused {
		return nil, j17.Errorf(j17.CodeInvalidSpec, "Version %d of the spec is not valid for this version of the program.", version)
	}
	return v.all[version-1], nil
}

// house is a store with an engine and sagas over it, at a time that stands still.
type house struct {
	*saga.Service
	tb    testing.TB
	disk  store.Store
	store store.Store
	// clock is nil where time is that of a bubble.
	clock  *clock.Manual
	time   clock.Clock
	engine *engine.Engine
	specs  *versions
	kit    *worker.Kit
	most   int
	// fault, if not nil, is why nothing can be written.
	fault error
	// hangs reports that what is to be written takes longer than anybody waits.
	hangs bool
}

func newHouse(tb testing.TB, most int) *house {
	tb.Helper()
	c := clock.NewManual(time.Unix(1_700_000_000, 0))
	return (&house{tb: tb, clock: c, time: c, specs: &versions{}, most: most}).open()
}

// inBubble runs a test with a house whose time is made up.
func inBubble(t *testing.T, most int, test func(t *testing.T, h *house)) {
	t.Helper()
	testopen.Bubble(t, func(t *testing.T) {
		test(t, (&house{tb: t, time: clock.System{}, specs: &versions{}, most: most}).open())
	})
}

func (h *house) open() *house {
	h.tb.Helper()
	h.disk = testopen.Open(h.tb, h.time)
	h.work(h.disk)
	h.deploy(shop)
	return h
}

// work makes an engine and sagas over a store, as another process of the same would be.
func (h *house) work(st store.Store) {
	h.store = st
	log := slog.New(slog.DiscardHandler)
	h.kit = worker.New(h.time, log)
	var s *saga.Service
	h.engine = engine.New(engine.Options{Store: st, Clock: h.time, Logger: log}).Use(enginetest.Effects(
		func(ctx context.Context, d *part.Decided) (part.Effects, error) { return s.Effects(ctx, d) },
		func(ctx context.Context, _ *part.Decided) (part.Effects, error) {
			if h.hangs {
				<-ctx.Done()
				return part.Effects{}, ctx.Err()
			}
			return part.Effects{}, h.fault
		},
	)...)
	s = saga.New(saga.Options{
		Store: st, Engine: h.engine, Specs: h.specs, Clock: h.time, Worker: h.kit, Logger: log, Most: h.most,
	})
	h.Service = s
	if n := len(h.specs.all); n > 0 {
		h.engine.Deploy(prod, h.specs.all[n-1], nil)
		h.engine.Deploy(staging, h.specs.all[n-1], nil)
	}
}

// another returns a second set of workers over the same store.
func (h *house) another(st store.Store) *house {
	o := *h
	o.work(st)
	return &o
}

func (h *house) deploy(source string) {
	h.tb.Helper()
	h.adopt(spec.Compile([]byte(source)))
}

// deployStored is deploy for a spec that an earlier version of the program has accepted.
func (h *house) deployStored(source string) {
	h.tb.Helper()
	h.adopt(spec.CompileStored([]byte(source)))
}

func (h *house) adopt(c *spec.Compiled, found []diag.Diagnostic) {
	h.tb.Helper()
	if c == nil {
		h.tb.Fatalf("the spec is not valid: %+v", found)
	}
	h.specs.mu.Lock()
	h.specs.all = append(h.specs.all, c)
	h.specs.mu.Unlock()
	h.engine.Deploy(prod, c, nil)
	h.engine.Deploy(staging, c, nil)
}

// try writes events to prod; event is "type/id/event".
func (h *house) try(t j17.Tenant, path string, data ...string) (engine.Receipt, error) {
	h.tb.Helper()
	parts := strings.Split(path, "/")
	c := &engine.Command{Tenant: t, Command: command.Command{
		Writes: []command.Write{{Type: parts[0], ID: parts[1]}}, Actor: j17.Agent{Type: "user", ID: user},
		Cause: command.Cause{CorrelationID: "c-" + parts[1]},
	}}
	for _, d := range data {
		v, err := value.ParseString(d)
		if err != nil {
			h.tb.Fatal(err)
		}
		c.Writes[0].Events = append(c.Writes[0].Events, command.Event{Type: parts[2], Data: v})
	}
	return h.engine.Execute(h.tb.Context(), c)
}

// post is try for what must work.
func (h *house) post(path string, data ...string) engine.Written {
	h.tb.Helper()
	r, err := h.try(prod, path, data...)
	if err != nil {
		h.tb.Fatalf("%s: %v", path, err)
	}
	return r.Writes[0]
}

// settle does all that is due now.
func (h *house) settle() {
	h.tb.Helper()
	if err := h.Settle(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
}

// pass moves the clock on, stops at each moment at which something is due, and does it.
func (h *house) pass(d time.Duration) {
	h.tb.Helper()
	end := h.clock.Now().Add(d)
	for {
		h.settle()
		next, err := h.NextDue(h.tb.Context())
		if err != nil {
			h.tb.Fatal(err)
		}
		if next.IsZero() || next.After(end) {
			break
		}
		h.clock.Set(next)
	}
	h.clock.Set(end)
	h.settle()
}

// events returns the events of an aggregate, "type data" each.
func (h *house) events(typ, id string) (list []string) {
	h.tb.Helper()
	for ev, err := range h.store.ReadStream(h.tb.Context(), prod, j17.Key{Type: typ, ID: id}, 1, 0) {
		if err != nil {
			h.tb.Fatal(err)
		}
		list = append(list, ev.Type+" "+string(ev.Data))
	}
	return list
}

// sagas returns the sagas of prod, the oldest first.
func (h *house) sagas() []*saga.Saga {
	h.tb.Helper()
	all, err := h.List(h.tb.Context(), prod, saga.Filter{}, 0, 1000)
	if err != nil {
		h.tb.Fatal(err)
	}
	slices.Reverse(all)
	return all
}

// one returns the only saga.
func (h *house) one() *saga.Saga {
	h.tb.Helper()
	all := h.sagas()
	if len(all) != 1 {
		h.tb.Fatalf("%d sagas", len(all))
	}
	return all[0]
}

// steps returns the statuses of a saga's steps.
func steps(g *saga.Saga) (list []string) {
	for _, s := range g.Steps {
		list = append(list, string(s.Status))
	}
	return list
}

// timeline returns what has happened, "what step" each.
func timeline(g *saga.Saga) (list []string) {
	for _, e := range g.Timeline {
		list = append(list, strings.TrimSpace(string(e.What)+" "+e.Step))
	}
	return list
}

// metadata returns the metadata of an event.
func (h *house) metadata(typ, id string, version uint64) map[string]any {
	h.tb.Helper()
	for ev, err := range h.store.ReadStream(h.tb.Context(), prod, j17.Key{Type: typ, ID: id}, version, version) {
		if err != nil {
			h.tb.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(ev.Metadata, &m); err != nil {
			h.tb.Fatal(err)
		}
		return m
	}
	h.tb.Fatalf("%s %s has no event %d", typ, id, version)
	return nil
}

// left tells how many items sagas have in prod outside of the rows and lists of those that are over.
func (h *house) left() (items []string) {
	h.tb.Helper()
	for _, space := range []store.Space{
		"saga.work", "saga.waiting", "saga.counts", "saga.arrivals", "saga.queued", "saga.admission",
	} {
		all, err := h.store.Scan(h.tb.Context(), prod, space, store.Range{}, 1000)
		if err != nil {
			h.tb.Fatal(err)
		}
		for _, it := range all {
			items = append(items, string(space)+" "+it.Key)
		}
	}
	return items
}
