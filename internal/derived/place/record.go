package place

import (
	"encoding/base64"
	"errors"
	"strings"

	"j17/internal/base/geo"
	"j17/internal/base/value"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The kinds of the bytes of a record that follow its entries.
const (
	nowhere = 'n'
	aPoint  = 'p'
	aShape  = 's'
)

// record returns the write that sets the place of an aggregate to that of an event. An aggregate that is nowhere has a
// record as well, so that no build finds an older place for it.
func (sl *slot) record(id string, l *decider.Location) store.Side {
	// Its entries, whose keys are parts of one text.
	var own [1][]byte
	keys := own[:0]
	size := len(sl.ID) + geo.NameDigits + pointDigits + len(id) + len("///")
	text := make([]byte, 0, size*len(l.Cells))
	for _, c := range l.Cells {
		begin := len(text)
		text = append(c.AppendName(append(append(text, sl.ID...), '/')), '/')
		if l.Point != nil {
			text = base64.RawURLEncoding.AppendEncode(text, geo.AppendPoint(make([]byte, 0, pointBytes), *l.Point))
		}
		text = append(append(text, '/'), id...)
		keys = append(keys, text[begin:])
	}
	b := store.AppendEntries(make([]byte, 0, len(text)+roomBehind), keys...)

	// The location.
	switch {
	case l.Point != nil:
		b = geo.AppendPoint(append(b, aPoint), *l.Point)
	case l.Shape != nil:
		shape := l.Shape.AppendBinary(nil)
		b = appendLength(append(b, aShape), len(shape))
		b = append(b, shape...)
	default:
		b = append(b, nowhere)
	}
	b = l.Properties.AppendJSON(b)
	return store.Side{Op: store.Put, Space: places, Key: sl.key(id), Value: b, Entries: cells}
}

// key returns the key of an aggregate's record.
func (sl *slot) key(id string) string { return sl.typ + ":" + id + "/" + sl.ID }

func appendLength(dst []byte, n int) []byte {
	return append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

var errRecord = errors.New("the record of a place has an unknown form")

// readRecord decodes the location of an aggregate; nil means nowhere. It leaves out Cells.
func readRecord(item *store.Item) (*decider.Location, error) {
	damaged := &store.CorruptionError{Where: "the place of " + item.Key, Err: errRecord}
	b, err := store.BehindEntries(item.Value)
	if err != nil || len(b) == 0 {
		return nil, damaged
	}
	kind, b := b[0], b[1:]
	l := &decider.Location{}
	switch kind {
	case nowhere:
		return nil, nil
	case aPoint:
		if len(b) < 16 {
			return nil, damaged
		}
		var p geo.Point
		p, b = geo.ReadBinary(b)
		l.Point = &p
	case aShape:
		if len(b) < 4 {
			return nil, damaged
		}
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		if b = b[4:]; n > len(b) {
			return nil, damaged
		}
		if l.Shape, err = geo.DecodeShape(b[:n]); err != nil {
			return nil, damaged
		}
		b = b[n:]
	default:
		return nil, damaged
	}
	if len(b) > 0 {
		if l.Properties, err = value.ParseStored(string(b)); err != nil {
			return nil, damaged
		}
	}
	return l, nil
}

const (
	// pointBytes is the length of an encoded point, pointDigits its length in keys.
	pointBytes, pointDigits = 16, 22
	// roomBehind is the usual maximum size of a record without the keys of its entries.
	roomBehind = 48
)

// pointIn decodes the point at the beginning of a text, which is followed by a slash.
func pointIn(text []byte) (p geo.Point, err error) {
	var b [16]byte
	if len(text) <= pointDigits || text[pointDigits] != '/' {
		return p, &store.CorruptionError{Where: "an entry of places", Err: errRecord}
	}
	if n, err := base64.RawURLEncoding.Decode(b[:], text[:pointDigits]); err != nil || n != len(b) {
		return p, &store.CorruptionError{Where: "an entry of places", Err: errRecord}
	}
	p, _ = geo.ReadBinary(b[:])
	return p, nil
}

// entry is a decoded key of an entry.
type entry struct {
	point geo.Point
	id    string
	// group is the common prefix of the keys of all entries with the same point.
	group string
}

// readEntry decodes the key of an entry of points.
func readEntry(key string) (entry, error) {
	_, rest, _ := strings.Cut(key, "/")
	name, rest, _ := strings.Cut(rest, "/")
	point, id, ok := strings.Cut(rest, "/")
	e := entry{id: id, group: key[:len(key)-len(id)]}
	var b [16]byte
	if ok = ok && len(point) == pointDigits; ok {
		n, err := base64.RawURLEncoding.Decode(b[:], []byte(point))
		ok = err == nil && n == len(b)
	}
	if ok {
		e.point, _ = geo.ReadBinary(b[:])
		ok = name == string(e.point.Cell().AppendName(make([]byte, 0, geo.NameDigits)))
	}
	if !ok {
		return entry{}, &store.CorruptionError{Where: "an entry of places", Err: errRecord}
	}
	return e, nil
}

// found returns the result for an aggregate.
func (sl *slot) found(id string, l *decider.Location, distance float64) Found {
	return Found{
		ID: id, Geo: sl.place.Type.Name, Properties: l.Properties, Location: *l, Distance: distance,
		Mark: Mark{Distance: distance, ID: id, Slot: sl.ID},
	}
}

// plain reports whether the places of the slot have only coordinates.
func (sl *slot) plain() bool { return sl.place.Type.Name == spec.Point }
