package send

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
)

// event is one event of a file that is sent.
type event struct {
	// index is its number in the file, counted from 0; line is where it starts, counted from 1.
	index, line int
	key         j17.Key
	command.FileWrite
	eventType string
	data      json.RawMessage
	// raw is its text.
	raw []byte
	// seed depends on everything that was read of the source up to the end of this event.
	seed [sha256.Size]byte
}

// joins reports whether ev can be written in one batch with first, which stands some places before it.
func (ev *event) joins(first *event) bool {
	return ev.key == first.key && ev.Actor == first.Actor && ev.Target == first.Target && ev.SkipOCC == first.SkipOCC &&
		ev.PreviousLength == nil
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

// source reads the events of a file that are to be written.
type source struct {
	in    *command.FileReader
	seed  [sha256.Size]byte
	index int
	// ignored holds the members that were left out, in the order in which they were met.
	ignored []string
}

// newSource returns a source of what in has. name makes its seeds differ from those of other sources with the same
// content.
func newSource(in io.Reader, name string) *source {
	return &source{in: command.NewFileReader(in), seed: sha256.Sum256([]byte("j17 import\n" + name))}
}

// next returns the next event, a *lineError, or io.EOF at the end.
func (s *source) next() (event, error) {
	text, err := s.in.Next()
	if broken, ok := errors.AsType[*command.FileError](err); ok {
		err = &lineError{index: s.index, line: broken.Line, message: broken.Message, fatal: true}
	}
	if err != nil {
		return event{}, err
	}
	raw, index := []byte(text.Text), s.index
	s.index++
	h := sha256.New()
	h.Write(s.seed[:])
	h.Write(raw)
	h.Sum(s.seed[:0])
	ev, fault := s.parse(text.Text)
	if fault != nil {
		fault.index, fault.line, fault.raw = index, fault.line+text.Line, raw
		return event{}, fault
	}
	ev.index, ev.line, ev.raw, ev.seed = index, text.Line, raw, s.seed
	return ev, nil
}

// parse reads an event. The line of a fault is counted from the first one of the text, which is 0.
func (s *source) parse(text string) (event, *lineError) {
	v, err := value.ParseString(text)
	if err != nil {
		return event{}, notJSON(text, err)
	}
	e, faults := command.ReadFileEvent(v)
	if len(faults) > 0 {
		return event{}, faultOf(faults[0])
	}
	w, err := e.Write()
	if err != nil {
		return event{}, faultOf(err)
	}
	if e.Stored {
		s.leave("stream_id")
	}
	if e.Handle != "" {
		s.leave("handle")
	}
	if e.PublicID != "" {
		s.leave("public_id")
	}
	if e.Chain != nil {
		s.leave("chain")
	}
	if e.Leaf != nil {
		s.leave("leaf")
	}
	for _, name := range w.Left {
		s.leave("metadata." + name)
	}
	return event{
		key: j17.Key{Type: e.AggregateType, ID: e.ID}, FileWrite: w, eventType: e.Type, data: e.Data.AppendJSON(nil),
	}, nil
}

// leave notes a member that is not taken over.
func (s *source) leave(name string) {
	if !slices.Contains(s.ignored, name) {
		s.ignored = append(s.ignored, name)
	}
}

// notJSON says what is wrong with a text that is no JSON.
func notJSON(text string, err error) *lineError {
	var whole json.RawMessage
	if errors.Is(json.NewDecoder(strings.NewReader(text)).Decode(&whole), io.ErrUnexpectedEOF) {
		return &lineError{message: "the event is cut off: JSON ends in the middle. Every event must stand on a line of its own, or all in one array."}
	}
	syntax, ok := errors.AsType[*value.SyntaxError](err)
	if !ok {
		return &lineError{message: "this is not valid JSON: " + err.Error()}
	}
	return &lineError{
		line:    syntax.Line - 1,
		message: fmt.Sprintf("this is not valid JSON: column %d: %s", syntax.Column, syntax.Message),
	}
}

func faultOf(err error) *lineError {
	if e, ok := errors.AsType[*j17.Error](err); ok {
		return &lineError{path: e.Path, message: e.Message}
	}
	return &lineError{message: err.Error()}
}
