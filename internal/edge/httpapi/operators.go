package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// operatorHandlers manage operators.
type operatorHandlers struct {
	registry *control.Registry
}

// routes manage operators and what holds for the whole server.
func (h *operatorHandlers) routes() []route {
	manage, themselves := need{control.RightManage, aServer}, need{control.RightManage, self}
	return []route{
		{controlSite, get, "/api/operators", operator, manage, "", h.listOperators, operation{
			id: "listOperators", about: "List the operators", query: paged(), gives: rows{"operators", wire.Operator{}},
		}},
		{controlSite, post, "/api/operators", operator, manage, "operator.create", h.createOperator, operation{
			id: "createOperator", about: "Create an operator", body: wire.NewOperator{}, gives: wire.Operator{},
			made: true,
		}},
		{controlSite, get, "/api/operators/{id}", operator, themselves, "", h.getOperator, operation{
			id: "getOperator", about: "Get an operator", gives: wire.Operator{},
		}},
		{controlSite, patch, "/api/operators/{id}", operator, manage, "operator.set_role", h.changeOperator, operation{
			id: "changeOperator", about: "Change the role of an operator", body: wire.NewRole{}, gives: wire.Operator{},
		}},
		{controlSite, remove, "/api/operators/{id}", operator, manage, "operator.delete", h.deleteOperator, operation{
			id: "deleteOperator", about: "Delete an operator",
		}},
		{
			controlSite, post, "/api/operators/{id}/password", operator, manage, "operator.set_password",
			h.resetPassword,
			operation{
				id: "resetPassword", about: "Set the password of an operator", body: wire.NewPassword{},
			},
		},
		{
			controlSite, post, "/api/operators/{id}/revoke_tokens", operator, themselves, "operator.revoke_tokens",
			h.revokeTokens,
			operation{
				id: "revokeTokens", about: "Invalidate all tokens of an operator",
			},
		},
		{
			controlSite, put, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.grant", h.grant,
			operation{
				id: "grantInstance", about: "Grant an operator access to an instance", gives: wire.Operator{},
			},
		},
		{
			controlSite, remove, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.withdraw",
			h.withdraw,
			operation{
				id: "withdrawInstance", about: "Revoke an operator's access to an instance", gives: wire.Operator{},
			},
		},
		{
			controlSite, post, "/api/signing_keys/rotate", operator, manage, "signing_key.rotate", h.rotateSigningKey,
			operation{
				id: "rotateSigningKey", about: "Rotate the key that signs tokens", body: wire.KeyRotation{},
				optional: true,
			},
		},
	}
}

func (h *operatorHandlers) listOperators(c *call, w http.ResponseWriter) error {
	l := c.listing()
	rows := portion(h.registry.Operators.All(), l)
	return list(c, w, "operators", l, wire.Each(rows, (*control.Operator).Wire), nil)
}

func (h *operatorHandlers) createOperator(c *call, w http.ResponseWriter) error {
	var body wire.NewOperator
	if err := c.decode(w, &body); err != nil {
		return err
	}
	op, err := h.registry.Operators.Create(c.actorContext(), control.NewOperator{
		Email: body.Email, Password: body.Password, Role: control.Role(body.Role), Instances: body.Instances,
	})
	return c.done(w, http.StatusCreated, op.Wire(), err)
}

func (h *operatorHandlers) getOperator(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	op, ok := h.registry.Operators.ByID(id)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	return c.answer(w, http.StatusOK, op.Wire())
}

func (h *operatorHandlers) changeOperator(c *call, w http.ResponseWriter) error {
	var body wire.NewRole
	if err := c.decode(w, &body); err != nil {
		return err
	}
	op, err := h.registry.Operators.SetRole(c.actorContext(), c.request.PathValue("id"), control.Role(body.Role))
	return c.done(w, http.StatusOK, op.Wire(), err)
}

func (h *operatorHandlers) deleteOperator(c *call, w http.ResponseWriter) error {
	if err := h.registry.Operators.Delete(c.actorContext(), c.request.PathValue("id")); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

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

func (h *operatorHandlers) revokeTokens(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if err := h.registry.Operators.RevokeTokens(c.actorContext(), id); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

func (h *operatorHandlers) grant(c *call, w http.ResponseWriter) error {
	return h.changeGrant(c, w, h.registry.Operators.Grant)
}

func (h *operatorHandlers) withdraw(c *call, w http.ResponseWriter) error {
	return h.changeGrant(c, w, h.registry.Operators.Withdraw)
}

func (*operatorHandlers) changeGrant(
	c *call, w http.ResponseWriter,
	change func(ctx context.Context, operatorID, instanceID string) (control.Operator, error),
) error {
	op, err := change(c.actorContext(), c.request.PathValue("id"), c.request.PathValue("instance"))
	return c.done(w, http.StatusOK, op.Wire(), err)
}
