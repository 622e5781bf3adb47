package httpapi

import (
	"net"
	"net/http"
	"strings"

	"j17/internal/base/work"
	"j17/internal/derived/projection"
	"j17/internal/edge/openapi"
)

// ControlRoutes lists the routes of the control plane as "METHOD /pattern".
func (a *API) ControlRoutes() []string {
	var all []string
	for _, r := range a.routes() {
		if r.sites == controlSite {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// OperatorRoutes lists the routes of the hosts of environments that are for operators.
func (a *API) OperatorRoutes() []string {
	var all []string
	for _, r := range a.routes() {
		if r.sites&(adminSite|dataSite) != 0 && (r.access == operator || r.access == reader) {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// Careless lists the routes that do not say who may use them.
func (a *API) Careless() []string {
	var all []string
	for _, r := range a.routes() {
		if asks := r.access == operator || r.access == reader; r.access == unstated || asks && r.need.in == nowhere ||
			!asks && r.access != node && r.need != (need{}) {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// ServeCareless answers a request with a route that does not say who may use it.
func (a *API) ServeCareless(asks string, called *bool) http.Handler {
	r := route{pattern: "careless", handle: func(*call, http.ResponseWriter) error { *called = true; return nil }}
	if asks == "operator" {
		r.access = operator
	}
	return a.observed(a.serve(r))
}

// ServeBroken begins with an answer of several lines and panics.
func (a *API) ServeBroken() http.Handler {
	return a.observed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		callOf(r).startLines(w)
		_, _ = w.Write([]byte("the first line\n"))
		_ = http.NewResponseController(w).Flush()
		panic("a fault")
	}))
}

// Sites are the hosts of the documents.
func Sites() map[Document]site {
	return map[Document]site{
		ControlDocument: controlSite, InstanceDocument: dataSite | viewSite, AdminDocument: adminSite,
		InternalDocument: internalSite,
	}
}

// Described lists the rows of the table that a document is about, and those of them that nobody has described.
func (a *API) Described(d Document) (all, not []string) {
	for _, r := range a.routes() {
		if r.sites&Sites()[d] == 0 {
			continue
		}
		all = append(all, r.method+" "+r.pattern)
		if r.id == "" || r.about == "" {
			not = append(not, r.method+" "+r.pattern)
		}
	}
	return all, not
}

// Describe makes a document.
func (a *API) Describe(d Document) ([]byte, error) {
	raw, err := a.describe(d, &projection.Declared{})
	return append(raw, openapi.At("https://j17.example")...), err
}

// OperationOf returns the document that describes what a request on the public listener asks for, and the path that it
// has there; "" where nothing is asked for that is described.
func (a *API) OperationOf(r *http.Request) (Document, string) {
	switch name, _ := hostname(r.Host); {
	case name == "control."+a.BaseDomain:
		return ControlDocument, a.control.described(r)
	case strings.HasPrefix(r.URL.Path, adminPrefix):
		return AdminDocument, a.admin.described(r)
	case strings.HasPrefix(r.URL.Path, viewPrefix):
		return InstanceDocument, a.views.described(r)
	default:
		return InstanceDocument, a.data.described(r)
	}
}

// InternalOperationOf returns the path that InternalDocument has for a request on the internal listener, "" for none.
func (a *API) InternalOperationOf(r *http.Request) string { return a.router(internalSite).described(r) }

// described returns the path of the route that a request comes to, as documents have it, "" for none.
func (rt *router) described(r *http.Request) string {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	mux := rt.methods[method]
	if mux == nil || !normal(r.URL.Path) {
		return ""
	}
	if _, pattern := mux.Handler(r); pattern != "/" {
		return pathOf(pattern)
	}
	return ""
}

// SetTaken says how it is known what the clients of streams have taken.
func (a *API) SetTaken(taken func(net.Conn) (uint64, bool)) { a.streams.taken = taken }

// SetPageWork says what a page of the feed may cost.
func (a *API) SetPageWork(units int64) { a.feeds.pageWork = units }

// Turns are those that heavy requests take.
func (a *API) Turns() *work.Pool { return a.resources.turns }

// HoldTurns takes all turns on processors that an environment may have, and returns what gives them back.
func (a *API) HoldTurns(tenant string) (give func()) {
	n, _ := a.resources.turns.TryTake(tenant, 1<<30)
	return func() { a.resources.turns.Give(tenant, n) }
}
