package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// FileText is the text of one event of a file.
type FileText struct {
	// Number counts the events of the file from 1.
	Number int
	// Offset is where Text starts in the file, in bytes, and Line the number of its line, from 1.
	Offset, Line int
	// Element reports that the event is an element of an array; else it is a line.
	Element bool
	Text    string
}

// MaxFileText bounds the bytes of one event's text in a file.
const MaxFileText = 16 << 20

// FileReader finds the events in a file, written by people or exported. Dry runs and imports read files only through
// it, so that files that can be tried can be imported. The events are the elements of a JSON array, which may be the
// member "events" of an object, or else one event a line with empty lines in between; a byte order mark at the start is
// skipped, and so is the signed checkpoint at the end of an export. The events themselves are parsed by ReadFileEvent.
type FileReader struct {
	// Unsaid is the generation of events that happened before, have no position and say none: see FileEvent.
	Unsaid int

	in      *bufio.Reader
	started bool
	// array is set if the file is an array, which starts at base, or, if wrapped, an object with the array.
	array   *json.Decoder
	base    int
	wrapped bool
	lines   *lineCounter
	// offset, line and number are those of the next event, number counted from 0.
	offset, line, number int
}

// NewFileReader returns a reader of a file.
func NewFileReader(in io.Reader) *FileReader {
	return &FileReader{in: bufio.NewReaderSize(in, 1<<16), line: 1}
}

// FileError is a fault of a file after which no event can be found.
type FileError struct {
	// Line counts from 1.
	Line    int
	Message string
}

// Error returns the line and the message.
func (e *FileError) Error() string { return fmt.Sprintf("%d: %s", e.Line, e.Message) }

// Next returns the next event. At the end of the file the error is io.EOF; a *FileError is about a file that cannot be
// split into events, and every other error comes from the underlying reader.
func (r *FileReader) Next() (FileText, error) {
	if !r.started {
		r.started = true
		if err := r.start(); err != nil {
			return FileText{}, err
		}
	}
	read := r.nextLine
	if r.array != nil {
		read = r.element
	}
	text, err := read()
	if err == nil {
		r.number++
		text.Number = r.number
	}
	return text, err
}

// start detects which of the two forms the file has.
func (r *FileReader) start() error {
	const mark = "\uFEFF"
	if head, err := r.in.Peek(len(mark)); err == nil && string(head) == mark {
		n, err := r.in.Discard(len(mark))
		if r.offset += n; err != nil {
			return err
		}
	}

	// The first character that is not white space decides.
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		if strings.IndexByte(" \t\r\n", c) >= 0 {
			r.offset++
			if c == '\n' {
				r.line++
			}
			continue
		}
		if err := r.in.UnreadByte(); err != nil {
			return err
		}
		r.wrapped = c == '{' && r.atWrapper()
		if c == '[' || r.wrapped {
			r.base = r.offset
			r.lines = &lineCounter{in: r.in, line: r.line}
			r.array = json.NewDecoder(r.lines)
			for opening := json.Token(nil); opening != json.Delim('['); {
				if opening, err = r.array.Token(); err != nil {
					return err
				}
			}
		}
		return err
	}
}

// wrapper matches the beginning of an object whose member "events" is the array. Exports have "ok" before it.
var wrapper = regexp.MustCompile(`^\{\s*("ok"\s*:\s*true\s*,\s*)?"events"\s*:\s*\[`)

// atWrapper reports whether the array follows as a member of an object.
func (r *FileReader) atWrapper() bool {
	const most = 256 // white space included
	head, _ := r.in.Peek(most)
	return wrapper.Match(head)
}

// nextLine returns the next line that is not empty.
func (r *FileReader) nextLine() (FileText, error) {
	for {
		raw, err := r.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			raw, err = r.longLine(raw)
		}
		if len(raw) > MaxFileText {
			return FileText{}, &FileError{r.line, fmt.Sprintf("the line is longer than %d bytes; no event may be", MaxFileText)}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return FileText{}, err
		}
		trimmed := bytes.TrimSpace(raw)
		text := FileText{Offset: r.offset + bytes.Index(raw, trimmed), Line: r.line, Text: string(trimmed)}
		r.offset, r.line = r.offset+len(raw), r.line+1
		if len(trimmed) > 0 && !isCheckpoint(text.Text) {
			return text, nil
		}
		if err != nil {
			return FileText{}, err
		}
	}
}

// longLine returns a line that is longer than the buffer and begins with its content.
func (r *FileReader) longLine(begin []byte) (raw []byte, err error) {
	raw = bytes.Clone(begin)
	for more := true; more; more = errors.Is(err, bufio.ErrBufferFull) && len(raw) <= MaxFileText {
		var part []byte
		part, err = r.in.ReadSlice('\n')
		raw = append(raw, part...)
	}
	return raw, err
}

// The members of the checkpoint at the end of an export.
const (
	checkpoint = "checkpoint"
	vkey       = "vkey"
)

// isCheckpoint reports whether a line is the checkpoint of an export.
func isCheckpoint(line string) bool {
	if !strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(line, "{"), " \t"), `"`+checkpoint+`"`) {
		return false
	}
	v, err := value.ParseString(line)
	return err == nil && len(v.Members()) == 2 && v.Get(vkey).Kind() == value.String
}

// element returns the next element of the array.
func (r *FileReader) element() (FileText, error) {
	var raw json.RawMessage
	var err error
	if r.array.More() {
		err = r.array.Decode(&raw)
	} else if err = r.close(); err == nil {
		if _, err = r.array.Token(); err == nil {
			err = errors.New("there is something after the end of the array")
		} else if errors.Is(err, io.EOF) {
			return FileText{}, io.EOF
		}
	}
	end := r.array.InputOffset()
	switch syntax, ok := errors.AsType[*json.SyntaxError](err); {
	case err == nil && len(raw) > MaxFileText:
		return FileText{}, &FileError{r.lines.lineAt(end), fmt.Sprintf("the event is longer than %d bytes; none may be", MaxFileText)}
	case err == nil:
		start := end - int64(len(raw))
		return FileText{Offset: r.base + int(start), Line: r.lines.lineAt(start), Element: true, Text: string(raw)}, nil
	case r.lines.err != nil:
		return FileText{}, r.lines.err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the array is not closed: the file is not complete")
	case ok:
		end = max(end, syntax.Offset-1)
	}
	return FileText{}, &FileError{r.lines.lineAt(end), "this is not valid JSON: " + err.Error()}
}

// close reads the end of the array.
func (r *FileReader) close() error {
	_, err := r.array.Token()
	if err != nil || !r.wrapped {
		return err
	}

	// What an export ends with.
	end, err := r.array.Token()
	for _, name := range []string{checkpoint, vkey} {
		if err != nil || end != name {
			break
		}
		if end, err = r.array.Token(); err == nil {
			if _, is := end.(string); !is {
				break
			}
			end, err = r.array.Token()
		}
	}
	if err == nil && end != json.Delim('}') {
		err = errors.New("the object may have no other member than 'events'")
	}
	return err
}

// lineCounter returns the lines of offsets in the text read through it. Offsets must be requested in ascending order.
type lineCounter struct {
	in      io.Reader
	line    int
	offset  int64
	pending []int64 // offsets of line ends
	// err is why reading failed, nil at the end.
	err error
}

// Read reads and records line ends.
func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.pending = append(l.pending, l.offset+int64(i))
		}
	}
	l.offset += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

func (l *lineCounter) lineAt(offset int64) int {
	passed := 0
	for passed < len(l.pending) && l.pending[passed] < offset {
		passed++
	}
	l.line += passed
	l.pending = l.pending[passed:]
	return l.line
}

// SplitFile returns all events of a file, as a FileReader finds them. The only possible finding is that the file cannot
// be split.
func SplitFile(src string) ([]FileText, []diag.Diagnostic) {
	if text := strings.TrimPrefix(src, "\uFEFF"); strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") {
		if _, err := value.ParseString(text); err != nil {
			return nil, []diag.Diagnostic{FileSyntax(err)}
		}
	}
	var events []FileText
	for r := NewFileReader(strings.NewReader(src)); ; {
		text, err := r.Next()
		switch broken, ok := errors.AsType[*FileError](err); {
		case errors.Is(err, io.EOF):
			return events, nil
		case ok:
			return nil, []diag.Diagnostic{{Line: broken.Line, Column: 1, Message: broken.Message}}
		case err != nil:
			return nil, []diag.Diagnostic{FileSyntax(err)}
		}
		events = append(events, text)
	}
}

// FileSyntax returns the finding for a text that value.Parse refuses.
func FileSyntax(err error) diag.Diagnostic {
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		return diag.Diagnostic{Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
	}
	return diag.Diagnostic{Message: err.Error()}
}
