package pebble

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// recordFormat is the first byte of every value except those of the feed, due and expiry entries.
const recordFormat = 1

const hashBytes = sha256.Size

var (
	errShort  = record.ErrShort
	errFormat = record.ErrFormat
)

// An event's value is a header, a zero byte and the canonical bytes. An erased event keeps a leaf hash after the
// header. An event with tags that do not come from its metadata has these there: the length of all, and each preceded
// by its length. The zero byte is the one that RFC 6962 puts before a leaf, so that the leaf hash is the hash of the
// end of the value.
const (
	eventHeader   = 1 + 1 + 8 + 4 + 8 + 4 + 4
	flagRewritten = 1
	flagTagged    = 2

	dataMember     = `,"data":`
	metadataMember = `,"metadata":`
	keyMember      = `","key":"`
	typeMember     = `","type":"`
	idMember       = `{"stream_id":"`
)

// eventRecord is a parsed event value. Its slices are parts of the value.
type eventRecord struct {
	id        j17.StreamID
	timestamp int64
	layout    j17.Layout
	// kept is the leaf hash of the event that a rewritten one replaced, nil for others.
	kept []byte
	// tags are those that do not come from the metadata, in their stored form.
	tags []byte
	// raw is the canonical bytes; leafInput is raw with the zero byte before it.
	raw       []byte
	leafInput []byte
}

// appendEventRecord appends the value of an event to dst. kept is nil unless the event replaces another one.
func appendEventRecord(
	dst []byte, id j17.StreamID, key j17.Key, typ string, data, metadata []byte, timestamp int64, kept, tags []byte,
) []byte {
	start := len(dst)
	dst = append(appendEventHeader(dst, id, timestamp, j17.Layout{}, kept, tags), 0)
	dst, layout := j17.AppendEvent(dst, id, key, typ, data, metadata, timestamp)
	putLayout(dst[start:], layout)
	return dst
}

// appendEventHeader appends the part of an event's value before the zero byte and the canonical bytes.
func appendEventHeader(dst []byte, id j17.StreamID, timestamp int64, layout j17.Layout, kept, tags []byte) []byte {
	var h [eventHeader]byte
	h[0] = recordFormat
	if kept != nil {
		h[1] |= flagRewritten
	}
	if len(tags) > 0 {
		h[1] |= flagTagged
	}
	binary.BigEndian.PutUint64(h[2:], uint64(id.Ms))
	binary.BigEndian.PutUint32(h[10:], id.Seq)
	binary.BigEndian.PutUint64(h[14:], uint64(timestamp))
	putLayout(h[:], layout)
	dst = append(append(dst, h[:]...), kept...)
	if len(tags) > 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(tags))), tags...)
	}
	return dst
}

// putLayout writes the places of data and metadata into a header.
func putLayout(header []byte, layout j17.Layout) {
	binary.BigEndian.PutUint32(header[22:], uint32(layout.Data))
	binary.BigEndian.PutUint32(header[26:], uint32(layout.Metadata))
}

// leafOffset returns where the input of the leaf hash begins in the value of an event that is not erased; tags is the
// length of its tags.
func leafOffset(tags int) int {
	if tags == 0 {
		return eventHeader
	}
	var length [binary.MaxVarintLen64]byte
	return eventHeader + binary.PutUvarint(length[:], uint64(tags)) + tags
}

// parse reads an event's value and checks that the header and the canonical bytes fit each other.
func (r *eventRecord) parse(v []byte) error {
	// The header.
	if len(v) <= eventHeader {
		return errShort
	}
	if v[0] != recordFormat || v[1] > flagRewritten|flagTagged {
		return errFormat
	}
	ms := binary.BigEndian.Uint64(v[2:])
	if ms > math.MaxInt64 {
		return errFormat
	}
	r.id = j17.StreamID{Ms: int64(ms), Seq: binary.BigEndian.Uint32(v[10:])}
	r.timestamp = int64(binary.BigEndian.Uint64(v[14:]))
	r.layout = j17.Layout{Data: int(binary.BigEndian.Uint32(v[22:])), Metadata: int(binary.BigEndian.Uint32(v[26:]))}
	r.kept, r.tags = nil, nil

	// The parts before the canonical bytes that the header announces: the leaf that was first written, tags.
	rest := v[eventHeader:]
	if v[1]&flagRewritten != 0 {
		if len(rest) <= hashBytes {
			return errShort
		}
		r.kept, rest = rest[:hashBytes], rest[hashBytes:]
	}
	if v[1]&flagTagged != 0 {
		n, width := binary.Uvarint(rest)
		if width <= 0 || n >= uint64(len(rest)-width) {
			return errShort
		}
		r.tags, rest = rest[width:width+int(n)], rest[width+int(n):]
	}

	// The canonical bytes, with data and metadata at the places in the header.
	if rest[0] != 0 {
		return errFormat
	}
	r.leafInput, r.raw = rest, rest[1:]
	d, m := r.layout.Data, r.layout.Metadata
	if d < len(dataMember) || m <= d+len(metadataMember) || m > len(r.raw)-len("{}}") ||
		string(r.raw[d-len(dataMember):d]) != dataMember ||
		string(r.raw[m-len(metadataMember):m]) != metadataMember {
		return errors.New("the places of data and metadata are wrong")
	}
	return nil
}

// eventType returns the part of the canonical bytes that names the event's type. keyLen is the length of the
// stream's key in its text form.
func (r *eventRecord) eventType(keyLen int) ([]byte, error) {
	start := len(idMember) + streamIDLen(r.id) + len(keyMember) + keyLen + len(typeMember)
	end := r.layout.Data - len(dataMember) - len(`"`)
	if start >= end || string(r.raw[start-len(typeMember):start]) != typeMember || r.raw[end] != '"' {
		return nil, errors.New("position or key stand not in the event")
	}
	return r.raw[start:end], nil
}

// streamIDLen returns the length of the id's text form.
func streamIDLen(id j17.StreamID) int {
	n := len("1706789012345-0")
	for seq := id.Seq; seq > 9; seq /= 10 {
		n++
	}
	return n
}

// leaf returns the hash that stands for the event in its stream's chain.
func (r *eventRecord) leaf() [hashBytes]byte {
	if r.kept != nil {
		return [hashBytes]byte(r.kept)
	}
	return sha256.Sum256(r.leafInput)
}

// A head of a later generation ends with the generation and the chain over the present bytes.
const (
	headRecordBytes      = 1 + 8 + hashBytes + 8 + 4 + 8 + 8
	rewrittenRecordBytes = headRecordBytes + 8 + hashBytes
)

func appendHeadRecord(dst []byte, h *store.Head) []byte {
	dst = append(dst, recordFormat)
	dst = binary.BigEndian.AppendUint64(dst, h.Length)
	dst = append(dst, h.Chain[:]...)
	dst = record.AppendPosition(dst, h.Last)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.FirstTime))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.LastTime))
	if h.Generation == 0 {
		return dst
	}
	return append(binary.BigEndian.AppendUint64(dst, h.Generation), h.Present[:]...)
}

func parseHeadRecord(v []byte) (store.Head, error) {
	if (len(v) != headRecordBytes && len(v) != rewrittenRecordBytes) || v[0] != recordFormat {
		return store.Head{}, errFormat
	}
	h := store.Head{Length: binary.BigEndian.Uint64(v[1:]), Chain: [hashBytes]byte(v[9:])}
	v = v[9+hashBytes:]
	var ok bool
	if h.Last, ok = record.ParsePosition(v); !ok || h.Length == 0 {
		return store.Head{}, errFormat
	}
	h.FirstTime = int64(binary.BigEndian.Uint64(v[12:]))
	h.LastTime = int64(binary.BigEndian.Uint64(v[20:]))
	if rest := v[28:]; len(rest) > 0 {
		h.Generation, h.Present = binary.BigEndian.Uint64(rest), [hashBytes]byte(rest[8:])
	}
	return h, nil
}

// tenantState is what the committer needs to know of a tenant to continue.
type tenantState struct {
	unit.State

	// change is the number of the last change of the feed, over all tenants.
	change uint64
}

// stateOf returns the state of a tenant that holds nothing.
func stateOf(name j17.Tenant, number uint32) tenantState {
	return tenantState{State: unit.State{Name: name, Number: number}}
}

// The state of a tenant had no number of its last change before format 3.
const (
	olderStateBytes  = 1 + 8 + 4 + 8 + 8 + 8
	stateRecordBytes = olderStateBytes + 8
)

func appendStateRecord(dst []byte, s *tenantState) []byte {
	dst = append(dst, recordFormat)
	dst = record.AppendPosition(dst, s.Last)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.LastTime))
	dst = binary.BigEndian.AppendUint64(dst, s.Rev)
	dst = binary.BigEndian.AppendUint64(dst, s.Events)
	return binary.BigEndian.AppendUint64(dst, s.change)
}

func parseStateRecord(v []byte) (tenantState, error) {
	if (len(v) != stateRecordBytes && len(v) != olderStateBytes) || v[0] != recordFormat {
		return tenantState{}, errFormat
	}
	last, ok := record.ParsePosition(v[1:])
	if !ok {
		return tenantState{}, errFormat
	}
	s := tenantState{State: unit.State{
		Last:     last,
		LastTime: int64(binary.BigEndian.Uint64(v[13:])),
		Rev:      binary.BigEndian.Uint64(v[21:]),
		Events:   binary.BigEndian.Uint64(v[29:]),
	}}
	if len(v) == stateRecordBytes {
		s.change = binary.BigEndian.Uint64(v[olderStateBytes:])
	}
	return s, nil
}

// itemMeta is a side item without its key and value.
type itemMeta struct {
	unit.Meta

	// sealed reports that the value is stored encrypted.
	sealed bool
}

func expired(expires, now int64) bool { return expires != 0 && expires <= now }

const itemHeader = 1 + 8 + 8 + 8

// sealedFormat replaces recordFormat if the value of an item is sealed.
const sealedFormat = 2

func appendItemRecord(dst []byte, m itemMeta, value []byte) []byte {
	if m.sealed {
		dst = append(dst, sealedFormat)
	} else {
		dst = append(dst, recordFormat)
	}
	dst = binary.BigEndian.AppendUint64(dst, m.Rev)
	dst = appendTime(dst, m.Expires)
	dst = appendTime(dst, m.Due)
	return append(dst, value...)
}

// parseItemRecord returns the item's metadata and its value as it is stored, which is a part of v.
func parseItemRecord(v []byte) (itemMeta, []byte, error) {
	if len(v) < itemHeader {
		return itemMeta{}, nil, errShort
	}
	m := itemMeta{
		Meta: unit.Meta{
			Rev:     binary.BigEndian.Uint64(v[1:]),
			Expires: int64(binary.BigEndian.Uint64(v[9:])),
			Due:     int64(binary.BigEndian.Uint64(v[17:])),
		},
		sealed: v[0] == sealedFormat,
	}
	if v[0] != recordFormat && !m.sealed || m.Rev == 0 || m.Expires < 0 || m.Due < 0 {
		return itemMeta{}, nil, errFormat
	}
	return m, v[itemHeader:], nil
}

// fromNanos is the inverse of unit.Nanos.
func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// appendNumber appends the stored form of the format version, of tenant numbers and of the next one.
func appendNumber(dst []byte, n uint32) []byte { return binary.BigEndian.AppendUint32(dst, n) }

func parseNumber(v []byte) (uint32, error) {
	if len(v) != 4 {
		return 0, errFormat
	}
	return binary.BigEndian.Uint32(v), nil
}
