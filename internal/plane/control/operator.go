package control

import (
	"context"
	"errors"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// Operators are the operators of the server, with their roles and grants.
type Operators struct{ *items }

// Operator is a person who administers the server.
type Operator struct {
	// ID is the operator's handle.
	ID string `json:"id"`
	// Email is the address in canonical form (CanonicalEmail).
	Email string `json:"email"`
	Role  Role   `json:"role"`
	// Instances are the handles of the instances that are granted to the operator; platform admins need none.
	Instances []string  `json:"instances,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// TokensFrom is the Unix second before which no token of the operator is valid: one second after the last change of
	// the password, 0 before any.
	TokensFrom int64 `json:"tokens_from,omitempty"`
}

type operatorRecord struct {
	UUID string `json:"uuid"`
	Operator
	// Password is the hash in the PHC string format.
	Password string `json:"password"`
}

// NewOperator describes an operator to create.
type NewOperator struct {
	Email    string
	Password string
	Role     Role
	// Instances are the handles of the instances to grant.
	Instances []string
}

// The limits of passwords: the minimum in characters, the maximum in bytes.
const (
	MinPassword = 12
	MaxPassword = 1024
)

// maxEmail is the longest address that mail can be sent to.
const maxEmail = 254

// MaxOperators is the number of operators that a server may have.
const MaxOperators = 10_000

// errUnchanged is what an edit returns when there is nothing to do.
var errUnchanged = errors.New("control: nothing to change")

// CanonicalEmail returns the form under which an e-mail address is kept and looked up: without surrounding space and in
// lower case.
func CanonicalEmail(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

// Create creates an operator. An e-mail address that is taken is a *j17.Error of CodeConflict.
func (r *Operators) Create(ctx context.Context, op NewOperator) (Operator, error) {
	return r.create(ctx, op, func() error { return nil })
}

// create creates an operator if allowed agrees, which is called once no other change can happen. More side writes
// commit with it.
func (r *Operators) create(
	ctx context.Context, op NewOperator, allowed func() error, side ...store.Side,
) (Operator, error) {
	// Checks that do not need the lock; above all the password, since hashing it takes long.
	email := CanonicalEmail(op.Email)
	if a, err := mail.ParseAddress(email); err != nil || a.Address != email || len(email) > maxEmail {
		return Operator{}, j17.Errorf(j17.CodeInvalidField, "The operator's e-mail address is not valid. Write it as name@example.com.").At("email")
	}
	if err := checkRole(op.Role); err != nil {
		return Operator{}, err
	}
	taken := j17.Errorf(j17.CodeConflict, "There is an operator with this e-mail address already.").At("email")
	if r.operatorByEmail(email) != nil {
		return Operator{}, taken
	}
	hash, err := r.newPassword(ctx, op.Password)
	if err != nil {
		return Operator{}, err
	}

	// No other change happens from here on.
	if err := r.lock(ctx); err != nil {
		return Operator{}, err
	}
	defer r.change.release()
	if err := allowed(); err != nil {
		return Operator{}, err
	}
	instances, err := r.checkGrants(op.Role, op.Instances)
	if err != nil {
		return Operator{}, err
	}
	if len(r.All()) >= MaxOperators {
		return Operator{}, j17.Errorf(j17.CodeConflict, "The server has %d operators, which is as many as it may have. Remove those who have left.", MaxOperators)
	}

	// The operator, and the address that refers to it.
	rec := &operatorRecord{
		UUID: r.mint.UUIDv7(),
		Operator: Operator{
			ID: r.mint.Handle(ident.OperatorPrefix), Email: email, Role: op.Role, Instances: instances,
			CreatedAt: r.second(),
		},
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

	entry := Record{
		Action: "operator.create", Target: rec.ID, Details: map[string]string{"email": email, "role": string(op.Role)},
	}
	err = r.record(ctx, entry, func(k *known) { k.putOperator(rec) }, append(side, item, index)...)
	if isConflict(err, emailSpace) {
		return Operator{}, taken
	}
	if err != nil {
		return Operator{}, failure(err)
	}
	return rec.Operator, nil
}

func checkRole(role Role) error {
	if slices.Contains(Roles(), role) {
		return nil
	}
	names := make([]string, 0, len(Roles()))
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return j17.Errorf(j17.CodeInvalidField, "The operator's role must be one of %s.", strings.Join(names, ", ")).At("role")
}

// checkGrants checks the instances to grant and returns them without repetitions.
func (r *Operators) checkGrants(role Role, instances []string) ([]string, error) {
	if len(instances) == 0 {
		return nil, nil
	}
	if role == RolePlatformAdmin {
		return nil, j17.Errorf(j17.CodeInvalidField, "A platform admin has every right in every instance and needs no grants.").At("instances")
	}
	instances = slices.Compact(slices.Sorted(slices.Values(instances)))
	if len(instances) > maxGrants {
		return nil, j17.Errorf(j17.CodeInvalidField, "An operator can have at most %d instances.", maxGrants).At("instances")
	}
	for _, id := range instances {
		if r.instance(id) == nil {
			return nil, j17.Errorf(j17.CodeInvalidField, "One of the instances to grant does not exist.").At("instances")
		}
	}
	return instances, nil
}

// VerifyPassword returns the operator with an e-mail address and a password. It takes the same time whether the address
// is unknown or the password is wrong, and returns CodeUnauthorized in both cases. Only a few passwords are checked at
// a time and only some more may wait; beyond that it returns CodeUnavailable.
func (r *Operators) VerifyPassword(ctx context.Context, email, password string) (Operator, error) {
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
	// Hashing takes a while, and waiting for it longer: the password may have changed meanwhile.
	now := r.operatorByEmail(rec.Email)
	if now == nil || now.Password != rec.Password {
		return Operator{}, wrong
	}
	op := now.Operator
	op.TokensFrom = rec.TokensFrom // What has ended sessions meanwhile also ends the new one.
	return op, nil
}

// SetPassword replaces an operator's password and voids every token issued until now.
func (r *Operators) SetPassword(ctx context.Context, id, password string) error {
	return r.setPassword(ctx, id, password, func(*operatorRecord) bool { return true })
}

// ReplacePassword is SetPassword for an operator as VerifyPassword has returned them. It returns CodeUnauthorized if
// their password has changed since, or their tokens were revoked.
func (r *Operators) ReplacePassword(ctx context.Context, verified Operator, password string) error {
	return r.setPassword(
		ctx, verified.ID, password, func(rec *operatorRecord) bool { return rec.TokensFrom == verified.TokensFrom },
	)
}

func (r *Operators) setPassword(ctx context.Context, id, password string, current func(*operatorRecord) bool) error {
	hash, err := r.newPassword(ctx, password)
	if err != nil {
		return err
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	_, err = r.amend(ctx, id, func(rec *operatorRecord) (Record, error) {
		if !current(rec) {
			return Record{}, j17.Errorf(j17.CodeUnauthorized, "The password was changed, or the sessions were ended, while this request was under way.")
		}
		rec.Password = hash
		rec.TokensFrom = r.afterNow(rec)
		return Record{Action: "operator.set_password", Target: rec.ID, Details: map[string]string{"email": rec.Email}},
			nil
	})
	return err
}

// RevokeTokens voids every token of an operator that was issued until now.
func (r *Operators) RevokeTokens(ctx context.Context, id string) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	_, err := r.amend(ctx, id, func(rec *operatorRecord) (Record, error) {
		rec.TokensFrom = r.afterNow(rec)
		return Record{Action: "operator.revoke_tokens", Target: rec.ID, Details: map[string]string{"email": rec.Email}},
			nil
	})
	return err
}

// afterNow is the second from which tokens are valid that are issued after the current change.
func (r *Operators) afterNow(rec *operatorRecord) int64 {
	return max(r.clock.Now().Unix(), rec.TokensFrom) + 1
}

// SetRole changes the role of an operator. The last platform admin keeps that role.
func (r *Operators) SetRole(ctx context.Context, id string, role Role) (Operator, error) {
	if err := checkRole(role); err != nil {
		return Operator{}, err
	}
	if err := r.lock(ctx); err != nil {
		return Operator{}, err
	}
	defer r.change.release()
	return r.amend(ctx, id, func(rec *operatorRecord) (Record, error) {
		if rec.Role == role {
			return Record{}, errUnchanged
		}
		if err := r.mayLose(rec); err != nil {
			return Record{}, err
		}
		entry := Record{
			Action: "operator.set_role", Target: rec.ID,
			Details: map[string]string{"email": rec.Email, "from": string(rec.Role), "to": string(role)},
		}
		rec.Role = role
		if role == RolePlatformAdmin {
			rec.Instances = nil
		}
		return entry, nil
	})
}

// Delete removes an operator; their tokens are void from now on. The last platform admin cannot be removed.
func (r *Operators) Delete(ctx context.Context, id string) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	rec, rev, err := r.storedOperator(ctx, id)
	if err != nil {
		return err
	}
	if err := r.mayLose(rec); err != nil {
		return err
	}
	sides := []store.Side{
		{Op: store.Delete, Space: operatorSpace, Key: rec.UUID, Cond: store.IfRev, Rev: rev},
		{Op: store.Delete, Space: emailSpace, Key: rec.Email},
	}
	entry := Record{
		Action: "operator.delete", Target: rec.ID,
		Details: map[string]string{"email": rec.Email, "role": string(rec.Role)},
	}
	if err := r.recordFreeing(ctx, entry, func(k *known) { k.dropOperator(rec.ID) }, sides...); err != nil {
		return failure(err)
	}
	return nil
}

// mayLose returns an error if an operator is the last platform admin.
func (r *Operators) mayLose(rec *operatorRecord) error {
	if rec.Role != RolePlatformAdmin {
		return nil
	}
	for _, op := range r.All() {
		if op.Role == RolePlatformAdmin && op.ID != rec.ID {
			return nil
		}
	}
	return j17.Errorf(j17.CodeConflict, "This is the last platform admin. Make someone else one first.")
}

// amend lets edit change an operator's record and commits it with the audit record that edit returns. The caller holds
// r.change. errUnchanged from edit is not an error.
func (r *Operators) amend(
	ctx context.Context, id string, edit func(*operatorRecord) (Record, error),
) (Operator, error) {
	rec, rev, err := r.storedOperator(ctx, id)
	if err != nil {
		return Operator{}, err
	}
	entry, err := edit(rec)
	if errors.Is(err, errUnchanged) {
		return rec.Operator, nil
	}
	if err != nil {
		return Operator{}, err
	}
	item, err := putOver(operatorSpace, rec.UUID, rec, rev)
	if err != nil {
		return Operator{}, err
	}
	if err := r.recordFreeing(ctx, entry, func(k *known) { k.putOperator(rec) }, item); err != nil {
		return Operator{}, failure(err)
	}
	return rec.Operator, nil
}

// storedOperator reads an operator's record and its revision.
func (r *items) storedOperator(ctx context.Context, id string) (*operatorRecord, uint64, error) {
	r.mu.RLock()
	old := r.known.operators[id]
	r.mu.RUnlock()
	if old == nil {
		return nil, 0, j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	rec, rev, err := get[operatorRecord](ctx, r.store, operatorSpace, old.UUID)
	if err != nil {
		return nil, 0, failure(err)
	}
	return rec, rev, nil
}

// newPassword checks and hashes a new password of an operator.
func (r *Operators) newPassword(ctx context.Context, password string) (string, error) {
	if utf8.RuneCountInString(password) < MinPassword || len(password) > MaxPassword {
		return "", j17.Errorf(j17.CodeInvalidField, "The password must have at least %d characters and at most %d bytes.", MinPassword, MaxPassword).At("password")
	}
	return r.hasher.hash(ctx, password)
}

// ByEmail returns the operator with an e-mail address.
func (r *Operators) ByEmail(email string) (Operator, bool) {
	rec := r.operatorByEmail(CanonicalEmail(email))
	if rec == nil {
		return Operator{}, false
	}
	return rec.Operator, true
}

// ByID returns the operator with that handle.
func (r *Operators) ByID(id string) (Operator, bool) {
	r.mu.RLock()
	rec := r.known.operators[id]
	r.mu.RUnlock()
	if rec == nil {
		return Operator{}, false
	}
	return rec.Operator, true
}

// All lists all operators, oldest first.
func (r *Operators) All() []Operator { return r.allOperators() }

func (r *memory) allOperators() []Operator {
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

func (r *memory) operatorByEmail(email string) *operatorRecord {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known.emails[email]
}

func (k *known) putOperator(rec *operatorRecord) {
	k.operators[rec.ID] = rec
	k.emails[rec.Email] = rec
}

func (k *known) dropOperator(id string) {
	if rec := k.operators[id]; rec != nil {
		delete(k.operators, id)
		delete(k.emails, rec.Email)
	}
}
