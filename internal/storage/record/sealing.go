package record

import (
	"j17/internal/base/keyfile"
	"j17/internal/storage/store"
)

// Sealing encrypts the values of items that must not be readable in a copy of the stored data. The zero Sealing seals
// nothing.
type Sealing struct {
	box *keyfile.Box
	// spaces has the spaces with such items, each with a function that selects the values; nil selects all.
	spaces map[store.Space]func(value []byte) bool
}

// forValues is the purpose of the key that seals values.
const forValues = "values of items"

// NewSealing returns a Sealing of the selected values of some spaces, with a key of the file.
func NewSealing(spaces map[store.Space]func(value []byte) bool, key *keyfile.File) (s Sealing, err error) {
	if len(spaces) == 0 {
		return s, nil
	}
	s.spaces = spaces
	s.box, err = key.Box(forValues)
	return s, err
}

// Spaces returns the spaces with values that are sealed.
func (s *Sealing) Spaces() map[store.Space]func(value []byte) bool { return s.spaces }

// Seals reports whether a value of a space is to be sealed.
func (s *Sealing) Seals(space store.Space, value []byte) bool {
	is, some := s.spaces[space]
	return some && (is == nil || is(value))
}

// Seal encrypts the value of an item.
func (s *Sealing) Seal(space store.Space, key string, value []byte) []byte {
	return s.box.Seal(place(space, key), value)
}

// Open decrypts a value that Seal has made for an item. The error is store.ErrSealed.
func (s *Sealing) Open(space store.Space, key string, value []byte) ([]byte, error) {
	if s.box == nil {
		return nil, store.ErrSealed
	}
	value, err := s.box.Open(place(space, key), value)
	if err != nil {
		return nil, store.ErrSealed
	}
	return value, nil
}

func place(space store.Space, key string) string { return string(space) + "\x00" + key }
