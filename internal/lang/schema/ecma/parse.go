package ecma

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2/syntax"
)

type op uint8

const (
	opEmpty op = iota
	opSet
	opCat
	opAlt
	opCapture
	opBackref
	opRepeat
	opBegin
	opEnd
	opWord
	opNotWord
	opLook
)

// node is one part of a parsed pattern.
type node struct {
	op   op
	set  *set    // opSet
	subs []*node // opCat, opAlt; one for opCapture, opRepeat, opLook
	// group is the number of an opCapture.
	group int
	// groups are what an opBackref may refer to: several where alternatives share a name.
	groups []int
	// min and max bound an opRepeat; max is unbounded where there is none. firstGroup and endGroup enclose the
	// groups inside it.
	min, max             int
	lazy                 bool
	firstGroup, endGroup int
	// behind and negative distinguish the four kinds of opLook.
	behind, negative bool
	// ignoreCase (opBackref, opWord, opNotWord) and multiline (opBegin, opEnd) come from flags.
	ignoreCase, multiline bool
}

const (
	// unbounded is the maximum of a repetition without one.
	unbounded = -1
	// maxCount stands for every larger number in a repetition: no text is that long.
	maxCount = 1 << 30
)

type flags struct{ ignoreCase, multiline, dotAll bool }

// parser reads one pattern by recursive descent over the grammar of ECMA-262, 22.2.1, with [UnicodeMode] and
// [NamedCaptureGroups] and the early errors of 22.2.1.1.
type parser struct {
	src string
	pos int
	// library has the sets. Without one the pattern is only checked: no tree is built, and needless escapes are
	// refused.
	library *Library
	// only is the node that stands for all nodes where no tree is needed, unread the set that does.
	only     node
	unread   set
	needless *SyntaxError
	depth    int
	flags    flags
	groups   int
	names    map[string][]namedGroup
	named    int
	// path names the alternative that is being read in each enclosing disjunction.
	path         []alternative
	disjunctions int
	refs         []reference
	known        map[string]bool
}

type alternative struct{ disjunction, index int }

type namedGroup struct {
	group int
	path  []alternative
}

// reference is a back-reference whose group may follow later in the pattern.
type reference struct {
	node   *node
	pos    int
	name   string
	number int
}

// failure is why parsing stopped.
type failure struct{ err error }

// fail stops parsing: parse recovers it.
func (p *parser) fail(at int, hint, format string, args ...any) {
	panic(failure{p.syntaxError(at, hint, format, args...)})
}

func (p *parser) syntaxError(at int, hint, format string, args ...any) *SyntaxError {
	return &SyntaxError{
		Position: utf8.RuneCountInString(p.src[:at]) + 1, Message: fmt.Sprintf(format, args...), Hint: hint,
	}
}

func (p *parser) parse() (tree *node, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			tree, err = nil, r.err
		default:
			panic(r)
		}
	}()
	tree = p.disjunction()
	if p.pos < len(p.src) { // only a closing parenthesis ends a disjunction early
		p.fail(p.pos, `write \) for the character itself`, "there is a closing parenthesis without an opening one")
	}
	p.resolve()
	return tree, nil
}

// resolve connects the back-references with their groups.
func (p *parser) resolve() {
	named := make(map[string][]int, len(p.names))
	for name, groups := range p.names {
		for _, g := range groups {
			named[name] = append(named[name], g.group)
		}
	}
	for _, r := range p.refs {
		switch {
		case r.name != "":
			if named[r.name] == nil {
				p.fail(r.pos, "", "there is no group with the name %.40q", r.name)
			}
			r.node.groups = named[r.name]
		case r.number > p.groups:
			p.fail(r.pos, "", `there is no group %d to refer to`, r.number)
		default:
			r.node.groups = []int{r.number}
		}
	}
}

func (p *parser) more() bool { return p.pos < len(p.src) }

// peek returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.more() {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) accept(prefix string) bool {
	if strings.HasPrefix(p.src[p.pos:], prefix) {
		p.pos += len(prefix)
		return true
	}
	return false
}

func (p *parser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return r
}

func (p *parser) disjunction() *node {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.pos, "", "groups are nested more than %d levels deep", maxNesting)
	}
	p.disjunctions++
	level := len(p.path)
	p.path = append(p.path, alternative{disjunction: p.disjunctions})
	first := p.alternative()
	alternatives := []*node{first}
	for p.accept("|") {
		p.path[level].index++
		if next := p.alternative(); p.library != nil {
			alternatives = append(alternatives, next)
		}
	}
	p.path = p.path[:level]
	p.depth--
	if len(alternatives) == 1 {
		return first
	}
	return &node{op: opAlt, subs: alternatives}
}

// leaf returns a new node with a set.
func (p *parser) leaf(s *set) *node {
	if p.library == nil {
		return &p.only
	}
	return &node{op: opSet, set: s}
}

func (p *parser) alternative() *node {
	var terms []*node
	for p.more() && p.peek() != '|' && p.peek() != ')' {
		if term := p.term(); p.library != nil {
			terms = append(terms, term)
		}
	}
	switch len(terms) {
	case 0:
		if p.library == nil {
			return &p.only
		}
		return &node{op: opEmpty}
	case 1:
		return terms[0]
	default:
		return &node{op: opCat, subs: terms}
	}
}

func (p *parser) term() *node {
	start, first := p.pos, p.groups+1
	n := p.atom()
	switch p.peek() {
	case '*', '+', '?', '{':
	default:
		return n
	}
	quantifier := p.pos
	low, high := p.quantifier()
	if isAssertion(p.src[start:quantifier]) {
		p.fail(quantifier, "", "an assertion cannot be repeated")
	}
	lazy := p.accept("?")
	if c := p.peek(); c == '*' || c == '+' || c == '?' || c == '{' {
		hint := "put the part that is repeated in a group: (?:...)"
		if c == '+' {
			hint = "ECMA-262 has no possessive repetition: leave the + out"
		}
		p.fail(p.pos, hint, "a repetition cannot be repeated")
	}
	if p.library == nil {
		return n
	}
	return &node{
		op: opRepeat, subs: []*node{n}, min: low, max: high, lazy: lazy,
		firstGroup: first, endGroup: p.groups + 1,
	}
}

// isAssertion reports whether a term consumes nothing; the grammar does not allow such a term to repeat.
func isAssertion(term string) bool {
	for _, prefix := range []string{"^", "$", `\b`, `\B`, "(?=", "(?!", "(?<=", "(?<!"} {
		if strings.HasPrefix(term, prefix) {
			return true
		}
	}
	return false
}

func (p *parser) quantifier() (low, high int) {
	start := p.pos
	switch c := p.src[p.pos]; c {
	case '*':
		p.pos++
		return 0, unbounded
	case '+':
		p.pos++
		return 1, unbounded
	case '?':
		p.pos++
		return 0, 1
	}

	// A brace: a number, a number and more, or two numbers.
	const hint = `write \{ for the character itself`
	p.pos++
	low, ok := p.number()
	if !ok {
		p.fail(start, hint, "a brace must enclose a number of repetitions, such as {2}, {2,} or {2,5}")
	}
	high = low
	if p.accept(",") {
		if high, ok = p.number(); !ok {
			high = unbounded
		}
	}

	if !p.accept("}") {
		p.fail(start, hint, "a brace must enclose a number of repetitions, such as {2}, {2,} or {2,5}")
	}
	if high != unbounded && high < low {
		p.fail(start, "", "the numbers of a repetition are out of order")
	}
	return low, high
}

// number reads digits. Numbers above maxCount count as maxCount.
func (p *parser) number() (n int, ok bool) {
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		n, ok = min(n*10+int(c-'0'), maxCount), true
		p.pos++
	}
	return n, ok
}

func (p *parser) atom() *node {
	start := p.pos
	switch c := p.src[p.pos]; c {
	case '^':
		p.pos++
		return &node{op: opBegin, multiline: p.flags.multiline}
	case '$':
		p.pos++
		return &node{op: opEnd, multiline: p.flags.multiline}
	case '.':
		p.pos++
		return p.leaf(p.dot())
	case '(':
		return p.group()
	case '[':
		return p.leaf(p.class())
	case '\\':
		return p.escape()
	case '*', '+', '?':
		p.fail(start, fmt.Sprintf(`write \%c for the character itself`, c), "there is nothing before the %c that could be repeated", c)
	case '{', '}', ']':
		p.fail(start, fmt.Sprintf(`write \%c`, c), "the character %c has to be escaped", c)
	}
	return p.leaf(p.char(start, p.rune()))
}

func (p *parser) dot() *set {
	if p.library == nil {
		return nil
	}
	if p.flags.dotAll {
		return p.library.set(setKey{role: roleDotAll}, anySet)
	}
	return p.library.set(setKey{role: roleDot}, func() *set { return lineTerminators().complement() })
}

// char returns the set of one character, whose text begins at start and ends here, and, where case is ignored, of its
// relatives.
func (p *parser) char(start int, r rune) *set {
	return p.atomSet(start, func() *set { return single(r) }, false)
}

// atomSet returns the set of the atom whose text begins at start and ends here: what build makes and, where case is
// ignored, the other cases of its letters; of all that the complement, where it is negated.
func (p *parser) atomSet(start int, build func() *set, negated bool) *set {
	if p.library == nil {
		return nil
	}
	return p.library.set(setKey{p.src[start:p.pos], roleAtom, p.flags.ignoreCase}, func() *set {
		s := build()
		if p.flags.ignoreCase {
			s = p.library.fold(s)
		}
		if negated {
			s = s.complement()
		}
		return s
	})
}

func (p *parser) group() *node {
	start := p.pos
	outer := p.flags
	var n *node
	switch {
	case p.accept("(?:"):
		n = p.disjunction()
	case p.accept("(?="):
		n = p.look(false, false)
	case p.accept("(?!"):
		n = p.look(false, true)
	case p.accept("(?<="):
		n = p.look(true, false)
	case p.accept("(?<!"):
		n = p.look(true, true)
	case p.accept("(?<"):
		name := p.groupName(start)
		p.declare(name, start)
		n = p.capture()
	case p.accept("(?"):
		p.flags = p.modifiers(start)
		n = p.disjunction()
	default:
		p.pos++
		n = p.capture()
	}
	p.flags = outer
	if !p.accept(")") {
		p.fail(start, `write \( for the character itself`, "the group has no closing parenthesis")
	}
	return n
}

func (p *parser) look(behind, negative bool) *node {
	return &node{op: opLook, subs: []*node{p.disjunction()}, behind: behind, negative: negative}
}

func (p *parser) capture() *node {
	p.groups++
	n := &node{op: opCapture, group: p.groups}
	n.subs = []*node{p.disjunction()}
	return n
}

// modifiers reads the flags of (?ims-ims:...).
func (p *parser) modifiers(start int) flags {
	f := p.flags
	value, seen := true, ""
	for p.more() {
		switch c := p.src[p.pos]; {
		case c == ':' && seen != "" && seen != "-":
			p.pos++
			return f
		case c == '-' && value:
			value = false
			seen += "-"
		case (c == 'i' || c == 'm' || c == 's') && !strings.ContainsRune(seen, rune(c)):
			seen += string(c)
			switch c {
			case 'i':
				f.ignoreCase = value
			case 'm':
				f.multiline = value
			default:
				f.dotAll = value
			}
		default:
			p.fail(start, p.groupHint(start), "there is no group that starts with %s", p.head(start))
		}
		p.pos++
	}
	p.fail(start, "", "the group has no closing parenthesis")
	return f
}

// head returns the start of a group for a message: up to four characters.
func (p *parser) head(start int) string {
	s := p.src[start:]
	end := 0
	for range 4 {
		if end < len(s) {
			_, n := utf8.DecodeRuneInString(s[end:])
			end += n
		}
	}
	return s[:end]
}

func (p *parser) groupHint(start int) string {
	switch s := p.src[start:]; {
	case strings.HasPrefix(s, "(?P<"):
		return "a named group is written (?<name>...)"
	case strings.HasPrefix(s, "(?P="):
		return `a reference to a named group is written \k<name>`
	case strings.HasPrefix(s, "(?#"):
		return "ECMA-262 has no comments in patterns: say it in $comment"
	case strings.HasPrefix(s, "(?>"):
		return "ECMA-262 has no atomic groups: use (?:...)"
	default:
		return "ECMA-262 has no flags for a whole pattern; (?i:...) ignores case inside the group"
	}
}

// groupName reads a name and the > after it.
func (p *parser) groupName(start int) string {
	var name []rune
	for p.more() {
		at := p.pos
		r := p.rune()
		if r == '>' && len(name) > 0 {
			return string(name)
		}
		if r == '\\' {
			if !p.accept("u") {
				p.fail(at, "", `a name can hold no escape but \u`)
			}
			r = p.unicodeEscape(at)
		}
		valid := r == '$' || r == '_' || syntax.IsECMAIdentifierStartChar(r)
		if len(name) > 0 {
			valid = valid || r == 0x200C || r == 0x200D || syntax.IsECMAIdentifierChar(r)
		}
		if !valid {
			p.fail(at, "a name has letters, digits, _ and $, and starts with no digit", "the name of a group cannot hold %q here", r)
		}
		name = append(name, r)
	}
	p.fail(start, "", "the name of the group has no closing >")
	return ""
}

// Limits of the groups with names: those that share one are compared with each other.
const (
	maxNamed   = 500
	maxSharing = 20
)

// declare records the name of the group that starts here. Two groups may share a name only when they stand in
// different alternatives, so that at most one of them takes part in a match.
func (p *parser) declare(name string, start int) {
	if len(p.names[name]) == maxSharing {
		p.fail(start, "", "at most %d groups of a pattern can share a name", maxSharing)
	}
	for _, other := range p.names[name] {
		if !exclusive(other.path, p.path) {
			p.fail(start, "", "there are two groups with the name %.40q", name)
		}
	}
	if p.names == nil {
		p.names = map[string][]namedGroup{}
	}
	if p.named++; p.named > maxNamed {
		p.fail(start, "", "a pattern can have at most %d groups with names", maxNamed)
	}
	p.names[name] = append(p.names[name], namedGroup{p.groups + 1, append([]alternative(nil), p.path...)})
}

func exclusive(a, b []alternative) bool {
	for i := range min(len(a), len(b)) {
		if a[i].disjunction != b[i].disjunction {
			return false
		}
		if a[i].index != b[i].index {
			return true
		}
	}
	return false
}
