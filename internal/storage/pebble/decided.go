package pebble

import (
	"bytes"
	"errors"

	"j17"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
	"j17/internal/storage/unit"
)

// What the decision of units asks of the store, and what it changes: see package unit.

// Now returns what is known of a tenant after all that was decided.
func (t *tenant) Now() *unit.State { return &t.next.State }

// ReadHead returns the head of a stream: from memory, from a filter that knows that there is none, or from disk.
func (b *batch) ReadHead(t *tenant, key j17.Key) (store.Head, error) {
	b.key = appendHeadKey(b.key[:0], t.next.Number, key)
	head, ok := b.store.cachedHead(b.key)
	if ok || t.streamFilter.Load().lacks(t.next.Number, b.store.filters.filteredStream(b.key)) {
		return head, nil
	}
	v, err := b.find(b.key)
	if err != nil {
		return store.Head{}, fault("the head of "+key.String(), err)
	}
	if v == nil {
		b.missed(t)
		return store.Head{}, nil
	}
	if head, err = parseHeadRecord(v); err != nil {
		return store.Head{}, corruption(err, "the head of %s", key)
	}
	return head, nil
}

// ReadItem returns a side item. A value that is sealed is left out.
func (b *batch) ReadItem(t *tenant, space store.Space, key string) (unit.Item, error) {
	b.key = appendItemKey(b.key[:0], t.next.Number, space, key)
	v, err := b.find(b.key)
	if err != nil {
		return unit.Item{}, ofItem(space, key, fault("a side item", err))
	}
	if v == nil {
		return unit.Item{}, nil
	}
	meta, value, err := parseItemRecord(v)
	if err != nil {
		return unit.Item{}, ofItem(space, key, corruption(err, "side item %s/%s of tenant %s", space, key, t.name))
	}
	item := unit.Item{Meta: meta.Meta}
	if len(value) <= unit.MaxValue && !meta.sealed {
		item.Value = bytes.Clone(value)
	}
	return item, nil
}

// ReadEntries returns the value of an item with entries.
func (b *batch) ReadEntries(t *tenant, space store.Space, key string) ([]byte, error) {
	b.key = appendItemKey(b.key[:0], t.next.Number, space, key)
	v, err := b.find(b.key)
	if err != nil {
		return nil, ofItem(space, key, fault("the entries of a side item", err))
	}
	_, value, err := parseItemRecord(v)
	if err == nil {
		_, err = store.BehindEntries(value)
	}
	if err != nil {
		return nil, ofItem(space, key, corruption(err, "side item %s/%s of tenant %s", space, key, t.name))
	}
	return bytes.Clone(value), nil
}

// ofItem says of damage which side item it is of.
func ofItem(space store.Space, key string, err error) error {
	if damage, is := errors.AsType[*store.CorruptionError](err); is {
		damage.Item = store.ItemName{Space: space, Key: key}
	}
	return err
}

// ReadCommand returns the result of a command.
func (b *batch) ReadCommand(t *tenant, id store.CommandID) (*store.Result, int64, error) {
	return getCommand(b.store.db, t.next.Number, id)
}

// WriteEvent stages an event under its key, and in the feed in runs that the batch ends.
func (b *batch) WriteEvent(t *tenant, e *unit.Event) {
	t.added = append(t.added, b.store.leaves.Leaf(e.ID, e.Leaf, e.Key.Type))
	b.own = record.AppendTags(b.own[:0], e.Tags)
	b.value = append(appendEventHeader(b.value[:0], e.ID, e.Timestamp, e.Layout, nil, b.own), e.LeafInput...)
	b.key = appendEventKey(b.key[:0], t.next.Number, e.Key, e.Version)
	must(b.writes.Set(b.key, b.value, nil))
	b.addToRun(t, e.ID, e.Tags)
}

// WriteItem stages the new content of an item, or its removal, and its entries in the orders of due times and expiry.
func (b *batch) WriteItem(t *tenant, w *unit.ItemChange) {
	b.key = appendItemKey(b.key[:0], t.next.Number, w.Space, w.Key)
	if w.Is.Rev == 0 {
		b.remove(b.key)
	} else {
		b.put(b.key, b.store.itemRecord(b.value[:0], w.Space, w.Key, itemMeta{Meta: w.Is}, w.Value))
	}
	if w.Unseen {
		return
	}
	b.replaceExpiry(t.next.Number, w.Was.Expires, w.Is.Expires)
	if w.Was.Due != 0 && w.Was.Due != w.Is.Due {
		b.key2 = appendDueKey(b.key2[:0], t.next.Number, w.Space, w.Was.Due, w.Key)
		b.remove(b.key2)
	}
	if w.Is.Due != 0 {
		b.due = append(b.due, dueWork{t, w.Space, w.Is.Due})
		b.key2 = appendDueKey(b.key2[:0], t.next.Number, w.Space, w.Is.Due, w.Key)
		must(b.writes.Set(b.key2, claimMark(w.Claimed), nil))
	}
}

// removeItem stages the removal of an item under a tenant's number.
func (b *batch) removeItem(number uint32, space store.Space, key string, was unit.Meta) {
	b.key = appendItemKey(b.key[:0], number, space, key)
	b.remove(b.key)
	b.replaceExpiry(number, was.Expires, 0)
	if was.Due != 0 {
		b.key2 = appendDueKey(b.key2[:0], number, space, was.Due, key)
		b.remove(b.key2)
	}
}

// WriteCommand stages the result of a command.
func (b *batch) WriteCommand(t *tenant, c *unit.CommandRecord) {
	b.key = appendCommandKey(b.key[:0], t.next.Number, c.ID)
	b.replaceExpiry(t.next.Number, c.Was, c.Expires)
	b.put(b.key, record.AppendCommand(b.value[:0], c.Expires, c.Result, c.Memo))
}

// replaceExpiry moves the expiry entry of the item or command whose key is b.key.
func (b *batch) replaceExpiry(tenant uint32, from, to int64) {
	if from == to {
		return
	}
	if from != 0 {
		b.key2 = appendExpiryKey(b.key2[:0], tenant, from, b.key)
		b.remove(b.key2)
	}
	if to != 0 {
		b.key2 = appendExpiryKey(b.key2[:0], tenant, to, b.key)
		must(b.writes.Set(b.key2, nil, nil))
	}
}
