package index

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"j17/internal/base/value"
)

// WordsVersion tells apart what texts are divided into words by: under another one the same text may have other words,
// so that entries that were made under it are not found. The number counts the changes here, and those of what divides
// texts.
func WordsVersion() string { return "2 " + norm.Version + " " + cases.UnicodeVersion }

// SplitWords returns the words of a text in their order, each once, as Unicode divides it (UAX 29), in the one form
// that all ways to write them have in common: letters are composed (NFC), and without differences of case, also where
// these are of length ("ß", "SS"). What has neither a letter nor a digit is no word.
func SplitWords(text string) []string { return once(eachWord(text)) }

// AskedWords returns the words of a question, as View.Words takes them: each once, and behind them the last of the
// text, which is the beginning of a word, also where it occurs in the text before.
func AskedWords(text string) []string {
	words := eachWord(text)
	if len(words) == 0 {
		return nil
	}
	last := len(words) - 1
	return append(once(words[:last]), words[last])
}

// eachWord returns all words of a text in their order.
func eachWord(text string) (words []string) {
	text = commonForm(text)
	for state := -1; text != ""; {
		var word string
		word, text, state = uniseg.FirstWordInString(text, state)
		if strings.IndexFunc(word, isWord) >= 0 {
			words = append(words, word)
		}
	}
	return words
}

// once returns words without those that stand before already.
func once(words []string) (some []string) {
	seen := map[string]bool{}
	for _, word := range words {
		if !seen[word] {
			seen[word] = true
			some = append(some, word)
		}
	}
	return some
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

// commonForm returns a text as all have it that differ from it in case only, or in how letters with marks are written.
func commonForm(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return strings.ToLower(text)
	}
	folded := cases.Fold().String(norm.NFC.String(text))
	return norm.NFC.String(folded) // folding takes some letters apart
}

// Words returns the entries of a text in index n, one for each of its words. It reports false, and no entries, for more
// than MaxRowEntries, or MaxRowBytes of them.
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
