package server

import (
	"j17/internal/httpapi"
	"j17/internal/spec"
)

// OpenAPI returns the OpenAPI document of an environment with a spec, and for nil that of the control plane.
func OpenAPI(version string, c *spec.Compiled) ([]byte, error) {
	if c == nil {
		return httpapi.OpenAPI(httpapi.ControlDocument, version, nil)
	}
	return httpapi.OpenAPI(httpapi.InstanceDocument, version, c)
}
