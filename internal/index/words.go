package index

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"

	"j17/internal/value"
)

// SplitWords returns the words of a text in their order, each once, as Unicode divides it (UAX 29), without differences of case. What
// has neither a letter nor a digit is no word.
func SplitWords(text string) (words []string) {
	seen := map[string]bool{}
	for state := -1; text != ""; {
		var word string
		word, text, state = uniseg.FirstWordInString(text, state)
		if strings.IndexFunc(word, isWord) < 0 {
			continue
		}
		if word = strings.Map(fold, word); !seen[word] {
			seen[word] = true
			words = append(words, word)
		}
	}
	return words
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// fold returns the same letter for all that differ in case only.
func fold(r rune) rune {
	first := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		first = min(first, next)
	}
	return first
}

// Words returns the entries of a text in index n, one for each of its words. It reports false, and no entries, for more than
// MaxRowEntries, or MaxRowBytes of them.
func Words(n int, text string) (entries []Entry, ok bool) {
	words := SplitWords(text)
	if len(words) > MaxRowEntries {
		return nil, false
	}
	size := 0
	for _, word := range words {
		e := NewEntry(n, value.StringValue(word))
		if size += e.Size(); size > MaxRowBytes {
			return nil, false
		}
		entries = append(entries, e)
	}
	return entries, true
}
