package diag

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"j17"
)

// FieldErrors returns findings in the form of the API.
func FieldErrors(found []Diagnostic) []j17.FieldError {
	all := make([]j17.FieldError, 0, len(found))
	for _, d := range found {
		all = append(all, j17.FieldError{
			Pointer: string(d.Pointer), Message: sentence(d.Message), Hint: sentence(d.Hint), Line: d.Line,
			Column: d.Column,
		})
	}
	return all
}

// sentence gives a finding's text, which begins in lower case and has no full stop, the form of a sentence. A name of
// the spec that it begins with, such as agent_types, stays as it is written.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	if word, _, _ := strings.Cut(s, " "); !strings.Contains(word, "_") {
		first, size := utf8.DecodeRuneInString(s)
		s = string(unicode.ToUpper(first)) + s[size:]
	}
	if strings.ContainsRune(".?!", rune(s[len(s)-1])) {
		return s
	}
	return s + "."
}
