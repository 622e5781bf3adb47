package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"j17"
	"j17/internal/ident"
	"j17/internal/store"
)

// Spec is one deployed version of a spec.
type Spec struct {
	// ID is the deployment's handle.
	ID string `json:"id"`
	// Version counts the deployments to one environment from 1.
	Version int `json:"version"`
	// Hash is the SHA-256 of Source in hexadecimal.
	Hash       string    `json:"hash"`
	DeployedAt time.Time `json:"deployed_at"`
	// Source is the spec's text, byte for byte.
	Source []byte `json:"source"`
}

// specHead is the current version of an environment.
type specHead struct {
	Version int `json:"version"`
}

// Deployment is a spec that is to become the current one.
type Deployment struct {
	// Instance is the instance's handle.
	Instance    string
	Environment j17.Environment
	// Source is the spec's text, which the caller has found to be valid.
	Source []byte
	// Base is the version that was current when the caller compared Source with it, 0 for none.
	Base int
}

// Spec returns the current spec of an environment. It is a *j17.Error of CodeNoSpec when none has been deployed.
func (r *Registry) Spec(ctx context.Context, instance string, env j17.Environment) (Spec, error) {
	at, err := r.specPlace(instance, env)
	if err != nil {
		return Spec{}, err
	}
	s, _, err := r.currentSpec(ctx, at)
	if errors.Is(err, store.ErrNotFound) {
		return Spec{}, j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s. Deploy one first.", env.LongName())
	}
	return s, err
}

// PutSpec makes a spec the current one and keeps those before it. Deploying what is current already changes nothing
// and returns it. When the current version is not d.Base, it is a *j17.Error of CodeConflict: what the caller compared
// the spec with is out of date.
func (r *Registry) PutSpec(ctx context.Context, d Deployment) (Spec, error) {
	at, err := r.specPlace(d.Instance, d.Environment)
	if err != nil {
		return Spec{}, err
	}
	r.change.Lock()
	defer r.change.Unlock()
	current, rev, err := r.currentSpec(ctx, at)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Spec{}, err
	}
	outdated := j17.Errorf(j17.CodeConflict, "Another spec has been deployed to %s in the meantime. Compare with that one and deploy again.", d.Environment.LongName())
	if current.Version != d.Base {
		return Spec{}, outdated
	}
	sum := sha256.Sum256(d.Source)
	next := Spec{
		ID: r.mint.Handle(ident.DeploymentPrefix), Version: current.Version + 1,
		Hash: hex.EncodeToString(sum[:]), DeployedAt: r.second(), Source: d.Source,
	}
	if next.Hash == current.Hash {
		return current, nil
	}
	version, err := putNew(specSpace, specKey(at, next.Version), next)
	if err != nil {
		return Spec{}, err
	}
	head, err := putOver(specHeadSpace, at, specHead{Version: next.Version}, rev)
	if err != nil {
		return Spec{}, err
	}
	if rev == 0 {
		head.Cond = store.IfAbsent
	}
	err = r.commit(ctx, func(*known) {}, version, head)
	if isConflict(err, specHeadSpace) || isConflict(err, specSpace) {
		return Spec{}, outdated
	}
	if err != nil {
		return Spec{}, failure(err)
	}
	return next, nil
}

// currentSpec returns the current spec and the revision of the head that says so; store.ErrNotFound when there is none.
func (r *Registry) currentSpec(ctx context.Context, at string) (Spec, uint64, error) {
	head, rev, err := get[specHead](ctx, r.store, specHeadSpace, at)
	if err != nil {
		return Spec{}, 0, err
	}
	s, _, err := get[Spec](ctx, r.store, specSpace, specKey(at, head.Version))
	if errors.Is(err, store.ErrNotFound) {
		err = failure(&store.CorruptionError{Where: string(specHeadSpace) + "/" + at, Err: fmt.Errorf("version %d does not exist", head.Version)})
	}
	if err != nil {
		return Spec{}, 0, err
	}
	return *s, rev, nil
}

// specPlace returns the key under which an environment's specs are kept.
func (r *Registry) specPlace(instance string, env j17.Environment) (string, error) {
	rec := r.instance(instance)
	if rec == nil {
		return "", noInstance()
	}
	if _, err := j17.ParseEnvironment(string(env)); err != nil {
		return "", j17.Errorf(j17.CodeInvalidField, "The environment must be prod, staging or test.").At("environment")
	}
	return rec.UUID + "/" + string(env), nil
}

func specKey(at string, version int) string { return fmt.Sprintf("%s/%010d", at, version) }
