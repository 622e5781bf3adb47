package format

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// ipv4 is four decimal numbers without leading zeros.
func ipv4(s string) bool {
	if len(s) > len("255.255.255.255") {
		return false
	}
	for part := range 4 {
		digits := 0
		for digits < len(s) && isDigit(s[digits]) {
			digits++
		}
		n, _ := number(s[:digits])
		if digits == 0 || digits > 3 || n > 255 || digits > 1 && s[0] == '0' {
			return false
		}
		s = s[digits:]
		if part < 3 {
			if s == "" || s[0] != '.' {
				return false
			}
			s = s[1:]
		}
	}
	return s == ""
}

// ipv6 is an address of RFC 4291 without a zone.
func ipv6(s string) bool {
	if len(s) > len("1000:1000:1000:1000:1000:1000:255.255.255.255") || strings.IndexByte(s, '%') >= 0 {
		return false
	}
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6()
}

// Longest parts of a domain name in its ASCII form (RFC 1035, 2.3.4).
const (
	maxLabel = 63
	maxName  = 253
	// maxWide is a length in bytes beyond which no internationalized name has an ASCII form within maxName.
	maxWide = 4 * maxName
)

// hostnames returns the check for host names of RFC 1123: labels of letters, digits and inner hyphens. Labels that
// claim to be internationalized have to be what IDNA 2008 (RFC 5890 to 5893) makes of a name; in a wide name, other
// characters may also stand for themselves.
func hostnames(wide bool) func(string) bool {
	profile := idna.New(idna.ValidateForRegistration())
	return func(s string) bool {
		if len(s) > maxWide || !wide && len(s) > maxName {
			return false
		}
		if wide {
			s = plainDots(s)
		}
		plain := true
		for label := range strings.SplitSeq(s, ".") {
			switch {
			case label == "":
				return false
			case isASCII(label):
				if !ldhLabel(label, false) {
					return false
				}
				plain = plain && !isACE(label)
			case !wide:
				return false
			default:
				plain = false
			}
		}
		if plain {
			return len(s) <= maxName
		}
		return international(profile, s)
	}
}

// plainDots replaces the full stops that RFC 3490 treats as a dot.
func plainDots(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.NewReplacer("\u3002", ".", "\uff0e", ".", "\uff61", ".").Replace(s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isACE reports whether a label says that it encodes other characters.
func isACE(label string) bool { return len(label) >= 4 && strings.EqualFold(label[:4], "xn--") }

// international checks a name with labels that are internationalized, in either of their forms. The library checks
// normalization, lengths, hyphens, joiners, direction and that nothing would have to be mapped; what it takes from
// UTS 46 is wider than IDNA 2008, so each label is checked once more.
func international(profile *idna.Profile, name string) bool {
	if isASCII(name) {
		name = strings.ToLower(name)
	}
	wide, err := profile.ToUnicode(name)
	if err != nil {
		return false
	}
	ascii, err := profile.ToASCII(wide)
	if err != nil || len(ascii) > maxName {
		return false
	}
	if isASCII(name) && ascii != name {
		return false // an encoding that is not the one of what it encodes
	}
	for label := range strings.SplitSeq(wide, ".") {
		if isACE(label) || !isASCII(label) && !uLabel(label) {
			return false
		}
	}
	return true
}

// uLabel applies the rules of RFC 5892 to the characters of a label.
func uLabel(label string) bool {
	runes := []rune(label)
	if len(runes) >= 4 && runes[2] == '-' && runes[3] == '-' {
		return false
	}
	for i, r := range runes {
		var before, after rune
		if i > 0 {
			before = runes[i-1]
		}
		if i+1 < len(runes) {
			after = runes[i+1]
		}
		if !idnaRune(r) || !inContext(r, before, after, label) {
			return false
		}
	}
	return true
}

// idnaRune reports whether a character may stand in a label at all, in the right context.
func idnaRune(r rune) bool {
	switch {
	case r == '-' || r == 0x200C || r == 0x200D: // the joiners have been checked
		return true
	case r == 0x00B7 || r == 0x0375 || r == 0x05F3 || r == 0x05F4 || r == 0x30FB: // see inContext
		return true
	case r == 0x06FD || r == 0x06FE || r == 0x0F0B || r == 0x3007: // exceptions, section 2.6
		return true
	case r == 0x0640 || r == 0x07FA || r == 0x302E || r == 0x302F || r >= 0x3031 && r <= 0x3035 || r == 0x303B:
		return false
	case r >= 0x1100 && r <= 0x11FF || r >= 0xA960 && r <= 0xA97C || r >= 0xD7B0 && r <= 0xD7FB: // old Hangul jamo
		return false
	default:
		return unicode.In(r, unicode.Ll, unicode.Lu, unicode.Lo, unicode.Lm, unicode.Mn, unicode.Mc, unicode.Nd)
	}
}

// inContext applies the contextual rules of RFC 5892, appendix A.
func inContext(r, before, after rune, label string) bool {
	switch {
	case r == 0x00B7: // middle dot: between two l
		return before == 'l' && after == 'l'
	case r == 0x0375: // Greek keraia: before a Greek letter
		return unicode.Is(unicode.Greek, after)
	case r == 0x05F3 || r == 0x05F4: // Hebrew geresh and gershayim: after a Hebrew letter
		return unicode.Is(unicode.Hebrew, before)
	case r == 0x30FB: // katakana middle dot: in a label with a Japanese letter
		return strings.ContainsFunc(label, func(r rune) bool {
			return unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Han)
		})
	case r >= 0x0660 && r <= 0x0669: // Arabic-Indic digits: not with the extended ones
		return !strings.ContainsFunc(label, func(r rune) bool { return r >= 0x06F0 && r <= 0x06F9 })
	default:
		return true
	}
}
