package ecma_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17/internal/spec/schema/ecma"
	"j17/internal/work"
)

// dearest is what a unit of work may take of the processor's time, so that the budget of a command ends within a second; few is
// what a match may take that spends next to nothing. Both leave room for what else the process does meanwhile.
const (
	dearest = 200 * time.Nanosecond
	few     = 150 * time.Millisecond
)

// processorTime is what the process has used so far.
func processorTime(t *rapid.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestRandomHostilePatterns holds a counter against the processor: whatever pattern and text, a unit of work takes no longer than
// it may, and the search stops when the budget is used up.
func TestRandomHostilePatterns(t *testing.T) {
	const budget = work.Command / 8
	rapid.Check(t, func(t *rapid.T) {
		p := pattern(3).Draw(t, "pattern")
		p = rapid.SampledFrom([]string{p, "(" + p + ")*$", "^(?:" + p + "|a)+b", "(?:(?:" + p + ")*)*c", "(?=(" + p + `))\1*d`, "(?:" + p + "){1,50}$"}).Draw(t, "around it")
		re, err := ecma.Compile(p)
		if err != nil {
			return // lookbehind that is not of a kind that can be, or more than is allowed
		}
		re.Match("", work.Counted(budget)) // makes it ready, which is once for all
		unit := text().Draw(t, "unit") + rapid.SampledFrom([]string{"a", "ab", "é", "aaaaaaaab"}).Draw(t, "more")
		s := strings.Repeat(unit, rapid.SampledFrom([]int{10, 1000, 50_000}).Draw(t, "times"))

		b := work.Counted(budget)
		start := processorTime(t)
		re.Match(s, b)
		took := processorTime(t) - start
		most := time.Duration(min(b.Spent(), budget)*int64(dearest)) + few
		if raceEnabled {
			most *= 10
		}
		if took > most {
			t.Errorf("%q on %d bytes: %d units took %v of the processor, and no more than %v is allowed", p, len(s), b.Spent(), took, most)
		}
	})
}
