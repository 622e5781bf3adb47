package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// tableBytes is the size at which a table of a load ends: about that of the tables that the engine makes.
const tableBytes = 8 << 20

// tableWriter writes records, which come in the order of their keys, into tables. No table has keys of two kinds, since
// keys of other writers lie between the kinds. A separate goroutine compresses and writes while the next records are
// made.
type tableWriter struct {
	folder *workFolder
	form   sstable.WriterOptions

	// filling takes records; full buffers go to the goroutine, which returns them.
	filling    *sortBuffer
	full, free chan *sortBuffer
	writing    sync.WaitGroup
	// failed reports that err is set.
	failed atomic.Bool

	// Owned by the goroutine until it has ended.
	open  *sstable.Writer
	kind  byte
	n     int
	paths []string
	err   error
}

// start begins to write.
func (w *tableWriter) start() {
	const ahead = 2
	w.filling, w.full, w.free = &sortBuffer{}, make(chan *sortBuffer, ahead), make(chan *sortBuffer, ahead+1)
	for range ahead {
		w.free <- &sortBuffer{}
	}
	w.writing.Go(func() {
		for b := range w.full {
			if w.err == nil {
				w.err = panics.Caught(func() error { return w.putAll(b) })
			}
			w.failed.Store(w.err != nil)
			b.data, b.placed = b.data[:0], b.placed[:0]
			w.free <- b
		}
	})
}

// set adds a record.
func (w *tableWriter) set(key, value []byte) error {
	if w.full == nil {
		w.start()
	}
	b := w.filling
	b.placed = append(b.placed, placedRecord{
		start: uint32(len(b.data)), key: uint32(len(key)), value: uint32(len(value)),
	})
	b.data = append(append(b.data, key...), value...)
	if b.bytes() < pageBytes {
		return nil
	}
	w.full <- b
	w.filling = <-w.free
	if w.failed.Load() {
		return errTables
	}
	return nil
}

// errTables is the error of set after a failure; close returns the cause.
var errTables = errors.New("a table could not be written")

// putAll writes the records of a buffer.
func (w *tableWriter) putAll(b *sortBuffer) error {
	for i := range b.placed {
		r := &b.placed[i]
		end := r.start + r.key
		if err := w.put(b.keyOf(r), b.data[end:end+r.value]); err != nil {
			return err
		}
	}
	return nil
}

// put writes a record.
func (w *tableWriter) put(key, value []byte) error {
	if w.open != nil && w.kind != key[tenantPrefix] {
		if err := w.end(); err != nil {
			return err
		}
	}
	if w.open == nil {
		f, path, err := w.folder.create(tableSuffix)
		if err != nil {
			return err
		}
		w.paths, w.kind = append(w.paths, path), key[tenantPrefix]
		w.open = sstable.NewWriter(objstorageprovider.NewFileWritable(&unfinishedTable{File: f}), w.form)
	}
	if err := w.open.Set(key, value); err != nil {
		return err
	}
	const often = 64
	if w.n++; w.n%often == 0 && w.open.Raw().EstimatedSize() >= tableBytes {
		return w.end()
	}
	return nil
}

// end completes a table, which is durable from then on.
func (w *tableWriter) end() error {
	if w.open == nil {
		return nil
	}
	err := w.open.Close()
	w.open = nil
	return err
}

// close completes the last table, and returns the first error.
func (w *tableWriter) close() error {
	if w.full == nil {
		return nil
	}
	w.full <- w.filling
	close(w.full)
	w.writing.Wait()
	w.full = nil
	return errors.Join(w.err, w.end())
}

func (l *loading) newTables() *tableWriter {
	return &tableWriter{folder: l.folder, form: l.store.tableForm}
}

// tables writes all tables of a load and returns their paths, those with items and commands separately. No two tables
// overlap, since writers have different kinds of keys.
func (l *loading) tables(ctx context.Context) (paths, ofItems []string, err error) {
	events, heads, feed, tags, items := l.newTables(), l.newTables(), l.newTables(), l.newTables(), l.newTables()
	all := []*tableWriter{events, heads, feed, tags, items}

	// Two goroutines write, and if one fails the other one ends.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var other error
	var done sync.WaitGroup
	done.Go(func() {
		other = panics.Caught(func() error {
			if err := l.tags.each(ctx, tags.set); err != nil {
				return err
			}
			return l.itemTables(ctx, items)
		})
		if other != nil {
			cancel(other)
		}
	})
	err = panics.Caught(func() error {
		if err := l.eventTables(ctx, events, heads); err != nil {
			return err
		}
		return l.feedTables(ctx, feed)
	})
	if err != nil {
		cancel(err)
	}
	done.Wait()
	if err != nil || other != nil {
		err = context.Cause(ctx)
	}

	// The error of a writer is the cause of errTables.
	for _, w := range all {
		if failed := w.close(); failed != nil && (err == nil || errors.Is(err, errTables)) {
			err = failed
		}
		if w != items {
			paths = append(paths, w.paths...)
		}
	}
	return paths, items.paths, err
}

// itemsAnew writes the tables with items and commands again, with what the tenant has now.
func (l *loading) itemsAnew(ctx context.Context) ([]string, error) {
	l.there = newSorter(l.folder, itemBudget)
	items := l.newTables()
	err := l.itemTables(ctx, items)
	if failed := items.close(); failed != nil && (err == nil || errors.Is(err, errTables)) {
		err = failed
	}
	return items.paths, err
}

// streamOf is the stream whose events are being written.
type streamOf struct {
	unit.LoadedStream

	// name is in the form of keys, nil before the first stream.
	name []byte
	key  j17.Key
	// line and at are those of the last event or note.
	line int
	at   j17.StreamID
}

// fail returns an error about the last event or note.
func (s *streamOf) fail(err error) error {
	return &store.LoadError{Line: s.line, Position: s.at, Key: s.key, Err: err}
}

// eventTables writes the events and the heads of their streams, and adds the references to the events to the feed.
func (l *loading) eventTables(ctx context.Context, events, heads *tableWriter) error {
	var stream streamOf
	var stored eventRecord
	eventKey, headKey, head := appendPrefix(nil, l.number, kindEvent), appendPrefix(nil, l.number, kindHead),
		[]byte(nil)
	finish := func() error {
		if stream.name == nil {
			return nil
		}
		if stream.Length == 0 {
			return stream.fail(unit.ErrNoEvents)
		}
		whole := stream.Whole()
		headKey, head = append(headKey[:tenantPrefix+1], stream.name...), appendHeadRecord(head[:0], &whole)
		return heads.set(headKey, head)
	}
	err := l.events.each(ctx, func(key, value []byte) error {
		// When another stream begins the one before is complete.
		name := key[:len(key)-1-positionBytes]
		if stream.name == nil || !bytes.Equal(name, stream.name) {
			if err := finish(); err != nil {
				return err
			}
			if err := stream.begin(name); err != nil {
				return err
			}
		}
		stored, err := stream.next(key, value, &stored)
		if err != nil || stored == nil {
			return err
		}

		// The event's version is known now.
		eventKey = binary.BigEndian.AppendUint64(
			append(append(eventKey[:tenantPrefix+1], name...), 0), stream.Length,
		)
		if err := l.feed.add(key[len(key)-positionBytes:], eventKey[tenantPrefix+1:]); err != nil {
			return err
		}
		return events.set(eventKey, stored)
	})
	if err != nil {
		return err
	}
	return finish()
}

// begin begins another stream.
func (s *streamOf) begin(name []byte) error {
	key, ok := splitStream(name)
	if !ok {
		return errFormat
	}
	*s = streamOf{name: append(s.name[:0], name...), key: key}
	return nil
}

// next takes the next event or note of the stream, and returns the record of an event, nil for a note.
func (s *streamOf) next(key, value []byte, stored *eventRecord) ([]byte, error) {
	var ok bool
	if s.at, ok = record.ParsePosition(key[len(key)-positionBytes:]); !ok {
		return nil, errFormat
	}

	// A note gives a generation.
	kind, rest := value[0], value[1:]
	if kind == sortedNote {
		generation, _ := binary.Uvarint(rest)
		if err := s.Note(generation); err != nil {
			return nil, s.fail(err)
		}
		return nil, nil
	}

	// Parse what was given with the event.
	leaf, rest := [hashBytes]byte(rest), rest[hashBytes:]
	var want *[hashBytes]byte
	if kind == sortedChained {
		want, rest = (*[hashBytes]byte)(rest), rest[hashBytes:]
	}
	line, width := binary.Varint(rest)
	version, width2 := binary.Uvarint(rest[max(width, 0):])
	if width <= 0 || width2 <= 0 {
		return nil, errFormat
	}
	s.line, rest = int(line), rest[width+width2:]
	if err := stored.parse(rest); err != nil {
		return nil, s.fail(err)
	}

	// Add the event to the stream.
	if err := s.Event(s.at, stored.timestamp, version, want, leaf, stored.kept); err != nil {
		return nil, s.fail(err)
	}
	return rest, nil
}

// feedTables writes the feed.
func (l *loading) feedTables(ctx context.Context, feed *tableWriter) error {
	if err := l.feed.settle(); err != nil {
		return err
	}

	// Consecutive events are runs, the same ones as for the tags in Event.
	var run feedRun
	var last j17.StreamID
	key := appendPrefix(nil, l.number, kindFeed)
	finish := func() error {
		if run.n == 0 {
			return nil
		}
		return feed.set(record.AppendPosition(key[:tenantPrefix+1], last), run.take())
	}
	err := l.feed.each(ctx, func(position, value []byte) error {
		at, ok := record.ParsePosition(position)
		if !ok {
			return errFormat
		}
		if run.n == maxRun || at != last.Next() || record.IsNote(value) {
			if err := finish(); err != nil {
				return err
			}
		}
		if record.IsNote(value) {
			return feed.set(record.AppendPosition(key[:tenantPrefix+1], at), value)
		}
		last = at
		run.refer(value)
		return nil
	})
	if err != nil {
		return err
	}
	return finish()
}

// itemTables writes the side items and commands, with due times, expiries and entries.
func (l *loading) itemTables(ctx context.Context, items *tableWriter) error {
	// Only the last of the items with the same name is left, so due times, expiries and entries can be derived now.
	if l.derives && !l.derived {
		l.derived = true
		if err := l.items.each(ctx, l.deriveFrom); err != nil {
			return err
		}
		if err := l.others.settle(); err != nil {
			return err
		}
	}
	if l.takes {
		if err := l.takeOver(ctx); err != nil {
			return err
		}
	}
	return eachOf(ctx, func(key, value []byte) error {
		if key[tenantPrefix] == kindItem {
			if len(value) == 0 { // withdrawn
				return nil
			}
			_, value, _ = bytes.Cut(value, []byte{0}) // the space of its entries
		}
		return items.set(key, value)
	}, l.items, l.others, l.there)
}

// deriveFrom adds the due and expiry entries of an item, and its entries.
func (l *loading) deriveFrom(key, value []byte) error {
	if len(value) == 0 { // withdrawn
		return nil
	}
	entries, value, _ := bytes.Cut(value, []byte{0})
	meta, content, err := parseItemRecord(value)
	if err != nil {
		return err
	}
	if meta.Expires != 0 {
		if err := l.others.add(appendExpiryKey(nil, l.number, meta.Expires, key)); err != nil {
			return err
		}
	}
	if meta.Due != 0 {
		space, name, _ := cutSpace(key[tenantPrefix+1:])
		if err := l.others.add(appendDueKey(nil, l.number, space, meta.Due, name)); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		return nil
	}
	names, _, err := store.ReadEntries(content)
	if err != nil {
		return err
	}
	for _, name := range names {
		entry := appendItemRecord([]byte{0}, itemMeta{Meta: unit.Meta{Rev: l.state.NextRev()}}, nil)
		if err := l.others.add(appendItemKey(nil, l.number, store.Space(entries), string(name)), entry); err != nil {
			return err
		}
	}
	return nil
}
