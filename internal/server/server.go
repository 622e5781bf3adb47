// Package server puts a whole server together: it opens the store, wires the packages to each other, listens, and stops
// everything in the right order. Only this package knows which store is used.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"j17"
	"j17/internal/auth"
	"j17/internal/clock"
	"j17/internal/control"
	"j17/internal/engine"
	"j17/internal/httpapi"
	"j17/internal/spec"
	"j17/internal/spec/diag"
	"j17/internal/store"
	"j17/internal/store/pebble"
)

// Options configures a server.
type Options struct {
	// Dir is the data folder. It is created if it does not exist.
	Dir string
	// Listen and InternalListen are the addresses of the two listeners.
	Listen         string
	InternalListen string
	// BaseDomain is the domain under which instances have their hosts.
	BaseDomain string
	// Version is that of the program.
	Version string
	// KeyRate and AddressRate limit the requests a minute of each API key and each address; 0 means no limit.
	KeyRate     int
	AddressRate int
	Clock       clock.Clock
	Logger      *slog.Logger
}

// Server is one running process.
type Server struct {
	options  Options
	store    *pebble.Store
	registry *control.Registry
	engine   *engine.Engine
	auth     *auth.Authenticator
	// public and internal are the open listeners.
	public   net.Listener
	internal net.Listener
}

// drainTime is how long requests that are under way may take when the server stops.
const drainTime = 20 * time.Second

// Open opens the data folder and both listeners and loads what is deployed. The server answers once Run is called.
func Open(ctx context.Context, o Options) (_ *Server, err error) {
	s := &Server{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder cannot be made: %w", err)
	}
	if s.store, err = pebble.Open(pebble.Options{Dir: filepath.Join(o.Dir, "store"), Clock: o.Clock, Logger: o.Logger}); err != nil {
		return nil, err
	}
	if s.registry, err = control.Open(ctx, s.store, o.Clock); err != nil {
		return nil, err
	}
	s.auth = auth.New(s.registry, o.Clock)
	s.engine = engine.New(engine.Options{Store: s.store, Clock: o.Clock, Logger: o.Logger})
	if err := s.deployStored(ctx); err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	if s.public, err = listen.Listen(ctx, "tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("the public address cannot be listened on: %w", err)
	}
	if s.internal, err = listen.Listen(ctx, "tcp", o.InternalListen); err != nil {
		return nil, fmt.Errorf("the internal address cannot be listened on: %w", err)
	}
	return s, nil
}

// Close releases what Open opened. It is safe to call more than once.
func (s *Server) Close() error {
	var errs []error
	for _, l := range []net.Listener{s.public, s.internal} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
		s.store = nil
	}
	return errors.Join(errs...)
}

// deployStored hands the specs that were deployed before to the engine.
func (s *Server) deployStored(ctx context.Context) error {
	for _, instance := range s.registry.Instances() {
		for _, env := range j17.Environments() {
			stored, err := s.registry.Spec(ctx, instance.ID, env)
			if j17.CodeOf(err) == j17.CodeNoSpec {
				continue
			}
			if err != nil {
				return err
			}
			compiled, found := spec.Compile(stored.Source)
			if compiled == nil {
				s.options.Logger.LogAttrs(ctx, slog.LevelError, "a deployed spec is not valid for this version of the program; deploy a corrected one",
					slog.String("instance", instance.Name), slog.String("environment", string(env)), slog.String("first_error", firstError(found)))
				continue
			}
			s.engine.Deploy(store.TenantOf(instance.ID, env), compiled)
		}
	}
	return nil
}

func firstError(found []diag.Diagnostic) string {
	for _, d := range found {
		if d.Severity == diag.Error {
			return string(d.Pointer) + ": " + d.Message
		}
	}
	return ""
}

// deploy makes source, which compiled is made of, the spec of one environment.
func (s *Server) deploy(ctx context.Context, instance string, env j17.Environment, source []byte, compiled *spec.Compiled) error {
	base := 0
	current, err := s.registry.Spec(ctx, instance, env)
	switch {
	case err == nil:
		base = current.Version
	case j17.CodeOf(err) != j17.CodeNoSpec:
		return err
	}
	if _, err := s.registry.PutSpec(ctx, control.Deployment{Instance: instance, Environment: env, Source: source, Base: base}); err != nil {
		return err
	}
	s.engine.Deploy(store.TenantOf(instance, env), compiled)
	return nil
}

// api completes the options of the HTTP interface with what every server has.
func (s *Server) api(o httpapi.Options) *httpapi.API {
	o.Engine, o.Store, o.Registry, o.Auth = s.engine, s.store, s.registry, s.auth
	o.Keys, o.Addresses = rateLimit(s.options.KeyRate), rateLimit(s.options.AddressRate)
	o.Clock, o.Logger, o.Version, o.BaseDomain = s.options.Clock, s.options.Logger, s.options.Version, s.options.BaseDomain
	return httpapi.New(o)
}

func rateLimit(perMinute int) *auth.RateLimit {
	if perMinute <= 0 {
		return nil
	}
	return auth.NewRateLimit(perMinute)
}

// run serves api until the context ends, then drains: it stops to say that it is ready, answers what is under way, and
// returns. workers run beside it and are stopped after the listeners.
func (s *Server) run(ctx context.Context, api *httpapi.API, workers ...func(context.Context) error) error {
	public := httpServer(s.options.Logger, api.Public())
	internal := httpServer(s.options.Logger, api.Internal())
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error { return serve(public, s.public) })
	g.Go(func() error { return serve(internal, s.internal) })
	for _, worker := range append(workers, s.engine.Run) {
		g.Go(func() error { return worker(work) })
	}
	<-failed.Done()
	api.Drain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := errors.Join(public.Shutdown(drain), internal.Shutdown(drain))
	stopWork()
	return errors.Join(err, g.Wait())
}

func serve(h *http.Server, l net.Listener) error {
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the listener on %s failed: %w", l.Addr(), err)
	}
	return nil
}

// Limits on clients that are slow or send too much before they have said who they are.
const (
	headerTime = 10 * time.Second
	readTime   = 60 * time.Second
	writeTime  = 120 * time.Second
	idleTime   = 120 * time.Second
	maxHeader  = 32 << 10
)

func httpServer(logger *slog.Logger, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
