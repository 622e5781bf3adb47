package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"j17"
	"j17/internal/core/decider"
	"j17/internal/storage/store"
)

// A kept state begins with keptFormat, followed by the first half of the SHA-256 of the rest; the fingerprint of the
// handlers that made the state; as numbers of 8 bytes the generation and the length of its stream and the timestamp of
// the first event; as numbers of 4 bytes the offset and the length of the state in the line; and the line.
const (
	keptFormat = 1

	keptSum         = 1
	keptFingerprint = keptSum + sha256.Size/2
	keptGeneration  = keptFingerprint + sha256.Size
	keptLength      = keptGeneration + 8
	keptCreated     = keptLength + 8
	keptBegins      = keptCreated + 8
	keptSize        = keptBegins + 4
	keptLine        = keptSize + 4
)

// kept is a state of an aggregate as stored in a checkpoint.
type kept struct {
	// generation is that of the stream when the state was made.
	generation uint64
	base       decider.State
	line       []byte
}

// keep encodes a state that was made by handlers with a fingerprint.
func keep(st *State, fingerprint [32]byte) []byte {
	begins := uint32(st.begins)
	size := uint32(len(st.JSON))
	created := uint64(st.Created)
	b := make([]byte, keptLine, keptLine+len(st.Line))
	b[0] = keptFormat
	copy(b[keptFingerprint:], fingerprint[:])
	binary.BigEndian.PutUint64(b[keptGeneration:], st.Version.Generation)
	binary.BigEndian.PutUint64(b[keptLength:], st.Length)
	binary.BigEndian.PutUint64(b[keptCreated:], created)
	binary.BigEndian.PutUint32(b[keptBegins:], begins)
	binary.BigEndian.PutUint32(b[keptSize:], size)
	b = append(b, st.Line...)
	sum := sha256.Sum256(b[keptFingerprint:])
	copy(b[keptSum:keptFingerprint], sum[:])
	return b
}

// readKept decodes a kept state; it shares the bytes of the item. Damage is a *store.CorruptionError.
func readKept(item *store.Item) (*kept, error) {
	b := item.Value
	if len(b) < keptLine || b[0] != keptFormat {
		return nil, damagedState(item.Key, "it has another format")
	}
	if sum := sha256.Sum256(b[keptFingerprint:]); string(
		sum[:keptFingerprint-keptSum],
	) != string(b[keptSum:keptFingerprint]) {
		return nil, damagedState(item.Key, "its checksum is wrong")
	}
	k := &kept{generation: binary.BigEndian.Uint64(b[keptGeneration:]), line: b[keptLine:]}
	begins, size := int(binary.BigEndian.Uint32(b[keptBegins:])), int(binary.BigEndian.Uint32(b[keptSize:]))
	if begins > len(k.line) || size > len(k.line)-begins {
		return nil, damagedState(item.Key, "it is too short")
	}
	k.base = decider.State{
		Fingerprint: [32]byte(b[keptFingerprint:]), Length: binary.BigEndian.Uint64(b[keptLength:]),
		Created: int64(binary.BigEndian.Uint64(b[keptCreated:])),
		JSON:    k.line[begins : begins+size],
	}
	return k, nil
}

func damagedState(key, why string) error {
	return &store.CorruptionError{Where: "the checkpoint's state " + key, Err: errors.New(why)}
}

// keptKey is the key under which a checkpoint keeps the state of an aggregate.
func keptKey(key j17.Key, id string) string { return key.String() + "/" + id }

// checkKept returns what is wrong with a kept state, nil if it is intact.
func checkKept(key string, value []byte) error {
	_, err := readKept(&store.Item{Key: key, Value: value})
	return err
}
