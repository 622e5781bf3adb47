package checkpoint_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/checkpoint"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

// rootsOf tells of what sizes the root checkpoints are and why they were made, the newest first.
func (f *fixture) rootsOf(t *testing.T) string {
	t.Helper()
	all, err := f.Roots(t.Context(), enginetest.Tenant, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var b []string
	for _, r := range all {
		b = append(b, fmt.Sprintf("%s %d", r.Reason, r.Size))
	}
	return strings.Join(b, ", ")
}

// seen writes events to an aggregate of its own.
func (f *fixture) seen(t *testing.T, n int) {
	t.Helper()
	id := fmt.Sprintf("00000000-0000-4000-b000-%012d", f.written)
	f.written++
	events := strings.Repeat(`{"type":"was_seen","data":{}},`, n)
	f.Post(t, "counter/"+id, `{"events":[`+strings.TrimSuffix(events, ",")+`],`+enginetest.Meta+`}`)
}

// TestRootsByThemselves has root checkpoints made after so many events and so many hours, if there is something new,
// and keeps so many.
func TestRootsByThemselves(t *testing.T) {
	t.Parallel()
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, enginetest.CounterSpec, engine.Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		expect := func(want string) {
			t.Helper()
			for range 10 { // each round of a loop ends with a pause of the clock
				synctest.Wait()
				f.Clock.Advance(100 * time.Millisecond)
			}
			synctest.Wait()
			if got := f.rootsOf(t); got != want {
				t.Errorf("there are %q, want %q", got, want)
			}
		}

		// Nothing is made while it is not wanted; then it is made of what is there.
		f.seen(t, 11)
		expect("")
		if _, err := f.Set(t.Context(), enginetest.Tenant, wire.RootCheckpointSettingsChange{
			Enabled: new(true), EveryEvents: new(uint64(10)), EveryHours: new(uint64(2)), Keep: new(uint64(3)),
		}); err != nil {
			t.Fatal(err)
		}
		expect("auto 11")
		f.seen(t, 9)
		expect("auto 11")
		f.seen(t, 1)
		expect("auto 21, auto 11")

		// Hours, and none without anything new.
		f.Clock.Advance(2 * time.Hour)
		expect("auto 21, auto 11")
		f.seen(t, 1)
		expect("auto 21, auto 11")
		f.Clock.Advance(2 * time.Hour)
		expect("auto 22, auto 21, auto 11")

		// Those that others have made are not counted, but are as good.
		if _, err := f.Root(t.Context(), enginetest.Tenant, "tombstone"); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(2 * time.Hour)
		expect("tombstone 22, auto 22, auto 21, auto 11")
		f.seen(t, 10)
		expect("auto 32, tombstone 22, auto 22, auto 21")

		// Another process goes on.
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.Service = f.checkpoints()
		ctx, stop = context.WithCancel(t.Context())
		go func() { ended <- f.Run(ctx) }()
		f.seen(t, 10)
		expect("auto 42, auto 32, tombstone 22, auto 22")
		if _, err := f.Set(t.Context(), enginetest.Tenant, wire.RootCheckpointSettingsChange{
			Enabled: new(false),
		}); err != nil {
			t.Fatal(err)
		}
		f.seen(t, 10)
		f.Clock.Advance(2 * time.Hour)
		expect("auto 42, auto 32, tombstone 22, auto 22")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRootsBesideDamagedSettings has an environment whose settings cannot be read, as at a start: those of others are
// made by themselves.
func TestRootsBesideDamagedSettings(t *testing.T) {
	t.Parallel()
	testopen.Bubble(t, func(t *testing.T) {
		f := newFixture(t, enginetest.CounterSpec, engine.Options{})
		f.seen(t, 11)
		if _, err := f.Set(t.Context(), enginetest.Tenant, wire.RootCheckpointSettingsChange{
			Enabled: new(true), EveryEvents: new(uint64(10)),
		}); err != nil {
			t.Fatal(err)
		}
		damaged := store.Side{Op: store.Put, Space: "checkpoint.settings", Key: "root", Value: []byte("{")}
		if err := f.Store.Write(t.Context(), "aaa/prod", []store.Side{damaged}); err != nil { // it is the first one
			t.Fatal(err)
		}
		f.Service = f.checkpoints()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		for range 10 {
			synctest.Wait()
			f.Clock.Advance(time.Second)
		}
		synctest.Wait()
		if got := f.rootsOf(t); got != "auto 11" {
			t.Errorf("there are %q", got)
		}
		f.seen(t, 10)
		for range 10 {
			synctest.Wait()
			f.Clock.Advance(time.Second)
		}
		synctest.Wait()
		if got := f.rootsOf(t); got != "auto 21, auto 11" {
			t.Errorf("there are %q", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRootsCountAggregates makes root checkpoints of all types and of one, and removes one.
func TestRootsCountAggregates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	if _, err := f.LatestRoot(t.Context(), enginetest.Tenant); j17.CodeOf(err) != j17.CodeNotFound {
		t.Errorf("there is one already: %v", err)
	}
	empty, err := f.Root(t.Context(), enginetest.Tenant, "manual")
	if err != nil || empty.Size != 0 || empty.Aggregates != 0 || empty.Position != "0" {
		t.Errorf("of nothing it is %+v, %v", empty, err)
	}
	f.seen(t, 2)
	f.seen(t, 1)
	r := f.Post(t, "other/main/was_seen", enginetest.Body(`{}`))
	for ask, want := range map[string]uint64{"": 3, "counter": 2, "other": 1} {
		var of wire.NewRootCheckpoint
		if ask != "" {
			of.AggregateType = &ask
		}
		made, err := f.RootOf(t.Context(), enginetest.Tenant, of)
		if err != nil || made.Aggregates != want || made.Size != 4 || made.Position != r.IDs[0].String() ||
			made.Root == empty.Root {
			t.Errorf("of %q it is %+v, %v; want %d aggregates", ask, made, err, want)
		}
	}
	if _, err := f.RootOf(t.Context(), enginetest.Tenant, wire.NewRootCheckpoint{
		AggregateType: new("ghost"),
	}); j17.CodeOf(err) != j17.CodeUnknownType {
		t.Errorf("of a type that there is not: %v", err)
	}
	for _, want := range []j17.Code{"", j17.CodeNotFound} {
		if _, err := f.DeleteRoot(t.Context(), enginetest.Tenant, empty.ID); j17.CodeOf(err) != want {
			t.Errorf("deleting gives %v, want %q", err, want)
		}
	}
	if left := f.rootsOf(t); left != "manual 4, manual 4, manual 4" {
		t.Errorf("left are %s", left)
	}

	// A type that comes later is counted with what it had before, and while somebody writes, too.
	f.DeploySource(t, strings.Replace(enginetest.CounterSpec, `"other":`, `"another":`, 1))
	f.Post(t, "another/main/was_seen", enginetest.Body(`{}`))
	busy := &endingStore{Storage: f.Store, atExtent: func() { f.seen(t, 1) }}
	f.Service = f.checkpointsOn(busy)
	made, err := f.Root(t.Context(), enginetest.Tenant, "manual")
	if err != nil || made.Aggregates != 3 || busy.extents < 4 {
		t.Errorf("while somebody writes it is %+v, %v after %d looks", made, err, busy.extents)
	}
	busy.atExtent = nil
	made, err = f.Root(t.Context(), enginetest.Tenant, "manual")
	if want := 3 + uint64(busy.extents); err != nil || made.Aggregates != want {
		t.Errorf("later it is %+v, %v; want %d aggregates", made, err, want)
	}
	f.DeploySource(t, enginetest.CounterSpec)
	if made, err := f.RootOf(t.Context(), enginetest.Tenant, wire.NewRootCheckpoint{
		AggregateType: new("other"),
	}); err != nil || made.Aggregates != 1 {
		t.Errorf("of a type that is there again: %+v, %v", made, err)
	}
}

// TestRootsCountDeclaredTypes: how many aggregates there are does not depend on which specs there were when they were
// counted before.
func TestRootsCountDeclaredTypes(t *testing.T) {
	t.Parallel()
	const fewer = `{"agent_types": ["user"], "aggregate_types": {"counter": {"events": {"was_seen": {"schema": {}, "handler": []}}}}}`
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.seen(t, 1)
	f.seen(t, 1)
	f.Post(t, "other/00000000-0000-4000-b000-000000000100/was_seen", enginetest.Body(`{}`))
	root := func(s *checkpoint.Service, want uint64) {
		t.Helper()
		made, err := s.Root(t.Context(), enginetest.Tenant, checkpoint.Manual)
		if err != nil || made.Aggregates != want {
			t.Errorf("%+v, %v, want %d aggregates", made, err, want)
		}
	}
	root(f.Service, 3)
	f.DeploySource(t, fewer)
	root(f.Service, 2)
	f.DeploySource(t, enginetest.CounterSpec)
	root(f.Service, 3)
}
