package fold_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/fold"
)

// every is the distance of snapshots in these tests.
const every = 10

// counter is an aggregate with events, and a loader that knows nothing of it yet.
type counter struct {
	*fold.Loader
	f   *enginetest.Fixture
	d   *decider.Decider
	key j17.Key
}

func newCounter(t *testing.T, events int) *counter {
	t.Helper()
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	c := &counter{f: f, key: j17.Key{Type: "counter", ID: enginetest.ID}}
	var err error
	if c.d, err = f.Decider(enginetest.Tenant); err != nil {
		t.Fatal(err)
	}
	c.count(t, events)
	c.Loader = fold.New(fold.Options{
		Store: f.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler), CacheBytes: 1 << 20,
		SnapshotEvery: every, ReadWait: time.Second,
		Program: func(_ j17.Tenant, aggregateType string) *decider.Program { return c.d.Program(aggregateType) },
		Names: func(context.Context, j17.Tenant, *decider.Decider, j17.Key) (j17.Names, error) {
			return j17.Names{}, nil
		},
	})
	return c
}

func (c *counter) count(t *testing.T, events int) {
	t.Helper()
	for range events {
		c.f.Post(t, "counter/"+enginetest.ID+"/was_counted", enginetest.Body(`{"by":1}`))
	}
}

// state returns the state after some events as text.
func (c *counter) state(t *testing.T, length uint64, past bool) string {
	t.Helper()
	f, err := c.State(
		t.Context(), enginetest.Tenant, c.d.Program("counter"), c.key, fold.Version{Length: length}, past, false,
	)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d events, n is %s", f.Length, f.Data.Get("n"))
}

// TestStates: a present state is folded once and then served from the cache, a past one is folded and not cached.
func TestStates(t *testing.T) {
	t.Parallel()
	c := newCounter(t, 3)
	for range 2 {
		if got := c.state(t, 3, false); got != "3 events, n is 3" {
			t.Error(got)
		}
	}
	if s := c.Stats(); s.Folded != 3 || s.CacheHits != 1 || s.CacheStates != 1 {
		t.Errorf("after two reads: %+v", s)
	}
	if got := c.state(t, 2, true); got != "2 events, n is 2" {
		t.Error(got)
	}
	if s := c.Stats(); s.Folded != 5 || s.CacheStates != 1 {
		t.Errorf("after a read of the past: %+v", s)
	}

	// What comes later is folded on top of the cached state.
	c.count(t, 1)
	if got := c.state(t, 4, false); got != "4 events, n is 4" || c.Stats().Folded != 6 {
		t.Errorf("%s, %+v", got, c.Stats())
	}
	c.Drop(fold.StateKey{Tenant: enginetest.Tenant, Key: c.key})
	if c.Peek(fold.StateKey{Tenant: enginetest.Tenant, Key: c.key}) != nil {
		t.Error("a state that was dropped is still cached")
	}
}

// TestAdoptedStatesAreSnapshots: a state that another loader has folded is a base for folds, if its stream is long
// enough for a snapshot.
func TestAdoptedStatesAreSnapshots(t *testing.T) {
	t.Parallel()
	for events, snapshots := range map[int]uint64{every - 1: 0, every: 1} {
		c := newCounter(t, events)
		typ, of := c.d.Program("counter"), fold.Version{Length: uint64(events)}
		f, err := c.State(t.Context(), enginetest.Tenant, typ, c.key, of, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Adopt(t.Context(), enginetest.Tenant, typ, c.key, f, 0); err != nil {
			t.Fatal(err)
		}
		if got := c.Stats().Snapshots; got != snapshots {
			t.Errorf("%d events: %d snapshots", events, got)
		}
		c.Drop(fold.StateKey{Tenant: enginetest.Tenant, Key: c.key})
		folded := c.Stats().Folded
		if got := c.state(t, of.Length, false); got != fmt.Sprintf("%d events, n is %d", events, events) {
			t.Error(got)
		}
		if got := c.Stats().Folded - folded; got != uint64(events)*(1-snapshots) {
			t.Errorf("%d events: %d were folded behind %d snapshots", events, got, snapshots)
		}
	}
}
