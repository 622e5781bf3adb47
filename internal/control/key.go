package control

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"j17"
	"j17/internal/ident"
)

// Key is an API key without its token.
type Key struct {
	// ID is the key's handle, Instance that of the instance it belongs to.
	ID          string          `json:"id"`
	Instance    string          `json:"instance"`
	Environment j17.Environment `json:"environment"`
	Scope       j17.Scope       `json:"scope"`
	Name        string          `json:"name"`
	// Prefix is the start of the token, by which people recognise it.
	Prefix    string    `json:"prefix"`
	CreatedAt time.Time `json:"created_at"`
	// RevokeAt is when the key is scheduled to cease to work; zero means never.
	RevokeAt time.Time `json:"revoke_at,omitzero"`
	// RevokedAt is when the key was revoked; zero means that it was not. A revoked key stays so, even if the clock is
	// set back.
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Active reports whether the key works at the time now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.RevokeAt.IsZero() || now.Before(k.RevokeAt))
}

type keyRecord struct {
	UUID string `json:"uuid"`
	Key
	Hash tokenHash `json:"sha256"`
}

// NewKey says what API key to create.
type NewKey struct {
	// Instance is the instance's handle.
	Instance    string
	Environment j17.Environment
	Scope       j17.Scope
	// Name tells people what the key is for.
	Name string
}

// MaxActiveKeys is the number of keys that an instance may have at a time, not counting revoked ones.
const MaxActiveKeys = 1000

// maxKeyName is the number of characters of a key's name.
const maxKeyName = 100

// CreateKey creates an API key and returns it with its token, which cannot be had again.
func (r *Registry) CreateKey(ctx context.Context, nk NewKey) (key Key, token string, err error) {
	name := strings.TrimSpace(nk.Name)
	if err := checkKey(nk, name); err != nil {
		return Key{}, "", err
	}
	r.change.Lock()
	defer r.change.Unlock()
	if r.instance(nk.Instance) == nil {
		return Key{}, "", noInstance()
	}
	if r.activeKeys(nk.Instance) >= MaxActiveKeys {
		return Key{}, "", j17.Errorf(j17.CodeConflict, "The instance has %d active keys, which is as many as it may have. Revoke those that are not used.", MaxActiveKeys)
	}
	token, shown, hash := newToken(nk.Environment)
	rec := &keyRecord{
		UUID: r.mint.UUIDv7(),
		Key: Key{
			ID: r.mint.Handle(ident.KeyPrefix), Instance: nk.Instance, Environment: nk.Environment, Scope: nk.Scope,
			Name: name, Prefix: shown, CreatedAt: r.second(),
		},
		Hash: hash,
	}
	item, err := putNew(keySpace, rec.UUID, rec)
	if err != nil {
		return Key{}, "", err
	}
	if err := r.commit(ctx, func(k *known) { k.putKey(rec) }, item); err != nil {
		return Key{}, "", failure(err)
	}
	return rec.Key, token, nil
}

func checkKey(nk NewKey, name string) error {
	if _, err := j17.ParseEnvironment(string(nk.Environment)); err != nil {
		return j17.Errorf(j17.CodeInvalidField, "The key's environment must be prod, staging or test.").At("environment")
	}
	switch nk.Scope {
	case j17.ScopeRead, j17.ScopeWrite:
	default:
		return j17.Errorf(j17.CodeInvalidField, "The key's scope must be %s or %s.", j17.ScopeRead, j17.ScopeWrite).At("scope")
	}
	switch {
	case name == "":
		return j17.Errorf(j17.CodeInvalidField, "The key's name is missing. Name it after what uses it.").At("name")
	case utf8.RuneCountInString(name) > maxKeyName:
		return j17.Errorf(j17.CodeInvalidField, "The key's name is longer than %d characters.", maxKeyName).At("name")
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return j17.Errorf(j17.CodeInvalidField, "The key's name contains characters that cannot be shown.").At("name")
	}
	return nil
}

// KeyByToken returns the key that a token belongs to, also when it is revoked. What is no token at all is found out
// by its checksum, without hashing. It does not allocate.
func (r *Registry) KeyByToken(token string) (Key, bool) {
	hash, ok := hashToken(token)
	if !ok {
		return Key{}, false
	}
	r.mu.RLock()
	rec := r.known.hashes[hash]
	r.mu.RUnlock()
	if rec == nil || subtle.ConstantTimeCompare(rec.Hash[:], hash[:]) != 1 {
		return Key{}, false
	}
	return rec.Key, true
}

// KeyByID returns the key with that handle.
func (r *Registry) KeyByID(id string) (Key, bool) {
	r.mu.RLock()
	rec := r.known.keys[id]
	r.mu.RUnlock()
	if rec == nil {
		return Key{}, false
	}
	return rec.Key, true
}

// Keys lists the keys of an instance, revoked ones too, oldest first.
func (r *Registry) Keys(instance string) []Key {
	var recs []*keyRecord
	r.mu.RLock()
	for _, rec := range r.known.keys {
		if rec.Instance == instance {
			recs = append(recs, rec)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(recs, func(a, b *keyRecord) int { return strings.Compare(a.UUID, b.UUID) })
	all := make([]Key, len(recs))
	for i, rec := range recs {
		all[i] = rec.Key
	}
	return all
}

// RevokeKey makes a key cease to work at the time at, which replaces an earlier schedule; the zero time and any time
// that is past mean now. Revoking a key that has ceased to work changes nothing, and scheduling it anew is a *j17.Error
// of CodeConflict.
func (r *Registry) RevokeKey(ctx context.Context, id string, at time.Time) (Key, error) {
	at = at.UTC()
	if at.Year() > 9999 {
		return Key{}, j17.Errorf(j17.CodeInvalidField, "The time of revocation must lie before the year 10000.").At("revoke_at")
	}
	r.change.Lock()
	defer r.change.Unlock()
	r.mu.RLock()
	old := r.known.keys[id]
	r.mu.RUnlock()
	if old == nil {
		return Key{}, j17.Errorf(j17.CodeNotFound, "There is no such API key.")
	}
	rec, rev, err := get[keyRecord](ctx, r.store, keySpace, old.UUID)
	if err != nil {
		return Key{}, failure(err)
	}
	now := r.clock.Now().UTC()
	later := at.After(now)
	switch {
	case !rec.Active(now) && later:
		return Key{}, j17.Errorf(j17.CodeConflict, "The API key is revoked already.")
	case !rec.Active(now):
		return rec.Key, nil
	case later:
		rec.RevokeAt = at.Round(0)
	default:
		rec.RevokedAt = now.Round(0)
	}
	item, err := putOver(keySpace, rec.UUID, rec, rev)
	if err != nil {
		return Key{}, err
	}
	if err := r.commit(ctx, func(k *known) { k.putKey(rec) }, item); err != nil {
		return Key{}, failure(err)
	}
	return rec.Key, nil
}

func (r *Registry) activeKeys(instance string) int {
	now := r.clock.Now()
	n := 0
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, rec := range r.known.keys {
		if rec.Instance == instance && rec.Active(now) {
			n++
		}
	}
	return n
}

func (k *known) putKey(rec *keyRecord) {
	k.keys[rec.ID] = rec
	k.hashes[rec.Hash] = rec
}

// MarshalText writes a hash in hexadecimal.
func (h tokenHash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads a hash in hexadecimal.
func (h *tokenHash) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(h) {
		return errors.New("a token's hash has the wrong length")
	}
	_, err := hex.Decode(h[:], b)
	return err
}
