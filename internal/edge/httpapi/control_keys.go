package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// keyShape is an API key as people see it.
func (c *call) keyShape(k control.Key) wire.Key {
	shape := wire.Key{
		ID: k.ID, Name: k.Name, Instance: k.Instance, Environment: k.Environment, Scope: k.Scope, Prefix: k.Prefix,
		Status: string(k.Status(c.api.Clock.Now())), CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokeAt: k.RevokeAt, RevokedAt: k.RevokedAt.Truncate(time.Second),
	}
	if !k.LastUsedAt.IsZero() {
		shape.LastUsedAt = &k.LastUsedAt
	}
	return shape
}

// listKeys is GET /api/instances/{id}/keys.
func (c *call) listKeys(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	l, status := c.listing(), c.query["status"]
	rows := make([]wire.Key, 0)
	for _, k := range c.api.Registry.Keys.Of(id) {
		if row := c.keyShape(k); status == "" || status == row.Status {
			rows = append(rows, row)
		}
	}
	return list(c, w, "keys", l, portion(rows, l))
}

// createKey is POST /api/instances/{id}/keys. The answer is the only place where the token can be seen.
func (c *call) createKey(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body wire.NewKey
	if err := c.decode(w, &body); err != nil {
		return err
	}
	key, token, err := c.api.Registry.Keys.Create(c.actorContext(), control.NewKey{Instance: id, Environment: body.Environment, Scope: body.Scope, Name: body.Name})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, wire.MadeKey{Token: token, Key: c.keyShape(key)})
}

// getKey is GET /api/keys/{id}.
func (c *call) getKey(w http.ResponseWriter) error {
	key, _ := c.api.Registry.Keys.ByID(c.request.PathValue("id"))
	return c.answer(w, http.StatusOK, c.keyShape(key))
}

// rotateKey is POST /api/keys/{id}/rotate.
func (c *call) rotateKey(w http.ResponseWriter) error {
	old := c.request.PathValue("id")
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	key, token, err := c.api.Registry.Keys.Rotate(c.actorContext(), old)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, wire.MadeKey{Token: token, Replaces: old, Key: c.keyShape(key)})
}

// scheduleRevocation is POST /api/keys/{id}/schedule_revocation.
func (c *call) scheduleRevocation(w http.ResponseWriter) error {
	var body wire.Revocation
	if err := c.decode(w, &body); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, body.RevokeAt)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidField, "'revoke_at' must be a time such as 2026-11-21T08:00:00Z").At("revoke_at")
	}
	key, err := c.api.Registry.Keys.Revoke(c.actorContext(), c.request.PathValue("id"), at)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.keyShape(key))
}

// revokeKey is DELETE /api/keys/{id}.
func (c *call) revokeKey(w http.ResponseWriter) error {
	key, err := c.api.Registry.Keys.Revoke(c.actorContext(), c.request.PathValue("id"), time.Time{})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.keyShape(key))
}
