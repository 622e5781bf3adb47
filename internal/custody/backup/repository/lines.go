package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/storage/store"
)

// The first words of the lines of feeds that are not events; lines of events begin with their version.
const (
	leafWord = "leaf "
	tagsWord = "tags "
	noteWord = "note "
)

// positionOf is the position of an element of a feed.
func positionOf(a *store.Archived) j17.StreamID {
	if a.Note != nil {
		return a.Note.Position
	}
	return a.Event.StreamID
}

// appendEvent appends the lines of an event.
func appendEvent(dst []byte, e *j17.Event, tags []string) ([]byte, error) {
	if e.Kept != nil {
		dst = append(dst, leafWord...)
		dst = hex.AppendEncode(dst, e.Kept)
		dst = append(dst, '\n')
	}
	if len(tags) > 0 {
		text, err := json.Marshal(tags)
		if err != nil {
			return nil, err
		}
		dst = append(append(append(dst, tagsWord...), text...), '\n')
	}
	dst = append(strconv.AppendUint(dst, e.Version, 10), ' ')
	return append(append(dst, e.Raw...), '\n'), nil
}

type noteJSON struct {
	At      string       `json:"at"`
	Streams []streamJSON `json:"streams"`
}

type streamJSON struct {
	Key        string `json:"key"`
	Generation uint64 `json:"generation"`
}

// appendNote appends the line of a note.
func appendNote(dst []byte, n *store.Note) ([]byte, error) {
	line := noteJSON{At: n.Position.String()}
	for _, s := range n.Streams {
		line.Streams = append(line.Streams, streamJSON{s.Key.String(), s.Number})
	}
	text, err := json.Marshal(line)
	if err != nil {
		return nil, err
	}
	return append(append(append(dst, noteWord...), text...), '\n'), nil
}

// readFeed calls do with the entries of a section of a feed. They are views of the content.
func readFeed(content []byte, do func(*store.Archived) error) error {
	var kept []byte
	var tags []string
	for n := 1; len(content) > 0; n++ {
		line, rest, ok := bytes.Cut(content, []byte("\n"))
		content = rest
		if !ok {
			return fmt.Errorf("line %d has no end", n)
		}
		var entry store.Archived
		var err error
		switch {
		case bytes.HasPrefix(line, []byte(leafWord)):
			kept, err = hex.DecodeString(string(line[len(leafWord):]))
			if err == nil && len(kept) != sha256.Size {
				err = errors.New("it is no hash")
			}
		case bytes.HasPrefix(line, []byte(tagsWord)):
			err = json.Unmarshal(line[len(tagsWord):], &tags)
		case bytes.HasPrefix(line, []byte(noteWord)):
			entry.Note, err = parseNote(line[len(noteWord):])
		default:
			entry.Event, err = parseEvent(line)
			entry.Tags = tags
			if err == nil {
				entry.Event.Kept = kept
			}
			kept, tags = nil, nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if entry.Event == nil && entry.Note == nil {
			continue
		}
		if err := do(&entry); err != nil {
			return err
		}
	}
	if kept != nil || tags != nil {
		return errors.New("it ends before an event")
	}
	return nil
}

func parseEvent(line []byte) (*j17.Event, error) {
	number, raw, _ := bytes.Cut(line, []byte(" "))
	version, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil || version == 0 {
		return nil, errors.New("there is no version before the event")
	}
	e, err := j17.ParseEvent(raw)
	e.Version = version
	return &e, err
}

func parseNote(text []byte) (*store.Note, error) {
	var line noteJSON
	if err := json.Unmarshal(text, &line); err != nil {
		return nil, err
	}
	return line.note()
}

func (n *noteJSON) note() (*store.Note, error) {
	at, err := j17.ParseStreamID(n.At)
	if err != nil {
		return nil, err
	}
	note := &store.Note{Position: at}
	for _, s := range n.Streams {
		key, ok := j17.ParseKey(s.Key)
		if !ok || s.Generation == 0 {
			return nil, errors.New("a note names no stream")
		}
		note.Streams = append(note.Streams, store.Generation{Key: key, Number: s.Generation})
	}
	return note, nil
}

type itemJSON struct {
	Space   store.Space `json:"space"`
	Key     string      `json:"key"`
	Rev     uint64      `json:"rev"`
	Expires int64       `json:"expires,omitempty"`
	Due     int64       `json:"due,omitempty"`
	valueJSON
}

// valueJSON is a value, encoded as text if it is text.
type valueJSON struct {
	Text  string `json:"text,omitempty"`
	Value []byte `json:"value,omitempty"`
}

func valueOf(value []byte) valueJSON {
	if utf8.Valid(value) {
		return valueJSON{Text: string(value)}
	}
	return valueJSON{Value: value}
}

func (v *valueJSON) bytes() []byte {
	if v.Text != "" {
		return []byte(v.Text)
	}
	return v.Value
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

// appendLine appends a value as a line of JSON.
func appendLine(dst []byte, v any) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

func appendItem(dst []byte, i *store.ArchivedItem) ([]byte, error) {
	return appendLine(dst, itemJSON{
		Space: i.Space, Key: i.Key, Rev: i.Rev, Expires: nanoseconds(i.Expires), Due: nanoseconds(i.Due),
		valueJSON: valueOf(i.Value),
	})
}

func parseItem(line []byte) (store.ArchivedItem, error) {
	var in itemJSON
	if err := json.Unmarshal(line, &in); err != nil {
		return store.ArchivedItem{}, err
	}
	return store.ArchivedItem{
		Space: in.Space, Item: store.Item{
			Key: in.Key, Value: in.bytes(), Rev: in.Rev, Expires: timeOf(in.Expires), Due: timeOf(in.Due),
		},
	}, nil
}

type commandJSON struct {
	ID      string   `json:"id"`
	Expires int64    `json:"expires,omitempty"`
	Time    int64    `json:"time"`
	First   string   `json:"first"`
	Lengths []uint64 `json:"lengths,omitempty"`
	valueJSON
}

func appendCommand(dst []byte, c *store.ArchivedCommand) ([]byte, error) {
	return appendLine(dst, commandJSON{
		ID: hex.EncodeToString(c.ID[:]), Expires: nanoseconds(c.Expires), Time: c.Timestamp, First: c.First.String(),
		Lengths: c.Lengths, valueJSON: valueOf(c.Memo),
	})
}

func parseCommand(line []byte) (store.ArchivedCommand, error) {
	var in commandJSON
	if err := json.Unmarshal(line, &in); err != nil {
		return store.ArchivedCommand{}, err
	}
	c := store.ArchivedCommand{
		Command: store.Command{Memo: in.bytes(), Expires: timeOf(in.Expires)}, Timestamp: in.Time, Lengths: in.Lengths,
	}
	id, err := hex.DecodeString(in.ID)
	if err != nil || len(id) != len(c.ID) {
		return store.ArchivedCommand{}, errors.New("a command has no id")
	}
	c.ID = store.CommandID(id)
	c.First, err = j17.ParseStreamID(in.First)
	return c, err
}

// readLines calls do with the lines of a part that has items or commands.
func readLines[T any](content []byte, parse func([]byte) (T, error), do func(T) error) error {
	for n := 1; len(content) > 0; n++ {
		line, rest, ok := bytes.Cut(content, []byte("\n"))
		content = rest
		v, err := parse(line)
		if err != nil || !ok {
			return fmt.Errorf("line %d is not what j17 writes: %w", n, errors.Join(err))
		}
		if err := do(v); err != nil {
			return err
		}
	}
	return nil
}
