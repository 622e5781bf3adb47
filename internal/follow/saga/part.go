package saga

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what sagas are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "saga",
		Spaces: append(
			part.Spaces(
				listSpace, workSpace, waitSpace, knownSpace, countSpace, causeSpace, arrivalSpace, queueSpace,
				admissionSpace,
			),
			// A saga only stores the positions of events; errors stored by an older version may contain more.
			part.Space{Declared: store.Declared{Space: rowSpace, Whole: true}},
		),
		Commit:  part.Commit{Effects: s.Effects},
		Erase:   part.Erase{Streams: s.Erase},
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
