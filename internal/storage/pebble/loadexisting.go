package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/storage/queue"
	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// A load keeps the side items and commands that its tenant has. They are copied into its tables, page by page, while
// writes to the tenant go on. The committer records what changes from then on, and the load catches up when it is
// committed.

// changedKeys are the side items and commands of a tenant that have changed since a load began to copy them. They are
// owned by the committer.
type changedKeys struct {
	number uint32
	keys   map[string]bool
	bytes  int
	// lost reports that too many, or a whole range of them, have changed.
	lost bool
	// over reports that they are no longer needed. Any goroutine may set it.
	over atomic.Bool
}

const (
	// mostChanged and mostChangedBytes bound the changes of a tenant while a load copies it: one batch has to catch up
	// with all of them.
	mostChanged      = 20_000
	mostChangedBytes = 32 << 20
	// mostCopies bounds how often a tenant's items are copied because too many changed meanwhile.
	mostCopies = 4
)

// note records the keys that a batch changes.
func (c *changedKeys) note(writes *pebble.Batch) {
	for r := writes.Reader(); !c.lost; {
		kind, key, value, ok, err := r.Next()
		if err != nil || !ok {
			c.lost = err != nil
			return
		}
		if len(key) <= tenantPrefix || binary.BigEndian.Uint32(key) != c.number {
			continue
		}
		if kind == pebble.InternalKeyKindRangeKeySet || kind == pebble.InternalKeyKindRangeKeyUnset ||
			kind == pebble.InternalKeyKindRangeKeyDelete {
			continue // these only touch ranges and change nothing in them
		}
		if kind == pebble.InternalKeyKindRangeDelete {
			c.lost = true
		} else if key[tenantPrefix] == kindItem || key[tenantPrefix] == kindCommand {
			c.keys[string(key)] = true
			c.bytes += len(key) + len(value)
		}
		c.lost = c.lost || len(c.keys) > mostChanged || c.bytes > mostChangedBytes
	}
}

// noteChanges records the changes of a batch for the loads that follow its tenants.
func (s *committer) noteChanges(b *batch) {
	for _, c := range s.following() {
		c.note(b.writes)
	}
}

// following returns the changedKeys that are still needed. Only the committer calls it.
func (s *committer) following() []*changedKeys {
	s.followed = slices.DeleteFunc(s.followed, func(c *changedKeys) bool { return c.over.Load() })
	return s.followed
}

// follow begins to record the changes of the load's tenant.
func (l *loading) follow(ctx context.Context) error {
	return l.store.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		t := b.tenant(l.name)
		if err := withoutEvents(t); err != nil {
			return err
		}
		l.changed, l.takes = &changedKeys{number: t.next.Number, keys: map[string]bool{}}, t.listed
		l.state.Rev = max(l.state.Rev, t.next.Rev)
		b.store.followed = append(b.store.followed, l.changed)
		return nil
	})
}

// followAgain begins to follow the load's tenant again if too much has changed to catch up with, and reports whether it
// did: its items then have to be copied again. With last it returns an error instead.
func (l *loading) followAgain(ctx context.Context, last bool) (again bool, err error) {
	err = l.store.queue.Do(ctx, queue.Ordinary, func(b *batch) error {
		t := b.tenant(l.name)
		switch {
		case l.changed.number != t.next.Number || l.changed.lost && last:
			return l.overtaken()
		case !l.changed.lost:
			return nil
		}
		again = true
		l.unfollow()
		l.changed = &changedKeys{number: t.next.Number, keys: map[string]bool{}}
		l.state.Rev = max(l.state.Rev, t.next.Rev)
		b.store.followed = append(b.store.followed, l.changed)
		return nil
	})
	return again, err
}

// unfollow ends the recording of changes. Only the committer calls it.
func (l *loading) unfollow() {
	l.store.committer.followed = slices.DeleteFunc(
		l.store.committer.followed, func(c *changedKeys) bool { return c == l.changed },
	)
}

// storedRange yields a tenant's records with keys in a range. It reads a page at a time, each as of the moment when it
// is read.
type storedRange struct {
	store        *core
	number       uint32
	lower, upper []byte
	page         sortBuffer
	at           int
	more         bool
}

// next returns the next record, a nil key after the last one. It is valid until next is called again.
func (r *storedRange) next() (key, value []byte, err error) {
	for r.at == len(r.page.placed) {
		if !r.more {
			return nil, nil, nil
		}
		if n := len(r.page.placed); n > 0 {
			r.lower = next(r.page.keyOf(&r.page.placed[n-1]))
		}
		r.page.data, r.page.placed, r.at = r.page.data[:0], r.page.placed[:0], 0
		v, err := r.store.acquire()
		if err != nil {
			return nil, nil, err
		}
		of := reader{view: v, store: r.store, tenant: r.number}
		r.more, err = r.page.fill(of, r.lower, r.upper, false)
		of.close()
		if err != nil {
			return nil, nil, err
		}
	}
	p := &r.page.placed[r.at]
	r.at++
	end := p.start + p.key
	return r.page.keyOf(p), r.page.data[end : end+p.value], nil
}

// takeOver adds the tenant's side items and commands to those that are written to tables, except those that were
// loaded. Both are read in the same order.
func (l *loading) takeOver(ctx context.Context) error {
	for _, kind := range []byte{kindCommand, kindItem} {
		prefix := appendPrefix(nil, l.changed.number, kind)
		there := &storedRange{
			store: l.store.core, number: l.changed.number, lower: prefix, upper: after(prefix), more: true,
		}
		key, value, err := there.next()
		if err != nil {
			return err
		}
		upTo := func(loaded []byte) error {
			for n := 1; err == nil && key != nil &&
				(loaded == nil || bytes.Compare(key[tenantPrefix:], loaded[tenantPrefix:]) < 0); n++ {
				if err = l.keep(key, value); err == nil {
					key, value, err = there.next()
				}
				if n%cancelEvery == 0 && ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return err
		}
		merged := eachOf(ctx, func(loaded, content []byte) error {
			if loaded[tenantPrefix] != kind || len(content) == 0 { // of another kind, or withdrawn from the load
				return nil
			}
			if err := upTo(loaded); err != nil || key == nil ||
				!bytes.Equal(key[tenantPrefix:], loaded[tenantPrefix:]) {
				return err
			}
			if err := l.replace(loaded, content, value); err != nil {
				return err
			}
			key, value, err = there.next()
			return err
		}, l.items, l.others)
		if merged != nil {
			return merged
		}
		if err := upTo(nil); err != nil {
			return err
		}
	}
	return l.there.settle()
}

// keep adds the record of one key, with its due and expiry entries.
func (l *loading) keep(from, value []byte) error {
	key := append(binary.BigEndian.AppendUint32(nil, l.number), from[tenantPrefix:]...)
	var expires int64
	var parts [][]byte
	if from[tenantPrefix] == kindCommand {
		_, until, err := record.ParseCommand(value)
		if err != nil {
			return corruption(err, "a command of tenant %s", l.name)
		}
		expires, parts = until, [][]byte{value}
	} else {
		meta, _, err := parseItemRecord(value)
		space, name, ok := cutSpace(key[tenantPrefix+1:])
		if err == nil && !ok {
			err = errFormat
		}
		if err != nil {
			return corruption(err, "a side item of tenant %s", l.name)
		}
		expires, parts = meta.Expires, [][]byte{{0}, value} // without a space of entries: these are items of their own
		if meta.Due != 0 {
			if err := l.there.add(appendDueKey(nil, l.number, space, meta.Due, name)); err != nil {
				return err
			}
		}
	}
	if expires != 0 {
		if err := l.there.add(appendExpiryKey(nil, l.number, expires, key)); err != nil {
			return err
		}
	}
	return l.there.add(key, parts...)
}

// replace gives a loaded item a new revision if it has that of the item it replaces.
func (l *loading) replace(key, loaded, there []byte) error {
	if key[tenantPrefix] == kindCommand {
		return nil
	}
	_, loaded, _ = bytes.Cut(loaded, []byte{0}) // the space of its entries
	had, _, err := parseItemRecord(there)
	if err != nil {
		return corruption(err, "a side item of tenant %s", l.name)
	}
	meta, content, err := parseItemRecord(loaded)
	if err != nil || meta.Rev != had.Rev {
		return err
	}
	meta.Rev = l.state.NextRev()
	return l.there.add(key, appendItemRecord([]byte{0}, meta, content))
}

// catchUp stages the changes of the tenant's side items and commands since they were copied.
func (l *loading) catchUp(b *batch, t *tenant) error {
	if l.changed.lost || l.changed.number != t.next.Number {
		return l.overtaken()
	}
	for _, from := range slices.Sorted(maps.Keys(l.changed.keys)) {
		key := append(binary.BigEndian.AppendUint32(nil, l.number), from[tenantPrefix:]...)
		now, err := b.find([]byte(from))
		now = bytes.Clone(now)
		var copied []byte
		if err == nil {
			copied, err = b.find(key)
		}
		if err != nil {
			return fault("what has changed during a load", err)
		}
		if key[tenantPrefix] == kindCommand {
			err = l.catchUpCommand(b, key, copied, now)
		} else {
			err = l.catchUpItem(b, t, key, copied, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// overtaken returns the error of a load that cannot catch up with the changes of its tenant.
func (l *loading) overtaken() error { return fmt.Errorf("tenant %s: %w", l.name, store.ErrOvertaken) }

func (l *loading) catchUpCommand(b *batch, key, copied, now []byte) error {
	if copied != nil {
		if l.commands {
			return l.overtaken() // it may have been loaded
		}
		_, expires, err := record.ParseCommand(copied)
		if err != nil {
			return corruption(err, "a command of tenant %s", l.name)
		}
		b.remove(key)
		b.key = append(b.key[:0], key...)
		b.replaceExpiry(l.number, expires, 0)
	}
	if now == nil {
		return nil
	}
	_, expires, err := record.ParseCommand(now)
	if err != nil {
		return corruption(err, "a command of tenant %s", l.name)
	}
	must(b.writes.Set(key, now, nil))
	setExpiry(b, l.number, expires, key)
	return nil
}

func (l *loading) catchUpItem(b *batch, t *tenant, key, copied, now []byte) error {
	space, name, ok := cutSpace(key[tenantPrefix+1:])
	if !ok {
		return corruption(errFormat, "a side item of tenant %s", l.name)
	}
	if copied != nil {
		meta, _, err := parseItemRecord(copied)
		switch {
		case err != nil:
			return corruption(err, "a side item of tenant %s", l.name)
		case l.state.Given != 0 && meta.Rev > l.state.Given:
			return nil // it was loaded, and that one counts
		case l.state.Revised:
			return l.overtaken() // it may have been loaded
		}
		b.removeItem(l.number, space, name, meta.Meta)
	}
	if now == nil {
		return nil
	}
	meta, _, err := parseItemRecord(now)
	if err != nil {
		return corruption(err, "a side item of tenant %s", l.name)
	}
	must(b.writes.Set(key, now, nil))
	setExpiry(b, l.number, meta.Expires, key)
	if meta.Due != 0 {
		must(b.writes.Set(appendDueKey(nil, l.number, space, meta.Due, name), nil, nil))
		b.due = append(b.due, dueWork{t, space, meta.Due})
	}
	return nil
}

func setExpiry(b *batch, number uint32, expires int64, key []byte) {
	if expires != 0 {
		must(b.writes.Set(appendExpiryKey(nil, number, expires, key), nil, nil))
	}
}
