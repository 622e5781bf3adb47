package ecma

import (
	"fmt"
	"sync"
)

// What the patterns of one library may take together. All of it is counted before anything is built.
const (
	// maxText bounds the length in bytes of the different patterns.
	maxText = 1 << 20
	// maxRanges bounds the ranges of code points of all character sets, each set counting as setCost more, each table
	// of a property that has to be searched for as searchCost and each large set whose letters' other cases are added
	// as foldCost.
	maxRanges  = 400_000
	setCost    = 8
	foldCost   = 64
	searchCost = 8192
	// maxMemory bounds, in bytes, about what the patterns take once all of them are in use.
	maxMemory = 48 << 20
)

// Library compiles the patterns of one spec. The same text is compiled once and the same set of characters is kept
// once, and together they keep within limits, so that neither a deploy nor a start can take long or much memory.
type Library struct {
	// mu guards all that follows: patterns are made ready at their first use, while others may still be compiled.
	mu         sync.Mutex
	patterns   map[string]*Regexp
	sets       map[setKey]*set
	properties map[string]*set
	letters    []rune
	// text, ranges and memory are what is left of the limits.
	text, ranges, memory int
}

// setKey is the part of a pattern that a set was made of.
type setKey struct {
	text string
	role setRole
	fold bool
}

type setRole uint8

const (
	// roleAtom is a set that stands for itself, roleEscape a set before it becomes part of a class or an atom.
	roleAtom setRole = iota
	roleEscape
	roleDot
	roleDotAll
)

// NewLibrary returns an empty library.
func NewLibrary() *Library {
	return &Library{
		patterns: map[string]*Regexp{}, sets: map[setKey]*set{}, properties: map[string]*set{},
		text: maxText, ranges: maxRanges, memory: maxMemory,
	}
}

// LimitError reports that the patterns of a library exceed its limits together.
type LimitError struct {
	// Message begins in lower case and ends without a full stop.
	Message string
}

// Error returns the message.
func (e *LimitError) Error() string { return e.Message }

// Compile compiles a pattern. Errors are *SyntaxError and *LimitError.
func (l *Library) Compile(pattern string) (*Regexp, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if re := l.patterns[pattern]; re != nil {
		return re, nil
	}
	if len(pattern) > MaxPattern {
		return nil, &SyntaxError{Position: 1, Message: fmt.Sprintf("the pattern is longer than %d bytes", MaxPattern)}
	}
	if l.text -= len(pattern); l.text < 0 {
		return nil, &LimitError{fmt.Sprintf("they have more than %d bytes", maxText)}
	}
	p := parser{src: pattern, library: l}
	tree, err := p.parse()
	if err != nil {
		return nil, err
	}
	if l.memory -= tree.size().memory(); l.memory < 0 {
		return nil, &LimitError{fmt.Sprintf("they would take more than %d MiB of memory with all repetitions written out", maxMemory>>20)}
	}
	re := &Regexp{pattern: pattern, library: l, needless: p.needless}
	l.patterns[pattern] = re
	return re, nil
}

// tree returns the tree of a pattern that was compiled before, whose sets are all there.
func (l *Library) tree(pattern string) (tree *node, groups int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := parser{src: pattern, library: l}
	tree, err := p.parse()
	if err != nil {
		panic("ecma: a pattern that was compiled does not compile: " + err.Error())
	}
	return tree, p.groups
}

// set returns the set with the key, which build makes where it is new.
func (l *Library) set(key setKey, build func() *set) *set {
	if s := l.sets[key]; s != nil {
		return s
	}
	s := build()
	l.take(setCost + len(s.spans))
	l.sets[key] = s
	return s
}

// take takes n ranges from what is left. It stops parsing where there are not as many.
func (l *Library) take(n int) {
	if l.ranges -= n; l.ranges < 0 {
		panic(failure{&LimitError{fmt.Sprintf("their classes of characters have more than %d ranges of characters", maxRanges)}})
	}
}

// property returns the members of a Unicode property, or nil where there is none with the name.
func (l *Library) property(name string) *set {
	if s := l.properties[name]; s != nil {
		return s
	}
	found, ok := lookUpProperty(name)
	if !ok {
		return nil
	}
	s, searched := propertySet(name, found)
	if searched {
		l.take(searchCost)
	}
	l.take(setCost + len(s.spans))
	l.properties[name] = s
	return s
}

// fold returns s with the other cases of its letters.
func (l *Library) fold(s *set) *set {
	if s.isSmall() {
		return s.foldedEach()
	}
	l.take(foldCost)
	if l.letters == nil {
		l.letters = caseLetters()
	}
	return s.folded(l.letters)
}

// size is how large a pattern is: its parts and their ranges of characters, and both with all repetitions written out.
type size struct{ parts, ranges, weight, allRanges int }

// maxLinearRanges is how many ranges of characters, with all repetitions written out, a pattern for the linear engine
// may have, which may copy each.
const maxLinearRanges = 5000

func (s size) fitsLinear() bool { return s.weight <= maxLinear && s.allRanges <= maxLinearRanges }

// What a pattern takes in bytes, about.
const (
	regexpMemory      = 1536
	partMemory        = 128
	instructionMemory = 160
	rangeMemory       = 64
	copyMemory        = 8
)

func (s size) memory() int {
	n := regexpMemory
	if s.fitsLinear() {
		n += s.weight*instructionMemory + s.ranges*rangeMemory + s.allRanges*copyMemory
	}
	if !s.fitsLinear() || s.weight > smallProgram {
		n += s.parts * partMemory
	}
	return n
}

// size measures a tree. It stops counting what is above the limits of the linear engine.
func (n *node) size() size {
	total := size{parts: 1, weight: 1}
	if n.set != nil {
		total.ranges = len(n.set.spans)
		total.allRanges = total.ranges
	}
	for _, sub := range n.subs {
		s := sub.size()
		total.parts += s.parts
		total.weight = min(total.weight+s.weight, maxLinear+1)
		total.ranges = min(total.ranges+s.ranges, maxLinearRanges+1)
		total.allRanges = min(total.allRanges+s.allRanges, maxLinearRanges+1)
	}
	if n.op == opRepeat {
		times := min(max(n.min, n.max, 1), maxLinearRanges+1)
		total.weight = min(total.weight*times, maxLinear+1)
		total.allRanges = min(total.allRanges*times, maxLinearRanges+1)
	}
	return total
}
