package main

import (
	"testing"

	"github.com/google/pprof/profile"
)

// TestShares adds up a profile of a few stacks.
func TestShares(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu"}}}
	stack := func(cpu int64, names ...string) {
		s := &profile.Sample{Value: []int64{1, cpu}}
		for _, name := range names {
			s.Location = append(s.Location, &profile.Location{
				Line: []profile.Line{{Function: &profile.Function{Name: name}}},
			})
		}
		p.Sample = append(p.Sample, s)
	}
	if s := sharesOf(p); s != (shares{}) {
		t.Errorf("an empty profile: %+v", s)
	}
	const commit, store = "j17/internal/storage/pebble.(*batch).stageEvents", "j17/internal/storage/pebble.(*Store)."
	stack(20, "crypto/internal/fips140/sha256.blockSHANI", "crypto/sha256.Sum256", commit, store+"commit")
	stack(10, "crypto/sha256.Sum256", "j17.Link", commit)
	stack(5, "runtime.mapaccess1", store+"ReadLeaves.func1", "j17/internal/custody/envlog.(*log).read", "j17/internal/custody/envlog.(*Service).Run")
	stack(5, "j17/internal/storage/pebble.(*recentLeaves).add", store+"commit")
	stack(10, "crypto/sha256.Sum256", "j17/internal/core/engine.commandID") // of a key
	stack(50, "runtime.memmove", commit)
	if s, want := sharesOf(p), (shares{chains: 0.3, log: 0.1}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}
