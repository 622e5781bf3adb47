package control

import (
	"context"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/ident"
)

// Role is what an operator may do.
type Role string

// The roles. A platform admin may do everything; an instance admin what concerns the instances granted to them.
const (
	RolePlatformAdmin Role = "platform_admin"
	RoleInstanceAdmin Role = "instance_admin"
)

// Operator is a person who administers the server.
type Operator struct {
	// ID is the operator's handle.
	ID string `json:"id"`
	// Email is the address in canonical form (CanonicalEmail).
	Email     string    `json:"email"`
	Role      Role      `json:"role"`
	CreatedAt time.Time `json:"created_at"`
	// TokensFrom is the Unix second before which no token of the operator counts: one after the last change of the
	// password, 0 before any.
	TokensFrom int64 `json:"tokens_from,omitempty"`
}

type operatorRecord struct {
	UUID string `json:"uuid"`
	Operator
	// Password is the hash in the PHC string format.
	Password string `json:"password"`
}

// NewOperator says what operator to create.
type NewOperator struct {
	Email    string
	Password string
	Role     Role
}

// The limits of passwords: characters at least, bytes at most.
const (
	MinPassword = 12
	MaxPassword = 1024
)

// maxEmail is the longest address that mail can be sent to.
const maxEmail = 254

// CanonicalEmail returns the form under which an e-mail address is kept and looked up: without surrounding space and in
// lower case.
func CanonicalEmail(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

// CreateOperator creates an operator. An e-mail address that is taken is a *j17.Error of CodeConflict.
func (r *Registry) CreateOperator(ctx context.Context, op NewOperator) (Operator, error) {
	email := CanonicalEmail(op.Email)
	if a, err := mail.ParseAddress(email); err != nil || a.Address != email || len(email) > maxEmail {
		return Operator{}, j17.Errorf(j17.CodeInvalidField, "The operator's e-mail address is not valid. Write it as name@example.com.").At("email")
	}
	switch op.Role {
	case RolePlatformAdmin, RoleInstanceAdmin:
	default:
		return Operator{}, j17.Errorf(j17.CodeInvalidField, "The operator's role must be %s or %s.", RolePlatformAdmin, RoleInstanceAdmin).At("role")
	}
	taken := j17.Errorf(j17.CodeConflict, "There is an operator with this e-mail address already.").At("email")
	if r.operatorByEmail(email) != nil {
		return Operator{}, taken
	}
	hash, err := r.newPassword(ctx, op.Password)
	if err != nil {
		return Operator{}, err
	}
	r.change.Lock()
	defer r.change.Unlock()
	rec := &operatorRecord{
		UUID:     r.mint.UUIDv7(),
		Operator: Operator{ID: r.mint.Handle(ident.OperatorPrefix), Email: email, Role: op.Role, CreatedAt: r.second()},
		Password: hash,
	}
	item, err := putNew(operatorSpace, rec.UUID, rec)
	if err != nil {
		return Operator{}, err
	}
	index, err := putNew(emailSpace, email, nameRecord{UUID: rec.UUID})
	if err != nil {
		return Operator{}, err
	}
	err = r.commit(ctx, func(k *known) { k.putOperator(rec) }, item, index)
	if isConflict(err, emailSpace) {
		return Operator{}, taken
	}
	if err != nil {
		return Operator{}, failure(err)
	}
	return rec.Operator, nil
}

// VerifyPassword returns the operator whom e-mail address and password belong to. It takes the same time whether the
// address is unknown or the password is wrong, and says CodeUnauthorized in both cases. Only a few passwords are
// checked at a time and only some more may wait; beyond that it says CodeUnavailable.
func (r *Registry) VerifyPassword(ctx context.Context, email, password string) (Operator, error) {
	wrong := j17.Errorf(j17.CodeUnauthorized, "The e-mail address or the password is wrong.")
	if len(password) > MaxPassword {
		return Operator{}, wrong
	}
	rec := r.operatorByEmail(CanonicalEmail(email))
	hash := r.hasher.nobody
	if rec != nil {
		hash = rec.Password
	}
	ok, err := r.hasher.verify(ctx, hash, password)
	if err != nil {
		return Operator{}, err
	}
	if !ok || rec == nil {
		return Operator{}, wrong
	}
	return rec.Operator, nil
}

// SetPassword replaces an operator's password and makes every token issued until now void.
func (r *Registry) SetPassword(ctx context.Context, id, password string) error {
	hash, err := r.newPassword(ctx, password)
	if err != nil {
		return err
	}
	r.change.Lock()
	defer r.change.Unlock()
	r.mu.RLock()
	old := r.known.operators[id]
	r.mu.RUnlock()
	if old == nil {
		return j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	rec, rev, err := get[operatorRecord](ctx, r.store, operatorSpace, old.UUID)
	if err != nil {
		return failure(err)
	}
	rec.Password = hash
	rec.TokensFrom = max(r.clock.Now().Unix(), rec.TokensFrom) + 1
	item, err := putOver(operatorSpace, rec.UUID, rec, rev)
	if err != nil {
		return err
	}
	if err := r.commit(ctx, func(k *known) { k.putOperator(rec) }, item); err != nil {
		return failure(err)
	}
	return nil
}

// newPassword hashes a password that an operator is to have from now on.
func (r *Registry) newPassword(ctx context.Context, password string) (string, error) {
	if utf8.RuneCountInString(password) < MinPassword || len(password) > MaxPassword {
		return "", j17.Errorf(j17.CodeInvalidField, "The password must have at least %d characters and at most %d bytes.", MinPassword, MaxPassword).At("password")
	}
	return r.hasher.hash(ctx, password)
}

// OperatorByID returns the operator with that handle.
func (r *Registry) OperatorByID(id string) (Operator, bool) {
	r.mu.RLock()
	rec := r.known.operators[id]
	r.mu.RUnlock()
	if rec == nil {
		return Operator{}, false
	}
	return rec.Operator, true
}

// Operators lists all operators, oldest first.
func (r *Registry) Operators() []Operator {
	r.mu.RLock()
	recs := slices.Collect(maps.Values(r.known.operators))
	r.mu.RUnlock()
	slices.SortFunc(recs, func(a, b *operatorRecord) int { return strings.Compare(a.UUID, b.UUID) })
	all := make([]Operator, len(recs))
	for i, rec := range recs {
		all[i] = rec.Operator
	}
	return all
}

func (r *Registry) operatorByEmail(email string) *operatorRecord {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known.emails[email]
}

func (k *known) putOperator(rec *operatorRecord) {
	k.operators[rec.ID] = rec
	k.emails[rec.Email] = rec
}
