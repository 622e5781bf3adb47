package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Pebble reads a log until the first chunk that is not whole, and takes that for the end: a write that was cut short
// ends a log like this, and a crash of the machine may even leave some of what was written behind it. Damage further in
// front would end it as well. What tells the two apart is that each chunk says how far the log was synced when the
// chunk was made. One that says that the place was synced proves the damage. What it says is too little, though, where
// writes went across the end of a block. So it counts as well how often it changes: what is not synced was written at
// once, while or after the write before was synced, and so it has two values at most that the chunk in front does not
// have. Pebble itself looks for the first sign only, and in later blocks only; what a server has written in its last
// moments mostly stands in one.

// A log consists of blocks, and a block of chunks: checksum (4 bytes), length of the content (2), form (1), number of
// the log (4), how far it was synced (8), content. Numbers are little-endian.
const (
	logBlockBytes   = 32 << 10
	chunkHeader     = 19
	chunkLength     = 4
	chunkForm       = 6
	chunkLog        = 7
	chunkSynced     = 11
	leastForm       = 9
	mostForm        = 12
	checksumRotate  = 15
	checksumRotated = 0xa282ead8
	// unsyncedValues is how many other values chunks that were never synced may have than the one in front of them.
	unsyncedValues = 2
)

// damagedAt returns where a log is damaged in front of something that was written when this place had been synced; -1
// where it is whole, or ends with a write that was cut short.
func damagedAt(log io.Reader, number uint32, table *crc32.Table) (int64, error) {
	block := make([]byte, logBlockBytes)
	damaged := int64(-1)
	last, values := uint64(0), 0 // what the last whole chunk said, and how often that has changed behind the damage
	for from := int64(0); ; from += logBlockBytes {
		n, err := io.ReadFull(log, block)
		if n == 0 && errors.Is(err, io.EOF) {
			return -1, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return -1, err
		}
		c := chunks{block: block[:n], number: binary.LittleEndian.AppendUint32(nil, number), table: table}
		for at := 0; at < n; {
			length, synced, whole := c.chunk(at)
			switch {
			case whole:
				if damaged >= 0 && synced > last {
					values++
				}
				if last = max(last, synced); damaged >= 0 && (last > uint64(damaged) || values > unsyncedValues) {
					return damaged, nil
				}
			case damaged < 0 && c.filled(at):
				at = n
				continue
			case damaged < 0:
				damaged = from + int64(at)
			}
			if length == 0 {
				at = c.next(at)
			}
			at += length
		}
	}
}

// chunks is a block of a log.
type chunks struct {
	block  []byte
	number []byte
	table  *crc32.Table
}

// chunk returns how long the chunk is that begins somewhere in the block, how far the log was synced before it, and
// whether it is whole. The length is 0 where none can begin there. What a chunk holds is passed over even where that is
// damaged: somebody may have written there what looks like a chunk.
func (c *chunks) chunk(at int) (length int, synced uint64, whole bool) {
	b := c.block[at:]
	if len(b) < chunkHeader || b[chunkForm] < leastForm || b[chunkForm] > mostForm ||
		!bytes.Equal(b[chunkLog:chunkSynced], c.number) {
		return 0, 0, false
	}

	// The checksum is not over the length, so it tells which bit of that was changed.
	says, synced := binary.LittleEndian.Uint16(b[chunkLength:]), binary.LittleEndian.Uint64(b[chunkSynced:])
	if length = chunkHeader + int(says); length <= len(b) && c.holds(b[:length]) {
		return length, synced, true
	}
	for bit := range 16 {
		if other := chunkHeader + int(says^1<<bit); other <= len(b) && c.holds(b[:other]) {
			return other, synced, false
		}
	}
	if length > len(b) {
		return 0, 0, false
	}
	return length, synced, false
}

// holds reports whether a chunk has the checksum that it says.
func (c *chunks) holds(chunk []byte) bool {
	sum := crc32.Checksum(chunk[chunkForm:], c.table)
	sum = sum>>checksumRotate | sum<<(32-checksumRotate)
	return sum+checksumRotated == binary.LittleEndian.Uint32(chunk)
}

// next returns the first place behind another one where a chunk may begin.
func (c *chunks) next(at int) int {
	if at++; at+chunkLog >= len(c.block) {
		return len(c.block)
	}
	if n := bytes.Index(c.block[at+chunkLog:], c.number); n >= 0 {
		return at + n
	}
	return len(c.block)
}

// filled reports whether a block ends with what is too short for a chunk.
func (c *chunks) filled(at int) bool {
	if len(c.block) < logBlockBytes || len(c.block)-at >= chunkHeader {
		return false
	}
	for _, b := range c.block[at:] {
		if b != 0 {
			return false
		}
	}
	return true
}
