package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Setup creates a server's first operator.
type Setup struct {
	*items
	operators *Operators
}

// setupSecret is the item of SecretSpace that holds the hash of the setup token.
const setupSecret = "setup"

// setupTime is how long a setup token is valid.
const setupTime = 24 * time.Hour

type setupRecord struct {
	Hash tokenHash `json:"sha256"`
}

// Token returns a token with which the first operator can be created, once, within a day. It replaces the previous
// token. If there are operators already, needed is false and there is no token.
func (r *Setup) Token(ctx context.Context) (token string, needed bool, err error) {
	if err := r.lock(ctx); err != nil {
		return "", false, err
	}
	defer r.change.release()
	if len(r.allOperators()) > 0 {
		return "", false, nil
	}
	token = rand.Text()
	item, err := putNew(SecretSpace, setupSecret, setupRecord{Hash: sha256.Sum256([]byte(token))})
	if err != nil {
		return "", false, err
	}
	item.Cond, item.Expires = store.Always, r.clock.Now().Add(setupTime)
	if err := r.store.Write(ctx, j17.System, []store.Side{item}); err != nil {
		return "", false, failure(err)
	}
	return token, true, nil
}

// TokenWorks reports whether Complete would accept a token now.
func (r *Setup) TokenWorks(ctx context.Context, token string) (bool, error) {
	rec, _, err := get[setupRecord](ctx, r.store, SecretSpace, setupSecret)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], rec.Hash[:]) == 1 && len(r.allOperators()) == 0, nil
}

// Complete creates the first operator, a platform admin, and uses up the setup token. A token that is wrong, used or
// expired is a *j17.Error of CodeUnauthorized.
func (r *Setup) Complete(ctx context.Context, token, email, password string) (Operator, error) {
	wrong := j17.Errorf(j17.CodeUnauthorized, "The setup token is wrong, expired or used already. Restart the server to get a new one, or log in.")
	rec, rev, err := get[setupRecord](ctx, r.store, SecretSpace, setupSecret)
	if errors.Is(err, store.ErrNotFound) {
		return Operator{}, wrong
	}
	if err != nil {
		return Operator{}, err
	}
	if sum := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(sum[:], rec.Hash[:]) != 1 {
		return Operator{}, wrong
	}
	first := func() error {
		if len(r.allOperators()) > 0 {
			return wrong
		}
		return nil
	}
	used := store.Side{Op: store.Delete, Space: SecretSpace, Key: setupSecret, Cond: store.IfRev, Rev: rev}
	op, err := r.operators.create(
		ctx, NewOperator{Email: email, Password: password, Role: RolePlatformAdmin}, first, used,
	)
	if isConflict(err, SecretSpace) {
		return Operator{}, wrong
	}
	return op, err
}

// Ensure creates a platform admin unless there is an operator with that e-mail address. The password of an existing
// operator is kept: the configured one is only an initial password.
func (r *Setup) Ensure(ctx context.Context, email, password string) error {
	if r.operatorByEmail(CanonicalEmail(email)) != nil {
		return nil
	}
	_, err := r.operators.Create(ctx, NewOperator{Email: email, Password: password, Role: RolePlatformAdmin})
	if j17.CodeOf(err) == j17.CodeConflict && r.operatorByEmail(CanonicalEmail(email)) != nil {
		return nil // another node was first
	}
	return err
}
