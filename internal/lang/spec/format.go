package spec

import (
	"strings"
	"unicode/utf8"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// lineWidth is how many characters a line may have that holds a whole array or object.
const lineWidth = 100

const indentation = "  "

// Format returns a JSON text in the form that specs are kept in: two spaces a level, and an array or an object on one
// line where it fits into 100 columns. The outermost one always has a line for each part. Keys keep their order and
// numbers their text; strings are written with the fewest escapes. Formatting a formatted text changes nothing. The
// text need not be a valid spec; if it is no JSON, the finding says where.
func Format(src []byte) ([]byte, []diag.Diagnostic) {
	v, err := value.Parse(src)
	if err != nil {
		return nil, []diag.Diagnostic{syntaxError(string(src), err)}
	}
	return FormatValue(v), nil
}

// FormatValue is Format for a value.
func FormatValue(v value.Value) []byte {
	var f formatter
	if v.Len() > 0 {
		f.parts(v, 0)
	} else {
		f.line(v)
	}
	f.b.WriteByte('\n')
	return []byte(f.b.String())
}

type formatter struct {
	b strings.Builder
	// column is the number of characters on the line so far.
	column int
}

func (f *formatter) write(s string) {
	f.b.WriteString(s)
	f.column += utf8.RuneCountInString(s)
}

func (f *formatter) newLine(level int) {
	f.b.WriteByte('\n')
	f.column = 0
	f.write(strings.Repeat(indentation, level))
}

// value writes v, on one line if that leaves room for after, the number of characters that follow it there.
func (f *formatter) value(v value.Value, level, after int) {
	if v.Len() == 0 || fits(v, lineWidth-f.column-after) >= 0 {
		f.line(v)
		return
	}
	f.parts(v, level)
}

// parts writes an array or an object that is not empty with a line for each part.
func (f *formatter) parts(v value.Value, level int) {
	members := v.Members()
	open, end := "[", "]"
	if v.Kind() == value.Object {
		open, end = "{", "}"
	}
	f.write(open)
	last := v.Len() - 1
	for i := range last + 1 {
		f.newLine(level + 1)
		part := v.Index(i)
		if members != nil {
			f.write(quoted(members[i].Key) + ": ")
			part = members[i].Value
		}
		after := 1
		if i == last {
			after = 0
		}
		f.value(part, level+1, after)
		if i < last {
			f.write(",")
		}
	}
	f.newLine(level)
	f.write(end)
}

// line writes v on one line.
func (f *formatter) line(v value.Value) {
	switch v.Kind() {
	case value.Array:
		f.write("[")
		for i, e := range v.Elems() {
			if i > 0 {
				f.write(", ")
			}
			f.line(e)
		}
		f.write("]")
	case value.Object:
		f.write("{")
		for i, m := range v.Members() {
			if i > 0 {
				f.write(", ")
			}
			f.write(quoted(m.Key) + ": ")
			f.line(m.Value)
		}
		f.write("}")
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
		f.write(v.OrNull().String())
	}
}

// fits returns what is left of room when v is written on one line, a negative number where it does not fit.
func fits(v value.Value, room int) int {
	if room < 0 {
		return room
	}
	switch v.Kind() {
	case value.Array, value.Object:
		room -= len("[]") + max(0, v.Len()-1)*len(", ")
		for _, m := range v.Members() {
			if room -= utf8.RuneCountInString(quoted(m.Key)) + len(": "); room < 0 {
				return room
			}
			if room = fits(m.Value, room); room < 0 {
				return room
			}
		}
		for _, e := range v.Elems() {
			if room = fits(e, room); room < 0 {
				return room
			}
		}
		return room
	case value.Missing, value.Null, value.Bool, value.Number, value.String:
	}
	return room - utf8.RuneCountInString(v.OrNull().String())
}

func quoted(s string) string { return string(value.AppendString(nil, s)) }
