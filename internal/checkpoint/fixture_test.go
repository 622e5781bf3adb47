package checkpoint_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"j17/internal/checkpoint"
	"j17/internal/engine"
	"j17/internal/engine/enginetest"
	"j17/internal/worker"
)

// fixture is an engine on a store in memory with checkpoints.
type fixture struct {
	*enginetest.Fixture
	*checkpoint.Service
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
func (f *fixture) checkpoints() *checkpoint.Service {
	logger := slog.New(slog.DiscardHandler)
	return checkpoint.New(checkpoint.Options{Store: f.Store, Engine: f.Engine, Clock: f.Clock, Logger: logger, Worker: worker.New(f.Clock, logger)})
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
