// Package httpapi is the HTTP face of a server: every route in one table (routes.go), the wire format, and the only map
// from error codes to HTTP statuses (errors.go).
package httpapi

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rs/cors"

	"j17"
	"j17/internal/auth"
	"j17/internal/clock"
	"j17/internal/control"
	"j17/internal/engine"
	"j17/internal/ident"
	"j17/internal/store"
)

// Options configures an API. All fields are required unless they say otherwise.
type Options struct {
	Engine   *engine.Engine
	Store    store.Store
	Registry *control.Registry
	Auth     *auth.Authenticator
	// Keys and Addresses limit the rate of requests; nil means no limit.
	Keys      *auth.RateLimit
	Addresses *auth.RateLimit
	Clock     clock.Clock
	Logger    *slog.Logger
	// Version is shown by the root route.
	Version string
	// BaseDomain is the domain under which instances have their hosts.
	BaseDomain string
	// DefaultInstance is the handle of the instance that answers for the base domain itself and for bare addresses.
	DefaultInstance string
	// MaxEventBytes and MaxBatchBytes bound request bodies; 0 means 1 MiB and 10 MiB.
	MaxEventBytes int64
	MaxBatchBytes int64
	// AdvanceClock, if not nil, moves a development server's clock and returns the new time once due work has run.
	AdvanceClock func(time.Duration) (time.Time, error)
	// Observe, if not nil, is called after every request on the public listener.
	Observe func(Exchange)
}

// Exchange describes one answered request.
type Exchange struct {
	Method, Host, Path string
	Status             int
	Bytes              int64
	Duration           time.Duration
	// Environment is "" where the host names none.
	Environment j17.Environment
	// Code and Detail are those of the error, if there was one.
	Code   j17.Code
	Detail string
}

// API answers HTTP requests.
type API struct {
	Options
	mint    *ident.Minter
	metrics *metrics
	data    http.Handler
	control http.Handler
	chunks  sync.Pool // of *[chunkSize]byte
	// draining is closed when the server is about to stop.
	draining chan struct{}
}

const (
	defaultMaxEvent = 1 << 20
	defaultMaxBatch = 10 << 20
)

// New returns an API.
func New(o Options) *API {
	if o.MaxEventBytes == 0 {
		o.MaxEventBytes = defaultMaxEvent
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultMaxBatch
	}
	a := &API{Options: o, mint: ident.NewMinter(o.Clock.Now), draining: make(chan struct{})}
	a.chunks.New = func() any { return new([chunkSize]byte) }
	a.metrics = newMetrics(a)
	a.data = a.router(dataSite)
	a.control = a.router(controlSite)
	return a
}

// Drain makes the server say that it is not ready, so that load balancers turn away before it stops.
func (a *API) Drain() { close(a.draining) }

// Public returns the handler of the public listener.
func (a *API) Public() http.Handler {
	crossOrigin := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete},
		AllowedHeaders: []string{"Authorization", "Content-Type", "Accept", headerIdempotencyKey, headerCorrelationID, "If-Match", "If-None-Match"},
		ExposedHeaders: []string{
			"ETag", "Retry-After", headerIdempotencyReplayed, headerCorrelationID, headerRequestID,
			headerRateLimit, headerRateRemaining, headerRateScope,
		},
		MaxAge: int((24 * time.Hour).Seconds()),
	})
	return a.recorded(crossOrigin.Handler(compressed(http.HandlerFunc(a.dispatch))))
}

// Internal returns the handler of the internal listener: health, metrics and what other nodes may do.
func (a *API) Internal() http.Handler { return a.router(internalSite) }

// dispatch picks the site by the request's host.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	c := callOf(r)
	if err := a.resolveHost(c, r.Host); err != nil {
		c.fail(w, err)
		return
	}
	if c.control {
		a.control.ServeHTTP(w, r)
	} else {
		a.data.ServeHTTP(w, r)
	}
}
