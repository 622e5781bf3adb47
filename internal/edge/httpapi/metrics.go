package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"j17/internal/core/worker"
	"j17/internal/custody/backup"
	"j17/internal/derived/index"
)

// metrics are what /metrics on the internal listener shows.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	// known has what was counted before, since finding a metric by its labels takes much longer than to count.
	mu    sync.RWMutex
	known map[answered]counters
}

// answered is what the metrics tell requests apart by: few combinations, since routes are patterns.
type answered struct {
	method, route string
	status        int
}

// counters is what a request counts in.
type counters struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

func newMetrics(a *API) *metrics {
	// What requests count.
	m := &metrics{
		registry: prometheus.NewRegistry(), known: map[answered]counters{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "j17_http_requests_total", Help: "Answered HTTP requests.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "j17_http_request_seconds", Help: "Time from the start of a request to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"method", "route"}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.requests, m.seconds)
	if a.Worker != nil {
		m.registry.MustRegister(backgroundWork{a.Worker})
	}

	// What the parts of the server count by themselves, read when somebody asks.
	counter := func(name, help string, read func() uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(read()) }))
	}
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "j17_build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": a.Version},
	}, func() float64 { return 1 }))
	counter("j17_events_committed_total", "Events written, implied ones included.", func() uint64 { return a.Engine.Stats().Events })
	counter("j17_events_folded_total", "Events that handlers were applied to.", func() uint64 { return a.Engine.Stats().Folded })
	counter("j17_states_read_total", "States of aggregates served.", func() uint64 { return a.Engine.Stats().Reads })
	counter("j17_state_cache_hits_total", "States served without folding an event.", func() uint64 { return a.Engine.Stats().CacheHits })
	counter("j17_conflicts_total", "Commands refused with a conflict.", func() uint64 { return a.Engine.Stats().Conflicts })
	counter("j17_turns_total", "Writes that waited for their turn.", func() uint64 { return a.Engine.Stats().Waited })
	counter("j17_replanned_total", "Writes that others had overtaken and that were decided anew.", func() uint64 { return a.Engine.Stats().Replanned })
	counter("j17_busy_total", "Writes refused because their turn had not come in time.", func() uint64 { return a.Engine.Stats().Busy })
	counter("j17_background_folds_total", "States whose computation went on in the background.", func() uint64 { return a.Engine.Stats().Background })
	counter("j17_states_not_ready_total", "Requests refused because a state was not computed in time.", func() uint64 { return a.Engine.Stats().NotReady })
	counter("j17_snapshots_total", "Snapshots written.", func() uint64 { return a.Engine.Stats().Snapshots })
	counter("j17_stream_events_total", "Events sent to streams.", a.streams.sent.Load)
	counter("j17_streams_cut_total", "Streams that ended because the client took nothing.", a.streams.cut.Load)
	counter("j17_live_passes_total", "Times that was read what live views show.", a.streams.passes.read.Load)
	counter("j17_live_shared_total", "Times that a live view got what was read for another one.", a.streams.passes.shared.Load)
	counter("j17_live_rows_compared_total", "Rows that were compared to find out which ones of a live list have changed.", a.streams.passes.compared.Load)
	counter("j17_stream_batches_total", "Batches of streams that were woken one after the other, where an event went to very many.", func() uint64 { return a.Tail.Stats().Batches })
	gauge("j17_streams", "Event streams that are open, and pages that wait for an event.", func() float64 { return float64(a.streams.count()) })
	gauge("j17_feeds_followed", "Environments whose feeds are followed for streams.", func() float64 { return float64(a.Tail.Stats().Followed) })
	gauge("j17_feed_kept_bytes", "Memory of events that streams have not taken yet.", func() float64 { return float64(a.Tail.Stats().KeptBytes) })
	if a.Places != nil {
		counter("j17_places_written_total", "Places of aggregates that were written with their events.", func() uint64 { return a.Places.Stats().Written })
		counter("j17_place_rebuilds_total", "Times that the places of an environment were not as they should be, and were made anew.", func() uint64 { return a.Places.Stats().Rebuilt })
		counter("j17_place_queries_total", "Questions about places that were answered, by page.", func() uint64 { return a.Places.Stats().Queries })
		counter("j17_place_entries_read_total", "Entries and records that were looked at to answer them.", func() uint64 { return a.Places.Stats().Scanned })
	}
	sagaMetrics(a, counter)
	scrubMetrics(a, gauge)
	projectionMetrics(a, counter, gauge)
	subscriptionMetrics(a, counter, gauge)
	indexMetrics(a, counter, gauge)
	backupMetrics(a, m.registry, counter, gauge)
	if a.Schedule != nil {
		counter("j17_scheduled_created_total", "Events that were scheduled for later.", func() uint64 { return a.Schedule.Stats().Created })
		counter("j17_scheduled_fired_total", "Scheduled events that were written when their time had come.", func() uint64 { return a.Schedule.Stats().Fired })
		counter("j17_scheduled_canceled_total", "Scheduled events that were cancelled.", func() uint64 { return a.Schedule.Stats().Canceled })
		counter("j17_scheduled_refused_total", "Scheduled events that their aggregates refused.", func() uint64 { return a.Schedule.Stats().Refused })
		counter("j17_scheduled_dead_lettered_total", "Scheduled events that were given up.", func() uint64 { return a.Schedule.Stats().DeadLettered })
	}
	if a.Listeners != nil {
		counter("j17_deliveries_delivered_total", "Tries of deliveries that a listener has taken.", func() uint64 { return a.Listeners.Counts().Delivered })
		counter("j17_deliveries_retried_total", "Tries of deliveries that failed and are made again.", func() uint64 { return a.Listeners.Counts().Retried })
		counter("j17_deliveries_failed_total", "Deliveries that were given up.", func() uint64 { return a.Listeners.Counts().Failed })
		counter("j17_listeners_disabled_total", "Listeners whose endpoints have said that they are gone.", func() uint64 { return a.Listeners.Counts().Disabled })
		gauge("j17_deliveries_in_flight", "Tries of deliveries under way.", func() float64 { return float64(a.Listeners.Counts().InFlight) })
	}
	gauge("j17_state_cache_bytes", "Memory that cached states are charged for.", func() float64 { return float64(a.Engine.Stats().CacheBytes) })
	gauge("j17_store_writable", "1 while the store takes writes.", func() float64 {
		if a.Store.Status().Writable {
			return 1
		}
		return 0
	})

	gauge("j17_store_free_bytes", "Free space of the store's volume.", func() float64 { return float64(a.Store.Status().FreeBytes) })
	gauge("j17_store_disk_bytes", "What the store occupies on disk.", func() float64 { return float64(a.Store.DiskBytes()) })
	gauge("j17_store_filter_bytes", "Memory in which the store keeps which tags and streams there are.", func() float64 { return float64(a.Store.FilterBytes()) })
	return m
}

// projectionMetrics shows what reads of projections were answered with.
func projectionMetrics(a *API, counter func(name, help string, read func() uint64), gauge func(name, help string, read func() float64)) {
	if a.Projections == nil {
		return
	}
	counter("j17_projection_hits_total", "Values of projections that were served as they were kept.", func() uint64 { return a.Projections.Stats().Hits })
	counter("j17_projection_misses_total", "Values of projections that were computed.", func() uint64 { return a.Projections.Stats().Misses })
	counter("j17_projection_waits_total", "Reads of projections that waited for a value that was being computed.", func() uint64 { return a.Projections.Stats().Shared })
	gauge("j17_projection_cache_bytes", "Memory that kept values of projections are charged for.", func() float64 { return float64(a.Projections.Stats().KeptBytes) })
	gauge("j17_projection_cache_values", "Values of projections that are kept.", func() float64 { return float64(a.Projections.Stats().Kept) })
}

// sagaMetrics shows what sagas have done.
func sagaMetrics(a *API, counter func(name, help string, read func() uint64)) {
	if a.Sagas == nil {
		return
	}
	counter("j17_sagas_started_total", "Sagas that began to run.", func() uint64 { return a.Sagas.Stats().Started })
	counter("j17_sagas_queued_total", "Sagas that had to wait for room before they began.", func() uint64 { return a.Sagas.Stats().Queued })
	counter("j17_sagas_completed_total", "Sagas that have completed.", func() uint64 { return a.Sagas.Stats().Completed })
	counter("j17_sagas_failed_total", "Sagas that have failed, with all their steps undone.", func() uint64 { return a.Sagas.Stats().Failed })
	counter("j17_sagas_dead_lettered_total", "Sagas that were given up: a compensation was refused, or they could not be carried on.", func() uint64 { return a.Sagas.Stats().DeadLettered })
	counter("j17_sagas_retried_total", "Sagas that an operator let go on.", func() uint64 { return a.Sagas.Stats().Retried })
	counter("j17_saga_events_total", "Events written by sagas.", func() uint64 { return a.Sagas.Stats().Events })
	counter("j17_saga_compensations_total", "Events of sagas that undid a step.", func() uint64 { return a.Sagas.Stats().Compensations })
	counter("j17_saga_timeouts_total", "Steps of sagas whose answer did not come in time.", func() uint64 { return a.Sagas.Stats().TimedOut })
}

// subscriptionMetrics shows how far those are who read the feeds of environments in the background.
func subscriptionMetrics(a *API, counter func(name, help string, read func() uint64), gauge func(name, help string, read func() float64)) {
	if a.Feed == nil {
		return
	}
	counter("j17_subscription_events_total", "Events that subscriptions have passed.", func() uint64 { return a.Feed.Counts().Read })
	counter("j17_subscription_handled_total", "Events that were handed out to subscriptions and handled.", func() uint64 { return a.Feed.Counts().Handled })
	counter("j17_subscription_failed_total", "Calls of handlers of subscriptions that failed.", func() uint64 { return a.Feed.Counts().Failed })
	counter("j17_subscription_left_behind_total", "Calls of handlers that did not return when they had to.", func() uint64 { return a.Feed.Counts().LeftBehind })
	counter("j17_subscription_leases_taken_total", "Environments that were taken to work on their subscriptions.", func() uint64 { return a.Feed.Counts().Taken })
	counter("j17_subscription_leases_lost_total", "Environments that others have taken over.", func() uint64 { return a.Feed.Counts().Lost })
	counter("j17_subscription_checks_total", "Stretches of events that were compared with what subscriptions have passed.", func() uint64 { return a.Feed.Counts().Checked })
	counter("j17_subscription_gaps_total", "Stretches that did not match; what followed was handed out again.", func() uint64 { return a.Feed.Counts().Gaps })
	gauge("j17_subscription_environments", "Environments whose subscriptions are worked on now.", func() float64 { return float64(a.Feed.Counts().Held) })
	gauge("j17_subscription_lag_events", "Events that the subscriptions of these environments have not passed yet.", func() float64 { return float64(a.Feed.Counts().Behind) })
}

// indexMetrics shows what keeps indexes up to date, and what builds them.
func indexMetrics(a *API, counter func(name, help string, read func() uint64), gauge func(name, help string, read func() float64)) {
	if a.Indexes == nil || a.Builds == nil || a.Tagging == nil {
		return
	}
	counter("j17_index_rows_total", "Rows that were computed because of events.", func() uint64 { return a.Indexes.Stats().Rows })
	counter("j17_index_writes_total", "Writes of entries, of notes about them, and of rows.", func() uint64 { return a.Indexes.Stats().Writes })
	counter("j17_index_batches_total", "Parts of feeds that indexes were brought up to date with.", func() uint64 { return a.Indexes.Stats().Batches })
	counter("j17_index_views_total", "Looks at indexes.", func() uint64 { return a.Indexes.Stats().Views })
	counter("j17_index_waits_total", "Looks that had to wait until an index was up to date.", func() uint64 { return a.Indexes.Stats().Waited })
	counter("j17_index_late_total", "Looks that have waited in vain.", func() uint64 { return a.Indexes.Stats().Late })
	counter("j17_index_differences_total", "Indexes that were not as they should be, and were built anew.", func() uint64 { return a.Indexes.Stats().Differences })
	gauge("j17_index_fanouts", "Changes of many rows that are under way.", func() float64 { return float64(a.Indexes.Stats().Fanouts) })
	gauge("j17_index_lag_seconds", "For how long the event has waited that waits longest for an index to show it.", func() float64 { return a.Indexes.Stats().Lag.Seconds() })
	counter("j17_build_streams_total", "Aggregates that builds have gone through.", func() uint64 { return a.Builds.Stats().Streams })
	counter("j17_builds_ended_total", "Builds that have come to their end.", func() uint64 { return a.Builds.Stats().Ended })
	counter("j17_builds_failed_total", "Builds that have failed.", func() uint64 { return a.Builds.Stats().Failed })
	counter("j17_build_removed_total", "Items that were removed because nothing used them any more.", func() uint64 { return a.Builds.Stats().Removed })
	gauge("j17_builds_running", "Builds that are at work.", func() float64 { return float64(a.Builds.Stats().Running) })
	counter("j17_tagging_events_total", "Older events that were gone through because a deployment had changed tags.", func() uint64 { return a.Tagging.Stats().Events })
	counter("j17_tagging_ended_total", "Times that all older events had the tags of a deployment.", func() uint64 { return a.Tagging.Stats().Ended })
}

// metricsHandler answers with all metrics: those that are registered, and what indexes have, which is read for each request.
func (a *API) metricsHandler() http.Handler {
	if a.Indexes == nil {
		return promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := prometheus.NewRegistry()
		read.MustRegister(indexTotals{a, r.Context()})
		promhttp.HandlerFor(prometheus.Gatherers{a.metrics.registry, read}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

// backupMetrics shows how backups are doing.
func backupMetrics(a *API, registry *prometheus.Registry, counter func(name, help string, read func() uint64), gauge func(name, help string, read func() float64)) {
	if a.Backups == nil {
		return
	}
	counter("j17_backups_completed_total", "Backups that were completed.", func() uint64 { return a.Backups.Stats().Completed })
	counter("j17_backups_failed_total", "Backups that have failed.", func() uint64 { return a.Backups.Stats().Failed })
	counter("j17_backup_stored_bytes_total", "Bytes that were newly stored for backups that were completed.", func() uint64 { return a.Backups.Stats().Bytes })
	counter("j17_backup_erasures_noted_total", "Erasures that were noted beside backups.", func() uint64 { return a.Backups.Stats().Noted })
	gauge("j17_backups_running", "Backups that are being made.", func() float64 { return float64(a.Backups.Stats().Running) })
	gauge("j17_backups_waiting", "Backups that wait for their turn.", func() float64 { return float64(a.Backups.Stats().Waiting) })
	gauge("j17_backup_folder_writable", "1 unless the folder for backups could not be written when that was tried last.", func() float64 {
		if a.Backups.Stats().FolderWritable {
			return 1
		}
		return 0
	})
	for of, read := range map[string]func(backup.Stats) int64{
		"server":      func(s backup.Stats) int64 { return s.LastServer },
		"environment": func(s backup.Stats) int64 { return s.LastEnvironment },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "j17_backup_last_completed_seconds", Help: "When a backup of the whole server, and when one of an environment, was completed last, in Unix seconds; 0 for never.",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(read(a.Backups.Stats())) }))
	}
}

// observe counts an answered request. Routes are patterns, so that there are few of them.
func (m *metrics) observe(c *call, took time.Duration) {
	method := c.request.Method
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS":
	default:
		method = "other"
	}
	in := m.of(answered{method, c.route, c.status})
	in.requests.Inc()
	in.seconds.Observe(took.Seconds())
}

// of returns what such requests count in.
func (m *metrics) of(a answered) counters {
	m.mu.RLock()
	in, ok := m.known[a]
	m.mu.RUnlock()
	if ok {
		return in
	}
	in = counters{m.requests.WithLabelValues(a.method, a.route, strconv.Itoa(a.status)), m.seconds.WithLabelValues(a.method, a.route)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[a] = in
	return in
}

// backgroundWork shows what loops and queues have done, by their names.
type backgroundWork struct{ kit *worker.Kit }

// backgroundMetric is one of its metrics.
type backgroundMetric struct {
	name, help string
	kind       prometheus.ValueType
	read       func(worker.Counts) float64
}

func backgroundMetrics() []backgroundMetric {
	return []backgroundMetric{
		{"j17_background_done_total", "Rounds and items of background work that went well.", prometheus.CounterValue, func(c worker.Counts) float64 { return float64(c.Done) }},
		{"j17_background_failed_total", "Rounds and items of background work that failed.", prometheus.CounterValue, func(c worker.Counts) float64 { return float64(c.Failed) }},
		{"j17_background_dead_total", "Items that were given up.", prometheus.CounterValue, func(c worker.Counts) float64 { return float64(c.Dead) }},
		{"j17_background_lost_total", "Items whose lease was over before they were finished.", prometheus.CounterValue, func(c worker.Counts) float64 { return float64(c.Lost) }},
		{"j17_background_running", "Rounds and items of background work under way.", prometheus.GaugeValue, func(c worker.Counts) float64 { return float64(c.Running) }},
	}
}

func (m backgroundMetric) desc() *prometheus.Desc {
	return prometheus.NewDesc(m.name, m.help, []string{"work"}, nil)
}

// Describe tells which metrics there are.
func (backgroundWork) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range backgroundMetrics() {
		ch <- m.desc()
	}
}

// Collect reads the metrics.
func (b backgroundWork) Collect(ch chan<- prometheus.Metric) {
	for _, c := range b.kit.Counts() {
		for _, m := range backgroundMetrics() {
			ch <- prometheus.MustNewConstMetric(m.desc(), m.kind, m.read(c), c.Name)
		}
	}
}

// indexTotals shows what all indexes have, read once for one request, as long as that waits for it. Where it cannot be read the metrics are
// left out.
type indexTotals struct {
	api *API
	ctx context.Context //nolint:containedctx // that of the request, which a Collector is not given
}

// totalMetric is one of its metrics.
type totalMetric struct {
	name, help string
	read       func(*index.Totals) uint64
}

func totalMetrics() []totalMetric {
	return []totalMetric{
		{"j17_index_lag_events", "Events that the index has not passed that is furthest behind.", func(t *index.Totals) uint64 { return t.Behind }},
		{"j17_index_stored_rows", "Rows of all indexes.", func(t *index.Totals) uint64 { return t.Rows }},
		{"j17_index_stored_entries", "Entries of all indexes.", func(t *index.Totals) uint64 { return t.Entries }},
		{"j17_index_stored_bytes", "Bytes of all indexes, as they are before they are compressed.", func(t *index.Totals) uint64 { return t.Bytes }},
	}
}

func (m totalMetric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.help, nil, nil) }

// Describe tells which metrics there are.
func (indexTotals) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range totalMetrics() {
		ch <- m.desc()
	}
}

// Collect reads the metrics.
func (i indexTotals) Collect(ch chan<- prometheus.Metric) {
	totals, err := i.api.Indexes.Totals(i.ctx)
	if err != nil {
		i.api.Logger.LogAttrs(i.ctx, slog.LevelWarn, "what indexes have is not known", slog.Any("error", err))
		return
	}
	for _, m := range totalMetrics() {
		ch <- prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, float64(m.read(&totals)))
	}
}
