package loading

import (
	"cmp"
	"context"
	"hash/maphash"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
)

// Injected is the result of injecting test data.
type Injected struct {
	// Events is the number of events in the file, Stored how many of them were written, Implied how many events they
	// implied.
	Events  int `json:"events"`
	Stored  int `json:"stored"`
	Implied int `json:"implied"`
	// Imported is Events under the name that all imports have.
	Imported int `json:"imported"`
}

// Inject writes the events of a file one by one, as if each had been posted: they happen now, with all their
// implications. Events without an actor get the platform's importer of test data as theirs. A file with faults is
// refused before anything is written; a result that is returned with a later error has been written. open begins to
// read the file, which is read twice.
func (l *Loader) Inject(
	ctx context.Context, t j17.Tenant, correlationID string, open func() (*command.FileReader, error),
) (Injected, error) {
	d, err := l.Engine.Decider(t)
	if err != nil {
		return Injected{}, err
	}

	// Nothing of a file with faults is written.
	importer := j17.Agent{Type: ident.SystemActorType, ID: ident.TestDataImporter}
	c := &recorder{Loader: l, d: d, r: &History{Tenant: t, Open: open}, keeps: true, seed: maphash.MakeSeed()}
	c.examine = func(ctx context.Context, file *command.FileEvent) (*decider.Examined, error) {
		file.WithActor(importer)
		file.Trusted = true
		x, faults := d.Examine(ctx, file)
		if len(faults) > 0 {
			return nil, faults[0]
		}
		switch {
		case file.Stored, x.Timestamp != nil:
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

	// Each event is written as if it had been posted.
	done := Injected{Events: c.done.Events, Imported: c.done.Events}
	err = c.units(ctx, func(ctx context.Context, u *pastUnit) error {
		for i := range u.events {
			written, _, err := u.events[i].file.Command()
			if err != nil {
				return j17.InEvent(err, u.events[i].index)
			}
			written.CorrelationID = cmp.Or(written.CorrelationID, correlationID)
			receipt, err := l.Engine.Execute(ctx, &engine.Command{Tenant: t, Command: written})
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
