package httpapi

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"j17"
	"j17/internal/lang/diag"
)

// router is the handler of one site: one mux for each method, so that patterns of different methods cannot conflict.
// Requests that match no route get a JSON answer too.
type router struct {
	methods map[string]*http.ServeMux
	// own are the methods of the paths without wildcards; for other methods, these paths are not those of aggregates
	// either.
	own   map[string][]string
	other http.Handler
}

func (a *API) router(s site) *router {
	rt := &router{methods: map[string]*http.ServeMux{}, own: map[string][]string{}}
	for _, r := range a.routes() {
		if r.sites&s == 0 {
			continue
		}
		if rt.methods[r.method] == nil {
			rt.methods[r.method] = http.NewServeMux()
		}
		serve := a.serve(r)
		if ofAggregates(r.pattern) {
			serve = rt.unlessReserved(serve)
		}
		rt.methods[r.method].HandleFunc(r.pattern, serve)
		if !strings.Contains(r.pattern, "{") {
			rt.own[r.pattern] = append(rt.own[r.pattern], r.method)
		}
	}
	nothing := route{pattern: "unmatched", access: open, operation: operation{query: anything()}, handle: rt.unmatched}
	if s == internalSite {
		nothing.access = free
	}
	rt.other = a.serve(nothing)
	for _, mux := range rt.methods {
		mux.Handle("/", rt.other)
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
	own := rt.own[r.URL.Path]
	if mux := rt.methods[method]; mux != nil && normal(r.URL.Path) && (own == nil || slices.Contains(own, method)) {
		mux.ServeHTTP(w, r)
		return
	}
	rt.other.ServeHTTP(w, r)
}

// ofAggregates reports whether a pattern is one of aggregates, which begins with their type.
func ofAggregates(pattern string) bool { return strings.HasPrefix(pattern, "/{type}") }

// reserved reports whether a path cannot be that of an aggregate: names that start with an underscore are the server's
// own.
func reserved(path string) bool { return strings.HasPrefix(path, "/_") }

// unlessReserved serves the paths of aggregates, and answers that nothing is there for reserved ones that look like
// them.
func (rt *router) unlessReserved(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if reserved(r.URL.Path) {
			rt.other.ServeHTTP(w, r)
			return
		}
		serve(w, r)
	}
}

// meant returns the one of the server's own paths that was probably meant by one that does not exist; "" where that is
// not clear.
func (rt *router) meant(path string) string {
	if strings.HasPrefix(path, "/api/instances/") && strings.HasSuffix(path, "/spec/prepared") {
		return ". A spec that is prepared is one of an environment: at '/api/instances/{instance}/ops/{environment}/spec/prepared'."
	}
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		return ": it ends with a slash. Leave the slash out."
	}
	if !reserved(path) {
		return ""
	}
	switch first, _, _ := strings.Cut(path[1:], "/"); first {
	case "_feed":
		return ". The feed is at '/_events'."
	case "_projections":
		return ". A projection is at '/_projections/{name}'; an operator lists them with GET /_admin/projections."
	}
	return diag.Meant(path, func(yield func(string) bool) {
		for own := range rt.own {
			if reserved(own) && !yield(own) {
				return
			}
		}
	})
}

// unmatched distinguishes a path where nothing is from one that has routes for other methods.
func (rt *router) unmatched(c *call, w http.ResponseWriter) error {
	r := c.request
	if !normal(r.URL.Path) {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path: it has empty or relative segments")
	}
	allowed := slices.Clone(rt.own[r.URL.Path])
	if allowed == nil {
		for method, mux := range rt.methods {
			if _, pattern := mux.Handler(r); pattern != "/" && (!ofAggregates(pattern) || !reserved(r.URL.Path)) {
				allowed = append(allowed, method)
			}
		}
	}
	if allowed == nil {
		return j17.Errorf(j17.CodeNotFound, "There is nothing at this path%s", rt.meant(r.URL.Path))
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
	where := ""
	if strings.HasSuffix(r.URL.Path, "/spec") && (r.Method == http.MethodPost || r.Method == http.MethodPut) {
		where = ". Operators deploy specs with POST /api/instances/{instance}/spec on the control host, or with 'j17 spec deploy'."
	}
	return j17.Errorf(j17.CodeMethodNotAllowed, "The method is not allowed here; allowed are %s%s", list, where)
}

func normal(p string) bool {
	return p == "/" || p != "" && p[0] == '/' && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// serve authenticates a route's callers, reads its parameters, calls its handler and writes its errors. Rights are
// checked before anything else of the request is read.
func (a *API) serve(r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		c := callOf(req)
		c.request, c.route = req, r.pattern

		// Refusals before authentication cannot be attributed to an operator.
		if err := c.api.guard.admit(c, r.access, w); err != nil {
			c.fail(w, err)
			return
		}

		err := c.api.guard.entitled(c, &r)
		if err == nil {
			c.api.guard.countRead(c, &r)
			err = c.readParameters(r.query)
		}
		if err == nil {
			err = r.handle(c, w)
		}
		if err != nil {
			c.api.guard.attempted(c, r.action, err)
			c.fail(w, err)
		}
	}
}
