//go:build !race

package ecma_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/schema/ecma"
)

// patterns returns n different patterns.
func patterns(n int, format func(i int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = format(i)
	}
	return out
}

// TestLibraryIsBounded compiles and uses the patterns of hostile specs: whether a library takes them or not, it takes
// neither long nor much memory.
func TestLibraryIsBounded(t *testing.T) {
	const mostMemory = 100 << 20
	scripts := strings.Fields(`Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati Oriya
		Tamil Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic Cherokee Ogham Runic Khmer Mongolian
		Hiragana Katakana Bopomofo Han Yi Old_Italic Gothic Deseret Inherited Tagalog Hanunoo Buhid Tagbanwa Limbu Tai_Le Linear_B`)
	for _, tt := range []struct {
		name     string
		patterns []string
		// fits is set where a library takes all of them.
		fits bool
	}{
		{
			"folded classes, many times",
			patterns(490, func(i int) string { return strings.Repeat(`(?i:\p{L})`, 100) + fmt.Sprint(i) }), true,
		},
		{
			"classes, many times",
			patterns(490, func(i int) string { return strings.Repeat(`\p{L}`, 118) + fmt.Sprint(i) }), true,
		},
		{"extensions, many times", patterns(
			490, func(i int) string { return strings.Repeat(`\p{Script_Extensions=Han}`, 60) + fmt.Sprint(i) },
		), false},
		{
			"names of people",
			patterns(2000, func(i int) string { return fmt.Sprintf(`^[\p{L}\p{N} .'-]{1,100}%d$`, i) }), true,
		},
		{"codes", patterns(5000, func(i int) string { return fmt.Sprintf(`^[A-Z]{2,8}-[0-9]{1,6}-%d$`, i) }), true},
		{"one class each", patterns(10_000, func(i int) string { return fmt.Sprintf(`^\p{L}+%d$`, i) }), false},
		{
			"different classes",
			patterns(5000, func(i int) string { return fmt.Sprintf(`[\p{L}\u{%x}]`, 0x30000+3*i) }), false,
		},
		{
			"different folded classes",
			patterns(50_000, func(i int) string { return fmt.Sprintf(`(?i:[^\u{%x}])`, 0x3000+3*i) }), false,
		},
		{
			"properties", patterns(
				len(scripts), func(i int) string { return `\p{scx=` + scripts[i] + `}\p{sc=` + scripts[i] + `}` },
			), false,
		},
		{"long texts", patterns(130, func(i int) string { return fmt.Sprint(i) + strings.Repeat("a", 8100) }), false},
		{
			"alternatives", patterns(250, func(i int) string { return strings.Repeat("a|", 2000) + fmt.Sprint(i) }),
			false,
		},
		{
			"borders of words", patterns(250, func(i int) string { return strings.Repeat(`\b`, 2000) + fmt.Sprint(i) }),
			false,
		},
		{
			"repetitions",
			patterns(10_000, func(i int) string { return fmt.Sprintf(`^(?:(?:(?:a?){9}){9}){9}%d$`, i) }), false,
		},
		{"many", patterns(100_000, func(i int) string { return fmt.Sprint(i) }), false},
		{"names in alternatives", patterns(250, func(i int) string {
			return strings.Repeat("(?:", 150) + strings.Repeat("(?<a>)|", 19) + strings.Repeat(
				"(?<b>)|", 19,
			) + strings.Repeat(")", 150) +
				strings.Repeat(`\k<a>`, 500) + fmt.Sprint(i)
		}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			library, start := ecma.NewLibrary(), worktest.ProcessorTime(t)
			var compiled []*ecma.Regexp
			var limit *ecma.LimitError
			for _, pattern := range tt.patterns {
				re, err := library.Compile(pattern)
				if errors.As(err, &limit) {
					break
				}
				if err != nil {
					t.Fatalf("Compile(%.40q): %v", pattern, err)
				}
				compiled = append(compiled, re)
			}
			deployed := worktest.Since(t, start)
			for _, re := range compiled {
				re.Match("a", work.Counted(10_000))
			}
			used := worktest.Since(t, start) - deployed
			runtime.GC()
			runtime.ReadMemStats(&after)
			memory := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d of %d patterns: %v to compile, %v to make ready, %d KiB, %v", len(compiled), len(tt.patterns), deployed, used, memory>>10, limit)
			if (limit == nil) != tt.fits {
				t.Errorf("the limit is %v", limit)
			}
			if deployed+used > slow || memory > mostMemory {
				t.Errorf("%v and %v, %d KiB", deployed, used, memory>>10)
			}
			runtime.KeepAlive(compiled)
		})
	}
}
