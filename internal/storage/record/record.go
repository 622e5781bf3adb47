// Package record encodes what every engine stores in the same form: results of commands, notes, tags and sealed values.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// Version is the first byte of every record.
const Version = 1

// Errors of records that cannot be read.
var (
	ErrShort  = errors.New("the record is too short")
	ErrFormat = errors.New("the record has an unknown format")
)

// PositionBytes is the length of a position.
const PositionBytes = 8 + 4

// AppendPosition appends a position. Its bytes have the order of positions.
func AppendPosition(dst []byte, id j17.StreamID) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.Ms))
	return binary.BigEndian.AppendUint32(dst, id.Seq)
}

// ParsePosition reads the position that v begins with. v has at least PositionBytes.
func ParsePosition(v []byte) (j17.StreamID, bool) {
	ms := binary.BigEndian.Uint64(v)
	if ms > math.MaxInt64 {
		return j17.StreamID{}, false
	}
	return j17.StreamID{Ms: int64(ms), Seq: binary.BigEndian.Uint32(v[8:])}, true
}

// AppendCommand appends the record of a unit's result, and when it expires in Unix nanoseconds, 0 for never. The
// positions of a unit are consecutive, so the first one is enough.
func AppendCommand(dst []byte, expires int64, r *store.Result, memo []byte) []byte {
	dst = append(dst, Version)
	dst = binary.BigEndian.AppendUint64(dst, uint64(expires))
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.Timestamp))
	var first j17.StreamID
	if len(r.IDs) > 0 {
		first = r.IDs[0]
	}
	dst = AppendPosition(dst, first)
	dst = binary.AppendUvarint(dst, uint64(len(r.Lengths)))
	for _, n := range r.Lengths {
		dst = binary.AppendUvarint(dst, n)
	}
	return append(dst, memo...)
}

const commandHeader = 1 + 8 + 8 + PositionBytes

// ParseCommand returns the stored result as that of a duplicate, and when it expires.
func ParseCommand(v []byte) (*store.Result, int64, error) {
	// The header: expiry, time and the position of the first event.
	if len(v) < commandHeader {
		return nil, 0, ErrShort
	}
	expires := int64(binary.BigEndian.Uint64(v[1:]))
	id, ok := ParsePosition(v[17:])
	if v[0] != Version || expires < 0 || !ok {
		return nil, 0, ErrFormat
	}
	r := &store.Result{
		Outcome:   store.Duplicate,
		Timestamp: int64(binary.BigEndian.Uint64(v[9:])),
	}

	// The events, at consecutive positions.
	v = v[commandHeader:]
	count, n := binary.Uvarint(v)
	if n <= 0 || count > store.MaxUnitEvents {
		return nil, 0, fmt.Errorf("%w: number of events", ErrFormat)
	}
	v = v[n:]
	if count > 0 {
		r.IDs = make([]j17.StreamID, 0, count)
		r.Lengths = make([]uint64, 0, count)
	}
	for range count {
		length, n := binary.Uvarint(v)
		if n <= 0 {
			return nil, 0, ErrShort
		}
		v = v[n:]
		r.IDs = append(r.IDs, id)
		r.Lengths = append(r.Lengths, length)
		id = id.Next()
	}

	// The rest is the memo.
	if len(v) > 0 {
		r.Memo = append([]byte(nil), v...)
	}
	return r, expires, nil
}

// Stream returns the name under which an engine keeps a stream: the aggregate type, a zero byte, and the id.
func Stream(key j17.Key) []byte {
	return AppendStream(make([]byte, 0, len(key.Type)+1+len(key.ID)), key)
}

// AppendStream appends the name of a stream.
func AppendStream(dst []byte, key j17.Key) []byte {
	dst = append(dst, key.Type...)
	dst = append(dst, 0)
	return append(dst, key.ID...)
}

// ParseStream returns the key of the stream with a name.
func ParseStream(name []byte) (key j17.Key, ok bool) {
	typ, id, ok := CutStream(name)
	return j17.Key{Type: string(typ), ID: string(id)}, ok
}

// CutStream returns the type and the id in the name of a stream.
func CutStream(name []byte) (typ, id []byte, ok bool) { return bytes.Cut(name, []byte{0}) }

// TypeNames keeps the names of types, so that an iteration allocates each of them once.
type TypeNames struct{ names []string }

// Name returns a name as a string.
func (n *TypeNames) Name(b []byte) string {
	for i, name := range n.names {
		if name == string(b) {
			// The next event probably has the same type, or one seen recently.
			if i > 0 {
				n.names[i], n.names[i-1] = n.names[i-1], n.names[i]
			}
			return name
		}
	}
	name := string(b)
	const enough = 32
	if len(n.names) < enough {
		n.names = append(n.names, name)
	}
	return name
}

// IsNote reports whether a value is that of a note. It is for places where other values never begin with Version.
func IsNote(value []byte) bool { return len(value) > 0 && value[0] == Version }

// AppendNote appends the record of a note, without its position: the number of streams, and for each the length of its
// name, the name and the generation; numbers are varints.
func AppendNote(dst []byte, note *store.Note) []byte {
	dst = binary.AppendUvarint(append(dst, Version), uint64(len(note.Streams)))
	for i := range note.Streams {
		g := &note.Streams[i]
		name := Stream(g.Key)
		dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
		dst = binary.AppendUvarint(dst, g.Number)
	}
	return dst
}

// ParseNote reads the note at a position.
func ParseNote(at j17.StreamID, value []byte) (*store.Note, error) {
	if !IsNote(value) {
		return nil, ErrFormat
	}
	note := &store.Note{Position: at}
	count, width := binary.Uvarint(value[1:])
	if width <= 0 || count == 0 || count > store.MaxUnitEvents {
		return nil, ErrFormat
	}
	for value = value[1+width:]; count > 0; count-- {
		n, width := binary.Uvarint(value)
		if width <= 0 || n > uint64(len(value)-width) {
			return nil, ErrFormat
		}
		key, ok := ParseStream(value[width : width+int(n)])
		value = value[width+int(n):]
		generation, width := binary.Uvarint(value)
		if width <= 0 || !ok {
			return nil, ErrFormat
		}
		note.Streams, value = append(note.Streams, store.Generation{Key: key, Number: generation}), value[width:]
	}
	if len(value) > 0 {
		return nil, ErrFormat
	}
	return note, nil
}

// TagID identifies a tag in indexes by the first bytes of its SHA-256, so that long tags cost no more than short ones.
type TagID [16]byte

// IDOfTag returns the id of a tag.
func IDOfTag[T string | []byte](tag T) TagID {
	sum := sha256.Sum256([]byte(tag))
	return TagID(sum[:len(TagID{})])
}

// FromMetadata reports whether a tag is one that comes from the metadata of an event.
func FromMetadata(tag string) bool {
	return strings.HasPrefix(tag, "actor:") || strings.HasPrefix(tag, "target:") || j17.IsCorrelationTag(tag)
}

// AppendTags appends the tags that do not come from the metadata, each after its length.
func AppendTags(dst []byte, tags []string) []byte {
	for _, tag := range tags {
		if !FromMetadata(tag) {
			dst = append(binary.AppendUvarint(dst, uint64(len(tag))), tag...)
		}
	}
	return dst
}

// ParseTags reads what AppendTags has written.
func ParseTags(v []byte) (tags []string, err error) {
	for rest := v; len(rest) > 0; {
		n, width := binary.Uvarint(rest)
		if width <= 0 || n > uint64(len(rest)-width) {
			return nil, ErrFormat
		}
		rest = rest[width:]
		tags, rest = append(tags, string(rest[:n])), rest[n:]
	}
	return tags, nil
}
