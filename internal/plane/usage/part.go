package usage

import (
	"j17/internal/core/part"
)

// Part returns what the count of what instances use is to the rest of the program.
func (m *Meter) Part() part.Part {
	return part.Part{
		Name:   "usage",
		Spaces: part.Spaces(daySpace, totalSpace, alertSpace),
		Work:   part.Work{Run: m.Run},
	}
}
