package loading

import (
	"j17/internal/core/part"
)

// Part returns loading as a part of the program.
func Part() part.Part {
	return part.Part{Name: "loading", Spaces: part.Spaces(recordedFiles)}
}
