package part

import (
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Readiness is the progress of building what a spec needs.
type Readiness struct {
	Done bool
	// Failed is why it cannot be built, "" if it can.
	Failed string
	// Built of Total streams are done; Total is 0 until they are counted.
	Built, Total uint64
}

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

// Trial is the result of trying a spec on the data of an environment.
type Trial struct {
	// Found are the diagnostics against deploying it.
	Found []diag.Diagnostic
	// Partial reports that there is more history than was examined.
	Partial bool
	// Projections describes the changes of the rows of projections.
	Projections []wire.ProjectionTrial
}

// Add adds the readiness of another part.
func (r *Readiness) Add(other Readiness) {
	r.Done, r.Built, r.Total = r.Done && other.Done, r.Built+other.Built, r.Total+other.Total
	if r.Failed == "" {
		r.Failed = other.Failed
	}
}

// Add adds the results of another part.
func (b *Beside) Add(other *Beside) {
	b.Invalid, b.Taken = append(b.Invalid, other.Invalid...), append(b.Taken, other.Taken...)
	b.Found = append(b.Found, other.Found...)
	b.Sides, b.Fences = append(b.Sides, other.Sides...), append(b.Fences, other.Fences...)
}
