package j17

import "strconv"

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
func AppendEvent(dst []byte, id StreamID, key Key, typ string, data, metadata []byte, timestamp int64) ([]byte, Layout) {
	start := len(dst)
	dst = append(dst, `{"stream_id":"`...)
	dst = id.Append(dst)
	dst = append(dst, `","key":"`...)
	dst = append(dst, key.Type...)
	dst = append(dst, ':')
	dst = append(dst, key.ID...)
	dst = append(dst, `","type":"`...)
	dst = append(dst, typ...)
	dst = append(dst, `","data":`...)
	var at Layout
	at.Data = len(dst) - start
	dst = append(dst, data...)
	dst = append(dst, metadataMember...)
	at.Metadata = len(dst) - start
	dst = append(dst, metadata[:len(metadata)-1]...)
	if len(metadata) > len(`{}`) {
		dst = append(dst, ',')
	}
	dst = append(dst, `"timestamp":`...)
	dst = strconv.AppendInt(dst, timestamp, 10)
	dst = append(dst, "}}"...)
	return dst, at
}

// DataOf returns the data inside canonical bytes.
func (l Layout) DataOf(raw []byte) []byte {
	return raw[l.Data : l.Metadata-len(metadataMember) : l.Metadata-len(metadataMember)]
}

// MetadataOf returns the metadata inside canonical bytes.
func (l Layout) MetadataOf(raw []byte) []byte { return raw[l.Metadata : len(raw)-1 : len(raw)-1] }
