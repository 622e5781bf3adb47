package loading

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"j17"
	"j17/internal/decider"
	"j17/internal/engine"
	"j17/internal/store"
)

// ExportedEvent is a stored event as an export shows it.
type ExportedEvent struct {
	*j17.Event
	// Names is what the aggregate is called, with the first event of an aggregate only.
	j17.Names
}

// exportPage is how many events of a feed are read at once.
const exportPage = 1000

// Export yields the events of a tenant that stand after a position in the order in which they were stored, of one aggregate
// type or, for "", of all. It ends where there are no more, with an error if an export from the start has not found as many events
// as the store says there were when it began. An event is valid until the next step.
func (l *Loader) Export(ctx context.Context, t j17.Tenant, aggregateType string, after j17.StreamID) (iter.Seq2[ExportedEvent, error], error) {
	d, err := l.Engine.Decider(t)
	if err != nil {
		return nil, err
	}
	if aggregateType != "" {
		if _, err := d.AggregateType(aggregateType); err != nil {
			return nil, err
		}
	}

	// How many there are is compared with how many are found.
	from := after
	extent, err := l.Store.Extent(ctx, t)
	if err != nil {
		return nil, engine.StorageError(err)
	}
	return func(yield func(ExportedEvent, error) bool) {
		var found uint64
		for more := true; more; {
			more = false
			for ev, err := range l.Store.ReadFeed(ctx, t, after, exportPage) {
				if err != nil {
					yield(ExportedEvent{}, engine.StorageError(err))
					return
				}
				after, more = ev.StreamID, true
				if ev.StreamID.Compare(extent.Last) <= 0 {
					found++
				}
				if aggregateType != "" && ev.Key.Type != aggregateType {
					continue
				}
				out := ExportedEvent{Event: ev}
				if typ := d.Types[ev.Key.Type]; ev.Version == 1 && typ != nil && decider.Named(typ) {
					out.Names, err = l.Engine.Names(ctx, t, d, ev.Key)
				}
				if !yield(out, err) || err != nil {
					return
				}
			}
		}

		// What comes after a position is not counted, and an environment that was removed meanwhile has no events any more.
		if from != (j17.StreamID{}) || found == extent.Events {
			return
		}
		if now, err := l.Store.Extent(ctx, t); err != nil || now.Events >= extent.Events {
			yield(ExportedEvent{}, engine.StorageError(&store.CorruptionError{
				Where: "the events of " + string(t), Err: errors.Join(err, fmt.Errorf("%d were found of %d that were stored", found, extent.Events)),
			}))
		}
	}, nil
}
