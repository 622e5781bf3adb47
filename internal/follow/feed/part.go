package feed

import (
	"j17/internal/core/part"
)

// Part returns what subscriptions to feeds are to the rest of the program.
func (s *Subscriptions) Part() part.Part {
	return part.Part{
		Name:    "feed",
		Spaces:  part.Spaces(subscriptions, marks, leases),
		Work:    part.Work{Run: s.Run, NextDue: s.NextDue, Settle: s.Settle},
		Metrics: metrics(s),
	}
}
