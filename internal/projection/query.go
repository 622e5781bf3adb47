package projection

import (
	"context"

	"j17"
	"j17/internal/spec"
)

// query returns the ids of the aggregates that a query of a row finds.
func (e *evaluation) query(_ context.Context, _ *row, _ *spec.Query) ([]string, error) {
	return nil, j17.Errorf(j17.CodeIndexNotReady, "Queries are not served yet")
}

// unmoved reports whether the queries of a value still find what they have found.
func (s *Service) unmoved(_ context.Context, _ *reading, _ *definition, v *Value) (bool, error) {
	return len(v.Sets) == 0, nil
}
