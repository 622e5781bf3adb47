package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"j17"
)

// importEvent is one event of a file that is imported.
type importEvent struct {
	// index is its number in the file, counted from 0; line is where it starts, counted from 1.
	index, line int
	key         j17.Key
	actor       j17.Agent
	target      j17.Agent // the zero Agent where there is none
	eventType   string
	data        json.RawMessage
	// raw is its text.
	raw []byte
	// seed depends on everything that was read of the source up to the end of this event.
	seed [sha256.Size]byte
}

// lineError is a place of a file that is no event.
type lineError struct {
	index, line   int
	path, message string
	raw           []byte
	// fatal marks faults after which nothing more can be read.
	fatal bool
}

// Error returns the line and what is wrong there.
func (e *lineError) Error() string {
	if e.path != "" {
		return fmt.Sprintf("%d: %s: %s", e.line, e.path, e.message)
	}
	return fmt.Sprintf("%d: %s", e.line, e.message)
}

// maxImportLine bounds the text of one event.
const maxImportLine = 16 << 20

// importSource reads events from JSON lines or from one JSON array.
type importSource struct {
	in    *bufio.Reader
	seed  [sha256.Size]byte
	index int
	// line is the number of the line that is read next.
	line    int
	started bool
	// array is set where the source is one array.
	array *json.Decoder
	lines *lineCounter
	// ignored holds the members that were left out, in the order in which they were met.
	ignored []string
}

// newImportSource returns a source of what in has. name makes its seeds differ from those of other sources with the same
// content.
func newImportSource(in io.Reader, name string) *importSource {
	return &importSource{in: bufio.NewReaderSize(in, 1<<16), seed: sha256.Sum256([]byte("j17 import\n" + name)), line: 1}
}

// next returns the next event, a *lineError, or io.EOF at the end.
func (s *importSource) next() (importEvent, error) {
	if !s.started {
		s.started = true
		if err := s.start(); err != nil {
			return importEvent{}, err
		}
	}
	line, raw, err := s.text()
	if err != nil {
		return importEvent{}, err
	}
	index := s.index
	s.index++
	h := sha256.New()
	h.Write(s.seed[:])
	h.Write(raw)
	h.Sum(s.seed[:0])
	ev, fault := s.parse(raw)
	if fault != nil {
		fault.index, fault.line, fault.raw = index, line, raw
		return importEvent{}, fault
	}
	ev.index, ev.line, ev.raw, ev.seed = index, line, raw, s.seed
	return ev, nil
}

// start finds out which of the two forms the source has.
func (s *importSource) start() error {
	if mark, err := s.in.Peek(3); err == nil && string(mark) == "\uFEFF" {
		_, _ = s.in.Discard(3) // it is there
	}
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		if c == '\n' {
			s.line++
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			continue
		}
		if err := s.in.UnreadByte(); err != nil {
			return err
		}
		if c == '[' {
			s.lines = &lineCounter{in: s.in, line: s.line}
			s.array = json.NewDecoder(s.lines)
			_, err = s.array.Token()
		}
		return err
	}
}

// text returns the text of the next event and the line where it starts.
func (s *importSource) text() (int, []byte, error) {
	if s.array != nil {
		return s.element()
	}
	for {
		raw, err := s.readLine()
		line := s.line
		s.line++
		if len(raw) > maxImportLine {
			return 0, nil, &lineError{index: s.index, line: line, message: fmt.Sprintf("the line is longer than %d bytes; no event may be", maxImportLine), fatal: true}
		}
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return 0, nil, err
			}
			return line, raw, nil
		}
		if err != nil {
			return 0, nil, err
		}
	}
}

func (s *importSource) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := s.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxImportLine || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// element returns the next element of the array.
func (s *importSource) element() (int, []byte, error) {
	var raw json.RawMessage
	var err error
	more := s.array.More()
	if more {
		err = s.array.Decode(&raw)
	} else if _, err = s.array.Token(); err == nil {
		if _, err = s.array.Token(); err == nil {
			err = errors.New("there is something after the end of the array")
		}
		if errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
	}
	if err != nil {
		at := s.lines.lineAt(s.array.InputOffset())
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the array is not closed: the file is not complete")
		}
		return 0, nil, &lineError{index: s.index, line: at, message: "this is not valid JSON: " + err.Error(), fatal: true}
	}
	return s.lines.lineAt(s.array.InputOffset() - int64(len(raw))), raw, nil
}

// lineCounter tells the lines of offsets in what is read through it. Offsets are asked for in ascending order.
type lineCounter struct {
	in      io.Reader
	line    int
	offset  int64
	pending []int64 // offsets of line ends
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

type importAgent struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// importText is the form of an event in a file. What is read as RawMessage and not used is ignored.
type importText struct {
	StreamID json.RawMessage `json:"stream_id"`
	Key      string          `json:"key"`
	// AggregateType and ID may stand in place of Key.
	AggregateType string          `json:"aggregate_type"`
	ID            string          `json:"id"`
	Type          string          `json:"type"`
	Data          json.RawMessage `json:"data"`
	Metadata      *struct {
		Actor         *importAgent    `json:"actor"`
		Target        *importAgent    `json:"target"`
		CorrelationID json.RawMessage `json:"correlation_id"`
		Timestamp     json.RawMessage `json:"timestamp"`
	} `json:"metadata"`
}

func (s *importSource) parse(raw []byte) (importEvent, *lineError) {
	var t importText
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return importEvent{}, decodeFault(raw, err)
	}
	if d.More() {
		return importEvent{}, &lineError{message: "there is more than one JSON value; write one event a line"}
	}
	if t.Key == "" && t.AggregateType != "" && t.ID != "" {
		t.Key = t.AggregateType + ":" + t.ID
	}
	key, ok := j17.ParseKey(t.Key)
	switch {
	case t.Key == "":
		return importEvent{}, &lineError{path: "key", message: `the event names no aggregate; add "key":"TYPE:ID"`}
	case !ok || strings.Contains(t.Key, "/"):
		return importEvent{}, &lineError{path: "key", message: fmt.Sprintf("%q does not have the form TYPE:ID", t.Key)}
	case t.Type == "":
		return importEvent{}, &lineError{path: "type", message: "the event has no type"}
	case t.Metadata == nil || t.Metadata.Actor == nil:
		return importEvent{}, &lineError{path: "metadata.actor", message: `the event does not say who caused it; add "metadata":{"actor":{"type":"...","id":"..."}}`}
	}
	ev := importEvent{key: key, eventType: t.Type, data: t.Data, actor: j17.Agent(*t.Metadata.Actor)}
	if len(ev.data) == 0 {
		ev.data = json.RawMessage(`{}`)
	}
	if t.Metadata.Target != nil {
		ev.target = j17.Agent(*t.Metadata.Target)
	}
	for _, m := range []struct {
		name  string
		given json.RawMessage
	}{{"stream_id", t.StreamID}, {"metadata.timestamp", t.Metadata.Timestamp}, {"metadata.correlation_id", t.Metadata.CorrelationID}} {
		if m.given != nil && !slices.Contains(s.ignored, m.name) {
			s.ignored = append(s.ignored, m.name)
		}
	}
	return ev, nil
}

// decodeFault says what is wrong with a text that is no event.
func decodeFault(raw []byte, err error) *lineError {
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &lineError{path: mismatch.Field, message: fmt.Sprintf("a JSON %s cannot stand here", mismatch.Value)}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &lineError{message: fmt.Sprintf("the member %s means nothing in an event; members are key, type, data and metadata with actor and target", name)}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &lineError{message: "the event is cut off: JSON ends in the middle. Every event must stand on a line of its own, or all in one array."}
	}
	var v any
	if syntax := json.Unmarshal(raw, &v); syntax != nil {
		err = syntax
	}
	return &lineError{message: "this is not valid JSON: " + err.Error()}
}
