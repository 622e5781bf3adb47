package httpapi

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"path"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"j17"
	"j17/internal/auth"
)

// site is a set of hosts with routes of their own.
type site uint8

const (
	dataSite site = 1 << iota
	controlSite
	internalSite
	adminSite // paths below /_admin/ on the hosts of an environment
)

// access is what a route asks of its caller.
type access uint8

const (
	free access = iota // not even rates are limited
	open
	read     // an API key of the environment
	write    // an API key with scope write
	operator // an operator's token
	node     // the node secret
)

// route is one row of the table.
type route struct {
	sites   site
	method  string
	pattern string
	access  access
	handle  func(*call, http.ResponseWriter) error
}

// routes is the table of all routes.
func (a *API) routes() []route {
	all := []route{
		{dataSite | controlSite | internalSite, http.MethodGet, "/{$}", open, (*call).root},
		{dataSite | controlSite | internalSite, http.MethodGet, "/livez", free, (*call).live},
		{dataSite | controlSite | internalSite, http.MethodGet, "/readyz", free, (*call).ready},

		{dataSite, http.MethodGet, "/{type}", read, (*call).listOrSingleton},
		{dataSite, http.MethodGet, "/{type}/{id}", read, (*call).aggregate},
		{dataSite, http.MethodGet, "/{type}/{id}/length", read, (*call).length},
		{dataSite, http.MethodGet, "/{type}/{id}/events", read, (*call).events},
		{dataSite, http.MethodPost, "/{type}/_new", write, (*call).postNewBatch},
		{dataSite, http.MethodPost, "/{type}/_new/{event}", write, (*call).postNewEvent},
		{dataSite, http.MethodPost, "/{type}/{id}", write, (*call).postBatch},
		{dataSite, http.MethodPost, "/{type}/{id}/{event}", write, (*call).postEvent},
	}
	all = append(all, a.controlRoutes()...)
	all = append(all, a.specRoutes()...)
	all = append(all, a.adminMounts()...)
	all = append(all, a.nodeRoutes()...)
	all = append(all, route{controlSite, http.MethodGet, "/setup", open, (*call).setupPage})
	if a.AdvanceClock != nil {
		all = append(all, route{dataSite | controlSite, http.MethodPost, "/_dev/clock/advance", operator, (*call).advanceClock})
	}
	return all
}

// router is the handler of one site: one mux a method, so that patterns of different methods cannot get into each other's
// way. Whatever matches no route gets a JSON answer too.
type router struct {
	methods map[string]*http.ServeMux
	other   http.Handler
}

func (a *API) router(s site) http.Handler {
	rt := &router{methods: map[string]*http.ServeMux{}}
	for _, r := range a.routes() {
		if r.sites&s == 0 {
			continue
		}
		if rt.methods[r.method] == nil {
			rt.methods[r.method] = http.NewServeMux()
		}
		rt.methods[r.method].HandleFunc(r.pattern, a.serve(r))
	}
	nothing := route{pattern: "unmatched", access: open, handle: rt.unmatched}
	if s == internalSite {
		nothing.access = free
	}
	rt.other = a.serve(nothing)
	for _, mux := range rt.methods {
		mux.Handle("/", rt.other)
	}
	if s == internalSite {
		get := rt.methods[http.MethodGet]
		get.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
		get.HandleFunc("/debug/pprof/", pprof.Index)
		get.HandleFunc("/debug/pprof/profile", pprof.Profile)
		get.HandleFunc("/debug/pprof/trace", pprof.Trace)
		return a.recorded(rt)
	}
	return rt
}

// ServeHTTP hands the request to the mux of its method. Paths that are not in normal form match nothing; the mux would
// redirect them.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if mux := rt.methods[method]; mux != nil && normal(r.URL.Path) {
		mux.ServeHTTP(w, r)
		return
	}
	rt.other.ServeHTTP(w, r)
}

// unmatched tells a path that has nothing from one that has something for other methods.
func (rt *router) unmatched(c *call, w http.ResponseWriter) error {
	r := c.request
	if !normal(r.URL.Path) {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path: it has empty or relative segments")
	}
	var allowed []string
	for method, mux := range rt.methods {
		if _, pattern := mux.Handler(r); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path")
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	allowed = append(allowed, http.MethodOptions)
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	if r.Method == http.MethodOptions {
		c.status = http.StatusNoContent
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return j17.Errorf(j17.CodeMethodNotAllowed, "The method is not allowed here; allowed are %s", list)
}

func normal(p string) bool {
	return p == "/" || p != "" && p[0] == '/' && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// serve lets a route's callers in and writes its errors.
func (a *API) serve(r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		c := callOf(req)
		c.request, c.route = req, r.pattern
		err := c.admit(r.access, w)
		if err == nil {
			err = r.handle(c, w)
		}
		if err != nil {
			c.fail(w, err)
		}
	}
}

// admit checks credentials, then rights, then rates.
func (c *call) admit(need access, w http.ResponseWriter) error {
	switch need {
	case free:
		return nil
	case open:
		return c.limit(w)
	case node:
		return c.admitNode()
	case read, write, operator:
	}
	if err := c.authenticate(need); err != nil {
		c.limitRefused(w, err)
		return err
	}
	if err := c.limit(w); err != nil {
		return err
	}
	c.count(need)
	return nil
}

// authenticate finds out who asks and whether they may ask what needs the access.
func (c *call) authenticate(need access) error {
	token, err := bearer(c.request)
	if err != nil {
		if e, ok := errors.AsType[*j17.Error](err); ok && need == operator {
			as := *e
			as.Message = strings.NewReplacer("an API key", "the token of POST /api/login", "<key>", "<token>").Replace(e.Message)
			err = &as
		}
		return err
	}
	if need == operator {
		c.principal, err = c.api.Auth.Operator(token)
		return err
	}
	if c.principal, err = c.api.Auth.APIKey(token); err != nil {
		return err
	}
	scope := j17.ScopeRead
	if need == write {
		scope = j17.ScopeWrite
	}
	return auth.Authorize(c.principal, c.instance, c.env, scope)
}

// bearer returns the token of the Authorization header.
func bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	switch len(values) {
	case 0:
		return "", j17.Errorf(j17.CodeUnauthorized, "Missing credentials. Send an API key in the header 'Authorization: Bearer <key>'.")
	case 1:
	default:
		return "", j17.Errorf(j17.CodeUnauthorized, "The request has more than one Authorization header. Send one.")
	}
	const scheme = "bearer "
	if v := values[0]; len(v) > len(scheme) && strings.EqualFold(v[:len(scheme)], scheme) {
		return strings.TrimSpace(v[len(scheme):]), nil
	}
	return "", j17.Errorf(j17.CodeUnauthorized, "The Authorization header must have the form 'Bearer <key>'.")
}
