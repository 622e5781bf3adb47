package value

import (
	"math/bits"
	"slices"
	"strings"
	"unsafe"
)

// Finder picks the values at a fixed set of paths out of JSON text in one pass, without building the tree around
// them. It is immutable and may be shared.
type Finder struct {
	root  *want
	paths int
	// leaves is the number of places to look at: what a scan has to find before it can stop.
	leaves int
}

// want is a node of the tree that the paths make.
type want struct {
	// outs are the paths that end here. What lies deeper is then taken from their value.
	outs  []outlet
	keys  []wantedKey
	elems []wantedElem
}

type outlet struct {
	index int
	// rest leads from the value here to the path's own: steps that need the value built, like negative indexes.
	rest []Step
}

type wantedKey struct {
	encoded string // as canonical JSON, with its quotes
	node    *want
}

type wantedElem struct {
	index int
	node  *want
}

// NewFinder returns the finder of the values at paths.
func NewFinder(paths [][]Step) *Finder {
	f := &Finder{root: new(want), paths: len(paths)}
	for i, steps := range paths {
		f.root.add(i, steps)
	}
	f.leaves = f.root.settle()
	return f
}

func (w *want) add(index int, steps []Step) {
	for i := range steps {
		s := &steps[i]
		if s.IsIndex && s.Index < 0 {
			w.outs = append(w.outs, outlet{index, steps[i:]})
			return
		}
		w = w.child(s)
	}
	w.outs = append(w.outs, outlet{index: index})
}

func (w *want) child(s *Step) *want {
	if s.IsIndex {
		for _, e := range w.elems {
			if e.index == s.Index {
				return e.node
			}
		}
		w.elems = append(w.elems, wantedElem{s.Index, new(want)})
		return w.elems[len(w.elems)-1].node
	}
	encoded := string(AppendString(nil, s.Key))
	for _, k := range w.keys {
		if k.encoded == encoded {
			return k.node
		}
	}
	w.keys = append(w.keys, wantedKey{encoded, new(want)})
	return w.keys[len(w.keys)-1].node
}

// settle moves what lies below a path's end into that end, whose value is built anyway, and returns the number of
// leaves.
func (w *want) settle() int {
	if len(w.outs) > 0 {
		w.gather(w, nil)
		w.keys, w.elems = nil, nil
		return 1
	}
	n := 0
	for _, k := range w.keys {
		n += k.node.settle()
	}
	for _, e := range w.elems {
		n += e.node.settle()
	}
	return n
}

// gather hands the outlets below w to end; path leads from end to w.
func (w *want) gather(end *want, path []Step) {
	if w != end {
		for _, o := range w.outs {
			end.outs = append(end.outs, outlet{o.index, append(slices.Clip(path), o.rest...)})
		}
	}
	for _, k := range w.keys {
		key, _ := ParseStored(k.encoded)
		k.node.gather(end, append(slices.Clip(path), Step{Key: key.Str()}))
	}
	for _, e := range w.elems {
		e.node.gather(end, append(slices.Clip(path), Step{Index: e.index, IsIndex: true}))
	}
}

// Find sets out[i] to the value at path i, or to the zero Value. out must have room for every path. src must be
// JSON as this package encodes it: compact, with the fewest escapes. The values do not keep src. Find reports false,
// with every value missing, if it comes upon something else, white space included; it does not check what is inside
// the values that it passes over. parsed is the weight of the containers that it has built.
func (f *Finder) Find(src []byte, out []Value) (parsed Weight, ok bool) {
	clear(out[:f.paths])
	if len(src) == 0 {
		return Weight{}, false
	}
	s := seeker{src: unsafe.String(unsafe.SliceData(src), len(src)), left: f.leaves, out: out}
	if s.left > 0 && !s.visit(f.root) && s.left > 0 {
		clear(out[:f.paths])
		return s.parsed, false
	}
	return s.parsed, true
}

// seeker walks over trusted JSON text. Its methods return false at the end of the search: when everything has been
// found (left is 0) or when the text is not what it should be.
type seeker struct {
	src  string
	pos  int
	left int
	out  []Value
	// parsed is the weight of the containers that were built.
	parsed Weight
}

func (s *seeker) visit(w *want) bool {
	if s.pos >= len(s.src) {
		return false
	}
	switch c := s.src[s.pos]; {
	case len(w.outs) > 0:
		return s.take(w)
	case c == '{' && len(w.keys) > 0:
		return s.members(w)
	case c == '[' && len(w.elems) > 0:
		return s.elements(w)
	default:
		// The paths lead nowhere.
		return s.skip()
	}
}

// take builds the value at the current position.
func (s *seeker) take(w *want) bool {
	start := s.pos
	if !s.skip() {
		return false
	}
	v, ok := stored(s.src[start:s.pos])
	if !ok {
		return false
	}
	if v.Kind() == Array || v.Kind() == Object {
		s.parsed = s.parsed.Plus(v.Weight())
	}
	for _, o := range w.outs {
		s.out[o.index] = v.At(o.rest)
	}
	s.left--
	return s.left > 0
}

// stored returns the value of a text without keeping the text. Plain strings and small numbers take the short way.
func stored(text string) (Value, bool) {
	switch c := text[0]; {
	case c == '"':
		if inner := text[1 : len(text)-1]; strings.IndexByte(inner, '\\') < 0 {
			return StringValue(strings.Clone(inner)), true
		}
	case c == '-' || c >= '0' && c <= '9':
		if v, ok := Whole(text); ok {
			return v, true
		}
	}
	v, err := ParseStored(strings.Clone(text))
	return v, err == nil
}

// Whole reads a whole number of few digits, as JSON writes it, without keeping the text. It reports false for every
// other text.
func Whole(text string) (Value, bool) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || len(digits) > maxInlineScale || digits[0] == '0' && len(text) > 1 {
		return Value{}, false
	}
	var n int64
	for i := range len(digits) {
		c := digits[i] - '0'
		if c > 9 {
			return Value{}, false
		}
		n = n*10 + int64(c)
	}
	if len(digits) < len(text) {
		n = -n
	}
	return decimal(n, 0), true
}

func (s *seeker) members(w *want) bool {
	s.pos++
	if s.at('}') {
		s.pos++
		return true
	}

	// The member's name, compared as it is written.
	for {
		start := s.pos
		if !s.at('"') || !s.skipString() || !s.at(':') {
			return false
		}
		key := s.src[start:s.pos]
		s.pos++

		// What is not wanted is passed over without being parsed.
		var node *want
		for i := range w.keys {
			if w.keys[i].encoded == key {
				node = w.keys[i].node
				break
			}
		}
		if node == nil {
			if !s.skip() {
				return false
			}
		} else if !s.visit(node) {
			return false
		}

		// The end, or the next member.
		if s.at('}') {
			s.pos++
			return true
		}
		if !s.at(',') {
			return false
		}
		s.pos++
	}
}

func (s *seeker) elements(w *want) bool {
	s.pos++
	if s.at(']') {
		s.pos++
		return true
	}
	for n := 0; ; n++ {
		var node *want
		for i := range w.elems {
			if w.elems[i].index == n {
				node = w.elems[i].node
				break
			}
		}
		if node == nil {
			if !s.skip() {
				return false
			}
		} else if !s.visit(node) {
			return false
		}
		if s.at(']') {
			s.pos++
			return true
		}
		if !s.at(',') {
			return false
		}
		s.pos++
	}
}

func (s *seeker) at(c byte) bool { return s.pos < len(s.src) && s.src[s.pos] == c }

// skip moves behind the value at the current position.
func (s *seeker) skip() bool {
	if s.pos >= len(s.src) {
		return false
	}
	switch s.src[s.pos] {
	case '"':
		return s.skipString()
	case '{', '[':
		return s.skipContainer()
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 't', 'f', 'n':
		for s.pos++; s.pos < len(s.src) && s.src[s.pos] != ',' && s.src[s.pos] != '}' && s.src[s.pos] != ']'; s.pos++ {
		}
		return true
	default:
		return false
	}
}

func (s *seeker) skipContainer() bool {
	depth := 0
	src := s.src
	for i := s.pos; i < len(src); i++ {
		// '[' and ']' differ from '{' and '}' in one bit, which no other byte outside of strings makes equal to them.
		switch c := src[i]; {
		case c == '"':
			s.pos = i
			if !s.skipString() {
				return false
			}
			i = s.pos - 1
		case c|0x20 == '{':
			depth++
		case c|0x20 == '}':
			depth--
			if depth == 0 {
				s.pos = i + 1
				return true
			}
		}
	}
	return false
}

// skipString moves behind the string whose opening quote is at the current position.
func (s *seeker) skipString() bool {
	src := s.src
	i := s.pos + 1
	for i < len(src) {
		// Eight bytes at a time while none of them is a quote or a backslash.
		if i+8 <= len(src) {
			x := eightBytes(src, i)
			quote, slash := x^(ones*'"'), x^(ones*'\\')
			hit := ((quote-ones)&^quote | (slash-ones)&^slash) & highs
			if hit == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(hit) / 8
		}
		switch src[i] {
		case '"':
			s.pos = i + 1
			return true
		case '\\':
			i += 2
		default:
			i++
		}
	}
	return false
}

// EachMember calls f with the encoded key, quotes included, and the text of each member of an object, in their order.
// text must be JSON as this package encodes it, which key and value are parts of. It reports false if it comes upon
// something else; it does not check what is inside the values.
func EachMember(text []byte, f func(key, value []byte)) bool {
	s := seeker{src: unsafe.String(unsafe.SliceData(text), len(text))}
	if !s.at('{') {
		return false
	}
	if s.pos++; s.at('}') {
		return true
	}
	for {
		start := s.pos
		if !s.at('"') || !s.skipString() || !s.at(':') {
			return false
		}
		colon := s.pos
		s.pos++
		if !s.skip() {
			return false
		}
		f(text[start:colon], text[colon+1:s.pos])
		if s.at('}') {
			return true
		}
		if !s.at(',') {
			return false
		}
		s.pos++
	}
}
