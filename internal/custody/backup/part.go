package backup

import (
	"j17/internal/core/part"
)

// Part returns backups as a part of the program.
func (s *Service) Part() part.Part {
	return part.Part{
		Name:    "backup",
		Spaces:  part.Spaces(rowSpace, idSpace, unfinishedSpace, dueSpace, settingsSpace, erasedSpace),
		Erase:   part.Erase{Streams: s.Erase},
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
