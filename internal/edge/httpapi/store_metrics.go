package httpapi

import (
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// storeMetrics returns the metrics of a store. Those of a database are 0 for a store on a disk of this machine.
func storeMetrics(s Storage) []part.Metric {
	replicated := func(read func(r *store.Replication) float64) func() float64 {
		return func() float64 {
			if r := s.Status().Replication; r != nil {
				return read(r)
			}
			return 0
		}
	}
	all := []part.Metric{
		part.Gauge("j17_store_writable", "1 while the store takes writes.",
			func() float64 { return oneIf(s.Status().Writable) }),
		part.Gauge("j17_store_free_bytes", "Free space of the store's volume.",
			func() float64 { return float64(s.Status().FreeBytes) }),
		part.Gauge("j17_store_standbys", "Standbys of the database that commits wait for.",
			replicated(func(r *store.Replication) float64 { return float64(r.Standbys) })),
		part.Gauge("j17_store_lag_bytes", "By how much of the log the last of these standbys is behind.",
			replicated(func(r *store.Replication) float64 { return float64(r.LagBytes) })),
		part.Gauge("j17_store_async", "1 while settings of the database can lose what it has acknowledged.",
			replicated(func(r *store.Replication) float64 { return oneIf(r.Async) })),
		part.Gauge("j17_store_disk_bytes", "What the store occupies on disk.",
			func() float64 { return float64(s.DiskBytes()) }),
		part.Gauge("j17_store_filter_bytes", "Memory of the store's filters of tags and streams.",
			func() float64 { return float64(s.FilterBytes()) }),
	}
	return append(all, databaseMetrics(s)...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// databaseMetrics returns the metrics of what a store does on a database.
func databaseMetrics(s store.Monitoring) (all []part.Metric) {
	add := func(counter bool, name, help string, read func(f *store.Figures) float64, label ...string) {
		m := part.Metric{Name: name, Help: help, Counter: counter, Read: func() float64 {
			f := s.Figures()
			return read(&f)
		}}
		if len(label) > 0 {
			m = m.With(label[0], label[1])
		}
		all = append(all, m)
	}
	type figures = *store.Figures

	// Round trips and commits.
	for kind, of := range map[string]func(f figures) uint64{
		"write":  func(f figures) uint64 { return f.Trips.Write },
		"lookup": func(f figures) uint64 { return f.Trips.Lookup },
		"read":   func(f figures) uint64 { return f.Trips.Read },
		"other":  func(f figures) uint64 { return f.Trips.Other },
	} {
		add(true, "j17_store_trips_total", "Round trips to the database.",
			func(f figures) float64 { return float64(of(f)) }, "kind", kind)
	}
	add(true, "j17_store_batches_total", "Commits of the store to its database.",
		func(f figures) float64 { return float64(f.Batches) })
	add(true, "j17_store_units_total", "Writes that were decided in these commits.",
		func(f figures) float64 { return float64(f.Units) })
	add(true, "j17_store_commit_seconds_total", "How long these commits took.",
		func(f figures) float64 { return f.Commits.Seconds() })
	add(true, "j17_store_waits_total", "Calls that were taken to be written.",
		func(f figures) float64 { return float64(f.Waits) })
	add(true, "j17_store_wait_seconds_total", "How long these calls had waited.",
		func(f figures) float64 { return f.Waited.Seconds() })
	for outcome, of := range map[string]func(f figures) uint64{
		"committed":   func(f figures) uint64 { return f.Doubts.Committed },
		"not_written": func(f figures) uint64 { return f.Doubts.NotWritten },
		"unknown":     func(f figures) uint64 { return f.Doubts.Unknown },
	} {
		add(true, "j17_store_doubts_total", "Commits whose outcome the database did not tell.",
			func(f figures) float64 { return float64(of(f)) }, "outcome", outcome)
	}

	// What keeps old versions of rows, and how many there are.
	add(false, "j17_store_moments", "Snapshots that are open.", func(f figures) float64 { return float64(f.Moments) })
	add(true, "j17_store_moments_refused_total", "Snapshots that were refused since too many were open.",
		func(f figures) float64 { return float64(f.MomentsRefused) })
	add(false, "j17_store_oldest_snapshot_seconds", "Age of the oldest transaction that keeps dead rows.",
		func(f figures) float64 { return f.OldestSnapshot.Seconds() })
	for table, of := range map[string]func(d *store.DeadRows) int64{
		"tenants":  func(d *store.DeadRows) int64 { return d.Tenants },
		"events":   func(d *store.DeadRows) int64 { return d.Events },
		"tags":     func(d *store.DeadRows) int64 { return d.Tags },
		"items":    func(d *store.DeadRows) int64 { return d.Items },
		"commands": func(d *store.DeadRows) int64 { return d.Commands },
		"other":    func(d *store.DeadRows) int64 { return d.Other },
	} {
		add(false, "j17_store_dead_rows", "Rows that the database has still to remove.",
			func(f figures) float64 { return float64(of(&f.DeadRows)) }, "table", table)
	}
	return all
}
