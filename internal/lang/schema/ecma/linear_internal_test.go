package ecma

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"j17/internal/base/work"
)

// TestEnginesAgree runs regular patterns on both engines.
func TestEnginesAgree(t *testing.T) {
	parts := []string{
		"a", "b", ".", `\w`, "[^a]", "(?:a|b)", "(a|)", "(b*)", `\b`, "^", "$", "(?:ab?)+?", "a{2,3}", "(?:a*)*",
		"(?:|a)+",
	}
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

// TestStraightPatternsAgree runs patterns on the straight matcher and on the linear engine.
func TestStraightPatternsAgree(t *testing.T) {
	sets := []string{"a", "b", "[ab]", "[^a]", ".", "[a-cé]", "é", "(c)", "-"}
	counts := []string{"", "", "?", "*", "+", "{2}", "{0,2}", "{1,3}", "+?", "{2,}"}
	straights := 0
	rapid.Check(t, func(t *rapid.T) {
		pattern := "^"
		for range rapid.IntRange(0, 4).Draw(t, "runs") {
			pattern += rapid.SampledFrom(sets).Draw(t, "set") + rapid.SampledFrom(counts).Draw(t, "count")
		}
		pattern += rapid.SampledFrom([]string{"", "$", "($)", "(?:$)?"}).Draw(t, "end")
		p := parser{src: pattern, library: NewLibrary()}
		tree, err := p.parse()
		if err != nil {
			t.Fatal(err)
		}
		straight := straightened(tree)
		if straight == nil {
			return
		}
		straights++
		fast, _ := linear(tree)
		text := rapid.StringMatching(`[abcé-]{0,8}`).Draw(t, "text")
		if got, want := straight.match(text), fast.MatchString(text); got != want {
			t.Fatalf("%q on %q: the straight matcher says %v, the linear engine %v", pattern, text, got, want)
		}
	})
	if straights == 0 {
		t.Error("no pattern was straight")
	}
}

// TestWhatIsStraight lists patterns that have one way to match, and some that have more.
func TestWhatIsStraight(t *testing.T) {
	for pattern, want := range map[string]bool{
		`^[A-Z]{3}$`: true, `^[A-Z]{2,8}-[0-9]{1,6}$`: true, `^\d+(\.)?$`: true, `^a*b*c`: true, `^$`: true,
		`^\p{L}+$`:         true,
		`^[a-z]+[0-9a-z]$`: false, `^a?b?a$`: false, `[A-Z]{3}$`: false, `^(?:ab)+$`: false, `^a|b$`: false,
		`^a($)?`: false, `^a$b`: false, `^a(?=b)`: false, `(?m:^)a`: false,
	} {
		p := parser{src: pattern, library: NewLibrary()}
		tree, err := p.parse()
		if err != nil {
			t.Fatal(pattern, err)
		}
		if got := straightened(tree) != nil; got != want {
			t.Errorf("%s is straight: %v", pattern, got)
		}
	}
}
