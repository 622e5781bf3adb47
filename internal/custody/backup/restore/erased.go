package restore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"j17"
	"j17/internal/custody/backup/repository"
	"j17/internal/storage/store"
)

// keyBytes is how much of the hash of a key represents it in large maps.
const keyBytes = 16

func hashOf(k j17.Key) [keyBytes]byte {
	sum := sha256.Sum256([]byte(k.Type + "\x00" + k.ID))
	return [keyBytes]byte(sum[:keyBytes])
}

// erased is what was erased of a tenant after the backup. In memory it has a few words for each stream, and nothing for
// an event: markers and notes are in files.
type erased struct {
	markers markers
	// noted has the notes, in their order.
	noted noteFile
	// streams are those with erased events; done counts those in which events were erased again.
	streams map[[keyBytes]byte]erasedStream
	done    int
}

// erasedStream describes a stream with erased events.
type erasedStream struct {
	// upTo is the version of its last erased event: all before it are erased too.
	upTo uint64
	// given is its last generation by the notes of the backup, or the one that was given to it here.
	given uint64
	// done reports that one of its events was replaced by a marker.
	done bool
}

// readErasures reads what was erased after the backup.
func (r *tenant) readErasures() (*erased, error) {
	x := &erased{
		markers: markers{temp: r.Temp, most: markersHeld}, noted: noteFile{temp: r.Temp},
		streams: map[[keyBytes]byte]erasedStream{},
	}
	for e, err := range r.Erasures(r.ctx, r.from.Tenant, r.from.Moment) {
		if err == nil {
			err = x.add(e)
		}
		if err != nil {
			x.close()
			return nil, err
		}
	}
	if err := errors.Join(x.markers.begin(), x.noted.begin()); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// add adds an erasure. For events that were erased twice, the later one is valid.
func (x *erased) add(e *repository.Erasure) error {
	for _, event := range e.Events {
		if err := x.markers.add(event.StreamID, event.Raw); err != nil {
			return err
		}
		of := hashOf(event.Key)
		s := x.streams[of]
		s.upTo = max(s.upTo, event.Version)
		x.streams[of] = s
	}
	return x.noted.add(&e.Note)
}

// had notes the generations that a note of the backup gives to streams.
func (x *erased) had(n *store.Note) {
	for _, g := range n.Streams {
		of := hashOf(g.Key)
		if s, ok := x.streams[of]; ok {
			s.given = max(s.given, g.Number)
			x.streams[of] = s
		}
	}
}

// of returns the replacement of an event that was erased after the backup, nil for any other. Events come in the order
// of the feed.
func (x *erased) of(e *j17.Event) (*j17.Event, error) {
	raw, err := x.markers.of(e.StreamID)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		if !e.Erased() && len(x.streams) > 0 && e.Version <= x.streams[hashOf(e.Key)].upTo {
			return nil, again(e, errors.New("another event had its version when that was erased"))
		}
		return nil, nil //nolint:nilnil // nothing was erased of it
	}
	if bytes.Equal(raw, e.Raw) {
		return nil, nil //nolint:nilnil // it was erased before
	}
	marker, err := j17.ParseEvent(raw)
	if err == nil && (marker.StreamID != e.StreamID || marker.Key != e.Key || marker.Timestamp != e.Timestamp) {
		err = errors.New("it is that of another event")
	}
	if err != nil {
		return nil, again(e, err)
	}
	of := hashOf(e.Key)
	if s := x.streams[of]; !s.done {
		s.done = true
		x.streams[of] = s
		x.done++
	}
	leaf := e.Leaf()
	marker.Version, marker.Kept = e.Version, leaf[:]
	return &marker, nil
}

// again is the error of an event that cannot be erased again.
func again(e *j17.Event, err error) error {
	return fmt.Errorf("what was erased of %s at %s cannot be erased again: %w", e.Key, e.StreamID, err)
}

// notes calls do with the notes about streams that exist, without those that began later or after the backup. A note
// has the generation of its own time, which the backup or an earlier erasure may have given already: each is given
// once.
func (x *erased) notes(later map[[keyBytes]byte]bool, do func(store.Note) error) error {
	return x.noted.read(func(n store.Note) error {
		there, at := store.Note{Position: n.Position}, map[[keyBytes]byte]int{}
		for _, g := range n.Streams {
			of := hashOf(g.Key)
			s := x.streams[of]
			if !s.done || later[of] || g.Number <= s.given {
				continue
			}
			s.given = g.Number
			x.streams[of] = s
			if i, ok := at[of]; ok {
				there.Streams[i].Number = g.Number
				continue
			}
			at[of] = len(there.Streams)
			there.Streams = append(there.Streams, g)
		}
		return do(there)
	})
}

func (x *erased) close() {
	x.markers.close()
	x.noted.close()
}

// noteFile keeps notes in a file.
type noteFile struct {
	temp string
	file *os.File
	out  *bufio.Writer
}

// add appends a note: its position and the number of its streams, and for each its generation, and its key with its
// length.
func (f *noteFile) add(n *store.Note) (err error) {
	if f.file == nil {
		if f.file, err = os.CreateTemp(f.temp, "notes-*"); err != nil {
			return err
		}
		f.out = bufio.NewWriter(f.file)
	}
	b := binary.AppendUvarint(nil, uint64(n.Position.Ms))
	b = binary.AppendUvarint(b, uint64(n.Position.Seq))
	b = binary.AppendUvarint(b, uint64(len(n.Streams)))
	for _, s := range n.Streams {
		name := s.Key.String()
		b = binary.AppendUvarint(b, s.Number)
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
	}
	_, err = f.out.Write(b)
	return err
}

// begin ends adding.
func (f *noteFile) begin() error {
	if f.file == nil {
		return nil
	}
	err := f.out.Flush()
	f.out = nil
	return err
}

// read calls do with each note, in their order. Consecutive notes with the same position are merged: they are parts of
// one erasure.
func (f *noteFile) read(do func(store.Note) error) error {
	if f.file == nil {
		return nil
	}
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReader(f.file)
	var whole store.Note
	for {
		n, err := readNote(in)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return fmt.Errorf("the notes of what was erased after the backup: %w", err)
		}
		if !ended && n.Position == whole.Position {
			whole.Streams = append(whole.Streams, n.Streams...)
			continue
		}
		if !whole.Position.IsZero() {
			if err := do(whole); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		whole = n
	}
}

// readNote reads what noteFile.add has written; io.EOF at the end.
func readNote(in *bufio.Reader) (n store.Note, err error) {
	ms, err := binary.ReadUvarint(in)
	if err != nil {
		return n, err
	}
	number := func() (v uint64) {
		if err == nil {
			v, err = binary.ReadUvarint(in)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return v
	}
	n.Position = j17.StreamID{Ms: int64(ms), Seq: uint32(number())}
	for range number() {
		s := store.Generation{Number: number()}
		name := make([]byte, min(number(), maxMarker))
		if err == nil {
			_, err = io.ReadFull(in, name)
		}
		key, ok := j17.ParseKey(string(name))
		if err == nil && !ok {
			err = fmt.Errorf("%q is no key", name)
		}
		if err != nil {
			return n, err
		}
		s.Key = key
		n.Streams = append(n.Streams, s)
	}
	return n, err
}

func (f *noteFile) close() {
	if f.file != nil {
		_ = f.file.Close() // a temporary file
		_ = os.Remove(f.file.Name())
	}
}
