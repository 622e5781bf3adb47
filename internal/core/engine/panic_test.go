package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/fold"
	"j17/internal/core/part"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// patience is how long a test waits for what should not take any time at all, however slow the machine is.
const patience = 5 * time.Minute

// survive calls a function that panics.
func survive(t *testing.T, do func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("there was no panic")
		}
	}()
	do()
}

// turns returns an engine with an account whose writers take turns, because one of them was overtaken, and what the
// engine's store goes through.
func turns(t *testing.T, o engine.Options, parts ...part.Part) (*fixture, *hooked) {
	t.Helper()
	f := newFixture(t, engine.Options{})
	h := &hooked{Store: f.Store}
	o.Store, o.Clock, o.Logger = h, f.Clock, slog.New(slog.DiscardHandler)
	f.Engine = engine.New(o).Use(parts...)
	f.DeploySource(t, accountSpec)
	f.Post(t, "account/"+id+"/was_opened", `{"data":{},`+meta+`}`)
	h.next(func(do func() ([]store.Result, error)) ([]store.Result, error) {
		f.Post(t, "account/"+id+"/was_deposited", `{"data":{"amount":2},`+meta+`}`)
		return do()
	})
	f.Post(t, "account/"+id+"/was_paid", paid())
	return f, h
}

// TestPanicInTurn: a panic while a writer has the turn of an aggregate, which whoever called survives, does not keep
// others from theirs.
func TestPanicInTurn(t *testing.T) {
	t.Parallel()
	panics := false
	f, _ := turns(t, engine.Options{}, enginetest.Effects(func(context.Context, *part.Decided) (part.Effects, error) {
		if panics {
			panics = false
			panic("a fault")
		}
		return part.Effects{}, nil
	})...)

	panics = true
	survive(t, func() { _, _ = f.Execute(t.Context(), enginetest.Command(t, "account/"+id+"/was_paid", paid())) })
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := f.Execute(ctx, enginetest.Command(t, "account/"+id+"/was_paid", paid())); err != nil {
		t.Errorf("the next write to the aggregate: %v", err)
	}
}

// faulty is code that panics in the last of some calls.
type faulty struct{ left int }

// Call returns a state, or panics.
func (c *faulty) Call(context.Context, []byte) ([]byte, error) {
	if c.left--; c.left == 0 {
		panic("a fault")
	}
	return []byte(`{"state":{}}`), nil
}

// Digest tells codes apart.
func (*faulty) Digest() [32]byte { return [32]byte{1} }

// TestPanicInAFold: a panic in a fold, which whoever called survives, does not keep others from the state.
func TestPanicInAFold(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{ReadWait: patience})
	c, faults := spec.Compile([]byte(slowSpec))
	if c == nil {
		t.Fatal(faults)
	}
	functions, code := decider.Functions{}, &faulty{left: 3}
	for _, u := range c.CodeUses() {
		functions[u.Code] = code
	}
	f.Deploy(tenant, c, functions)
	f.put(t, tenant, id, "slow", 5)

	survive(t, func() { _, _ = f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{}) })
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := f.Load(ctx, tenant, "order", id, engine.LoadOptions{}); err != nil {
		t.Errorf("the next reader: %v", err)
	}
}

// counted writes an event to each of some counters, and returns them with the moment after that.
func counted(t *testing.T, f *enginetest.Fixture) (keys []j17.Key, at j17.StreamID) {
	t.Helper()
	keys = counters(40)
	for _, key := range keys {
		f.Post(t, "counter/"+key.ID+"/was_counted", enginetest.Body(`{"by":1}`))
	}
	end, err := f.Store.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	return keys, end.Position()
}

// loadAll loads counters that have one event each, as of a moment.
func loadAll(t *testing.T, m *fold.Moment, keys []j17.Key, synchronous bool) {
	t.Helper()
	loaded, err := m.Load(t.Context(), keys, synchronous)
	if err != nil || len(loaded) != len(keys) || loaded[0].Length != 1 {
		t.Errorf("asked again: %d states, %v", len(loaded), err)
	}
}

// TestPanicBesideOthers: a panic where short streams are read by several at a time is that of whoever has asked, and
// not the end of the process.
func TestPanicBesideOthers(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys, end := counted(t, f)

	r := &reading{Store: f.Store, once: func() { panic("a fault") }}
	e := engine.New(engine.Options{Store: r, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	m, err := e.Moment(enginetest.Tenant, end)
	if err != nil {
		t.Fatal(err)
	}
	survive(t, func() { _, _ = m.Load(t.Context(), keys, false) })
	loadAll(t, m, keys, false)
}

// TestPanicWhileItIsStored: a panic of the store while it takes writes that took their turns, on a goroutine that
// stores for all of them: whoever wrote is told that nobody knows what became of it, and the next one writes.
func TestPanicWhileItIsStored(t *testing.T) {
	t.Parallel()
	f, h := turns(t, engine.Options{})

	h.next(func(func() ([]store.Result, error)) ([]store.Result, error) { panic("a fault") })
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := f.Execute(
		ctx, enginetest.Command(t, "account/"+id+"/was_paid", paid()),
	); j17.CodeOf(err) != j17.CodeOutcomeUnknown || !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "a fault") {
		t.Errorf("whoever wrote is told %v", err)
	}
	if _, err := f.Execute(ctx, enginetest.Command(t, "account/"+id+"/was_paid", paid())); err != nil {
		t.Errorf("the next write to the aggregate: %v", err)
	}
}

// TestPanicOfADeployment: a panic while the engine asks what is deployed, for all who write: they are told, and the
// next one asks again.
func TestPanicOfADeployment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{})
	d := &deployments{Store: f.Store}
	var e *engine.Engine
	asked := 0
	e = engine.New(engine.Options{
		Store: d, Clock: f.Clock,
	}).Use(renewing(func(ctx context.Context, _ j17.Tenant) error {
		if asked++; asked == 1 {
			panic("a fault")
		}
		return d.adopt(ctx, e)
	}))
	d.put(t, fmt.Sprintf(firstSpec, ""))
	if err := d.adopt(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	noted := enginetest.Command(t, "account/"+id+"/was_noted", `{"data":{},`+meta+`}`)
	d.put(t, secondSpec)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if _, err := e.Execute(ctx, noted); err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Errorf("whoever writes is told %v", err)
	}
	if _, err := e.Execute(ctx, noted); err != nil || asked != 2 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// snapless is a store that panics when it is to keep the first snapshot or the first rejection, and while it is told
// so, where a stream is read.
type snapless struct {
	store.Store
	kept, read atomic.Bool
	met        atomic.Int64 // how often it has panicked for a stream
}

// Write implements store.Store.
func (s *snapless) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	for i := range sides {
		if (sides[i].Space == "snapshot" || sides[i].Space == "implication.failed") &&
			s.kept.CompareAndSwap(false, true) {
			panic("a fault")
		}
	}
	return s.Store.Write(ctx, t, sides, fences...)
}

// ReadStream implements store.Store.
func (s *snapless) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	if s.read.Load() {
		s.met.Add(1)
		panic("a fault")
	}
	return s.Store.ReadStream(ctx, t, key, from, to)
}

// TestPanicInTheBackground: a panic while a snapshot is made, which nobody waits for, ends nothing else: the next one
// is made.
func TestPanicInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{})
	s := &snapless{Store: f.Store}
	f.Engine = engine.New(engine.Options{
		Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler), SnapshotEvery: 10,
	})
	f.DeploySource(t, enginetest.CounterSpec)
	for i := range 20 {
		f.Post(t, "counter/"+id+"/was_counted", count(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	for i := 0; f.Stats().Snapshots == 0; i++ {
		f.Post(t, "counter/"+id+"/was_counted", count(i))
	}
	cancel()
	if err := <-done; err != nil || !s.kept.Load() {
		t.Errorf("the first snapshot panicked: %t; the engine ends with %v", s.kept.Load(), err)
	}
}

// TestPanicBesideFolds: the same as where short streams are read, where each state is folded by itself.
func TestPanicBesideFolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{})
	s := &snapless{Store: f.Store}
	f.Engine = engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	f.DeploySource(t, enginetest.CounterSpec)
	keys, end := counted(t, f.Fixture)
	m, err := f.Moment(enginetest.Tenant, end)
	if err != nil {
		t.Fatal(err)
	}
	s.read.Store(true)
	survive(t, func() { _, _ = m.Load(t.Context(), keys, true) })
	if met, want := s.met.Load(), int64(min(len(keys), runtime.GOMAXPROCS(0))); met != want {
		// whoever has asked, and those beside it
		t.Errorf("%d of %d who fold have panicked by the time that whoever has asked does", met, want)
	}
	s.read.Store(false)
	loadAll(t, m, keys, true)
}

// TestPanicWhileARejectionIsKept: a panic while a rejection is written down, which nobody waits for, ends nothing else:
// the next one is kept.
func TestPanicWhileARejectionIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engine.Options{})
	s := &snapless{Store: f.Store}
	f.Engine = engine.New(engine.Options{Store: s, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	f.DeploySource(t, `{"agent_types": ["user"], "aggregate_types": {
		"order": {"events": {"was_named": {"schema": {}, "handler": [], "implications": [{"emit": {"aggregate_type": "other", "id": "$.data.n", "event_type": "e"}}]}}},
		"other": {"events": {"e": {"schema": {}, "handler": []}}}}}`)
	refuse := func() {
		_, err := f.Execute(
			t.Context(), enginetest.Command(t, "order/"+id+"/was_named", `{"data":{"n":"no id!"},`+meta+`}`),
		)
		if j17.CodeOf(err) != j17.CodeImplicationFailed {
			t.Fatal(err)
		}
	}
	refuse()
	await(t, "the first rejection was not written down", s.kept.Load)
	await(t, "the next rejection is not kept", func() bool {
		refuse()
		items, err := f.Store.Scan(t.Context(), tenant, "implication.failed", store.Range{}, 1)
		return err != nil || len(items) > 0
	})
}
