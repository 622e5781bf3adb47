package index

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_index_rows_total", "Rows that were computed because of events.",
			func() uint64 { return s.Stats().Rows }),
		part.Counter("j17_index_writes_total", "Writes of entries, of notes about them, and of rows.",
			func() uint64 { return s.Stats().Writes }),
		part.Counter("j17_index_batches_total", "Parts of feeds that indexes were brought up to date with.",
			func() uint64 { return s.Stats().Batches }),
		part.Counter(
			"j17_index_views_total", "Views of indexes that were opened.", func() uint64 { return s.Stats().Views },
		),
		part.Counter("j17_index_waits_total", "Views that had to wait until an index was up to date.",
			func() uint64 { return s.Stats().Waited }),
		part.Counter("j17_index_late_total", "Views whose wait for an index timed out.",
			func() uint64 { return s.Stats().Late }),
		part.Counter("j17_index_differences_total", "Indexes that differed from the events, and were rebuilt.",
			func() uint64 { return s.Stats().Differences }),
		part.Gauge("j17_index_fanouts", "Changes of many rows that are under way.",
			func() float64 { return float64(s.Stats().Fanouts) }),
		part.Gauge("j17_index_lag_seconds", "The age of the oldest event that an index does not show yet.",
			func() float64 { return s.Stats().Lag.Seconds() }),
	}
}
