package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"maps"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Secrets are the keys that sign operators' tokens, the tokens that were revoked, and the secret of the nodes.
type Secrets struct {
	*items
	// node is the secret that this server sends to other nodes, nodeToo those that it also accepts from them.
	node    string
	nodeToo []string
}

// The items of SecretSpace.
const (
	signingSecret = "signing_keys"
	nodeSecret    = "node"
)

// secretBytes is the length of a signing key, keyName that of its name.
const (
	secretBytes = 32
	keyName     = 12
)

// secretRecord is stored in clear: the server cannot call other nodes with a hash.
type secretRecord struct {
	Secret    []byte    `json:"secret"`
	CreatedAt time.Time `json:"created_at"`
}

// SigningKey is a key that signs operators' tokens.
type SigningKey struct {
	// ID is the key's name in the header of tokens ("kid").
	ID string `json:"id"`
	// Secret must not be modified.
	Secret    []byte    `json:"secret"`
	CreatedAt time.Time `json:"created_at"`
}

// signingRecord holds the signing keys, the newest first.
type signingRecord struct {
	Keys []SigningKey `json:"keys"`
}

// How long a signing key signs, and how many are kept. A replaced key checks tokens for as long as any that it has
// signed can be valid; maxSigningKeys is reached only by needless rotation.
const (
	signingKeyAge  = 30 * 24 * time.Hour
	maxSigningKeys = 8
)

// TokenLifetime is how long an operator stays logged in.
const TokenLifetime = 24 * time.Hour

// open reads the server's secrets and creates those that are missing.
func (r *Secrets) open(ctx context.Context) error {
	keys, err := secret(ctx, r.items, signingSecret, signingRecord{Keys: []SigningKey{r.newSigningKey()}})
	if err != nil {
		return err
	}
	if len(keys.Keys) == 0 || len(keys.Keys[0].Secret) == 0 {
		return damagedSecret(signingSecret)
	}
	node, err := secret(ctx, r.items, nodeSecret, secretRecord{
		Secret: []byte(rand.Text() + rand.Text()), CreatedAt: r.second(),
	})
	if err != nil {
		return err
	}
	if len(node.Secret) == 0 {
		return damagedSecret(nodeSecret)
	}
	r.signing.Store(keys)
	r.node = string(node.Secret)
	return nil
}

func damagedSecret(name string) error {
	return failure(&store.CorruptionError{
		Where: string(SecretSpace) + "/" + name, Err: errors.New("the secret is empty"),
	})
}

func (r *Secrets) newSigningKey() SigningKey {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // Never fails: the program ends when the machine has no randomness.
	return SigningKey{ID: rand.Text()[:keyName], Secret: key, CreatedAt: r.second()}
}

// secret returns the secret of that name, which is set to fresh if there is none.
func secret[T any](ctx context.Context, r *items, name string, fresh T) (*T, error) {
	rec, _, err := get[T](ctx, r.store, SecretSpace, name)
	if errors.Is(err, store.ErrNotFound) {
		var item store.Side
		if item, err = putNew(SecretSpace, name, fresh); err != nil {
			return nil, err
		}
		err = r.store.Write(ctx, j17.System, []store.Side{item})
		if err != nil && !isConflict(err, SecretSpace) {
			return nil, failure(err)
		}
		// Another node may have been first: the stored one is valid.
		rec, _, err = get[T](ctx, r.store, SecretSpace, name)
	}
	if err != nil {
		return nil, failure(err)
	}
	return rec, nil
}

// SigningKeys returns the keys whose tokens are valid, the one that signs first. The caller must not modify them.
func (r *Secrets) SigningKeys() []SigningKey { return r.signing.Load().Keys }

// RotateSigningKey makes a new key sign operators' tokens. Earlier keys go on checking the tokens that they have
// signed, until these expire; with revoke they do not, and every operator has to log in again.
func (r *Secrets) RotateSigningKey(ctx context.Context, revoke bool) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	rec, rev, err := get[signingRecord](ctx, r.store, SecretSpace, signingSecret)
	if err != nil {
		return failure(err)
	}

	// Remove keys that were replaced so long ago that none of their tokens is valid; with revoke remove all.
	fresh := r.newSigningKey()
	next := &signingRecord{Keys: []SigningKey{fresh}}
	if !revoke {
		for i, key := range rec.Keys {
			replaced := fresh.CreatedAt
			if i > 0 {
				replaced = rec.Keys[i-1].CreatedAt
			}
			if fresh.CreatedAt.Sub(replaced) <= TokenLifetime && len(next.Keys) < maxSigningKeys {
				next.Keys = append(next.Keys, key)
			}
		}
	}

	item, err := putOver(SecretSpace, signingSecret, next, rev)
	if err != nil {
		return err
	}
	entry := Record{Action: "signing_key.rotate", Target: fresh.ID}
	if revoke {
		entry.Details = map[string]string{"old_tokens": "revoked"}
	}
	if err := r.recordFreeing(ctx, entry, func(*known) { r.signing.Store(next) }, item); err != nil {
		return failure(err)
	}
	return nil
}

// rotateOldKey replaces a signing key that has signed for long enough.
func (r *Secrets) rotateOldKey(ctx context.Context) error {
	if r.clock.Now().Sub(r.SigningKeys()[0].CreatedAt) < signingKeyAge {
		return nil
	}
	return r.RotateSigningKey(ctx, false)
}

// NodeSecret returns the secret by which this server proves to other nodes that it is one of them.
func (r *Secrets) NodeSecret() string { return r.node }

// IsNodeSecret reports whether a text is a secret by which other nodes may prove that. Its duration discloses nothing
// about the secret, not even its length.
func (r *Secrets) IsNodeSecret(text string) bool {
	got, is := sha256.Sum256([]byte(text)), 0
	for _, secret := range append([]string{r.node}, r.nodeToo...) {
		want := sha256.Sum256([]byte(secret))
		is |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return is == 1
}

// revokedSpace holds the ids of tokens whose owners have logged out, until the tokens expire.
const revokedSpace store.Space = "control.revoked_tokens"

// revokedToken is a token that is no longer valid.
type revokedToken struct {
	ID      string    `json:"id"`
	Expires time.Time `json:"expires"`
}

// RevokeToken voids one token of an operator for the rest of its life.
func (r *Secrets) RevokeToken(ctx context.Context, operatorID, tokenID string, expires time.Time) error {
	if tokenID == "" {
		return j17.Errorf(j17.CodeInvalidField, "The token has no id by which it could be revoked.")
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	rec := &revokedToken{ID: tokenID, Expires: expires.UTC()}
	item, err := putNew(revokedSpace, tokenID, rec)
	if err != nil {
		return err
	}
	item.Cond, item.Expires = store.Always, rec.Expires
	entry := Record{Action: "operator.logout", Target: operatorID}
	if err := r.recordFreeing(ctx, entry, func(k *known) { k.revoked[rec.ID] = rec.Expires }, item); err != nil {
		return failure(err)
	}
	return nil
}

// TokenRevoked reports whether the token of that id was revoked.
func (r *Secrets) TokenRevoked(tokenID string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, revoked := r.known.revoked[tokenID]
	return revoked
}

// forgetTokens removes expired tokens from the revoked ones.
func (r *Secrets) forgetTokens() {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.known.revoked, func(_ string, until time.Time) bool { return now.After(until) })
}
