package httpapi

import (
	"encoding/json"
	"net/http"

	"j17/internal/store"
)

// tombstoneSpace holds the erasures of an environment: one JSON object each.
const tombstoneSpace store.Space = "tombstones"

// listTombstones is GET tombstones.
func (c *call) listTombstones(w http.ResponseWriter) error {
	l := c.listing()
	items, err := c.api.Store.Scan(c.request.Context(), c.tenant, tombstoneSpace, store.Range{}, l.offset+l.limit+1)
	if err != nil {
		return err
	}
	rows := make([]json.RawMessage, 0, len(items))
	for _, it := range part(items, l) {
		rows = append(rows, it.Value)
	}
	return list(c, w, "tombstones", l, rows)
}

// listFailedImplications lists the latest writes that were rejected because of what they implied.
func (c *call) listFailedImplications(w http.ResponseWriter) error {
	l := c.listing()
	failed, _, err := c.api.Engine.ImplicationFailures(c.request.Context(), c.tenant, l.offset, l.limit+1)
	if err != nil {
		return err
	}
	return list(c, w, "implications", l, failed)
}
