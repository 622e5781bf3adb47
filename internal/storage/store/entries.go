package store

import (
	"encoding/binary"
	"errors"
)

// AppendEntries appends the keys of an item's entries in the form in which its value begins (Side.Entries).
func AppendEntries[K ~string | ~[]byte](dst []byte, keys ...K) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	for _, key := range keys {
		dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	}
	return dst
}

// ReadEntries splits the value of an item into the keys of its entries and the rest, which share its memory.
func ReadEntries(value []byte) (keys [][]byte, rest []byte, err error) {
	rest, err = eachEntry(value, func(key []byte) { keys = append(keys, key) })
	return keys, rest, err
}

// BehindEntries returns the part of an item's value after the keys of its entries, which shares its memory.
func BehindEntries(value []byte) (rest []byte, err error) {
	return eachEntry(value, func([]byte) {})
}

func eachEntry(value []byte, do func(key []byte)) (rest []byte, err error) {
	n, width := binary.Uvarint(value)
	if width <= 0 || n > MaxEntries {
		return nil, noEntries()
	}
	rest = value[width:]
	for range n {
		size, width := binary.Uvarint(rest)
		if width <= 0 || size > uint64(len(rest)-width) {
			return nil, noEntries()
		}
		rest = rest[width:]
		do(rest[:size:size])
		rest = rest[size:]
	}
	return rest, nil
}

func noEntries() error {
	return &CorruptionError{Where: "a value with entries", Err: errors.New("it does not begin with them")}
}
