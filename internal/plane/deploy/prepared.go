package deploy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/core/decider"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// preparedSpace has one item, preparedKey: the spec that is deployed once what it needs is built. It is due at the next
// check of that; one that cannot be deployed is no longer due, and has the reason.
const preparedSpace store.Space = "spec.prepared"

const (
	preparedKey = "next"
	// preparedPause is the time between two checks. preparedDelay is the time until the first, during which only the
	// requester works on it.
	preparedPause = time.Second
	preparedDelay = 5 * time.Second
	preparedLease = 10 * time.Minute
	// preparedAtOnce is how many environments are checked in parallel.
	preparedAtOnce = 4
)

// Prepared is a spec that is deployed once what it needs is built.
type Prepared struct {
	part.Readiness

	Hash        string
	RequestedAt time.Time
	By          control.Actor
	Note        string
}

// preparedSpec is a Prepared as it is stored.
type preparedSpec struct {
	Source      []byte              `json:"source"`
	Base        string              `json:"base"`
	Force       bool                `json:"force,omitempty"`
	Note        string              `json:"note,omitempty"`
	How         control.How         `json:"how,omitempty"`
	From        *control.SpecOrigin `json:"from,omitempty"`
	Actor       control.Actor       `json:"actor"`
	RequestID   string              `json:"request_id,omitempty"`
	RequestedAt time.Time           `json:"requested_at"`
	Readiness   part.Readiness      `json:"readiness"`
}

// shown returns the fields that clients see.
func (p *preparedSpec) shown() *Prepared {
	sum := sha256.Sum256(p.Source)
	return &Prepared{
		Readiness: p.Readiness, Hash: hex.EncodeToString(sum[:]), RequestedAt: p.RequestedAt, By: p.Actor, Note: p.Note,
	}
}

// side is the write that stores it.
func (p *preparedSpec) side(due time.Time) (store.Side, error) {
	raw, err := json.Marshal(p)
	return store.Side{Op: store.Put, Space: preparedSpace, Key: preparedKey, Value: raw, Due: due}, err
}

// begin prepares a spec: it is refused if a deployment would be, and deployed at once if all that it needs is soon
// built.
func (s *Service) begin(
	ctx context.Context, e *environment, r Request, compiled *spec.Compiled, found []diag.Diagnostic,
) (Result, error) {
	e.mu.Lock()
	result, loaded, err := s.prepare(ctx, e, r, compiled, found)
	e.mu.Unlock()
	if err != nil {
		return Result{}, err
	}

	// From here on it continues even if the client has gone.
	who, request := control.ActorOf(ctx)
	ctx = context.WithoutCancel(ctx)
	now := s.clock.Now()
	p := &preparedSpec{
		Source: compiled.Source, Base: result.Spec.Hash, Force: r.Force, Note: r.Note, How: r.how, From: r.from,
		Actor: who, RequestID: request,
		RequestedAt: now.UTC().Truncate(time.Second),
	}
	side, err := p.side(now.Add(preparedDelay))
	if err != nil {
		return Result{}, err
	}
	if err := s.sides.Write(ctx, e.tenant, []store.Side{side}); err != nil {
		return Result{}, store.UserError(err)
	}
	stored, rev, err := s.preparedNow(ctx, e.tenant)
	if err != nil {
		return Result{}, err
	}
	if !stored.same(p) {
		return s.lost(ctx, e, p, result)
	}
	if p.Readiness, err = s.ready(ctx, e.tenant, decider.New(compiled, loaded.functions)); err != nil {
		_, gone := s.unprepare(ctx, e.tenant, rev)
		return Result{}, errors.Join(err, gone)
	}
	if !p.Readiness.Done {
		// An index whose build begins after the preparation was given up would never be removed.
		if stored, _, err = s.preparedNow(ctx, e.tenant); err != nil {
			return Result{}, err
		}
		if !stored.same(p) {
			s.unready(ctx, e.tenant)
			return s.lost(ctx, e, p, result)
		}
		result.Prepared = p.shown()
		return result, nil
	}

	// If the client has named no base, it is compared with the spec deployed by now.
	r.Prepare, r.ending = false, []store.Side{removal(rev)}
	done, err := s.Deploy(ctx, r)
	switch {
	case err == nil:
		s.unready(ctx, e.tenant)
		return done, nil
	case given(err):
		s.unready(ctx, e.tenant)
		return s.lost(ctx, e, p, result)
	default:
		_, gone := s.unprepare(ctx, e.tenant, rev)
		return Result{}, errors.Join(err, gone)
	}
}

// lost returns the result of a preparation that this request no longer owns: the background continues it or has
// deployed it, or it was given up or replaced. before is the result at the beginning.
func (s *Service) lost(ctx context.Context, e *environment, p *preparedSpec, before Result) (Result, error) {
	now, _, err := s.preparedNow(ctx, e.tenant)
	if err != nil {
		return Result{}, err
	}
	if now.same(p) {
		before.Prepared = now.shown()
		return before, nil
	}
	current, err := s.registry.Specs.Current(ctx, e.instance, e.env)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return Result{}, err
	}
	if !bytes.Equal(current.Source, p.Source) {
		return Result{}, j17.Errorf(j17.CodeConflict, "The spec is not deployed: what was prepared was given up meanwhile, or another spec is prepared.")
	}
	before.Created = current.Version != before.Spec.Version
	before.Spec, before.Spec.Source = current, nil
	return before, nil
}

// same reports whether two are of the same request; false if p is nil.
func (p *preparedSpec) same(o *preparedSpec) bool {
	return p != nil && p.RequestID == o.RequestID && p.RequestedAt.Equal(o.RequestedAt) && p.Base == o.Base &&
		bytes.Equal(p.Source, o.Source)
}

// given reports whether a deployment has failed because its preparation was given up or replaced, or is continued
// elsewhere.
func given(err error) bool {
	conflict, ok := errors.AsType[*store.SideConflict](err)
	return ok && conflict.Space == preparedSpace
}

// removal is the write that removes the prepared spec, if it still has the revision rev.
func removal(rev uint64) store.Side {
	return store.Side{Op: store.Delete, Space: preparedSpace, Key: preparedKey, Cond: store.IfRev, Rev: rev}
}

// unprepare removes the prepared spec, and reports true if it has changed since revision rev.
func (s *Service) unprepare(ctx context.Context, t j17.Tenant, rev uint64) (changed bool, err error) {
	err = s.sides.Write(ctx, t, []store.Side{removal(rev)})
	if changed = given(err); err != nil && !changed {
		return false, store.UserError(err)
	}
	s.unready(ctx, t)
	return changed, nil
}

// preparedNow reads the spec that is prepared for an environment; nil if there is none.
func (s *Service) preparedNow(ctx context.Context, t j17.Tenant) (*preparedSpec, uint64, error) {
	it, err := s.sides.Get(ctx, t, preparedSpace, preparedKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, store.UserError(err)
	}
	p, err := readPreparedSpec(it.Value)
	return p, it.Rev, err
}

// Prepared returns the spec that is prepared for an environment. It is an error of CodeNotFound if there is none.
func (s *Service) Prepared(ctx context.Context, t j17.Tenant) (*Prepared, error) {
	p, _, err := s.preparedNow(ctx, t)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, nothingPrepared()
	}
	return p.shown(), nil
}

// CancelPrepared gives up the spec that is prepared for an environment, with what was built for it. It is an error of
// CodeNotFound if there is none, and of CodeConflict if another one has replaced it meanwhile.
func (s *Service) CancelPrepared(ctx context.Context, t j17.Tenant) error {
	var first *preparedSpec
	for range maxTries {
		p, rev, err := s.preparedNow(ctx, t)
		switch {
		case err != nil:
			return err
		case p == nil:
			return nothingPrepared()
		case first == nil:
			first = p
		case !p.same(first):
			return j17.Errorf(j17.CodeConflict, "Another spec has been prepared meanwhile, which goes on.")
		}
		if changed, err := s.unprepare(context.WithoutCancel(ctx), t, rev); err != nil || !changed {
			return err
		}
	}
	return j17.Errorf(j17.CodeBusy, "The spec that is prepared could not be given up. Try again in a moment.")
}

func nothingPrepared() error {
	return j17.Errorf(j17.CodeNotFound, "No spec is being prepared for this environment.")
}

// SpecPrepared reports whether a spec is prepared for an environment, and nothing has failed yet.
func (s *Service) SpecPrepared(ctx context.Context, t j17.Tenant) (bool, error) {
	return IsPrepared(ctx, s.sides, t)
}

// IsPrepared reports whether a spec is prepared for an environment, and nothing has failed yet.
func IsPrepared(ctx context.Context, sides store.Sides, t j17.Tenant) (bool, error) {
	it, err := sides.Get(ctx, t, preparedSpace, preparedKey)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p, err := readPreparedSpec(it.Value)
	return err == nil && p.Readiness.Failed == "", err
}

func readPreparedSpec(stored []byte) (*preparedSpec, error) {
	p, err := worker.Decode[preparedSpec](preparedSpace, preparedKey, stored)
	if err != nil {
		return nil, store.UserError(err)
	}
	return &p, nil
}

// carryOn checks whether the spec that is prepared for an environment can be deployed.
func (s *Service) carryOn(ctx context.Context, c *worker.Claim) error {
	p, err := readPreparedSpec(c.Value)
	if err != nil {
		return err
	}
	instance, env, _ := strings.Cut(string(c.Tenant), "/")
	r := Request{
		Instance: instance, Environment: j17.Environment(env), Source: p.Source, Force: p.Force, Base: &p.Base,
		Note: p.Note, how: p.How, from: p.From,
		ending: []store.Side{c.Remove()},
	}
	was := p.Readiness
	p.Readiness, err = s.readiness(ctx, r)
	if err == nil && p.Readiness.Done {
		if _, err = s.Deploy(control.WithActor(ctx, p.Actor, p.RequestID), r); err == nil || given(err) {
			s.unready(ctx, c.Tenant)
			return nil
		}
	}

	// Failures that a person has to resolve are reported, and not tried again.
	due := s.clock.Now().Add(preparedPause)
	if refused, ok := errors.AsType[*j17.Error](err); ok && final(refused.Code) {
		if refused.Code == j17.CodePreconditionFailed {
			refused = j17.Errorf(refused.Code, "Another spec has been deployed meanwhile than the one that it was compared with.")
		}
		p.Readiness, due, err = part.Readiness{Failed: refused.Message}, time.Time{}, nil
	} else if p.Readiness.Failed != "" {
		due = time.Time{}
	}
	if err != nil {
		return err
	}
	value := c.Value
	if p.Readiness != was {
		if value, err = json.Marshal(p); err != nil {
			return err
		}
	}
	err = s.sides.Write(ctx, c.Tenant, []store.Side{c.Replace(value, due)})
	if due.IsZero() || given(err) {
		s.unready(ctx, c.Tenant)
	}
	return err
}

// readiness reports how far what a request needs is built. It fails if a deployment would be refused.
func (s *Service) readiness(ctx context.Context, r Request) (part.Readiness, error) {
	e, err := s.environment(r.Instance, r.Environment)
	if err != nil {
		return part.Readiness{}, err
	}
	compiled, found := lint.Compile(r.Source)
	if compiled == nil {
		return part.Readiness{}, invalid(found)
	}
	e.mu.Lock()
	_, loaded, err := s.prepare(ctx, e, r, compiled, found)
	e.mu.Unlock()
	if err != nil {
		return part.Readiness{}, err
	}
	return s.ready(ctx, e.tenant, decider.New(compiled, loaded.functions))
}

// final reports whether trying again cannot change a refusal.
func final(code j17.Code) bool {
	switch code { //nolint:exhaustive // all others may pass
	case j17.CodeInvalidSpec, j17.CodeIncompatibleSpec, j17.CodePreconditionFailed, j17.CodeNotFound,
		j17.CodeInvalidField:
		return true
	default:
		return false
	}
}

// Run deploys prepared specs when they are ready, and repeats failed adoptions, until the context ends.
func (s *Service) Run(ctx context.Context) error {
	var adopting panics.Parts
	adopting.Go(func() {
		s.worker.Every(ctx, worker.Loop{Name: "spec_adoption", Wake: s.failed, Do: s.AdoptAgain})
	})
	defer adopting.Wait()
	return s.waiting.Run(ctx)
}

// Settle deploys the prepared specs that are due and ready.
func (s *Service) Settle(ctx context.Context) error { return s.waiting.Settle(ctx) }

// NextDue returns when the next prepared spec is checked.
func (s *Service) NextDue(ctx context.Context) (time.Time, error) { return s.waiting.NextDue(ctx) }
