package server

import (
	"cmp"

	"j17/internal/edge/httpapi"
	"j17/internal/lang/spec"
)

// OpenAPI returns the OpenAPI document of an environment with a spec, or with admin that of its administration; for a
// nil spec it returns that of the control plane. url is where it is served, "" for where 'j17 dev' serves it.
func OpenAPI(version, url string, c *spec.Compiled, admin bool) ([]byte, error) {
	switch {
	case admin:
		return httpapi.OpenAPI(httpapi.AdminDocument, version, cmp.Or(url, "http://localhost:17000"), c)
	case c == nil:
		return httpapi.OpenAPI(httpapi.ControlDocument, version, cmp.Or(url, "http://control.localhost:17000"), nil)
	default:
		return httpapi.OpenAPI(httpapi.InstanceDocument, version, cmp.Or(url, "http://localhost:17000"), c)
	}
}
