package projection

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_projection_hits_total", "Values of projections that were served from the cache.",
			func() uint64 { return s.Stats().Hits }),
		part.Counter("j17_projection_misses_total", "Values of projections that were computed.",
			func() uint64 { return s.Stats().Misses }),
		part.Counter("j17_projection_waits_total", "Reads of projections that waited for a value that was being computed.",
			func() uint64 { return s.Stats().Shared }),
		part.Gauge("j17_projection_cache_bytes", "Memory that cached values of projections are charged for.",
			func() float64 { return float64(s.Stats().KeptBytes) }),
		part.Gauge("j17_projection_cache_values", "Values of projections that are cached.",
			func() float64 { return float64(s.Stats().Kept) }),
	}
}
