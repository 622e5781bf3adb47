//go:build !race

package ecma_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"pgregory.net/rapid"

	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/schema/ecma"
)

const (
	plenty = 2_000_000
	// slow is much longer than anything here may take, even on a busy machine.
	slow = 30 * time.Second
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"", []string{"", "a"}, nil},
		{"^abc$", []string{"abc"}, []string{"abc\n", "\nabc", "abcd"}},
		{"b", []string{"abc"}, []string{"ac"}},
		{"^.$", []string{"a", "é", "😀"}, []string{"\n", "\r", "\u2028", "\u2029", ""}},
		{`^\d\D$`, []string{"1a", "1٣"}, []string{"٣a", "11"}},
		{`^\w\W$`, []string{"a-", "_é"}, []string{"é-", "aa"}},
		{`^\s\S$`, []string{"\u00a0a", "\ufeffb", "\v-"}, []string{"\u0085a", "a "}},
		{`^\p{L}+\P{L}$`, []string{"éa1"}, []string{"1a"}},
		{`^\p{Script=Grek}+$`, []string{"αβ"}, []string{"ab"}},
		{`^\p{Emoji_Presentation}$`, []string{"😀"}, []string{"a"}},
		{`^\p{Lowercase}$`, []string{"ª"}, []string{"A"}},
		{`^[^\P{Lu}A]$`, []string{"B"}, []string{"A", "b"}},
		{`^[]$`, nil, []string{"", "a"}},
		{`^[^]$`, []string{"a", "\n"}, []string{""}},
		{`^[\b\-a-]$`, []string{"\b", "-", "a"}, []string{"b"}},
		{`^[a-c-e]$`, []string{"b", "-", "e"}, []string{"d"}},
		{`^\cA\x41\u0042\u{1F600}\0$`, []string{"\x01AB😀\x00"}, nil},
		{`^\ud83d\ude00$`, []string{"😀"}, nil},
		{`\ud83d`, nil, []string{"😀", ""}},
		{`^\^\$\\\.\*\+\?\(\)\[\]\{\}\|\/$`, []string{`^$\.*+?()[]{}|/`}, nil},
		{`^a{2}b{2,}c{0,2}?$`, []string{"aabb", "aabbbcc"}, []string{"abb", "aabbccc"}},
		{`^(?:a|bc)*?$`, []string{"", "abca"}, []string{"b"}},
		{`\bfoo\B`, []string{"a foob"}, []string{"foo", "afoob"}},
		{`^(a)(?<n>b)\1\k<n>$`, []string{"abab"}, []string{"abba"}},
		{`^(?:(a)|b)*\1$`, []string{"ab", "aa", "b"}, []string{"aba"}}, // groups are reset by each turn
		{`^\1(a)$`, []string{"a"}, []string{"aa"}},
		{`^(?:(?<n>a)|(?<n>b))\k<n>$`, []string{"aa", "bb"}, []string{"ab"}},
		{`^(?=.*\d)(?=.*[a-z]).{4,}$`, []string{"abc1"}, []string{"abcd", "ab1"}},
		{`^(?!foo)\w+$`, []string{"bar"}, []string{"food"}},
		{`(?<=\$)\d+(?!\d|\.)`, []string{"$42"}, []string{"42", "$4.2"}},
		{`(?<!\$)\b\d`, []string{"42"}, []string{"$4"}},
		{`(?<=^(a|bc)+)d`, []string{"abcd", "aad"}, []string{"abd", "d"}},
		{`(?<=\1(a))b`, []string{"aab"}, []string{"ab"}},
		{`^(?=(a+))\1b$`, []string{"aab"}, []string{"b"}}, // the assertion's choice is final
		{`^(?=(a+))a*b\1$`, []string{"aaabaaa"}, []string{"aaaba"}},
		{`^(?i:straSSe|\u{212a})$`, []string{"STRASSE", "k", "K"}, []string{"straße"}},
		{`^(?i:[^a])$`, []string{"b"}, []string{"a", "A"}},
		{`^(?i:\P{Lu})$`, []string{"A", "a"}, nil},
		{`^(?i:(a)\1)$`, []string{"aA"}, []string{"ab"}},
		{`^(?i:\w)$`, []string{"\u017f"}, []string{"é"}},
		{`(?i:\bx)`, []string{"-x"}, []string{"\u017fx"}},
		{`(?m:^b$)`, []string{"a\nb\rc", "a\u2028b"}, []string{"a b"}},
		{`^(?s:.)(?-s:.)$`, []string{"\na"}, []string{"a\n"}},
		{`^(?im-s:.A)$`, []string{"ba"}, []string{"\na"}},
		{`^.{0,5000}$`, []string{strings.Repeat("é", 5000)}, []string{strings.Repeat("é", 5001)}},
		{`^(?:ab){1001,}$`, []string{strings.Repeat("ab", 1001)}, []string{strings.Repeat("ab", 1000)}},
		{`^(?:[a-z]{1,63}\.){1,20}[a-z]{2,63}$`, []string{"www.example.com"}, []string{"www..com"}},
	}
	for _, tt := range tests {
		re, err := ecma.NewLibrary().Compile(tt.pattern)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.pattern, err)
			continue
		}
		if re.String() != tt.pattern || !ecma.Valid(tt.pattern) {
			t.Errorf("%q is not valid or not kept", tt.pattern)
		}
		for _, s := range tt.yes {
			if b := work.Counted(plenty); !re.Match(s, b) || b.Err() != nil {
				t.Errorf("%q does not match %q (%d units left)", tt.pattern, s, b.Left())
			}
		}
		for _, s := range tt.no {
			if b := work.Counted(plenty); re.Match(s, b) || b.Err() != nil {
				t.Errorf("%q matches %q (%d units left)", tt.pattern, s, b.Left())
			}
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	tests := []struct {
		pattern  string
		position int
		hint     string
	}{
		{`a\a`, 2, `write \x07`},
		{`(?#x)`, 1, "$comment"},
		{`(?i)x`, 1, "(?i:...)"},
		{`(?P<n>x)`, 1, "(?<name>...)"},
		{`(?P=n)`, 1, `\k<name>`},
		{`(?>a)`, 1, "(?:...)"},
		{`(?'n'x)`, 1, ""},
		{`(?:a`, 1, `\(`},
		{`é)`, 2, `\)`},
		{`(?-:a)`, 1, ""},
		{`(?i-i:a)`, 1, ""},
		{`(?ii:a)`, 1, ""},
		{`(?:`, 1, ""},
		{`(?i`, 1, ""},
		{`\Aa`, 1, "write ^"},
		{`a\Z`, 2, "write $"},
		{`a\z`, 2, "write $"},
		{`\é`, 1, ""},
		{`]`, 1, `\]`},
		{`a}`, 2, `\}`},
		{`a{`, 2, `\{`},
		{`a{x}`, 2, `\{`},
		{`{`, 1, `\{`},
		{`a{1`, 2, `\{`},
		{`a{,2}`, 2, `\{`},
		{`a{2,1}`, 2, ""},
		{`a**`, 3, "(?:...)"},
		{`a++`, 3, "possessive"},
		{`a*?+`, 4, "possessive"},
		{`*`, 1, `\*`},
		{`a|+`, 3, `\+`},
		{`^*`, 2, ""},
		{`\b+`, 3, ""},
		{`(?=a)*`, 6, ""},
		{`(?<=a)?`, 7, ""},
		{`\1`, 1, ""},
		{`(a)\2`, 4, ""},
		{`\01`, 1, `\x`},
		{`\c`, 1, ""},
		{`\c1`, 1, ""},
		{`\x4`, 1, ""},
		{`\u12`, 1, ""},
		{`\u{}`, 1, ""},
		{`\u{110000}`, 1, ""},
		{`\u{1`, 1, ""},
		{`\p{Digit}`, 1, "exact"},
		{`\pL`, 1, "braces"},
		{`\p{L`, 1, "braces"},
		{`\p{^L}`, 1, "exact"},
		{`\p`, 1, "braces"},
		{`\k<a>`, 1, ""},
		{`\k`, 1, ""},
		{`(?<a>x)(?<a>y)`, 8, ""},
		{`(?<a>(?<a>y))`, 6, ""},
		{`(?:(?<a>x)|y)(?<a>z)`, 14, ""},
		{`(?<1>x)`, 4, ""},
		{`(?<>x)`, 4, ""},
		{`(?<a`, 1, ""},
		{`(?<a\x41>x)`, 5, ""},
		{`[a`, 1, `\[`},
		{`[b-a]`, 2, ""},
		{`[a-\d]`, 2, `\-`},
		{`[\d-a]`, 2, `\-`},
		{`[a-`, 1, `\[`},
		{`\`, 1, `\\`},
		{`[\`, 2, `\\`},
		{`[\B]`, 2, ""},
		{strings.Repeat("(", 300) + strings.Repeat(")", 300), 201, ""},
	}
	for _, tt := range tests {
		_, err := ecma.NewLibrary().Compile(tt.pattern)
		var syntax *ecma.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Compile(%q) = %v, want a syntax error", tt.pattern, err)
			continue
		}
		if syntax.Position != tt.position || !strings.Contains(syntax.Hint, tt.hint) || syntax.Message == "" {
			t.Errorf("Compile(%q): position %d, message %q, hint %q; want position %d and hint %q",
				tt.pattern, syntax.Position, syntax.Message, syntax.Hint, tt.position, tt.hint)
		}
		if ecma.Valid(tt.pattern) {
			t.Errorf("Valid(%q) = true", tt.pattern)
		}
	}
	if _, err := ecma.NewLibrary().Compile(strings.Repeat("a", ecma.MaxPattern+1)); err == nil {
		t.Error("a pattern above MaxPattern compiles")
	}
	if !ecma.Valid(strings.Repeat("a", ecma.MaxPattern+1)) {
		t.Error("a long text is no pattern")
	}
}

// TestBombs runs patterns that take exponential time in careless matchers.
func TestBombs(t *testing.T) {
	for _, pattern := range []string{
		`^(a+)+$`, `^(a|aa)+$`, `^(a|a?)+$`, `(a*)*b`, `^(?:a?){100}a{100}$`, `^(?:(?:(?:a{0,30}){0,30}){0,30}){0,30}$`,
		`^(?=(a+)+$)`, `^(a+)+\1$`, `(?<!(a+)+b)$`, `^(?:(a)|b|\1)*c$`, `^(?:){1000000000}b`,
		`^(?=(?:a*)*$)b`, `(a*)*\1c`, `(?:a*){5000}c`, `(.*)*\1\1\1=`,
	} {
		re, err := ecma.NewLibrary().Compile(pattern)
		if err != nil {
			t.Errorf("Compile(%q): %v", pattern, err)
			continue
		}
		start, b := worktest.ProcessorTime(t), work.Counted(plenty)
		re.Match(strings.Repeat("a", 50_000)+"!", b)
		if took := worktest.Since(t, start); took > slow {
			t.Errorf("%q took %v", pattern, took)
		} else {
			t.Logf("%-50q %8v, %d units", pattern, took, b.Spent())
		}
	}
}

// TestNeedlessEscapes checks that escapes of marks which need none are taken for what they mean, and told; not so in
// texts that have to be patterns, and not for letters.
func TestNeedlessEscapes(t *testing.T) {
	for _, tt := range []struct {
		pattern  string
		yes, no  string
		position int
		hint     string
	}{
		{`^\d\-\d\@\_$`, "1-2@_", "12@_", 4, "write - without"},
		{`^[\_\#]$`, "#", "\\", 3, "write _ without"},
		{`^(?i:\"a)\'$`, `"A'`, `"A`, 6, `write " without`},
	} {
		re, err := ecma.NewLibrary().Compile(tt.pattern)
		if err != nil {
			t.Errorf("Compile(%q): %v", tt.pattern, err)
			continue
		}
		if b := work.Counted(plenty); !re.Match(tt.yes, b) || re.Match(tt.no, b) {
			t.Errorf("%q does not mean what it says", tt.pattern)
		}
		if e := re.Needless(); e == nil || e.Position != tt.position || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%q: %+v", tt.pattern, e)
		}
		if ecma.Valid(tt.pattern) {
			t.Errorf("Valid(%q) = true", tt.pattern)
		}
	}
	if re, err := ecma.NewLibrary().Compile(`[\-]\.\/`); err != nil || re.Needless() != nil {
		t.Errorf("escapes that are needed, or known: %v", err)
	}
	for _, pattern := range []string{`\a`, `\ `, `\é`, `[\a]`} {
		if _, err := ecma.NewLibrary().Compile(pattern); err == nil {
			t.Errorf("Compile(%q): no error", pattern)
		}
	}
}

func TestCompileIsBounded(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat("(?:", 190) + "a" + strings.Repeat(")*", 190),
		strings.Repeat("(?:", 190) + "a" + strings.Repeat("){1,9}", 190),
		strings.Repeat(`\p{L}`, ecma.MaxPattern/5),
		strings.Repeat(`[^\P{L}a]`, ecma.MaxPattern/9),
		"(?i:" + strings.Repeat(`\P{L}`, ecma.MaxPattern/5-1) + ")",
		strings.Repeat("(a)", 1500) + strings.Repeat(`\1`, 1500),
		strings.Repeat("(a|b){999}", 800),
		strings.Repeat("a{1000}", 1100),
		`\p{sc=Greek}\p{sc=Grek}\p{scx=Grek}\p{Emoji}\p{Alpha}\p{Any}\p{ASCII}\p{IDS}\p{IDC}\p{XIDS}\p{XIDC}\p{Math}\p{Upper}\p{Lower}\p{CI}\p{Dash}`,
	} {
		start := worktest.ProcessorTime(t)
		if _, err := ecma.NewLibrary().Compile(pattern); err != nil {
			t.Errorf("Compile(%.20q...): %v", pattern, err)
		}
		took := worktest.Since(t, start)
		if t.Logf("%.20q... %v", pattern, took); took > slow {
			t.Errorf("Compile(%.20q...) took %v", pattern, took)
		}
	}
}

// TestValidIsFast checks texts that were sent to a field whose format is regex.
func TestValidIsFast(t *testing.T) {
	for _, unit := range []string{
		"a", ".", `\s`, `\p{L}`, `\u{1F600}`, "(?i:a)", "(?<n>a)|", "(?:a)*", "[^a-z]", "[^", "(a|b){1,9}", `(a)\1`,
		"(", "(?<n", `\k<n>`, "|", "^", "(?=a)",
	} {
		start := worktest.ProcessorTime(t)
		ecma.Valid(strings.Repeat(unit, 1<<20/len(unit)))
		took := worktest.Since(t, start)
		if t.Logf("%-10s %v", unit, took); took > slow {
			t.Errorf("%q took %v", unit, took)
		}
	}
}

func pattern(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for i := range rapid.IntRange(1, 3).Draw(t, "terms") {
			if i > 0 && rapid.IntRange(0, 5).Draw(t, "or") == 0 {
				b.WriteByte('|')
			}
			kinds := 22
			if depth == 0 {
				kinds = 16
			}
			repeatable := true
			switch k := rapid.IntRange(0, kinds).Draw(t, "kind"); k {
			case 16:
				b.WriteString("(" + pattern(depth-1).Draw(t, "group") + ")")
			case 17:
				b.WriteString("(?:" + pattern(depth-1).Draw(t, "group") + ")")
			case 18:
				b.WriteString("(?i:" + pattern(depth-1).Draw(t, "group") + ")")
			case 19, 20, 21, 22:
				kind := []string{"(?=", "(?!", "(?<=", "(?<!"}[k-19]
				b.WriteString(kind + pattern(depth-1).Draw(t, "group") + ")")
				repeatable = false
			case 14, 15:
				b.WriteString([]string{"^", "$", `\b`, `\B`}[rapid.IntRange(0, 3).Draw(t, "assertion")])
				repeatable = false
			default:
				b.WriteString([]string{
					"a", "b", "K", "é", ".", `\d`, `\w`, `\S`, "[ab]", "[^a]", `[^\W\d]`, `\p{Lu}`, `[a-z\s]`, `\P{L}`,
					"a", "b", "a",
				}[k])
			}
			if repeatable {
				b.WriteString(rapid.SampledFrom([]string{
					"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,3}?",
				}).Draw(t, "repeat"))
			}
		}
		return b.String()
	})
}

func text() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		runes := rapid.SliceOfN(rapid.SampledFrom([]rune("aaabbkKéÉ1 \nA\u212a\u017f")), 0, 8).Draw(t, "text")
		return string(runes)
	})
}

// TestAgainstRegexp2 compares with another implementation of ECMA-262, patterns with back-references included.
func TestAgainstRegexp2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pattern(3).Draw(t, "pattern")
		if strings.Contains(p, "(a") || strings.Contains(p, "(b") || strings.Contains(p, "(.") {
			p += rapid.SampledFrom([]string{"", `\1`, `\1$`}).Draw(t, "reference")
		}
		re, err := ecma.NewLibrary().Compile(p)
		other, otherErr := regexp2.Compile(p, regexp2.ECMAScript|regexp2.Unicode)
		if (err == nil) != (otherErr == nil) {
			t.Fatalf("Compile: %v; regexp2: %v", err, otherErr)
		}
		if err != nil {
			return
		}
		for range 5 {
			s := text().Draw(t, "text")
			want, err := other.MatchString(s)
			if err != nil {
				return
			}
			b := work.Counted(plenty)
			got := re.Match(s, b)
			if b.Err() != nil {
				t.Fatalf("%q gave up on %q", p, s)
			}
			if got != want {
				t.Fatalf("%q on %q: %v; regexp2 says %v", p, s, got, want)
			}
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, p := range []string{
		`^(a+)+$`, `(?<=a\b)[^\s]{2,3}?`, `(?<n>x)|(?<n>y)\k<n>`, `\p{L}(?i:\W)`, `[^]{1,9999}`, `(?!)`, `(?:(a)|b)*\1`,
	} {
		f.Add(p, "aaaa!")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		text = strings.ToValidUTF8(text, "?")
		pattern = strings.ToValidUTF8(pattern, "?")
		re, err := ecma.NewLibrary().Compile(pattern)
		valid := ecma.Valid(pattern)
		if err != nil {
			// A pattern that is too large is one all the same.
			if valid && !errors.As(err, new(*ecma.LimitError)) && !strings.Contains(err.Error(), "longer than") &&
				!strings.Contains(err.Error(), "at most") {
				t.Fatalf("the pattern is valid, but does not compile: %v", err)
			}
			return
		}
		if valid != (re.Needless() == nil) {
			t.Fatal("the pattern compiles, but is not valid")
		}
		start := worktest.ProcessorTime(t)
		re.Match(text, work.Counted(1_000_000))
		if took := worktest.Since(t, start); took > slow {
			t.Fatalf("%q took %v", pattern, took)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, bb := range []struct{ name, pattern, text string }{
		{"linear", `^[A-Z]{2,8}-\d{1,6}$`, "WIDGET-1042"},
		{"backtrack", `^(?=.*\d)[A-Z0-9-]+$`, "WIDGET-1042"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			re, err := ecma.NewLibrary().Compile(bb.pattern)
			if err != nil {
				b.Fatal(err)
			}
			budget := work.Counted(plenty)
			b.ReportAllocs()
			for b.Loop() {
				budget.Renew(plenty)
				if !re.Match(bb.text, budget) {
					b.Fatal("no match")
				}
			}
		})
	}
}
