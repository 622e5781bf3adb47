package j17

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Event is one stored fact.
//
// Raw holds the canonical bytes, which are what is stored, hashed, served and exported: one line of JSON,
//
//	{"stream_id":S,"key":K,"type":T,"data":D,"metadata":M}
//
// with no white space outside strings and the timestamp as the last member of M. Data and Metadata are views
// into Raw.
type Event struct {
	StreamID StreamID
	Key      Key
	// Version is the event's number in its own stream; the first event has version 1.
	Version uint64
	Type    string
	// Timestamp is the time of the event in Unix seconds.
	Timestamp int64
	Raw       []byte
	Data      []byte
	Metadata  []byte
	// Kept is the leaf hash of the bytes that an erased event had at first, nil for all others.
	Kept []byte
	// Stored is the event as it is stored, nil where this is it: an event in an older generation is shown in the newest
	// one, with another Type, Data, Metadata and Raw (package upcast).
	Stored *Event
}

// Erased reports whether the event was erased: its bytes are not those of its leaf.
func (e *Event) Erased() bool { return e.Kept != nil }

// Clone returns a copy that shares no bytes with the event, which may be valid for a moment only.
func (e *Event) Clone() *Event {
	c := new(Event)
	e.CopyTo(c, make([]byte, 0, len(e.Raw)))
	return c
}

// CopyTo makes c a copy of the event that shares no bytes with it. Its Raw is appended to what it is given and returns:
// who copies many events keeps them together.
func (e *Event) CopyTo(c *Event, to []byte) []byte {
	*c = *e
	start := len(to)
	if e.Stored != nil {
		c.Stored = e.Stored.Clone()
	}
	if e.Raw == nil {
		return to
	}
	to = append(to, e.Raw...)
	c.Raw, c.Kept = slices.Clip(to[start:]), bytes.Clone(e.Kept)
	at := Layout{Metadata: len(e.Raw) - len("}") - len(e.Metadata)}
	at.Data = at.Metadata - len(metadataMember) - len(e.Data)
	c.Data, c.Metadata = at.DataOf(c.Raw), at.MetadataOf(c.Raw)
	return to
}

// AsStored returns the event as it is stored, which may be the event itself.
func (e *Event) AsStored() *Event {
	if e.Stored != nil {
		return e.Stored
	}
	return e
}

// Leaf returns the hash that stands for the event in chains, trees and proofs: that of its stored bytes, or of those
// that it had at first.
func (e *Event) Leaf() [sha256.Size]byte {
	if e = e.AsStored(); e.Kept != nil {
		return [sha256.Size]byte(e.Kept)
	}
	return Leaf(e.Raw)
}

// Leaf returns the leaf hash of canonical bytes, SHA-256(0x00 || raw), as RFC 6962 has it.
func Leaf(raw []byte) (leaf [sha256.Size]byte) {
	h := sha256.New()
	_, _ = h.Write([]byte{0}) // A hash takes everything.
	_, _ = h.Write(raw)
	h.Sum(leaf[:0])
	return leaf
}

// Link returns the hash of a stream's chain that follows chain when an event with that leaf is added: SHA-256(chain ||
// leaf).
func Link(chain, leaf [sha256.Size]byte) [sha256.Size]byte {
	var in [2 * sha256.Size]byte
	copy(in[:], chain[:])
	copy(in[sha256.Size:], leaf[:])
	return sha256.Sum256(in[:])
}

// ActorTag returns the tag that an event has of its actor.
func ActorTag(a Agent) string { return "actor:" + a.Type + ":" + a.ID }

// TargetTag returns the tag that an event has of its target.
func TargetTag(a Agent) string { return "target:" + a.Type + ":" + a.ID }

// maxTag is how long a tag may be, in bytes. History may hold longer ones, which no event of ours has.
const maxTag = 1024

// correlationTag begins the tag that an event has of its correlation id. No tag that a spec declares begins so, since
// it has a colon behind its name.
const correlationTag = "correlation="

// CorrelationTag returns the tag that an event has of its correlation id, "" where that is no UUID. Letters of both
// cases are the same.
func CorrelationTag(id string) string {
	if len(id) != 36 {
		return ""
	}
	for i := range len(id) {
		if c := id[i]; i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return ""
			}
		} else if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return ""
		}
	}
	return correlationTag + strings.ToLower(id)
}

// IsCorrelationTag reports whether a tag is one of CorrelationTag.
func IsCorrelationTag(tag string) bool { return strings.HasPrefix(tag, correlationTag) }

// MetadataTags returns the tags that canonical metadata give an event: those of its actor, its target and its
// correlation id. What is not in the form in which events have it gives none.
func MetadataTags(metadata []byte) []string {
	var members map[string]json.RawMessage
	if json.Unmarshal(metadata, &members) != nil {
		return nil
	}
	var tags []string
	for _, of := range []struct {
		member string
		tag    func(Agent) string
	}{{"actor", ActorTag}, {"target", TargetTag}} {
		var agent map[string]any
		if json.Unmarshal(members[of.member], &agent) != nil {
			continue
		}
		typ, _ := agent["type"].(string)
		id, _ := agent["id"].(string)
		if typ == "" || id == "" {
			continue
		}
		if tag := of.tag(Agent{Type: typ, ID: id}); len(tag) <= maxTag && !strings.ContainsRune(tag, 0) {
			tags = append(tags, tag)
		}
	}
	var correlation string
	if json.Unmarshal(members["correlation_id"], &correlation) == nil {
		if tag := CorrelationTag(correlation); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// Layout tells where Data and Metadata stand in canonical bytes: Raw[Data:Metadata-len(`,"metadata":`)] is the
// data, Raw[Metadata:len(Raw)-1] the metadata.
type Layout struct {
	Data     int
	Metadata int
}

const metadataMember = `,"metadata":`

// AppendEvent appends the canonical bytes of an event to dst and returns the extended slice and where data and
// metadata stand in it, counted from the event's first byte. data is a compact JSON value; metadata a compact
// JSON object without the member "timestamp", which AppendEvent adds. Types and ids are made of characters
// that JSON strings hold unescaped; spec and identifier checks see to that.
func AppendEvent(
	dst []byte, id StreamID, key Key, typ string, data, metadata []byte, timestamp int64,
) ([]byte, Layout) {
	start := len(dst)
	dst = appendHead(dst, id, key, typ)
	var at Layout
	at.Data = len(dst) - start
	dst = append(dst, data...)
	dst = append(dst, metadataMember...)
	at.Metadata = len(dst) - start
	dst = append(dst, metadata[:len(metadata)-1]...)
	if len(metadata) > len(`{}`) {
		dst = append(dst, ',')
	}
	return appendTail(dst, timestamp), at
}

// generationMember begins the member of metadata that has the generation of an event's data. Events of the first
// generation do not have it.
const generationMember = `"generation":`

// Generation returns the generation of the event's data, which is told by the last member of the metadata before the
// timestamp, and is 1 where there is no such member. at and end are where the member stands in Metadata, with the comma
// behind it.
func (e *Event) Generation() (number, at, end int) {
	// The timestamp is the last member.
	m := e.Metadata
	end = len(m) - len("}")
	for end > 0 && (m[end-1] == '-' || m[end-1] >= '0' && m[end-1] <= '9') {
		end--
	}
	const timestamp = `"timestamp":`
	if end -= len(timestamp); end < len(`{"generation":2,`) || m[end-1] != ',' {
		return 1, max(end, 0), max(end, 0)
	}

	// The number before it, and its name.
	at = end - len(",")
	for at > 0 && m[at-1] >= '0' && m[at-1] <= '9' {
		at--
	}
	if at == end-len(",") {
		return 1, end, end // most often, and faster than the error below
	}
	number, err := strconv.Atoi(string(m[at : end-len(",")]))
	at -= len(generationMember)
	if err != nil || at < 1 || string(m[at:at+len(generationMember)]) != generationMember {
		return 1, end, end
	}
	return number, at, end
}

// AppendGeneration appends the member "generation" to metadata that are still open: an object without its closing
// brace. It appends nothing for the first generation.
func AppendGeneration(metadata []byte, number int) []byte {
	if number < 2 {
		return metadata
	}
	if len(metadata) > len("{") {
		metadata = append(metadata, ',')
	}
	return strconv.AppendInt(append(metadata, generationMember...), int64(number), 10)
}

// AppendTimestamp returns a copy of compact metadata with the timestamp that a store adds to them.
func AppendTimestamp(metadata []byte, timestamp int64) []byte {
	b := append(make([]byte, 0, len(metadata)+len(`,"timestamp":9223372036854775807`)), metadata[:len(metadata)-1]...)
	if len(metadata) > len("{}") {
		b = append(b, ',')
	}
	b = append(b, `"timestamp":`...)
	return append(strconv.AppendInt(b, timestamp, 10), '}')
}

// appendHead appends the canonical bytes before the data.
func appendHead(dst []byte, id StreamID, key Key, typ string) []byte {
	dst = append(dst, `{"stream_id":"`...)
	dst = id.Append(dst)
	dst = append(dst, `","key":"`...)
	dst = append(dst, key.Type...)
	dst = append(dst, ':')
	dst = append(dst, key.ID...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, typ...)
	return append(dst, `","data":`...)
}

// appendTail appends the canonical bytes from the timestamp on.
func appendTail(dst []byte, timestamp int64) []byte {
	dst = append(dst, `"timestamp":`...)
	dst = strconv.AppendInt(dst, timestamp, 10)
	return append(dst, "}}"...)
}

// SetRaw gives an event whose position, key, type and timestamp are known its canonical bytes, in which data and
// metadata stand at some places. It returns an error if the bytes are those of another event, or the places are wrong.
// It does not look into data and metadata.
func (e *Event) SetRaw(raw []byte, at Layout) error {
	const usual = 256
	head := appendHead(make([]byte, 0, usual), e.StreamID, e.Key, e.Type)
	if at.Data != len(head) || !bytes.HasPrefix(raw, head) {
		return errors.New("the canonical bytes have another position, key or type")
	}
	tail := appendTail(make([]byte, 0, usual), e.Timestamp)
	end := len(raw) - len(tail)
	if at.Metadata <= at.Data+len(metadataMember) || at.Metadata >= end || raw[at.Metadata] != '{' ||
		string(raw[at.Metadata-len(metadataMember):at.Metadata]) != metadataMember {
		return errors.New("the canonical bytes have data or metadata elsewhere")
	}
	if string(raw[end:]) != string(tail) || raw[end-1] != ',' && end-1 != at.Metadata {
		return errors.New("the canonical bytes have another timestamp")
	}
	e.Raw, e.Data, e.Metadata = raw, at.DataOf(raw), at.MetadataOf(raw)
	return nil
}

// DataOf returns the data inside canonical bytes.
func (l Layout) DataOf(raw []byte) []byte {
	return raw[l.Data : l.Metadata-len(metadataMember) : l.Metadata-len(metadataMember)]
}

// MetadataOf returns the metadata inside canonical bytes.
func (l Layout) MetadataOf(raw []byte) []byte { return raw[l.Metadata : len(raw)-1 : len(raw)-1] }
