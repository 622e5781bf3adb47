package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/worker"
	"j17/internal/edge/httpapi"
	"j17/internal/plane/control"
)

// Certificate is a pair of files in PEM format.
type Certificate struct {
	CertFile, KeyFile string
}

func (c Certificate) given() bool { return c.CertFile != "" || c.KeyFile != "" }

// ACME says how certificates are obtained from an authority.
type ACME struct {
	// On requests certificates for the hosts of the server. It means that the terms of the authority are accepted.
	On bool
	// Email is where the authority writes to; it may be empty.
	Email string
	// Directory is the URL of the authority; "" means that of Let's Encrypt.
	Directory string
	// CAFile holds the CA certificates by which the authority's own is verified; "" means those of the system.
	CAFile string
}

// certificates holds a pair of files in memory and reads them again when they change.
type certificates struct {
	files  Certificate
	logger *slog.Logger
	now    atomic.Pointer[tls.Certificate]

	mu   sync.Mutex
	seen [2]time.Time // when the files were last changed
}

func openCertificates(files Certificate, logger *slog.Logger) (*certificates, error) {
	c := &certificates{files: files, logger: logger}
	if _, err := c.load(true); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the files if they have changed, or in any case if always is set. If they are not a pair, the previous one
// stays in use.
func (c *certificates) load(always bool) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var seen [2]time.Time
	for i, name := range []string{c.files.CertFile, c.files.KeyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return false, err
		}
		seen[i] = info.ModTime()
	}
	if seen == c.seen && !always {
		return false, nil
	}
	pair, err := tls.LoadX509KeyPair(c.files.CertFile, c.files.KeyFile)
	if err != nil {
		return false, fmt.Errorf("the certificate %s and the key %s cannot be used: %w", c.files.CertFile, c.files.KeyFile, err)
	}
	c.seen = seen
	c.now.Store(&pair)
	return true, nil
}

// reload is load for a certificate that is in use.
func (c *certificates) reload(ctx context.Context, always bool) error {
	changed, err := c.load(always)
	if err != nil {
		return fmt.Errorf("the certificate could not be reloaded; the previous one stays in use: %w", err)
	}
	if changed {
		c.logger.LogAttrs(ctx, slog.LevelInfo, "certificate reloaded", slog.String("file", c.files.CertFile))
	}
	return nil
}

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }

// certificateInterval is how often the files of certificates are checked for changes.
const certificateInterval = 10 * time.Second

// watchCertificates reads certificates again when their files change, and on request.
func (s *Server) watchCertificates(ctx context.Context) error {
	if len(s.certificates) == 0 {
		return nil
	}
	look := func(always bool) func(context.Context) error {
		return func(ctx context.Context) error {
			var errs []error
			for _, c := range s.certificates {
				errs = append(errs, c.reload(ctx, always))
			}
			return errors.Join(errs...)
		}
	}
	loops := []worker.Loop{{
		Name: "certificates", Every: certificateInterval, Retry: worker.Backoff{First: certificateInterval, Factor: 1},
		Do: look(false),
	}}
	if s.reload != nil {
		loops = append(loops, worker.Loop{Name: "certificates_asked", Wake: s.reload, Eager: true, Do: look(true)})
	}
	s.worker.Every(ctx, loops...)
	return nil
}

// publicTLS makes the public listener speak TLS, if so configured.
func (s *Server) publicTLS(o ServeOptions) error {
	minimum := uint16(tls.VersionTLS13)
	if o.TLSMin == "1.2" {
		minimum = tls.VersionTLS12
	}

	switch {
	case o.Certificate.given():
		// Certificates from files.
		c, err := openCertificates(o.Certificate, o.Logger)
		if err != nil {
			return err
		}
		s.certificates = append(s.certificates, c)
		s.public = tls.NewListener(s.public, &tls.Config{
			MinVersion: minimum, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"},
		})
	case o.ACME.On:
		// Certificates from an authority, only for hosts that this server serves.
		client := &acme.Client{DirectoryURL: o.ACME.Directory, UserAgent: "j17/" + o.Version}
		if o.ACME.CAFile != "" {
			pool, err := certPool(o.ACME.CAFile)
			if err != nil {
				return err
			}
			client.HTTPClient = &http.Client{Transport: &http.Transport{
				Proxy:           http.ProxyFromEnvironment,
				TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			}}
		}
		s.acme = &autocert.Manager{
			Prompt: autocert.AcceptTOS, Cache: s.files("acme"), Email: o.ACME.Email,
			Client: client,
			HostPolicy: func(_ context.Context, host string) error {
				if !s.hasHost(host) {
					return fmt.Errorf("there is no %q here", host)
				}
				return nil
			},
		}
		config := s.acme.TLSConfig()
		config.MinVersion = minimum
		got := &authorized{
			get: config.GetCertificate, answersFor: s.hasHost, clock: o.Clock, logger: o.Logger,
			told: map[string]time.Time{},
		}
		config.GetCertificate = got.certificate
		s.public = tls.NewListener(s.public, config)
	}
	return nil
}

// How often the log reports, for each name, that there is no certificate or that one was not renewed.
const (
	missingInterval   = time.Minute
	unrenewedInterval = 6 * time.Hour
)

// authorized hands out certificates of an authority, and logs when there is none, or only one that is overdue for
// renewal: clients are not told a reason, and failing renewals would go unnoticed.
type authorized struct {
	get        func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	answersFor func(host string) bool
	clock      clock.Clock
	logger     *slog.Logger

	mu sync.Mutex
	// told is when something was last logged about a name. It has at most one entry for each host.
	told map[string]time.Time
}

// certificate is tls.Config.GetCertificate.
func (a *authorized) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err := a.get(hello)
	host := strings.ToLower(hello.ServerName)
	if slices.Contains(hello.SupportedProtos, acme.ALPNProto) || !a.answersFor(host) {
		return cert, err // a challenge of the authority, or a name that is not served here
	}
	ctx := hello.Context()
	switch {
	case err != nil:
		if a.due(host, missingInterval) {
			a.logger.LogAttrs(ctx, slog.LevelWarn, "no certificate could be got from the authority", slog.String("host", host), slog.Any("error", err))
		}
	case cert.Leaf != nil && a.late(cert.Leaf) && a.due(host, unrenewedInterval):
		a.logger.LogAttrs(ctx, slog.LevelWarn, "a certificate should have been renewed by the authority long ago", slog.String("host", host),
			slog.Time("expires", cert.Leaf.NotAfter))
	}
	return cert, err
}

// late reports whether more than half of the renewal period is over: the last third of a certificate's life, at most 30
// days.
func (a *authorized) late(c *x509.Certificate) bool {
	return c.NotAfter.Sub(a.clock.Now()) < min(c.NotAfter.Sub(c.NotBefore)/3, 30*24*time.Hour)/2
}

// due reports whether the log may mention a name again, and notes that it does.
func (a *authorized) due(host string, interval time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if last, ok := a.told[host]; ok && now.Sub(last) < interval {
		return false
	}
	a.told[host] = now
	return true
}

// internalTLS makes the internal listener speak TLS, if so configured, and returns the transport to other nodes.
func (s *Server) internalTLS(o ServeOptions) (*http.Transport, error) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13}, IdleConnTimeout: idleTime, MaxIdleConnsPerHost: 16,
	}
	if o.InternalCAFile != "" {
		pool, err := certPool(o.InternalCAFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	if o.InternalCertificate.given() {
		c, err := openCertificates(o.InternalCertificate, o.Logger)
		if err != nil {
			return nil, err
		}
		s.certificates = append(s.certificates, c)
		s.internal = tls.NewListener(s.internal, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.get})
	}
	return transport, nil
}

func certPool(file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no certificate in PEM format", file)
	}
	return pool, nil
}

// hasHost reports whether this server answers for a host name: that of the control plane, of an instance, or the base
// domain itself.
func (s *Server) hasHost(host string) bool {
	base := s.options.BaseDomain
	if host == base {
		return true
	}
	label, ok := strings.CutSuffix(host, "."+base)
	if !ok || strings.Contains(label, ".") {
		return false
	}
	if label == control.ControlHost {
		return s.options.cluster == nil || s.options.cluster.upstream == nil
	}
	for _, env := range []j17.Environment{j17.Staging, j17.Test} {
		if name, ok := strings.CutSuffix(label, "-"+string(env)); ok {
			label = name
			break
		}
	}
	if s.registry == nil {
		return false // it waits for its turn
	}
	instance, ok := s.registry.Instances.ByName(label)
	return ok && s.owns(instance)
}

// strict is the HSTS header: browsers are not to use plain HTTP for a year.
const strict = "max-age=31536000"

// secured is the public handler as it may be exposed to a network: over TLS, or else to loopback and trusted proxies
// only.
func secured(next http.Handler, encrypted bool, proxies []netip.Prefix) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if encrypted {
			w.Header().Set("Strict-Transport-Security", strict)
			next.ServeHTTP(w, r)
			return
		}
		ap, _ := netip.ParseAddrPort(r.RemoteAddr)
		peer, trusted := ap.Addr().Unmap(), false
		for _, p := range proxies {
			trusted = trusted || p.Contains(peer)
		}
		switch {
		case trusted && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"):
			w.Header().Set("Strict-Transport-Security", strict)
		case !trusted && !peer.IsLoopback():
			httpapi.Refuse(w, j17.CodeForbidden, "This server takes requests from its proxies only. Send yours to the proxy, over HTTPS.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// redirected is the handler of the plain listener beside an encrypted one: it redirects reads to HTTPS, and refuses
// other requests, since their redirection would send again what has already gone over the network in clear.
func (s *Server) redirected(port string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		switch {
		case !s.hasHost(host):
			httpapi.Refuse(w, j17.CodeNotFound, "This server does not answer for the host in the request.")
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead, r.Header.Get("Authorization") != "":
			httpapi.Refuse(w, j17.CodeForbidden, "This server takes requests over HTTPS only. What this one carried has gone over the network in clear: replace the key or the token that it had.")
			return
		}
		if port != "443" {
			host = net.JoinHostPort(host, port)
		}
		// The host is one of ours.
		//nolint:gosec // see above
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect)
	})
}

// redirect opens the plain listener beside the encrypted one.
func (s *Server) redirect(ctx context.Context, o ServeOptions) error {
	if !o.encrypted() || o.HTTPListen == "" {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.HTTPListen)
	if err != nil {
		return fmt.Errorf("the address for plain HTTP cannot be listened on: %w", err)
	}
	s.plain = s.connections.wrap(l)
	_, port, err := net.SplitHostPort(s.public.Addr().String())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.plainHandler = s.redirected(port)
	if s.acme != nil {
		s.plainHandler = s.acme.HTTPHandler(s.plainHandler)
	}
	return nil
}
