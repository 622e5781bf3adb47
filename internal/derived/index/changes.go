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

// changes collects writes, and their effect on the counters of a slot.
type changes struct {
	slot string
	// of has the writes into each of the spaces.
	of                   [allSpaces][]write
	size                 int
	rows, entries, bytes int64
}

// write is the write or removal of one item. It is a fifth the size of a store.Side; those are made once, in order.
type write struct {
	key   string
	value []byte
	gone  bool
}

// len returns the number of writes.
func (c *changes) len() (n int) {
	for _, writes := range c.of {
		n += len(writes)
	}
	return n
}

// each returns the average number of writes per row into each of the spaces.
func (c *changes) each(rows int) (n [allSpaces]int) {
	for in, writes := range c.of {
		n[in] = len(writes) / rows
	}
	return n
}

// writeBytes is the size of a write itself, on a 64-bit machine.
const writeBytes = 48

// mostRoom bounds the writes that capacity is reserved for at once in one space. In all spaces together they take as
// much memory as the limit of a commit, without their content.
const mostRoom = maxBytes / writeBytes / allSpaces

// grow reserves capacity for more rows with the given number of writes each. Large rows get less than they would need:
// the limit of bytes is reached before all of them are added.
func (c *changes) grow(rows int, each [allSpaces]int) {
	for in := range c.of {
		c.of[in] = slices.Grow(c.of[in], min(rows*each[in], mostRoom))
	}
}

// merge adds the writes of others and sorts them in the order of the store, in which they are cheaper to write.
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

// replace adds the writes that turn the old record of a row into the new one; nil means no record.
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

	// The sources of the row.
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

// entryKey returns the key of an entry of a row.
func entryKey(slot, text, id string) string { return slot + "/" + text + end + id }

// sourceKey returns the key that notes a row under one of its sources.
func sourceKey(slot, name, id string) string { return slot + "/" + name + end + id }

// entry adds the change of an entry: it is added (1), removed (-1), or about to be replaced (0).
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

// source adds or removes the note of a row under a source.
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

// The counters of a slot.
const (
	countRows    = "rows"
	countEntries = "entries"
	countBytes   = "bytes"
)

// writes returns all writes, with spare capacity for others of the same commit.
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
