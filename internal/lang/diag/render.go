package diag

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// shown is how many characters of a source line are rendered; a longer one is cut around the place.
const shown = 110

// Render returns findings as plain text for a terminal. Each is a line `name:line:column: error: message`, the line
// of src that it is about with a mark under the place, and its hint. Findings without a place have only the first
// and the last.
func Render(name string, src []byte, found []Diagnostic) string {
	var b strings.Builder
	lines := newLines(string(src))
	for i := range found {
		d := &found[i]
		if d.Line == 0 {
			fmt.Fprintf(&b, "%s: %s: %s\n", name, d.Severity, printable(d.Message))
		} else {
			fmt.Fprintf(&b, "%s:%d:%d: %s: %s\n", name, d.Line, d.Column, d.Severity, printable(d.Message))
		}
		margin := ""
		if lines.seek(d.Line, d.Column) {
			number := strconv.Itoa(d.Line)
			margin = strings.Repeat(" ", len(number))
			text, mark := excerpt(lines.src[lines.from:lines.to], lines.place-lines.from)
			fmt.Fprintf(&b, "  %s | %s\n  %s | %s\n", number, text, margin, mark)
		}
		if d.Hint != "" {
			fmt.Fprintf(&b, "  %s = hint: %s\n", margin, printable(d.Hint))
		}
	}
	return b.String()
}

// lines finds places by line and column, each search going on from the place found before.
type lines struct {
	src string
	// from and to enclose line number, place is where the character at column stands in it.
	number, from, to int
	column, place    int
}

func newLines(src string) *lines {
	l := &lines{src: src}
	l.enter(1, 0)
	return l
}

func (l *lines) enter(number, from int) {
	l.number, l.from, l.to = number, from, endOfLine(l.src, from)
	l.column, l.place = 1, from
}

// seek moves to a place and reports whether the text has its line.
func (l *lines) seek(number, column int) bool {
	if number < l.number {
		l.enter(1, 0)
	}
	for l.number < number && l.to < len(l.src) {
		l.enter(l.number+1, l.to+1)
	}
	if column < l.column {
		l.column, l.place = 1, l.from
	}
	for l.column < column && l.place < l.to {
		_, size := utf8.DecodeRuneInString(l.src[l.place:l.to])
		l.column, l.place = l.column+1, l.place+size
	}
	return number > 0 && l.number == number
}

func endOfLine(src string, from int) int {
	if n := strings.IndexByte(src[from:], '\n'); n >= 0 {
		return from + n
	}
	return len(src)
}

// excerpt returns the part of a line to show around byte at, and the mark to stand under that byte's character.
func excerpt(line string, at int) (text, mark string) {
	line = strings.TrimSuffix(line, "\r")
	at = min(at, len(line))
	from := at
	for n := 0; n < shown/2 && from > 0; n++ {
		_, size := utf8.DecodeLastRuneInString(line[:from])
		from -= size
	}
	before := []rune(line[from:at])
	var after []rune
	end := at
	for end < len(line) && len(before)+len(after) < shown {
		r, size := utf8.DecodeRuneInString(line[end:])
		after = append(after, r)
		end += size
	}
	if from > 0 {
		before = append([]rune("... "), before...)
	} else {
		// Leaving out indentation loses nothing, and brings the mark into view.
		for len(before) > 0 && (before[0] == ' ' || before[0] == '\t') {
			before = before[1:]
		}
	}
	front := printable(string(before))
	text = front + printable(string(after))
	mark = strings.Repeat(" ", columns(text, len(front))) + "^"
	if end < len(line) {
		text += " ..."
	}
	return text, mark
}

// columns returns in which column of a terminal, from 0, the character at byte at stands. Wide characters take two
// columns, and what a character is made of takes none of its own.
func columns(text string, at int) int {
	column, offset := 0, 0
	for state := -1; offset < at; {
		cluster, _, width, next := uniseg.FirstGraphemeClusterInString(text[offset:], state)
		if offset += len(cluster); offset > at {
			break
		}
		column, state = column+width, next
	}
	return column
}

// printable keeps foreign text from controlling the terminal: each character that is not printable becomes one mark.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return '\uFFFD'
		}
	}, s)
}
