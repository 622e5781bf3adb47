package j17

import (
	"fmt"
	"strconv"
)

// StreamID is the position of an event in its environment's feed: the Unix time in milliseconds at which it
// was committed and a number that tells events of the same millisecond apart. It is strictly increasing over a
// whole environment. The zero StreamID stands before the first event.
type StreamID struct {
	Ms  int64
	Seq uint32
}

// maxStreamMs is the largest time that 13 decimal digits can hold.
const maxStreamMs = 9_999_999_999_999

// IsZero reports whether the id is the one before the first event.
func (s StreamID) IsZero() bool { return s == StreamID{} }

// Compare returns -1, 0 or 1 as s stands before, at or after t.
func (s StreamID) Compare(t StreamID) int {
	switch {
	case s.Ms < t.Ms || (s.Ms == t.Ms && s.Seq < t.Seq):
		return -1
	case s == t:
		return 0
	default:
		return 1
	}
}

// Next returns the id that directly follows s within the same millisecond.
func (s StreamID) Next() StreamID {
	if s.Seq == ^uint32(0) {
		return StreamID{Ms: s.Ms + 1}
	}
	return StreamID{Ms: s.Ms, Seq: s.Seq + 1}
}

// Previous returns the greatest id that is smaller, and the zero one of the zero one.
func (s StreamID) Previous() StreamID {
	switch {
	case s.Seq > 0:
		return StreamID{Ms: s.Ms, Seq: s.Seq - 1}
	case s.Ms > 0:
		return StreamID{Ms: s.Ms - 1, Seq: ^uint32(0)}
	default:
		return s
	}
}

// Append appends the id's text form to dst.
func (s StreamID) Append(dst []byte) []byte {
	n := len(dst)
	dst = strconv.AppendInt(dst, s.Ms, 10)
	for len(dst)-n < 13 {
		dst = append(dst, 0)
		copy(dst[n+1:], dst[n:])
		dst[n] = '0'
	}
	dst = append(dst, '-')
	return strconv.AppendUint(dst, uint64(s.Seq), 10)
}

// String returns the id's text form: 13 digits of milliseconds, a dash, a number.
func (s StreamID) String() string { return string(s.Append(make([]byte, 0, 24))) }

// ParseStreamID reads the text form back.
func ParseStreamID(s string) (StreamID, error) {
	bad := func() (StreamID, error) {
		return StreamID{}, fmt.Errorf("%q is no stream id: want 13 digits, a dash and a number, such as 1706789012345-0", s)
	}
	if len(s) < 15 || s[13] != '-' {
		return bad()
	}
	ms, ok := digits(s[:13])
	if !ok || ms > maxStreamMs {
		return bad()
	}
	tail := s[14:]
	if len(tail) > 10 || (len(tail) > 1 && tail[0] == '0') {
		return bad()
	}
	seq, ok := digits(tail)
	if !ok || seq > uint64(^uint32(0)) {
		return bad()
	}
	return StreamID{Ms: int64(ms), Seq: uint32(seq)}, nil
}

// AppendPosition appends to dst the position up to which something looked or knows, as answers have it: the text form,
// and "0" before the first event.
func (s StreamID) AppendPosition(dst []byte) []byte {
	if s.IsZero() {
		return append(dst, '0')
	}
	return s.Append(dst)
}

// PositionText returns what AppendPosition appends.
func (s StreamID) PositionText() string { return string(s.AppendPosition(nil)) }

// ParsePosition reads a position. It takes the text form of the one before the first event, too.
func ParsePosition(s string) (StreamID, error) {
	if s == "0" {
		return StreamID{}, nil
	}
	return ParseStreamID(s)
}

func digits(s string) (uint64, bool) {
	var n uint64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return n, s != ""
}
