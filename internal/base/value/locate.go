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
	// Exact is false where the pointer leads nowhere: the place is then that of the deepest container on its way.
	Exact bool
}

// Locate finds the value that a JSON pointer (RFC 6901) names in a valid JSON text. If the pointer leads nowhere it
// returns the place of the deepest container on its way and false.
func Locate(src, pointer string) (Place, bool) {
	place := LocateAll(src, []string{pointer})[0]
	return place, place.Exact
}

// LocateAll is Locate for many pointers, in one walk over the text. The places are in the order of the pointers.
func LocateAll(src string, pointers []string) []Place {
	var root sought
	for i, pointer := range pointers {
		n := &root
		for pointer != "" {
			token, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
			if pointer = rest; more {
				pointer = "/" + rest
			}
			n = n.child(strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~"))
		}
		n.pointers = append(n.pointers, i)
	}
	s := scanner{src: src, places: make([]Place, len(pointers))}
	s.space()
	s.value(&root, s.pos)
	return s.places
}

// sought is a node of the tree of what is looked for.
type sought struct {
	// pointers are the numbers of those that end here.
	pointers []int
	children map[string]*sought
}

func (n *sought) child(token string) *sought {
	if n.children[token] == nil {
		if n.children == nil {
			n.children = map[string]*sought{}
		}
		n.children[token] = &sought{}
	}
	return n.children[token]
}

// astray gives all pointers that end in n or below it the place of the container that they leave.
func (n *sought) astray(places []Place, place Place) {
	place.Exact = false
	for _, i := range n.pointers {
		places[i] = place
	}
	for _, child := range n.children {
		child.astray(places, place)
	}
}

// scanner walks over JSON that is known to be valid.
type scanner struct {
	src    string
	pos    int
	places []Place
}

// value walks over the value that begins here, whose key stands at key, and notes the places of what is looked for in
// it.
func (s *scanner) value(n *sought, key int) {
	place := Place{Key: key, Start: s.pos, Exact: true}
	var found map[string]bool
	if len(n.children) == 0 {
		s.skip()
	} else {
		found = s.inside(n)
	}
	place.End = s.pos
	for _, i := range n.pointers {
		s.places[i] = place
	}
	for token, child := range n.children {
		if !found[token] {
			child.astray(s.places, place)
		}
	}
}

// inside walks over the members or elements of the container that begins here, and returns which of those that are
// looked for are there.
func (s *scanner) inside(n *sought) map[string]bool {
	// Nothing is inside a scalar.
	if s.pos >= len(s.src) || s.src[s.pos] != '{' && s.src[s.pos] != '[' {
		s.skip()
		return nil
	}

	object := s.src[s.pos] == '{'
	s.pos++
	found := map[string]bool{}
	for i := 0; ; i++ {
		// The end. Text that is no JSON ends the walk as well.
		s.space()
		if s.pos >= len(s.src) {
			return found
		}
		if s.src[s.pos] == '}' || s.src[s.pos] == ']' {
			s.pos++
			return found
		}

		// The name, or the index, and what is behind it. The first of two equal names counts.
		key := s.pos
		token := strconv.Itoa(i)
		if object {
			token = s.name()
		}
		from := s.pos
		if child := n.children[token]; child != nil && !found[token] {
			found[token] = true
			s.value(child, key)
		} else {
			s.skip()
		}

		// Where nothing was read the walk ends, too.
		if s.pos == from {
			return found
		}
		s.space()
		if s.pos < len(s.src) && s.src[s.pos] == ',' {
			s.pos++
		}
	}
}

// name reads the key of a member and the separator before the value.
func (s *scanner) name() string {
	from := s.pos
	s.skip()
	name, err := ParseStored(s.src[from:s.pos])
	s.space()
	if s.pos < len(s.src) && s.src[s.pos] == ':' {
		s.pos++
	}
	s.space()
	if err != nil {
		return ""
	}
	return name.Str()
}

func (s *scanner) space() {
	for s.pos < len(s.src) &&
		(s.src[s.pos] == ' ' || s.src[s.pos] == '\n' || s.src[s.pos] == '\t' || s.src[s.pos] == '\r') {
		s.pos++
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
