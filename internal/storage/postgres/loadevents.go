package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"j17"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// loadedEvent is an event or a note that is to be stored.
type loadedEvent struct {
	id j17.StreamID
	// note, if not nil, is the note; all other fields but id are unset then.
	note *store.Note

	key       j17.Key
	stream    string
	typ       string
	time      int64
	line      int
	version   uint64
	chain     *[32]byte
	leaf      [32]byte
	raw, kept []byte
	own       []byte
	layout    j17.Layout
	tags      []record.TagID
	// head is the head of the stream after the event.
	head store.Head
}

// loadedEvents are events and notes that are stored together. bytes is about their size. arena holds copies of bytes.
type loadedEvents struct {
	rows  []loadedEvent
	bytes int
	arena []byte
}

// hold returns a copy of b in the arena.
func (c *loadedEvents) hold(b []byte) []byte {
	const block = 256 << 10
	if cap(c.arena)-len(c.arena) < len(b) {
		c.arena = make([]byte, 0, max(block, len(b)))
	}
	start := len(c.arena)
	c.arena = append(c.arena, b...)
	return c.arena[start:len(c.arena):len(c.arena)]
}

// add adds a checked event, with its metadata without the timestamp, and returns the leaf hash of its bytes.
func (c *loadedEvents) add(e *store.LoadedEvent, metadata []byte, told *unit.LoadedTags) (leaf [32]byte, err error) {
	row := loadedEvent{
		id: e.StreamID, key: e.Key, typ: e.Type, time: e.Timestamp, line: e.Line, version: e.Version, chain: e.Chain,
		stream: string(record.Stream(e.Key)), raw: c.hold(e.Raw),
	}
	var made []byte
	made, row.layout = j17.AppendEvent(
		c.arena[len(c.arena):], e.StreamID, e.Key, e.Type, e.Data, metadata, e.Timestamp,
	)
	if !bytes.Equal(made, e.Raw) {
		return leaf, unit.ErrLoadedBytes
	}
	row.leaf = j17.Leaf(row.raw)
	if e.Kept != nil {
		row.kept = c.hold(e.Kept)
	} else {
		row.own = record.AppendTags([]byte{}, e.Tags)
		row.tags = told.Of(metadata)
		for _, tag := range e.Tags {
			if id := record.IDOfTag(tag); !record.FromMetadata(tag) && !slices.Contains(row.tags, id) {
				row.tags = append(slices.Clip(row.tags), id)
			}
		}
	}
	c.rows = append(c.rows, row)
	c.bytes += len(e.Raw) + eventRowBytes + tagRowBytes*len(row.tags)
	return row.leaf, nil
}

// addNote adds a note.
func (c *loadedEvents) addNote(n *store.Note) {
	note := &store.Note{Position: n.Position, Streams: slices.Clone(n.Streams)}
	c.rows = append(c.rows, loadedEvent{id: n.Position, note: note})
	c.bytes += eventRowBytes * (1 + len(note.Streams))
}

// loadedStreams has the heads of streams that are being loaded. It keeps those that were used lately, in two parts: a
// full young part replaces the old one. As long as nothing was dropped, a stream that is missing has no events.
type loadedStreams struct {
	// most bounds how many streams a part has.
	most       int
	young, old map[string]*loadedStream
	dropped    bool
}

// keptStreams is the most streams that a part of loadedStreams has.
const keptStreams = 1 << 16

// loadedStream is a stream that is being loaded. last is its last event, nil if that is stored already.
type loadedStream struct {
	*unit.LoadedStream

	last *loadedEvent
}

// put keeps a stream.
func (s *loadedStreams) put(name string, stream *loadedStream) {
	if s.young == nil || len(s.young) >= s.most {
		s.dropped = s.dropped || len(s.old) > 0
		s.old, s.young = s.young, map[string]*loadedStream{}
	}
	s.young[name] = stream
}

// get returns a stream, nil if it is not known.
func (s *loadedStreams) get(name string) *loadedStream {
	stream := s.young[name]
	if stream == nil {
		if stream = s.old[name]; stream != nil {
			s.put(name, stream)
		}
	}
	return stream
}

const selectLoadedHeads = `SELECT u.i, ` + headColumns + ` FROM unnest($2::bytea[]) WITH ORDINALITY u (stream, i),
LATERAL (
	SELECT * FROM events e WHERE e.t = $1 AND e.stream = u.stream AND e.kind = 0 ORDER BY e.version DESC LIMIT 1
) e`

// streamsOf returns the streams of some events and notes by their names. It reads those that are not known.
func (l *loading) streamsOf(ctx context.Context, rows []loadedEvent) (map[string]*loadedStream, error) {
	// The streams in memory, and those that may only be stored.
	streams := map[string]*loadedStream{}
	var q headQuestions
	var unknown []string
	need := func(name string) {
		if streams[name] != nil {
			return
		}
		stream := l.streams.get(name)
		if stream == nil {
			stream = &loadedStream{LoadedStream: &unit.LoadedStream{}}
			l.streams.put(name, stream)
			if l.streams.dropped {
				unknown, q.streams = append(unknown, name), append(q.streams, []byte(name))
			}
		}
		stream.last = nil
		streams[name] = stream
	}
	for i := range rows {
		if note := rows[i].note; note != nil {
			for j := range note.Streams {
				need(string(record.Stream(note.Streams[j].Key)))
			}
			continue
		}
		need(rows[i].stream)
	}

	// The heads of the others.
	if len(unknown) == 0 {
		return streams, nil
	}
	err := l.read(ctx, "heads of streams", func(conn reading) error {
		found, err := conn.Query(ctx, selectLoadedHeads, l.number, q.streams)
		if err == nil {
			err = q.scan(found)
		}
		return err
	})
	for i, name := range unknown {
		if err == nil && q.heads[i].Length > 0 {
			streams[name].LoadedStream = unit.StoredStream(&q.heads[i])
		}
	}
	return streams, err
}

// storeEvents stores events and notes in one transaction.
func (l *loading) storeEvents(ctx context.Context, c *loadedEvents) error {
	streams, err := l.streamsOf(ctx, c.rows)
	if err != nil {
		return err
	}
	noted, err := link(c.rows, streams)
	if err != nil {
		return err
	}
	tried := false
	return l.read(ctx, "what is loaded", func(conn reading) error {
		pooled, is := conn.(*pgxpool.Conn)
		if !is {
			return errors.New("the connection is not one of the pool")
		}
		if tried {
			if stored, err := l.areStored(ctx, conn, c.rows); err != nil || stored {
				return err
			}
		}
		tried = true
		return l.storeRows(ctx, pooled.Conn(), c.rows, noted)
	})
}

// areStored reports whether events and notes are stored already: a transaction may be committed though its connection
// broke.
func (l *loading) areStored(ctx context.Context, conn reading, rows []loadedEvent) (stored bool, err error) {
	last := rows[len(rows)-1].id
	err = conn.QueryRow(
		ctx, `SELECT EXISTS (SELECT 1 FROM events WHERE t = $1 AND ms = $2 AND n = $3)`, l.number, last.Ms,
		int64(last.Seq),
	).Scan(&stored)
	return stored, err
}

// link appends events and notes to the streams. It returns the streams whose notes change the row of an event that is
// stored already.
func link(rows []loadedEvent, streams map[string]*loadedStream) (noted map[string]*loadedStream, err error) {
	noted = map[string]*loadedStream{}
	for i := range rows {
		row := &rows[i]
		if row.note != nil {
			for _, g := range row.note.Streams {
				name := string(record.Stream(g.Key))
				stream := streams[name]
				err := unit.ErrNoEvents
				if stream.Length > 0 {
					err = stream.Note(g.Number)
				}
				switch {
				case err != nil:
					return nil, &store.LoadError{Position: row.id, Key: g.Key, Err: err}
				case stream.last != nil:
					stream.last.head = stream.Whole()
				default:
					noted[name] = stream
				}
			}
			continue
		}
		stream := streams[row.stream]
		if err := stream.Event(row.id, row.time, row.version, row.chain, row.leaf, row.kept); err != nil {
			return nil, &store.LoadError{Line: row.line, Position: row.id, Key: row.key, Err: err}
		}
		row.head, stream.last = stream.Whole(), row
	}
	return noted, nil
}

const (
	// loadIsOwn selects the row with the owner of a load, and locks it against changes.
	loadIsOwn = `SELECT t FROM unnamed WHERE t = $1 AND owner = $2 FOR SHARE`
	// noteStreams sets the generations of streams, which are stored with their last events.
	noteStreams = `UPDATE events x SET generation = u.generation, present = u.present
	FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) u (t, ms, n, generation, present)
	WHERE x.t = u.t AND x.ms = u.ms AND x.n = u.n`
)

// storeRows stores rows of events and notes, the tags of events, and what notes change of stored events.
func (l *loading) storeRows(
	ctx context.Context, conn *pgx.Conn, rows []loadedEvent, noted map[string]*loadedStream,
) error {
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	var own int32
	err := conn.QueryRow(ctx, loadIsOwn, l.number, l.holder()).Scan(&own)
	if errors.Is(err, pgx.ErrNoRows) {
		return errLoadLost
	}
	if err != nil {
		return err
	}
	events, tags := copyEvents(l.number, rows)
	for _, c := range []*copyRows{events, tags} {
		l.counts.reads.Add(1)
		if err := c.send(ctx, conn); err != nil {
			return err
		}
	}
	if len(noted) > 0 {
		var t []int32
		var ms, n, generations []int64
		var present [][]byte
		for _, stream := range noted {
			h := stream.Whole()
			t, ms, n = append(t, l.number), append(ms, h.Last.Ms), append(n, int64(h.Last.Seq))
			generations, present = append(generations, int64(h.Generation)), append(present, presentOf(&h))
		}
		if _, err := conn.Exec(ctx, noteStreams, t, ms, n, generations, present); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "COMMIT")
	return err
}

// presentOf returns the chain over the present bytes as rows have it, nil if it is the same as chain.
func presentOf(h *store.Head) []byte {
	if h.Generation == 0 {
		return nil
	}
	return h.Present[:]
}

// copyEvents returns the rows of events and notes, and those of their tags.
func copyEvents(number int32, rows []loadedEvent) (events, tags *copyRows) {
	events = &copyRows{table: "events", columns: []string{
		"t", "ms", "n", "kind", "stream", "version", "type", "time", "first_time", "generation", "chain", "present",
		"kept", "tags", "data_at", "metadata_at", "raw",
	}}
	tags = &copyRows{table: "tags", columns: []string{"t", "tag", "ms", "n"}}
	events.reset()
	tags.reset()
	for i := range rows {
		row := &rows[i]
		events.row()
		events.int4(number)
		events.int8(row.id.Ms)
		events.int8(int64(row.id.Seq))
		if row.note != nil {
			copyNote(events, row.note)
			continue
		}
		const ofEvent = 0
		h := &row.head
		events.int2(ofEvent)
		events.text(row.stream)
		events.int8(int64(h.Length))
		events.text(row.typ)
		events.int8(row.time)
		events.int8(h.FirstTime)
		events.int8(int64(h.Generation))
		events.bytes(h.Chain[:])
		events.bytes(presentOf(h))
		events.bytes(row.kept)
		events.bytes(row.own)
		events.int4(int32(row.layout.Data))
		events.int4(int32(row.layout.Metadata))
		events.bytes(row.raw)
		for _, tag := range row.tags {
			tags.row()
			tags.int4(number)
			tags.bytes(tag[:])
			tags.int8(row.id.Ms)
			tags.int8(int64(row.id.Seq))
		}
	}
	return events, tags
}

// copyNote adds the columns of a note after its position.
func copyNote(events *copyRows, note *store.Note) {
	const ofNote = 1
	events.int2(ofNote)
	for range len(events.columns) - 5 {
		events.null()
	}
	events.bytes(record.AppendNote(nil, note))
}
