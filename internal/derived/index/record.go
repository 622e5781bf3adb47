package index

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/storage/store"
)

// The side spaces of an environment. A slot is the result of one build of an index.
const (
	// headSpace has an item for each index under its ID, which names its slots.
	headSpace store.Space = "index.heads"
	// slotSpace has an item for each slot under its name; countSpace has its counters under "slot/name".
	slotSpace  store.Space = "index.slots"
	countSpace store.Space = "index.counts"
	// entrySpace has the entries under "slot/entry", followed by an end and the row's ID; rowSpace has the record of
	// each row under "slot/id"; sourceSpace notes under "slot/source", an end and the row's ID that a row was computed
	// from a source.
	entrySpace  store.Space = "index.entries"
	rowSpace    store.Space = "index.rows"
	sourceSpace store.Space = "index.sources"
)

// head is the stored record of an index.
type head struct {
	// Serving is the slot that is read, "" before the first build has ended. Building is the slot of the last build.
	Serving  string `json:"serving,omitempty"`
	Building string `json:"building,omitempty"`

	rev uint64
}

// slot is the stored record of a slot.
type slot struct {
	// ID is the ID of the index.
	ID string `json:"id"`
	// Types are the aggregate types whose events can change rows.
	Types []string `json:"types"`
	// After is the position of the rows; Old is the slot that served before.
	After []byte `json:"after"`
	Old   string `json:"old,omitempty"`
	// Fanout is the change of many rows under way, nil if there is none.
	Fanout *fanout `json:"fanout,omitempty"`

	name string
	rev  uint64
}

// fanout is a change of so many rows that it takes several commits. Until it is done the slot cannot be read.
type fanout struct {
	// To is the position that the rows will have.
	To []byte `json:"to"`
	// Sources are what has changed, sorted. At is the index of the source whose rows are being computed, Row the last
	// row done for it. With Feed there are no sources: the rows are those that depend on the events up to To, and Row
	// is the last of all rows done.
	Sources []string `json:"sources"`
	Feed    bool     `json:"feed,omitempty"`
	At      int      `json:"at,omitempty"`
	Row     string   `json:"row,omitempty"`
	// Done and Total count rows.
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

func (s *slot) after() j17.StreamID { return readPosition(s.After) }

// readPosition decodes a position; anything else is the zero position.
func readPosition(b []byte) j17.StreamID {
	at, _, _ := store.ReadStamp(b) // after an error the position is zero
	return at
}

func writePosition(at j17.StreamID) []byte { return store.AppendStamp(nil, at) }

// put returns the write of the slot, on the condition that it was not written since it was read.
func (s *slot) put() store.Side {
	return store.Side{
		Op: store.Put, Space: slotSpace, Key: s.name, Value: encode(s), Cond: condition(s.rev), Rev: s.rev,
	}
}

// put returns the write of the head, on the condition that it was not written since it was read.
func (h *head) put(id string) store.Side {
	return store.Side{Op: store.Put, Space: headSpace, Key: id, Value: encode(h), Cond: condition(h.rev), Rev: h.rev}
}

func condition(rev uint64) store.Cond {
	if rev == 0 {
		return store.IfAbsent
	}
	return store.IfRev
}

func encode[T *slot | *head](v T) []byte {
	b, _ := json.Marshal(v) // texts and numbers: it cannot fail
	return b
}

// getter reads items of a store, or of a moment of it.
type getter func(space store.Space, key string) (store.Item, error)

// readHead reads the head of an index; its revision is 0 if there is none.
func readHead(get getter, id string) (h head, err error) {
	it, err := get(headSpace, id)
	if errors.Is(err, store.ErrNotFound) {
		return h, nil
	}
	if err != nil {
		return h, keptDamage(err)
	}
	h.rev = it.Rev
	if err := json.Unmarshal(it.Value, &h); err != nil {
		return h, unreadable{&store.CorruptionError{Where: "what is kept of the index " + id, Err: err}}
	}
	return h, nil
}

// readSlot returns a slot; store.ErrNotFound if there is none.
func readSlot(get getter, name string) (*slot, error) {
	it, err := get(slotSpace, name)
	if err != nil {
		return nil, keptDamage(err)
	}
	s := &slot{name: name, rev: it.Rev}
	if err := json.Unmarshal(it.Value, s); err != nil {
		return nil,
			unreadable{&store.CorruptionError{Where: "what is kept of the slot " + name + " of an index", Err: err}}
	}
	return s, nil
}

// record is what is stored of a row: its entries, and the sources that it was computed from.
type record struct {
	// entries are sorted and unique; names are those of sources.
	entries []Entry
	names   []string
	// stored is the encoded record that it was read from, "" if it was computed.
	stored string
}

// recordOf returns the record of a row.
func recordOf(r *Row) *record {
	rec := &record{entries: slices.Clone(r.Entries)}
	slices.SortFunc(rec.entries, func(a, b Entry) int { return cmp.Compare(a.text, b.text) })
	rec.entries = slices.CompactFunc(rec.entries, func(a, b Entry) bool { return a.text == b.text })
	for _, key := range r.Sources {
		rec.names = append(rec.names, sourceName(key))
	}
	slices.Sort(rec.names)
	rec.names = slices.Compact(rec.names)
	return rec
}

// empty reports whether there is nothing to store.
func (r *record) empty() bool { return len(r.entries) == 0 && len(r.names) == 0 }

// entryBytes returns the size of the entries.
func (r *record) entryBytes() (n int) {
	for i := range r.entries {
		n += r.entries[i].Size()
	}
	return n
}

// maxName is the maximum length of a source's name in keys.
const maxName = 700

// sourceName returns the name of an aggregate as a source.
func sourceName(key j17.Key) string { return "a" + shortened(key.String()) }

func shortened(name string) string {
	if len(name) <= maxName && !strings.Contains(name, end) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "\x02" + hex.EncodeToString(sum[:])
}

// encode encodes a record: the number of entries, each entry with its uncut form, and the names.
func (r *record) encode() []byte {
	size := 8 + r.entryBytes() + 4*len(r.entries)
	for _, name := range r.names {
		size += len(name) + 2
	}
	b := binary.AppendUvarint(make([]byte, 0, size), uint64(len(r.entries)))
	for i := range r.entries {
		b = appendString(appendString(b, r.entries[i].text), r.entries[i].whole)
	}
	for _, name := range r.names {
		b = appendString(b, name)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errRecord = errors.New("the record of a row in an index cannot be read")

// parseRecord decodes a record. All of its strings are parts of one copy.
func parseRecord(stored []byte) (*record, error) {
	all := string(stored)
	n, b, err := takeNumber(all)
	if err != nil || n > uint64(len(b)) {
		return nil, errRecord
	}
	r := &record{entries: make([]Entry, n), stored: all}
	for i := range r.entries {
		e := &r.entries[i]
		if e.text, b, err = takeString(b); err == nil {
			e.whole, b, err = takeString(b)
		}
		if err != nil {
			return nil, err
		}
	}
	for len(b) > 0 {
		var name string
		if name, b, err = takeString(b); err != nil {
			return nil, err
		}
		r.names = append(r.names, name)
	}
	return r, nil
}

func takeNumber(s string) (n uint64, rest string, err error) {
	for i := range min(len(s), binary.MaxVarintLen64) {
		n |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, s[i+1:], nil
		}
	}
	return 0, "", errRecord
}

func takeString(s string) (taken, rest string, err error) {
	n, s, err := takeNumber(s)
	if err != nil || n > uint64(len(s)) {
		return "", "", errRecord
	}
	return s[:n], s[n:], nil
}

// numberOf returns the number of the index that an entry belongs to.
func numberOf(text string) byte { return text[0] }

// several reports whether the row has other entries in the index of entry i.
func (r *record) several(i int) bool {
	n := numberOf(r.entries[i].text)
	return i > 0 && numberOf(r.entries[i-1].text) == n || i+1 < len(r.entries) && numberOf(r.entries[i+1].text) == n
}

// The first byte of an entry's value: whether the row has other entries in the same index.
const (
	only    = 'o'
	several = 's'
)

// value returns the stored value of entry i.
func (r *record) value(i int) []byte {
	e := &r.entries[i]
	if e.whole == "" && !r.several(i) {
		return nil
	}
	flag := byte(only)
	if r.several(i) {
		flag = several
	}
	return append([]byte{flag}, e.whole...)
}

// wholeOf decodes the value of an entry.
func wholeOf(value []byte) (whole string, many bool) {
	if len(value) == 0 {
		return "", false
	}
	return string(value[1:]), value[0] == several
}
