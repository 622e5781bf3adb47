package build

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Counter("j17_build_streams_total", "Aggregates that builds have processed.",
			func() uint64 { return s.Stats().Streams }),
		part.Counter("j17_builds_ended_total", "Builds that have ended.",
			func() uint64 { return s.Stats().Ended }),
		part.Counter("j17_builds_failed_total", "Builds that have failed.", func() uint64 { return s.Stats().Failed }),
		part.Counter("j17_build_removed_total", "Items that were removed because nothing used them any longer.",
			func() uint64 { return s.Stats().Removed }),
		part.Gauge("j17_builds_running", "Builds that are at work.",
			func() float64 { return float64(s.Stats().Running) }),
	}
}

// tagMetrics returns the metrics of tags.
func tagMetrics(s *Tagger) []part.Metric {
	return []part.Metric{
		part.Counter("j17_tagging_events_total", "Older events that were processed because a deployment had changed tags.",
			func() uint64 { return s.Stats().Events }),
		part.Counter("j17_tagging_ended_total", "Times that all older events had the tags of a deployment.",
			func() uint64 { return s.Stats().Ended }),
	}
}
