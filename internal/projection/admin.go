package projection

import (
	"bytes"
	"context"
	"time"

	"j17"
	"j17/internal/deploy"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/store"
	"j17/internal/wire"
)

// The origins and statuses of projections.
const (
	originSpec  = "spec"
	originAdmin = "admin"

	statusReady    = "ready"
	statusBuilding = "building"
	statusInvalid  = "invalid"
)

// survey is what operators are shown of the projections of an environment, as of one position.
type survey struct {
	*reading
}

// survey looks at an environment. It is nil where no spec is deployed, so that there can be no projections.
func (s *Service) survey(ctx context.Context, t j17.Tenant) (*survey, error) {
	if s.engine.Spec(t) == nil {
		return nil, nil //nolint:nilnil // stated
	}
	r, err := s.now(ctx, t)
	if err != nil {
		return nil, err
	}
	return &survey{reading: r}, nil
}

// DescribeAll returns the projections of an environment: those of the spec in its order, then the posted ones by name; none where no spec
// is deployed.
func (s *Service) DescribeAll(ctx context.Context, t j17.Tenant) ([]wire.Projection, error) {
	v, err := s.survey(ctx, t)
	if err != nil || v == nil {
		return nil, err
	}
	names, err := v.in.names()
	if err != nil {
		return nil, err
	}
	all := make([]wire.Projection, len(names))
	for i, name := range names {
		all[i] = v.describe(name)
	}
	return all, nil
}

// Describe returns a projection of an environment. It is a *j17.Error of CodeUnknownProjection where there is none.
func (s *Service) Describe(ctx context.Context, t j17.Tenant, name string) (wire.Projection, error) {
	v, err := s.survey(ctx, t)
	if err != nil {
		return wire.Projection{}, err
	}
	if v == nil || v.in.all[name] == nil && v.in.posted.find(name) == nil {
		return wire.Projection{}, unknown(v, name)
	}
	return v.describe(name), nil
}

// unknown is the error of a name that no projection has.
func unknown(v *survey, name string) error {
	near := ""
	if v != nil {
		near = v.in.nearest(name)
	}
	return j17.Errorf(j17.CodeUnknownProjection, "There is no projection '%s' in this environment.%s", j17.Printable(name), near)
}

// describe shows a projection that is there.
func (v *survey) describe(name string) wire.Projection {
	p := wire.Projection{Name: name, Origin: originAdmin, Status: statusReady, Position: positionText(v.m.At())}
	d := v.in.all[name]
	if d == nil {
		p.Status, p.Problem, p.Definition = statusInvalid, v.in.invalid[name], v.in.posted.find(name).Definition
		return p
	}
	if d.posted == nil {
		p.Origin = originSpec
	}
	p.Definition = d.Definition.AppendJSON(nil)
	return p
}

// positionText is a position as answers have it.
func positionText(at j17.StreamID) string {
	if at == (j17.StreamID{}) {
		return "0"
	}
	return at.String()
}

// Posting is a definition that somebody posts.
type Posting struct {
	// Definition is its text.
	Definition []byte
	// By is the handle of who posts it.
	By string
}

// PostDefinition puts a definition beside the spec of an environment, in the place of the one that was posted under its name before. Errors are
// *j17.Errors: CodeInvalidSpec with all that is wrong, CodeConflict where the spec declares a projection of that name.
func (s *Service) PostDefinition(ctx context.Context, t j17.Tenant, p Posting) (wire.PostedProjection, error) {
	var answer wire.PostedProjection
	err := s.change(ctx, t, func(in *spec.Compiled, there *postings) (map[string]*posting, []store.Side, error) {
		next, found, err := s.admit(&p, in)
		if err != nil {
			return nil, nil, err
		}
		old := there.find(next.Name)
		answer = wire.PostedProjection{Projection: wire.Projection{Name: next.Name}, Created: old == nil, Warnings: deploy.FieldErrors(found)}
		if old != nil && bytes.Equal(old.Definition, next.Definition) {
			return nil, nil, nil
		}
		return map[string]*posting{next.Name: next}, nil, nil
	})
	if err != nil {
		return wire.PostedProjection{}, err
	}
	answer.Projection, err = s.Describe(context.WithoutCancel(ctx), t, answer.Name)
	return answer, err
}

// admit checks a definition under a spec.
func (s *Service) admit(p *Posting, in *spec.Compiled) (*posting, []diag.Diagnostic, error) {
	made, found, err := compiled(p.Definition, in)
	if err != nil {
		return nil, nil, err
	}
	if in.Projections[made.Name] != nil {
		return nil, nil, ofSpec(made.Name, "deployed")
	}
	return &posting{
		Name: made.Name, Definition: made.Definition.AppendJSON(nil), PostedAt: s.clock.Now().UTC().Truncate(time.Second), PostedBy: p.By,
	}, found, nil
}

// Remove removes what was posted under a name. Errors are *j17.Errors: CodeUnknownProjection where there is none of that name,
// CodeConflict where the spec declares it.
func (s *Service) Remove(ctx context.Context, t j17.Tenant, name string) error {
	err := s.change(ctx, t, func(in *spec.Compiled, there *postings) (map[string]*posting, []store.Side, error) {
		switch {
		case in.Projections[name] != nil:
			return nil, nil, ofSpec(name, "removed")
		case there.find(name) == nil:
			return nil, nil, unknown(nil, name)
		}
		return map[string]*posting{name: nil}, nil, nil
	})
	if j17.CodeOf(err) == j17.CodeNoSpec {
		return unknown(nil, name)
	}
	return err
}
