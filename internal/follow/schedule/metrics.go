package schedule

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_scheduled_created_total", "Events that were scheduled for later.",
			func() uint64 { return s.Stats().Created }),
		part.Counter("j17_scheduled_fired_total", "Scheduled events that were written when they were due.",
			func() uint64 { return s.Stats().Fired }),
		part.Counter("j17_scheduled_canceled_total", "Scheduled events that were cancelled.",
			func() uint64 { return s.Stats().Canceled }),
		part.Counter("j17_scheduled_refused_total", "Scheduled events that their aggregates refused.",
			func() uint64 { return s.Stats().Refused }),
		part.Counter("j17_scheduled_dead_lettered_total", "Scheduled events that were given up.",
			func() uint64 { return s.Stats().DeadLettered }),
	}
}
