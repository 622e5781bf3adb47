package ecma

import (
	"slices"
	"sort"
	"unicode"

	"github.com/dlclark/regexp2/v2/syntax"
)

// span is a range of code points, both ends included.
type span struct{ lo, hi rune }

// set is a set of code points: spans in order that neither overlap nor touch.
type set struct {
	spans []span
	// ascii has a bit for each code point below 128.
	ascii [2]uint64
}

// newSet returns the set of spans, which may stand in any order and overlap. It takes them over.
func newSet(spans ...span) *set {
	slices.SortFunc(spans, func(a, b span) int { return int(a.lo) - int(b.lo) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.lo <= merged[n-1].hi+1 {
			merged[n-1].hi = max(merged[n-1].hi, s.hi)
			continue
		}
		merged = append(merged, s)
	}
	out := &set{spans: merged}
	for _, s := range merged {
		for r := s.lo; r <= s.hi && r < 128; r++ {
			out.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return out
}

func (s *set) contains(r rune) bool {
	if r < 128 {
		return s.ascii[r/64]&(1<<(r%64)) != 0
	}
	i := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].hi >= r })
	return i < len(s.spans) && s.spans[i].lo <= r
}

// complement returns every code point that is not in s.
func (s *set) complement() *set {
	var out []span
	next := rune(0)
	for _, sp := range s.spans {
		if next < sp.lo {
			out = append(out, span{next, sp.lo - 1})
		}
		next = sp.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, span{next, unicode.MaxRune})
	}
	return newSet(out...)
}

func union(sets []*set) *set {
	var spans []span
	for _, s := range sets {
		spans = append(spans, s.spans...)
	}
	return newSet(spans...)
}

// smallSet is how many code points a set may have for each of them to be looked at.
const smallSet = 256

func (s *set) isSmall() bool {
	total := 0
	for _, sp := range s.spans {
		if total += int(sp.hi-sp.lo) + 1; total > smallSet {
			return false
		}
	}
	return true
}

// foldedEach is folded for a small set.
func (s *set) foldedEach() *set {
	var members []rune
	for _, sp := range s.spans {
		for r := sp.lo; r <= sp.hi; r++ {
			members = append(members, r)
		}
	}
	return s.folded(members)
}

// folded returns s with every code point that differs from one of its own only by simple case folding. letters are
// the code points that have such relatives, in order.
func (s *set) folded(letters []rune) *set {
	spans := slices.Clone(s.spans)
	next := 0
	for _, r := range letters {
		for next < len(s.spans) && s.spans[next].hi < r {
			next++
		}
		if next == len(s.spans) {
			break
		}
		if s.spans[next].lo > r {
			continue
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			spans = append(spans, span{f, f})
		}
	}
	return newSet(spans...)
}

// lastLetter is above every code point that has an upper or lower case.
const lastLetter = 0x1F000

// caseLetters lists the code points that simple case folding relates to others.
func caseLetters() []rune {
	var out []rune
	for r := range rune(lastLetter) {
		if unicode.SimpleFold(r) != r {
			out = append(out, r)
		}
	}
	return out
}

func single(r rune) *set { return newSet(span{r, r}) }

func anySet() *set { return newSet(span{0, unicode.MaxRune}) }

func digits() *set { return newSet(span{'0', '9'}) }

// wordChars are the characters of \w. Ignoring case adds those whose simple case folding is one of them.
func wordChars(ignoreCase bool) *set {
	spans := []span{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	if ignoreCase {
		spans = append(spans, span{0x17F, 0x17F}, span{0x212A, 0x212A})
	}
	return newSet(spans...)
}

// whiteSpace are the characters of \s: WhiteSpace and LineTerminator of ECMA-262.
func whiteSpace() *set {
	return newSet(span{'\t', '\r'}, span{' ', ' '}, span{0xA0, 0xA0}, span{0x1680, 0x1680}, span{0x2000, 0x200A},
		span{0x2028, 0x2029}, span{0x202F, 0x202F}, span{0x205F, 0x205F}, span{0x3000, 0x3000}, span{0xFEFF, 0xFEFF})
}

func lineTerminators() *set {
	return newSet(span{'\n', '\n'}, span{'\r', '\r'}, span{0x2028, 0x2029})
}

// lookUpProperty finds a Unicode property by the exact name that ECMA-262 gives it, such as L, Script=Greek or Emoji.
func lookUpProperty(name string) (*syntax.RegexNode, bool) {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '=' {
			return nil, false
		}
	}
	tree, err := syntax.Parse(`\p{`+name+`}`, syntax.ParseOptions{RegexOptions: syntax.ECMAScript | syntax.Unicode})
	if err != nil {
		return nil, false
	}
	return tree.Root, true
}

// propertySet returns the members of a property that lookUpProperty has found, and whether it had to search for them.
func propertySet(name string, found *syntax.RegexNode) (members *set, searched bool) {
	if canonical, ok := unicode.CategoryAliases[name]; ok {
		name = canonical
	}
	if table, ok := unicode.Categories[name]; ok {
		return tableSet(table), false
	}
	for len(found.Children) == 1 && found.Set == nil {
		found = found.Children[0]
	}
	var has func(r rune) bool
	switch {
	case found.Set != nil:
		has = found.Set.Contains
	case found.T == syntax.NtOne:
		has = func(r rune) bool { return r == found.Ch }
	case found.T == syntax.NtNotone:
		has = func(r rune) bool { return r != found.Ch }
	default:
		has = func(rune) bool { return false }
	}
	return search(has), true
}

// search returns the code points that have a property. From plane 4 on those that are alike are not looked at one by
// one.
func search(has func(r rune) bool) *set {
	var spans []span
	for r := rune(0); r <= unicode.MaxRune; {
		last := lastAlike(r)
		if has(r) {
			if n := len(spans); n > 0 && spans[n-1].hi == r-1 {
				spans[n-1].hi = last
			} else {
				spans = append(spans, span{r, last})
			}
		}
		r = last + 1
	}
	return newSet(spans...)
}

// lastAlike returns the last of the code points from r on that have the same properties as r in every version of
// Unicode so far: the planes 4 to 13 are unassigned, 14 has only tags and variation selectors at its start, 15 and 16
// are private; the last two code points of each are no characters.
func lastAlike(r rune) rune {
	const lastCharacter = 0xFFFD
	switch inPlane := r & 0xFFFF; {
	case r < 0x40000, inPlane > lastCharacter, r >= 0xE0000 && r < 0xE1000:
		return r
	default:
		return r - inPlane + lastCharacter
	}
}

func tableSet(table *unicode.RangeTable) *set {
	var spans []span
	add := func(lo, hi, stride uint32) {
		if stride == 1 {
			spans = append(spans, span{rune(lo), rune(hi)})
			return
		}
		for r := lo; r <= hi; r += stride {
			spans = append(spans, span{rune(r), rune(r)})
		}
	}
	for _, r := range table.R16 {
		add(uint32(r.Lo), uint32(r.Hi), uint32(r.Stride))
	}
	for _, r := range table.R32 {
		add(r.Lo, r.Hi, r.Stride)
	}
	return newSet(spans...)
}
