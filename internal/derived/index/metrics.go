package index

import "j17/internal/core/part"

// metrics are what is counted and measured of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_index_rows_total", "Rows that were computed because of events.",
			func() uint64 { return s.Stats().Rows }),
		part.Counter("j17_index_writes_total", "Writes of entries, of notes about them, and of rows.",
			func() uint64 { return s.Stats().Writes }),
		part.Counter("j17_index_batches_total", "Parts of feeds that indexes were brought up to date with.",
			func() uint64 { return s.Stats().Batches }),
		part.Counter("j17_index_views_total", "Looks at indexes.", func() uint64 { return s.Stats().Views }),
		part.Counter("j17_index_waits_total", "Looks that had to wait until an index was up to date.",
			func() uint64 { return s.Stats().Waited }),
		part.Counter("j17_index_late_total", "Looks that have waited in vain.",
			func() uint64 { return s.Stats().Late }),
		part.Counter("j17_index_differences_total", "Indexes that were not as they should be, and were built anew.",
			func() uint64 { return s.Stats().Differences }),
		part.Gauge("j17_index_fanouts", "Changes of many rows that are under way.",
			func() float64 { return float64(s.Stats().Fanouts) }),
		part.Gauge("j17_index_lag_seconds", "For how long the event has waited that waits longest for an index to show it.",
			func() float64 { return s.Stats().Lag.Seconds() }),
	}
}
