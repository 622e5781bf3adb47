package wire

// OrNull is a member of an answer that is null where it has no value.
func OrNull[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// Each returns the shapes of rows.
func Each[T, S any](rows []T, shape func(*T) S) []S {
	shapes := make([]S, len(rows))
	for i := range rows {
		shapes[i] = shape(&rows[i])
	}
	return shapes
}
