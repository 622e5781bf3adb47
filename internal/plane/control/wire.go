package control

import (
	"time"

	"j17"
	"j17/internal/base/wire"
)

// Wire returns the record as clients see it.
func (r *Record) Wire() wire.Record {
	return wire.Record{
		ID: r.ID, At: r.At, Action: r.Action, Actor: r.Actor.Wire(), Instance: r.Instance, Environment: r.Environment,
		Target:  r.Target,
		Outcome: string(r.Outcome), Code: r.Code, RequestID: r.RequestID, Details: r.Details,
	}
}

// Wire returns the actor as clients see it.
func (a *Actor) Wire() wire.Actor {
	return wire.Actor{Kind: string(a.Kind), ID: a.ID, Email: a.Email, Address: a.Address}
}

// Wire returns the operator as clients see them.
func (op *Operator) Wire() wire.Operator {
	shape := wire.Operator{
		ID: op.ID, Email: op.Email, Role: string(op.Role), Instances: op.Instances, CreatedAt: op.CreatedAt,
	}
	if shape.Instances == nil {
		shape.Instances = []string{}
	}
	return shape
}

// Wire returns the key as clients see it at a time.
func (k *Key) Wire(now time.Time) wire.Key {
	shape := wire.Key{
		ID: k.ID, Name: k.Name, Instance: k.Instance, Environment: k.Environment, Scope: k.Scope, Prefix: k.Prefix,
		Status: string(k.Status(now)), CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokeAt: k.RevokeAt,
		RevokedAt: k.RevokedAt.Truncate(time.Second),
	}
	if !k.LastUsedAt.IsZero() {
		shape.LastUsedAt = &k.LastUsedAt
	}
	return shape
}

// Wire returns the instance as clients see it, with the hosts of its environments.
func (i *Instance) Wire(host func(name string, env j17.Environment) string) wire.Instance {
	shape := wire.Instance{ID: i.ID, Name: i.Name, Plan: i.Plan, Node: i.Node, CreatedAt: i.CreatedAt}
	for _, env := range j17.Environments() {
		shape.Environments = append(shape.Environments, wire.Environment{Name: env, Host: host(i.Name, env)})
	}
	return shape
}

// Wire returns the version as clients see it.
func (s *Spec) Wire(env j17.Environment) wire.Deployment {
	shape := wire.Deployment{
		ID: s.ID, Version: s.Version, Hash: s.Hash, DeployedAt: s.DeployedAt, DeployedBy: s.DeployedBy.Wire(),
		How:    string(s.How),
		Forced: s.Forced, Note: s.Note, Environment: env,
	}
	if s.From != nil {
		shape.From = new(wire.Origin(*s.From))
	}
	return shape
}
