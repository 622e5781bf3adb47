package control

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"j17/internal/store"
)

// The items of secretSpace.
const (
	signingSecret = "signing"
	nodeSecret    = "node"
)

// secretBytes is the length of the signing key.
const secretBytes = 32

// secretRecord is kept as it is: the server cannot sign or call other nodes with a hash.
type secretRecord struct {
	Secret    []byte    `json:"secret"`
	CreatedAt time.Time `json:"created_at"`
}

// openSecrets reads the server's secrets and creates those that are missing.
func (r *Registry) openSecrets(ctx context.Context) error {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // Never fails: the program ends when the machine has no randomness.
	key, err := r.secret(ctx, signingSecret, key)
	if err != nil {
		return err
	}
	node, err := r.secret(ctx, nodeSecret, []byte(rand.Text()+rand.Text()))
	if err != nil {
		return err
	}
	r.signingKey, r.nodeSecret = key, string(node)
	return nil
}

// secret returns the secret of that name, which becomes fresh if there is none.
func (r *Registry) secret(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	rec, _, err := get[secretRecord](ctx, r.store, secretSpace, name)
	if errors.Is(err, store.ErrNotFound) {
		var item store.Side
		if item, err = putNew(secretSpace, name, secretRecord{Secret: fresh, CreatedAt: r.second()}); err != nil {
			return nil, err
		}
		err = r.store.Write(ctx, store.System, []store.Side{item})
		if err != nil && !isConflict(err, secretSpace) {
			return nil, failure(err)
		}
		// Another node may have been first: what counts is what is stored.
		rec, _, err = get[secretRecord](ctx, r.store, secretSpace, name)
	}
	if err != nil {
		return nil, failure(err)
	}
	if len(rec.Secret) == 0 {
		return nil, failure(&store.CorruptionError{Where: string(secretSpace) + "/" + name, Err: errors.New("the secret is empty")})
	}
	return rec.Secret, nil
}

// SigningKey returns the key for operators' tokens. The caller must not modify it.
func (r *Registry) SigningKey() []byte { return r.signingKey }

// NodeSecret returns the secret by which nodes know each other.
func (r *Registry) NodeSecret() string { return r.nodeSecret }
