package value

import (
	"strconv"
	"strings"
)

// Place is where a part of a JSON text stands, in bytes from 0.
type Place struct {
	// Key is the offset of the member's key, or of the value itself where it is no member.
	Key int
	// Start and End enclose the value.
	Start, End int
}

// Locate finds the value that a JSON pointer (RFC 6901) names in a valid JSON text. If the pointer leads nowhere it
// returns the place of the deepest container on its way and false.
func Locate(src, pointer string) (Place, bool) {
	s := scanner{src: src}
	s.space()
	start := s.pos
	place := Place{Key: start, Start: start, End: s.skip()}
	for pointer != "" {
		token := strings.TrimPrefix(pointer, "/")
		if i := strings.IndexByte(token, '/'); i >= 0 {
			token, pointer = token[:i], token[i:]
		} else {
			pointer = ""
		}
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next, ok := s.child(place.Start, token)
		if !ok {
			return place, false
		}
		place = next
	}
	return place, true
}

// scanner walks over JSON that is known to be valid.
type scanner struct {
	src string
	pos int
}

func (s *scanner) space() {
	for s.pos < len(s.src) && (s.src[s.pos] == ' ' || s.src[s.pos] == '\n' || s.src[s.pos] == '\t' || s.src[s.pos] == '\r') {
		s.pos++
	}
}

// child finds a member or an element of the container at start.
func (s *scanner) child(start int, token string) (Place, bool) {
	s.pos = start
	if s.pos >= len(s.src) {
		return Place{}, false
	}
	open := s.src[s.pos]
	if open != '{' && open != '[' {
		return Place{}, false
	}
	s.pos++
	for i := 0; ; i++ {
		s.space()
		if s.pos >= len(s.src) || s.src[s.pos] == '}' || s.src[s.pos] == ']' {
			return Place{}, false
		}
		key := s.pos
		var found bool
		if open == '{' {
			end := s.skip()
			name, err := ParseStored(s.src[key:end])
			found = err == nil && name.Str() == token
			s.space()
			if s.pos < len(s.src) && s.src[s.pos] == ':' {
				s.pos++
			}
			s.space()
		} else {
			found = strconv.Itoa(i) == token
		}
		from := s.pos
		to := s.skip()
		if to == key {
			return Place{}, false
		}
		if found {
			return Place{Key: key, Start: from, End: to}, true
		}
		s.space()
		if s.pos < len(s.src) && s.src[s.pos] == ',' {
			s.pos++
		}
	}
}

// skip moves over one value and returns the offset behind it.
func (s *scanner) skip() int {
	depth := 0
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch c {
		case '"':
			s.string()
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case ',', ':', ' ', '\n', '\t', '\r':
			s.pos++
		default:
			for s.pos < len(s.src) && !strings.ContainsRune(",]} \n\t\r", rune(s.src[s.pos])) {
				s.pos++
			}
		}
		if depth <= 0 && c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return s.pos
		}
	}
	return s.pos
}

func (s *scanner) string() {
	for s.pos++; s.pos < len(s.src); s.pos++ {
		switch s.src[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return
		}
	}
	s.pos = len(s.src)
}
