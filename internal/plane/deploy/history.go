package deploy

import (
	"context"
	"strconv"
	"strings"

	"j17"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// Rollback asks for a version of an environment's history to be deployed again, as a new version.
type Rollback struct {
	Instance    string
	Environment j17.Environment
	Version     int
	// Force, Note, Aggregates and Failures are those of a Request.
	Force      bool
	Note       string
	Aggregates int
	Failures   int
}

// Rollback deploys an earlier version again, with all checks of Deploy.
func (s *Service) Rollback(ctx context.Context, r Rollback) (Result, error) {
	old, err := s.registry.Specs.Version(ctx, r.Instance, r.Environment, r.Version)
	if err != nil {
		return Result{}, err
	}
	return s.Deploy(ctx, Request{
		Instance: r.Instance, Environment: r.Environment, Source: old.Source, Force: r.Force, Note: r.Note,
		Aggregates: r.Aggregates, Failures: r.Failures,
		how: control.RolledBack, from: &control.SpecOrigin{Environment: r.Environment, Version: old.Version},
	})
}

// Promotion asks for the spec of one environment to be deployed to another.
type Promotion struct {
	Instance string
	From, To j17.Environment
	// Version is one of From's versions, 0 for the current one.
	Version int
	// Force, Note, Aggregates and Failures are those of a Request.
	Force      bool
	Note       string
	Aggregates int
	Failures   int
}

// Promote deploys the spec of one environment to another, with all checks of Deploy. Blobs are not copied: the target
// environment must have those that the spec names.
func (s *Service) Promote(ctx context.Context, p Promotion) (Result, error) {
	if p.From == p.To {
		return Result{}, j17.Errorf(j17.CodeInvalidField, "'from' and 'to' name the same environment. To deploy an earlier version again, use a rollback.").At("to")
	}
	var source control.Spec
	var err error
	if p.Version == 0 {
		source, err = s.registry.Specs.Current(ctx, p.Instance, p.From)
	} else {
		source, err = s.registry.Specs.Version(ctx, p.Instance, p.From, p.Version)
	}
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return Result{}, j17.Errorf(j17.CodeNotFound, "No spec has been deployed to %s, so there is nothing to promote.", p.From.LongName())
	}
	if err != nil {
		return Result{}, err
	}
	return s.Deploy(ctx, Request{
		Instance: p.Instance, Environment: p.To, Source: source.Source, Force: p.Force, Note: p.Note,
		Aggregates: p.Aggregates, Failures: p.Failures,
		how: control.Promoted, from: &control.SpecOrigin{Environment: p.From, Version: source.Version},
	})
}

// Difference is the difference between two versions of a spec.
type Difference struct {
	From, To int
	Changes  []compare.Change
	// Incompatible are the findings of Compare about the step from one to the other.
	Incompatible []j17.FieldError
}

// Diff compares two versions of an environment's spec. It is a *j17.Error of CodeInvalidSpec if they differ and this
// version of the program does not accept one of them.
func (s *Service) Diff(ctx context.Context, instance string, env j17.Environment, from, to int) (Difference, error) {
	old, err := s.registry.Specs.Version(ctx, instance, env, from)
	if err != nil {
		return Difference{}, err
	}
	next, err := s.registry.Specs.Version(ctx, instance, env, to)
	if err != nil {
		return Difference{}, err
	}

	// Equal texts need no comparison: compiling and comparing a large spec takes seconds.
	d := Difference{From: from, To: to, Changes: []compare.Change{}, Incompatible: []j17.FieldError{}}
	if old.Hash == next.Hash {
		return d, nil
	}
	before, err := compilable(&old)
	if err != nil {
		return Difference{}, err
	}
	after, err := compilable(&next)
	if err != nil {
		return Difference{}, err
	}
	d.Changes = append(d.Changes, compare.Changes(before, after)...)
	d.Incompatible = diag.FieldErrors(errorsOf(compare.Compatibility(before, after)))
	return d, nil
}

// compilable compiles a version of a spec for a comparison.
func compilable(stored *control.Spec) (*spec.Compiled, error) {
	compiled, found := spec.CompileStored(stored.Source)
	if compiled == nil {
		e := invalid(found)
		e.Message = "Version " + strconv.Itoa(stored.Version) + " of the spec is not valid for this version of the program, so it cannot be compared."
		return nil, e
	}
	return compiled, nil
}

// Projections returns the projections that the current spec of an environment declares, in its order; none if no spec
// was deployed.
func (s *Service) Projections(ctx context.Context, instance string, env j17.Environment) ([]spec.Declaration, error) {
	current, err := s.registry.Specs.Current(ctx, instance, env)
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return spec.DeclaredProjections(current.Source)
}

// Deployed returns the version of the spec that is deployed to a tenant's environment; CodeNoSpec if there is none.
func (s *Service) Deployed(ctx context.Context, t j17.Tenant) (int, error) {
	instance, env, _ := strings.Cut(string(t), "/")
	return s.registry.Specs.Head(ctx, instance, j17.Environment(env))
}

// Compiled returns a version of the spec of a tenant's environment as it was deployed, compiled by this version of the
// program. The error is CodeNotFound if there is no such version, CodeInvalidSpec if the program no longer accepts it.
func (s *Service) Compiled(ctx context.Context, t j17.Tenant, version int) (*spec.Compiled, error) {
	instance, env, _ := strings.Cut(string(t), "/")
	stored, err := s.registry.Specs.Version(ctx, instance, j17.Environment(env), version)
	if err != nil {
		return nil, err
	}
	compiled, found := s.compile(&stored)
	if compiled == nil {
		return nil, j17.Errorf(j17.CodeInvalidSpec, "Version %d of the spec is not valid for this version of the program: %s", version, first(found))
	}
	return compiled, nil
}
