package schedule

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what scheduled events are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "schedule",
		Spaces: append(
			part.Spaces(
				ids, counts, waiting, marks, watched, enders, ended,
				Pending.space(), Fired.space(), Canceled.space(), Refused.space(), DeadLetter.space(),
			),
			// A row has data of the aggregate that scheduled its event, and of the one that the event is for.
			part.Space{Declared: store.Declared{Space: rows, OfStreams: true, Whole: true}},
		),
		Commit:  part.Commit{Effects: s.Effects},
		Deploy:  part.Deploy{Forget: s.Forget},
		Erase:   part.Erase{Streams: s.Erase},
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
