// Package httpapi is the HTTP face of a server: every route in one table (routes.go), the wire format, and the only map
// from error codes to HTTP statuses (errors.go).
//
// The decisions behind it are in docs/internals/edge.md.
package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/cors"

	"j17"
	"j17/dashboard"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/core/engine"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/attention"
	"j17/internal/custody/backup"
	"j17/internal/custody/checkpoint"
	"j17/internal/custody/envlog"
	"j17/internal/custody/erasure"
	"j17/internal/custody/loading"
	"j17/internal/custody/scrub"
	"j17/internal/derived/build"
	"j17/internal/derived/generation"
	"j17/internal/derived/index"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/follow/listener"
	"j17/internal/follow/saga"
	"j17/internal/follow/schedule"
	"j17/internal/follow/tail"
	"j17/internal/plane/auth"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
	"j17/internal/storage/store"
)

// Storage is what the API asks a store itself.
type Storage interface {
	store.Health
	store.Footprint
	store.Monitoring
	store.Sides
	store.Feed
	store.Aggregates
}

// Options configures an API. All fields are required unless they say otherwise.
type Options struct {
	Engine   *engine.Engine
	Loader   *loading.Loader
	Store    Storage
	Registry *control.Registry
	Blobs    *blob.Store
	Deploy   *deploy.Service
	// Places finds aggregates by where they are.
	Places *place.Service
	// Attention reports what goes on, and what waits for a person.
	Attention *attention.Service
	// Scrub, if not nil, looks for damage in what is stored.
	Scrub *scrub.Service
	// Checkpoints keeps states of aggregates, and roots of logs, as of positions.
	Checkpoints *checkpoint.Service
	// Erasures removes personal data.
	Erasures *erasure.Service
	// Listeners delivers events to endpoints.
	Listeners *listener.Service
	// Logs has the logs of environments, and proofs.
	Logs *envlog.Service
	// Tagging reports how far older events have their tags.
	Tagging *build.Tagger
	// Generations reports what is stored of which generation.
	Generations *generation.Service
	// Indexes reports the sizes of indexes.
	Indexes *index.Service
	Auth    *auth.Authenticator
	// Keys and Addresses limit the rate of requests; nil means no limit.
	Keys      *auth.RateLimit
	Addresses *auth.RateLimit
	// TrustedProxies are the networks of the proxies in front of the server, ForwardedHeader the one in which they pass
	// on the address of a client; "" means X-Forwarded-For.
	TrustedProxies  []netip.Prefix
	ForwardedHeader ForwardedHeader
	// Encrypted reports that the public listener takes connections over TLS only.
	Encrypted bool
	// StreamsPerKey and Streams bound the event streams that are open at a time, of one API key and in all; 0 means
	// DefaultStreamsPerKey and DefaultStreams.
	StreamsPerKey, Streams int
	// Cluster is nil where this is the only server.
	Cluster *Cluster
	// Usage, if not nil, counts what instances use.
	Usage *usage.Meter
	// Sagas carries out the sagas of environments.
	Sagas *saga.Service
	// Projections answers reads of projections.
	Projections *projection.Service
	// Schedule has the events that are to come later.
	Schedule *schedule.Service
	// Backups makes and keeps backups.
	Backups *backup.Service
	// Metrics are what the parts of the program count and measure. Worker, if not nil, is shown beside them.
	Metrics []part.Metric
	Worker  *worker.Kit
	// Tail is what event streams and live views follow; nil means one of its own.
	Tail   *tail.Tail
	Clock  clock.Clock
	Logger *slog.Logger
	// Version is shown by the root route.
	Version string
	// Dashboard has the files of the dashboard; nil leaves it out.
	Dashboard *dashboard.Files
	// PublicPath is the path that a proxy puts in front of all others, "" for none. It has no slash at its end.
	PublicPath string
	// BaseDomain is the domain under which instances have their hosts.
	BaseDomain string
	// DefaultInstance is the handle of the instance that answers for the base domain itself and for bare addresses.
	DefaultInstance string
	// MaxEventBytes, MaxBatchBytes and MaxImportBytes bound request bodies; 0 means 1 MiB, 10 MiB and 256 MiB.
	MaxEventBytes  int64
	MaxBatchBytes  int64
	MaxImportBytes int64
	// Restoring, if not nil, reports whether the spec of an environment is still to be restored; RestoringAny does so
	// for all environments.
	Restoring    func(j17.Tenant) bool
	RestoringAny func() bool
	// Working, if not nil, reports whether this server may answer: it may not once another node may work.
	Working func() bool
	// AdvanceClock, if not nil, moves a development server's clock and returns the new time once due work has run.
	AdvanceClock func(context.Context, time.Duration) (time.Time, error)
	// AwaitWrite, if not nil, waits until a command for events may be carried out; its only error is that of the
	// context.
	AwaitWrite func(context.Context) error
	// Observe, if not nil, is called after every request on the public listener.
	Observe func(Exchange)
	// Sign, if not "", is shown at /livez in HeaderSign, without a credential: by it, clients of a development server
	// recognise the server of their data folder. It is no secret.
	Sign string
}

// HeaderSign has the sign of a development server.
const HeaderSign = "X-J17-Dev"

// Exchange describes one answered request.
type Exchange struct {
	Method, Host, Path string
	// Route is the pattern of the path, "unmatched" where there is none.
	Route    string
	Status   int
	Bytes    int64
	Duration time.Duration
	// Environment is "" where the host names none.
	Environment j17.Environment
	// Code and Detail are those of the error, if there was one.
	Code   j17.Code
	Detail string
}

// API answers HTTP requests.
type API struct {
	Options
	handlers
	guard     *guard
	faults    *faultLog
	forward   *forwarder
	mint      *ident.Minter
	metrics   *metrics
	streams   *streams
	data      *router
	control   *router
	admin     *router
	views     *router
	chunks    sync.Pool // of *[chunkSize]byte
	resources *resources
	arrivals  arrivals
	// draining is closed when the server is about to stop.
	draining chan struct{}
	// lost is set when what is written would be lost.
	lost atomic.Bool
}

const (
	defaultMaxEvent  = 1 << 20
	defaultMaxBatch  = 10 << 20
	defaultMaxImport = 256 << 20
)

// New returns an API.
func New(o Options) *API {
	if o.MaxEventBytes == 0 {
		o.MaxEventBytes = defaultMaxEvent
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultMaxBatch
	}
	if o.MaxImportBytes == 0 {
		o.MaxImportBytes = defaultMaxImport
	}
	o.StreamsPerKey, o.Streams = cmp.Or(o.StreamsPerKey, DefaultStreamsPerKey), cmp.Or(o.Streams, DefaultStreams)
	a := &API{
		Options: o, mint: ident.NewMinter(o.Clock.Now), draining: make(chan struct{}), resources: newResources(),
		arrivals: arrivals{all: map[*arrival]struct{}{}},
	}
	a.chunks.New = func() any { return new([chunkSize]byte) }
	if a.Tail == nil {
		a.Tail = tail.New(o.Store, o.Engine.Shown())
	}
	a.streams = newStreams(a, o.Registry.Alterations)
	a.handlers, a.guard = newHandlers(&a.Options), newGuard(&a.Options)
	a.faults, a.forward = newFaultLog(&a.Options, a.mint), newForwarder(&a.Options)
	a.metrics = newMetrics(a)
	a.data = a.router(dataSite)
	a.control = a.router(controlSite)
	a.admin = a.router(adminSite)
	a.views = a.router(viewSite)
	return a
}

// Drain makes the server report that it is not ready, so that load balancers stop sending requests before it stops, and
// ends the answers that have no end of their own.
func (a *API) Drain() {
	close(a.draining)
	a.streams.endAll()
}

// Lose makes the server refuse events and report that it is not ready for them: its data folder is gone.
func (a *API) Lose() { a.lost.Store(true) }

// errLost is the error of a write that would be lost.
func errLost() error {
	return j17.Errorf(j17.CodeUnavailable, "The server's data folder is gone: nothing was written, and nothing can be. Restart the server once the folder is back.")
}

// Public returns the handler of the public listener.
func (a *API) Public() http.Handler {
	crossOrigin := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		// Credentials are in a header that a page has to know, so any origin may send requests.
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{
			"ETag", "Retry-After", headerIdempotencyReplayed, headerCorrelationID, headerRequestID, headerNext,
			headerPosition,
			headerRateLimit, headerRateRemaining, headerRateScope, headerRate, headerRatePolicy,
		},
		MaxAge: int((24 * time.Hour).Seconds()),
	})
	served := crossOrigin.Handler(compressed(a.whileWorking(http.HandlerFunc(a.dispatch))))
	return a.observed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions && r.Header["Access-Control-Request-Method"] != nil {
			a.guard.showLimit(callOf(r), w) // a browser asks before it sends what counts
		}
		served.ServeHTTP(w, r)
	}))
}

// Internal returns the handler of the internal listener: health, metrics and what other nodes may do.
func (a *API) Internal() http.Handler {
	rt := a.router(internalSite)
	get := rt.methods[http.MethodGet]
	get.Handle("/metrics", a.metricsHandler())
	get.HandleFunc("/debug/pprof/", pprof.Index)
	get.HandleFunc("/debug/pprof/profile", pprof.Profile)
	get.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return a.observed(a.whileWorking(rt))
}

// dispatch picks the site by the request's host.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	c := callOf(r)
	if strings.HasPrefix(r.URL.Path, "/internal/") {
		err := j17.Errorf(j17.CodeNotFound, "There is nothing at this path")
		c.api.guard.limitRefused(c, w, err)
		c.fail(w, err)
		return
	}
	if public := a.PublicPath; public != "" && strings.HasPrefix(r.URL.Path, public+"/") {
		// for proxies that leave the prefix in the path
		http.StripPrefix(public, http.HandlerFunc(a.dispatch)).ServeHTTP(w, r)
		return
	}
	if err := a.resolveHost(c, r.Host); err != nil {
		c.api.guard.limitRefused(c, w, err)
		c.fail(w, err)
		return
	}
	switch {
	case c.control:
		a.control.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, adminPrefix):
		a.admin.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, viewPrefix):
		a.views.ServeHTTP(w, r)
	default:
		a.data.ServeHTTP(w, r)
	}
}
