package trace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/follow/feed"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/follow/trace"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const tenant = enginetest.Tenant

// works is a spec with all that an event can lead to. A meter takes whole numbers only; a ring rings again through two
// sagas that start each other.
const works = `{
	"agent_types": ["user"],
	"aggregate_types": {
		"job": {"events": {
			"was_timed": {"schema": {}, "handler": [], "implications": [
				{"schedule": {"delay": "5m", "emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}},
					"cancel_on": [{"aggregate_type": "job", "id": "$.key", "event_type": "was_closed"}]}}]},
			"was_closed": {"schema": {}, "handler": []},
			"was_shared": {"schema": {}, "handler": [], "implications": [
				{"map": {"in": "$.data.with", "as": "$w", "emit": {"aggregate_type": "note", "id": "$w", "event_type": "was_written", "data": {}}}}]},
			"was_asked": {"schema": {}, "handler": []},
			"had_failure": {"schema": {}, "handler": []}}},
		"meter": {"events": {"was_taken": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "handler": []}}},
		"note": {"events": {"was_written": {"schema": {}, "handler": []}, "was_torn": {"schema": {}, "handler": []}}},
		"desk": {"events": {"was_asked": {"schema": {}, "handler": []}, "was_answered": {"schema": {}, "handler": []}}},
		"ring": {"events": {"was_rung": {"schema": {}, "handler": []}, "has_echoed": {"schema": {}, "handler": []}}},
		"order": {"events": {"was_made": {"schema": {}, "handler": []}}}
	},
	"listeners": {"told": {"url": "https://example.com/", "events": ["order.*"]}},
	"modules": {"sagas": {
		"asking": {
			"trigger": {"aggregate_type": "job", "event_type": "was_asked"},
			"steps": [
				{"name": "note", "emit": {"aggregate_type": "note", "id": "$.data.note", "event_type": "was_written", "data": {}},
				 "compensate": {"aggregate_type": "note", "id": "$.data.note", "event_type": "was_torn", "data": {}}},
				{"name": "ask", "emit": {"aggregate_type": "desk", "id": "$.data.desk", "event_type": "was_asked", "data": {}},
				 "await": {"aggregate_type": "desk", "event_types": ["was_answered"]}, "timeout_ms": 600000},
				{"name": "measure", "emit": {"aggregate_type": "meter", "id": "$.key", "event_type": "was_taken", "data": {"n": "$.data.n"}}}],
			"on_failed": {"aggregate_type": "job", "id": "$.key", "event_type": "had_failure", "data": {}}},
		"ring": {
			"trigger": {"aggregate_type": "ring", "event_type": "was_rung"},
			"steps": [{"name": "echo", "condition": {"exists": "$.data"}, "emit": {"aggregate_type": "ring", "id": "$.key", "event_type": "has_echoed", "data": {}}}]},
		"echo": {
			"trigger": {"aggregate_type": "ring", "event_type": "has_echoed"},
			"steps": [{"name": "ring", "condition": {"exists": "$.data"}, "emit": {"aggregate_type": "ring", "id": "$.key", "event_type": "was_rung", "data": {}}}]}
	}}
}`

// house is an engine with schedules, sagas and listeners.
type house struct {
	*trace.Service
	tb        testing.TB
	clock     *clock.Manual
	store     store.Store
	engine    *engine.Engine
	schedule  *schedule.Service
	sagas     *saga.Service
	events    *feed.Subscriptions
	listeners *listener.Service
	posted    int
}

// oneSpec is the spec of all environments.
type oneSpec struct{ compiled *spec.Compiled }

// Deployed is part of saga.Specs.
func (oneSpec) Deployed(context.Context, j17.Tenant) (int, error) { return 1, nil }

// Compiled is part of saga.Specs.
func (s oneSpec) Compiled(context.Context, j17.Tenant, int) (*spec.Compiled, error) {
	return s.compiled, nil
}

func newHouse(tb testing.TB) *house {
	tb.Helper()
	h := &house{tb: tb, clock: clock.NewManual(time.Unix(1_700_000_000, 0))}
	h.store = testopen.Open(tb, h.clock)
	log := slog.New(slog.DiscardHandler)
	kit := worker.New(h.clock, log)
	compiled := enginetest.Compiled(tb, works)
	h.engine = engine.New(engine.Options{Store: h.store, Clock: h.clock, Logger: log})
	h.schedule = schedule.New(schedule.Options{
		Store: h.store, Clock: h.clock, Logger: log, Worker: kit, Execute: h.engine.ExecuteInOrder,
	})
	h.sagas = saga.New(saga.Options{
		Store: h.store, Engine: h.engine, Specs: oneSpec{compiled}, Clock: h.clock, Worker: kit, Logger: log,
	})
	h.events = feed.New(feed.Options{Store: h.store, Clock: h.clock, Logger: log, Worker: kit})
	h.listeners = listener.New(tb.Context(), listener.Options{
		Store: h.store, Feed: h.events, Worker: kit, Clock: h.clock, Logger: log, Spec: h.engine.Spec,
		Name:     func(j17.Tenant) (string, j17.Environment) { return "app", j17.Prod },
		Disabled: func(context.Context, j17.Tenant, string, string) error { return nil },
		Send: func(context.Context, outbound.Message) (outbound.Answer, error) {
			return outbound.Answer{Status: http.StatusNoContent}, nil
		},
	})
	h.engine.Use(h.schedule.Part(), h.engine.Part(), h.sagas.Part(), h.listeners.Part())
	h.Service = trace.New(trace.Options{Store: h.store, Schedule: h.schedule, Sagas: h.sagas, Listeners: h.listeners})
	if err := h.listeners.Prepare(tb.Context(), tenant, nil, compiled); err != nil {
		tb.Fatal(err)
	}
	h.engine.Deploy(tenant, compiled, nil)
	if err := h.listeners.Adopted(tb.Context(), tenant); err != nil {
		tb.Fatal(err)
	}

	running, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{h.events.Run, h.listeners.Run} {
		all.Go(func() {
			if err := run(running); err != nil {
				tb.Error(err)
			}
		})
	}
	tb.Cleanup(func() {
		stop()
		all.Wait()
		_ = h.store.Close()
	})
	return h
}

// id makes the id number n.
func id(n int) string { return fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", n) }

// post writes an event and returns its position.
func (h *house) post(path, data string) j17.StreamID {
	h.tb.Helper()
	c := enginetest.Command(h.tb, path, enginetest.Body(data))
	h.posted++
	c.CorrelationID = id(500_000 + h.posted) // as each request has one of its own
	r, err := h.engine.Execute(h.tb.Context(), c)
	if err != nil {
		h.tb.Fatalf("%s: %v", path, err)
	}
	return enginetest.One(r).IDs[0]
}

// settle does all that is due.
func (h *house) settle() {
	h.tb.Helper()
	for range 3 {
		for _, settle := range []func(context.Context) error{
			h.schedule.Settle, h.sagas.Settle, h.events.Settle, h.listeners.Settle,
		} {
			if err := settle(h.tb.Context()); err != nil {
				h.tb.Fatal(err)
			}
		}
	}
}

// pass lets time pass, a minute at a time.
func (h *house) pass(minutes int) {
	h.tb.Helper()
	for range minutes {
		h.clock.Advance(time.Minute)
		h.settle()
	}
}

// graph returns the graph of an event, whose edges join nodes that it has.
func (h *house) graph(at j17.StreamID) *wire.Trace {
	h.tb.Helper()
	g, err := h.Graph(h.tb.Context(), tenant, at, true)
	if err != nil {
		h.tb.Fatal(err)
	}
	there := map[string]bool{}
	for _, n := range g.Nodes {
		if there[n.ID] {
			h.tb.Errorf("%s is there twice", n.ID)
		}
		there[n.ID] = true
	}
	for _, e := range g.Edges {
		if !there[e.From] || !there[e.To] {
			h.tb.Errorf("%+v joins what is not there", e)
		}
	}
	if len(g.Nodes) > trace.MaxNodes {
		h.tb.Errorf("%d nodes", len(g.Nodes))
	}
	return g
}

// drawn writes a graph down: what each node is, and what its edges are called.
func drawn(g *wire.Trace) (nodes, edges []string) {
	name := map[string]string{}
	for _, n := range g.Nodes {
		typ, _, _ := strings.Cut(n.Key, ":")
		text := strings.TrimSpace(strings.Join([]string{n.Kind, typ, n.Type, n.Status}, " "))
		name[n.ID] = strings.TrimSpace(n.Kind + " " + n.Type)
		nodes = append(nodes, strings.Join(strings.Fields(text), " "))
	}
	for _, e := range g.Edges {
		edges = append(edges, name[e.From]+" "+e.How+" "+name[e.To])
	}
	slices.Sort(nodes)
	slices.Sort(edges)
	return nodes, edges
}

// want checks what a graph is, and that it is the same from each of its events.
func (h *house) want(at j17.StreamID, nodes, edges []string) *wire.Trace {
	h.tb.Helper()
	g := h.graph(at)
	gotNodes, gotEdges := drawn(g)
	if !slices.Equal(gotNodes, nodes) || !slices.Equal(gotEdges, edges) {
		h.tb.Errorf("nodes\n%s\nedges\n%s", strings.Join(gotNodes, "\n"), strings.Join(gotEdges, "\n"))
	}
	text, _ := json.Marshal(g)
	for _, n := range g.Nodes {
		if n.Kind != "event" {
			continue
		}
		from, err := j17.ParseStreamID(n.ID)
		if err != nil {
			h.tb.Fatal(err)
		}
		if other, _ := json.Marshal(h.graph(from)); string(other) != string(text) {
			h.tb.Errorf("from %s it is %s\nand not %s", n.ID, other, text)
		}
	}
	return g
}

// TestSchedulesAreTraced has scheduled events pend, be cancelled by another request, fire, and be given up.
func TestSchedulesAreTraced(t *testing.T) {
	h := newHouse(t)
	pending := h.post("job/"+id(1)+"/was_timed", `{"n":1}`)
	h.want(pending, []string{"event job was_timed", "scheduled meter was_taken pending"}, []string{"event was_timed scheduled scheduled was_taken"})

	cancelled := h.post("job/"+id(2)+"/was_timed", `{"n":2}`)
	h.post("job/"+id(2)+"/was_closed", `{}`)
	h.want(cancelled, []string{"event job was_closed", "event job was_timed", "scheduled meter was_taken canceled"},
		[]string{"event was_closed cancelled scheduled was_taken", "event was_timed scheduled scheduled was_taken"})

	bad := h.post("job/"+id(3)+"/was_timed", `{"n":"x"}`)
	h.pass(20)
	h.want(pending, []string{"event job was_timed", "event meter was_taken", "scheduled meter was_taken fired"},
		[]string{"event was_timed scheduled scheduled was_taken", "scheduled was_taken emitted event was_taken"})
	g := h.want(bad, []string{"event job was_timed", "refusal was_taken", "scheduled meter was_taken dead_letter"},
		[]string{"event was_timed scheduled scheduled was_taken", "scheduled was_taken refused refusal was_taken"})
	if refusal := g.Nodes[len(g.Nodes)-1]; refusal.Error == "" || strings.Contains(refusal.Error, `"x"`) {
		t.Errorf("%+v", refusal)
	}
}

// TestSagasAreTraced has a saga answered, refused and undone.
func TestSagasAreTraced(t *testing.T) {
	h := newHouse(t)
	asked := h.post("job/"+id(1)+"/was_asked", `{"note":"`+id(2)+`","desk":"`+id(3)+`","n":"x"}`)
	h.settle()
	if nodes, _ := drawn(h.graph(asked)); !slices.Contains(nodes, "saga job asking running") {
		t.Fatal(nodes)
	}
	h.clock.Advance(1234 * time.Millisecond)
	h.post("desk/"+id(3)+"/was_answered", `{}`)
	h.settle()
	g := h.want(asked, []string{
		"event desk was_answered", "event desk was_asked", "event job had_failure", "event job was_asked",
		"event note was_torn", "event note was_written",
		"refusal measure", "saga job asking failed",
	}, []string{
		"event was_answered answered saga asking", "event was_asked triggered saga asking", "saga asking compensated event was_torn",
		"saga asking emitted event had_failure", "saga asking emitted event was_asked",
		"saga asking emitted event was_written", "saga asking refused refusal measure",
	})
	answered := slices.IndexFunc(g.Nodes, func(n wire.TraceNode) bool { return n.Type == "was_answered" })
	for _, n := range g.Nodes {
		if n.Kind == "saga" && (len(n.Steps) != 3 || n.Steps[0].Name != "note") {
			t.Errorf("%+v", n.Steps)
		}
		if n.Kind == "refusal" && n.AtMs < g.Nodes[answered].AtMs {
			t.Errorf("it was refused at %s, and the answer before it came at %s", n.At, g.Nodes[answered].At)
		}
	}

	// Who may not inspect learns no errors.
	seen, err := h.Graph(t.Context(), tenant, asked, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range seen.Nodes {
		if n.Error != "" || n.Kind == "delivery" {
			t.Errorf("%+v", n)
		}
	}
}

// TestDeliveriesAreTraced tells a listener, whose deliveries are for those alone who may inspect.
func TestDeliveriesAreTraced(t *testing.T) {
	h := newHouse(t)
	made := h.post("order/"+id(1)+"/was_made", `{}`)
	h.settle()
	h.want(made, []string{"delivery order told delivered", "event order was_made"}, []string{"event was_made delivered delivery told"})
	g, err := h.Graph(t.Context(), tenant, made, false)
	if err != nil || len(g.Nodes) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestSagasThatStartEachOther lets two sagas start each other as long as they may: the graph ends, from wherever it is
// asked.
func TestSagasThatStartEachOther(t *testing.T) {
	h := newHouse(t)
	rung := h.post("ring/"+id(1)+"/was_rung", `{}`)
	for range 3 {
		h.settle()
	}
	g := h.graph(rung)
	kinds := map[string]int{}
	for _, n := range g.Nodes {
		kinds[n.Kind+" "+n.Type]++
	}
	if kinds["saga ring"] < 2 || kinds["saga echo"] < 2 || kinds["event was_rung"] < 2 ||
		kinds["event has_echoed"] < 2 {
		t.Errorf("%v", kinds)
	}
	if last := g.Nodes[len(g.Nodes)-1]; len(g.Nodes) < 10 || last.AtMs < g.Nodes[0].AtMs {
		t.Errorf("%d nodes, %v", len(g.Nodes), kinds)
	}
	t.Log(len(g.Nodes), g.Truncated, kinds)
}

// crowd writes graphs of more than 500 events, and returns the positions of their first ones.
func (h *house) crowd(graphs int) (all []j17.StreamID) {
	h.tb.Helper()
	for n := range graphs {
		var with []string
		for i := range 90 {
			with = append(with, `"`+id(1000*(n+1)+i)+`"`)
		}
		path, data := "job/"+id(n)+"/was_shared", `{"with":[`+strings.Join(with, ",")+`]}`
		var first j17.StreamID
		for i := range 6 {
			c := enginetest.Command(h.tb, path, enginetest.Body(data))
			c.CorrelationID = id(900_000 + n)
			r, err := h.engine.Execute(h.tb.Context(), c)
			if err != nil {
				h.tb.Fatal(err)
			}
			if i == 0 {
				first = enginetest.One(r).IDs[0]
			}
		}
		all = append(all, first)
	}
	return all
}

// TestAGraphHasItsLimit asks for graphs of more nodes than one may have.
func TestAGraphHasItsLimit(t *testing.T) {
	h := newHouse(t)
	for _, at := range h.crowd(2) {
		g := h.graph(at)
		if !g.Truncated || len(g.Nodes) != trace.MaxNodes ||
			!slices.ContainsFunc(g.Nodes, func(n wire.TraceNode) bool { return n.ID == at.String() }) {
			t.Errorf("%d nodes, truncated: %t", len(g.Nodes), g.Truncated)
		}
	}
	var asked sync.WaitGroup // and by several at once
	at := h.post("order/"+id(1)+"/was_made", `{}`)
	for range 8 {
		asked.Go(func() {
			if _, err := h.Graph(t.Context(), tenant, at, true); err != nil {
				t.Error(err)
			}
		})
	}
	asked.Wait()
}

// TestErasedEventsAreTraced erases an event of a graph: it stays, and does not say what it was.
func TestErasedEventsAreTraced(t *testing.T) {
	h := newHouse(t)
	shared := h.post("job/"+id(1)+"/was_shared", `{"with":["`+id(2)+`","`+id(3)+`"]}`)
	h.want(shared, []string{"event job was_shared", "event note was_written", "event note was_written"},
		[]string{"event was_shared implied event was_written", "event was_shared implied event was_written"})
	if _, err := h.store.Rewrite(t.Context(), tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: j17.Key{Type: "note", ID: id(2)}, Events: []store.Rewritten{
			{Version: 1, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
		},
	}}}); err != nil {
		t.Fatal(err)
	}
	nodes, edges := drawn(h.graph(shared))
	if !slices.Contains(nodes, "event note was_written") || slices.Contains(nodes, "event note was_written erased") ||
		len(edges) != 1 {
		t.Errorf("%v, %v", nodes, edges)
	}
	all, err := h.engine.Length(t.Context(), tenant, "note", id(2))
	if err != nil || all != 1 {
		t.Fatal(all, err)
	}
}

// TestNoGraph asks for events that there are not.
func TestNoGraph(t *testing.T) {
	h := newHouse(t)
	at := h.post("order/"+id(1)+"/was_made", `{}`)
	for _, of := range []j17.StreamID{{}, {Ms: 1}, {Ms: at.Ms, Seq: at.Seq + 1}, {Ms: at.Ms + 1}} {
		if _, err := h.Graph(t.Context(), tenant, of, true); j17.CodeOf(err) != j17.CodeNotFound {
			t.Errorf("%s: %v", of, err)
		}
	}
	if _, err := h.Graph(t.Context(), "ins_other/prod", at, true); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("in another environment: %v", err)
	}
}

// BenchmarkGraph finds a graph of as many nodes as there may be. A request may take 50 ms.
func BenchmarkGraph(b *testing.B) {
	h := newHouse(b)
	at := h.crowd(1)[0]
	for b.Loop() {
		if g := h.graph(at); len(g.Nodes) != trace.MaxNodes {
			b.Fatal(len(g.Nodes))
		}
	}
}
