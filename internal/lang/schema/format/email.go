package format

import (
	"strings"
	"unicode/utf8"
)

// Longest parts of an address, in octets (RFC 5321, 4.5.3.1).
const (
	maxLocalPart = 64
	maxDomain    = 255
)

// email is Mailbox of RFC 5321.
func email(s string) bool { return mailbox(s, false) }

// idnEmail is Mailbox of RFC 6531, which lets all characters beyond ASCII stand in both parts.
func idnEmail(s string) bool { return mailbox(s, true) }

func mailbox(s string, international bool) bool {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return false
	}
	local, domain := s[:at], s[at+1:]
	if len(local) > maxLocalPart || len(domain) > maxDomain {
		return false
	}
	return (dotString(local, international) || quotedString(local, international)) &&
		(mailDomain(domain, international) || addressLiteral(domain))
}

func dotString(s string, international bool) bool {
	afterDot := true
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if afterDot {
				return false
			}
			afterDot = true
			continue
		case isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-/=?^_`{|}~", c) >= 0:
		case c >= utf8.RuneSelf && international:
		default:
			return false
		}
		afterDot = false
	}
	return !afterDot
}

func quotedString(s string, international bool) bool {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return false
	}
	s = s[1 : len(s)-1]
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch c {
		case '"':
			return false
		case '\\':
			if i++; i == len(s) {
				return false
			}
			c = s[i]
		}
		if c < ' ' || c == 0x7F || c >= utf8.RuneSelf && !international {
			return false
		}
	}
	return true
}

func mailDomain(s string, international bool) bool {
	for label := range strings.SplitSeq(s, ".") {
		if !ldhLabel(label, international) {
			return false
		}
	}
	return true
}

// ldhLabel reports whether a label is made of letters, digits and inner hyphens and, where wide is set, of characters
// beyond ASCII.
func ldhLabel(s string, wide bool) bool {
	if s == "" || len(s) > maxLabel || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && c != '-' && (!wide || c < utf8.RuneSelf) {
			return false
		}
	}
	return true
}

func addressLiteral(s string) bool {
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return false
	}
	s = s[1 : len(s)-1]
	if len(s) > 5 && strings.EqualFold(s[:5], "IPv6:") {
		return ipv6(s[5:])
	}
	return ipv4(s)
}
