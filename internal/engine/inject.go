package engine

import (
	"context"
	"hash/maphash"

	"j17"
	"j17/internal/ident"
	"j17/internal/value"
)

// Injected tells what became of test data.
type Injected struct {
	// Events is the number of events in the file, Stored how many of them were written, Implied what they brought about.
	Events  int `json:"events"`
	Stored  int `json:"stored"`
	Implied int `json:"implied"`
	// Imported is Events under the name that all imports have.
	Imported int `json:"imported"`
}

// Inject writes the events of a file one by one, as if each had been posted: they happen now, and bring about what they imply.
// Events without an actor are those of the platform's importer of test data. A file with faults is refused before anything is
// written; what it returns beside a later error has been written. open begins to read the file, which is read twice.
func (e *Engine) Inject(ctx context.Context, t j17.Tenant, correlationID string, open func() (*EventReader, error)) (Injected, error) {
	d, err := e.deployed(t)
	if err != nil {
		return Injected{}, err
	}
	importer := j17.Agent{Type: ident.SystemActorType, ID: ident.TestDataImporter}
	c := &recorder{e: e, d: d, r: &Recording{Tenant: t, Open: open}, seed: maphash.MakeSeed()}
	c.examine = func(ctx context.Context, file *FileEvent) (*examined, error) {
		file.Metadata, file.trusted = withActor(file.Metadata, importer), true
		x, faults := d.examine(ctx, file)
		if len(faults) > 0 {
			return nil, faults[0]
		}
		switch {
		case file.Recorded, x.timestamp != nil:
			return nil, j17.Errorf(j17.CodeInvalidField, "Test data happen now and get positions of their own; leave 'stream_id' and 'timestamp' out, or import them as history").At("metadata")
		case file.Names != (j17.Names{}):
			return nil, j17.Errorf(j17.CodeInvalidField, "Aggregates of test data get names of their own; leave these out, or import them as history").At("key")
		}
		return x, nil
	}
	if err := c.units(ctx, func(context.Context, *pastUnit) error { return nil }); err != nil {
		return Injected{}, err
	}
	if err := c.refusal(); err != nil {
		return Injected{}, err
	}
	done := Injected{Events: c.done.Events, Imported: c.done.Events}
	err = c.units(ctx, func(ctx context.Context, u *pastUnit) error {
		for i := range u.events {
			file := &u.events[i].file
			receipt, err := e.Execute(ctx, &Command{
				Tenant: t, Type: file.AggregateType, ID: file.ID, EventType: file.Type, CorrelationID: correlationID, Trusted: true,
				Body: value.ObjectValue(value.Member{Key: "data", Value: file.Data}, value.Member{Key: "metadata", Value: file.Metadata}),
			})
			if err != nil {
				return j17.InEvent(err, u.events[i].index)
			}
			done.Stored++
			done.Implied += receipt.Implied
		}
		return nil
	})
	return done, err
}
