package engine_test

import (
	"strings"
	"testing"

	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// TestUnknownTypesGetASuggestion: in requests as in specs.
func TestUnknownTypesGetASuggestion(t *testing.T) {
	f := newFixture(t, engine.Options{})
	for _, tc := range []struct{ path, actor, want string }{
		{"countr/global/was_counted", "user", "Aggregate type 'countr' not found in spec. Did you mean 'counter'?"},
		{"counter/global/was_countd", "user", "Did you mean 'was_counted'?"},
		{"counter/global/was_counted", "usr", "Did you mean 'user'?"},
		{"something/global/was_counted", "user", "Aggregate type 'something' not found in spec"},
	} {
		c := enginetest.Command(t, tc.path, `{"data":{"by":1},"metadata":{"actor":{"type":"`+tc.actor+`","id":"global"}}}`)
		if _, err := f.Execute(t.Context(), c); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc, err)
		}
	}
}
