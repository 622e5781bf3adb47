package httpapi

import "net/http"

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
		if r.sites&(adminSite|dataSite) != 0 && r.access == operator {
			all = append(all, r.method+" "+r.pattern)
		}
	}
	return all
}

// Careless lists the routes that do not say who may use them.
func (a *API) Careless() []string {
	var all []string
	for _, r := range a.routes() {
		if r.access == unstated || r.access == operator && r.need.in == nowhere || r.access != operator && r.access != node && r.need != (need{}) {
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
