package httpapi

import "net/http"

// listFailedImplications lists the latest writes that were rejected because of what they implied.
func (c *call) listFailedImplications(w http.ResponseWriter) error {
	l := c.listing()
	failed, _, err := c.api.Engine.ImplicationFailures(c.request.Context(), c.tenant, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	return list(c, w, "implications", l, failed)
}
