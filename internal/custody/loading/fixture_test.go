package loading_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/loading"
)

const (
	tenant = enginetest.Tenant
	user   = enginetest.User
	id     = enginetest.ID
	meta   = enginetest.Meta
)

// fixture is a loader of an engine.
type fixture struct {
	*enginetest.Fixture
	*loading.Loader
}

// on is a fixture of an engine and its store.
func on(e *engine.Engine, s loading.Storage) *fixture {
	return &fixture{&enginetest.Fixture{Engine: e}, &loading.Loader{Engine: e, Store: s}}
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := enginetest.New(tb, engine.Options{})
	return &fixture{f, &loading.Loader{Engine: f.Engine, Store: f.Store}}
}

// naming has the spec of names deployed.
func naming(tb testing.TB) *fixture {
	tb.Helper()
	f := newFixture(tb)
	f.DeploySource(tb, enginetest.NamesSpec)
	return f
}

// fresh returns the id of an aggregate that does not exist yet.
func fresh() string { return uuid.NewString() }

func number(tb testing.TB, id j17.Names) int {
	tb.Helper()
	text, ok := strings.CutPrefix(id.PublicID, "VNO-")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		tb.Errorf("the public id is %q", id.PublicID)
	}
	return n
}

func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
}
