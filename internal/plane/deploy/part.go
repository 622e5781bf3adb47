package deploy

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// Part returns deployment as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name: "deploy",
		// Sources may have headers of listeners.
		Spaces: []part.Space{{Declared: store.Declared{Space: preparedSpace}, Sealed: part.Always}},
		Deploy: part.Deploy{Renew: s.Renew},
		Work:   part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
	}
}
