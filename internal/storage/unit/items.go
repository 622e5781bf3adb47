package unit

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Meta is a side item without its key and value. Times are Unix nanoseconds, 0 for none.
type Meta struct {
	Rev     uint64
	Expires int64
	Due     int64
}

// Live reports whether the item exists at the time now.
func (m Meta) Live(now int64) bool { return m.Rev != 0 && !expired(m.Expires, now) }

func expired(expires, now int64) bool { return expires != 0 && expires <= now }

// Nanos returns a time in the form of Meta.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Item is a side item after all units decided so far. Value is known if it was written, was read, or has at most
// MaxValue bytes; otherwise it is nil.
type Item struct {
	Meta

	Value []byte
	// keep reports that the item is kept for later batches: fences name the same items again and again, and items with
	// entries are often written again soon.
	keep bool
}

// present returns the revision that an item has at a time, 0 when it is absent.
func (i *Item) present(now int64) uint64 {
	if !i.Live(now) {
		return 0
	}
	return i.Rev
}

// holds reports whether the item has a value, which has at most MaxValue bytes. An absent item has the empty value.
func (i *Item) holds(value string, now int64) bool {
	if !i.Live(now) {
		return value == ""
	}
	return i.Value != nil && string(i.Value) == value
}

// number returns the value of an item as a number, 0 if it is absent or not a number.
func (i *Item) number(now int64) int64 {
	n, err := strconv.ParseInt(string(i.Value), 10, 63)
	if err != nil || !i.Live(now) {
		return 0
	}
	return n
}

// less reports whether an item is absent, not a number, or less than number, which must be valid.
func (i *Item) less(number []byte, now int64) bool {
	want, _ := strconv.ParseUint(string(number), 10, 63)
	have, err := strconv.ParseUint(string(i.Value), 10, 63)
	return !i.Live(now) || err != nil || have < want
}

type itemKey struct {
	number uint32
	space  store.Space
	key    string
}

// keptItems caches side items as of the last batch; only batches change items. It has two halves: when the young one is
// full it becomes the old one, and the items of the previous old one are dropped unless they were used since. That
// happens only between batches.
type keptItems struct{ young, old map[itemKey]*Item }

// keptHalf is the number of items in one half, some 300 bytes each.
const keptHalf = 4096

// get returns an item, nil if it is not kept.
func (k *keptItems) get(key itemKey) *Item {
	if item := k.young[key]; item != nil {
		return item
	}
	item := k.old[key]
	if item != nil {
		k.young[cloned(key)] = item
	}
	return item
}

// add takes the items that a batch has read or changed, and keeps those that are marked for it and not large. It copies
// values and keys, which belong to the writers.
func (k *keptItems) add(items map[itemKey]*Item) {
	for key, item := range items {
		if !item.keep || len(item.Value) > MaxValue {
			k.forget(key)
			continue
		}
		item.Value = bytes.Clone(item.Value)
		if k.young[key] != item {
			k.young[cloned(key)] = item
		}
	}
	if len(k.young) >= keptHalf {
		k.young, k.old = map[itemKey]*Item{}, k.young
	}
}

func cloned(key itemKey) itemKey {
	return itemKey{key.number, store.Space(strings.Clone(string(key.space))), strings.Clone(key.key)}
}

func (k *keptItems) forget(key itemKey) {
	delete(k.young, key)
	delete(k.old, key)
}

func (k *keptItems) clear() {
	if k.young == nil || len(k.young)+len(k.old) > 0 {
		k.young, k.old = map[itemKey]*Item{}, nil
	}
}

// Item returns a side item after all units decided so far.
func (b *Batch[T]) Item(t T, space store.Space, key string) (*Item, error) {
	k := itemKey{t.Now().Number, space, key}
	if item := b.items[k]; item != nil {
		return item, nil
	}
	if item := b.kept.get(k); item != nil {
		b.items[k] = item // it may be changed
		return item, nil
	}
	stored, err := b.reader.ReadItem(t, space, key)
	if err != nil {
		return nil, err
	}
	item := &stored
	b.items[k] = item
	return item, nil
}

// fenced returns the item of a fence, after all units decided so far. The caller must not change it.
func (b *Batch[T]) fenced(t T, space store.Space, key string) (*Item, error) {
	if item := b.kept.get(itemKey{t.Now().Number, space, key}); item != nil {
		return item, nil
	}
	item, err := b.Item(t, space, key)
	if err == nil {
		item.keep = true
	}
	return item, err
}

// forget discards what is known of an item that is written without being read.
func (b *Batch[T]) forget(k itemKey) {
	if item := b.items[k]; item != nil {
		item.keep = false
	}
	b.kept.forget(k)
}

// expectNone records that an item did not exist before the batch, so that it is not looked up.
func (b *Batch[T]) expectNone(t T, space store.Space, key string) {
	k := itemKey{t.Now().Number, space, key}
	if b.items[k] == nil && b.kept.get(k) == nil {
		b.items[k] = &Item{}
	}
}

// Times are the new times of an item, in Unix nanoseconds, 0 for none. Claimed is store.Side.Claimed.
type Times struct{ Expires, Due, Claimed int64 }

func timesOf(w *store.Side) Times { return Times{Nanos(w.Expires), Nanos(w.Due), Nanos(w.Claimed)} }

// WriteSides applies the side writes of a unit that was loaded and whose conditions hold. ids are the positions of its
// events.
func (b *Batch[T]) WriteSides(t T, u *store.Append, ids []j17.StreamID) {
	for i := range u.Side {
		w := &u.Side[i]
		if w.Plain {
			b.writePlain(t, w)
			continue
		}
		if w.Entries != "" {
			b.writeEntries(t, w, b.sides[i])
		}
		b.writeSide(t, w, b.sides[i], ids)
	}
}

// writeSide writes one item.
func (b *Batch[T]) writeSide(t T, w *store.Side, item *Item, ids []j17.StreamID) {
	switch w.Op {
	case store.Put:
		value := w.Value
		if len(w.Stamps) > 0 {
			value = nil
			for _, n := range w.Stamps {
				value = store.AppendStamp(value, ids[n])
			}
			value = append(value, w.Value...)
		}
		key := w.Key
		if w.StampKey {
			key, item = store.StampedKey(ids[w.Stamps[0]], w.Key), &Item{}
			b.items[itemKey{t.Now().Number, w.Space, key}] = item
		}
		b.Put(t, w.Space, key, item, timesOf(w), value)
	case store.Delete:
		b.remove(t, w, item)
	case store.Add:
		added, _ := strconv.ParseInt(string(w.Value), 10, 64)
		if n := item.number(b.now) + added; n > 0 {
			b.Put(t, w.Space, w.Key, item, timesOf(w), strconv.AppendInt(nil, n, 10))
		} else {
			b.remove(t, w, item)
		}
	case store.Raise:
		if item.less(w.Value, b.now) {
			b.Put(t, w.Space, w.Key, item, timesOf(w), w.Value)
		}
	}
}

// Put writes the new content of an item.
func (b *Batch[T]) Put(t T, space store.Space, key string, item *Item, times Times, value []byte) {
	b.Touch(t)
	was, now := item.Meta, t.Now()
	now.Rev++
	item.Meta = Meta{Rev: now.Rev, Expires: times.Expires, Due: times.Due}
	if item.Value = value; value == nil {
		item.Value = []byte{} // it is known
	}
	b.write = ItemChange{Space: space, Key: key, Was: was, Is: item.Meta, Value: value, Claimed: times.Claimed}
	b.writer.WriteItem(t, &b.write)
}

// remove removes an item, if it exists.
func (b *Batch[T]) remove(t T, w *store.Side, item *Item) {
	if item.Rev != 0 {
		b.Touch(t)
		b.write = ItemChange{Space: w.Space, Key: w.Key, Was: item.Meta}
		b.writer.WriteItem(t, &b.write)
		item.Meta, item.Value = Meta{}, nil
	}
}

// writePlain writes a plain item, whatever was there before.
func (b *Batch[T]) writePlain(t T, w *store.Side) {
	b.writeUnseen(t, w.Space, w.Key, w.Op == store.Put, w.Value)
}

// writeUnseen puts or removes an item without times.
func (b *Batch[T]) writeUnseen(t T, space store.Space, key string, put bool, value []byte) {
	b.Touch(t)
	now := t.Now()
	b.forget(itemKey{now.Number, space, key})
	b.write = ItemChange{Space: space, Key: key, Unseen: true}
	if put {
		now.Rev++
		b.write.Is.Rev, b.write.Value = now.Rev, value
	}
	b.writer.WriteItem(t, &b.write)
}

// writeEntries replaces the entries that an item had before a write by those that it has after it.
func (b *Batch[T]) writeEntries(t T, w *store.Side, item *Item) {
	// A value that cannot be read has no entries: Load has refused it, or it was written without entries.
	var had, has [][]byte
	if item.Rev != 0 {
		had, _, _ = store.ReadEntries(item.Value)
	}
	if w.Op == store.Put {
		has, _, _ = store.ReadEntries(w.Value)
	}
	b.Touch(t)
	among := func(keys [][]byte, key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	for _, key := range had {
		if !among(has, key) {
			b.writeUnseen(t, w.Entries, string(key), false, nil)
		}
	}
	for _, key := range has {
		if !among(had, key) {
			b.writeUnseen(t, w.Entries, string(key), true, nil)
		}
	}
}
