package pebble

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/storage/record"
	"j17/internal/storage/store"
)

// itemRecord appends the record of an item, with its value sealed if it has to be.
func (s *core) itemRecord(dst []byte, space store.Space, key string, m itemMeta, value []byte) []byte {
	if m.sealed = s.sealing.Seals(space, value); m.sealed {
		value = s.sealing.Seal(space, key, value)
	}
	return appendItemRecord(dst, m, value)
}

// parseItem returns an item's metadata and a view of its value, which is opened if it is sealed.
func parseItem[K string | []byte](
	s *record.Sealing, space store.Space, key K, v []byte,
) (itemMeta, []byte, error) {
	m, value, err := parseItemRecord(v)
	if err == nil && m.sealed {
		value, err = s.Open(space, string(key), value)
	}
	return m, value, err
}

// sealedAtOnce is the size in bytes of the batches that seal values when the store is opened.
const sealedAtOnce = 4 << 20

// sealOlder seals the values that were stored before values were sealed. Revisions stay as they are.
func (s *Store) sealOlder() error {
	done := appendPrefix(nil, storeNumber, kindSealed)
	if n, err := s.getNumber(done); len(s.sealing.Spaces()) == 0 || err != nil || n != 0 {
		return err
	}
	for _, t := range s.inOrder() {
		for space := range s.sealing.Spaces() {
			if err := s.sealSpace(t.number, space); err != nil {
				return err
			}
		}
	}
	return s.db.Set(done, appendNumber(nil, 1), pebble.Sync)
}

// sealSpace seals the values of a space of a tenant.
func (s *Store) sealSpace(number uint32, space store.Space) (err error) {
	all := appendSpace(nil, number, kindItem, space)
	it, err := newIter(s.db, all, after(all))
	if err != nil {
		return err
	}
	defer closeIter(it, &err, "side items")
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fault("side items", err)
		}
		meta, value, err := parseItemRecord(v)
		if err != nil || meta.sealed || !s.sealing.Seals(space, value) {
			continue // damage is reported when the item is read
		}
		must(b.Set(it.Key(), s.itemRecord(nil, space, string(it.Key()[len(all):]), meta, value), nil))
		if b.Len() < sealedAtOnce {
			continue
		}
		if err := s.db.Apply(b, pebble.Sync); err != nil {
			return err
		}
		b.Reset()
	}
	return s.db.Apply(b, pebble.Sync)
}
