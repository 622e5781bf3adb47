package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"j17"
	"j17/internal/base/apikey"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// Keys are the API keys of all instances.
type Keys struct{ *items }

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
	// CreatedBy is the handle of the operator who created the key; "" for the server itself.
	CreatedBy string `json:"created_by,omitempty"`
	// LastUsedAt is when the key was last used, within a minute; zero means never.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	// RevokeAt is when the key is scheduled to stop working; zero means never.
	RevokeAt time.Time `json:"revoke_at,omitzero"`
	// RevokedAt is when the key was revoked; zero means that it was not. A revoked key stays so, even if the clock is
	// set back.
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Active reports whether the key works at the time now.
func (k Key) Active(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.RevokeAt.IsZero() || now.Before(k.RevokeAt))
}

// ceased is when the key stopped working, or will stop; zero means never.
func (k Key) ceased() time.Time {
	if k.RevokedAt.IsZero() {
		return k.RevokeAt
	}
	return k.RevokedAt
}

// KeyStatus is the status of a key at some time.
type KeyStatus string

// The states of a key.
const (
	KeyActive    KeyStatus = "active"
	KeyScheduled KeyStatus = "scheduled" // works until a time that is set
	KeyRevoked   KeyStatus = "revoked"
)

// Status returns the state of the key at the time now.
func (k Key) Status(now time.Time) KeyStatus {
	switch {
	case !k.Active(now):
		return KeyRevoked
	case !k.RevokeAt.IsZero():
		return KeyScheduled
	default:
		return KeyActive
	}
}

type keyRecord struct {
	UUID string `json:"uuid"`
	Key
	Hash tokenHash `json:"sha256"`
	// use is shared by all successive records of one key.
	use *keyUse
}

// keyUse is when a key was last used, in Unix seconds, 0 for never. Requests write it at most once a second.
type keyUse struct {
	last atomic.Int64
	// saved is the last use that is stored.
	saved atomic.Int64
}

// note records a use if it is later than the last one.
func (u *keyUse) note(at int64) {
	for last := u.last.Load(); last < at && !u.last.CompareAndSwap(last, at); last = u.last.Load() {
	}
}

// shown returns the key as people see it.
func (rec *keyRecord) shown() Key {
	k := rec.Key
	if last := rec.use.last.Load(); last != 0 {
		k.LastUsedAt = time.Unix(last, 0).UTC()
	}
	return k
}

// NewKey describes an API key to create.
type NewKey struct {
	// Instance is the instance's handle.
	Instance    string
	Environment j17.Environment
	Scope       j17.Scope
	// Name says what the key is for.
	Name string
}

// MaxActiveKeys is the number of keys that an instance may have at a time, not counting revoked ones.
const MaxActiveKeys = 200

// Revoked keys are kept for a while, so that people can see what became of them, but only a limited number.
const (
	maxRevokedKeys = 500
	keepRevoked    = 90 * 24 * time.Hour
)

// maxKeyName is the number of characters of a key's name.
const maxKeyName = 100

// Create creates an API key and returns it with its token, which cannot be retrieved again.
func (r *Keys) Create(ctx context.Context, nk NewKey) (key Key, token string, err error) {
	nk.Name = strings.TrimSpace(nk.Name)
	if err := checkKey(nk); err != nil {
		return Key{}, "", err
	}

	// No other change happens from here on.
	if err := r.lock(ctx); err != nil {
		return Key{}, "", err
	}
	defer r.change.release()
	if r.instance(nk.Instance) == nil {
		return Key{}, "", noInstance()
	}
	active, revoked := r.sorted(nk.Instance)
	if len(active) >= MaxActiveKeys {
		return Key{}, "", j17.Errorf(j17.CodeConflict, "The instance has %d active keys, which is as many as it may have. Revoke those that are not used.", MaxActiveKeys)
	}

	// The key replaces the oldest revoked one if there are too many of those.
	rec, token := r.fresh(ctx, nk)
	item, err := putNew(keySpace, rec.UUID, rec)
	if err != nil {
		return Key{}, "", err
	}
	old, sides := forgetOldest(revoked)

	entry := Record{
		Action: "key.create", Instance: rec.Instance, Environment: rec.Environment, Target: rec.ID,
		Details: map[string]string{"name": rec.Name, "scope": string(rec.Scope), "prefix": rec.Prefix},
	}
	err = r.record(ctx, entry, func(k *known) {
		k.putKey(rec)
		k.dropKeys(old)
	}, append(sides, item)...)
	if err != nil {
		return Key{}, "", failure(err)
	}
	return rec.shown(), token, nil
}

// fresh returns a key that is not stored yet, and its token.
func (r *Keys) fresh(ctx context.Context, nk NewKey) (rec *keyRecord, token string) {
	token, shown := apikey.New(nk.Environment)
	hash, _ := apikey.Hash(token)
	return &keyRecord{
		UUID: r.mint.UUIDv7(),
		Key: Key{
			ID: r.mint.Handle(ident.KeyPrefix), Instance: nk.Instance, Environment: nk.Environment, Scope: nk.Scope,
			Name: nk.Name, Prefix: shown, CreatedAt: r.second(), CreatedBy: originOf(ctx).actor.ID,
		},
		Hash: hash,
		use:  &keyUse{},
	}, token
}

// Rotate creates a key like the one with that handle and revokes that one, in one step. It returns the new token, which
// cannot be retrieved again. A key that has stopped working is a *j17.Error of CodeConflict.
func (r *Keys) Rotate(ctx context.Context, id string) (key Key, token string, err error) {
	if err := r.lock(ctx); err != nil {
		return Key{}, "", err
	}
	defer r.change.release()

	// Only a working key can be replaced.
	old, rev, err := r.stored(ctx, id)
	if err != nil {
		return Key{}, "", err
	}
	now := r.clock.Now().UTC()
	if !old.Active(now) {
		return Key{}, "", j17.Errorf(j17.CodeConflict, "The API key is revoked already. Create a new one instead.")
	}

	// The new key works from the same commit on in which the old one stops working.
	_, revoked := r.sorted(old.Instance)
	rec, token := r.fresh(ctx, NewKey{
		Instance: old.Instance, Environment: old.Environment, Scope: old.Scope, Name: old.Name,
	})
	item, err := putNew(keySpace, rec.UUID, rec)
	if err != nil {
		return Key{}, "", err
	}
	old.RevokedAt = now.Round(0)
	over, err := putOver(keySpace, old.UUID, old, rev)
	if err != nil {
		return Key{}, "", err
	}

	forgotten, sides := forgetOldest(revoked)
	entry := Record{
		Action: "key.rotate", Instance: rec.Instance, Environment: rec.Environment, Target: old.ID,
		Details: map[string]string{"name": rec.Name, "new_key": rec.ID, "prefix": rec.Prefix},
	}
	err = r.recordFreeing(ctx, entry, func(k *known) {
		k.putKey(rec)
		k.putKey(old)
		k.dropKeys(forgotten)
	}, append(sides, item, over)...)
	if err != nil {
		return Key{}, "", failure(err)
	}
	return rec.shown(), token, nil
}

func checkKey(nk NewKey) error {
	name := nk.Name
	if _, err := j17.ParseEnvironment(string(nk.Environment)); err != nil {
		return j17.Errorf(j17.CodeInvalidField, "The key's environment must be prod, staging or test.").At("environment")
	}
	switch nk.Scope {
	case j17.ScopeRead, j17.ScopeWrite:
	default:
		return j17.Errorf(
			j17.CodeInvalidField, "The key's scope must be %s or %s.", j17.ScopeRead, j17.ScopeWrite,
		).At("scope")
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

// ByToken returns the key of a token if it works now, and notes that it was used. Malformed tokens are rejected by
// their checksum, without hashing, and unknown ones by a look-up in memory, so that nothing about wrong tokens is kept.
// It does not allocate.
func (r *Keys) ByToken(token string) (Key, bool) {
	hash, ok := apikey.Hash(token)
	if !ok {
		return Key{}, false
	}
	r.mu.RLock()
	rec := r.known.hashes[hash]
	r.mu.RUnlock()
	if rec == nil || subtle.ConstantTimeCompare(rec.Hash[:], hash[:]) != 1 {
		return Key{}, false
	}
	now := r.clock.Now()
	if !rec.RevokedAt.IsZero() || !rec.RevokeAt.IsZero() && !rec.Active(now) {
		return Key{}, false
	}
	rec.use.note(now.Unix())
	return rec.Key, true
}

// ByID returns the key with that handle.
func (r *Keys) ByID(id string) (Key, bool) {
	r.mu.RLock()
	rec := r.known.keys[id]
	r.mu.RUnlock()
	if rec == nil {
		return Key{}, false
	}
	return rec.shown(), true
}

// Of lists the keys of an instance, including revoked ones, oldest first.
func (r *Keys) Of(instance string) []Key {
	recs := r.keyRecords(instance)
	all := make([]Key, len(recs))
	for i, rec := range recs {
		all[i] = rec.shown()
	}
	return all
}

// keyRecords returns the records of an instance's keys, oldest first.
func (r *memory) keyRecords(instance string) []*keyRecord {
	r.mu.RLock()
	recs := slices.Collect(maps.Values(r.known.instanceKeys[instance]))
	r.mu.RUnlock()
	slices.SortFunc(recs, func(a, b *keyRecord) int { return strings.Compare(a.UUID, b.UUID) })
	return recs
}

// sorted returns the records of an instance's keys that work now, and of those that do not, oldest first.
func (r *Keys) sorted(instance string) (active, revoked []*keyRecord) {
	now := r.clock.Now()
	for _, rec := range r.keyRecords(instance) {
		if rec.Active(now) {
			active = append(active, rec)
		} else {
			revoked = append(revoked, rec)
		}
	}
	return active, revoked
}

// forgetOldest returns the revoked keys that exceed the limit once there is one more, and the writes that remove them.
func forgetOldest(revoked []*keyRecord) ([]*keyRecord, []store.Side) {
	old := revoked[:max(0, len(revoked)-maxRevokedKeys+1)]
	return old, removeKeys(old)
}

func removeKeys(recs []*keyRecord) []store.Side {
	var sides []store.Side
	for _, rec := range recs {
		sides = append(sides,
			store.Side{Op: store.Delete, Space: keySpace, Key: rec.UUID},
			store.Side{Op: store.Delete, Space: keyUseSpace, Key: rec.UUID})
	}
	return sides
}

// forgetRevoked removes keys that were revoked long ago.
func (r *Keys) forgetRevoked(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	before := r.clock.Now().Add(-keepRevoked)
	var old []*keyRecord
	r.mu.RLock()
	for _, rec := range r.known.keys {
		if end := rec.ceased(); len(old) < scanLimit && !end.IsZero() && end.Before(before) {
			old = append(old, rec)
		}
	}
	r.mu.RUnlock()
	if len(old) == 0 {
		return nil
	}
	if err := r.commit(ctx, nil, true, func(k *known) { k.dropKeys(old) }, removeKeys(old)...); err != nil {
		return failure(err)
	}
	return nil
}

// Revoke makes a key stop working at the time at, which replaces an earlier schedule; the zero time and any past time
// mean now. Revoking a key that has stopped working changes nothing, and scheduling it again is a *j17.Error of
// CodeConflict.
func (r *Keys) Revoke(ctx context.Context, id string, at time.Time) (Key, error) {
	at = at.UTC()
	if at.Year() > 9999 {
		return Key{}, j17.Errorf(j17.CodeInvalidField, "The time of revocation must lie before the year 10000.").At("revoke_at")
	}

	// No other change happens from here on.
	if err := r.lock(ctx); err != nil {
		return Key{}, err
	}
	defer r.change.release()
	rec, rev, err := r.stored(ctx, id)
	if err != nil {
		return Key{}, err
	}

	// When the key stops working, and the action for the audit log.
	now := r.clock.Now().UTC()
	later := at.After(now)
	entry := Record{
		Action: "key.revoke", Instance: rec.Instance, Environment: rec.Environment, Target: rec.ID,
		Details: map[string]string{"name": rec.Name, "prefix": rec.Prefix},
	}
	switch {
	case !rec.Active(now) && later:
		return Key{}, j17.Errorf(j17.CodeConflict, "The API key is revoked already.")
	case !rec.Active(now):
		return rec.shown(), nil
	case later:
		rec.RevokeAt = at.Round(0)
		entry.Action, entry.Details["revoke_at"] = "key.schedule_revocation", rec.RevokeAt.Format(time.RFC3339)
	default:
		rec.RevokedAt = now.Round(0)
	}

	item, err := putOver(keySpace, rec.UUID, rec, rev)
	if err != nil {
		return Key{}, err
	}
	if err := r.recordFreeing(ctx, entry, func(k *known) { k.putKey(rec) }, item); err != nil {
		return Key{}, failure(err)
	}
	return rec.shown(), nil
}

// stored reads a key's record and its revision.
func (r *Keys) stored(ctx context.Context, id string) (*keyRecord, uint64, error) {
	r.mu.RLock()
	old := r.known.keys[id]
	r.mu.RUnlock()
	if old == nil {
		return nil, 0, j17.Errorf(j17.CodeNotFound, "There is no such API key.")
	}
	rec, rev, err := get[keyRecord](ctx, r.store, keySpace, old.UUID)
	if err != nil {
		return nil, 0, failure(err)
	}
	rec.use = old.use
	return rec, rev, nil
}

func (k *known) putKey(rec *keyRecord) {
	if rec.use == nil {
		rec.use = &keyUse{}
	}
	k.keys[rec.ID] = rec
	k.hashes[rec.Hash] = rec
	if k.instanceKeys[rec.Instance] == nil {
		k.instanceKeys[rec.Instance] = map[string]*keyRecord{}
	}
	k.instanceKeys[rec.Instance][rec.ID] = rec
}

func (k *known) dropKey(rec *keyRecord) {
	delete(k.keys, rec.ID)
	delete(k.hashes, rec.Hash)
	delete(k.instanceKeys[rec.Instance], rec.ID)
}

func (k *known) dropKeys(recs []*keyRecord) {
	for _, rec := range recs {
		k.dropKey(rec)
	}
}

// keyUseSpace holds when each key was last used, in Unix seconds, under the key's UUID.
const keyUseSpace store.Space = "control.key_uses"

// saveUses stores the last uses of the keys that were used since the previous call.
func (r *Keys) saveUses(ctx context.Context) error {
	var used []*keyRecord
	r.mu.RLock()
	for _, rec := range r.known.keys {
		if rec.use.last.Load() > rec.use.saved.Load() {
			used = append(used, rec)
		}
	}
	r.mu.RUnlock()
	for part := range slices.Chunk(used, scanLimit) {
		sides := make([]store.Side, 0, len(part))
		written := make([]int64, len(part))
		for i, rec := range part {
			written[i] = rec.use.last.Load()
			sides = append(sides, store.Side{
				Op: store.Put, Space: keyUseSpace, Key: rec.UUID, Value: strconv.AppendInt(nil, written[i], 10),
			})
		}
		if err := r.store.Write(ctx, j17.System, sides); err != nil {
			return failure(err)
		}
		for i, rec := range part {
			rec.use.saved.Store(written[i])
		}
	}
	return nil
}

// loadUses puts the stored last uses into the records.
func loadUses(ctx context.Context, st store.Sides, k *known) error {
	last := map[string]int64{}
	err := each(ctx, st, j17.System, keyUseSpace, "", func(it store.Item) (err error) {
		if last[it.Key], err = strconv.ParseInt(string(it.Value), 10, 64); err != nil {
			return failure(&store.CorruptionError{Where: string(keyUseSpace) + "/" + it.Key, Err: err})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, rec := range k.keys {
		rec.use.last.Store(last[rec.UUID])
		rec.use.saved.Store(last[rec.UUID])
	}
	return nil
}

// tokenHash is the SHA-256 of an API key or of a setup token, which is all that is kept of it.
type tokenHash [sha256.Size]byte

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
