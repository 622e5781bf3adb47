package engine_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/fold"
	"j17/internal/storage/store"
)

// reading is a store that counts the calls that read streams. once, if not nil, is called in the middle of the first
// that reads several.
type reading struct {
	store.Store
	single, several atomic.Int64
	once            func()
}

// ReadStream is part of store.Store.
func (r *reading) ReadStream(
	ctx context.Context, t j17.Tenant, key j17.Key, from, to uint64,
) iter.Seq2[*j17.Event, error] {
	r.single.Add(1)
	return r.Store.ReadStream(ctx, t, key, from, to)
}

// ReadStreams is part of store.Store.
func (r *reading) ReadStreams(
	ctx context.Context, t j17.Tenant, keys []j17.Key, most uint64,
) iter.Seq2[*j17.Event, error] {
	first := r.several.Add(1) == 1
	events := r.Store.ReadStreams(ctx, t, keys, most)
	return func(yield func(*j17.Event, error) bool) {
		n := 0
		for ev, err := range events {
			if n++; n == 3 && first && r.once != nil {
				r.once()
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestShortStreamsAreReadTogether loads aggregates of which some have no events, some a few and one more than are read
// together: what they come to is what each comes to by itself, and those with few take one read.
func TestShortStreamsAreReadTogether(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := counters(12)
	lengths := []uint64{3, 0, 1, 2, 70, 5, 1, 1, 0, 4, 2, 6}
	for i, n := range lengths {
		for range n {
			f.Post(t, "counter/"+keys[i].ID+"/was_counted", enginetest.Body(`{"by":1}`))
		}
	}
	now, err := f.Store.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	now.Close()

	// Somebody writes to one of them while they are read, and behind the moment.
	r := &reading{
		Store: f.Store, once: func() { f.Post(t, "counter/"+keys[9].ID+"/was_counted", enginetest.Body(`{"by":1}`)) },
	}
	e := engine.New(engine.Options{Store: r, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	m, err := e.Moment(enginetest.Tenant, now.Position())
	if err != nil {
		t.Fatal(err)
	}
	matches(t, m, keys, lengths)
	if r.several.Load() != 1 {
		t.Errorf("the streams with few events were read in %d calls", r.several.Load())
	}

	// What was wanted once is not kept, but for the long one. What is wanted again is read together again, and served
	// from memory from then on, but for the one that has gone on.
	if n := e.Stats().CacheStates; n != 1 {
		t.Errorf("%d states are kept of what was wanted once", n)
	}
	before := r.single.Load() // of the nine with few events, two may share a place among those wanted before
	var loaded []fold.Loaded
	for range 3 {
		if loaded, err = m.Load(t.Context(), keys, false); err != nil {
			t.Fatal(err)
		}
	}
	if n, states := r.single.Load()-before, e.Stats().CacheStates; n > 6 || r.several.Load() < 2 || states < 5 {
		t.Errorf("again: %d streams were read, in %d calls together; %d states are kept", n, r.several.Load(), states)
	}
	for i := range loaded {
		if want := fmt.Sprint(lengths[i]); lengths[i] > 0 && string(loaded[i].Data.Get("n").AppendJSON(nil)) != want {
			t.Errorf("%s has counted %s, want %s", loaded[i].Key, loaded[i].JSON, want)
		}
	}
}

// TestShortStreamsThatHaveGoneOnAreReadTogether loads aggregates whose states are kept, of which some have gone on
// since: those are read in one call, but for the long one and those of which something was rewritten.
func TestShortStreamsThatHaveGoneOnAreReadTogether(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := counters(9)
	lengths := []uint64{3, 1, 1, 2, 30, 1, 1, 4, 2}
	count := func(i int) { f.Post(t, "counter/"+keys[i].ID+"/was_counted", enginetest.Body(`{"by":1}`)) }
	for i, n := range lengths {
		for range n {
			count(i)
		}
	}
	rewritten := store.Rewritten{Version: 1, Type: "was_counted", Data: []byte(`{"by":1}`), Metadata: []byte(`{}`)}
	w := store.Rewrite{Streams: []store.RewrittenStream{{Key: keys[8], Events: []store.Rewritten{rewritten}}}}
	if _, err := f.Store.Rewrite(t.Context(), enginetest.Tenant, w); err != nil {
		t.Fatal(err)
	}
	r := &reading{Store: f.Store}
	e := engine.New(engine.Options{Store: r, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	moment := func() *fold.Moment { return present(t, f.Store, e) }

	// Each is kept from some time on.
	m := moment()
	for n := 0; n < 20 && e.Stats().CacheStates < len(keys); n++ {
		matches(t, m, keys, lengths)
	}
	if n := e.Stats().CacheStates; n < len(keys)-1 { // two may share a place among those wanted before
		t.Fatalf("%d states are kept", n)
	}

	// All but one go on.
	for i := range keys[1:] {
		count(i + 1)
		lengths[i+1]++
	}
	single, several := r.single.Load(), r.several.Load()
	m = moment()
	if _, err := m.Load(t.Context(), keys, false); err != nil {
		t.Fatal(err)
	}
	if one, all := r.single.Load()-single, r.several.Load()-several; one > 3 || all != 1 {
		t.Errorf("%d streams were read by themselves, and others in %d calls", one, all)
	}
	matches(t, m, keys, lengths)
}

// TestARewriteMeetsAReadOfMany rewrites an event while the stream is read together with others: nothing is made of what
// was before.
func TestARewriteMeetsAReadOfMany(t *testing.T) {
	f := enginetest.New(t, engine.Options{})
	f.DeploySource(t, enginetest.CounterSpec)
	keys := counters(6)
	for _, key := range keys {
		for range 2 {
			f.Post(t, "counter/"+key.ID+"/was_counted", enginetest.Body(`{"by":1}`))
		}
	}
	erase := func() {
		rewritten := store.Rewritten{Version: 1, Type: "was_counted", Data: []byte(`{"by":40}`), Metadata: []byte(`{}`)}
		w := store.Rewrite{Streams: []store.RewrittenStream{{Key: keys[4], Events: []store.Rewritten{rewritten}}}}
		if _, err := f.Store.Rewrite(t.Context(), enginetest.Tenant, w); err != nil {
			t.Error(err)
		}
	}
	r := &reading{Store: f.Store, once: erase}
	e := engine.New(engine.Options{Store: r, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	now, err := f.Store.Moment(t.Context(), enginetest.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	now.Close()
	m, err := e.Moment(enginetest.Tenant, now.Position())
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := m.Load(t.Context(), keys, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range loaded {
		want := "2"
		if i == 4 {
			want = "41"
		}
		if got := string(loaded[i].Data.Get("n").AppendJSON(nil)); got != want {
			t.Errorf("counter %d has counted %s, want %s", i, got, want)
		}
	}

	// Who asks later sees by its head that it is of another generation.
	e = engine.New(engine.Options{Store: f.Store, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler)})
	e.Deploy(enginetest.Tenant, enginetest.Compiled(t, enginetest.CounterSpec), nil)
	if m, err = e.Moment(enginetest.Tenant, now.Position()); err != nil {
		t.Fatal(err)
	}
	versions, err := m.Versions(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	if loaded, err = m.Load(t.Context(), keys, false); err != nil {
		t.Fatal(err)
	}
	for i := range loaded {
		want := fold.Version{Length: 2}
		if i == 4 {
			want.Generation = 1
		}
		if loaded[i].Version != versions[i] || versions[i] != want {
			t.Errorf("counter %d is of %v, its head says %v, want %v", i, loaded[i].Version, versions[i], want)
		}
	}
}
