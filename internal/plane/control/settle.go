package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"j17"
	"j17/internal/storage/store"
)

// settleInterval is how often the store is asked for the outcome of a write that is unknown.
const settleInterval = time.Second

// turns is a mutex whose waiters heed their context, since its holder may wait for a full store.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

// take locks; a free lock is taken even if the context has ended.
func (t turns) take(ctx context.Context) error {
	if t.tryTake() {
		return nil
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turns) tryTake() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turns) release() { <-t }

// lock begins every change: it takes r.change and brings the memory up to date with the store, whatever has changed
// that. When it succeeds, the caller has to release r.change.
func (r *items) lock(ctx context.Context) error {
	if !r.inDoubt.Load() {
		if err := r.change.take(ctx); err != nil {
			return err
		}
	} else if !r.change.tryTake() {
		return undecided() // another change asks the store, which may take as long as it is full
	}
	err := r.settle(ctx)
	if err == nil {
		err = r.catchUp(ctx)
	}
	if err != nil {
		r.change.release()
	}
	return err
}

// undecided is the refusal of a change while an earlier one is in doubt.
func undecided() *j17.Error {
	return j17.Errorf(j17.CodeUnavailable, "It is not known yet whether an earlier change was saved. Until the server knows, nothing can be changed. Try again in a few seconds.")
}

// doubt notes that it is unknown whether the store holds some writes. Until that is known, nothing can be changed, and
// the memory allows only what is allowed both with these writes and without them. The caller holds r.change.
func (r *items) doubt(side []store.Side) {
	r.restrict(side)
	r.inDoubt.Store(true)
	select {
	case r.doubted <- struct{}{}:
	default: // signalled already
	}
}

// settle reads the memory again if it is in doubt, once the store has decided all writes. The caller holds r.change.
func (r *items) settle(ctx context.Context) error {
	if !r.inDoubt.Load() {
		return nil
	}
	err := r.store.Barrier(ctx)
	if err == nil {
		err = r.reload(ctx)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrUnknown) || !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrFailed) {
		return undecided().Because(err)
	}
	return failure(err)
}

// reload replaces the memory by what the store holds, which ends every doubt. The caller holds r.change.
func (r *items) reload(ctx context.Context) error {
	if err := r.load(ctx); err != nil {
		return err
	}
	if err := r.openSigningKeys(ctx); err != nil {
		return err
	}
	if r.inDoubt.Swap(false) {
		select {
		case r.settled <- struct{}{}:
		default: // signalled already
		}
	}
	return nil
}

// Settled is signalled when the memory was read again after writes whose outcome was unknown. It is for one receiver,
// which checks that its own state still matches the registry.
func (r *Registry) Settled() <-chan struct{} { return r.items.settled }

// settleDoubt settles a doubt, if the store allows it.
func (r *items) settleDoubt(ctx context.Context) error {
	err := r.lock(ctx)
	if err == nil {
		r.change.release()
	}
	return err
}

// restrict makes the memory allow only what is allowed both with some writes and without them.
func (r *items) restrict(side []store.Side) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.altered.Add(1)
	r.known.dropDeleted(side)
	for i := range side {
		r.known.restrict(&side[i], r.hasher.nobody)
		if next := restrictedSigning(&side[i]); next != nil {
			r.signing.Store(next)
		}
	}
}

// dropDeleted removes the keys and operators that writes delete.
func (k *known) dropDeleted(side []store.Side) {
	gone := map[string]bool{}
	for i := range side {
		if side[i].Op == store.Delete && (side[i].Space == keySpace || side[i].Space == operatorSpace) {
			gone[side[i].Key] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, rec := range k.keys {
		if gone[rec.UUID] {
			k.dropKey(rec)
		}
	}
	for _, rec := range k.operators {
		if gone[rec.UUID] {
			k.dropOperator(rec.ID)
		}
	}
}

// restrict applies what a write of an item takes away, and nothing that it gives. nobody is a hash that no password
// has.
func (k *known) restrict(side *store.Side, nobody string) {
	switch {
	case side.Op != store.Put:
	case side.Space == keySpace:
		k.restrictKey(side.Value)
	case side.Space == operatorSpace:
		k.restrictOperator(side.Value, nobody)
	case side.Space == revokedSpace:
		rec := &revokedToken{}
		if json.Unmarshal(side.Value, rec) == nil {
			k.revoked[rec.ID] = rec.Expires
		}
	}
}

func (k *known) restrictKey(item []byte) {
	next := &keyRecord{}
	if json.Unmarshal(item, next) != nil {
		return
	}
	old := k.keys[next.ID]
	if old == nil {
		return
	}
	less := *old
	if less.RevokedAt.IsZero() {
		less.RevokedAt = next.RevokedAt
	}
	if less.RevokeAt.IsZero() || !next.RevokeAt.IsZero() && next.RevokeAt.Before(less.RevokeAt) {
		less.RevokeAt = next.RevokeAt
	}
	k.putKey(&less)
}

func (k *known) restrictOperator(item []byte, nobody string) {
	next := &operatorRecord{}
	if json.Unmarshal(item, next) != nil {
		return
	}
	old := k.operators[next.ID]
	if old == nil {
		return
	}
	less := *old
	less.Role = lesser(old.Role, next.Role)
	less.TokensFrom = max(old.TokensFrom, next.TokensFrom)
	less.Instances = slices.DeleteFunc(
		slices.Clone(old.Instances), func(id string) bool { return !slices.Contains(next.Instances, id) },
	)
	if old.Password != next.Password {
		less.Password = nobody // It is unknown which of the two is valid.
	}
	k.putOperator(&less)
}

// lesser returns the role whose rights both roles have; "" if there is none.
func lesser(a, b Role) Role {
	switch {
	case a == b, b == RolePlatformAdmin:
		return a
	case a == RolePlatformAdmin, a == RoleInstanceAdmin:
		return b
	case b == RoleInstanceAdmin:
		return a
	default:
		return ""
	}
}

// restrictedSigning returns the keys that check tokens while it is unknown whether they are stored, nil if the write is
// about something else. Tokens of removed keys are not valid; those of a new key are, since only tokens that are issued
// from now on can be signed with it.
func restrictedSigning(side *store.Side) *signingRecord {
	next := &signingRecord{}
	if side.Space != SecretSpace || side.Key != signingSecret || side.Op != store.Put ||
		json.Unmarshal(side.Value, next) != nil || len(next.Keys) == 0 {
		return nil
	}
	return next
}
