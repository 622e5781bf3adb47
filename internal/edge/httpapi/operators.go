package httpapi

import (
	"context"
	"net/http"
	"slices"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// operatorHandlers manage operators.
type operatorHandlers struct {
	registry *control.Registry
}

// listOperators is GET /api/operators.
func (h *operatorHandlers) listOperators(c *call, w http.ResponseWriter) error {
	l := c.listing()
	rows := portion(h.registry.Operators.All(), l)
	return list(c, w, "operators", l, wire.Each(rows, (*control.Operator).Wire), nil)
}

// instanceOperators is GET /api/instances/{id}/operators: those who have a grant for the instance. Only what concerns it
// is shown of them.
func (h *operatorHandlers) instanceOperators(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	l := c.listing()
	rows := make([]wire.Operator, 0)
	for _, op := range h.registry.Operators.All() {
		if slices.Contains(op.Instances, id) {
			op.Instances = []string{id}
			rows = append(rows, op.Wire())
		}
	}
	return list(c, w, "operators", l, portion(rows, l), nil)
}

// createOperator is POST /api/operators.
func (h *operatorHandlers) createOperator(c *call, w http.ResponseWriter) error {
	var body wire.NewOperator
	if err := c.decode(w, &body); err != nil {
		return err
	}
	op, err := h.registry.Operators.Create(c.actorContext(), control.NewOperator{Email: body.Email, Password: body.Password, Role: control.Role(body.Role), Instances: body.Instances})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, op.Wire())
}

// getOperator is GET /api/operators/{id}. Everyone may look at themselves.
func (h *operatorHandlers) getOperator(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	op, ok := h.registry.Operators.ByID(id)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	return c.answer(w, http.StatusOK, op.Wire())
}

// changeOperator is PATCH /api/operators/{id}.
func (h *operatorHandlers) changeOperator(c *call, w http.ResponseWriter) error {
	var body wire.NewRole
	if err := c.decode(w, &body); err != nil {
		return err
	}
	op, err := h.registry.Operators.SetRole(c.actorContext(), c.request.PathValue("id"), control.Role(body.Role))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, op.Wire())
}

// deleteOperator is DELETE /api/operators/{id}.
func (h *operatorHandlers) deleteOperator(c *call, w http.ResponseWriter) error {
	if err := h.registry.Operators.Delete(c.actorContext(), c.request.PathValue("id")); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// resetPassword is POST /api/operators/{id}/password.
func (h *operatorHandlers) resetPassword(c *call, w http.ResponseWriter) error {
	var body wire.NewPassword
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := h.registry.Operators.SetPassword(c.actorContext(), c.request.PathValue("id"), body.Password); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// revokeTokens is POST /api/operators/{id}/revoke_tokens. Everyone may log themselves out everywhere.
func (h *operatorHandlers) revokeTokens(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if err := h.registry.Operators.RevokeTokens(c.actorContext(), id); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// grant is PUT /api/operators/{id}/grants/{instance}.
func (h *operatorHandlers) grant(c *call, w http.ResponseWriter) error {
	return h.changeGrant(c, w, h.registry.Operators.Grant)
}

// withdraw is DELETE /api/operators/{id}/grants/{instance}.
func (h *operatorHandlers) withdraw(c *call, w http.ResponseWriter) error {
	return h.changeGrant(c, w, h.registry.Operators.Withdraw)
}

func (*operatorHandlers) changeGrant(c *call, w http.ResponseWriter, change func(ctx context.Context, operatorID, instanceID string) (control.Operator, error)) error {
	op, err := change(c.actorContext(), c.request.PathValue("id"), c.request.PathValue("instance"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, op.Wire())
}
