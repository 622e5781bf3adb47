package engine

import (
	"context"
	"fmt"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/code/sandbox"
	"j17/internal/core/decider"
	"j17/internal/core/fold"
	"j17/internal/core/upcast"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// Replayed has the functions that Replay calls for the events of one aggregate. Each may be nil.
type Replayed struct {
	// Before is called for each event with the state before it. An error of Before ends the replay.
	Before func(id j17.StreamID, ev *tick.Event, state value.Value) error
	// Fault is called for each operation of a handler that did not change what it was meant to change; length is the
	// event's number, from 1. The diagnostic's pointer and place are those of the operation in the spec.
	Fault func(length uint64, eventType string, d diag.Diagnostic)
	// Beyond is called for each event that takes more work than one event may. If it returns true, the replay goes on
	// without the event, to find the others; the error of the first one is returned all the same.
	Beyond func(length uint64, eventType string) bool
}

// Replay returns the state of an aggregate after its first length events under a spec, which need not be the deployed
// one, with the functions of its custom code. It caches nothing.
func (e *Engine) Replay(
	ctx context.Context, t j17.Tenant, c *spec.Compiled, functions decider.Functions, key j17.Key, length uint64,
	told Replayed,
) (value.Value, error) {
	typ := c.Types[key.Type]
	if typ == nil {
		return value.Value{},
			j17.Errorf(j17.CodeUnknownType, "Aggregate type '%s' not found in spec", j17.Printable(key.Type))
	}
	if length == 0 {
		return decider.NewProgram(typ, functions).First().Data, nil
	}

	// Apply one event after the other, without those that take too much work if Beyond allows it.
	p := decider.NewProgram(typ, functions)
	f, ed, b := *p.First(), value.NewEditor(), work.New(ctx, work.Replay)
	replaying, name := sandbox.ForReplay(ctx), key.String()
	var beyond error
	for ev, err := range e.store.ReadStream(ctx, t, key, 1, length) {
		if err != nil {
			return value.Value{}, store.UserError(err)
		}
		if f.Length%fold.ContextEvery == 0 && ctx.Err() != nil {
			return value.Value{}, ctx.Err()
		}
		b.Renew(work.Replay)
		te, err := upcast.Read(typ, ev, name, b)
		if err != nil {
			return value.Value{}, store.UserError(err)
		}
		var faults func(tick.Fault)
		if told.Fault != nil {
			faults = func(fault tick.Fault) { told.Fault(f.Length+1, te.Type, decider.Diagnose(c, fault)) }
		}
		if told.Before != nil {
			if err := told.Before(ev.StreamID, &te, f.Data); err != nil {
				return value.Value{}, err
			}
		}
		err = p.Apply(replaying, &f, ed, &te, b, faults)
		switch {
		case err == nil:
			continue
		case j17.CodeOf(err) == j17.CodeWorkLimit && told.Beyond != nil && told.Beyond(f.Length+1, te.Type):
			if beyond == nil {
				beyond = decider.ReplayFailed(err, &te, f.Length+1)
			}
			f.Pass(ed, &te)
		default:
			return value.Value{}, store.UserError(decider.ReplayFailed(err, &te, f.Length+1))
		}
	}

	// Check that all events were there.
	switch {
	case beyond != nil:
		return value.Value{}, beyond
	case f.Length != length:
		return value.Value{}, store.UserError(&store.CorruptionError{Where: key.String(), Err: fmt.Errorf("%d events were found where %d should be", f.Length, length)})
	}
	return f.Data, nil
}
