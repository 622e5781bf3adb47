package build

import (
	"j17/internal/core/part"
)

// Part returns what builds are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:    "build",
		Spaces:  part.Spaces(jobSpace, progressSpace, removalSpace),
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}

// Part returns what the tags of older events are to the rest of the program.
func (s *Tagger) Part() part.Part {
	return part.Part{
		Name:    "tagging",
		Spaces:  part.Spaces(tagSpace),
		Commit:  part.Commit{Derive: s.Derive, Tagged: s.Tagged},
		Deploy:  part.Deploy{Adopt: s.Adopt, Await: s.Await, Forget: s.Forget},
		Metrics: tagMetrics(s),
	}
}
