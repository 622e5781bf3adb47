//go:build !race

package ecma_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/schema/ecma"
)

// TestRandomHostilePatterns holds a counter against the processor: whatever pattern and text, a unit of work takes no
// longer than it may, and the search stops when the budget is used up.
func TestRandomHostilePatterns(t *testing.T) {
	const budget = work.Command / 8
	rapid.Check(t, func(t *rapid.T) {
		p := pattern(3).Draw(t, "pattern")
		p = rapid.SampledFrom([]string{
			p, "(" + p + ")*$", "^(?:" + p + "|a)+b", "(?:(?:" + p + ")*)*c", "(?=(" + p + `))\1*d`,
			"(?:" + p + "){1,50}$",
		}).Draw(t, "around it")
		re, err := ecma.NewLibrary().Compile(p)
		if err != nil {
			return // lookbehind that is not of a kind that can be, or more than is allowed
		}
		re.Match("", work.Counted(budget)) // makes it ready, which is once for all
		unit := text().Draw(t, "unit") + rapid.SampledFrom([]string{"a", "ab", "é", "aaaaaaaab"}).Draw(t, "more")
		s := strings.Repeat(unit, rapid.SampledFrom([]int{10, 1000, 50_000}).Draw(t, "times"))

		b := work.Counted(budget)
		start := worktest.ProcessorTime(t)
		re.Match(s, b)
		took := worktest.Since(t, start)
		most := worktest.Allowed(min(b.Spent(), budget))
		if took > most {
			t.Errorf("%q on %d bytes: %d units took %v of the processor, and no more than %v is allowed", p, len(s), b.Spent(), took, most)
		}
	})
}
