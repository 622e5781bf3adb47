package index

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/storage/store"
)

// The kinds of values in entries, in their order. Numbers and texts are followed by an end.
const (
	kindNull   = '1'
	kindFalse  = '2'
	kindTrue   = '3'
	kindNumber = '4'
	kindText   = '5'
	kindOther  = '6'
)

const (
	// end follows a number or a text, and precedes the ID of the row. It sorts before everything else that can be
	// there.
	end = "\x01"
	// cut follows the part of a long number or text that fits into the entry.
	cut = "\x03"
	// beyond sorts after everything that can follow.
	beyond = "\xff"
)

const (
	// tupleBytes bounds the values of an entry, to leave room for the name of the slot and the ID of the row.
	tupleBytes = 780
	// cutBytes is the overhead of a cut value: its kind, the mark, a hash, the end, and the rest of a character.
	cutBytes = 1 + len(cut) + hashBytes + len(end) + 4
	// hashBytes is the length of the hash of a long value.
	hashBytes = 26
	// maxWhole bounds the uncut form of a long value. Longer values are only distinguished by their hashes.
	maxWhole = 12 << 10
	// MaxRowEntries is the maximum number of entries of a row, over all indexes of a definition. Entries and Words
	// return none if there would be more.
	MaxRowEntries = 10_000
	// MaxRowBytes is the maximum size of these entries together.
	MaxRowBytes = 1 << 20
	// MaxNumber is the largest number that an index of a definition can have.
	MaxNumber = 64
	// MaxFields is the maximum number of values in an entry.
	MaxFields = 5
)

// Entry is the place of a row in an index, by values in their order. Null and missing values come first, then false,
// true, numbers by value, texts by their bytes, and all other values as equals. Long texts and numbers are
// distinguished, and found, by their full content, but ordered by their first 120 bytes in an index of five fields and
// by 740 in an index of one.
type Entry struct {
	// text is the number of the index and the values. whole has the values uncut, "" if none was cut.
	text, whole string
}

// Size returns the size of the entry in bytes.
func (e Entry) Size() int { return len(e.text) + len(e.whole) }

// NewEntry returns the entry for values in index n of a definition.
func NewEntry(n int, values ...value.Value) Entry {
	text := appendNumber(nil, n)
	room := roomOf(len(values))
	long := false
	for _, v := range values {
		var short bool
		text, short = appendValue(text, v, room)
		long = long || !short
	}
	e := Entry{text: string(text)}
	if long {
		whole := appendNumber(nil, n)
		for _, v := range values {
			whole, _ = appendValue(whole, v, maxWhole)
		}
		e.whole = string(whole)
	}
	return e
}

// Entries returns the entries for all combinations of elements of the arrays among values, each once. It reports false,
// and returns no entries, if they exceed MaxRowEntries or MaxRowBytes.
func Entries(n int, values ...value.Value) (entries []Entry, ok bool) {
	// The choices for each value.
	combinations := 1
	choices := make([][]value.Value, len(values))
	for i, v := range values {
		choices[i] = []value.Value{v}
		if elems := v.Elems(); v.Kind() == value.Array && len(elems) > 0 {
			choices[i] = distinct(elems)
		}
		if combinations *= len(choices[i]); combinations > MaxRowEntries {
			return nil, false
		}
	}

	// All combinations of one choice each.
	entries = make([]Entry, 0, combinations)
	size := 0
	chosen := make([]value.Value, len(values))
	for c := range combinations {
		for i := range choices {
			chosen[i] = choices[i][c%len(choices[i])]
			c /= len(choices[i])
		}
		e := NewEntry(n, chosen...)
		if size += e.Size(); size > MaxRowBytes {
			return nil, false
		}
		entries = append(entries, e)
	}
	return entries, true
}

// Measure returns the number of entries that Entries returns for values, and their size, without creating them: it
// looks at each element once. It is charged to b. It reports false if Entries returns none, or if b is used up.
func Measure(b *work.Budget, values ...value.Value) (entries, bytes int, ok bool) {
	// For each value: the number of its choices and their size, as in entries and uncut.
	type field struct{ all, allBytes, allWhole, short, shortWhole int }
	fields := make([]field, len(values))
	room := roomOf(len(values))
	var buf []byte
	entries = 1
	for i, v := range values {
		if !b.Start(work.IndexEntry, max(v.Len(), 1), 0) || !b.SpendBytes(ofByte*v.Size()) {
			return 0, 0, false
		}
		choices := []value.Value{v}
		if elems := v.Elems(); v.Kind() == value.Array && len(elems) > 0 {
			choices = distinct(elems)
		}
		f := &fields[i]
		if f.all = len(choices); entries*f.all > MaxRowEntries {
			return 0, 0, false
		}
		entries *= f.all
		for _, v := range choices {
			var short bool
			buf, short = appendValue(buf[:0], v, room)
			f.allBytes += len(buf)
			if !short {
				buf, _ = appendValue(buf[:0], v, maxWhole)
				f.allWhole += len(buf)
				continue
			}
			f.short++
			f.allWhole += len(buf)
			f.shortWhole += len(buf)
		}
	}

	// Each choice is in as many entries as there are combinations of the other values, and each entry begins with the
	// number of the index. An entry also has its values uncut, unless all of them are short.
	short := 1
	for i := range fields {
		short *= fields[i].short
	}
	bytes = entries + entries - short
	for i := range fields {
		f := &fields[i]
		bytes += (f.allBytes + f.allWhole) * (entries / f.all)
		if short > 0 {
			bytes -= f.shortWhole * (short / f.short)
		}
	}
	return entries, bytes, bytes <= MaxRowBytes
}

// ofByte is what Measure charges for each byte besides the entries, in units of the time that it takes to read one.
const ofByte = 4

// distinct returns the values that have different places in an index; if they are more than MaxRowEntries, only one
// more than that.
func distinct(values []value.Value) []value.Value {
	if len(values) == 1 {
		return values
	}
	seen := make(map[string]bool, min(len(values), MaxRowEntries))
	some := make([]value.Value, 0, min(len(values), MaxRowEntries+1))
	for _, v := range values {
		if len(some) > MaxRowEntries {
			break
		}
		text, _ := appendValue(nil, v, roomOf(MaxFields))
		if !seen[string(text)] {
			seen[string(text)] = true
			some = append(some, v)
		}
	}
	return some
}

// roomOf returns the maximum length of one of several values.
func roomOf(fields int) int { return tupleBytes/max(fields, 1) - cutBytes }

// appendNumber appends the number of an index.
func appendNumber(dst []byte, n int) []byte {
	if n < 0 || n > MaxNumber {
		panic(fmt.Sprintf("the number of an index, %d, is not between 0 and %d", n, MaxNumber))
	}
	return append(dst, byte('0'+n))
}

// appendValue appends a value so that the bytes sort like the values. It reports false if the value was cut to fit into
// room.
func appendValue(dst []byte, v value.Value, room int) (_ []byte, short bool) {
	switch v.Kind() {
	case value.Missing, value.Null:
		return append(dst, kindNull), true
	case value.Bool:
		if v.Truth() {
			return append(dst, kindTrue), true
		}
		return append(dst, kindFalse), true
	case value.Number:
		return appendDecimal(append(dst, kindNumber), v, room)
	case value.String:
		return appendText(append(dst, kindText), v.Str(), room)
	case value.Array, value.Object:
	}
	return append(dst, kindOther), true
}

// offset makes magnitudes positive. They have five digits, far more than those of parsed numbers take.
const offset = 50_000

// appendDecimal appends a number: its sign, its magnitude, its digits. For a negative number the digits are subtracted
// from nine.
func appendDecimal(dst []byte, v value.Value, room int) ([]byte, bool) {
	var buf [32]byte
	digits, sign, magnitude := v.AppendDigits(buf[:0])
	magnitude = min(max(magnitude, -offset+1), offset-1) + offset
	switch sign {
	case 0:
		return append(append(dst, 'b'), end...), true
	case 1:
		dst = fmt.Appendf(append(dst, 'c'), "%05d", magnitude)
	default:
		dst = fmt.Appendf(append(dst, 'a'), "%05d", 2*offset-1-magnitude)
		for i := range digits {
			digits[i] = '0' + '9' - digits[i]
		}
	}
	if len(digits) > room-16 {
		return append(appendHash(append(append(dst, digits[:room-16]...), cut...), digits), end...), false
	}
	dst = append(dst, digits...)
	if sign < 0 {
		dst = append(dst, '~') // among negative numbers, one with fewer digits is greater
	}
	return append(dst, end...), true
}

// appendText appends a text, with the characters escaped that have a meaning in entries. Characters are not split.
func appendText(dst []byte, s string, room int) ([]byte, bool) {
	from := len(dst)
	for i, r := range s {
		if len(dst)-from >= room {
			return append(appendHash(append(dst, cut...), []byte(s)), end...), false
		}
		_ = i
		dst = appendLetter(dst, r)
	}
	return append(dst, end...), true
}

// appendLetter appends a character of a text.
func appendLetter(dst []byte, r rune) []byte {
	if r > '\x02' {
		return append(dst, string(r)...)
	}
	return append(dst, '\x02', byte('0'+r))
}

func appendHash(dst, of []byte) []byte {
	sum := sha256.Sum256(of)
	return base32.HexEncoding.WithPadding(base32.NoPadding).AppendEncode(dst, sum[:16])
}

// AllNull reports whether a cursor has nothing but nulls for the given number of values.
func AllNull(cursor string, values int) bool {
	return strings.HasPrefix(cursor, strings.Repeat(string(rune(kindNull)), values)+end)
}

// component returns the encoded value with a number, from 0, of an entry's text or whole.
func component(text string, number int) string {
	text = text[1:]
	for ; ; number-- {
		n := 1
		if text == "" {
			return ""
		}
		if text[0] == kindNumber || text[0] == kindText {
			n = strings.Index(text, end) + len(end)
		}
		if number == 0 {
			return text[:n]
		}
		text = text[n:]
	}
}

// Range is a part of an index: the entries that begin with given values, and whose next value is within bounds.
type Range struct {
	// fields is the number of values of an entry, equal the number of given ones.
	fields, equal int
	// head is the number of the index and the given values. The range begins at from and ends before to.
	head, from, to string
	// tests decide about entries that were cut.
	tests []test
}

// test applies to the entries that begin with a text: their uncut next value must be within bounds.
type test struct {
	begin string
	// low and high bound the value, prefix is what it begins with; "" means no bound. Values equal to a bound are
	// included if with is set.
	low, high, prefix string
	with              bool
}

// All returns the range of all entries of index n, which have the given number of values.
func All(n, fields int) Range {
	r := Range{fields: fields, head: string(appendNumber(nil, n))}
	return r.whole()
}

// whole returns the range of all entries that begin with the head.
func (r Range) whole() Range {
	r.from, r.to = r.head, r.head+beyond
	return r
}

// Equal returns the entries of the range whose next values are the given ones.
func (r Range) Equal(values ...value.Value) Range {
	head := []byte(r.head)
	for _, v := range values {
		head, _ = appendValue(head, v, roomOf(r.fields))
	}
	r.head, r.equal = string(head), r.equal+len(values)
	return r.whole()
}

// Prefix returns the entries of the range whose next value is a text that begins with prefix.
func (r Range) Prefix(prefix string) Range {
	text, short := appendText([]byte(r.head+string(kindText)), prefix, roomOf(r.fields))
	if short {
		r.from = string(text[:len(text)-len(end)])
		r.to = r.from + beyond
		return r
	}
	r.from = groupOf(text)
	r.to = r.from + beyond
	whole, _ := appendText([]byte{kindText}, prefix, maxWhole)
	r.tests = append(slices.Clone(r.tests), test{begin: r.from, prefix: string(whole[:len(whole)-len(end)])})
	return r
}

// groupOf returns the common beginning of all values that are cut where the one at the end of text is.
func groupOf(text []byte) string { return string(text[:len(text)-len(end)-hashBytes]) }

// Bound is an end of a range. A missing Value means no bound.
type Bound struct {
	Value     value.Value
	Exclusive bool
}

// Between returns the entries of the range whose next value is between bounds, and of the same kind as these. A missing
// bound is open; bounds of different kinds have nothing between them.
func (r Range) Between(low, high Bound) Range {
	given := low
	if given.Value.IsMissing() {
		given = high
	}
	first, last := kindsOf(given.Value)
	r.from, r.to = r.head+string(first), r.head+string(last)+beyond
	if !low.Value.IsMissing() && !high.Value.IsMissing() {
		if a, b := kindsOf(low.Value); a != first || b != last {
			return r.none()
		}
		if a, b := kindsOf(high.Value); a != first || b != last {
			return r.none()
		}
	}
	if !low.Value.IsMissing() {
		r = r.bounded(low, true)
	}
	if !high.Value.IsMissing() {
		r = r.bounded(high, false)
	}
	return r
}

// none returns a range without entries.
func (r Range) none() Range {
	r.from, r.to = r.head, r.head
	return r
}

// kindsOf returns the first and the last kind that values comparable with v can have.
func kindsOf(v value.Value) (first, last byte) {
	text, _ := appendValue(nil, v, maxWhole)
	if text[0] == kindFalse || text[0] == kindTrue {
		return kindFalse, kindTrue
	}
	return text[0], text[0]
}

// bounded returns the part of the range on one side of a bound.
func (r Range) bounded(b Bound, low bool) Range {
	text, short := appendValue([]byte(r.head), b.Value, roomOf(r.fields))
	if short {
		// The range ends or begins after all entries with the value, or before them.
		at := string(text)
		if low == b.Exclusive {
			at += beyond
		}
		if low {
			r.from = at
		} else {
			r.to = at
		}
		return r
	}

	// Entries cut at the same place have to be tested.
	group := groupOf(text)
	whole, _ := appendValue(nil, b.Value, maxWhole)
	t := test{begin: group, with: !b.Exclusive}
	if low {
		r.from, t.low = group, string(whole)
	} else {
		r.to, t.high = group+beyond, string(whole)
	}
	r.tests = append(slices.Clone(r.tests), t)
	return r
}

// empty reports whether the range can have no entries.
func (r *Range) empty() bool { return r.from >= r.to }

// has reports whether an entry is in the range.
func (r *Range) has(text, whole string) bool {
	return text >= r.from && text < r.to && r.passes(text, whole)
}

// passes reports whether an entry between from and to passes the tests.
func (r *Range) passes(text, whole string) bool {
	for i := range r.tests {
		t := &r.tests[i]
		if whole == "" || !strings.HasPrefix(text, t.begin) {
			continue
		}
		v := component(whole, r.equal)
		switch {
		case t.prefix != "" && !strings.HasPrefix(v, t.prefix):
			return false
		case t.low != "" && (v < t.low || v == t.low && !t.with):
			return false
		case t.high != "" && (v > t.high || v == t.high && !t.with):
			return false
		}
	}
	return true
}

// in returns the keys of the range among the entries of a slot.
func (r *Range) in(slot string) store.Range {
	return store.Range{From: slot + "/" + r.from, To: slot + "/" + r.to}
}
