package listener

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_deliveries_delivered_total", "Attempts of deliveries that a listener accepted.",
			func() uint64 { return s.Counts().Delivered }),
		part.Counter("j17_deliveries_retried_total", "Attempts of deliveries that failed and are retried.",
			func() uint64 { return s.Counts().Retried }),
		part.Counter("j17_deliveries_failed_total", "Deliveries that were given up.",
			func() uint64 { return s.Counts().Failed }),
		part.Counter("j17_listeners_disabled_total", "Listeners that were disabled because their endpoints answered that they are gone.",
			func() uint64 { return s.Counts().Disabled }),
		part.Gauge("j17_deliveries_in_flight", "Attempts of deliveries under way.",
			func() float64 { return float64(s.Counts().InFlight) }),
	}
}
