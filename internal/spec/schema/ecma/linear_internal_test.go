package ecma

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/work"
)

// TestEnginesAgree runs regular patterns on both engines.
func TestEnginesAgree(t *testing.T) {
	parts := []string{"a", "b", ".", `\w`, "[^a]", "(?:a|b)", "(a|)", "(b*)", `\b`, "^", "$", "(?:ab?)+?", "a{2,3}", "(?:a*)*", "(?:|a)+"}
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 5).Draw(t, "pattern"), "")
		if rapid.Bool().Draw(t, "repeat") {
			pattern = "(" + pattern + "){1,2}"
		}
		p := parser{src: pattern, library: NewLibrary()}
		tree, err := p.parse()
		if err != nil {
			t.Fatal(err)
		}
		fast, _ := linear(tree)
		if fast == nil {
			t.Fatalf("%q is not linear", pattern)
		}
		re := &Regexp{pattern: pattern, program: assemble(tree, p.groups)}
		re.ready.Do(func() {}) // it is
		text := rapid.StringMatching(`[ab\n é]{0,8}`).Draw(t, "text")
		b := work.Counted(1_000_000)
		if got, want := re.Match(text, b), fast.MatchString(text); got != want || b.Err() != nil {
			t.Fatalf("%q on %q: backtracking says %v with %d units left, linear %v", pattern, text, got, b.Left(), want)
		}
	})
}
