package storetest

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Dump returns all that a tenant holds as lines of text: the streams in the order of their bytes, each with its events;
// notes; side items; the results of commands. If they contradict each other, the error is a *store.CorruptionError.
func Dump(ctx context.Context, s store.Archives, tn j17.Tenant) (string, error) {
	a, err := s.Archive(ctx, tn)
	if err != nil {
		return "", err
	}
	defer a.Close()
	d := dump{streams: map[j17.Key]*dumpedStream{}}
	for _, part := range []func(context.Context, store.Archive) error{d.feed, d.heads, d.items, d.commands} {
		if err := part(ctx, a); err != nil {
			return "", err
		}
	}
	return d.text.String(), nil
}

// dump has the text so far, and the streams that come before it.
type dump struct {
	text    strings.Builder
	streams map[j17.Key]*dumpedStream
}

// dumpedStream has the head of a stream, as it follows from its events, and their lines.
type dumpedStream struct {
	key  j17.Key
	head store.Head
	text strings.Builder
}

// dumpedLine is every line but the events: exactly one member is set.
type dumpedLine struct {
	Stream  *streamLine  `json:"stream,omitempty"`
	Leaf    string       `json:"leaf,omitempty"`
	Tags    []string     `json:"tags,omitempty"`
	Note    *noteLine    `json:"note,omitempty"`
	Item    *itemLine    `json:"item,omitempty"`
	Command *commandLine `json:"command,omitempty"`
}

type streamLine struct {
	Key        string `json:"key"`
	Length     uint64 `json:"length"`
	Chain      string `json:"chain"`
	Generation uint64 `json:"generation,omitempty"`
	Present    string `json:"present,omitempty"`
}

type noteLine struct {
	At      string       `json:"at"`
	Streams []noteStream `json:"streams"`
}

type noteStream struct {
	Key        string `json:"key"`
	Generation uint64 `json:"generation"`
}

type itemLine struct {
	Space   store.Space `json:"space"`
	Key     string      `json:"key"`
	Rev     uint64      `json:"rev"`
	Expires int64       `json:"expires,omitempty"`
	Due     int64       `json:"due,omitempty"`
	Value   []byte      `json:"value"`
}

type commandLine struct {
	ID      string   `json:"id"`
	Expires int64    `json:"expires,omitempty"`
	Time    int64    `json:"time"`
	First   string   `json:"first,omitempty"`
	Lengths []uint64 `json:"lengths,omitempty"`
	Memo    []byte   `json:"memo,omitempty"`
}

func writeLine(to *strings.Builder, l dumpedLine) error {
	text, err := json.Marshal(l)
	to.Write(text)
	to.WriteByte('\n')
	return err
}

func unixNanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// feed adds the events to their streams and writes the notes.
func (d *dump) feed(ctx context.Context, a store.Archive) error {
	var seen store.Extent
	for c, err := range a.Changes(ctx, j17.StreamID{}) {
		if err == nil && c.Note != nil {
			err = d.note(c.Note)
		} else if err == nil {
			seen.Events, seen.Last = seen.Events+1, c.Event.StreamID
			err = d.event(&c)
		}
		if err != nil {
			return err
		}
	}
	if want := a.Extent(); seen.Events != want.Events || seen.Last != want.Last {
		return &store.CorruptionError{
			Where: "the feed",
			Err:   fmt.Errorf("%d events up to %s, not %d up to %s", seen.Events, seen.Last, want.Events, want.Last),
		}
	}
	return nil
}

func (d *dump) note(n *store.Note) error {
	line := &noteLine{At: n.Position.String()}
	for _, stream := range n.Streams {
		line.Streams = append(line.Streams, noteStream{stream.Key.String(), stream.Number})
	}
	return writeLine(&d.text, dumpedLine{Note: line})
}

func (d *dump) event(c *store.Archived) error {
	e := c.Event
	stream := d.streams[e.Key]
	if stream == nil {
		stream = &dumpedStream{key: e.Key, head: store.Head{FirstTime: e.Timestamp}}
		d.streams[e.Key] = stream
	}

	// Add it to the head.
	h := &stream.head
	h.Length++
	h.Chain, h.Present = j17.Link(h.Chain, e.Leaf()), j17.Link(h.Present, j17.Leaf(e.Raw))
	h.Last, h.LastTime = e.StreamID, e.Timestamp
	if e.Version != h.Length {
		return &store.CorruptionError{
			Where: e.Key.String(), Err: fmt.Errorf("version %d stands where %d should", e.Version, h.Length),
		}
	}

	// Its lines.
	var err error
	if e.Kept != nil {
		err = writeLine(&stream.text, dumpedLine{Leaf: hex.EncodeToString(e.Kept)})
	}
	if len(c.Tags) > 0 {
		err = errors.Join(err, writeLine(&stream.text, dumpedLine{Tags: c.Tags}))
	}
	stream.text.Write(e.Raw)
	stream.text.WriteByte('\n')
	return err
}

// heads writes the streams before the text so far, and compares their heads with their events.
func (d *dump) heads(_ context.Context, a store.Archive) error {
	var list []*dumpedStream
	for _, stream := range d.streams {
		list = append(list, stream)
	}
	slices.SortFunc(list, func(a, b *dumpedStream) int {
		return strings.Compare(a.key.Type+"\x00"+a.key.ID, b.key.Type+"\x00"+b.key.ID)
	})
	notes := d.text.String()
	d.text.Reset()
	for _, stream := range list {
		heads, err := a.Heads([]j17.Key{stream.key})
		if err != nil {
			return err
		}
		want, got := heads[0], stream.head
		line := &streamLine{
			Key: stream.key.String(), Length: want.Length, Chain: hex.EncodeToString(want.Chain[:]),
			Generation: want.Generation,
		}
		if got.Generation = want.Generation; want.Generation > 0 {
			line.Present = hex.EncodeToString(want.Present[:])
		} else {
			got.Present = want.Present
		}
		if got != want {
			return &store.CorruptionError{Where: stream.key.String(), Err: fmt.Errorf("the head is %+v and follows as %+v from the events", want, got)}
		}
		if err := writeLine(&d.text, dumpedLine{Stream: line}); err != nil {
			return err
		}
		d.text.WriteString(stream.text.String())
	}
	d.text.WriteString(notes)
	return nil
}

func (d *dump) items(ctx context.Context, a store.Archive) error {
	for i, err := range a.Items(ctx, store.ItemName{}) {
		if err == nil {
			err = writeLine(&d.text, dumpedLine{
				Item: &itemLine{i.Space, i.Key, i.Rev, unixNanos(i.Expires), unixNanos(i.Due), i.Value},
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dump) commands(ctx context.Context, a store.Archive) error {
	for c, err := range a.Commands(ctx) {
		if err != nil {
			return err
		}
		line := &commandLine{
			ID: hex.EncodeToString(c.ID[:]), Expires: unixNanos(c.Expires), Time: c.Timestamp, Lengths: c.Lengths,
			Memo: c.Memo,
		}
		if len(c.Lengths) > 0 {
			line.First = c.First.String()
		}
		if err := writeLine(&d.text, dumpedLine{Command: line}); err != nil {
			return err
		}
	}
	return nil
}
