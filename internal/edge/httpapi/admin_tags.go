package httpapi

import (
	"net/http"

	"j17/internal/base/wire"
)

// listTags is GET tags.
func (c *call) listTags(w http.ResponseWriter) error {
	all, err := c.api.Tagging.Tags(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	out := wire.Tags{Tags: make([]wire.DeclaredTag, len(all)), Environment: c.env}
	for i, tag := range all {
		out.Tags[i] = wire.DeclaredTag{Name: tag.Name, AggregateTypes: tag.Types, Status: "ready"}
		if !tag.Ready {
			out.Tags[i].Status, out.Tags[i].Build = "building", &wire.Build{Status: "running", Done: tag.Done, Total: tag.Total}
		}
	}
	return c.answer(w, http.StatusOK, out)
}
