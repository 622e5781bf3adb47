package store

import (
	"encoding/binary"
	"errors"
)

// AppendEntries appends the keys of an item's entries as its value begins with them (Side.Entries).
func AppendEntries(dst []byte, keys ...string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, key := range keys {
		dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	}
	return dst
}

// ReadEntries takes the keys of its entries off the value of an item.
func ReadEntries(value []byte) (keys []string, rest []byte, err error) {
	damaged := &CorruptionError{Where: "a value with entries", Err: errors.New("it does not begin with them")}
	n, width := binary.Uvarint(value)
	if width <= 0 || n > MaxEntries {
		return nil, nil, damaged
	}
	rest = value[width:]
	for range n {
		size, width := binary.Uvarint(rest)
		if width <= 0 || size > uint64(len(rest)-width) {
			return nil, nil, damaged
		}
		rest = rest[width:]
		keys, rest = append(keys, string(rest[:size])), rest[size:]
	}
	return keys, rest, nil
}
