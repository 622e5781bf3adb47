package projection

import (
	"j17/internal/core/part"
)

// Part returns what projections are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:   "projection",
		Spaces: part.Spaces(postedSpace, headSpace, preparedSpace),
		Deploy: part.Deploy{
			Beside: s.Beside, Try: s.try, Ready: s.Ready, Unready: s.Unready,
			Adopt: s.adopted, Await: s.await, Forget: s.Forget,
		},
		Erase:   part.Erase{Streams: s.Erase},
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
