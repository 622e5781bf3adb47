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

	"j17/internal/core/part"
	"j17/internal/core/worker"
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

// answered are the labels by which the metrics distinguish requests: few combinations, since routes are patterns.
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
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.requests,
		m.seconds,
	)
	if a.Worker != nil {
		m.registry.MustRegister(backgroundWork{a.Worker})
	}

	// What the parts of the server count themselves, read on each scrape of the metrics.
	counter := func(name, help string, read func() uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(read()) },
		))
	}
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "j17_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": a.Version},
	}, func() float64 { return 1 }))
	counter("j17_stream_events_total", "Events sent to streams.", a.streams.sent.Load)
	counter("j17_streams_cut_total", "Streams that ended because the client did not read.", a.streams.cut.Load)
	counter("j17_live_passes_total", "Reads of the data that live views show.", a.streams.passes.read.Load)
	counter("j17_live_shared_total", "Live views that were served from the read of another one.", a.streams.passes.shared.Load)
	counter("j17_live_rows_compared_total", "Rows that were compared to find out which ones of a live list have changed.", a.streams.passes.compared.Load)
	gauge("j17_streams", "Event streams that are open, and pages that wait for an event.", func() float64 { return float64(a.streams.count()) })
	for i := range a.Metrics {
		m.registry.MustRegister(collectorOf(&a.Metrics[i]))
	}
	for _, metric := range storeMetrics(a.Store) {
		m.registry.MustRegister(collectorOf(&metric))
	}
	return m
}

// collectorOf shows a number that a part of the program counts or measures.
func collectorOf(m *part.Metric) prometheus.Collector {
	if m.Each != nil {
		return varying{m, prometheus.NewDesc(m.Name, m.Help, m.Varying, m.Labels)}
	}
	if m.Counter {
		return prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Read,
		)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Read)
}

// varying shows a metric with labels whose values are found when it is read.
type varying struct {
	of   *part.Metric
	desc *prometheus.Desc
}

// Describe tells which metric it is.
func (v varying) Describe(ch chan<- *prometheus.Desc) { ch <- v.desc }

// Collect reads the metric.
func (v varying) Collect(ch chan<- prometheus.Metric) {
	kind := prometheus.GaugeValue
	if v.of.Counter {
		kind = prometheus.CounterValue
	}
	for _, one := range v.of.Each() {
		ch <- prometheus.MustNewConstMetric(v.desc, kind, one.Value, one.Labels...)
	}
}

// metricsHandler answers with all metrics: those that are registered, and what indexes have, which is read for each
// request.
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
	in = counters{
		m.requests.WithLabelValues(a.method, a.route, strconv.Itoa(a.status)),
		m.seconds.WithLabelValues(a.method, a.route),
	}
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
		{
			"j17_background_dead_total", "Items that were given up.", prometheus.CounterValue,
			func(c worker.Counts) float64 { return float64(c.Dead) },
		},
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

// indexTotals shows the totals of all indexes, read once for each request and only as long as the request waits. Where
// they cannot be read, the metrics are left out.
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
		{"j17_index_lag_events", "Events that the index furthest behind has not processed yet.", func(t *index.Totals) uint64 { return t.Behind }},
		{"j17_index_stored_rows", "Rows of all indexes.", func(t *index.Totals) uint64 { return t.Rows }},
		{"j17_index_stored_entries", "Entries of all indexes.", func(t *index.Totals) uint64 { return t.Entries }},
		{"j17_index_stored_bytes", "Bytes of all indexes before compression.", func(t *index.Totals) uint64 { return t.Bytes }},
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
