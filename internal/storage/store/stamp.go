package store

import (
	"encoding/binary"
	"fmt"

	"j17"
)

// stampBytes is the length of a position in front of a value.
const stampBytes = 8 + 4

// AppendStamp appends a position as Side.Stamps puts it in front of values.
func AppendStamp(dst []byte, id j17.StreamID) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(dst, uint64(id.Ms)), id.Seq)
}

// StampedKey returns a position followed by a key, as Side.StampKey makes it. Such keys have the order of their
// positions.
func StampedKey(id j17.StreamID, key string) string {
	return fmt.Sprintf("%013d-%010d%s", id.Ms, id.Seq, key)
}

// stampedKeyBytes is how many bytes StampedKey adds to a key.
const stampedKeyBytes = 13 + 1 + 10

// ReadStamp splits a value into the position that it begins with and the rest, which shares its memory.
func ReadStamp(value []byte) (id j17.StreamID, rest []byte, err error) {
	if len(value) < stampBytes {
		return id, nil,
			&CorruptionError{Where: "a value with a position", Err: fmt.Errorf("it has %d bytes", len(value))}
	}
	id = j17.StreamID{Ms: int64(binary.BigEndian.Uint64(value)), Seq: binary.BigEndian.Uint32(value[8:])}
	return id, value[stampBytes:], nil
}
