package format

import (
	"strings"
	"unicode/utf8"
)

func uri(s string) bool          { return reference(s, false, false) }
func uriReference(s string) bool { return reference(s, true, false) }
func iri(s string) bool          { return reference(s, false, true) }
func iriReference(s string) bool { return reference(s, true, true) }

// reference is URI of RFC 3986 and, where relative is set, relative-ref; with wide characters those of RFC 3987.
func reference(s string, relative, wide bool) bool {
	s, fragment, _ := strings.Cut(s, "#")
	s, query, _ := strings.Cut(s, "?")
	if !uriChars(fragment, ":@/?", wide, false) || !uriChars(query, ":@/?", wide, wide) {
		return false
	}
	colon := strings.IndexByte(s, ':')
	slash := strings.IndexByte(s, '/')
	absolute := colon >= 0 && (slash < 0 || colon < slash)
	if absolute {
		if !scheme(s[:colon]) {
			return false
		}
		s = s[colon+1:]
	} else if !relative {
		return false
	}
	if rest, ok := strings.CutPrefix(s, "//"); ok {
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			end = len(rest)
		}
		if !authority(rest[:end], wide) {
			return false
		}
		s = rest[end:]
	}
	return uriChars(s, ":@/", wide, false)
}

func scheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isLetter(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

func authority(s string, wide bool) bool {
	if at := strings.IndexByte(s, '@'); at >= 0 {
		if !uriChars(s[:at], ":", wide, false) {
			return false
		}
		s = s[at+1:]
	}
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || !ipv6(s[1:end]) && !futureAddress(s[1:end]) {
			return false
		}
		host, port = "", s[end+1:]
		if port != "" && port[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	} else if colon := strings.IndexByte(s, ':'); colon >= 0 {
		host, port = s[:colon], s[colon+1:]
	}
	for i := range len(port) {
		if !isDigit(port[i]) {
			return false
		}
	}
	return uriChars(host, "", wide, false)
}

// futureAddress is IPvFuture of RFC 3986.
func futureAddress(s string) bool {
	version, rest, ok := strings.Cut(s, ".")
	if !ok || len(version) < 2 || version[0] != 'v' && version[0] != 'V' || rest == "" {
		return false
	}
	for i := 1; i < len(version); i++ {
		if !isHex(version[i]) {
			return false
		}
	}
	return strings.IndexByte(rest, '%') < 0 && uriChars(rest, ":", false, false)
}

// uriChars reports whether s is made of unreserved characters, sub-delims, percent-encoded octets and the characters
// of extra; with wide those beyond ASCII that RFC 3987 allows, with private also the private ones.
func uriChars(s, extra string, wide, private bool) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case isLetter(c) || isDigit(c):
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
			i += 2
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			if (!wide || !isUCSChar(r)) && (!private || !isPrivate(r)) {
				return false
			}
			i += n - 1
		case strings.IndexByte("-._~!$&'()*+,;=", c) >= 0 || strings.IndexByte(extra, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// isUCSChar is ucschar of RFC 3987.
func isUCSChar(r rune) bool {
	switch {
	case r < 0x10000:
		return r >= 0xA0 && r <= 0xD7FF || r >= 0xF900 && r <= 0xFDCF || r >= 0xFDF0 && r <= 0xFFEF
	case r < 0xE0000:
		return r&0xFFFF <= 0xFFFD
	default:
		return r >= 0xE1000 && r <= 0xEFFFD
	}
}

// isPrivate is iprivate of RFC 3987.
func isPrivate(r rune) bool {
	return r >= 0xE000 && r <= 0xF8FF || r >= 0xF0000 && r <= 0xFFFFD || r >= 0x100000 && r <= 0x10FFFD
}

// uriTemplate is URI-Template of RFC 6570, with the apostrophe as a literal that its erratum 6937 allows.
func uriTemplate(s string) bool {
	for s != "" {
		switch c := s[0]; {
		case c == '{':
			end := strings.IndexByte(s, '}')
			if end < 0 || !expression(s[1:end]) {
				return false
			}
			s = s[end+1:]
		case c == '%':
			if len(s) < 3 || !isHex(s[1]) || !isHex(s[2]) {
				return false
			}
			s = s[3:]
		case c <= ' ' || c == 0x7F || strings.IndexByte("\"<>\\^`|}", c) >= 0:
			return false
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s)
			if !isUCSChar(r) && !isPrivate(r) {
				return false
			}
			s = s[n:]
		default:
			s = s[1:]
		}
	}
	return true
}

func expression(s string) bool {
	if s != "" && strings.IndexByte("+#./;?&=,!@|", s[0]) >= 0 {
		s = s[1:]
	}
	for spec := range strings.SplitSeq(s, ",") {
		name, prefix, hasPrefix := strings.Cut(spec, ":")
		if hasPrefix {
			if n, ok := number(prefix); !ok || len(prefix) > 4 || n == 0 || prefix[0] == '0' {
				return false
			}
		} else {
			name = strings.TrimSuffix(name, "*")
		}
		if !variableName(name) {
			return false
		}
	}
	return true
}

func variableName(s string) bool {
	afterDot := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '.':
			if afterDot {
				return false
			}
			afterDot = true
			continue
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
			i += 2
		case !isLetter(c) && !isDigit(c) && c != '_':
			return false
		}
		afterDot = false
	}
	return !afterDot
}
