package instrument

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// errTruncated is what a reader meets where the binary ends too early.
var errTruncated = errors.New("the file ends in the middle of something; upload it again, as a whole")

// reader reads a part of a binary. The first error sticks, and every later read answers zero.
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.at = len(r.b)
}

func (r *reader) failf(format string, args ...any) { r.fail(fmt.Errorf(format, args...)) }

func (r *reader) done() bool { return r.at >= len(r.b) }

func (r *reader) byte() byte {
	if r.at >= len(r.b) {
		r.fail(errTruncated)
		return 0
	}
	b := r.b[r.at]
	r.at++
	return b
}

func (r *reader) skip(n int) {
	if n > len(r.b)-r.at {
		r.fail(errTruncated)
		return
	}
	r.at += n
}

func (r *reader) bytes(n uint32) []byte {
	from := r.at
	if int64(n) > int64(len(r.b)-r.at) {
		r.fail(errTruncated)
		return nil
	}
	r.at += int(n)
	return r.b[from:r.at]
}

// u32 reads an unsigned number in LEB128.
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 1<<32-1 {
				break
			}
			return uint32(v)
		}
	}
	r.failf("a number is too large for 32 bits")
	return 0
}

// leb skips a number in LEB128 of at most n bytes.
func (r *reader) leb(n int) {
	for range n {
		if r.byte() < 0x80 {
			return
		}
	}
	r.failf("a number has too many bytes")
}

// count reads how many items follow, each of which takes at least a byte.
func (r *reader) count(what string, limit uint32) int {
	n := r.u32()
	if n > limit {
		r.failf("the module has %d %s, more than the %d that are allowed", n, what, limit)
		return 0
	}
	if int(n) > len(r.b)-r.at {
		r.fail(errTruncated)
		return 0
	}
	return int(n)
}

func (r *reader) name() string {
	b := r.bytes(r.u32())
	if !utf8.Valid(b) {
		r.failf("a name is not valid UTF-8")
		return ""
	}
	return string(b)
}

func appendU32(b []byte, v uint32) []byte { return binary.AppendUvarint(b, uint64(v)) }

// appendS32 appends a number that is not negative, as a signed one.
func appendS32(b []byte, v uint32) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low < 0x40 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

func appendSized(b, body []byte) []byte {
	return append(appendU32(b, uint32(len(body))), body...)
}
