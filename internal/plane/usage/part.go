package usage

import (
	"j17/internal/core/part"
)

// Part returns the metering of usage as a part of the program.
func (m *Meter) Part() part.Part {
	return part.Part{
		Name:   "usage",
		Spaces: part.Spaces(daySpace, totalSpace, alertSpace),
		Work:   part.Work{Run: m.Run},
	}
}
