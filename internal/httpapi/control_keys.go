package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/control"
)

// keyRow is an API key as people see it.
type keyRow struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Instance    string            `json:"instance_id"`
	Environment j17.Environment   `json:"environment"`
	Scope       j17.Scope         `json:"scope"`
	Prefix      string            `json:"prefix"`
	Status      control.KeyStatus `json:"status"`
	CreatedAt   time.Time         `json:"created_at"`
	CreatedBy   string            `json:"created_by,omitempty"`
	LastUsedAt  *time.Time        `json:"last_used_at"`
	RevokeAt    time.Time         `json:"revoke_at,omitzero"`
	RevokedAt   time.Time         `json:"revoked_at,omitzero"`
}

func (c *call) keyRow(k control.Key) keyRow {
	row := keyRow{
		ID: k.ID, Name: k.Name, Instance: k.Instance, Environment: k.Environment, Scope: k.Scope, Prefix: k.Prefix,
		Status: k.Status(c.api.Clock.Now()), CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, RevokeAt: k.RevokeAt, RevokedAt: k.RevokedAt.Truncate(time.Second),
	}
	if !k.LastUsedAt.IsZero() {
		row.LastUsedAt = &k.LastUsedAt
	}
	return row
}

// listKeys is GET /api/instances/{id}/keys.
func (c *call) listKeys(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	l, status := c.listing(), c.query["status"]
	rows := make([]keyRow, 0)
	for _, k := range c.api.Registry.Keys.Of(id) {
		if row := c.keyRow(k); status == "" || status == string(row.Status) {
			rows = append(rows, row)
		}
	}
	return list(c, w, "keys", l, part(rows, l))
}

// createKey is POST /api/instances/{id}/keys. The answer is the only place where the token can be seen.
func (c *call) createKey(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body struct {
		Name        *string          `json:"name"`
		Scope       *j17.Scope       `json:"scope"`
		Environment *j17.Environment `json:"environment"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := required(given{"name", body.Name != nil}, given{"scope", body.Scope != nil}, given{"environment", body.Environment != nil}); err != nil {
		return err
	}
	key, token, err := c.api.Registry.Keys.Create(c.acting(), control.NewKey{Instance: id, Environment: *body.Environment, Scope: *body.Scope, Name: *body.Name})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, c.keyRow(key), member{"key", token})
}

// getKey is GET /api/keys/{id}.
func (c *call) getKey(w http.ResponseWriter) error {
	key, _ := c.api.Registry.Keys.ByID(c.request.PathValue("id"))
	return c.answer(w, http.StatusOK, c.keyRow(key))
}

// rotateKey is POST /api/keys/{id}/rotate.
func (c *call) rotateKey(w http.ResponseWriter) error {
	old := c.request.PathValue("id")
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	key, token, err := c.api.Registry.Keys.Rotate(c.acting(), old)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, c.keyRow(key), member{"key", token}, member{"replaces", old})
}

// scheduleRevocation is POST /api/keys/{id}/schedule_revocation.
func (c *call) scheduleRevocation(w http.ResponseWriter) error {
	var body struct {
		RevokeAt *string `json:"revoke_at"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.RevokeAt == nil {
		return j17.Errorf(j17.CodeMissingField, "'revoke_at' must be given as a string").At("revoke_at")
	}
	at, err := time.Parse(time.RFC3339, *body.RevokeAt)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidField, "'revoke_at' must be a time such as 2026-11-21T08:00:00Z").At("revoke_at")
	}
	key, err := c.api.Registry.Keys.Revoke(c.acting(), c.request.PathValue("id"), at)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.keyRow(key))
}

// revokeKey is DELETE /api/keys/{id}.
func (c *call) revokeKey(w http.ResponseWriter) error {
	key, err := c.api.Registry.Keys.Revoke(c.acting(), c.request.PathValue("id"), time.Time{})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.keyRow(key))
}
