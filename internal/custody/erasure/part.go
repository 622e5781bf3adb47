package erasure

import (
	"j17/internal/core/part"
)

// Part returns erasure as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:   "erasure",
		Spaces: part.Spaces(rows, lists, aggregates, reached, executions, certificates),
		Work:   part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
	}
}
