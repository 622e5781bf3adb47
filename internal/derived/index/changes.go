package index

import (
	"cmp"
	"slices"
	"strings"

	"j17/internal/storage/store"
)

// The spaces that changes are written into, in their order in the store.
const (
	inEntries = iota
	inRows
	inSources

	allSpaces
)

func spaces() [allSpaces]store.Space {
	return [...]store.Space{inEntries: entrySpace, inRows: rowSpace, inSources: sourceSpace}
}

// changes gathers what is to be written, and what that does to the numbers of a slot.
type changes struct {
	slot string
	// of are the writes into each of the spaces.
	of                   [allSpaces][]write
	size                 int
	rows, entries, bytes int64
}

// write is the write of one item, or its removal. It is a fifth as large as a write of the store: these are made once,
// in their order.
type write struct {
	key   string
	value []byte
	gone  bool
}

// len is how many writes there are.
func (c *changes) len() (n int) {
	for _, writes := range c.of {
		n += len(writes)
	}
	return n
}

// each is how many writes one of some rows has into each of the spaces.
func (c *changes) each(rows int) (n [allSpaces]int) {
	for in, writes := range c.of {
		n[in] = len(writes) / rows
	}
	return n
}

// writeBytes is how large a write is by itself, on a machine of 64 bits.
const writeBytes = 48

// mostRoom is for how many more writes into one space room is made at most. In all spaces together they take as much
// memory as is too much for one commit, without their content.
const mostRoom = maxBytes / writeBytes / allSpaces

// grow makes room for more rows with so many writes each. Where rows are large there is less: what is gathered ends
// before all of them come.
func (c *changes) grow(rows int, each [allSpaces]int) {
	for in := range c.of {
		c.of[in] = slices.Grow(c.of[in], min(rows*each[in], mostRoom))
	}
}

// merge takes what others have gathered, in its order in the store: that is cheaper to write.
func (c *changes) merge(others []*changes) {
	for n := range c.of {
		size := 0
		for _, o := range others {
			size += len(o.of[n])
		}
		c.of[n] = slices.Grow(c.of[n], size)
		for _, o := range others {
			c.of[n] = append(c.of[n], o.of[n]...)
		}
		slices.SortFunc(c.of[n], func(a, b write) int { return strings.Compare(a.key, b.key) })
	}
	for _, o := range others {
		c.size += o.size
		c.rows, c.entries, c.bytes = c.rows+o.rows, c.entries+o.entries, c.bytes+o.bytes
	}
}

// put and remove add one write into one of the spaces.
func (c *changes) put(in int, key string, value []byte) {
	c.of[in] = append(c.of[in], write{key: key, value: value})
	c.size += len(key) + len(value)
}

func (c *changes) remove(in int, key string) {
	c.of[in] = append(c.of[in], write{key: key, gone: true})
	c.size += len(key)
}

// replace adds the writes that make one record of a row, nil for none, into another.
func (c *changes) replace(id string, old, now *record) {
	if old == nil {
		old = &record{}
	}
	if now == nil {
		now = &record{}
	}

	// Entries, in order on both sides.
	i, j := 0, 0
	for i < len(old.entries) || j < len(now.entries) {
		switch order := compareAt(old.entries, i, now.entries, j); {
		case order < 0:
			c.entry(id, old, i, -1)
			i++
		case order > 0:
			c.entry(id, now, j, 1)
			j++
		default:
			if !slices.Equal(old.value(i), now.value(j)) {
				c.entry(id, old, i, 0)
				c.entry(id, now, j, 1)
				c.entries--
			}
			i, j = i+1, j+1
		}
	}

	// What the row was made from.
	for i, j = 0, 0; i < len(old.names) || j < len(now.names); {
		switch {
		case j == len(now.names) || i < len(old.names) && old.names[i] < now.names[j]:
			c.source(id, old.names[i], false)
			i++
		case i == len(old.names) || now.names[j] < old.names[i]:
			c.source(id, now.names[j], true)
			j++
		default:
			i, j = i+1, j+1
		}
	}

	// The record itself.
	key, before, after := c.slot+"/"+id, old.stored, []byte(nil)
	if !old.empty() {
		c.bytes -= int64(len(key) + len(before))
	}
	if !now.empty() {
		after = now.encode()
		c.bytes += int64(len(key) + len(after))
	}
	switch {
	case before == string(after):
	case after == nil:
		c.remove(inRows, key)
	default:
		c.put(inRows, key, after)
	}
	c.rows += one(len(now.entries) > 0) - one(len(old.entries) > 0)
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func compareAt(a []Entry, i int, b []Entry, j int) int {
	switch {
	case i == len(a):
		return 1
	case j == len(b):
		return -1
	default:
		return cmp.Compare(a[i].text, b[j].text)
	}
}

// entryKey is where an entry of a row is.
func entryKey(slot, text, id string) string { return slot + "/" + text + end + id }

// sourceKey is where a row stands behind what it was made from.
func sourceKey(slot, name, id string) string { return slot + "/" + name + end + id }

// entry adds what becomes of an entry: it is new (1), goes (-1), or is about to be written again (0).
func (c *changes) entry(id string, of *record, i, sign int) {
	key, value := entryKey(c.slot, of.entries[i].text, id), of.value(i)
	size := int64(len(key) + len(value))
	switch sign {
	case 1:
		c.put(inEntries, key, value)
		c.entries, c.bytes = c.entries+1, c.bytes+size
	case -1:
		c.remove(inEntries, key)
		c.entries, c.bytes = c.entries-1, c.bytes-size
	default:
		c.bytes -= size
	}
}

// source adds what becomes of a note about a source.
func (c *changes) source(id, name string, is bool) {
	key := sourceKey(c.slot, name, id)
	if is {
		c.put(inSources, key, nil)
		c.bytes += int64(len(key))
		return
	}
	c.remove(inSources, key)
	c.bytes -= int64(len(key))
}

// The numbers of a slot.
const (
	countRows    = "rows"
	countEntries = "entries"
	countBytes   = "bytes"
)

// writes returns all that is to be written, with room for what is written with it.
func (c *changes) writes() []store.Side {
	const others = 8
	sides := make([]store.Side, 0, c.len()+others)
	for in, space := range spaces() {
		for _, w := range c.of[in] {
			side := store.Side{Op: store.Put, Space: space, Key: w.key, Value: w.value, Plain: true}
			if w.gone {
				side.Op = store.Delete
			}
			sides = append(sides, side)
		}
	}
	for name, n := range map[string]int64{countRows: c.rows, countEntries: c.entries, countBytes: c.bytes} {
		if n != 0 {
			sides = append(sides, store.Side{
				Op: store.Add, Space: countSpace, Key: c.slot + "/" + name, Value: decimal(n),
			})
		}
	}
	return sides
}
