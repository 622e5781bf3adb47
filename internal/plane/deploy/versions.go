package deploy

import (
	"context"
	"errors"
	"iter"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/engine"
	"j17/internal/lang/tick"
)

// maxTold is how many bytes of states a dry run compares at most to find out since when they differ.
const maxTold = 64 << 20

// versions returns the lengths at which the two states of an aggregate first and last differ, given that they differ at
// length; nil if finding out takes too much.
func (d *dryRun) versions(ctx context.Context, key j17.Key, length uint64) []uint64 {
	done := errors.New("done")
	states := func(under deployed, each func(state value.Value) bool) {
		_, _ = d.engine.Replay(ctx, d.tenant, under.compiled, under.code.functions, key, length, engine.Replayed{
			// both states were computed before
			Before: func(_ j17.StreamID, _ *tick.Event, state value.Value) error {
				if !each(state) {
					return done
				}
				return nil
			},
		})
	}

	// Replay both step by step, until they differ.
	next, stop := iter.Pull(func(yield func(value.Value) bool) { states(d.before, yield) })
	defer stop()
	met, first := uint64(0), length
	states(d.after, func(is value.Value) bool {
		was, ok := next()
		if !ok {
			return false
		}
		d.told += int64(was.Size() + is.Size())
		if d.told > maxTold {
			return false
		}
		if met++; met > 1 && !value.Equal(was, is) { // there is no state before the first event
			first = met - 1
			return false
		}
		return true
	})
	if d.told > maxTold || ctx.Err() != nil {
		return nil
	}
	return []uint64{first, length}
}
