package format

import "strings"

// jsonPointer is a pointer of RFC 6901.
func jsonPointer(s string) bool {
	if s != "" && s[0] != '/' {
		return false
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return false
		}
	}
	return true
}

// relativeJSONPointer is a number of levels to go up, then a pointer or #.
func relativeJSONPointer(s string) bool {
	digits := 0
	for digits < len(s) && isDigit(s[digits]) {
		digits++
	}
	if digits == 0 || digits > 1 && s[0] == '0' {
		return false
	}
	return s[digits:] == "#" || strings.IndexByte(s[digits:], '#') != 0 && jsonPointer(s[digits:])
}
