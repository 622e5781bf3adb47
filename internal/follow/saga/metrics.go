package saga

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_sagas_started_total", "Sagas that began to run.", func() uint64 { return s.Stats().Started }),
		part.Counter("j17_sagas_queued_total", "Sagas that had to wait for room before they began.",
			func() uint64 { return s.Stats().Queued }),
		part.Counter("j17_sagas_completed_total", "Sagas that have completed.",
			func() uint64 { return s.Stats().Completed }),
		part.Counter("j17_sagas_failed_total", "Sagas that have failed, with all their steps undone.",
			func() uint64 { return s.Stats().Failed }),
		part.Counter("j17_sagas_dead_lettered_total", "Sagas that were given up: a compensation was refused, or they could not be carried on.",
			func() uint64 { return s.Stats().DeadLettered }),
		part.Counter("j17_sagas_retried_total", "Sagas that an operator retried.",
			func() uint64 { return s.Stats().Retried }),
		part.Counter("j17_saga_events_total", "Events written by sagas.", func() uint64 { return s.Stats().Events }),
		part.Counter("j17_saga_compensations_total", "Events of sagas that undid a step.",
			func() uint64 { return s.Stats().Compensations }),
		part.Counter("j17_saga_timeouts_total", "Steps of sagas whose answer did not come in time.",
			func() uint64 { return s.Stats().TimedOut }),
	}
}
