package scrub

import (
	"j17/internal/core/part"
)

// Part returns what the search for damage is to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:    "scrub",
		Spaces:  part.Spaces(space),
		Work:    part.Work{Run: s.Run},
		Metrics: metrics(s),
	}
}
