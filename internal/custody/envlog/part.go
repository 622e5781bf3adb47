package envlog

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns the logs of environments as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "envlog",
		Spaces: append(
			part.Spaces(keySpace, anchorSpace),
			// Tiles are verified by their tree, the others have checksums of their own.
			part.Space{Declared: store.Declared{Space: tileSpace}, Derived: true},
			part.Space{Declared: store.Declared{Space: positionSpace}, Derived: true, Check: check},
			part.Space{Declared: store.Declared{Space: headSpace}, Derived: true, Check: check},
			part.Space{Declared: store.Declared{Space: KeySpace}, Secret: true},
		),
		Work: part.Work{Run: s.Run},
	}
}
