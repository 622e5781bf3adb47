package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// Sessions are the sessions of operators in browsers, and the login codes that begin one. Tokens and codes are kept as
// hashes.
type Sessions struct {
	*items
	mu     sync.Mutex
	byHash map[tokenHash]*sessionRecord
}

// How long a session lasts, in total and without use; how many sessions one operator may have; how long a login code
// works, and how many of them one operator may have.
const (
	SessionLifetime = 12 * time.Hour
	SessionIdle     = 2 * time.Hour
	MaxSessions     = 20
	LoginCodeTime   = time.Hour
	MaxLoginCodes   = 20
)

const (
	// keepUse is by how much the stored time of use may be behind.
	keepUse = 5 * time.Minute
	// sessionID is how many characters of its hash identify a session.
	sessionID = 16
)

const (
	// sessionSpace holds sessions under the hashes of their tokens, loginCodeSpace login codes under theirs.
	sessionSpace   store.Space = "control.sessions"
	loginCodeSpace store.Space = "control.login_codes"
)

// Session is a session of an operator.
type Session struct {
	ID        string    `json:"id"`
	Operator  string    `json:"operator"`
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Address is the address from which the session was begun.
	Address string `json:"address"`
}

// sessionRecord is a session as it is stored. Issued and Key void it together with the operator's tokens: those from
// before a time, and those that were signed with a key.
type sessionRecord struct {
	Session
	Hash   tokenHash `json:"sha256"`
	Issued int64     `json:"issued"`
	Key    string    `json:"key"`
	// stored is the stored time of use.
	stored time.Time
}

// loginCode begins one session.
type loginCode struct {
	Operator  string    `json:"operator"`
	Issued    int64     `json:"issued"`
	Key       string    `json:"key"`
	ExpiresAt time.Time `json:"expires_at"`
}

func hashKey(h tokenHash) string { return hex.EncodeToString(h[:]) }

// open reads the stored sessions.
func (r *Sessions) open(ctx context.Context) error {
	r.byHash = map[tokenHash]*sessionRecord{}
	return scan(ctx, r.store, sessionSpace, func(s *sessionRecord) {
		s.stored = s.UsedAt
		r.byHash[s.Hash] = s
	})
}

// Begin begins a session of an operator who asked for it at a time, and returns its token, which cannot be retrieved
// again. If there are more than MaxSessions, the oldest ends.
func (r *Sessions) Begin(
	ctx context.Context, op Operator, asked time.Time, address string,
) (token string, s Session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now().UTC().Truncate(time.Second)
	token = rand.Text() + rand.Text()
	hash := tokenHash(sha256.Sum256([]byte(token)))
	rec := &sessionRecord{
		Session: Session{
			ID: hashKey(hash)[:sessionID], Operator: op.ID, CreatedAt: now, UsedAt: now,
			ExpiresAt: now.Add(SessionLifetime), Address: address,
		},
		Hash: hash, Issued: max(asked.Unix(), op.TokensFrom), Key: r.signing.Load().Keys[0].ID, stored: now,
	}
	side, err := rec.side(store.IfAbsent)
	if err != nil {
		return "", Session{}, err
	}

	// Older sessions are removed in the same write.
	own := r.of(op.ID)
	writes := []store.Side{side}
	var ended []*sessionRecord
	for ; len(own) >= MaxSessions; own = own[1:] {
		ended = append(ended, own[0])
		writes = append(writes, own[0].removal())
	}
	if err := r.store.Write(ctx, j17.System, writes); err != nil {
		return "", Session{}, failure(err)
	}
	for _, old := range ended {
		delete(r.byHash, old.Hash)
		r.altered.Add(1)
	}
	r.byHash[rec.Hash] = rec
	return token, rec.Session, nil
}

func (s *sessionRecord) side(cond store.Cond) (store.Side, error) {
	side, err := putNew(sessionSpace, hashKey(s.Hash), s)
	side.Cond, side.Expires = cond, s.ExpiresAt
	return side, err
}

func (s *sessionRecord) removal() store.Side {
	return store.Side{Op: store.Delete, Space: sessionSpace, Key: hashKey(s.Hash), Cond: store.Always}
}

// of returns the valid sessions of an operator, the oldest first. The caller holds mu.
func (r *Sessions) of(operator string) []*sessionRecord {
	var own []*sessionRecord
	for hash, s := range r.byHash {
		if !r.valid(s) {
			delete(r.byHash, hash) // in the store it expires
		} else if s.Operator == operator {
			own = append(own, s)
		}
	}
	slices.SortFunc(own, func(a, b *sessionRecord) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return own
}

// valid reports whether a session has neither ended nor been voided.
func (r *Sessions) valid(s *sessionRecord) bool {
	now := r.clock.Now()
	return now.Before(s.ExpiresAt) && now.Before(s.UsedAt.Add(SessionIdle)) && r.counts(s.Operator, s.Issued, s.Key)
}

// counts reports whether what was issued to an operator under a signing key is still valid, by the rules for tokens.
func (r *Sessions) counts(operator string, issued int64, key string) bool {
	r.memory.mu.RLock()
	op := r.known.operators[operator]
	r.memory.mu.RUnlock()
	if op == nil || issued < op.TokensFrom {
		return false
	}
	return slices.ContainsFunc(r.signing.Load().Keys, func(k SigningKey) bool { return k.ID == key })
}

// Use returns the session of a token and counts as a use of it; false if there is no such session, or no longer. The
// time of use is stored once in five minutes.
func (r *Sessions) Use(ctx context.Context, token string) (Session, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.byHash[sha256.Sum256([]byte(token))]
	if s == nil {
		return Session{}, false
	}
	if !r.valid(s) {
		delete(r.byHash, s.Hash)
		return Session{}, false
	}
	used := *s
	used.UsedAt = r.clock.Now().UTC().Truncate(time.Second)
	if used.UsedAt.Sub(used.stored) >= keepUse {
		if side, err := used.side(store.Always); err == nil &&
			r.store.Write(ctx, j17.System, []store.Side{side}) == nil {
			used.stored = used.UsedAt
		} // Otherwise the session ends earlier after a restart than it should.
	}
	r.byHash[s.Hash] = &used
	return used.Session, true
}

// List returns the sessions of an operator, the oldest first.
func (r *Sessions) List(operator string) []Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Session
	for _, s := range r.of(operator) {
		all = append(all, s.Session)
	}
	return all
}

// End ends the session of an operator with an id. One that has ended already is a *j17.Error of CodeNotFound.
func (r *Sessions) End(ctx context.Context, operator, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.of(operator) {
		if s.ID != id {
			continue
		}
		if err := r.store.Write(ctx, j17.System, []store.Side{s.removal()}); err != nil {
			return failure(err)
		}
		delete(r.byHash, s.Hash)
		r.altered.Add(1)
		return nil
	}
	return j17.Errorf(j17.CodeNotFound, "You have no session with this id. GET /api/me/sessions lists yours.")
}

// NewLoginCode returns a code that begins one session of an operator, within LoginCodeTime. If there are more than
// MaxLoginCodes, the oldest no longer works.
func (r *Sessions) NewLoginCode(ctx context.Context, op Operator) (code string, expires time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	code = rand.Text()
	now := r.clock.Now().UTC()
	rec := loginCode{
		Operator: op.ID, Issued: max(now.Unix(), op.TokensFrom), Key: r.signing.Load().Keys[0].ID,
		ExpiresAt: now.Add(LoginCodeTime),
	}
	side, err := putNew(loginCodeSpace, hashKey(sha256.Sum256([]byte(code))), rec)
	if err != nil {
		return "", time.Time{}, err
	}
	side.Expires = rec.ExpiresAt

	// Older codes are removed in the same write.
	own, err := r.codesOf(ctx, op.ID)
	if err != nil {
		return "", time.Time{}, err
	}
	writes := []store.Side{side}
	for ; len(own) >= MaxLoginCodes; own = own[1:] {
		writes = append(writes, store.Side{
			Op: store.Delete, Space: loginCodeSpace, Key: own[0].key, Cond: store.Always,
		})
	}
	if err := r.store.Write(ctx, j17.System, writes); err != nil {
		return "", time.Time{}, failure(err)
	}
	return code, rec.ExpiresAt.Truncate(time.Second), nil
}

// keptCode is a login code with its key in the store.
type keptCode struct {
	key string
	loginCode
}

// codesOf returns the login codes of an operator that have not expired, the oldest first. It scans those of all
// operators, which are few because each works for an hour at most.
func (r *Sessions) codesOf(ctx context.Context, operator string) (own []keptCode, err error) {
	now := r.clock.Now()
	err = each(ctx, r.store, j17.System, loginCodeSpace, "", func(it store.Item) error {
		rec, err := decode[loginCode](loginCodeSpace, it)
		if err == nil && rec.Operator == operator && now.Before(rec.ExpiresAt) {
			own = append(own, keptCode{it.Key, *rec})
		}
		return err
	})
	slices.SortFunc(own, func(a, b keptCode) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.key, b.key))
	})
	return own, err
}

// Redeem uses up a login code and returns its operator. A code that is wrong, used, too old or void is a *j17.Error of
// CodeUnauthorized.
func (r *Sessions) Redeem(ctx context.Context, code string) (Operator, error) {
	wrong := j17.Errorf(j17.CodeUnauthorized, "This link does not sign in any more: it works once, for an hour. 'j17 dashboard' prints a fresh one, or sign in with your password.")
	key := hashKey(sha256.Sum256([]byte(code)))
	rec, rev, err := get[loginCode](ctx, r.store, loginCodeSpace, key)
	if errors.Is(err, store.ErrNotFound) {
		return Operator{}, wrong
	}
	if err != nil {
		return Operator{}, err
	}
	err = r.store.Write(ctx, j17.System, []store.Side{
		{Op: store.Delete, Space: loginCodeSpace, Key: key, Cond: store.IfRev, Rev: rev},
	})
	if isConflict(err, loginCodeSpace) {
		return Operator{}, wrong
	}
	if err != nil {
		return Operator{}, failure(err)
	}
	if !r.clock.Now().Before(rec.ExpiresAt) || !r.counts(rec.Operator, rec.Issued, rec.Key) {
		return Operator{}, wrong
	}
	r.memory.mu.RLock()
	defer r.memory.mu.RUnlock()
	op := r.known.operators[rec.Operator]
	if op == nil {
		return Operator{}, wrong
	}
	return op.Operator, nil
}
