package pebble

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"j17"
	"j17/internal/store"
)

// maxLineBytes bounds a line of an export: the largest value in base64, and room for the rest.
const maxLineBytes = store.MaxUnitBytes/3*4 + 1<<20

// lastImportable is the greatest time of a position, in Unix milliseconds, that an import takes: it is of the year 2286, and
// positions have one more year before they need another digit.
const lastImportable = 9_999_999_999_999 - 365*24*60*60*1000

const timestampMember = `"timestamp":`

// splitTimestamp takes the timestamp off canonical metadata.
func splitTimestamp(metadata []byte) (timestamp int64, rest []byte, err error) {
	i := bytes.LastIndex(metadata, []byte(timestampMember))
	if i < 1 || metadata[len(metadata)-1] != '}' {
		return 0, nil, errors.New("the event has no timestamp")
	}
	timestamp, err = strconv.ParseInt(string(metadata[i+len(timestampMember):len(metadata)-1]), 10, 64)
	if err != nil {
		return 0, nil, errors.New("the timestamp of the event is no number")
	}
	rest = bytes.TrimSuffix(metadata[:i], []byte(","))
	return timestamp, append(bytes.Clone(rest), '}'), nil
}

// parseEventLine reads the canonical bytes of an event. It accepts nothing but what AppendEvent writes.
func parseEventLine(line []byte, key j17.Key) (e j17.Event, metadata []byte, err error) {
	var fields struct {
		StreamID string          `json:"stream_id"`
		Key      string          `json:"key"`
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return e, nil, err
	}
	if e.StreamID, err = j17.ParseStreamID(fields.StreamID); err != nil {
		return e, nil, err
	}
	if fields.Key != key.String() {
		return e, nil, fmt.Errorf("the event belongs to %q and stands among those of %q", fields.Key, key)
	}
	if e.Timestamp, metadata, err = splitTimestamp(fields.Metadata); err != nil {
		return e, nil, err
	}
	e.Key, e.Type, e.Data, e.Raw = key, fields.Type, fields.Data, line
	canonical, _ := j17.AppendEvent(nil, e.StreamID, key, e.Type, e.Data, metadata, e.Timestamp)
	if string(canonical) != string(line) {
		return e, nil, errors.New("the event is not in canonical form")
	}
	return e, metadata, nil
}

func cutSpace(key []byte) (store.Space, string, bool) {
	space, name, ok := strings.Cut(string(key), "\x00")
	return store.Space(space), name, ok && space != "" && name != ""
}

// ImportTenant reads an export into a new tenant. See store.Store.
//
// The data are written under a number that the directory does not list, and listed at the end. What an import has
// written that does not get there is removed, if need be when the store is opened the next time.
func (s *Store) ImportTenant(ctx context.Context, t j17.Tenant, r io.Reader) error {
	if err := store.ValidTenant(t); err != nil {
		return err
	}
	m := &importer{store: s, ctx: ctx, name: t, r: bufio.NewReaderSize(r, 64<<10), digest: sha256.New()}
	if err := m.begin(); err != nil {
		return err
	}
	err := m.read()
	if err == nil {
		err = m.list()
	}
	if err != nil {
		return errors.Join(err, m.discard())
	}
	return nil
}

type importer struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // lives as long as the call
	name   j17.Tenant
	number uint32
	r      *bufio.Reader
	digest hash.Hash
	at     int
	writes *pebble.Batch

	state tenantState
	count counts
	// The stream that is being read.
	key  j17.Key
	head store.Head
	want store.Head
	kept []byte
	// tags are those of the next event that its metadata do not tell.
	tags  []string
	run   tagRun
	lines lineKind
	// latest and latestTime are the greatest position and timestamp of all events so far.
	latest     j17.StreamID
	latestTime int64
	// notes counts the notes.
	notes uint64
	// before is the name of the item, or of the command, that stood in the line before.
	before string
}

// lineKind is the part of an export that has been reached: parts do not mix.
type lineKind int

const (
	atStart lineKind = iota
	atStreams
	atNotes
	atItems
	atCommands
	atEnd
)

// begin takes a number for the data.
func (m *importer) begin() error {
	return m.store.run(m.ctx, ordinary, func(b *batch) error {
		if err := m.checkEmpty(b); err != nil {
			return err
		}
		m.number = b.allocate()
		b.putNextNumber()
		b.put(appendPendingKey(b.key[:0], m.number), nil)
		return nil
	})
}

func (m *importer) checkEmpty(b *batch) error {
	if b.tenant(m.name).listed {
		return fmt.Errorf("tenant %s: %w", m.name, store.ErrNotEmpty)
	}
	return nil
}

// discard removes what was written.
func (m *importer) discard() error {
	return m.store.run(m.store.life, always, func(b *batch) error {
		b.removeAll(m.number)
		b.remove(appendPendingKey(nil, m.number))
		return nil
	})
}

// list makes the data the tenant's.
func (m *importer) list() error {
	return m.store.run(m.ctx, ordinary, func(b *batch) error {
		if err := m.checkEmpty(b); err != nil {
			return err
		}
		t := b.tenant(m.name)
		t.nextNumber, t.next = m.number, m.state
		b.stage(t)
		works, err := loadDue(m.store.db, t, m.number)
		if err != nil {
			return err
		}
		b.due = append(b.due, works...)
		b.remove(appendPendingKey(nil, m.number))
		return nil
	})
}

// read reads all lines and writes what they hold.
func (m *importer) read() error {
	m.writes = m.store.db.NewBatch()
	defer func() {
		// It holds memory only.
		_ = m.writes.Close()
	}()
	for m.lines != atEnd {
		line, err := m.next()
		if err != nil {
			return m.fault(err)
		}
		if err := m.line(line); err != nil {
			return m.fault(err)
		}
		if m.writes.Len() >= maxBatchBytes {
			if err := m.flush(); err != nil {
				return err
			}
		}
	}
	if _, err := m.r.ReadByte(); err == nil {
		return m.fault(errors.New("there is something behind the last line"))
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the export: %w", err)
	}
	if err := m.flush(); err != nil {
		return err
	}
	return m.checkFeed()
}

func (m *importer) fault(err error) error {
	if errors.Is(err, errRead) {
		return err
	}
	return &store.ImportError{Line: m.at, Err: err}
}

var errRead = errors.New("read the export")

// next returns the next line without its end.
func (m *importer) next() ([]byte, error) {
	m.at++
	var line []byte
	for {
		part, err := m.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			if len(line) > maxLineBytes {
				return nil, errors.New("the line is too long")
			}
		case errors.Is(err, io.EOF):
			return nil, errors.New("the file ends before the export does")
		default:
			return nil, fmt.Errorf("%w: %w", errRead, err)
		}
	}
}

// line takes one line in.
func (m *importer) line(line []byte) error {
	// Most lines are events, which have a form of their own.
	if bytes.HasPrefix(line, []byte(idMember)) {
		m.hash(line)
		return m.event(line)
	}

	// The others are objects that an export could have written to the letter.
	var l exportLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return err
	}
	if canonical, err := json.Marshal(&l); err != nil || !bytes.Equal(canonical, line) {
		return errors.New("the line is not as an export writes it")
	}

	// The end has the digest of all lines before it, and is not in it.
	if l.End != nil {
		return m.end(l.End)
	}
	m.hash(line)
	switch {
	case l.Tenant != nil:
		return m.tenant(l.Tenant)
	case l.Stream != nil:
		return m.stream(l.Stream)
	case l.Leaf != "":
		return m.leaf(l.Leaf)
	case l.Tags != nil:
		return m.ownTags(l.Tags)
	case l.Note != nil:
		return m.note(l.Note)
	case l.Item != nil:
		return m.item(l.Item)
	case l.Command != nil:
		return m.command(l.Command)
	default:
		return errors.New("the line is of no known kind")
	}
}

func (m *importer) hash(line []byte) {
	// A hash takes everything.
	_, _ = m.digest.Write(line)
	_, _ = m.digest.Write([]byte{'\n'})
}

// enter checks that a line may stand where it stands: parts come in their order, and streams are whole.
func (m *importer) enter(part lineKind) error {
	if part < m.lines || (m.lines == atStart && part != atStreams) || m.head.Length != m.want.Length || m.kept != nil || m.tags != nil {
		return errors.New("the line does not belong here")
	}
	if part != m.lines {
		m.before = ""
	}
	m.lines = part
	return nil
}

// follow checks that lines of a part stand in the order of their names, each name once.
func (m *importer) follow(name string) error {
	if name <= m.before {
		return errors.New("the lines are out of order, or the same thing stands there twice")
	}
	m.before = name
	return nil
}

func (m *importer) tenant(l *tenantLine) error {
	if m.lines != atStart {
		return errors.New("the line does not belong here")
	}
	if l.Format < 1 || l.Format > exportFormat {
		return fmt.Errorf("the export has format %d, and this version of j17 knows formats up to %d: use a newer j17",
			l.Format, exportFormat)
	}
	var err error
	if m.state.last, err = j17.ParseStreamID(l.Last); err != nil {
		return err
	}
	if m.state.last.Ms > lastImportable {
		return fmt.Errorf("the position %s leaves no room for events to come", l.Last)
	}
	m.state.lastTime, m.state.rev, m.lines = l.Time, l.Rev, atStreams
	return nil
}

func (m *importer) stream(l *streamLine) error {
	if m.lines != atStreams {
		return errors.New("the line does not belong here")
	}
	if err := m.enter(atStreams); err != nil {
		return err
	}
	key, ok := j17.ParseKey(l.Key)
	if !ok || store.ValidKey(key) != nil || l.Length == 0 {
		return fmt.Errorf("%q with %d events is no stream", l.Key, l.Length)
	}
	if string(appendStream(nil, key)) <= string(appendStream(nil, m.key)) {
		return errors.New("the streams are out of order")
	}
	chain, err := parseHash(l.Chain)
	if err != nil {
		return err
	}
	m.key, m.head, m.want = key, store.Head{}, store.Head{Length: l.Length, Chain: chain, Generation: l.Generation}
	if l.Generation > 0 {
		m.want.Present, err = parseHash(l.Present)
	} else if l.Present != "" {
		err = errors.New("a stream of which nothing was rewritten has a second chain")
	}
	if err != nil {
		return err
	}
	return nil
}

func parseHash(s string) (h [hashBytes]byte, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, fmt.Errorf("%q is no SHA-256 in hexadecimal", s)
	}
	return [hashBytes]byte(b), nil
}

func (m *importer) leaf(s string) error {
	if m.head.Length == m.want.Length || m.kept != nil || m.tags != nil {
		return errors.New("the line does not belong here")
	}
	h, err := parseHash(s)
	m.kept = h[:]
	return err
}

func (m *importer) ownTags(tags []string) error {
	if m.head.Length == m.want.Length || m.kept != nil || m.tags != nil {
		return errors.New("the line does not belong here")
	}
	m.tags = tags
	for _, tag := range tags {
		if told(tag) {
			return fmt.Errorf("the tag %q is one that metadata tell", tag)
		}
	}
	return nil
}

func (m *importer) event(line []byte) error {
	// The event belongs to the stream whose line came last.
	if m.head.Length == m.want.Length {
		return errors.New("the event is in no stream")
	}
	e, metadata, err := parseEventLine(line, m.key)
	if err != nil {
		return err
	}

	// Nothing is later than what the tenant's line has said.
	h := &m.head
	if e.StreamID.Compare(h.Last) <= 0 || e.StreamID.Compare(m.state.last) > 0 {
		return fmt.Errorf("position %s is out of order", e.StreamID)
	}
	if e.Timestamp > m.state.lastTime {
		return errors.New("the timestamp is later than the latest one")
	}

	if err := (&store.Append{Events: []store.NewEvent{{Key: m.key, Type: e.Type, Data: e.Data, Metadata: metadata, Tags: m.tags}}}).Validate(); err != nil {
		return err
	}

	// What was seen is compared with the tenant's line at the end.
	if m.latest.Compare(e.StreamID) < 0 {
		m.latest = e.StreamID
	}
	if m.count.Events == 0 {
		m.latestTime = e.Timestamp
	}
	m.latestTime = max(m.latestTime, e.Timestamp)

	// The record is made anew, since an export has canonical bytes and not records.
	value := appendEventRecord(nil, e.StreamID, m.key, e.Type, e.Data, metadata, e.Timestamp, m.kept, appendTags(nil, m.tags))
	var record eventRecord
	if err := record.parse(value); err != nil {
		return err
	}
	tags, err := record.allTags()
	if err != nil {
		return err
	}
	m.run.add(tags)
	m.run.write(m.writes, m.number, e.StreamID)
	m.kept, m.tags = nil, nil

	// The stream grows by it.
	h.Chain = j17.Link(h.Chain, record.leaf())
	if m.want.Generation > 0 {
		h.Present = j17.Link(h.Present, sha256.Sum256(record.leafInput))
	}
	h.Length++
	h.Last, h.LastTime = e.StreamID, e.Timestamp
	if h.Length == 1 {
		h.FirstTime = e.Timestamp
	}

	eventKey := appendEventKey(nil, m.number, m.key, h.Length)
	m.put(eventKey, value)
	m.put(appendFeedKey(nil, m.number, e.StreamID), eventKey[tenantPrefix+1:])
	m.count.Events++

	// The last event of a stream leads to what its line has promised.
	if h.Length < m.want.Length {
		return nil
	}
	h.Generation = m.want.Generation
	if h.Chain != m.want.Chain || h.Present != m.want.Present {
		return fmt.Errorf("the hashes of the events of %s do not lead to that of the stream", m.key)
	}
	m.count.Streams++
	m.put(appendHeadKey(nil, m.number, m.key), appendHeadRecord(nil, h))
	return nil
}

func (m *importer) note(l *noteLine) error {
	if err := m.enter(atNotes); err != nil {
		return err
	}
	at, err := j17.ParseStreamID(l.At)
	if err != nil {
		return err
	}
	if err := m.follow(l.At[:13] + string(binary.BigEndian.AppendUint32(nil, at.Seq))); err != nil {
		return err
	}
	if at.Compare(m.state.last) > 0 || len(l.Streams) == 0 || len(l.Streams) > store.MaxUnitEvents {
		return fmt.Errorf("no note can stand at %s", l.At)
	}
	note := store.Note{Position: at}
	for _, stream := range l.Streams {
		key, ok := j17.ParseKey(stream.Key)
		if !ok || store.ValidKey(key) != nil || stream.Generation == 0 {
			return fmt.Errorf("%q of generation %d is no stream", stream.Key, stream.Generation)
		}
		note.Streams = append(note.Streams, store.Generation{Key: key, Number: stream.Generation})
	}
	m.put(appendFeedKey(nil, m.number, at), appendNote(nil, &note))
	m.notes++
	if m.latest.Compare(at) < 0 {
		m.latest = at
	}
	return nil
}

func (m *importer) item(l *itemLine) error {
	if err := m.enter(atItems); err != nil {
		return err
	}
	w := store.Append{Side: []store.Side{{
		Op: store.Put, Space: l.Space, Key: l.Key, Value: l.Value, Expires: fromNanos(l.Expires), Due: fromNanos(l.Due),
	}}}
	if err := w.Validate(); err != nil {
		return err
	}
	if err := m.follow(string(l.Space) + "\x00" + l.Key); err != nil {
		return err
	}
	if l.Rev == 0 || l.Rev > m.state.rev {
		return fmt.Errorf("rev %d was never given out", l.Rev)
	}
	key := appendItemKey(nil, m.number, l.Space, l.Key)
	m.put(key, appendItemRecord(nil, itemMeta{rev: l.Rev, expires: l.Expires, due: l.Due}, l.Value))
	if l.Due != 0 {
		m.put(appendDueKey(nil, m.number, l.Space, l.Due, l.Key), nil)
	}
	m.expire(key, l.Expires)
	m.count.Items++
	return nil
}

func (m *importer) expire(key []byte, expires int64) {
	if expires != 0 {
		m.put(appendExpiryKey(nil, m.number, expires, key), nil)
	}
}

func (m *importer) command(l *commandLine) error {
	if err := m.enter(atCommands); err != nil {
		return err
	}
	id, err := hex.DecodeString(l.ID)
	if err != nil || len(id) != len(store.CommandID{}) {
		return fmt.Errorf("%q is no command id", l.ID)
	}
	if err := m.follow(string(id)); err != nil {
		return err
	}
	r := &store.Result{Timestamp: l.Time, Lengths: l.Lengths}
	if (l.First == "") != (len(l.Lengths) == 0) || len(l.Lengths) > store.MaxUnitEvents || l.Expires < 0 {
		return errors.New("the result of the command contradicts itself")
	}
	if l.First != "" {
		first, err := j17.ParseStreamID(l.First)
		if err != nil {
			return err
		}
		r.IDs = []j17.StreamID{first}
	}
	key := appendCommandKey(nil, m.number, store.CommandID(id))
	m.put(key, appendCommandRecord(nil, l.Expires, r, l.Memo))
	m.expire(key, l.Expires)
	m.count.Commands++
	return nil
}

func (m *importer) end(l *endLine) error {
	if err := m.enter(atEnd); err != nil {
		return err
	}
	if l.counts != m.count {
		return fmt.Errorf("the export should hold %+v and holds %+v", l.counts, m.count)
	}
	if l.SHA256 != hex.EncodeToString(m.digest.Sum(nil)) {
		return errors.New("the SHA-256 of the lines is not that of the last line")
	}
	if m.latest != m.state.last || m.latestTime != m.state.lastTime {
		return fmt.Errorf("the latest event has the position %s and the time %d, and the first line says %s and %d",
			m.latest, m.latestTime, m.state.last, m.state.lastTime)
	}
	m.state.events = m.count.Events
	return nil
}

func (m *importer) put(key, value []byte) { must(m.writes.Set(key, value, nil)) }

// flush makes what was read so far durable.
func (m *importer) flush() error {
	if m.writes.Empty() {
		return m.ctx.Err()
	}
	err := m.store.run(m.ctx, ordinary, func(b *batch) error { return b.writes.Apply(m.writes, nil) })
	m.writes.Reset()
	return err
}

// checkFeed checks that no two events have the same position.
func (m *importer) checkFeed() (err error) {
	r, err := m.store.read(m.name)
	if err != nil {
		return err
	}
	defer r.close()
	lower := appendPrefix(nil, m.number, kindFeed)
	it, err := r.iterate(lower, after(lower))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "the feed")
	var n uint64
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	if n != m.count.Events+m.notes {
		return &store.ImportError{Line: m.at, Err: errors.New("two events or notes have the same position")}
	}
	return nil
}
