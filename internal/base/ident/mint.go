package ident

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	gonanoid "github.com/matoous/go-nanoid/v2"
)

// humaneAlphabet is Crockford's base 32.
const humaneAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Minter makes ids from a clock and the machine's source of randomness. It is safe for concurrent use.
type Minter struct {
	now func() time.Time
	// last holds time and sequence of the latest UUIDv7: Unix milliseconds << 12 | sequence.
	last atomic.Int64
}

// NewMinter returns a minter that asks now for the time.
func NewMinter(now func() time.Time) *Minter { return &Minter{now: now} }

// UUIDv7 returns a UUID of version 7 that is greater than every one before it from this minter, even when the clock
// stands still or runs backward: the 12 bits after the version count on from the fraction of the millisecond
// (RFC 9562, section 6.2, method 3).
func (m *Minter) UUIDv7() string {
	now := m.now()
	ms := now.UnixMilli()
	// A millisecond has 3907 steps of 256 ns, which fit the 12 bits.
	tick := max(ms<<12|int64(now.Nanosecond()%int(time.Millisecond))>>8, 0)
	for {
		last := m.last.Load()
		next := max(tick, last+1)
		if m.last.CompareAndSwap(last, next) {
			tick = next
			break
		}
	}
	var id uuid.UUID
	_, _ = rand.Read(id[8:]) // Never fails: the program ends when the machine has no randomness.
	binary.BigEndian.PutUint64(id[:8], uint64(tick>>12)<<16|0x7000|uint64(tick&0xfff))
	id[8] = id[8]&0x3f | 0x80 // the variant
	return id.String()
}

// UUIDv4 returns a random UUID of version 4, the form of ids that we choose for users' aggregates.
func (m *Minter) UUIDv4() string { return uuid.New().String() }

// HumaneCode returns a random humane code in canonical form.
func (m *Minter) HumaneCode() string {
	var b [humaneLength]byte
	_, _ = rand.Read(b[:]) // Never fails: the program ends when the machine has no randomness.
	for i, c := range b {
		b[i] = humaneAlphabet[c%byte(len(humaneAlphabet))]
	}
	return string(b[:])
}

// Handle returns a random handle with the prefix p.
func (m *Minter) Handle(p Prefix) string {
	// Neither the alphabet nor the length can make it fail, both being constants.
	return string(p) + "_" + gonanoid.MustGenerate(handleAlphabet, handleLength)
}
