package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// held counts what the engine keeps of streams beside their events.
func (f *fixture) held(t *testing.T) (n int) {
	t.Helper()
	for _, d := range part.Declared(f.Part().Spaces) {
		items, err := f.Store.Scan(t.Context(), tenant, d.Space, store.Range{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		n += len(items)
	}
	return n
}

// TestErasure: states of an erased stream are gone from disk and from memory, and so are the results of the commands
// that wrote it and the writes that have failed because of it. Those of others stay. A command that comes again would
// bring back what was erased.
func TestErasure(t *testing.T) {
	f := newFixture(t, engine.Options{SnapshotEvery: 2})
	f.DeploySource(t, enginetest.CounterSpec)
	const other = "b1111111-1111-4111-8111-111111111111"
	command := func(id string) *engine.Command {
		c := enginetest.Command(t, "counter/"+id+"/was_counted", `{"data":{"by":1},`+meta+`}`)
		c.IdempotencyKey = "key of " + id
		return c
	}
	keyed := func(id string) engine.Receipt {
		t.Helper()
		r, err := f.Execute(t.Context(), command(id))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, id := range []string{id, other} {
		keyed(id)
		for range 3 {
			f.Post(t, "counter/"+id+"/was_counted", `{"data":{"by":1},`+meta+`}`)
		}
		f.State(t, "counter/"+id, engine.LoadOptions{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { _ = f.Run(ctx) })
	for f.held(t) < 2 {
		for _, id := range []string{id, other} {
			f.State(t, "counter/"+id, engine.LoadOptions{})
		}
	}
	cancel()
	background.Wait()
	kept := f.held(t)
	states := f.Stats().CacheStates
	key := j17.Key{Type: "counter", ID: id}
	mine, err := store.HeldBy(t.Context(), f.Store, tenant, part.Declared(f.Part().Spaces), key)
	if err != nil || len(mine) != 1 || states != 2 {
		t.Fatalf("held are %v of %d, %v, with %d states: the test shows nothing", mine, kept, err, states)
	}

	// Erase one of the two.
	var gone []store.Rewritten
	for version := uint64(1); version <= 4; version++ {
		gone = append(gone, store.Rewritten{
			Version: version, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`),
		})
	}
	if err := storetest.Erase(t.Context(), f.Store, tenant, key, gone); err != nil {
		t.Fatal(err)
	}
	position := func() j17.StreamID {
		t.Helper()
		m, err := f.Store.Moment(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.Position()
	}
	e := part.Erased{Keys: []j17.Key{key}, TombstoneID: "tmb", Ends: []part.End{{Own: position(), Others: position()}}}

	// What is written before all who keep something are told stays.
	later := command(id)
	later.IdempotencyKey = "a later key"
	if _, err := f.Execute(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	e.Note = position()
	for range 2 {
		if err := f.Erase(t.Context(), tenant, e); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.held(t); n != kept-len(mine) || f.Stats().CacheStates != 1 {
		t.Errorf("%d of %d items are kept, %d states", n, kept, f.Stats().CacheStates)
	}
	if r, err := f.Execute(t.Context(), later); err != nil || !r.Replayed {
		t.Errorf("a command of after the erasure: %+v, %v", r, err)
	}
	if r := keyed(other); !r.Replayed {
		t.Error("the command of another aggregate is forgotten")
	}
	if r, err := f.Execute(t.Context(), command(id)); j17.CodeOf(err) != j17.CodeIdempotencyErased {
		t.Errorf("%+v, %v", r, err)
	}
	if o, err := f.DryRun(t.Context(), command(id)); j17.CodeOf(err) != j17.CodeIdempotencyErased {
		t.Errorf("%+v, %v", o, err)
	}

	// Its key is free again when it would have been without the erasure.
	f.Clock.Advance(25 * time.Hour)
	if r := keyed(id); r.Replayed || r.Writes[0].Length != 6 {
		t.Errorf("%+v", r)
	}
}

// overtaken is a store in which something happens right before the first snapshot is written. wrote has how that ends.
type overtaken struct {
	store.Store
	before func()
	once   sync.Once
	wrote  chan error
}

func (s *overtaken) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if side[0].Space != "snapshot" || side[0].Op != store.Put {
		return s.Store.Write(ctx, t, side, fences...)
	}
	first := false
	s.once.Do(func() {
		first = true
		s.before()
	})
	err := s.Store.Write(ctx, t, side, fences...)
	if first {
		s.wrote <- err
	}
	return err
}

// TestALateStateIsNotKept erases a stream when its state is about to be kept, which then is not. That of what is left
// may be kept behind it.
func TestALateStateIsNotKept(t *testing.T) {
	f := newFixture(t, engine.Options{})
	key := j17.Key{Type: "counter", ID: id}
	slow := &overtaken{Store: f.Store, wrote: make(chan error, 1)}
	late := on(engine.New(engine.Options{
		Store: slow, Clock: f.Clock, Logger: slog.New(slog.DiscardHandler), SnapshotEvery: 2,
	}))
	slow.before = func() {
		gone := []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
		if err := storetest.Erase(t.Context(), f.Store, tenant, key, gone); err != nil {
			t.Error(err)
		}
		if err := late.Erase(t.Context(), tenant, part.Erased{Keys: []j17.Key{key}, TombstoneID: "tmb"}); err != nil {
			t.Error(err)
		}
	}
	late.DeploySource(t, enginetest.CounterSpec)
	for range 3 {
		late.Post(t, "counter/"+id+"/was_counted", count(1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { _ = late.Run(ctx) })
	err := <-slow.wrote
	cancel()
	background.Wait()
	if _, refused := errors.AsType[*store.SideConflict](err); !refused {
		t.Errorf("the state is kept: %v", err)
	}
	items, err := f.Store.Scan(t.Context(), tenant, "snapshot", store.Range{}, 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if !strings.HasSuffix(string(item.Value), `"n":2}`) {
			t.Errorf("%q is kept", item.Value)
		}
	}
	if n := f.held(t); n != len(items) {
		t.Errorf("%d items are kept, and %d snapshots", n, len(items))
	}
}
