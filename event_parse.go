package j17

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// errCanonical is the error of bytes that no event has.
var errCanonical = errors.New("this is not an event in its canonical form")

// ParseEvent reads canonical bytes, which the event keeps a view of. It accepts what AppendEvent writes and nothing
// else, but for white space and the way of writing inside of data and metadata, which it leaves as they are. Version
// and Kept are not in the bytes.
func ParseEvent(raw []byte) (Event, error) {
	e := Event{Raw: raw}
	rest := raw

	// The members before the data have no escapes: the next quote ends each.
	var id, key string
	var ok bool
	if id, rest, ok = member(rest, `{"stream_id":"`); !ok {
		return Event{}, errCanonical
	}
	if key, rest, ok = member(rest, `,"key":"`); !ok {
		return Event{}, errCanonical
	}
	if e.Type, rest, ok = member(rest, `,"type":"`); !ok {
		return Event{}, errCanonical
	}
	var err error
	if e.StreamID, err = ParseStreamID(id); err != nil {
		return Event{}, err
	}
	if e.Key, ok = ParseKey(key); !ok {
		return Event{}, errCanonical
	}

	// The data end where their value does.
	rest, ok = bytes.CutPrefix(rest, []byte(`,"data":`))
	end := valueEnd(rest)
	if !ok || end == 0 {
		return Event{}, errCanonical
	}
	e.Data = rest[:end:end]
	rest, ok = bytes.CutPrefix(rest[end:], []byte(metadataMember))
	if !ok || len(rest) < len(`{"timestamp":0}}`) || rest[0] != '{' || valueEnd(rest) != len(rest)-1 ||
		rest[len(rest)-1] != '}' {
		return Event{}, errCanonical
	}
	e.Metadata = rest[: len(rest)-1 : len(rest)-1]
	if !json.Valid(e.Data) || !json.Valid(e.Metadata) {
		return Event{}, errCanonical
	}

	// The timestamp is the last member of the metadata.
	const timestamp = `"timestamp":`
	at := bytes.LastIndex(e.Metadata, []byte(timestamp))
	if at < 1 || (at > 1 && e.Metadata[at-1] != ',') {
		return Event{}, errCanonical
	}
	digits := string(e.Metadata[at+len(timestamp) : len(e.Metadata)-1])
	if e.Timestamp, err = strconv.ParseInt(digits, 10, 64); err != nil || strconv.FormatInt(e.Timestamp, 10) != digits {
		return Event{}, errCanonical
	}
	return e, nil
}

// member takes a member with a text that needs no escapes off the front, and the closing quote with it.
func member(in []byte, before string) (text string, rest []byte, ok bool) {
	in, ok = bytes.CutPrefix(in, []byte(before))
	if !ok {
		return "", nil, false
	}
	end := bytes.IndexByte(in, '"')
	if end <= 0 {
		return "", nil, false
	}
	text = string(in[:end])
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\\' }) {
		return "", nil, false
	}
	return text, in[end+1:], true
}

// valueEnd returns where the JSON value ends that a text begins with; 0 where it does not end. It looks at brackets and
// strings alone.
func valueEnd(in []byte) int {
	depth := 0
	for i := 0; i < len(in); i++ {
		switch in[i] {
		case '"':
			for i++; i < len(in) && in[i] != '"'; i++ {
				if in[i] == '\\' {
					i++
				}
			}
			if i >= len(in) {
				return 0
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth < 0 {
				return i // of a value without brackets
			}
			if depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return 0
}
