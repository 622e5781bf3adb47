package index

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what indexes are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "index",
		Spaces: append(
			part.Spaces(headSpace, countSpace),
			// Their order is not that of streams. Slots name the sets that a change of many rows is about.
			part.Space{Declared: store.Declared{Space: entrySpace, Whole: true}},
			part.Space{Declared: store.Declared{Space: rowSpace, Whole: true}},
			part.Space{Declared: store.Declared{Space: sourceSpace, Whole: true}},
			part.Space{Declared: store.Declared{Space: slotSpace, Whole: true}},
		),
		Deploy:  part.Deploy{Forget: s.Forget},
		Erase:   part.Erase{Streams: s.Erase, Waits: true},
		Work:    part.Work{Run: s.Run},
		Metrics: metrics(s),
	}
}
