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

// routes manage API keys.
func (h *keyHandlers) routes() []route {
	audit, create := need{control.RightAudit, instance}, need{control.RightManage, instance}
	manage := need{control.RightManage, instanceOfKey}
	return []route{
		{controlSite, get, "/api/instances/{id}/keys", operator, audit, "", h.listKeys, operation{
			id: "listKeys", about: "List the API keys of an instance", query: pagedKeys(),
			gives: rows{"keys", wire.Key{}},
		}},
		{controlSite, post, "/api/instances/{id}/keys", operator, create, "key.create", h.createKey, operation{
			id: "createKey", about: "Create an API key", body: wire.NewKey{}, gives: wire.MadeKey{}, made: true,
		}},
		{controlSite, get, "/api/keys/{id}", operator, need{control.RightAudit, instanceOfKey}, "", h.getKey, operation{
			id: "getKey", about: "Get an API key", gives: wire.Key{},
		}},
		{controlSite, post, "/api/keys/{id}/rotate", operator, manage, "key.rotate", h.rotateKey, operation{
			id: "rotateKey", about: "Replace an API key with a new one", body: struct{}{}, optional: true,
			gives: wire.MadeKey{}, made: true,
		}},
		{
			controlSite, post, "/api/keys/{id}/schedule_revocation", operator, manage, "key.schedule_revocation",
			h.scheduleRevocation,
			operation{
				id: "scheduleRevocation", about: "Schedule the revocation of an API key", body: wire.Revocation{},
				gives: wire.Key{},
			},
		},
		{controlSite, remove, "/api/keys/{id}", operator, manage, "key.revoke", h.revokeKey, operation{
			id: "revokeKey", about: "Revoke an API key", gives: wire.Key{},
		}},
	}
}

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

func (h *keyHandlers) createKey(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body wire.NewKey
	if err := c.decode(w, &body); err != nil {
		return err
	}
	key, token, err := h.registry.Keys.Create(c.actorContext(), control.NewKey{
		Instance: id, Environment: body.Environment, Scope: body.Scope, Name: body.Name,
	})
	return c.done(w, http.StatusCreated, wire.MadeKey{Token: token, Key: key.Wire(c.api.Clock.Now())}, err)
}

func (h *keyHandlers) getKey(c *call, w http.ResponseWriter) error {
	key, _ := h.registry.Keys.ByID(c.request.PathValue("id"))
	return c.answer(w, http.StatusOK, key.Wire(c.api.Clock.Now()))
}

func (h *keyHandlers) rotateKey(c *call, w http.ResponseWriter) error {
	old := c.request.PathValue("id")
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	key, token, err := h.registry.Keys.Rotate(c.actorContext(), old)
	return c.done(
		w, http.StatusCreated, wire.MadeKey{Token: token, Replaces: old, Key: key.Wire(c.api.Clock.Now())}, err,
	)
}

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
	return c.done(w, http.StatusOK, key.Wire(c.api.Clock.Now()), err)
}

func (h *keyHandlers) revokeKey(c *call, w http.ResponseWriter) error {
	key, err := h.registry.Keys.Revoke(c.actorContext(), c.request.PathValue("id"), time.Time{})
	return c.done(w, http.StatusOK, key.Wire(c.api.Clock.Now()), err)
}
