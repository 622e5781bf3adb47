package part

import (
	"j17/internal/base/wire"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// Readiness tells how far what a spec needs is built.
type Readiness struct {
	Done bool
	// Failed says why it cannot be built.
	Failed string
	// Built of Total streams are done; Total is 0 until they are counted.
	Built, Total uint64
}

// Beside is what a spec means for the projections that were posted to an environment.
type Beside struct {
	// Invalid are those that are not valid under the spec, and go away if it is deployed by force; Taken those that
	// it declares itself.
	Invalid, Taken []string
	// Found has an error for each that is not valid, and a warning for each that is taken over.
	Found []diag.Diagnostic
	// Sides become durable together with the spec if Fences hold.
	Sides  []store.Side
	Fences []store.Fence
}

// Trial is what a spec would make of what an environment has.
type Trial struct {
	// Found is against deploying it.
	Found []diag.Diagnostic
	// Partial tells that there is more history than was looked at.
	Partial bool
	// Projections says what becomes of the rows of projections.
	Projections []wire.ProjectionTrial
}

// Add adds what is built for another part.
func (r *Readiness) Add(other Readiness) {
	r.Done, r.Built, r.Total = r.Done && other.Done, r.Built+other.Built, r.Total+other.Total
	if r.Failed == "" {
		r.Failed = other.Failed
	}
}

// Add adds what it means for another part.
func (b *Beside) Add(other *Beside) {
	b.Invalid, b.Taken = append(b.Invalid, other.Invalid...), append(b.Taken, other.Taken...)
	b.Found = append(b.Found, other.Found...)
	b.Sides, b.Fences = append(b.Sides, other.Sides...), append(b.Fences, other.Fences...)
}
