package engine_test

import (
	"context"
	"log/slog"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/fold"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// feedAfter returns copies of the events behind a position.
func feedAfter(t *testing.T, f *enginetest.Fixture, after j17.StreamID) (events []*j17.Event) {
	t.Helper()
	for ev, err := range f.Store.ReadFeed(t.Context(), enginetest.Tenant, after, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		own := &j17.Event{}
		ev.CopyTo(own, nil)
		events = append(events, own)
	}
	return events
}

// TestWhatWasLearnedIsNotRead tells an engine of events that follow the states which it has: these are served without
// being read. Where events were rewritten since, or some are missing, they are read.
func TestWhatWasLearnedIsNotRead(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := counters(3)
	count := func(which ...int) {
		for _, i := range which {
			f.Post(t, "counter/"+keys[i].ID+"/was_counted", enginetest.Body(`{"by":1}`))
		}
	}
	r := &reading{Store: f.Store}
	e := engine.New(engine.Options{Store: r, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	moment := func() *fold.Moment { return present(t, f.Store, e) }
	reads := func() int64 { return r.single.Load() + r.several.Load() }
	load := func(m *fold.Moment) int64 {
		t.Helper()
		before := reads()
		if _, err := m.Load(t.Context(), keys, false); err != nil {
			t.Fatal(err)
		}
		return reads() - before
	}
	learn := func(ctx context.Context, events []*j17.Event, rewrites uint64) *fold.Moment {
		t.Helper()
		m := moment()
		if err := m.Learn(ctx, events, rewrites); err != nil {
			t.Fatal(err)
		}
		return m
	}

	// What follows.
	count(0, 1, 2, 1)
	at := moment()
	load(at)
	count(0, 1, 0, 0, 2)
	m := learn(t.Context(), feedAfter(t, f, at.At()), f.Store.Rewrites())
	if n := load(m); n != 0 {
		t.Errorf("streams were read %d times", n)
	}
	matches(t, m, keys, []uint64{4, 3, 2})

	// What comes twice, with something new.
	count(1)
	m = learn(t.Context(), feedAfter(t, f, at.At()), f.Store.Rewrites())
	if n := load(m); n != 0 {
		t.Errorf("streams were read %d times after events that came again", n)
	}
	matches(t, m, keys, []uint64{4, 4, 2})

	// One is missing.
	at = m
	count(0, 0)
	m = learn(t.Context(), feedAfter(t, f, at.At())[1:], f.Store.Rewrites())
	if n := load(m); n == 0 {
		t.Error("a state was made of events of which one is missing")
	}
	matches(t, m, keys, []uint64{6, 4, 2})

	// Something was rewritten since they were read.
	at = m
	count(2)
	events, rewrites := feedAfter(t, f, at.At()), f.Store.Rewrites()
	erased := []store.Rewritten{{Version: 1, Type: "was_counted", Data: []byte(`{"by":1}`), Metadata: []byte(`{}`)}}
	if err := storetest.Erase(t.Context(), f.Store, enginetest.Tenant, keys[1], erased); err != nil {
		t.Fatal(err)
	}
	m = learn(t.Context(), events, rewrites)
	if n := load(m); n < 2 {
		t.Errorf("streams were read %d times after a rewrite of one and events of another that may be of before", n)
	}
	matches(t, m, keys, []uint64{6, 4, 3})
}
