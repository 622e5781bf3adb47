package ecma

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	// maxLinear is the number of instructions above which a pattern is not given to the linear engine, whose memory
	// and time grow with it.
	maxLinear = 5000
	// maxLinearCount is the largest number of repetitions that package regexp accepts.
	maxLinearCount = 1000
	// maxRewritten is the length of a rewritten pattern above which it would take too long to compile.
	maxRewritten = 1 << 20
)

// linear rewrites a pattern for package regexp and returns it with the number of its instructions, or nil where the
// pattern is not regular or too large.
func linear(tree *node) (*regexp.Regexp, int) {
	size := tree.size()
	if !size.fitsLinear() {
		return nil, 0
	}
	var b strings.Builder
	if !tree.rewrite(&b) {
		return nil, 0
	}
	re, err := regexp.Compile(b.String())
	if err != nil { // repetitions that are too large only when multiplied
		return nil, 0
	}
	return re, size.weight
}

// rewrite appends n in the syntax of package regexp. It reports false for what that cannot express.
func (n *node) rewrite(b *strings.Builder) bool {
	if b.Len() > maxRewritten {
		return false
	}
	switch n.op {
	case opEmpty:
	case opSet:
		n.set.rewrite(b)
	case opCat:
		for _, sub := range n.subs {
			if !sub.rewrite(b) {
				return false
			}
		}
	case opAlt:
		b.WriteString("(?:")
		for i, sub := range n.subs {
			if i > 0 {
				b.WriteByte('|')
			}
			if !sub.rewrite(b) {
				return false
			}
		}
		b.WriteByte(')')
	case opCapture:
		// Only whether there is a match is asked for, not where.
		return n.subs[0].rewrite(b)
	case opRepeat:
		return n.rewriteRepeat(b)
	case opBegin, opEnd:
		if n.multiline { // package regexp knows only one line terminator
			return false
		}
		if n.op == opBegin {
			b.WriteString(`\A`)
		} else {
			b.WriteString(`\z`)
		}
	case opWord, opNotWord:
		if n.ignoreCase { // two more word characters than package regexp knows
			return false
		}
		if n.op == opWord {
			b.WriteString(`\b`)
		} else {
			b.WriteString(`\B`)
		}
	case opBackref, opLook:
		// These take more than linear time, so that package regexp has none of them.
		return false
	}
	return true
}

func (n *node) rewriteRepeat(b *strings.Builder) bool {
	if max(n.min, n.max) > maxLinearCount {
		return false
	}
	b.WriteString("(?:")
	if !n.subs[0].rewrite(b) {
		return false
	}
	b.WriteByte(')')
	switch {
	case n.min == 0 && n.max == unbounded:
		b.WriteByte('*')
	case n.min == 1 && n.max == unbounded:
		b.WriteByte('+')
	case n.min == 0 && n.max == 1:
		b.WriteByte('?')
	case n.max == unbounded:
		fmt.Fprintf(b, "{%d,}", n.min)
	default:
		fmt.Fprintf(b, "{%d,%d}", n.min, n.max)
	}
	return true
}

func (s *set) rewrite(b *strings.Builder) {
	if len(s.spans) == 1 && s.spans[0].lo == s.spans[0].hi {
		fmt.Fprintf(b, `\x{%x}`, s.spans[0].lo)
		return
	}
	if len(s.spans) == 0 {
		s = anySet()
		b.WriteString("[^")
	} else {
		b.WriteByte('[')
	}
	for _, sp := range s.spans {
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, sp.lo, sp.hi)
	}
	b.WriteByte(']')
}
