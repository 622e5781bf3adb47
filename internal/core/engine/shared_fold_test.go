package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// slowSpec has an event whose handler is custom code.
const slowSpec = `{"agent_types":["user"],"aggregate_types":{"order":{"events":{
	"slow":{"schema":{},"handler":{"wasm":"sum.wasm"}},"fast":{"schema":{},"handler":[{"increment":{"target":"n","by":1}}]}}}}}`

// gate is code that counts its calls, and waits at the call number stop until it is opened.
type gate struct {
	calls   atomic.Int64
	stop    int64
	reached chan struct{}
	open    chan struct{}
}

func newGate(stop int64) *gate {
	return &gate{stop: stop, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) Call(ctx context.Context, _ []byte) ([]byte, error) {
	n := g.calls.Add(1)
	if n == g.stop {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return fmt.Appendf(nil, `{"state":{"calls":%d}}`, n), nil
}

func (g *gate) Digest() [32]byte { return [32]byte{1} }

func (f *fixture) deploySlow(t *testing.T, to j17.Tenant, g *gate) {
	t.Helper()
	c, found := spec.Compile([]byte(slowSpec))
	if c == nil {
		t.Fatal(found)
	}
	functions := decider.Functions{}
	for _, u := range c.CodeUses() {
		functions[u.Code] = g
	}
	f.Deploy(to, c, functions)
}

// put stores n events as if they had been written long ago.
func (f *fixture) put(tb testing.TB, to j17.Tenant, id, typ string, n int) {
	tb.Helper()
	var events []store.NewEvent
	for range n {
		events = append(events, store.NewEvent{
			Key: j17.Key{Type: "order", ID: id}, Type: typ, Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	for len(events) > 0 {
		some := events[:min(len(events), 10_000)]
		events = events[len(some):]
		if r, err := f.Store.Append(tb.Context(), to, []store.Append{
			{Events: some, Timestamp: 1},
		}); err != nil || r[0].Outcome != store.Committed {
			tb.Fatal(r, err)
		}
	}
}

// await runs do until it succeeds, which others bring about.
func await(t *testing.T, what string, do func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !do(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal(what)
		}
	}
}

// wait lets a reader wait in vain: the clock moves until he has noticed, who may not have begun to wait yet.
func (f *fixture) wait(t *testing.T, done chan error) error {
	t.Helper()
	var err error
	await(t, "nobody was told that the state is not ready", func() bool {
		f.Clock.Advance(engine.DefaultReadWait)
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	return err
}

// asking is a context that tells when somebody asks for its end for the first time.
type asking struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

// Done is part of context.Context.
func (a *asking) Done() <-chan struct{} {
	a.once.Do(func() { close(a.asked) })
	return a.Context.Done()
}

// TestALongFoldGoesOnInTheBackground: who waits too long is told how far it is, who goes leaves the others their fold,
// and neighbours do not notice.
func TestALongFoldGoesOnInTheBackground(t *testing.T) {
	f := newFixture(t, engine.Options{})
	g := newGate(40)
	f.deploySlow(t, tenant, g)
	f.deploySlow(t, elsewhere, newGate(0))
	f.put(t, tenant, id, "slow", 100)
	f.put(t, elsewhere, id, "fast", 10)
	load := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := f.Load(ctx, tenant, "order", id, engine.LoadOptions{})
			done <- err
		}()
		return done
	}
	first := load(t.Context())
	<-g.reached // the fold is the first reader's, and waits for the gate
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	second := load(&asking{Context: ctx, asked: asked})
	<-asked
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	// Another tenant's read is folded meanwhile, and so is another aggregate of the same one.
	if s, err := f.Load(t.Context(), elsewhere, "order", id, engine.LoadOptions{}); err != nil || s.Length != 10 {
		t.Errorf("%+v, %v", s, err)
	}
	f.put(t, tenant, user, "fast", 3)
	if s, err := f.Load(t.Context(), tenant, "order", user, engine.LoadOptions{}); err != nil || s.Length != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	err := f.wait(t, first)
	e, _ := errors.AsType[*j17.Error](err)
	if e == nil || e.Code != j17.CodeStateNotReady {
		t.Fatalf("who waited got %v", err)
	}
	details, err := json.Marshal(e.Details)
	var progress struct{ Done, Total uint64 }
	if err != nil || json.Unmarshal(details, &progress) != nil || progress.Total != 100 || progress.Done == 0 ||
		progress.Done >= 100 {
		t.Errorf("details %s", details)
	}
	close(g.open)
	if err := <-load(t.Context()); err != nil {
		t.Error(err)
	}
	if n := g.calls.Load(); n != 100 {
		t.Errorf("100 events took %d calls", n)
	}
	if s := f.Stats(); s.Background != 1 || s.NotReady != 1 {
		t.Errorf("%+v", s)
	}
}

// TestAFoldThatNobodyWantsEnds: when the last one leaves who waits for it.
func TestAFoldThatNobodyWantsEnds(t *testing.T) {
	f := newFixture(t, engine.Options{})
	g := newGate(40)
	f.deploySlow(t, tenant, g)
	f.put(t, tenant, id, "slow", 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := f.Load(ctx, tenant, "order", id, engine.LoadOptions{})
		done <- err
	}()
	<-g.reached
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{}); err != nil || s.Length != 100 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAReplayThatTookLongCanBeFetched: its state is in no cache, and who comes again shall not have to begin it anew.
func TestAReplayThatTookLongCanBeFetched(t *testing.T) {
	f := newFixture(t, engine.Options{})
	g := newGate(40)
	f.deploySlow(t, tenant, g)
	f.put(t, tenant, id, "slow", 100)
	done := make(chan error, 1)
	go func() {
		_, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{Replay: true})
		done <- err
	}()
	<-g.reached
	if err := f.wait(t, done); j17.CodeOf(err) != j17.CodeStateNotReady {
		t.Fatal(err)
	}
	close(g.open)
	s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{Replay: true})
	if err != nil || s.Length != 100 || g.calls.Load() != 100 || s.Data.Get("calls").Num() != "100" {
		t.Errorf("%+v, %v after %d calls", s, err, g.calls.Load())
	}
}

// TestManyReadersShareOneFold lets readers and writers of one aggregate meet.
func TestManyReadersShareOneFold(t *testing.T) {
	f := newFixture(t, engine.Options{})
	f.deploySlow(t, tenant, newGate(0))
	f.put(t, tenant, id, "fast", 30_000)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				n, err := f.Length(t.Context(), tenant, "order", id)
				if err != nil {
					t.Error(err)
					return
				}
				s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{})
				if err != nil || s.Length < n || !strings.Contains(string(s.JSON), fmt.Sprintf(`"n":%d,`, s.Length)) {
					t.Errorf("%d of %d events: %s, %v", s.Length, n, s.JSON, err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			f.put(t, tenant, id, "fast", 1)
		}
	})
	wg.Wait()
	if s := f.Stats(); s.Folded > 31_000 {
		t.Errorf("30,020 events were folded %d times", s.Folded)
	}
}

// TestTheBackgroundIsShared: one tenant's long fold does not keep the others from getting their snapshots.
func TestTheBackgroundIsShared(t *testing.T) {
	f := newFixture(t, engine.Options{})
	g := newGate(40)
	f.deploySlow(t, tenant, g)
	f.deploySlow(t, elsewhere, newGate(0))
	f.put(t, tenant, id, "slow", 1000)
	f.put(t, elsewhere, id, "fast", 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	first := make(chan error, 1)
	go func() {
		_, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{})
		first <- err
	}()
	<-g.reached
	if _, err := f.Load(t.Context(), elsewhere, "order", id, engine.LoadOptions{}); err != nil {
		t.Error(err)
	}
	await(t, "the neighbour got no snapshot", func() bool { return f.Stats().Snapshots > 0 })
	if err := f.wait(t, first); j17.CodeOf(err) != j17.CodeStateNotReady {
		t.Error(err)
	}
	// The end of Run ends what nobody waits for.
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLargeStatesAreFoldedInTheBackground: many readers of different past states of an aggregate with a large state do
// not hold as many trees in memory, since none of them folds himself.
func TestLargeStatesAreFoldedInTheBackground(t *testing.T) {
	const readers = 12
	f := newFixture(t, engine.Options{ReadWait: time.Hour})
	f.DeploySource(t, `{"agent_types":["user"],"aggregate_types":{"order":{"events":{
		"loaded":{"schema":{},"handler":[{"set":{"target":"x","value":"$.data.x"}}]},"fast":{"schema":{},"handler":[{"increment":{"target":"n","by":1}}]}}}}}`)
	large := `{"x":[` + strings.Repeat("0,", 200_000) + `0]}`
	event := store.NewEvent{
		Key: j17.Key{Type: "order", ID: id}, Type: "loaded", Data: []byte(large), Metadata: []byte(`{}`),
	}
	if r, err := f.Store.Append(t.Context(), tenant, []store.Append{
		{Events: []store.NewEvent{event}, Timestamp: 1},
	}); err != nil || r[0].Outcome != store.Committed {
		t.Fatal(r, err)
	}
	f.put(t, tenant, id, "fast", readers)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			length := uint64(i) + 1
			s, err := f.Load(t.Context(), tenant, "order", id, engine.LoadOptions{Length: &length})
			if err != nil || s.Length != length || s.Data.Get("x").Len() != 200_001 {
				t.Errorf("after %d events: %d, %v", length, s.Data.Get("x").Len(), err)
			}
		})
	}
	wg.Wait()
	if n := f.Stats().Background; n != readers {
		t.Errorf("of %d folds %d went on in the background", readers, n)
	}
}
