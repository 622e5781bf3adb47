package projection

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The origins and statuses of projections.
const (
	originSpec  = "spec"
	originAdmin = "admin"

	statusInvalid = "invalid"
)

// survey has the projections of an environment for operators, as of one position.
type survey struct {
	*reading

	statuses map[string]index.Status
	prepared map[string]*prepared
}

// survey surveys an environment. It is nil if no spec is deployed, so that there can be no projections.
func (s *Service) survey(ctx context.Context, t j17.Tenant) (*survey, error) {
	if s.engine.Spec(t) == nil {
		return nil, nil //nolint:nilnil // stated
	}
	sm, err := s.store.Moment(ctx, t)
	if err != nil {
		return nil, store.UserError(err)
	}
	defer sm.Close()
	v := &survey{statuses: map[string]index.Status{}}
	if v.reading, err = s.readings.of(t, sm); err != nil {
		return nil, err
	}
	if v.prepared, err = preparedAt(sm, v.in); err != nil || s.indexes == nil {
		return v, store.UserError(err)
	}
	there, err := s.indexes.List(ctx, t)
	for _, status := range there {
		v.statuses[status.ID] = status
	}
	return v, store.UserError(err)
}

// DescribeAll returns the projections of an environment: those of the spec in its order, then the posted ones by name;
// none if no spec is deployed.
func (s *Service) DescribeAll(ctx context.Context, t j17.Tenant) ([]wire.Projection, error) {
	v, err := s.survey(ctx, t)
	if err != nil || v == nil {
		return nil, err
	}
	names, err := v.in.names()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(v.prepared)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	all := make([]wire.Projection, len(names))
	for i, name := range names {
		all[i] = s.describe(v, name)
	}
	return all, nil
}

// Describe returns a projection of an environment; a *j17.Error of CodeUnknownProjection if there is none.
func (s *Service) Describe(ctx context.Context, t j17.Tenant, name string) (wire.Projection, error) {
	v, err := s.survey(ctx, t)
	if err != nil {
		return wire.Projection{}, err
	}
	if v == nil || v.in.all[name] == nil && v.in.posted.find(name) == nil && v.prepared[name] == nil {
		return wire.Projection{}, unknown(v, name)
	}
	return s.describe(v, name), nil
}

// unknown returns the error for a name without a projection.
func unknown(v *survey, name string) error {
	near := ""
	if v != nil {
		near = v.in.nearest(name)
	}
	return j17.Errorf(j17.CodeUnknownProjection, "There is no projection '%s' in this environment.%s", j17.Printable(name), near)
}

// describe describes a projection that exists, or is being prepared.
func (s *Service) describe(v *survey, name string) wire.Projection {
	p := wire.Projection{Name: name, Origin: originAdmin, Status: build.StatusReady, Position: v.m.At().PositionText()}
	d, next := v.in.all[name], v.prepared[name]
	switch {
	case d != nil && d.posted == nil:
		p.Origin = originSpec
		fallthrough
	case d != nil:
		p.Definition = d.Definition.AppendJSON(nil)
		s.indexed(v, d, &p)
	case v.in.posted.find(name) != nil:
		p.Status, p.Problem, p.Definition = statusInvalid, v.in.invalid[name], v.in.posted.find(name).Definition
	default:
		p.Status, p.Definition = build.StatusBuilding, next.Definition
	}
	if next != nil {
		p.Build = v.preparing(next, s)
	}
	p.Verification = s.verifying.Of(v.t, name)
	return p
}

// indexed adds the state of a projection's indexes.
func (s *Service) indexed(v *survey, d *definition, p *wire.Projection) {
	needs := s.needs(v.reading, d)
	behind := v.m.At()
	for i, x := range needs {
		status := v.statuses[x.ID]
		if !status.Ready {
			p.Status = build.StatusBuilding
		}
		if i == 0 && len(d.Indexes) > 0 {
			p.Rows = &status.Rows
		}
		p.Entries += status.Entries
		p.Bytes += status.Bytes
		p.Lag = max(p.Lag, status.Lag)
		if status.Position.Compare(behind) < 0 {
			behind = status.Position
		}
	}
	p.Position, p.Build = behind.PositionText(), v.buildOf(needs)
}

// Posting is a request to post a definition.
type Posting struct {
	// Definition is its text.
	Definition []byte
	// By is the handle of the operator who posts it.
	By string
	// Prepare delays the definition until its indexes are built. Until then the previous one stays in force.
	Prepare bool
}

// PostDefinition adds a definition to an environment, replacing an earlier one posted under its name. Errors are
// *j17.Errors: CodeInvalidSpec with all findings, CodeConflict if the spec declares a projection of that name. The
// answer has a build if the definition is not in force yet.
func (s *Service) PostDefinition(ctx context.Context, t j17.Tenant, p Posting) (wire.PostedProjection, error) {
	var answer wire.PostedProjection
	var next *posting
	err := s.change(ctx, t, func(in *spec.Compiled, there *postings) (map[string]*posting, []store.Side, error) {
		admitted, found, err := s.admit(&p, in)
		if err != nil {
			return nil, nil, err
		}
		next = admitted
		old := there.find(next.Name)
		answer = wire.PostedProjection{
			Projection: wire.Projection{Name: next.Name}, Created: old == nil, Warnings: diag.FieldErrors(found),
		}
		if p.Prepare {
			side, err := s.preparation(ctx, t, next)
			return nil, []store.Side{side}, err
		}
		var sides []store.Side
		if _, err := s.store.Get(ctx, t, preparedSpace, next.Name); err == nil {
			sides = append(sides, store.Side{Op: store.Delete, Space: preparedSpace, Key: next.Name})
		}
		if old != nil && bytes.Equal(old.Definition, next.Definition) {
			return nil, sides, nil
		}
		return map[string]*posting{next.Name: next}, sides, nil
	})
	if err != nil {
		return wire.PostedProjection{}, err
	}

	// Its indexes are built even if the client has disconnected.
	ctx = context.WithoutCancel(ctx)
	if p.Prepare {
		err = s.prepare(ctx, t, next)
	} else {
		s.Adopted(ctx, t)
		s.Settled(ctx, t)
	}
	if err == nil {
		answer.Projection, err = s.Describe(ctx, t, answer.Name)
	}
	if j17.CodeOf(err) == j17.CodeUnknownProjection {
		err = j17.Errorf(j17.CodeConflict, "The projection '%s' was taken, and taken away again meanwhile, by a deployed spec under which it is not valid or by somebody else", answer.Name)
	}
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
		Name: made.Name, Definition: made.Definition.AppendJSON(nil),
		PostedAt: s.clock.Now().UTC().Truncate(time.Second), PostedBy: p.By,
	}, found, nil
}

// Remove removes the definition posted under a name. Errors are *j17.Errors: CodeUnknownProjection if there is none of
// that name, CodeConflict if the spec declares it.
func (s *Service) Remove(ctx context.Context, t j17.Tenant, name string) error {
	err := s.change(ctx, t, func(in *spec.Compiled, there *postings) (map[string]*posting, []store.Side, error) {
		switch {
		case in.Projections[name] != nil:
			return nil, nil, ofSpec(name, "removed")
		}
		_, err := s.store.Get(ctx, t, preparedSpace, name)
		prepared := err == nil
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
		var changes map[string]*posting
		if there.find(name) != nil {
			changes = map[string]*posting{name: nil}
		}
		if changes == nil && !prepared {
			return nil, nil, unknown(nil, name)
		}
		return changes, []store.Side{{Op: store.Delete, Space: preparedSpace, Key: name}}, nil
	})
	switch {
	case j17.CodeOf(err) == j17.CodeNoSpec:
		return unknown(nil, name)
	case err == nil:
		s.Adopted(context.WithoutCancel(ctx), t)
	}
	return err
}
