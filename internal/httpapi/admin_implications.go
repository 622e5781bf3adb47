package httpapi

import (
	"net/http"

	"j17/internal/control"
)

func (a *API) implicationRoutes() []adminRoute {
	return []adminRoute{{http.MethodGet, "implications/failed", control.RightInspect, (*call).listFailedImplications, ""}}
}

// listFailedImplications lists the latest writes that were rejected because of what they implied.
func (c *call) listFailedImplications(w http.ResponseWriter) error {
	l, err := c.listing()
	if err != nil {
		return err
	}
	failed, _, err := c.api.Engine.ImplicationFailures(c.request.Context(), c.tenant, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	return list(c, w, "implications", l, failed)
}
