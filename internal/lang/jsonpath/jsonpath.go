// Package jsonpath parses the paths that specs use to read events, states and bindings. Package tick follows them.
//
// A path is a root and steps. The root is "$" (the event), "@" (the state, as it is while a handler works on it) or
// "$name" (a binding); a path without one of them is a state path. docs/reference/paths.md is the language's manual.
package jsonpath

import (
	"strconv"
	"strings"

	"j17/internal/base/value"
)

// Limits of a path.
const (
	// MaxSteps is how many members and elements one path may go through.
	MaxSteps = 64
	// MaxLength is how many bytes a path may have.
	MaxLength = 1024
	// maxIndexDigits keeps element numbers within 32 bits.
	maxIndexDigits = 9
)

// Root is where a path starts.
type Root uint8

// The roots.
const (
	// Document is "$": the event, or whatever document an expression is about.
	Document Root = iota
	// Current is "@" and the root of paths without a prefix: the state.
	Current
	// Binding is "$name".
	Binding
)

// Path is a parsed path. It is immutable.
type Path struct {
	// Text is the path as it was written.
	Text string
	Root Root
	// Name is a binding's name without its "$"; empty for other roots.
	Name string
	// Steps lead from the root to the value, or to the array before the first "[*]".
	Steps []value.Step
	// Each has the steps behind every "[*]". Only ParseProjection fills it.
	Each [][]value.Step
	// Entries says that the path ends in ".$entries".
	Entries bool
	// Optional says that the path ends in "?".
	Optional bool
}

// SyntaxError says why a text is no path.
type SyntaxError struct {
	// Offset counts bytes from 0.
	Offset int
	// Message and Hint are sentences; the hint names what to write instead.
	Message string
	Hint    string
}

// Error returns the message.
func (e *SyntaxError) Error() string { return e.Message }

// IsPath reports whether a string that stands where a value is expected is meant as a path: it starts with "$", it is
// "@", or it starts with "@." or "@[".
func IsPath(text string) bool {
	if text == "" {
		return false
	}
	return text[0] == '$' || text == "@" || strings.HasPrefix(text, "@.") || strings.HasPrefix(text, "@[")
}

// Parse reads a path that starts with "$" or "@". Errors are *SyntaxError.
func Parse(text string) (Path, error) { return parse(text, false) }

// ParseProjection is Parse for projections, where "[*]" stands for every element of an array.
func ParseProjection(text string) (Path, error) { return parse(text, true) }

// ParseState reads a state path: one without a prefix. The empty path is the whole state. Errors are *SyntaxError.
func ParseState(text string) (Path, error) {
	p := parser{text: text, path: Path{Text: text, Root: Current}}
	if err := p.length(); err != nil {
		return Path{}, err
	}
	switch {
	case text == "":
		return p.path, nil
	case text[0] == '$':
		return Path{}, p.fail("leave the prefix out: a state path always starts at the state",
			"a state path has no prefix, but %s starts with \"$\"", p.quoted())
	case IsPath(text):
		return Path{}, p.fail("write "+quote(strings.TrimPrefix(text[1:], ".")),
			"a state path has no prefix, but %s starts with \"@\"", p.quoted())
	case text[0] != '[':
		if err := p.key(); err != nil {
			return Path{}, err
		}
	}
	return p.rest()
}

// ParseAny is Parse for a text that IsPath, and ParseState for every other text.
func ParseAny(text string) (Path, error) {
	if IsPath(text) {
		return Parse(text)
	}
	return ParseState(text)
}

func parse(text string, wildcards bool) (Path, error) {
	p := parser{text: text, path: Path{Text: text}, wildcards: wildcards}
	if err := p.length(); err != nil {
		return Path{}, err
	}
	switch {
	case strings.HasPrefix(text, "@"):
		p.path.Root = Current
		p.pos = 1
	case strings.HasPrefix(text, "$"):
		p.pos = 1
		p.name()
	default:
		return Path{}, p.fail(`start the path with "$." for the event or "@." for the state`,
			"%s is no path", p.quoted())
	}
	return p.rest()
}

// Entries returns the members of an object as an array of {"key", "value"} objects in their order; the zero Value for
// the zero Value and null for anything else.
func Entries(v value.Value) value.Value {
	switch {
	case v.IsMissing():
		return v
	case v.Kind() != value.Object:
		return value.NullValue()
	}
	members := v.Members()
	out := make([]value.Value, len(members))
	for i := range members {
		out[i] = value.ObjectValue(
			value.Member{Key: "key", Value: value.StringValue(members[i].Key)},
			value.Member{Key: "value", Value: members[i].Value})
	}
	return value.ArrayValue(out...)
}

// StepsText writes steps as they stand in a path: ".a.b[0]".
func StepsText(steps []value.Step) string {
	var b strings.Builder
	for i := range steps {
		if steps[i].IsIndex {
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(steps[i].Index))
			b.WriteByte(']')
			continue
		}
		b.WriteByte('.')
		b.WriteString(steps[i].Key)
	}
	return b.String()
}
