// Package ecma matches text against the regular expressions of ECMA-262 under the flag u, which is what JSON Schema
// means by a pattern. A match reports only whether there is one: a pattern is not anchored and has no flags of its own.
//
// A pattern without look-around and back-references describes a regular language. It is rewritten for the standard
// library's regexp, whose time is linear in the text. Every class is spelled out as ranges of code points on the way,
// so the two languages cannot differ in what \s, \w, a dot or \p{...} mean, and since only the existence of a match is
// asked for, the preference of one match over another, where they do differ, does not matter. All other patterns, and
// those with very large counted repetitions, run on a backtracking matcher that counts its steps and gives up in time.
package ecma

import (
	"fmt"
	"math"
	"regexp"
	"sync"
	"unicode/utf8"

	"j17/internal/base/work"
)

// MaxPattern is the length in bytes from which a pattern is too long for Compile.
const MaxPattern = 8192

// maxNesting is how deep groups may nest.
const maxNesting = 200

// SyntaxError says why a pattern is none.
type SyntaxError struct {
	// Position counts characters of the pattern from 1.
	Position int
	// Message says what is wrong; Hint, which may be empty, what to write instead. Both begin in lower case and end
	// without a full stop.
	Message, Hint string
}

// Error returns the message and its place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("character %d: %s", e.Position, e.Message)
}

// Regexp is a compiled pattern. It may be used by any number of goroutines. What it takes to match is made at the first
// use: most patterns of most specs are not used soon.
type Regexp struct {
	pattern  string
	library  *Library
	needless *SyntaxError
	ready    sync.Once
	// straight is nil for patterns that have no straight form; those that have one need nothing else.
	straight *straight
	// linear is nil for patterns that only the backtracking matcher can run.
	linear *regexp.Regexp
	// weight is the number of instructions of linear.
	weight int
	// program is nil for patterns that linear runs best.
	program  *program
	machines sync.Pool
}

// makeReady makes what it takes to match.
func (re *Regexp) makeReady() {
	tree, groups := re.library.tree(re.pattern)
	if re.straight = straightened(tree); re.straight != nil {
		return
	}
	re.linear, re.weight = linear(tree)
	if re.linear == nil || re.weight > smallProgram {
		re.program = assemble(tree, groups)
	}
}

// Valid reports whether text is a pattern, without any needless escape.
func Valid(text string) bool {
	p := parser{src: text}
	_, err := p.parse()
	return err == nil
}

// Needless returns what is wrong with the first escape of a punctuation mark that needs none and that ECMA-262 does not
// know, such as \@; nil where there is none. Patterns with such escapes are compiled all the same: \@ means what @
// does.
func (re *Regexp) Needless() *SyntaxError { return re.needless }

// String returns the pattern.
func (re *Regexp) String() string { return re.pattern }

const (
	// smallProgram is the number of instructions up to which the linear engine is also the fastest.
	smallProgram = 500
	// stepsPerChar bounds what the backtracking matcher may try before the linear engine takes over.
	stepsPerChar = 16
	// straightShare is how many bytes a straight pattern looks at in the time of one step.
	straightShare = 4
	// linearShare is how many instructions the linear engine executes in the time of one step.
	linearShare = 4
)

// Match reports whether s, which is valid UTF-8, holds a match. It takes what that costs from the budget, at least one
// unit. When the budget is used up the match has been given up, and the result means nothing.
func (re *Regexp) Match(s string, b *work.Budget) bool {
	if !b.Spend(1) {
		return false
	}
	re.ready.Do(re.makeReady)
	if re.straight != nil {
		return b.Spend(len(s)/straightShare) && re.straight.match(s)
	}
	if re.program != nil {
		allowed := math.MaxInt
		if re.linear != nil {
			allowed = (len(s) + 4) * stepsPerChar
		}
		matched, done := re.backtrack(s, allowed, b)
		switch {
		case done:
			return matched
		case re.linear == nil: // where the matcher's stack was too small, more work is no help
			b.Spend(int(b.Left()) + 1)
			return false
		}
	}
	return b.Spend(len(s)*re.weight/linearShare) && re.linear.MatchString(s)
}

// backtrack runs the backtracking matcher for at most the allowed steps. It reports whether it came to an end.
func (re *Regexp) backtrack(s string, allowed int, b *work.Budget) (matched, done bool) {
	m, ok := re.machines.Get().(*machine)
	if !ok {
		m = &machine{program: re.program, slots: make([]int, re.program.slots)}
	}
	m.text = s
	m.begin(allowed, b)
	matched = m.search()
	done = m.end()
	m.text, m.budget = "", nil
	if cap(m.stack) <= maxKeptStack {
		re.machines.Put(m)
	}
	return matched, done
}

func runeAt(s string, i int) (rune, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeRuneInString(s[i:])
}

func runeBefore(s string, i int) (rune, int) {
	if c := s[i-1]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	return utf8.DecodeLastRuneInString(s[:i])
}
