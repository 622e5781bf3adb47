package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Pebble reads a log up to the first chunk that is not intact, and takes that for the end: a write that was cut short
// ends a log like this, and a crash of the machine may even leave some of the bytes written after it. But damage
// further in front would end the log as well. To tell the two apart, each chunk records how far the log was synced when
// the chunk was made. A chunk after the bad place that records it as synced proves damage. The record can be too low,
// though, for writes across the end of a block. So the changes of the record are counted too: bytes that were never
// synced were written at once, while or after the write before them was synced, so they have at most two values that
// the chunk in front does not have. Pebble itself checks only the first sign, and only in later blocks; but the last
// writes of a server are mostly in one block.

// A log consists of blocks, and a block of chunks: checksum (4 bytes), length of the content (2), form (1), number of
// the log (4), length of the log that was synced (8), content. Numbers are little-endian.
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
	// unsyncedValues is how many values, other than that of the chunk in front, chunks that were never synced may have.
	unsyncedValues = 2
)

// damagedAt returns where a log is damaged at a place that had been synced before later bytes were written; -1 if the
// log is intact, or ends with a write that was cut short.
func damagedAt(log io.Reader, number uint32, table *crc32.Table) (int64, error) {
	block := make([]byte, logBlockBytes)
	damaged := int64(-1)
	// The greatest synced length recorded so far, and how often it has grown after the damage.
	last, values := uint64(0), 0
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

// chunk returns the length of the chunk that begins at a place in the block, how far the log was synced before it, and
// whether it is intact. The length is 0 if no chunk can begin there. The content of a chunk is skipped even if it is
// damaged, since it may contain data that looks like a chunk.
func (c *chunks) chunk(at int) (length int, synced uint64, whole bool) {
	b := c.block[at:]
	if len(b) < chunkHeader || b[chunkForm] < leastForm || b[chunkForm] > mostForm ||
		!bytes.Equal(b[chunkLog:chunkSynced], c.number) {
		return 0, 0, false
	}

	// The checksum does not cover the length, so it can tell which bit of the length was changed.
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

// holds reports whether a chunk has the checksum in its header.
func (c *chunks) holds(chunk []byte) bool {
	sum := crc32.Checksum(chunk[chunkForm:], c.table)
	sum = sum>>checksumRotate | sum<<(32-checksumRotate)
	return sum+checksumRotated == binary.LittleEndian.Uint32(chunk)
}

// next returns the first place after another one at which a chunk may begin.
func (c *chunks) next(at int) int {
	if at++; at+chunkLog >= len(c.block) {
		return len(c.block)
	}
	if n := bytes.Index(c.block[at+chunkLog:], c.number); n >= 0 {
		return at + n
	}
	return len(c.block)
}

// filled reports whether the rest of a block is padding that is too short for a chunk.
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
