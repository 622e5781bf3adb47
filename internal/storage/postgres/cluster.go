package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"j17/internal/base/keyfile"
)

// The schema has a random key, which seals its data and identifies it. It is stored sealed with the key of the nodes.
const (
	clusterItem = "cluster"
	clusterBox  = "the key of a store"

	selectKey = `SELECT value FROM meta WHERE key = $1`
)

// clusterKey returns the key of the schema, and creates it if there is none. It is nil for a store without Options.Key.
func (c *core) clusterKey(ctx context.Context, conn *pgx.Conn) (key *keyfile.File, err error) {
	if c.o.Key == nil {
		return nil, nil
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Stores that are opened at the same time wait for each other.
		if _, err := tx.Exec(ctx, `SELECT FROM meta WHERE key = 'migration' FOR UPDATE`); err != nil {
			return err
		}
		var sealed []byte
		err := tx.QueryRow(ctx, selectKey, clusterItem).Scan(&sealed)
		var plain []byte
		by := -1
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			plain = make([]byte, keyfile.Bytes)
			_, _ = rand.Read(plain) // never fails
		case err != nil:
			return err
		default:
			if plain, by, err = c.unseal(sealed); err != nil {
				return err
			}
		}
		key = keyfile.Of(plain)
		if by == 0 {
			return nil
		}

		// It is sealed with Key from now on.
		box, err := c.o.Key.Box(clusterBox)
		if err != nil {
			return err
		}
		_, err = tx.Exec(
			ctx, `INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
			clusterItem, box.Seal(clusterItem, plain),
		)
		return err
	})
	return key, err
}

// unseal opens the key of the schema with one of the keys of the options. by is the index of that key, 0 for Key.
func (c *core) unseal(sealed []byte) (plain []byte, by int, err error) {
	for i, key := range append([]*keyfile.File{c.o.Key}, c.o.Keys...) {
		if !key.Exists() {
			continue
		}
		box, err := key.Box(clusterBox)
		if err != nil {
			return nil, 0, err
		}
		if plain, err := box.Open(clusterItem, sealed); err == nil {
			return plain, i, nil
		}
	}
	return nil, 0, fmt.Errorf("the schema %s belongs to a server with another node secret or key file: give --node-secret-file the secret that it was made with, or name another schema with --store-schema", c.o.Schema)
}

// Key returns the key that seals data of the store, nil if the store was opened without one.
func (c *core) Key() *keyfile.File { return c.key }
