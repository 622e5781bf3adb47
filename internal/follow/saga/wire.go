package saga

import "j17/internal/base/wire"

// Wire returns the saga as lists show it.
func (g *Saga) Wire() wire.Saga {
	shape := wire.Saga{
		SagaID: g.ID, Type: g.Type, Status: string(g.Status), SpecVersion: g.Version,
		Trigger: wire.SagaTrigger(g.Trigger), Steps: make([]wire.SagaStep, len(g.Steps)),
	}
	if step := g.CurrentStep(); step != "" {
		shape.CurrentStep = &step
	}
	if g.StartedAt != 0 {
		shape.StartedAt = &g.StartedAt
	}
	for i, s := range g.Steps {
		shape.Steps[i] = wire.SagaStep{
			Name: s.Name, Status: string(s.Status), WaitingSince: s.WaitingSince, CompletedAt: s.CompletedAt,
		}
	}
	if e := g.Error; e != nil {
		shape.Error = &wire.SagaError{Step: e.Step, Code: e.Code, Requirement: e.Requirement, Message: e.Sentence()}
	}
	return shape
}

// Detail returns the saga with its timeline.
func (g *Saga) Detail() wire.SagaDetail {
	shape := wire.SagaDetail{Saga: g.Wire(), Timeline: make([]wire.SagaEntry, len(g.Timeline))}
	for i, e := range g.Timeline {
		shape.Timeline[i] = wire.SagaEntry{
			At: e.At, What: string(e.What), Step: e.Step, StreamID: e.StreamID, Error: e.Error,
		}
	}
	return shape
}
