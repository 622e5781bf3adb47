package pebble

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// exportFormat is the version of the lines below, which docs/storage-format.md describes.
// Format 1 has no tags.
const exportFormat = 2

// exportLine is every line of an export but the events: exactly one member is set.
type exportLine struct {
	Tenant  *tenantLine  `json:"tenant,omitempty"`
	Stream  *streamLine  `json:"stream,omitempty"`
	Leaf    string       `json:"leaf,omitempty"`
	Tags    []string     `json:"tags,omitempty"`
	Note    *noteLine    `json:"note,omitempty"`
	Item    *itemLine    `json:"item,omitempty"`
	Command *commandLine `json:"command,omitempty"`
	End     *endLine     `json:"end,omitempty"`
}

// tenantLine is the first line.
type tenantLine struct {
	Format int        `json:"format"`
	Name   j17.Tenant `json:"name"`
	Last   string     `json:"last"`
	Time   int64      `json:"time"`
	Rev    uint64     `json:"rev"`
}

// streamLine stands before the events of a stream.
type streamLine struct {
	Key    string `json:"key"`
	Length uint64 `json:"length"`
	Chain  string `json:"chain"`
	// Generation and Present are there when events of the stream were rewritten.
	Generation uint64 `json:"generation,omitempty"`
	Present    string `json:"present,omitempty"`
}

// noteLine is a note of the feed.
type noteLine struct {
	At      string       `json:"at"`
	Streams []noteStream `json:"streams"`
}

// noteStream is the generation that a stream has since a note.
type noteStream struct {
	Key        string `json:"key"`
	Generation uint64 `json:"generation"`
}

// itemLine is a side item.
type itemLine struct {
	Space   store.Space `json:"space"`
	Key     string      `json:"key"`
	Rev     uint64      `json:"rev"`
	Expires int64       `json:"expires,omitempty"`
	Due     int64       `json:"due,omitempty"`
	Value   []byte      `json:"value"`
}

// commandLine is the result of a command.
type commandLine struct {
	ID      string   `json:"id"`
	Expires int64    `json:"expires,omitempty"`
	Time    int64    `json:"time"`
	First   string   `json:"first,omitempty"`
	Lengths []uint64 `json:"lengths,omitempty"`
	Memo    []byte   `json:"memo,omitempty"`
}

// endLine is the last line. SHA256 is that of everything before it.
type endLine struct {
	counts
	SHA256 string `json:"sha256"`
}

// counts tells how much an export holds.
type counts struct {
	Streams  uint64 `json:"streams"`
	Events   uint64 `json:"events"`
	Items    uint64 `json:"items"`
	Commands uint64 `json:"commands"`
}

// ExportTenant writes everything of one tenant as of one moment. See store.Store.
func (s *Store) ExportTenant(ctx context.Context, t j17.Tenant, w io.Writer) error {
	r, err := s.read(t)
	if err != nil {
		return err
	}
	defer r.close()
	if r.tenant == 0 {
		return fmt.Errorf("tenant %s: %w", t, store.ErrNotFound)
	}
	x := &exporter{reader: r, ctx: ctx, name: t, digest: sha256.New(), now: s.clock.Now().UnixNano()}
	x.w = bufio.NewWriterSize(io.MultiWriter(w, x.digest), 64<<10)
	if err := x.export(); err != nil {
		return fmt.Errorf("export tenant %s: %w", t, err)
	}
	return nil
}

type exporter struct {
	reader
	ctx    context.Context //nolint:containedctx // lives as long as the call
	name   j17.Tenant
	w      *bufio.Writer
	digest hash.Hash
	count  counts
	// now is the time in Unix nanoseconds: what has expired is not exported.
	now int64
}

func (x *exporter) export() error {
	// The tenant, as the snapshot has it.
	state, err := getState(x.snapshot, x.tenant)
	if err != nil {
		return err
	}
	err = x.line(&exportLine{Tenant: &tenantLine{
		Format: exportFormat, Name: x.name, Last: state.last.String(), Time: state.lastTime, Rev: state.rev,
	}})
	if err != nil {
		return err
	}

	// The events stand in their streams.
	if err := x.streams(); err != nil {
		return err
	}

	// The feed refers to them; its notes are written here, and the numbers have to agree.
	var feed uint64
	var run [][]byte
	err = x.each(kindFeed, func(key, value []byte) error {
		if isNote(value) {
			return x.note(key, value)
		}
		var err error
		if run, err = references(run[:0], value); err != nil {
			return corruption(err, "the feed of tenant %s", x.name)
		}
		feed += uint64(len(run))
		return nil
	})
	if err != nil {
		return err
	}
	if x.count.Events != state.events || feed != state.events {
		return corruption(fmt.Errorf("%d events in streams, %d in the feed, %d were committed", x.count.Events, feed, state.events),
			"tenant %s", x.name)
	}

	// Side items and the results of commands.
	if err := x.each(kindItem, x.item); err != nil {
		return err
	}
	if err := x.each(kindCommand, x.command); err != nil {
		return err
	}
	// The digest is that of what was flushed.
	if err := x.w.Flush(); err != nil {
		return err
	}
	if err := x.line(&exportLine{End: &endLine{counts: x.count, SHA256: hex.EncodeToString(x.digest.Sum(nil))}}); err != nil {
		return err
	}
	return x.w.Flush()
}

func (x *exporter) line(l *exportLine) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return x.raw(text)
}

func (x *exporter) raw(text []byte) error {
	_, err := x.w.Write(text)
	return errors.Join(err, x.w.WriteByte('\n'))
}

// each calls do with every key, without its prefix, and value of a kind.
func (x *exporter) each(kind byte, do func(key, value []byte) error) (err error) {
	prefix := appendPrefix(nil, x.tenant, kind)
	it, err := x.iterate(prefix, after(prefix))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "tenant "+string(x.name))
	n := uint64(0)
	for it.First(); it.Valid(); it.Next() {
		n++
		if err := x.store.interrupted(x.ctx, n); err != nil {
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return fault("tenant "+string(x.name), err)
		}
		if err := do(it.Key()[len(prefix):], v); err != nil {
			return err
		}
	}
	return nil
}

// streams writes all streams, each after its head, and checks that they fit each other.
func (x *exporter) streams() (err error) {
	prefix := appendPrefix(nil, x.tenant, kindEvent)
	events, err := x.iterate(prefix, after(prefix))
	if err != nil {
		return err
	}
	defer closeIter(events, &err, "events")
	events.First()
	err = x.each(kindHead, func(stream, head []byte) error { return x.stream(events, stream, head) })
	if err != nil {
		return err
	}
	if events.Valid() {
		return corruption(errors.New("an event is in no stream"), "tenant %s", x.name)
	}
	return nil
}

// stream writes one stream. events stands at its first event and is moved behind its last one.
func (x *exporter) stream(events *pebble.Iterator, stream, headRecord []byte) error {
	// What the head says of the stream.
	key, ok := splitStream(stream)
	if !ok {
		return corruption(errFormat, "the heads of tenant %s", x.name)
	}
	head, err := parseHeadRecord(headRecord)
	if err != nil {
		return corruption(err, "the head of %s of tenant %s", key, x.name)
	}
	line := &streamLine{Key: key.String(), Length: head.Length, Chain: hex.EncodeToString(head.Chain[:])}
	if head.Generation > 0 {
		line.Generation, line.Present = head.Generation, hex.EncodeToString(head.Present[:])
	}
	if err := x.line(&exportLine{Stream: line}); err != nil {
		return err
	}

	// The events in their order, each linked into the hashes that the head ends with.
	var chain, present [hashBytes]byte
	var record eventRecord
	want := appendEventKey(nil, x.tenant, key, 0)
	for version := uint64(1); version <= head.Length; version++ {
		want = appendEventKey(want[:0], x.tenant, key, version)
		if !events.Valid() || string(events.Key()) != string(want) {
			return corruption(errors.Join(errGap, events.Error()), "%s version %d of tenant %s", key, version, x.name)
		}
		v, err := events.ValueAndErr()
		if err == nil {
			err = record.parse(v)
		}
		if err != nil {
			return corruption(err, "%s version %d of tenant %s", key, version, x.name)
		}
		chain = j17.Link(chain, record.leaf())
		if head.Generation > 0 {
			present = j17.Link(present, sha256.Sum256(record.leafInput))
		}
		if err := x.event(&record); err != nil {
			return err
		}
		if err := x.store.interrupted(x.ctx, version); err != nil {
			return err
		}
		events.Next()
	}

	// The events are those that the head was made from.
	if chain != head.Chain || present != head.Present {
		return corruption(errors.New("the hashes of the events do not lead to that of the head"), "%s of tenant %s", key, x.name)
	}
	x.count.Streams++
	x.count.Events += head.Length
	return nil
}

// note writes a note. key is the rest of its key in the feed.
func (x *exporter) note(key, value []byte) error {
	at, ok := parsePosition(key)
	note, err := parseNote(at, value)
	if err != nil || !ok {
		return corruption(errors.Join(errFormat, err), "a note of tenant %s", x.name)
	}
	line := &noteLine{At: at.String()}
	for i := range note.Streams {
		line.Streams = append(line.Streams, noteStream{note.Streams[i].Key.String(), note.Streams[i].Number})
	}
	return x.line(&exportLine{Note: line})
}

func (x *exporter) event(record *eventRecord) error {
	if record.kept != nil {
		if err := x.line(&exportLine{Leaf: hex.EncodeToString(record.kept)}); err != nil {
			return err
		}
	}
	tags, err := record.ownTags()
	if err != nil {
		return corruption(err, "the tags of an event of tenant %s", x.name)
	}
	if len(tags) > 0 {
		if err := x.line(&exportLine{Tags: tags}); err != nil {
			return err
		}
	}
	return x.raw(record.raw)
}

func (x *exporter) item(key, value []byte) error {
	space, name, ok := cutSpace(key)
	meta, content, err := parseItemRecord(value)
	if !ok || err != nil {
		return corruption(errors.Join(errFormat, err), "the side items of tenant %s", x.name)
	}
	if !meta.live(x.now) {
		return nil
	}
	x.count.Items++
	return x.line(&exportLine{Item: &itemLine{
		Space: space, Key: name, Rev: meta.rev, Expires: meta.expires, Due: meta.due, Value: content,
	}})
}

func (x *exporter) command(key, value []byte) error {
	result, expires, err := parseCommandRecord(value)
	if err != nil {
		return corruption(err, "command %x of tenant %s", key, x.name)
	}
	if expired(expires, x.now) {
		return nil
	}
	l := &commandLine{
		ID: hex.EncodeToString(key), Expires: expires, Time: result.Timestamp, Lengths: result.Lengths, Memo: result.Memo,
	}
	if len(result.IDs) > 0 {
		l.First = result.IDs[0].String()
	}
	x.count.Commands++
	return x.line(&exportLine{Command: l})
}
