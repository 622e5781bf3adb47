package deploy

import (
	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/compare"
)

// Wire returns the prepared spec as clients see it.
func (p *Prepared) Wire(env j17.Environment) wire.PreparedSpec {
	shape := wire.PreparedSpec{
		Hash: p.Hash, Environment: env, RequestedAt: p.RequestedAt, RequestedBy: p.By.Wire(), Note: p.Note,
		Build: wire.Build{Status: "running", Kind: p.Kind, Done: p.Built, Total: p.Total},
	}
	if p.Failed != "" {
		shape.Build.Status, shape.Build.Error = "failed", p.Failed
	}
	return shape
}

// Changes returns the changes that a spec makes as clients see them.
func Changes(changes []compare.Change) []wire.Change {
	shapes := make([]wire.Change, len(changes))
	for i, c := range changes {
		shapes[i] = wire.Change{Kind: string(c.Kind), What: c.What, Name: c.Name, Keys: c.Keys}
	}
	return shapes
}
