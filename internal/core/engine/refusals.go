package engine

import (
	"fmt"

	"j17"
	"j17/internal/storage/store"
)

// conflictDetails are the details of a conflict.
type conflictDetails struct {
	Expected uint64 `json:"expected"`
	Actual   uint64 `json:"actual"`
}

func conflict(c store.StreamConflict) error {
	return &j17.Error{
		Code:    j17.CodeConflict,
		Message: fmt.Sprintf("Concurrent write detected. Stream has %d events, expected %d.", c.Actual, c.Expected),
		Details: conflictDetails{Expected: c.Expected, Actual: c.Actual},
	}
}

func preconditionFailed() error {
	return j17.Errorf(j17.CodePreconditionFailed, "The aggregate is no longer the one that If-Match names. Read it again and decide again.")
}
