package engine

import (
	"strconv"
	"testing"

	"j17"
	"j17/internal/core/decider"
)

// TestTheLeastUsedAbsenceIsForgotten keeps more than there is room for: one is forgotten for each that is new, the one
// whose last use is the longest ago. What goes on all the time is not forgotten.
func TestTheLeastUsedAbsenceIsForgotten(t *testing.T) {
	condition := func(n int) *decider.Condition { return &decider.Condition{Tags: []string{"n:" + strconv.Itoa(n)}} }
	at := func(n int) j17.StreamID { return j17.StreamID{Ms: int64(n)} }
	var a absences
	a.keep(condition(0), j17.StreamID{}, at(1))
	for n := 1; n < 3*mostAbsences; n++ {
		a.keep(condition(n), j17.StreamID{}, at(7))
		switch n % 100 {
		case 0: // it helps
			if got := a.since(condition(0)); got.Compare(at(n-49)) < 0 && n > 100 {
				t.Fatalf("with %d others it begins at %s", n, got)
			}
		case 50: // and goes on
			a.keep(condition(0), j17.StreamID{}, at(n+1))
		}
		if len(a.known) != min(n+1, mostAbsences) {
			t.Fatalf("%d are kept after %d", len(a.known), n+1)
		}
	}
	for n := 1; n < 3*mostAbsences; n++ {
		// Beside the one that is used all the time there is room for the last ones.
		kept := n > 3*mostAbsences-mostAbsences
		if got := a.since(condition(n)); (got == at(7)) != kept {
			t.Fatalf("number %d begins at %s", n, got)
		}
	}
}
