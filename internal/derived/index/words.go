package index

import (
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"j17/internal/base/value"
)

// WordsVersion identifies how texts are divided into words. Under another version the same text may have other words,
// so that entries made under it are not found. The number counts changes here; the rest are the versions of the Unicode
// tables.
func WordsVersion() string { return "2 " + norm.Version + " " + cases.UnicodeVersion }

// SplitWords returns the words of a text in order, each once, as Unicode divides it (UAX 29). Words are normalized:
// characters are composed (NFC), and case is folded, even where that changes the length ("ß", "SS"). Segments without a
// letter or a digit are not words.
func SplitWords(text string) []string { return once(eachWord(text)) }

// AskedWords returns the words of a query, as View.Words takes them: each once, followed by the last one of the text,
// which stands for the beginning of a word, even if it also occurs earlier.
func AskedWords(text string) []string {
	words := eachWord(text)
	if len(words) == 0 {
		return nil
	}
	last := len(words) - 1
	return append(once(words[:last]), words[last])
}

// eachWord returns all words of a text in order.
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

// once returns the words without repetitions.
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

// commonForm normalizes a text, so that differences in case and in the composition of characters disappear.
func commonForm(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return strings.ToLower(text)
	}
	folded := cases.Fold().String(norm.NFC.String(text))
	return norm.NFC.String(folded) // folding decomposes some characters
}

// Words returns the entries of a text in index n, one for each of its words. It reports false, and returns no entries,
// if they exceed MaxRowEntries or MaxRowBytes.
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
