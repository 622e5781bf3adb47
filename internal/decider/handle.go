package decider

import (
	"context"

	"j17"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/value"
)

// Reacts reports whether an event of the command brings about more than itself: implications, or custom code that may
// refuse it.
func (a *Admitted) Reacts() bool {
	for i := range a.Events {
		if et := a.Events[i].Spec; et.Implications != nil || MayRefuse(et, a.Events[i].Data.Size()+len(a.metadata)) {
			return true
		}
	}
	return false
}

// MayRefuse reports whether an event of so many bytes has to be applied before it is written: custom code may refuse it, and a
// handler that may take more work than a replay has must not.
func MayRefuse(et *spec.EventType, size int) bool {
	return et.Code != nil || et.Handler != nil && et.Handler.Heavy(size)
}

// Computed is the state of an aggregate as it will be after the commit.
type Computed struct {
	Key    j17.Key
	State  State
	Editor *value.Editor
}

// Handle runs the handlers of all aggregates that get an event whose handler is custom code, which may refuse it, or may take
// more work than there is. It returns their states after the commit.
func (x *Decision) Handle(ctx context.Context) ([]*Computed, error) {
	// Find the aggregates.
	byKey := map[j17.Key]*Computed{}
	var all []*Computed
	for i := range x.Events {
		o := &x.Events[i]
		if !MayRefuse(o.Spec, o.Data.Size()+len(o.Metadata)) || byKey[o.Key] != nil {
			continue
		}
		before, err := x.stateBefore(ctx, o.Key)
		if err != nil {
			return nil, err
		}
		byKey[o.Key] = &Computed{Key: o.Key, State: *before, Editor: value.NewEditor()}
		all = append(all, byKey[o.Key])
	}

	// Apply their events, in the order in which they will be stored.
	for i := range x.Events {
		o := &x.Events[i]
		c := byKey[o.Key]
		if c == nil {
			continue
		}
		err := x.d.Program(o.Key.Type).Apply(ctx, &c.State, c.Editor, o.Stored(x.Timestamp), x.Work, nil)
		c.State.Loose += len(o.JSON)
		switch {
		case err == nil:
		case j17.CodeOf(err) == j17.CodeWorkLimit:
			return nil, x.tooMuch(err, i, "its handler", inType(o.Spec, "handler"))
		case o.Cause >= 0:
			return nil, x.Reject(i, nil, o.At, err)
		default:
			return nil, x.inOwn(err, i)
		}
	}
	return all, nil
}

// inType is the place of a part of an event type in the spec.
func inType(et *spec.EventType, part string) diag.Pointer {
	return diag.Pointer("/aggregate_types").Key(et.AggregateType).Key("events").Key(et.Name).Key(part)
}
