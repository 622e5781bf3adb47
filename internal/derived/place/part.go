package place

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns what places are to the rest of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "place",
		Spaces: append(
			part.Spaces(slots, resets),
			part.Space{Declared: store.Declared{Space: places, OfStreams: true}},
			// Keys of entries have coordinates.
			part.Space{Declared: store.Declared{Space: cells, Whole: true}},
		),
		Commit:  part.Commit{Derive: s.Derive, Mend: s.Mend},
		Deploy:  part.Deploy{Adopt: s.Adopt, Await: s.Await, Forget: s.Forget},
		Erase:   part.Erase{Beside: s.Leave, Streams: s.Erase},
		Work:    part.Work{Run: s.Run},
		Metrics: metrics(s),
	}
}
