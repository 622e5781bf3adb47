package projection

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/base/wire"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
)

// TestBuildsSayWhatTheyWaitFor shows the builds of several indexes as one.
func TestBuildsSayWhatTheyWaitFor(t *testing.T) {
	needs := []*index.Definition{{ID: "a"}, {ID: "b"}, {ID: "none"}}
	for name, c := range map[string]struct {
		a, b build.Status
		want wire.Build
	}{
		"one waits": {
			build.Status{State: build.Running, Done: 1, Total: 5, Error: "no room"},
			build.Status{State: build.Running, Done: 2, Total: 5},
			wire.Build{Status: "running", Error: "no room", Done: 3, Total: 10},
		},
		"none waits": {
			build.Status{State: build.Running, Done: 1, Total: 5},
			build.Status{State: build.Done, Done: 5, Total: 5},
			wire.Build{Status: "running", Done: 6, Total: 10},
		},
		"one has failed": {
			build.Status{State: build.Failed, Error: "bad"},
			build.Status{State: build.Running, Error: "no room"},
			wire.Build{Status: "failed", Error: "bad"},
		},
	} {
		v := &survey{statuses: map[string]index.Status{"a": {Build: &c.a}, "b": {Build: &c.b}}}
		if diff := cmp.Diff(&c.want, v.buildOf(needs)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
