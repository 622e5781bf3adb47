package checkpoint

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns checkpoints as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "checkpoint",
		Spaces: append(
			part.Spaces(named, namedIDs, roots, rootIDs, counts, hours, jobs, settings),
			part.Space{Declared: store.Declared{Space: states, OfStreams: true}, Check: checkKept},
		),
		Erase: part.Erase{Streams: s.Erase},
		Work:  part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
	}
}
