package feed

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Subscriptions) []part.Metric {
	return []part.Metric{
		part.Counter("j17_subscription_events_total", "Events that subscriptions have passed.",
			func() uint64 { return s.Counts().Read }),
		part.Counter("j17_subscription_handled_total", "Events that were handed out to subscriptions and handled.",
			func() uint64 { return s.Counts().Handled }),
		part.Counter("j17_subscription_failed_total", "Calls of handlers of subscriptions that failed.",
			func() uint64 { return s.Counts().Failed }),
		part.Counter("j17_subscription_left_behind_total", "Calls of handlers that did not return when they had to.",
			func() uint64 { return s.Counts().LeftBehind }),
		part.Counter("j17_subscription_leases_taken_total", "Leases on the subscriptions of an environment that were acquired.",
			func() uint64 { return s.Counts().Taken }),
		part.Counter("j17_subscription_leases_lost_total", "Leases on the subscriptions of an environment that were lost to others.",
			func() uint64 { return s.Counts().Lost }),
		part.Counter("j17_subscription_checks_total", "Stretches of events that were compared with what subscriptions have passed.",
			func() uint64 { return s.Counts().Checked }),
		part.Counter("j17_subscription_gaps_total", "Stretches that did not match; what followed was handed out again.",
			func() uint64 { return s.Counts().Gaps }),
		part.Gauge("j17_subscription_environments", "Environments whose subscriptions this server processes now.",
			func() float64 { return float64(s.Counts().Held) }),
		part.Gauge("j17_subscription_lag_events", "Events that the subscriptions of these environments have not passed yet.",
			func() float64 { return float64(s.Counts().Behind) }),
	}
}
