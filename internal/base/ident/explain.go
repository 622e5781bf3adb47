package ident

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuoted is how many bytes of a faulty identifier a message repeats.
const maxQuoted = 64

// accepted describes the forms that an identifier may have.
func (r *Rules) accepted() string {
	return "Use a UUID (" + r.versionList() + `), optionally with a tag such as ":2026", a humane code of 9 letters and ` +
		`digits, "global", or a singleton that the spec declares.`
}

// versionList names the accepted UUID versions: "version 4 or 5".
func (r *Rules) versionList() string {
	var vs []string
	for v := 1; v <= 8; v++ {
		if r.versions&(1<<v) != 0 {
			vs = append(vs, strconv.Itoa(v))
		}
	}
	last := len(vs) - 1
	if last == 0 {
		return "version " + vs[0]
	}
	return "version " + strings.Join(vs[:last], ", ") + " or " + vs[last]
}

// fault says in one sentence why s is no identifier, as precisely as its form allows.
func (r *Rules) fault(s string) string {
	if s == "" {
		return "The identifier is empty."
	}
	is := "The identifier " + quote(s) + " "
	if len(s) >= uuidLength {
		if ok, _ := scanUUID(s); ok {
			return is + r.uuidFault(s)
		}
	}
	dashes := strings.Count(s, "-")
	switch n := utf8.RuneCountInString(s); {
	case strings.HasPrefix(s, "{") || strings.HasPrefix(strings.ToLower(s), "urn:uuid:"):
		return is + "is not written as a UUID is: leave out everything but the 36 digits and hyphens."
	case n == 32 && isHex(s):
		return is + "looks like a UUID without its hyphens."
	case dashes == 4 && n >= uuidLength-4 && n <= uuidLength+4:
		return is + fmt.Sprintf("is no UUID: it takes 8-4-4-4-12 hexadecimal digits%s.", uuidHint(s, n))
	case n == humaneLength:
		return is + fmt.Sprintf("is no humane code: %q is neither a letter nor a digit.", firstForeign(s))
	case (n == humaneLength-1 || n == humaneLength+1) && firstForeign(s) == 0:
		return is + fmt.Sprintf("is no humane code: it has %d characters in place of %d.", n, humaneLength)
	case CheckSingletonName(s) == nil:
		return is + "is none of the accepted kinds; a fixed name must be declared under singletons in the spec."
	default:
		return is + "is none of the accepted kinds."
	}
}

// uuidFault says what is wrong with s, which starts with something of the shape of a UUID.
func (r *Rules) uuidFault(s string) string {
	switch v := s[versionAt]; {
	case !hasVariant(s):
		return fmt.Sprintf("is no UUID of RFC 9562: its 20th character is %q and must be 8, 9, a or b.", s[variantAt])
	case v < '1' || v > '8':
		return fmt.Sprintf("is no UUID of RFC 9562: its 15th character is %q and must be its version.", v)
	case r.versions&(1<<(v-'0')) == 0:
		return fmt.Sprintf("is a UUID of version %c, which the spec does not accept.", v)
	case len(s) == uuidLength:
		return "is none of the accepted kinds."
	case s[uuidLength] != ':':
		return fmt.Sprintf("goes on after its UUID with %q; a tag is set off by a colon.", firstRune(s[uuidLength:]))
	}
	switch tag := s[uuidLength+1:]; {
	case tag == "":
		return "has a colon but no tag after it."
	case utf8.RuneCountInString(tag) > maxTagLength:
		return fmt.Sprintf("has a tag longer than %d characters.", maxTagLength)
	default:
		for _, c := range tag {
			if c >= utf8.RuneSelf || !isTag(string(c)) {
				return fmt.Sprintf("has %q in its tag, which takes lower-case letters and digits only.", c)
			}
		}
		return "has a tag that is not accepted."
	}
}

func uuidHint(s string, n int) string {
	if n != uuidLength {
		return fmt.Sprintf(", %d characters with hyphens, and this has %d", uuidLength, n)
	}
	for _, c := range s {
		if c != '-' && (c >= utf8.RuneSelf || !isHex(string(c))) {
			return fmt.Sprintf(", and %q is none", c)
		}
	}
	return ""
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; c-'0' > 9 && c-'a' > 5 && c-'A' > 5 {
			return false
		}
	}
	return s != ""
}

// firstForeign returns the first character of s that is neither a letter nor a digit of ASCII, 0 without one.
func firstForeign(s string) rune {
	for _, c := range s {
		if !isAlphanumeric(c) {
			return c
		}
	}
	return 0
}

func firstRune(s string) rune {
	c, _ := utf8.DecodeRuneInString(s)
	return c
}

// quote shows s in a message: escaped, and cut when it is long.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + " (cut)"
}
