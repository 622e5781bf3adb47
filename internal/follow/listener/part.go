package listener

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what listeners are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "listener",
		Spaces: append(
			part.Spaces(laneSpace, behindSpace, listSpace, failedSpace, eventSpace, replaySpace, noticeSpace),
			part.Space{Declared: store.Declared{Space: stateSpace}, Sealed: part.Always, Open: withoutSecrets},
			// Answers of endpoints.
			part.Space{Declared: store.Declared{Space: logSpace, OfStreams: true}},
			part.Space{Declared: store.Declared{Space: deliverySpace, Whole: true}},
		),
		Deploy:  part.Deploy{Prepare: s.Prepare, Adopt: s.Adopted},
		Erase:   part.Erase{Streams: s.Erase},
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
