package httpapi

import (
	"strings"
	"testing"
)

// TestWhereAPreparedSpecIs: the path of an instance, on which a spec is deployed, leads on to that of an environment,
// where the prepared one is.
func TestWhereAPreparedSpecIs(t *testing.T) {
	t.Parallel()
	if says := (&router{}).meant("/api/instances/i/spec/prepared"); !strings.Contains(
		says, "/ops/{environment}/spec/prepared",
	) {
		t.Errorf("%q", says)
	}
}
