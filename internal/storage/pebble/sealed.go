package pebble

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"j17/internal/base/keyfile"
	"j17/internal/storage/store"
)

// sealing encrypts the values of items that must not be read in a copy of the store's files.
type sealing struct {
	box *keyfile.Box
	// spaces tells of each space with such items which values they are; nil means all.
	spaces map[store.Space]func(value []byte) bool
}

// forValues is the purpose of the key that seals values.
const forValues = "values of items"

func (s *sealing) open(o *Options) (err error) {
	if len(o.Sealed) == 0 {
		return nil
	}
	s.spaces = o.Sealed
	s.box, err = keyfile.At(o.KeyFile).Box(forValues)
	return err
}

// of reports whether a value of a space is to be sealed.
func (s *sealing) of(space store.Space, value []byte) bool {
	is, some := s.spaces[space]
	return some && (is == nil || is(value))
}

func sealedPlace[K string | []byte](space store.Space, key K) string {
	return string(space) + "\x00" + string(key)
}

// record appends the record of an item, whose value is sealed if it is to be.
func (s *sealing) record(dst []byte, space store.Space, key string, m itemMeta, value []byte) []byte {
	if m.sealed = s.of(space, value); m.sealed {
		value = s.box.Seal(sealedPlace(space, key), value)
	}
	return appendItemRecord(dst, m, value)
}

// parseItem returns an item's meta data and a view of its value, which is opened if it is sealed.
func parseItem[K string | []byte](s *sealing, space store.Space, key K, v []byte) (itemMeta, []byte, error) {
	m, value, err := parseItemRecord(v)
	switch {
	case err != nil || !m.sealed:
		return m, value, err
	case s.box == nil:
		return m, nil, store.ErrSealed
	}
	if value, err = s.box.Open(sealedPlace(space, key), value); err != nil {
		return m, nil, store.ErrSealed
	}
	return m, value, nil
}

// sealedAtOnce is how many bytes of values are sealed in one batch at the start.
const sealedAtOnce = 4 << 20

// sealOlder seals the values that were stored before values were sealed. Revisions stay as they are.
func (s *Store) sealOlder() error {
	done := appendPrefix(nil, storeNumber, kindSealed)
	if n, err := s.getNumber(done); s.sealing.box == nil || err != nil || n != 0 {
		return err
	}
	for _, t := range s.inOrder() {
		for space := range s.sealing.spaces {
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
		if err != nil || meta.sealed || !s.sealing.of(space, value) {
			continue // what is damaged is told of when it is read
		}
		must(b.Set(it.Key(), s.sealing.record(nil, space, string(it.Key()[len(all):]), meta, value), nil))
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
