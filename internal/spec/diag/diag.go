// Package diag collects what the compilers of a spec's languages have to say about it: every finding has a place,
// a sentence and, where there is one, a way out.
package diag

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Severity tells findings that forbid a deploy from those that do not.
type Severity uint8

// The severities.
const (
	Error Severity = iota
	Warning
)

// String returns "error" or "warning".
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Pointer is a JSON pointer (RFC 6901) into a spec; "" is the whole document.
type Pointer string

// Key returns the pointer to a member of the object that p names.
func (p Pointer) Key(key string) Pointer {
	key = strings.ReplaceAll(key, "~", "~0")
	return p + "/" + Pointer(strings.ReplaceAll(key, "/", "~1"))
}

// Index returns the pointer to an element of the array that p names.
func (p Pointer) Index(i int) Pointer { return p + "/" + Pointer(strconv.Itoa(i)) }

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity
	Pointer  Pointer
	// OnKey places the finding at the member's key rather than at its value.
	OnKey bool
	// Line and Column count from 1. The compiler of the whole spec fills them in.
	Line, Column int
	// Message is a sentence that says what is wrong, Hint what to do about it.
	Message string
	Hint    string
}

// List gathers findings. The zero List is ready for use.
type List struct{ found []Diagnostic }

// Errorf adds an error at p and returns it, so that a hint can be added.
func (l *List) Errorf(p Pointer, format string, args ...any) *Diagnostic {
	l.found = append(l.found, Diagnostic{Pointer: p, Message: fmt.Sprintf(format, args...)})
	return &l.found[len(l.found)-1]
}

// Warnf adds a warning at p and returns it, so that a hint can be added.
func (l *List) Warnf(p Pointer, format string, args ...any) *Diagnostic {
	d := l.Errorf(p, format, args...)
	d.Severity = Warning
	return d
}

// Hintf sets the hint. The diagnostic must not have been followed by another one yet.
func (d *Diagnostic) Hintf(format string, args ...any) *Diagnostic {
	d.Hint = fmt.Sprintf(format, args...)
	return d
}

// AtKey places the finding at the member's key.
func (d *Diagnostic) AtKey() *Diagnostic {
	d.OnKey = true
	return d
}

// All returns the findings in the order in which they were made.
func (l *List) All() []Diagnostic { return l.found }

// Errors returns the number of findings that are errors.
func (l *List) Errors() int {
	n := 0
	for i := range l.found {
		if l.found[i].Severity == Error {
			n++
		}
	}
	return n
}

// UnknownKey adds the error for a key that means nothing at that place, with the nearest known key as its hint.
func (l *List) UnknownKey(object Pointer, key string, known []string) {
	d := l.Errorf(object.Key(key), "unknown key %q", key).AtKey()
	if near := Nearest(key, known); near != "" {
		d.Hintf("did you mean %q?", near)
	} else if len(known) > 0 {
		sorted := slices.Sorted(slices.Values(known))
		d.Hintf("known keys here are %s", strings.Join(sorted, ", "))
	}
}

// Nearest returns the candidate that most likely was meant by word, "" when none is close.
func Nearest(word string, candidates []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, last, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j]+cost, last[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, last, next = last, next, before
	}
	return last[len(b)]
}
