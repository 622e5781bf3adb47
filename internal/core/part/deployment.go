package part

import (
	"context"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Readiness is the progress of building what a spec needs.
type Readiness struct {
	Done bool
	// Failed is why it cannot be built, "" if it can.
	Failed string
	// Kind is what is not built yet, "" for indexes and sets: TrialKind while stored events are tried.
	Kind string
	// Built of Total streams, or events, are done; Total is 0 until they are counted.
	Built, Total uint64
}

// TrialKind is the Kind of a Readiness while stored events are tried.
const TrialKind = "trial"

// Beside is the effect of a spec on the projections that were posted to an environment.
type Beside struct {
	// Invalid are those that are not valid under the spec, and are removed if it is deployed by force; Taken those that
	// it declares itself.
	Invalid, Taken []string
	// Found has an error for each that is not valid, and a warning for each that is taken over.
	Found []diag.Diagnostic
	// Sides become durable together with the spec if Fences hold.
	Sides  []store.Side
	Fences []store.Fence
}

// Asked is what a request for a deployment, or for a dry run, asks for.
type Asked struct {
	// Rows is how many rows of each projection a dry run compares at most.
	Rows int
	// Failures is how many stored events an answer lists that fail; 0 leaves it to the part.
	Failures int
	// Force deploys although stored events may not survive it.
	Force bool
}

// Filling builds what has to exist when a spec comes into force.
type Filling struct {
	// Follow builds most of it while events are written. It is called again if that has taken others long.
	Follow func(ctx context.Context) error
	// Finish builds the rest. With Hold no events are written from then on until the spec is stored.
	Finish func(ctx context.Context) (Filled, error)
	Hold   bool
	// End is called once, when the spec is stored, or with the error of the deployment.
	End func(ctx context.Context, err error)
}

// Filled is what a Filling has built: the writes that put it into force together with the spec, the diagnostics against
// the deployment, and the stored events that were tried, nil for none.
type Filled struct {
	Sides []store.Side
	Found []diag.Diagnostic
	Tried *wire.SpecTrial
}

// Fill builds what fillings build, and calls commit, which stores a spec with it. If one of them needs it, hold keeps
// events from being written meanwhile.
func Fill(
	ctx context.Context, all []*Filling, hold func(do func() error) error, commit func(*Filled) error,
) (err error) {
	defer func() { Ended(ctx, all, err) }()
	held := false
	for _, f := range all {
		held = held || f.Hold
	}

	// What one of them misses while others follow is built before events have to wait.
	for range min(len(all), 2) {
		for _, f := range all {
			if err := f.Follow(ctx); err != nil {
				return err
			}
		}
	}
	finish := func() error {
		var filled Filled
		for _, f := range all {
			more, err := f.Finish(ctx)
			if err != nil {
				return err
			}
			filled.Sides, filled.Found = append(filled.Sides, more.Sides...), append(filled.Found, more.Found...)
			if more.Tried != nil {
				filled.Tried = more.Tried
			}
		}
		return commit(&filled)
	}
	if !held {
		return finish()
	}
	return hold(finish)
}

// Ended tells fillings how their deployment has ended.
func Ended(ctx context.Context, all []*Filling, err error) {
	for _, f := range all {
		f.End(ctx, err)
	}
}

// Trial is the result of trying a spec on the data of an environment.
type Trial struct {
	// Found are the diagnostics against deploying it.
	Found []diag.Diagnostic
	// Partial reports that there is more history than was examined.
	Partial bool
	// Projections describes the changes of the rows of projections.
	Projections []wire.ProjectionTrial
	// Tried counts the stored events that were tried, nil for none, and Failures has those that fail.
	Tried    *wire.SpecTrial
	Failures []j17.FieldError
}

// Add adds the readiness of another part.
func (r *Readiness) Add(other Readiness) {
	r.Done, r.Built, r.Total = r.Done && other.Done, r.Built+other.Built, r.Total+other.Total
	if r.Failed == "" {
		r.Failed = other.Failed
	}
	if r.Kind == "" {
		r.Kind = other.Kind
	}
}

// Add adds the results of another part.
func (b *Beside) Add(other *Beside) {
	b.Invalid, b.Taken = append(b.Invalid, other.Invalid...), append(b.Taken, other.Taken...)
	b.Found = append(b.Found, other.Found...)
	b.Sides, b.Fences = append(b.Sides, other.Sides...), append(b.Fences, other.Fences...)
}
