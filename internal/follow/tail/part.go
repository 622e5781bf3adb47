package tail

import (
	"j17/internal/core/part"
)

// Part returns what streams of events are to the rest of the program.
func (t *Tail) Part() part.Part {
	return part.Part{
		Name:    "tail",
		Erase:   part.Erase{Gone: t.Touch},
		Metrics: metrics(t),
	}
}
