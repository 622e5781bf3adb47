package deploy_test

import (
	"errors"
	"strings"
	"testing"
)

// TestPartsAdoptAgain deploys a spec that a part fails to adopt: it is asked again until it succeeds, or until nothing
// is deployed any longer.
func TestPartsAdoptAgain(t *testing.T) {
	f := start(t)
	asked, fails := 0, true
	broken := errors.New("broken")
	f.adopt = func() error {
		if asked++; fails {
			return broken
		}
		return nil
	}
	again := func(want error, wantAsked int) {
		t.Helper()
		if err := f.AdoptAgain(t.Context()); !errors.Is(err, want) || asked != wantAsked {
			t.Errorf("asked %d times, want %d: %v", asked, wantAsked, err)
		}
	}
	again(nil, 0)
	f.deploy(t, simple(keep))
	if !strings.Contains(f.log.String(), "broken") {
		t.Errorf("the log does not say so: %s", f.log)
	}
	again(broken, 2)
	fails = false
	again(nil, 3)
	again(nil, 3)

	fails = true
	f.restart(t)
	asked = 0
	if err := f.registry.Instances.Delete(t.Context(), f.instance, "app"); err != nil {
		t.Fatal(err)
	}
	f.Forget(f.instance)
	again(nil, 0)
}
