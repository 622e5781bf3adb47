package place

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_places_written_total", "Places of aggregates that were written with their events.",
			func() uint64 { return s.Stats().Written }),
		part.Counter("j17_place_rebuilds_total", "Times that the places of an environment differed from its events, and were rebuilt.",
			func() uint64 { return s.Stats().Rebuilt }),
		part.Counter("j17_place_queries_total", "Queries of places that were answered, by page.",
			func() uint64 { return s.Stats().Queries }),
		part.Counter("j17_place_entries_read_total", "Entries and records that were read to answer them.",
			func() uint64 { return s.Stats().Scanned }),
	}
}
