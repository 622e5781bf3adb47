// Package diag collects the findings of the compilers of a spec's languages: every finding has a place, a sentence and,
// where there is one, a way out.
package diag

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"j17/internal/base/value"
)

// Severity distinguishes findings that forbid a deploy from those that do not.
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

// MarshalText returns what String returns.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Pointer is a JSON pointer (RFC 6901) into a spec; "" is the whole document.
type Pointer string

// Key returns the pointer to a member of the object that p names; with further keys, to a member within that one.
func (p Pointer) Key(key string, within ...string) Pointer {
	if len(within) == 1 && !escaped(key) && !escaped(within[0]) {
		return p + "/" + Pointer(key) + "/" + Pointer(within[0])
	}
	if escaped(key) {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
	}
	p += "/" + Pointer(key)
	for _, w := range within {
		p = p.Key(w)
	}
	return p
}

// escaped reports whether a key has characters that stand for others in pointers.
func escaped(key string) bool {
	return strings.IndexByte(key, '~') >= 0 || strings.IndexByte(key, '/') >= 0
}

// Index returns the pointer to an element of the array that p names.
func (p Pointer) Index(i int) Pointer { return p + "/" + Pointer(strconv.Itoa(i)) }

// Steps returns the keys and indexes that p is made of, unescaped.
func (p Pointer) Steps() []string {
	if p == "" {
		return nil
	}
	steps := strings.Split(strings.TrimPrefix(string(p), "/"), "/")
	for i, s := range steps {
		steps[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return steps
}

// Diagnostic is one finding. Its JSON is what commands print with --json and tools for assistants return.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Pointer  Pointer  `json:"pointer"`
	// OnKey places the finding at the member's key rather than at its value.
	OnKey bool `json:"-"`
	// Line and Column count from 1. The compiler of the whole spec fills them in.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message is a sentence that says what is wrong, Hint what to do about it. Both begin in lower case and end
	// without a full stop, to be shown after a place.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Message is a kind of finding as tables of messages have it: a severity, a colon, the text and, on a second line, the
// hint if there is one. The severity is "error", "warning", or "error unless stored", which is a warning where
// List.Stored is set; with " at key" the finding is placed at the key of a member. Text and hint are formats of package
// fmt for the arguments of Report, in which %q quotes a text and cuts it where it is long, and %+q quotes all of it. A
// format that does not have all arguments in their order names them, as in %[2]q.
type Message string

// String returns the finding in one line: place, message and hint.
func (d Diagnostic) String() string {
	s := fmt.Sprintf("%d:%d %s: %s", d.Line, d.Column, d.Severity, d.Message)
	if d.Hint != "" {
		s += " (" + d.Hint + ")"
	}
	return s
}

// Count returns how many errors and how many warnings there are.
func Count(found []Diagnostic) (errors, warnings int) {
	for i := range found {
		if found[i].Severity == Error {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// MaxKept is how many findings of each severity a List keeps. A hostile spec has a fault every few bytes.
const MaxKept = 1000

// List gathers findings. The zero List is ready for use.
type List struct {
	// Stored reports that the document was accepted before: errors that a later version of the program has introduced
	// for things that have a meaning become warnings.
	Stored bool

	found            []Diagnostic
	errors, warnings int
	// searches counts searches for what may have been meant, letters what they have cost.
	searches, letters int
	// spare takes what is not kept.
	spare Diagnostic
}

// Errorf adds an error at p and returns it, so that a hint can be added.
func (l *List) Errorf(p Pointer, format string, args ...any) *Diagnostic {
	return l.say(l.add(Error, p), format, args)
}

// Warnf adds a warning at p and returns it, so that a hint can be added.
func (l *List) Warnf(p Pointer, format string, args ...any) *Diagnostic {
	return l.say(l.add(Warning, p), format, args)
}

// Report adds the finding that m is at p, with args in its text and its hint, and returns it.
func (l *List) Report(p Pointer, m Message, args ...any) *Diagnostic {
	head, rest, _ := strings.Cut(string(m), ": ")
	text, hint, _ := strings.Cut(rest, "\n")
	head, onKey := strings.CutSuffix(head, " at key")
	severity := Error
	if head == "warning" || head == "error unless stored" && l.Stored {
		severity = Warning
	}
	d := l.add(severity, p)
	if d == &l.spare {
		return d
	}
	d.OnKey = onKey
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
		if s, ok := a.(string); ok {
			words[i] = word(s)
		}
	}
	d.Message, d.Hint = filled(text, words), filled(hint, words)
	return d
}

// filled inserts arguments into a text. A text without a verb takes none.
func filled(text string, args []any) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return fmt.Sprintf(text, args...)
}

// word is a text that a message repeats.
type word string

// Format implements fmt.Formatter: see Message.
func (w word) Format(s fmt.State, verb rune) {
	text := string(w)
	switch {
	case verb == 'q' && s.Flag('+'):
		text = strconv.Quote(text)
	case verb == 'q':
		text = Quote(text)
	}
	_, _ = io.WriteString(s, text)
}

func (l *List) add(s Severity, p Pointer) *Diagnostic {
	n := &l.errors
	if s == Warning {
		n = &l.warnings
	}
	if *n++; *n > MaxKept {
		l.spare = Diagnostic{}
		return &l.spare
	}
	l.found = append(l.found, Diagnostic{Severity: s, Pointer: p})
	return &l.found[len(l.found)-1]
}

func (l *List) say(d *Diagnostic, format string, args []any) *Diagnostic {
	if d != &l.spare {
		d.Message = fmt.Sprintf(format, args...)
	}
	return d
}

// Hintf sets the hint. It must be called before the next finding is added to the list.
func (d *Diagnostic) Hintf(format string, args ...any) *Diagnostic {
	d.Hint = fmt.Sprintf(format, args...)
	return d
}

// AtKey places the finding at the member's key.
func (d *Diagnostic) AtKey() *Diagnostic {
	d.OnKey = true
	return d
}

// All returns the findings that were kept, in the order in which they were made.
func (l *List) All() []Diagnostic { return l.found }

// Full reports whether further errors are only counted, so that there is no use in working out their text.
func (l *List) Full() bool { return l.errors >= MaxKept }

// FullOfWarnings reports the same of warnings.
func (l *List) FullOfWarnings() bool { return l.warnings >= MaxKept }

// Errors returns the number of findings that are errors, kept or not.
func (l *List) Errors() int { return l.errors }

// Dropped returns the number of findings that were not kept.
func (l *List) Dropped() int { return max(0, l.errors-MaxKept) + max(0, l.warnings-MaxKept) }

// maxQuoted is how many bytes of foreign text a message repeats.
const maxQuoted = 64

// Quote returns s in double quotes for use in a message: escaped, and cut when it is long.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "") + "...")
}

// QuoteValue returns a value as JSON for use in a message, cut when it is long.
func QuoteValue(v value.Value) string {
	if v.Kind() == value.String {
		return Quote(v.Str())
	}
	const most = 40
	s := v.String()
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// Join joins words as a sentence does, with "and" or "or" before the last one.
func Join(words []string, and string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " " + and + " " + words[last]
}
