package tail

import "j17/internal/core/part"

// metrics returns the metrics of the part.
func metrics(t *Tail) []part.Metric {
	return []part.Metric{
		part.Counter("j17_stream_batches_total", "Batches of streams that were woken one after the other, where an event went to very many.",
			func() uint64 { return t.Stats().Batches }),
		part.Gauge("j17_feeds_followed", "Environments whose feeds are followed for streams.",
			func() float64 { return float64(t.Stats().Followed) }),
		part.Gauge("j17_feed_kept_bytes", "Memory of events that streams have not taken yet.",
			func() float64 { return float64(t.Stats().KeptBytes) }),
	}
}
