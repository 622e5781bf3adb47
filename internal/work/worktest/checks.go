package worktest

import (
	"flag"
	"strconv"
	"testing"
)

// FewerChecks runs what calls rapid.Check with a share of the checks, one in so many, where the race detector watches: for checks
// that compute for long in one goroutine. Nothing else may draw at the same time.
func FewerChecks(t *testing.T, oneIn int, run func()) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if !RaceDetector || checks == nil {
		run()
		return
	}
	all := checks.Value.String()
	n, err := strconv.Atoi(all)
	if err == nil {
		err = flag.Set("rapid.checks", strconv.Itoa(max(1, n/oneIn)))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := flag.Set("rapid.checks", all); err != nil {
			t.Error(err)
		}
	}()
	run()
}
