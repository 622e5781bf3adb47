package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"j17"
	"j17/internal/ident"
	"j17/internal/store"
)

// Specs are the specs that were deployed to each environment.
type Specs struct{ *items }

// Spec is one deployed version of a spec.
type Spec struct {
	// ID is the deployment's handle.
	ID string `json:"id"`
	// Version counts the deployments to one environment from 1.
	Version int `json:"version"`
	// Hash is the SHA-256 of Source in hexadecimal.
	Hash       string    `json:"hash"`
	DeployedAt time.Time `json:"deployed_at"`
	// DeployedBy is who deployed it, without an address.
	DeployedBy Actor `json:"deployed_by,omitzero"`
	// How tells what made this version.
	How How `json:"how,omitempty"`
	// From is where the source came from with a rollback or a promotion.
	From *SpecOrigin `json:"from,omitempty"`
	// Forced tells that it was deployed although stored events may not survive it.
	Forced bool `json:"forced,omitempty"`
	// Note is what the author has said about it.
	Note string `json:"note,omitempty"`
	// Source is the spec's text, byte for byte. Lists leave it out.
	Source []byte `json:"source,omitempty"`
}

// How is the way in which a version of a spec came to be.
type How string

// The ways.
const (
	Deployed   How = "deploy"
	RolledBack How = "rollback"
	Promoted   How = "promote"
)

// SpecOrigin names the version that another one is a copy of.
type SpecOrigin struct {
	Environment j17.Environment `json:"environment"`
	Version     int             `json:"version"`
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
	// How, From, Forced and Note are kept with the version; an empty How means Deployed.
	How    How
	From   *SpecOrigin
	Forced bool
	Note   string
}

// maxSpecNote is the number of characters of a note.
const maxSpecNote = 500

// CheckSpecNote reports whether a note can be kept. The error is a *j17.Error of CodeInvalidField.
func CheckSpecNote(note string) error {
	for _, r := range note {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return j17.Errorf(j17.CodeInvalidField, "The note must be one line of text.").At("note")
		}
	}
	if utf8.RuneCountInString(note) > maxSpecNote {
		return j17.Errorf(j17.CodeInvalidField, "The note is longer than %d characters.", maxSpecNote).At("note")
	}
	return nil
}

// Current returns the current spec of an environment. It is a *j17.Error of CodeNoSpec when none has been deployed.
func (r *Specs) Current(ctx context.Context, instance string, env j17.Environment) (Spec, error) {
	at, err := r.place(instance, env)
	if err != nil {
		return Spec{}, err
	}
	s, _, err := r.current(ctx, at)
	if errors.Is(err, store.ErrNotFound) {
		return Spec{}, j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s. Deploy one first.", env.LongName())
	}
	return s, err
}

// Version returns a version of an environment's spec. It is a *j17.Error of CodeNotFound when there is none.
func (r *Specs) Version(ctx context.Context, instance string, env j17.Environment, version int) (Spec, error) {
	at, err := r.place(instance, env)
	if err != nil {
		return Spec{}, err
	}
	s, err := r.version(ctx, at, version, true)
	if errors.Is(err, store.ErrNotFound) {
		return Spec{}, j17.Errorf(j17.CodeNotFound, "There is no version %d of the spec of %s.", version, env.LongName())
	}
	return s, err
}

// History returns up to limit versions of an environment's spec without their sources, the newest first and without
// the first offset ones; none when none has been deployed.
func (r *Specs) History(ctx context.Context, instance string, env j17.Environment, offset, limit int) ([]Spec, error) {
	at, err := r.place(instance, env)
	if err != nil {
		return nil, err
	}
	head, _, err := get[specHead](ctx, r.store, specHeadSpace, at)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Spec
	for version := head.Version - offset; version > 0 && len(all) < limit; version-- {
		s, err := r.version(ctx, at, version, false)
		if errors.Is(err, store.ErrNotFound) {
			return nil, missingSpec(at, version)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Put makes a spec the current one and keeps those before it. Deploying what is current already changes nothing
// and returns it. When the current version is not d.Base, it is a *j17.Error of CodeConflict: what the caller compared
// the spec with is out of date.
func (r *Specs) Put(ctx context.Context, d Deployment) (Spec, error) {
	at, err := r.place(d.Instance, d.Environment)
	if err != nil {
		return Spec{}, err
	}
	if err := CheckSpecNote(d.Note); err != nil {
		return Spec{}, err
	}
	if d.How == "" {
		d.How = Deployed
	}
	if r.upstream != nil {
		return r.putUpstream(ctx, at, d)
	}
	if err := r.lock(ctx); err != nil {
		return Spec{}, err
	}
	defer r.change.pass()
	current, rev, err := r.current(ctx, at)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Spec{}, err
	}
	outdated := j17.Errorf(j17.CodeConflict, "Another spec has been deployed to %s in the meantime. Compare with that one and deploy again.", d.Environment.LongName())
	if current.Version != d.Base {
		return Spec{}, outdated
	}
	sum := sha256.Sum256(d.Source)
	author := originOf(ctx).actor
	author.Address = "" // which is the audit log's business
	next := Spec{
		ID: r.mint.Handle(ident.DeploymentPrefix), Version: current.Version + 1,
		Hash: hex.EncodeToString(sum[:]), DeployedAt: r.second(), DeployedBy: author,
		How: d.How, From: d.From, Forced: d.Forced, Note: d.Note,
	}
	if next.Hash == current.Hash {
		return current, nil
	}
	version, err := putNew(specSpace, specKey(at, next.Version), next)
	if err != nil {
		return Spec{}, err
	}
	source := store.Side{Op: store.Put, Space: specSpace, Key: specSourceKey(at, next.Version), Value: d.Source}
	head, err := putOver(specHeadSpace, at, specHead{Version: next.Version}, rev)
	if err != nil {
		return Spec{}, err
	}
	if rev == 0 {
		head.Cond = store.IfAbsent
	}
	entry := Record{
		Action: "spec." + string(d.How), Instance: d.Instance, Environment: d.Environment, Target: next.ID,
		Details: map[string]string{"version": strconv.Itoa(next.Version), "hash": next.Hash},
	}
	if d.Forced {
		entry.Details["forced"] = "true"
	}
	if d.From != nil {
		entry.Details["from_environment"], entry.Details["from_version"] = string(d.From.Environment), strconv.Itoa(d.From.Version)
	}
	err = r.record(ctx, entry, func(*known) {}, version, source, head)
	if isConflict(err, specHeadSpace) || isConflict(err, specSpace) {
		return Spec{}, outdated
	}
	if err != nil {
		return Spec{}, failure(err)
	}
	next.Source = d.Source
	return next, nil
}

// current returns the current spec and the revision of the head that says so; store.ErrNotFound when there is none.
func (r *Specs) current(ctx context.Context, at string) (Spec, uint64, error) {
	head, rev, err := get[specHead](ctx, r.store, specHeadSpace, at)
	if err != nil {
		return Spec{}, 0, err
	}
	s, err := r.version(ctx, at, head.Version, true)
	if errors.Is(err, store.ErrNotFound) {
		err = missingSpec(at, head.Version)
	}
	if err != nil {
		return Spec{}, 0, err
	}
	return s, rev, nil
}

// version returns a version, with its source if that is wanted; store.ErrNotFound when there is none.
func (r *Specs) version(ctx context.Context, at string, version int, source bool) (Spec, error) {
	if version < 1 {
		return Spec{}, store.ErrNotFound
	}
	s, _, err := get[Spec](ctx, r.store, specSpace, specKey(at, version))
	if err != nil {
		return Spec{}, err
	}
	switch {
	case !source:
		s.Source = nil
	case s.Source == nil:
		it, err := r.store.Get(ctx, j17.System, specSpace, specSourceKey(at, version))
		if errors.Is(err, store.ErrNotFound) && r.upstream != nil {
			return r.sourceUpstream(ctx, at, version)
		}
		if errors.Is(err, store.ErrNotFound) {
			return Spec{}, missingSpec(at, version)
		}
		if err != nil {
			return Spec{}, failure(err)
		}
		s.Source = it.Value
	}
	return *s, nil
}

func missingSpec(at string, version int) error {
	return failure(&store.CorruptionError{Where: string(specHeadSpace) + "/" + at, Err: fmt.Errorf("version %d does not exist", version)})
}

// place returns the key under which an environment's specs are kept.
func (r *Specs) place(instance string, env j17.Environment) (string, error) {
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

func specSourceKey(at string, version int) string { return specKey(at, version) + "/source" }
