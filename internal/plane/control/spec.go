package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/storage/store"
)

// Specs are the specs that were deployed to each environment. They belong to it: every version, and the head, which
// names the current one, are side items of the environment's tenant, so that they are exported with its events and
// events can be fenced on the head that they were decided with.
type Specs struct {
	*items
	// late are the environments with deployments that could not be announced at once. It is guarded by change.
	late map[j17.Tenant]bool
}

// The side spaces of an environment's tenant.
const (
	// specSpace holds every deployed version under "<version, 10 digits>", its text under "<version, 10
	// digits>/source".
	specSpace store.Space = "spec.versions"
	// specHeadSpace has one item, headKey.
	specHeadSpace store.Space = "spec.head"
	// unannouncedSpace has the audit records of deployments that the System tenant may lack, under "<version, 10
	// digits>".
	unannouncedSpace store.Space = "spec.unannounced"
)

const headKey = "current"

// mayHaveHeaders reports whether a stored version or source may contain headers. Versions once contained their sources,
// in base64, and names in a source may have escapes.
func mayHaveHeaders(value []byte) bool {
	return bytes.Contains(value, []byte(`"headers"`)) || bytes.Contains(value, []byte(`"source":"`)) ||
		bytes.Contains(value, []byte(`\u`))
}

// Spec is one deployed version of a spec.
type Spec struct {
	// ID is the deployment's handle.
	ID string `json:"id"`
	// Version counts the deployments to one environment from 1.
	Version int `json:"version"`
	// Hash is the SHA-256 of Source in hexadecimal.
	Hash       string    `json:"hash"`
	DeployedAt time.Time `json:"deployed_at"`
	// DeployedBy is the actor that deployed it, without an address.
	DeployedBy Actor `json:"deployed_by,omitzero"`
	// How says how this version came about.
	How How `json:"how,omitempty"`
	// From is the origin of the source in a rollback or a promotion.
	From *SpecOrigin `json:"from,omitempty"`
	// Forced reports that it was deployed although stored events may not survive it.
	Forced bool `json:"forced,omitempty"`
	// Note is the author's note.
	Note string `json:"note,omitempty"`
	// Source is the spec's text, byte for byte. Lists leave it out.
	Source []byte `json:"source,omitempty"`
	// Fence holds while events are to be decided with this spec. Only the current version has one.
	Fence store.Fence `json:"-"`
}

// How is how a version of a spec came about.
type How string

// The values of How.
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
	// Dropped names the posted projections that are removed with it, for the audit log.
	Dropped []string `json:",omitempty"`
	// Sides are writes to the environment's tenant that become durable together with the spec, if Fences hold; they
	// stay on the server that has the environment. Where a fence does not hold, a *store.SideConflict is among the
	// causes of the error.
	Sides  []store.Side  `json:"-"`
	Fences []store.Fence `json:"-"`
}

// maxSpecNote is the number of characters of a note.
const maxSpecNote = 500

// CheckSpecNote reports whether a note is valid. The error is a *j17.Error of CodeInvalidField.
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

// Current returns the current spec of an environment. It is a *j17.Error of CodeNoSpec if none has been deployed.
func (r *Specs) Current(ctx context.Context, instance string, env j17.Environment) (Spec, error) {
	t, err := r.tenant(instance, env)
	if err != nil {
		return Spec{}, err
	}
	s, err := r.current(ctx, t)
	if errors.Is(err, store.ErrNotFound) {
		return Spec{}, j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s. Deploy one first.", env.LongName())
	}
	return s, err
}

// Head returns the number of an environment's current version. It is a *j17.Error of CodeNoSpec if there is none.
func (r *Specs) Head(ctx context.Context, instance string, env j17.Environment) (int, error) {
	t, err := r.tenant(instance, env)
	if err != nil {
		return 0, err
	}
	head, _, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if errors.Is(err, store.ErrNotFound) {
		return 0, j17.Errorf(j17.CodeNoSpec, "No spec has been deployed to %s. Deploy one first.", env.LongName())
	}
	if err != nil {
		return 0, failure(err)
	}
	return head.Version, nil
}

// Version returns a version of an environment's spec. It is a *j17.Error of CodeNotFound when there is none.
func (r *Specs) Version(ctx context.Context, instance string, env j17.Environment, version int) (Spec, error) {
	t, err := r.tenant(instance, env)
	if err != nil {
		return Spec{}, err
	}
	s, err := r.version(ctx, t, version, true)
	if errors.Is(err, store.ErrNotFound) {
		return Spec{}, j17.Errorf(j17.CodeNotFound, "There is no version %d of the spec of %s.", version, env.LongName())
	}
	return s, err
}

// History returns up to limit versions of an environment's spec without their sources, the newest first, after skipping
// offset of them; none if none has been deployed.
func (r *Specs) History(ctx context.Context, instance string, env j17.Environment, offset, limit int) ([]Spec, error) {
	t, err := r.tenant(instance, env)
	if err != nil {
		return nil, err
	}
	head, _, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Spec
	for version := head.Version - offset; version > 0 && len(all) < limit; version-- {
		s, err := r.version(ctx, t, version, false)
		if errors.Is(err, store.ErrNotFound) {
			return nil, missingSpec(t, version)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Put makes a spec the current one and keeps earlier versions. Deploying the current spec again changes nothing and
// returns it. If the current version is not d.Base, it is a *j17.Error of CodeConflict: the caller's comparison of the
// spec is out of date. No event that was decided with an earlier version is committed afterwards.
func (r *Specs) Put(ctx context.Context, d Deployment) (Spec, error) {
	t, err := r.tenant(d.Instance, d.Environment)
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
		return r.putUpstream(ctx, t, d)
	}
	if err := r.lock(ctx); err != nil {
		return Spec{}, err
	}
	defer r.change.release()
	if r.instance(d.Instance) == nil {
		return Spec{}, noInstance()
	}

	// See whether there is anything to deploy.
	current, err := r.current(ctx, t)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Spec{}, err
	}
	if current.Version != d.Base {
		return Spec{}, outdatedSpec(d.Environment)
	}
	sum := sha256.Sum256(d.Source)
	author := originOf(ctx).actor
	author.Address = "" // only the audit log has it
	next := Spec{
		ID: r.mint.Handle(ident.DeploymentPrefix), Version: current.Version + 1,
		Hash: hex.EncodeToString(sum[:]), DeployedAt: r.second(), DeployedBy: author,
		How: d.How, From: d.From, Forced: d.Forced, Note: d.Note,
	}
	if next.Hash == current.Hash {
		return current, r.writeBeside(ctx, t, &d, current.Fence)
	}

	// Write it, and announce it.
	sides, err := specSides(next, d.Source)
	if err != nil {
		return Spec{}, err
	}
	head := &sides[len(sides)-1]
	if head.Cond, head.Rev = store.IfRev, current.Fence.Rev; current.Version == 0 {
		head.Cond = store.IfAbsent
	}
	told, err := putNew(unannouncedSpace, versionKey(next.Version), r.complete(ctx, recordOf(next, d)))
	if err != nil {
		return Spec{}, err
	}
	if err := r.store.Write(ctx, t, slices.Concat(sides, []store.Side{told}, d.Sides), d.Fences...); err != nil {
		if isConflict(err, specHeadSpace) || isConflict(err, specSpace) {
			return Spec{}, outdatedSpec(d.Environment)
		}
		if !unwritten(err) {
			r.doubt(nil) // so that the current version is read once the outcome is known
			r.late[t] = true
		}
		return Spec{}, failure(err)
	}
	// From here on it is deployed. If it cannot be announced now, the upkeep of this run or of the next one announces
	// it.
	if r.announce(context.WithoutCancel(ctx), t) != nil {
		r.late[t] = true
	}
	next.Source = d.Source
	next.Fence, err = r.fence(ctx, t, next.Version)
	return next, err
}

// writeBeside writes the Sides of a deployment whose spec is current already.
func (r *Specs) writeBeside(ctx context.Context, t j17.Tenant, d *Deployment, current store.Fence) error {
	if len(d.Sides) == 0 {
		return nil
	}
	if err := r.store.Write(ctx, t, d.Sides, append(d.Fences, current)...); err != nil {
		return failure(err)
	}
	return nil
}

// recordOf is the audit record of a deployment.
func recordOf(s Spec, d Deployment) Record {
	rec := Record{
		Action: "spec." + string(s.How), Instance: d.Instance, Environment: d.Environment, Target: s.ID,
		Details: map[string]string{"version": strconv.Itoa(s.Version), "hash": s.Hash},
	}
	if s.Forced {
		rec.Details["forced"] = "true"
	}
	if len(d.Dropped) > 0 {
		rec.Details["dropped_projections"] = strings.Join(d.Dropped, ", ")
	}
	if s.From != nil {
		rec.Details["from_environment"], rec.Details["from_version"] = string(s.From.Environment),
			strconv.Itoa(s.From.Version)
	}
	return rec
}

// specSides returns the writes that make a version the current one. The last one is that of the head.
func specSides(s Spec, source []byte) ([]store.Side, error) {
	s.Source = nil
	version, err := putNew(specSpace, versionKey(s.Version), s)
	if err != nil {
		return nil, err
	}
	head, err := putNew(specHeadSpace, headKey, specHead{Version: s.Version})
	if err != nil {
		return nil, err
	}
	return []store.Side{version, {Op: store.Put, Space: specSpace, Key: sourceKey(s.Version), Value: source}, head}, nil
}

// announce adds the deployments of an environment that the audit log and the replicas may lack to the log. They lack
// some if a server stopped, or its disk was full, right after a deployment. The caller holds r.change.
func (r *Specs) announce(ctx context.Context, t j17.Tenant) error {
	items, err := r.store.Scan(ctx, t, unannouncedSpace, store.Range{}, scanLimit)
	if err != nil {
		return failure(err)
	}
	for _, it := range items {
		rec, err := decode[Record](unannouncedSpace, it)
		if err != nil {
			return err
		}
		unit, err := r.logUnit(rec, nil, specItems(t, it.Key)...)
		if err != nil {
			return err
		}
		// The record's id makes it a command: it is added to the log only once, even if the next write fails.
		sum := sha256.Sum256([]byte(rec.ID))
		unit.Command = &store.Command{ID: store.CommandID(sum[:16])}
		res, err := r.append(ctx, unit)
		if err != nil {
			return failure(err)
		}
		r.seeOwn(&res)
		if err := r.store.Write(ctx, t, []store.Side{
			{Op: store.Delete, Space: unannouncedSpace, Key: it.Key},
		}); err != nil {
			return failure(err)
		}
	}
	return nil
}

// findLate notes the environments with deployments that were not announced before this server was stopped.
func (r *Specs) findLate(ctx context.Context) error {
	r.mu.RLock()
	instances := slices.Collect(maps.Keys(r.known.instances))
	r.mu.RUnlock()
	for _, instance := range instances {
		for _, env := range j17.Environments() {
			t := j17.TenantOf(instance, env)
			items, err := r.store.Scan(ctx, t, unannouncedSpace, store.Range{}, 1)
			if err != nil {
				return failure(err)
			}
			if len(items) > 0 {
				r.late[t] = true
			}
		}
	}
	return nil
}

// announceLate announces the deployments that could not be announced at once.
func (r *Specs) announceLate(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.change.release()
	for t := range r.late {
		if err := r.announce(ctx, t); err != nil {
			return err
		}
		delete(r.late, t)
	}
	return nil
}

// Touch makes sure, as a deployment does, that no event decided before is committed any longer, and returns the new
// fence: the spec is the same, but what it refers to has changed.
func (r *Specs) Touch(
	ctx context.Context, instance string, env j17.Environment, fence store.Fence,
) (store.Fence, error) {
	t, err := r.tenant(instance, env)
	if err != nil {
		return fence, err
	}
	head, rev, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if err != nil || rev != fence.Rev {
		return fence, outdatedSpec(env)
	}
	side, err := putOver(specHeadSpace, headKey, head, rev)
	if err != nil {
		return fence, err
	}
	if err := r.store.Write(ctx, t, []store.Side{side}); err != nil {
		return fence, failure(err)
	}
	if r.upstream == nil {
		// Other servers of the same store notice when they write; servers that only read have to be notified.
		unit, err := r.logUnit(nil, nil, Change{Tenant: t, Space: specHeadSpace, Key: headKey})
		if err == nil {
			_, err = r.append(ctx, unit)
		}
		if err != nil {
			return fence, failure(err)
		}
	}
	return r.fence(ctx, t, head.Version)
}

// fence returns a fence that holds while a version is the current one. If it no longer is, the fence does not hold.
func (r *Specs) fence(ctx context.Context, t j17.Tenant, version int) (store.Fence, error) {
	f := store.Fence{Space: specHeadSpace, Key: headKey}
	head, rev, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return f, failure(err)
	}
	if err == nil && head.Version == version {
		f.Rev = rev
	}
	return f, nil
}

// current returns the current spec; store.ErrNotFound if there is none.
func (r *Specs) current(ctx context.Context, t j17.Tenant) (Spec, error) {
	head, rev, err := getOf[specHead](ctx, r.store, t, specHeadSpace, headKey)
	if err != nil {
		return Spec{}, err
	}
	s, err := r.version(ctx, t, head.Version, true)
	if errors.Is(err, store.ErrNotFound) {
		err = missingSpec(t, head.Version)
	}
	if err != nil {
		return Spec{}, err
	}
	s.Fence = store.Fence{Space: specHeadSpace, Key: headKey, Rev: rev}
	return s, nil
}

// version returns a version, with its source if requested; store.ErrNotFound if there is none.
func (r *Specs) version(ctx context.Context, t j17.Tenant, version int, source bool) (Spec, error) {
	if version < 1 {
		return Spec{}, store.ErrNotFound
	}
	s, _, err := getOf[Spec](ctx, r.store, t, specSpace, versionKey(version))
	if err != nil {
		return Spec{}, err
	}
	switch {
	case !source:
		s.Source = nil
	case s.Source == nil:
		it, err := r.store.Get(ctx, t, specSpace, sourceKey(version))
		if (errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrSealed)) && r.upstream != nil {
			return r.sourceUpstream(ctx, t, version)
		}
		if errors.Is(err, store.ErrNotFound) {
			return Spec{}, missingSpec(t, version)
		}
		if err != nil {
			return Spec{}, failure(err)
		}
		s.Source = it.Value
	}
	return *s, nil
}

func missingSpec(t j17.Tenant, version int) error {
	return failure(&store.CorruptionError{
		Where: string(t) + "/" + string(specHeadSpace), Err: fmt.Errorf("version %d does not exist", version),
	})
}

func outdatedSpec(env j17.Environment) error {
	return j17.Errorf(j17.CodeConflict, "Another spec has been deployed to %s in the meantime. Compare with that one and deploy again.", env.LongName())
}

// tenant returns the tenant of an environment of an instance that exists.
func (r *Specs) tenant(instance string, env j17.Environment) (j17.Tenant, error) {
	if r.instance(instance) == nil {
		return "", noInstance()
	}
	if _, err := j17.ParseEnvironment(string(env)); err != nil {
		return "", j17.Errorf(j17.CodeInvalidField, "The environment must be prod, staging or test.").At("environment")
	}
	return j17.TenantOf(instance, env), nil
}

func versionKey(version int) string { return fmt.Sprintf("%010d", version) }

func sourceKey(version int) string { return versionKey(version) + sourceSuffix }
