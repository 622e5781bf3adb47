package ecma

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// escape reads an escape outside of a class.
func (p *parser) escape() *node {
	start := p.pos
	p.pos++
	switch c := p.peek(); {
	case c == 'b' || c == 'B':
		p.pos++
		n := &node{op: opWord, ignoreCase: p.flags.ignoreCase}
		if c == 'B' {
			n.op = opNotWord
		}
		return n
	case c >= '1' && c <= '9':
		number, _ := p.number()
		return p.refer(reference{pos: start, number: number})
	case c == 'k':
		p.pos++
		if !p.accept("<") {
			p.fail(start, "", `\k must be followed by the name of a group in angle brackets`)
		}
		return p.refer(reference{pos: start, name: p.groupName(start)})
	}
	if s, ok := p.classEscape(start); ok {
		return p.leaf(p.atomSet(start, func() *set { return s }, false))
	}
	return p.leaf(p.char(start, p.charEscape(start, false)))
}

func (p *parser) refer(r reference) *node {
	r.node = &p.only
	if p.library != nil {
		r.node = &node{op: opBackref, ignoreCase: p.flags.ignoreCase}
	}
	p.refs = append(p.refs, r)
	return r.node
}

// classEscape reads \d \D \s \S \w \W \p{...} \P{...} from the letter on.
func (p *parser) classEscape(start int) (*set, bool) {
	c := p.peek()
	property := ""
	switch c {
	case 'd', 'D', 's', 'S', 'w', 'W':
	case 'p', 'P':
		property = p.property(start)
	default:
		return nil, false
	}
	p.pos++
	if p.library == nil {
		return &p.unread, true
	}
	return p.library.set(setKey{p.src[start:p.pos], roleEscape, p.flags.ignoreCase}, func() *set {
		var s *set
		switch c {
		case 'd', 'D':
			s = digits()
		case 's', 'S':
			s = whiteSpace()
		case 'w', 'W':
			s = wordChars(p.flags.ignoreCase)
		default:
			s = p.library.property(property)
		}
		if c < 'a' {
			s = s.complement()
		}
		return s
	}), true
}

// property reads p{...}, leaves the position at its last character, and returns the name, which is that of a property.
func (p *parser) property(start int) string {
	end := strings.IndexByte(p.src[p.pos:], '}')
	if !strings.HasPrefix(p.src[p.pos+1:], "{") || end < 0 {
		p.fail(start, `write \p{L}, with braces`, `\%c must be followed by the name of a Unicode property in braces`, p.peek())
	}
	name := p.src[p.pos+2 : p.pos+end]
	if !p.isProperty(name) {
		p.fail(start, `names are exact, such as \p{L}, \p{Lu}, \p{Script=Greek} or \p{Emoji}`, "there is no Unicode property with the name %.40q", name)
	}
	p.pos += end
	return name
}

// isProperty reports whether there is a Unicode property with the name.
func (p *parser) isProperty(name string) bool {
	if p.library != nil {
		return p.library.property(name) != nil
	}
	known, ok := p.known[name]
	if !ok {
		_, known = lookUpProperty(name)
		if p.known == nil {
			p.known = map[string]bool{}
		}
		p.known[name] = known
	}
	return known
}

// charEscape reads an escape that stands for one character, from after the backslash.
func (p *parser) charEscape(start int, inClass bool) rune {
	if !p.more() {
		p.fail(start, `write \\ for the character itself`, "the pattern ends with a backslash")
	}
	switch r := p.rune(); r {
	// Letters that stand for a character, by themselves or with what follows.
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	case 'c':
		if c := p.peek(); c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			p.pos++
			return rune(c % 32)
		}
		p.fail(start, "", `\c must be followed by a letter`)
	case '0':
		if c := p.peek(); c >= '0' && c <= '9' {
			p.fail(start, `write \x and two hexadecimal digits`, "there are no octal escapes")
		}
		return 0
	case 'x':
		if v, ok := p.hex(2); ok {
			return v
		}
		p.fail(start, "", `\x must be followed by two hexadecimal digits`)
	case 'u':
		return p.unicodeEscape(start)
	// Characters that would mean something by themselves, and those that only a lenient library escapes.
	case '^', '$', '\\', '.', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|', '/':
		return r
	default:
		if r == '-' && inClass {
			return r
		}
		// A pattern of a spec is written by people, and \- means the same in all languages that have it, so it is only
		// noted. The format "regex" states what ECMA-262 allows, and refuses it.
		if isPunctuation(r) && p.library != nil {
			if p.needless == nil {
				p.needless = p.syntaxError(start, escapeHint(r), `ECMA-262 has no escape \%c`, r)
			}
			return r
		}
		p.fail(start, escapeHint(r), `the escape \%c does not exist in ECMA-262 patterns`, r)
	}
	return 0
}

// isPunctuation reports whether r is an ASCII punctuation mark; some of these need no escape.
func isPunctuation(r rune) bool {
	return r > ' ' && r < 0x7F && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func escapeHint(r rune) string {
	switch {
	case r == 'A':
		return "write ^ for the start of the text"
	case r == 'Z' || r == 'z':
		return "write $ for the end of the text"
	case r == 'h':
		return `write [\t ] for horizontal space`
	case r == 'a':
		return `write \x07 for the bell character`
	case r == 'e':
		return `write \x1B for the escape character`
	case unicode.IsLetter(r) || unicode.IsDigit(r):
		return ""
	default:
		return fmt.Sprintf("write %c without the backslash", r)
	}
}

// unicodeEscape reads XXXX or {X...} after \u. A pair of surrogates is one character.
func (p *parser) unicodeEscape(start int) rune {
	// In braces any number of digits stands for any character.
	if p.accept("{") {
		v, n := rune(0), 0
		for p.more() {
			d, ok := hexDigit(p.src[p.pos])
			if !ok {
				break
			}
			p.pos++
			n++
			if v = v<<4 | d; v > unicode.MaxRune {
				p.fail(start, "", "there is no character above U+10FFFF")
			}
		}
		if n == 0 || !p.accept("}") {
			p.fail(start, "", `\u{ must be followed by hexadecimal digits and a closing brace`)
		}
		return v
	}

	// Four digits may be the first of two surrogates.
	v, ok := p.hex(4)
	if !ok {
		p.fail(start, "", `\u must be followed by four hexadecimal digits, or by some in braces`)
	}
	if utf16.IsSurrogate(v) {
		back := p.pos
		if p.accept(`\u`) {
			if low, ok := p.hex(4); ok {
				if r := utf16.DecodeRune(v, low); r != unicode.ReplacementChar {
					return r
				}
			}
		}
		p.pos = back
	}
	return v
}

// hex reads exactly n hexadecimal digits, or nothing.
func (p *parser) hex(n int) (rune, bool) {
	if len(p.src)-p.pos < n {
		return 0, false
	}
	v := rune(0)
	for i := range n {
		d, ok := hexDigit(p.src[p.pos+i])
		if !ok {
			return 0, false
		}
		v = v<<4 | d
	}
	p.pos += n
	return v, true
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0'), true
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10, true
	default:
		return 0, false
	}
}

// class reads a character class.
func (p *parser) class() *set {
	start := p.pos
	p.pos++
	negated := p.accept("^")
	var parts []*set
	var spans []span

	for {
		if !p.more() {
			p.fail(start, `write \[ for the character itself`, "the character class has no closing bracket")
		}

		if p.accept("]") {
			break
		}

		// A character or a set by itself, a hyphen at either end included.
		at := p.pos
		low, lowSet := p.classAtom()
		if p.peek() != '-' || strings.HasPrefix(p.src[p.pos:], "-]") {
			if lowSet != nil {
				parts = append(parts, lowSet)
			} else {
				spans = append(spans, span{low, low})
			}
			continue
		}

		// A range.
		p.pos++
		if !p.more() {
			continue
		}
		high, highSet := p.classAtom()
		if lowSet != nil || highSet != nil {
			p.fail(at, `write \- for the character itself`, "a range in a character class needs a character at both ends")
		}
		if low > high {
			p.fail(at, "", "the range %s is out of order", p.src[at:p.pos])
		}
		spans = append(spans, span{low, high})
	}
	return p.atomSet(start, func() *set { return union(append(parts, newSet(spans...))) }, negated)
}

// classAtom reads one character or one set inside a class.
func (p *parser) classAtom() (rune, *set) {
	start := p.pos
	if !p.accept(`\`) {
		return p.rune(), nil
	}
	if s, ok := p.classEscape(start); ok {
		return 0, s
	}
	if p.accept("b") {
		return '\b', nil
	}
	return p.charEscape(start, true), nil
}
