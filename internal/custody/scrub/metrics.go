package scrub

import "j17/internal/core/part"

// metrics are the metrics of the part.
func metrics(s *Service) []part.Metric {
	return []part.Metric{
		part.Gauge("j17_scrub_damaged", "Places in what is stored that are known to be damaged.",
			func() float64 { return float64(len(s.Status().Damaged)) }),
		part.Gauge("j17_scrub_pass", "The number of the pass over everything that is under way, or of the last one.",
			func() float64 { return float64(s.Status().Pass.Number) }),
		part.Gauge("j17_scrub_pass_bytes", "Bytes that this pass has looked at.",
			func() float64 { return float64(s.Status().Pass.Bytes) }),
		part.Gauge("j17_scrub_pass_events", "Events that this pass has looked at.",
			func() float64 { return float64(s.Status().Pass.Events) }),
		part.Gauge("j17_scrub_last_ended_seconds", "When the last pass has come to its end, in Unix seconds; 0 before the first one.", func() float64 {
			if last := s.Status().Last; last != nil {
				return float64(last.EndedAt.Unix())
			}
			return 0
		}),
	}
}
