package httpapi

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
