package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"j17"
	"j17/internal/spec/diag"
	"j17/internal/value"
)

// EventText is one event of a file as it stands there.
type EventText struct {
	// Number counts the events of the file from 1.
	Number int
	// Offset is where Text starts in the file, in bytes, and Line the number of its line, from 1.
	Offset, Line int
	// Element tells that the event is an element of an array; else it is a line.
	Element bool
	Text    string
}

// MaxEventText is how many bytes the text of one event in a file may have.
const MaxEventText = 16 << 20

// EventReader finds the events in a file: the elements of a JSON array, which may be the member "events" of an object, or else
// one event a line with empty lines in between; a byte order mark at the start is passed over. It is the only reader of such
// files, so that what can be tried can be imported. What an event looks like inside is the business of ReadFileEvent.
type EventReader struct {
	in      *bufio.Reader
	started bool
	// array is set where the file is one array, which starts at base, or an object that has it, if wrapped.
	array   *json.Decoder
	base    int
	wrapped bool
	lines   *lineCounter
	// offset, line and number are those of what is read next, number counted from 0.
	offset, line, number int
}

// NewEventReader returns a reader of a file.
func NewEventReader(in io.Reader) *EventReader {
	return &EventReader{in: bufio.NewReaderSize(in, 1<<16), line: 1}
}

// EventTextError is a place of a file after which no event can be found.
type EventTextError struct {
	// Line counts from 1.
	Line    int
	Message string
}

// Error returns the line and the message.
func (e *EventTextError) Error() string { return fmt.Sprintf("%d: %s", e.Line, e.Message) }

// Next returns the next event. At the end of the file the error is io.EOF; an *EventTextError tells of a file that cannot
// be taken apart, and every other error is one of the underlying reader.
func (r *EventReader) Next() (EventText, error) {
	if !r.started {
		r.started = true
		if err := r.start(); err != nil {
			return EventText{}, err
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

// start finds out which of the two forms the file has.
func (r *EventReader) start() error {
	const mark = "\uFEFF"
	if head, err := r.in.Peek(len(mark)); err == nil && string(head) == mark {
		n, err := r.in.Discard(len(mark))
		if r.offset += n; err != nil {
			return err
		}
	}
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

// wrapper is how an object begins whose member "events" is the array. Exports have "ok" before it.
var wrapper = regexp.MustCompile(`^\{\s*("ok"\s*:\s*true\s*,\s*)?"events"\s*:\s*\[`)

// atWrapper reports whether the array follows as a member of an object.
func (r *EventReader) atWrapper() bool {
	const most = 256 // white space included
	head, _ := r.in.Peek(most)
	return wrapper.Match(head)
}

// nextLine returns the next line that is not empty.
func (r *EventReader) nextLine() (EventText, error) {
	for {
		var raw []byte
		var err error
		for more := true; more; more = errors.Is(err, bufio.ErrBufferFull) && len(raw) <= MaxEventText {
			var part []byte
			part, err = r.in.ReadSlice('\n')
			raw = append(raw, part...)
		}
		if len(raw) > MaxEventText {
			return EventText{}, &EventTextError{r.line, fmt.Sprintf("the line is longer than %d bytes; no event may be", MaxEventText)}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return EventText{}, err
		}
		trimmed := bytes.TrimSpace(raw)
		text := EventText{Offset: r.offset + bytes.Index(raw, trimmed), Line: r.line, Text: string(trimmed)}
		r.offset, r.line = r.offset+len(raw), r.line+1
		if len(trimmed) > 0 {
			return text, nil
		}
		if err != nil {
			return EventText{}, err
		}
	}
}

// element returns the next element of the array.
func (r *EventReader) element() (EventText, error) {
	var raw json.RawMessage
	var err error
	if r.array.More() {
		err = r.array.Decode(&raw)
	} else if err = r.close(); err == nil {
		if _, err = r.array.Token(); err == nil {
			err = errors.New("there is something after the end of the array")
		} else if errors.Is(err, io.EOF) {
			return EventText{}, io.EOF
		}
	}
	end := r.array.InputOffset()
	switch syntax, ok := errors.AsType[*json.SyntaxError](err); {
	case err == nil && len(raw) > MaxEventText:
		return EventText{}, &EventTextError{r.lines.lineAt(end), fmt.Sprintf("the event is longer than %d bytes; none may be", MaxEventText)}
	case err == nil:
		start := end - int64(len(raw))
		return EventText{Offset: r.base + int(start), Line: r.lines.lineAt(start), Element: true, Text: string(raw)}, nil
	case r.lines.err != nil:
		return EventText{}, r.lines.err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the array is not closed: the file is not complete")
	case ok:
		end = max(end, syntax.Offset-1)
	}
	return EventText{}, &EventTextError{r.lines.lineAt(end), "this is not valid JSON: " + err.Error()}
}

// close reads what ends the array.
func (r *EventReader) close() error {
	_, err := r.array.Token()
	if err != nil || !r.wrapped {
		return err
	}
	end, err := r.array.Token()
	if err == nil && end != json.Delim('}') {
		err = errors.New("the object may have no other member than 'events'")
	}
	return err
}

// lineCounter tells the lines of offsets in what is read through it. Offsets are asked for in ascending order.
type lineCounter struct {
	in      io.Reader
	line    int
	offset  int64
	pending []int64 // offsets of line ends
	// err is why reading failed, nil at the end.
	err error
}

// Read reads and notes line ends.
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

// SplitEvents returns all events of a file, as an EventReader finds them. A file that cannot be taken apart is the one
// finding that is returned.
func SplitEvents(src string) ([]EventText, []diag.Diagnostic) {
	if text := strings.TrimPrefix(src, "\uFEFF"); strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") {
		if _, err := value.ParseString(text); err != nil {
			return nil, []diag.Diagnostic{syntaxFinding(err)}
		}
	}
	var events []EventText
	for r := NewEventReader(strings.NewReader(src)); ; {
		text, err := r.Next()
		switch broken, ok := errors.AsType[*EventTextError](err); {
		case errors.Is(err, io.EOF):
			return events, nil
		case ok:
			return nil, []diag.Diagnostic{{Line: broken.Line, Column: 1, Message: broken.Message}}
		case err != nil:
			return nil, []diag.Diagnostic{syntaxFinding(err)}
		}
		events = append(events, text)
	}
}

// FileEvent is an event of a file in its parts. Nothing of it was compared with a spec.
type FileEvent struct {
	AggregateType, ID, Type string
	Data, Metadata          value.Value
	// Recorded tells that the event has a stream id, StreamID: a server has written it before, and its metadata may have
	// any members.
	Recorded bool
	StreamID j17.StreamID
	// Names is what the aggregate was called where the event comes from, "" where the file does not say.
	j17.Names
	// trusted lets the event name one of the platform's own actors.
	trusted bool
}

// ReadFileEvent takes an event of a file apart: an object with the members "type", "data", "metadata" and either "key"
// ("order:global") or "aggregate_type" and "id", and maybe "stream_id", "handle" and "public_id". It returns all that is wrong with these, each a
// *j17.Error. FileEvent.Write does the same for the metadata.
func ReadFileEvent(v value.Value) (FileEvent, []error) {
	if v.Kind() != value.Object {
		return FileEvent{}, []error{j17.Errorf(j17.CodeInvalidField, "An event must be a JSON object")}
	}
	var faults []error
	if err := onlyMembers(v, "", "stream_id", "key", "aggregate_type", "id", "type", "data", "metadata", "handle", "public_id"); err != nil {
		faults = append(faults, err)
	}
	text := func(name string) string {
		m := v.Get(name)
		switch {
		case m.IsMissing():
			faults = append(faults, j17.Errorf(j17.CodeMissingField, "Missing '%s'", name).At(name))
		case m.Kind() != value.String:
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'%s' must be a string", name).At(name))
		}
		return m.Str()
	}
	e := FileEvent{Data: v.Get("data"), Metadata: v.Get("metadata"), Recorded: !v.Get("stream_id").IsMissing()}
	if e.Recorded {
		if s := text("stream_id"); s != "" {
			var err error
			if e.StreamID, err = j17.ParseStreamID(s); err != nil {
				faults = append(faults, j17.Errorf(j17.CodeInvalidField, "%v", err).At("stream_id"))
			}
		}
	}
	if !v.Get("handle").IsMissing() {
		e.Handle = text("handle")
	}
	if !v.Get("public_id").IsMissing() {
		e.PublicID = text("public_id")
	}
	switch split := !v.Get("aggregate_type").IsMissing() || !v.Get("id").IsMissing(); {
	case split && !v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeInvalidField, "An event has either a 'key' or an 'aggregate_type' and an 'id'").At("key"))
	case split:
		e.AggregateType, e.ID = text("aggregate_type"), text("id")
	case v.Get("key").IsMissing():
		faults = append(faults, j17.Errorf(j17.CodeMissingField, `Missing 'key': every event names its aggregate, as in "order:global"`).At("key"))
	default:
		before := len(faults)
		key, ok := j17.ParseKey(text("key"))
		if !ok && len(faults) == before {
			faults = append(faults, j17.Errorf(j17.CodeInvalidField, "'key' must be an aggregate type, a colon and an id").At("key"))
		}
		e.AggregateType, e.ID = key.Type, key.ID
	}
	e.Type = text("type")
	return e, faults
}

// FileWrite is what an event of a file says about its write.
type FileWrite struct {
	Actor j17.Agent
	// Target is the zero Agent where there is none.
	Target j17.Agent
	// PreviousLength is nil where the length of the aggregate does not matter.
	PreviousLength *uint64
	SkipOCC        bool
	// Left names the members of the metadata that only a server writes, such as the timestamp.
	Left []string
}

// Write reads the data and the metadata of an event that is to be written once more. It accepts what a dry run does,
// apart from what needs a spec: that types are declared and identifiers valid.
func (c *FileEvent) Write() (FileWrite, []error) {
	var w FileWrite
	var faults []error
	if c.Data.IsMissing() {
		faults = append(faults, errNoData())
	}
	if c.Metadata.IsMissing() {
		return w, append(faults, errNoMetadata())
	}
	var a examined
	own, kept, err := a.splitMetadata(c)
	if err == nil {
		err = onlyMembers(own, "metadata", "actor", "target", "previous_length", "skip_occ")
	}
	if err != nil {
		return w, append(faults, err)
	}
	if a.timestamp != nil {
		w.Left = append(w.Left, "timestamp")
	}
	for _, m := range kept {
		w.Left = append(w.Left, m.Key)
	}
	if actor := own.Get("actor"); actor.IsMissing() {
		faults = append(faults, errNoActor())
	} else if w.Actor, err = readHalves(actor, "metadata.actor"); err != nil {
		faults = append(faults, err)
	}
	if target := own.Get("target"); !target.IsMissing() {
		if w.Target, err = readHalves(target, "metadata.target"); err != nil {
			faults = append(faults, err)
		}
	}
	if err := a.readConcurrency(own); err != nil {
		faults = append(faults, err)
	}
	w.PreviousLength, w.SkipOCC = a.expected, own.Get("skip_occ").Truth()
	return w, faults
}

// syntaxFinding is the finding for a text that value.Parse refuses.
func syntaxFinding(err error) diag.Diagnostic {
	if syntax, ok := errors.AsType[*value.SyntaxError](err); ok {
		return diag.Diagnostic{Line: syntax.Line, Column: syntax.Column, Message: syntax.Message}
	}
	return diag.Diagnostic{Message: err.Error()}
}
