package checkpoint_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/worker"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// fixture is an engine on a store in memory with checkpoints.
type fixture struct {
	*enginetest.Fixture
	*checkpoint.Service
	// written counts the aggregates of seen.
	written int
}

// newFixture returns a fixture with a spec.
func newFixture(t *testing.T, spec string, o engine.Options) *fixture {
	t.Helper()
	f := &fixture{Fixture: enginetest.New(t, o)}
	f.DeploySource(t, spec)
	f.Service = f.checkpoints()
	return f
}

// checkpoints returns a service that knows nothing yet.
func (f *fixture) checkpoints() *checkpoint.Service { return f.checkpointsOn(f.Store) }

// checkpointsOn is checkpoints on something before the store.
func (f *fixture) checkpointsOn(on checkpoint.Storage) *checkpoint.Service {
	logger := slog.New(slog.DiscardHandler)
	kit := worker.New(f.Clock, logger)
	return checkpoint.New(checkpoint.Options{
		Store: on, Engine: f.Engine, Clock: f.Clock, Logger: logger, Worker: kit,
		Log: envlog.New(envlog.Options{
			Store: f.Store, Clock: f.Clock, Worker: kit,
			Origin: func(t j17.Tenant) (string, error) { return string(t), nil },
		}),
	})
}

// lines returns what an export of states says.
func lines(ctx context.Context, t *testing.T, x *checkpoint.States) string {
	t.Helper()
	var b strings.Builder
	for st, err := range x.All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		b.Write(st.Line)
		b.WriteByte('\n')
	}
	return b.String()
}

// endingStore is a store on which something happens: at the write of states after so many of them, which end is called
// at and, with broken, all writes from there on fail; or once, at the first look at heads of the checkpoints
// themselves.
type endingStore struct {
	checkpoint.Storage

	after   int
	end     func()
	broken  error
	atHeads func()
	// refused is a space to which nothing can be written, with broken.
	refused store.Space
	// atRemoval is called before the first write that removes states.
	atRemoval func()
	// atExtent is called before each of the extents that are asked for, which are counted.
	atExtent func()
	extents  int
}

// Extent returns the extent of a tenant.
func (s *endingStore) Extent(ctx context.Context, t j17.Tenant) (store.Extent, error) {
	if s.atExtent != nil {
		s.extents++
		s.atExtent()
	}
	return s.Storage.Extent(ctx, t)
}

// Write writes, or fails.
func (s *endingStore) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if side[0].Space == s.refused {
		runtime.Gosched() // others come between
		return s.broken
	}
	if s.end != nil && side[0].Space == "checkpoint.states" {
		if s.after--; s.after < 0 {
			s.end()
			if s.broken != nil {
				return s.broken
			}
			return ctx.Err()
		}
	}
	return s.Storage.Write(ctx, t, side, fences...)
}

// WriteFreeing writes, or fails.
func (s *endingStore) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	if s.broken != nil && s.after < 0 {
		return s.broken
	}
	if do := s.atRemoval; do != nil && side[0].Space == "checkpoint.states" {
		s.atRemoval = nil
		do()
	}
	return s.Storage.WriteFreeing(ctx, t, side, fences...)
}

// Heads returns heads.
func (s *endingStore) Heads(ctx context.Context, t j17.Tenant, keys []j17.Key) ([]store.Head, error) {
	if do := s.atHeads; do != nil {
		s.atHeads = nil
		do()
	}
	return s.Storage.Heads(ctx, t, keys)
}

// endingContext returns a context that can be ended.
func endingContext(t *testing.T) (context.Context, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}
