package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// keyHandlers manage API keys.
type keyHandlers struct {
	registry *control.Registry
}

// listKeys is GET /api/instances/{id}/keys.
func (h *keyHandlers) listKeys(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	l, status := c.listing(), c.query["status"]
	rows := make([]wire.Key, 0)
	for _, k := range h.registry.Keys.Of(id) {
		if row := k.Wire(c.api.Clock.Now()); status == "" || status == row.Status {
			rows = append(rows, row)
		}
	}
	return list(c, w, "keys", l, portion(rows, l), nil)
}

// createKey is POST /api/instances/{id}/keys. The answer is the only place where the token can be seen.
func (h *keyHandlers) createKey(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body wire.NewKey
	if err := c.decode(w, &body); err != nil {
		return err
	}
	key, token, err := h.registry.Keys.Create(c.actorContext(), control.NewKey{Instance: id, Environment: body.Environment, Scope: body.Scope, Name: body.Name})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, wire.MadeKey{Token: token, Key: key.Wire(c.api.Clock.Now())})
}

// getKey is GET /api/keys/{id}.
func (h *keyHandlers) getKey(c *call, w http.ResponseWriter) error {
	key, _ := h.registry.Keys.ByID(c.request.PathValue("id"))
	return c.answer(w, http.StatusOK, key.Wire(c.api.Clock.Now()))
}

// rotateKey is POST /api/keys/{id}/rotate.
func (h *keyHandlers) rotateKey(c *call, w http.ResponseWriter) error {
	old := c.request.PathValue("id")
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	key, token, err := h.registry.Keys.Rotate(c.actorContext(), old)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, wire.MadeKey{Token: token, Replaces: old, Key: key.Wire(c.api.Clock.Now())})
}

// scheduleRevocation is POST /api/keys/{id}/schedule_revocation.
func (h *keyHandlers) scheduleRevocation(c *call, w http.ResponseWriter) error {
	var body wire.Revocation
	if err := c.decode(w, &body); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, body.RevokeAt)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidField, "'revoke_at' must be a time such as 2026-11-21T08:00:00Z").At("revoke_at")
	}
	key, err := h.registry.Keys.Revoke(c.actorContext(), c.request.PathValue("id"), at)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, key.Wire(c.api.Clock.Now()))
}

// revokeKey is DELETE /api/keys/{id}.
func (h *keyHandlers) revokeKey(c *call, w http.ResponseWriter) error {
	key, err := h.registry.Keys.Revoke(c.actorContext(), c.request.PathValue("id"), time.Time{})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, key.Wire(c.api.Clock.Now()))
}
