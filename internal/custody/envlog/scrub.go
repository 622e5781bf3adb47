package envlog

import (
	"context"
	"crypto/sha256"
	"errors"

	"j17"
	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// TileWidth is how many leaves a tile of the lowest level has.
const TileWidth = tileWidth

// Tile returns the stored leaves of tile number n of the lowest level; false if it is not stored yet.
func (s *Service) Tile(
	ctx context.Context, t j17.Tenant, n uint64,
) (leaves [][sha256.Size]byte, stored bool, err error) {
	err = s.with(ctx, t, func(r *tree) error {
		if n >= r.log.stored {
			return nil
		}
		item, err := s.Store.Get(ctx, t, tileSpace, tileKey(0, n))
		switch {
		case errors.Is(err, store.ErrNotFound):
			return damage(t, "tile %s is missing", tileKey(0, n))
		case err != nil:
			return err
		case len(item.Value) != tileBytes:
			return damage(t, "tile %s has %d bytes", tileKey(0, n), len(item.Value))
		}
		leaves, stored = proof.Hashes(appendNodes(nil, item.Value)), true
		return nil
	})
	return leaves, stored, err
}

// check returns what is wrong with an item that has a checksum of its own, nil if it is intact.
func check(key string, value []byte) error {
	_, err := opened(key, value)
	return err
}
