package engine

import "j17/internal/core/part"

// metrics returns the metrics of the engine.
func metrics(e *Engine) []part.Metric {
	return []part.Metric{
		part.Counter("j17_events_committed_total", "Events written, implied ones included.",
			func() uint64 { return e.Stats().Events }),
		{
			Name: "j17_upcast_writes_total", Help: "Events that clients sent in an older generation of their type.",
			Counter: true, Varying: []string{"type", "generation"},
			Each: func() []part.Labeled { return e.counts.older.read() },
		},
		part.Counter("j17_events_folded_total", "Events that handlers were applied to.",
			func() uint64 { return e.Stats().Folded }),
		part.Counter("j17_states_read_total", "States of aggregates served.", func() uint64 { return e.Stats().Reads }),
		part.Counter("j17_state_cache_hits_total", "States served without folding an event.",
			func() uint64 { return e.Stats().CacheHits }),
		part.Counter("j17_conflicts_total", "Commands refused with a conflict.",
			func() uint64 { return e.Stats().Conflicts }),
		part.Counter(
			"j17_turns_total", "Writes that waited for their turn.", func() uint64 { return e.Stats().Waited },
		),
		part.Counter("j17_replanned_total", "Writes that conflicted with concurrent writes and were decided again.",
			func() uint64 { return e.Stats().Replanned }),
		part.Counter("j17_busy_total", "Writes refused because their turn had not come in time.",
			func() uint64 { return e.Stats().Busy }),
		part.Counter("j17_background_folds_total", "States whose computation went on in the background.",
			func() uint64 { return e.Stats().Background }),
		part.Counter("j17_states_not_ready_total", "Requests refused because a state was not computed in time.",
			func() uint64 { return e.Stats().NotReady }),
		part.Counter("j17_snapshots_total", "Snapshots written.", func() uint64 { return e.Stats().Snapshots }),
		part.Gauge("j17_state_cache_bytes", "Memory that cached states are charged for.",
			func() float64 { return float64(e.Stats().CacheBytes) }),
	}
}
