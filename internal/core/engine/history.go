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
	"j17/internal/storage/store"
)

// Step is the state after one operation of a handler.
type Step struct {
	// At is the place of the operation in the spec, or that of the handler if it is custom code.
	At    diag.Pointer
	State value.Value
}

// Made is one version of an aggregate: its event, the states before and after it, and the steps of its handler in
// between.
type Made struct {
	Event         *j17.Event
	Before, After value.Value
	Steps         []Step
}

// History calls each with up to count versions of an aggregate, from the given one on, and returns how many versions
// there are. The work on these versions is charged to the budget. A Made is valid until each returns. An error of each
// ends History, which returns it.
func (e *Engine) History(
	ctx context.Context, t j17.Tenant, aggregateType, id string, from uint64, count int, b *work.Budget,
	each func(Made) error,
) (length uint64, err error) {
	d, key, head, err := e.locate(ctx, t, aggregateType, id)
	if err != nil {
		return 0, err
	}
	if head.Length == 0 {
		return 0, notFound()
	}
	if from > head.Length {
		return head.Length, nil
	}

	// Load the state before the first of them.
	e.states.CountRead()
	typ := d.Program(key.Type)
	f := *typ.First()
	if from > 1 {
		s, err := e.states.State(
			ctx, t, typ, key, fold.Version{Length: from - 1, Generation: head.Generation}, true, false,
		)
		if err != nil {
			return 0, store.UserError(err)
		}
		whole, err := s.Whole(key.String())
		if err != nil {
			return 0, err
		}
		f = *whole
	}

	// Apply one event after the other.
	ed := value.NewEditor()
	replaying, name := sandbox.ForReplay(ctx), key.String()
	last := min(head.Length, from+uint64(count)-1)
	for ev, err := range e.store.ReadStream(ctx, t, key, from, last) {
		if err != nil {
			return 0, store.UserError(err)
		}
		if !b.SpendBytes(len(ev.Raw) + f.Data.Size()) {
			return 0, b.Err()
		}
		shown, te, err := upcast.Both(typ.AggregateType, ev, name, b)
		if err != nil {
			return 0, store.UserError(err)
		}
		made := Made{Event: shown, Before: f.Data}
		ed.Freeze()
		step := func(at diag.Pointer, state value.Value) { made.Steps = append(made.Steps, Step{at, state}) }
		if err := typ.Steps(replaying, &f, ed, &te, b, step); err != nil {
			return 0, store.UserError(decider.ReplayFailed(err, &te, f.Length+1))
		}
		made.After = f.Data
		if err := each(made); err != nil {
			return 0, err
		}
		if err := b.Err(); err != nil {
			return 0, err
		}
	}
	if f.Length != last {
		return 0, store.UserError(&store.CorruptionError{Where: key.String(), Err: fmt.Errorf("%d events were found where %d should be", f.Length, last)})
	}
	return head.Length, nil
}
