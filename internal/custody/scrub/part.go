package scrub

import (
	"j17/internal/core/part"
)

// Part returns the search for damage as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:    "scrub",
		Spaces:  part.Spaces(space),
		Work:    part.Work{Run: s.Run},
		Metrics: metrics(s),
	}
}
