package diag

import (
	"iter"
	"slices"
	"strings"
)

// Bounds of what a List spends on finding out what may have been meant: with a hundred such faults, hints for the first
// ones are enough.
const (
	maxSearches = 100
	maxLetters  = 8 << 20 // pairs of letters that are compared
)

// Suggests reports whether Nearest still looks for anything, so that candidates need not be gathered when it does not.
func (l *List) Suggests() bool { return l.searches < maxSearches && l.letters < maxLetters }

// Nearest is the function of that name, until the findings of this list have used up their share: then nothing is near.
func (l *List) Nearest(word string, candidates []string) string {
	if !l.Suggests() {
		return ""
	}
	l.searches++
	near, letters := nearest(word, candidates, maxLetters-l.letters)
	l.letters += letters
	return near
}

// Suggest sets the hint of d to the candidate that is nearest to a word. It reports false, and leaves the hint as it
// is, where none is near.
func (l *List) Suggest(d *Diagnostic, word string, candidates []string) bool {
	near := l.Nearest(word, candidates)
	if near != "" {
		d.Hintf("did you mean %q?", near)
	}
	return near != ""
}

// UnknownKey adds the error for a key that means nothing at that place, with the nearest known key as its hint.
func (l *List) UnknownKey(object Pointer, key string, known []string) {
	d := l.Errorf(object.Key(key), "unknown key %s", Quote(key)).AtKey()
	if !l.Suggest(d, key, known) && len(known) > 0 && d != &l.spare {
		sorted := slices.Sorted(slices.Values(known))
		d.Hintf("known keys here are %s", strings.Join(sorted, ", "))
	}
}

// maxCompared bounds the length of words that are compared letter by letter.
const maxCompared = 64

// Nearest returns the candidate that most likely was meant by word, "" when none is close. It is for a few words:
// findings of a List have a method of their own.
func Nearest(word string, candidates []string) string {
	near, _ := nearest(word, candidates, maxLetters)
	return near
}

// mostKnown is how many known names Meant compares an unknown one with.
const mostKnown = 256

// Meant returns the end of a message about an unknown name: the known name that was probably meant, if one is near.
func Meant(name string, known iter.Seq[string]) string {
	names := slices.Sorted(known)
	if near := Nearest(name, names[:min(len(names), mostKnown)]); near != "" {
		return ". Did you mean '" + near + "'?"
	}
	return ""
}

// nearest also returns how many pairs of letters were compared, at most about most.
func nearest(word string, candidates []string, most int) (best string, letters int) {
	least := max(1, len(word)/3) + 1
	for _, c := range candidates {
		letters++
		if letters > most {
			break
		}
		if len(c)-len(word) >= least || len(word)-len(c) >= least || max(len(c), len(word)) > maxCompared {
			continue
		}
		letters += len(c) * len(word)
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least && d < len(word) {
			best, least = c, d
		}
	}
	return best, letters
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j]+cost, last[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
