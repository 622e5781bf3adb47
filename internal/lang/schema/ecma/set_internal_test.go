package ecma

import (
	"slices"
	"testing"
	"unicode"
)

// TestSearchLooksAtEnough compares the members of properties with what a look at every code point finds.
func TestSearchLooksAtEnough(t *testing.T) {
	for _, name := range []string{
		"Any", "Assigned", "Noncharacter_Code_Point", "Default_Ignorable_Code_Point", "Variation_Selector", "sc=Zzzz",
		"scx=Zinh", "Emoji", "Ideographic", "sc=Han",
	} {
		found, ok := lookUpProperty(name)
		if !ok {
			t.Errorf("there is no %s", name)
			continue
		}
		for len(found.Children) == 1 && found.Set == nil {
			found = found.Children[0]
		}
		if found.Set == nil {
			t.Errorf("%s has no set", name)
			continue
		}
		var spans []span
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if !found.Set.Contains(r) {
				continue
			}
			if n := len(spans); n > 0 && spans[n-1].hi == r-1 {
				spans[n-1].hi = r
			} else {
				spans = append(spans, span{r, r})
			}
		}
		if got := search(found.Set.Contains); !slices.Equal(got.spans, spans) {
			t.Errorf("%s: %d ranges, want %d", name, len(got.spans), len(spans))
		}
	}
}

// TestFolding compares the two ways to fold a set with a third.
func TestFolding(t *testing.T) {
	letters := caseLetters()
	for _, s := range []*set{digits(), single('k'), newSet(span{'a', 'z'}), newSet(span{0x17F, 0x17F}, span{
		0x390, 0x3C9,
	}), single(0x3A3).complement(), anySet()} {
		var spans []span
		for r := rune(0); r <= unicode.MaxRune; r++ {
			in := s.contains(r)
			for f := unicode.SimpleFold(r); !in && f != r; f = unicode.SimpleFold(f) {
				in = s.contains(f)
			}
			if in {
				spans = append(spans, span{r, r})
			}
		}
		want := newSet(spans...)
		if got := s.folded(letters); !slices.Equal(got.spans, want.spans) {
			t.Errorf("%v folded is %v, want %v", s.spans, got.spans, want.spans)
		}
		if s.isSmall() && !slices.Equal(s.foldedEach().spans, want.spans) {
			t.Errorf("%v folded one by one is %v, want %v", s.spans, s.foldedEach().spans, want.spans)
		}
	}
}
