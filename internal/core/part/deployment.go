package part

import (
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
	// Invalid are those that are not valid under the spec, and go away if it is deployed by force; Taken those that it declares itself.
	Invalid, Taken []string
	// Found has an error for each that is not valid, and a warning for each that is taken over.
	Found []diag.Diagnostic
	// Sides become durable together with the spec if Fences hold.
	Sides  []store.Side
	Fences []store.Fence
}
