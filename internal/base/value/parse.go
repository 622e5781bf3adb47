package value

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of what Parse accepts.
const (
	// MaxDepth is how deep containers may nest.
	MaxDepth = 128
	// MaxExponent bounds a number's exponent in both directions.
	MaxExponent = 400
	// MaxDigits bounds the length of a number's text.
	MaxDigits = 10_000
	// maxStoredDepth bounds what was checked before it was stored and has since been nested further by handlers.
	maxStoredDepth = 4096
)

// SyntaxError says where and why a text is not acceptable JSON.
type SyntaxError struct {
	// Offset counts bytes from 0, Line and Column (in characters) count from 1.
	Offset, Line, Column int
	Message              string
}

// Error returns the message and its place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Parse reads one JSON text. It is strict: valid UTF-8, no lone surrogates, no duplicate keys, nothing but white space
// after the value, and within MaxDepth, MaxExponent and MaxDigits. Errors are *SyntaxError. The value keeps a copy of
// src alive.
func Parse(src []byte) (Value, error) { return ParseString(string(src)) }

// ParseString is Parse for a string, which the value keeps alive.
func ParseString(src string) (Value, error) {
	return parse(src, MaxDepth, MaxExponent, MaxDigits)
}

// ParseStored reads what an Encode function wrote: it lifts the limits that protect against hostile input.
func ParseStored(src string) (Value, error) {
	return parse(src, maxStoredDepth, math.MaxInt32/2, maxTextLen)
}

// parsers keeps the stacks of parsers for reuse.
//
//nolint:gochecknoglobals // a pool has to outlive its users
var parsers = sync.Pool{New: func() any { return new(parser) }}

func parse(src string, depth, exponent, digits int) (Value, error) {
	p, _ := parsers.Get().(*parser)
	p.src, p.pos, p.depth, p.exponent, p.digits, p.extra, p.values = src, 0, depth, exponent, digits, 0, 0
	v, err := p.document()
	p.release()
	return v, err
}

// maxKeptStack bounds the stacks that a pooled parser keeps.
const maxKeptStack = 1024

func (p *parser) release() {
	clear(p.members)
	clear(p.elems)
	p.src, p.members, p.elems, p.objects, p.arrays, p.spare = "", p.members[:0], p.elems[:0], nil, nil, nil
	if cap(p.members) <= maxKeptStack && cap(p.elems) <= maxKeptStack {
		parsers.Put(p)
	}
}

type parser struct {
	src      string
	pos      int
	depth    int
	exponent int
	digits   int
	// members and elems are stacks: a container's parts stand on top until it is closed.
	members []Member
	elems   []Value
	// objects and arrays are slabs that containers are cut from, spare one for the members of small objects.
	objects []object
	arrays  []array
	spare   []Member
	// extra is by how many bytes the text so far is longer than what AppendJSON writes: white space and needless
	// escapes. A container's size is the length of its text without them.
	extra int
	// values is how many values have been begun.
	values int
}

func (p *parser) document() (Value, error) {
	p.space()
	v, err := p.value()
	if err != nil {
		return Value{}, err
	}
	p.space()
	if p.pos < len(p.src) {
		return Value{}, p.fail(p.pos, "there is more after the end of the JSON value")
	}
	return v, nil
}

func (p *parser) fail(at int, format string, args ...any) error {
	line, column := Position(p.src, at)
	return &SyntaxError{Offset: at, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// Position returns line and column, both from 1, of the byte at offset; columns count characters.
func Position(src string, offset int) (line, column int) {
	offset = min(offset, len(src))
	before := src[:offset]
	line = 1 + strings.Count(before, "\n")
	return line, 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
}

func (p *parser) space() {
	if p.pos < len(p.src) && p.src[p.pos] <= ' ' {
		p.skipSpace()
	}
}

func (p *parser) skipSpace() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
			p.extra++
		default:
			return
		}
	}
}

func (p *parser) value() (Value, error) {
	if p.pos >= len(p.src) {
		return Value{}, p.fail(p.pos, "the JSON text ends where a value should stand")
	}
	p.values++
	switch c := p.src[p.pos]; c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		s, err := p.string()
		return StringValue(s), err
	case 't':
		return p.word("true", BoolValue(true))
	case 'f':
		return p.word("false", BoolValue(false))
	case 'n':
		return p.word("null", NullValue())
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.number()
	default:
		r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
		return Value{}, p.fail(p.pos, "unexpected %q where a value should stand", r)
	}
}

func (p *parser) word(w string, v Value) (Value, error) {
	if !strings.HasPrefix(p.src[p.pos:], w) {
		return Value{}, p.fail(p.pos, "unknown word: JSON has true, false and null, in lower case")
	}
	p.pos += len(w)
	return v, nil
}

func (p *parser) enter() error {
	if p.depth == 0 {
		return p.fail(p.pos, "containers are nested too deeply: at most %d levels are accepted", MaxDepth)
	}
	p.depth--
	p.pos++
	return nil
}

// opening is where a container begins, and what extra and values were before it.
type opening struct{ at, extra, values int }

// opened returns where the container begins whose bracket has just been read.
func (p *parser) opened() opening { return opening{p.pos - 1, p.extra, p.values - 1} }

// since returns the weight of the container that was opened there and ends here.
func (p *parser) since(o opening) known {
	return known{int64(p.pos - o.at - (p.extra - o.extra)), int64(p.values - o.values)}
}

func (p *parser) object() (Value, error) {
	if err := p.enter(); err != nil {
		return Value{}, err
	}
	base, opened := len(p.members), p.opened()
	p.space()
	if p.peek() == '}' {
		p.pos++
		p.depth++
		o := p.newObject()
		o.weight = p.since(opened)
		return objectOf(o), nil
	}

	for {
		// A member's name.
		if p.peek() != '"' {
			return Value{}, p.fail(p.pos, "expected a key in double quotes")
		}
		key, err := p.string()
		if err != nil {
			return Value{}, err
		}
		p.space()
		if p.peek() != ':' {
			return Value{}, p.fail(p.pos, "expected a colon after the key %q", key)
		}
		p.pos++

		// Its value.
		p.space()
		v, err := p.value()
		if err != nil {
			return Value{}, err
		}
		p.members = append(p.members, Member{key, v})
		p.space()

		// The end, or the next one.
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
			if p.peek() == '}' {
				return Value{}, p.fail(p.pos, "there is a comma before the closing brace")
			}
		case '}':
			p.pos++
			p.depth++
			return p.closeObject(base, opened)
		default:
			return Value{}, p.fail(p.pos, "expected a comma or a closing brace")
		}
	}
}

func (p *parser) closeObject(base int, opened opening) (Value, error) {
	o := p.newObject()
	o.weight = p.since(opened)
	o.members = p.cut(p.members[base:])
	clear(p.members[base:])
	p.members = p.members[:base]
	if len(o.members) > IndexFrom {
		o.index = newIndex(o.members)
		if len(o.index.at) < len(o.members) {
			seen := make(map[string]bool, len(o.members))
			for i := range o.members {
				if seen[o.members[i].Key] {
					return Value{}, p.duplicate(opened.at, o.members[i].Key)
				}
				seen[o.members[i].Key] = true
			}
		}
		return objectOf(o), nil
	}
	for i := 1; i < len(o.members); i++ {
		for j := range i {
			if o.members[i].Key == o.members[j].Key {
				return Value{}, p.duplicate(opened.at, o.members[i].Key)
			}
		}
	}
	return objectOf(o), nil
}

// duplicate is the error for the second member of that key in the object that was opened there.
func (p *parser) duplicate(opened int, key string) error {
	at := opened
	s := scanner{src: p.src, pos: opened + 1}
	for seen := false; s.pos < p.pos; {
		s.space()
		from := s.pos
		name, err := ParseStored(p.src[from:s.skip()])
		if err == nil && name.Str() == key {
			if seen {
				at = from
				break
			}
			seen = true
		}
		s.space()
		s.pos++ // the colon
		s.space()
		s.skip()
		s.space()
		s.pos++ // the comma
	}
	if len(key) > 64 {
		key = strings.ToValidUTF8(key[:64], "") + "..."
	}
	return p.fail(at, "the object has the key %q more than once", key)
}

func (p *parser) array() (Value, error) {
	if err := p.enter(); err != nil {
		return Value{}, err
	}
	base, opened := len(p.elems), p.opened()
	p.space()
	if p.peek() == ']' {
		p.pos++
		p.depth++
		a := p.newArray()
		a.weight = p.since(opened)
		return arrayOf(a), nil
	}

	for {
		// An element, with room for those behind it as far as the text lets expect them.
		v, err := p.value()
		if err != nil {
			return Value{}, err
		}
		if len(p.elems) == cap(p.elems) {
			p.makeRoom(len(p.elems)-base, p.pos-opened.at)
		}
		p.elems = append(p.elems, v)
		p.space()

		// The end, or the next one.
		switch p.peek() {
		case ',':
			p.pos++
			p.space()
			if p.peek() == ']' {
				return Value{}, p.fail(p.pos, "there is a comma before the closing bracket")
			}
		case ']':
			p.pos++
			p.depth++

			// A long array that fills its stack keeps it; others are copied out, so that none holds more memory than it
			// needs.
			a := p.newArray()
			a.weight = p.since(opened)
			if n := len(p.elems) - base; n >= longArray && cap(p.elems)-base <= n+n/8 {
				a.elems = p.elems[base:len(p.elems):len(p.elems)] // the stack goes on elsewhere
				p.elems = p.elems[:base:base]
				return arrayOf(a), nil
			}
			a.elems = append(make([]Value, 0, len(p.elems)-base), p.elems[base:]...)
			clear(p.elems[base:])
			p.elems = p.elems[:base]
			return arrayOf(a), nil
		default:
			return Value{}, p.fail(p.pos, "expected a comma or a closing bracket")
		}
	}
}

// longArray is the number of elements from which an array is not copied from the stack, if it fills it well.
const longArray = 1024

// makeRoom makes room on the stack for the rest of an array of which n elements took so many bytes.
func (p *parser) makeRoom(n, bytes int) {
	if n >= longArray {
		left := len(p.src) - p.pos
		p.elems = slices.Grow(p.elems, 1+min(left/2, n*left/bytes))
	}
}

// slabShare is how many bytes of text there are for each container of a slab: a short text has one or two.
const slabShare = 128

func (p *parser) newObject() *object {
	if len(p.objects) == 0 {
		p.objects = make([]object, min(4, 1+len(p.src)/slabShare))
	}
	o := &p.objects[0]
	p.objects = p.objects[1:]
	return o
}

// spareMembers is how many members a slab has at most, and lookAhead is in how many of the next bytes members are
// counted to size it.
const (
	spareMembers = 16
	lookAhead    = 512
)

// cut copies the members of an object from the stack; a small object's go into a slab that it shares with its
// neighbours.
func (p *parser) cut(stacked []Member) []Member {
	n := len(stacked)
	if n > len(p.spare) {
		// The slab is for the members on the stack, whose objects are not closed yet, and for those to come: about one
		// for each colon.
		ahead := p.src[p.pos:min(len(p.src), p.pos+lookAhead)]
		slab := min(spareMembers, len(p.members)+strings.Count(ahead, ":"))
		if n > slab/2 {
			return append(make([]Member, 0, n), stacked...)
		}
		p.spare = make([]Member, slab)
	}
	members := p.spare[:n:n]
	p.spare = p.spare[n:]
	copy(members, stacked)
	return members
}

func (p *parser) newArray() *array {
	if len(p.arrays) == 0 {
		p.arrays = make([]array, min(2, 1+len(p.src)/slabShare))
	}
	a := &p.arrays[0]
	p.arrays = p.arrays[1:]
	return a
}

// peek returns the byte at the current position, 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) number() (Value, error) {
	start := p.pos
	if p.peek() == '-' {
		p.pos++
	}

	// The integer part.
	switch c := p.peek(); {
	case c == '0':
		p.pos++
		if c := p.peek(); c >= '0' && c <= '9' {
			return Value{}, p.fail(start, "a number must not start with a zero followed by more digits")
		}
	case c >= '1' && c <= '9':
		p.skipDigits()
	default:
		return Value{}, p.fail(p.pos, "expected a digit after the minus sign")
	}

	// The fraction.
	if p.peek() == '.' {
		p.pos++
		if p.skipDigits() == 0 {
			return Value{}, p.fail(p.pos, "expected a digit after the decimal point")
		}
	}

	// The exponent, which is bounded since it says how long the number is when written out.
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		first := p.pos
		if p.skipDigits() == 0 {
			return Value{}, p.fail(p.pos, "expected a digit in the exponent")
		}
		if exp, err := strconv.Atoi("0" + p.src[first:p.pos]); err != nil || exp > p.exponent {
			return Value{}, p.fail(start, "the exponent of a number must stay between -%d and %d", MaxExponent, MaxExponent)
		}
	}

	if p.pos-start > p.digits {
		return Value{}, p.fail(start, "a number may have at most %d digits", MaxDigits)
	}
	return number(p.src[start:p.pos]), nil
}

func (p *parser) skipDigits() int {
	start := p.pos
	for p.pos < len(p.src) && p.src[p.pos] >= '0' && p.src[p.pos] <= '9' {
		p.pos++
	}
	return p.pos - start
}

// string reads a string that starts at the current position. Without escapes it is a part of src.
func (p *parser) string() (string, error) {
	src, start := p.src, p.pos+1
	ascii := true
	for i := start; i < len(src); {
		// Eight bytes at a time while there is nothing to look at among them.
		if i+8 <= len(src) {
			x := eightBytes(src, i)
			hit := special(x)
			if ascii {
				hit |= x & highs
			}
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) / 8
		}

		// The end, an escape, or what no string may hold as it is.
		switch c := src[i]; {
		case c == '"':
			s := src[start:i]
			if !ascii && !utf8.ValidString(s) {
				return "", p.notUTF8(start, i)
			}
			p.pos = i + 1
			return s, nil
		case c == '\\':
			return p.escaped(start, i)
		case c < 0x20:
			return "", p.fail(i, "a string holds the control character U+%04X unescaped: write it as an escape", c)
		case c >= utf8.RuneSelf:
			ascii = false
		}
		i++
	}
	return "", p.fail(start-1, "the string has no closing quote")
}

const ones, highs = 0x0101010101010101, 0x8080808080808080

// eightBytes returns the bytes of s from i on, the first one lowest.
func eightBytes(s string, i int) uint64 {
	b := s[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// special finds the bytes that have to be escaped in a JSON string: quotes, backslashes and control characters. The
// lowest bit that is set is the highest of the first such byte; none is where there is no such byte.
func special(x uint64) uint64 {
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*0x20)&^x) & highs
}

// notUTF8 is the error for a string from start to end that has bytes that are no UTF-8.
func (p *parser) notUTF8(start, end int) error {
	for start < end {
		r, size := utf8.DecodeRuneInString(p.src[start:end])
		if r == utf8.RuneError && size == 1 {
			break
		}
		start += size
	}
	return p.fail(start, "the string is not valid UTF-8: it has the byte 0x%02X here", p.src[start])
}

// escaped reads the rest of a string from its first backslash, at i.
func (p *parser) escaped(start, i int) (string, error) {
	buf := append(make([]byte, 0, i-start+32), p.src[start:i]...)
	for i < len(p.src) {
		c := p.src[i]
		switch {
		case c == '"':
			if !utf8.Valid(buf) {
				return "", p.notUTF8(start, i)
			}
			p.pos = i + 1
			p.extra += p.pos - (start - 1) - StringSize(bytesText(buf))
			return string(buf), nil
		case c < 0x20:
			return "", p.fail(i, "a string holds the control character U+%04X unescaped: write it as an escape", c)
		case c != '\\':
			buf = append(buf, c)
			i++
			continue
		}

		// An escape.
		if i+1 >= len(p.src) {
			break
		}
		i++
		switch p.src[i] {
		case '"', '\\', '/':
			buf = append(buf, p.src[i])
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'n':
			buf = append(buf, '\n')
		case 'r':
			buf = append(buf, '\r')
		case 't':
			buf = append(buf, '\t')
		case 'u':
			r, n := p.unicode(i - 1)
			if n == 0 {
				return "", p.fail(i-1, `\u must be followed by four hexadecimal digits, and surrogates must come in pairs`)
			}
			buf = utf8.AppendRune(buf, r)
			i += n - 2
		default:
			return "", p.fail(i-1, "unknown escape in a string")
		}
		i++
	}
	return "", p.fail(start-1, "the string has no closing quote")
}

// unicode reads \uXXXX at i, or a pair of them, and returns the rune and the bytes read; 0 bytes when it is invalid.
func (p *parser) unicode(i int) (rune, int) {
	hi, ok := hex4(p.src, i)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(hi) {
		return hi, 6
	}
	lo, ok := hex4(p.src, i+6)
	if !ok {
		return 0, 0
	}
	r := utf16.DecodeRune(hi, lo)
	if r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func hex4(s string, i int) (rune, bool) {
	if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(s[i+2 : i+6]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
