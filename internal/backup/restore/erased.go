package restore

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"

	"j17"
	"j17/internal/backup/repository"
	"j17/internal/store"
)

// keyBytes is how much of the hash of a key stands for it where there may be many.
const keyBytes = 16

func hashOf(k j17.Key) [keyBytes]byte {
	sum := sha256.Sum256([]byte(k.Type + "\x00" + k.ID))
	return [keyBytes]byte(sum[:keyBytes])
}

// erased is what was erased of a tenant after the backup. The markers stand in a file.
type erased struct {
	markers *os.File
	size    int64
	// streams tells where the markers of each stream are, done which streams have one that was put in its place.
	streams map[j17.Key]map[uint64]span
	done    map[j17.Key]bool
	// given is the generation that each of these streams had last by the notes of the backup.
	given map[j17.Key]uint64
	noted []store.Note
}

// span is where a marker stands.
type span struct {
	at     int64
	length int
}

// readErasures reads what was erased after the backup.
func (r *tenant) readErasures() (*erased, error) {
	x := &erased{streams: map[j17.Key]map[uint64]span{}, done: map[j17.Key]bool{}, given: map[j17.Key]uint64{}}
	for e, err := range r.Erasures(r.ctx, r.from.Tenant, r.from.Moment) {
		if err == nil {
			err = x.add(r.Temp, e)
		}
		if err != nil {
			x.close()
			return nil, err
		}
	}
	return x, nil
}

// add takes an erasure in. Where something was erased twice, the later one counts.
func (x *erased) add(temp string, e *repository.Erasure) (err error) {
	if x.markers == nil {
		if x.markers, err = os.CreateTemp(temp, "markers-*"); err != nil {
			return err
		}
	}
	for _, event := range e.Events {
		if x.streams[event.Key] == nil {
			x.streams[event.Key] = map[uint64]span{}
		}
		x.streams[event.Key][event.Version] = span{x.size, len(event.Raw)}
		if _, err := x.markers.Write(event.Raw); err != nil {
			return err
		}
		x.size += int64(len(event.Raw))
	}

	// The parts of one erasure have the same note.
	if n := len(x.noted); n == 0 || x.noted[n-1].Position != e.Note.Position {
		x.noted = append(x.noted, store.Note{Position: e.Note.Position})
	}
	last := &x.noted[len(x.noted)-1]
	last.Streams = append(last.Streams, e.Note.Streams...)
	return nil
}

// had takes in what a note of the backup gives to streams.
func (x *erased) had(n *store.Note) {
	for _, s := range n.Streams {
		if x.streams[s.Key] != nil {
			x.given[s.Key] = max(x.given[s.Key], s.Number)
		}
	}
}

// of returns what stands in the place of an event that was erased after the backup, nil for any other.
func (x *erased) of(e *j17.Event) (*j17.Event, error) {
	where, ok := x.streams[e.Key][e.Version]
	if !ok {
		return nil, nil //nolint:nilnil // nothing was erased of it
	}
	raw := make([]byte, where.length)
	if _, err := x.markers.ReadAt(raw, where.at); err != nil {
		return nil, err
	}
	if bytes.Equal(raw, e.Raw) {
		return nil, nil //nolint:nilnil // it was erased before
	}
	marker, err := j17.ParseEvent(raw)
	if err == nil && (marker.StreamID != e.StreamID || marker.Key != e.Key || marker.Timestamp != e.Timestamp) {
		err = errors.New("it is that of another event")
	}
	if err != nil {
		return nil, fmt.Errorf("what was erased of %s at %s cannot be erased again: %w", e.Key, e.StreamID, err)
	}
	x.done[e.Key] = true
	leaf := e.Leaf()
	marker.Version, marker.Kept = e.Version, leaf[:]
	return &marker, nil
}

// notes returns those about streams that are there: not those that began later, or after the backup. What was erased is written down with
// the generation of the moment when it is, which may be one that the backup or an earlier erasure gives already: each is given once.
func (x *erased) notes(later map[[keyBytes]byte]bool) (notes []store.Note) {
	for _, n := range x.noted {
		there, at := store.Note{Position: n.Position}, map[j17.Key]int{}
		for _, s := range n.Streams {
			if !x.done[s.Key] || later[hashOf(s.Key)] || s.Number <= x.given[s.Key] {
				continue
			}
			x.given[s.Key] = s.Number
			if i, ok := at[s.Key]; ok {
				there.Streams[i].Number = s.Number
				continue
			}
			at[s.Key] = len(there.Streams)
			there.Streams = append(there.Streams, s)
		}
		notes = append(notes, there)
	}
	return notes
}

// applied lists the streams of which something was erased again.
func (x *erased) applied() (keys []j17.Key) {
	for key := range x.done {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b j17.Key) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
	return keys
}

func (x *erased) close() {
	if x.markers != nil {
		_ = x.markers.Close() // a temporary file
		_ = os.Remove(x.markers.Name())
	}
}
