package loading

import (
	"j17/internal/core/part"
)

// Part returns what loaded files are to the rest of the program.
func Part() part.Part {
	return part.Part{Name: "loading", Spaces: part.Spaces(recordedFiles)}
}
