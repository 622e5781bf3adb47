package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"j17"
	"j17/internal/control"
)

// operatorRow is an operator as people see them.
type operatorRow struct {
	ID        string       `json:"id"`
	Email     string       `json:"email"`
	Role      control.Role `json:"role"`
	Instances []string     `json:"instances"`
	CreatedAt time.Time    `json:"created_at"`
}

func (c *call) operatorRow(op control.Operator) operatorRow {
	row := operatorRow{ID: op.ID, Email: op.Email, Role: op.Role, Instances: op.Instances, CreatedAt: op.CreatedAt}
	if row.Instances == nil {
		row.Instances = []string{}
	}
	return row
}

// listOperators is GET /api/operators.
func (c *call) listOperators(w http.ResponseWriter) error {
	l := c.listing()
	rows := make([]operatorRow, 0)
	for _, op := range part(c.api.Registry.Operators.All(), l) {
		rows = append(rows, c.operatorRow(op))
	}
	return list(c, w, "operators", l, rows)
}

// instanceOperators is GET /api/instances/{id}/operators: those who have a grant for the instance. Only what concerns it
// is shown of them.
func (c *call) instanceOperators(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	l := c.listing()
	rows := make([]operatorRow, 0)
	for _, op := range c.api.Registry.Operators.All() {
		if slices.Contains(op.Instances, id) {
			op.Instances = []string{id}
			rows = append(rows, c.operatorRow(op))
		}
	}
	return list(c, w, "operators", l, part(rows, l))
}

// createOperator is POST /api/operators.
func (c *call) createOperator(w http.ResponseWriter) error {
	var body struct {
		Email     *string       `json:"email"`
		Password  *string       `json:"password"`
		Role      *control.Role `json:"role"`
		Instances []string      `json:"instances"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if err := required(given{"email", body.Email != nil}, given{"password", body.Password != nil}, given{"role", body.Role != nil}); err != nil {
		return err
	}
	op, err := c.api.Registry.Operators.Create(c.acting(), control.NewOperator{Email: *body.Email, Password: *body.Password, Role: *body.Role, Instances: body.Instances})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, c.operatorRow(op))
}

// getOperator is GET /api/operators/{id}. Everyone may look at themselves.
func (c *call) getOperator(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	op, ok := c.api.Registry.Operators.ByID(id)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "There is no such operator.")
	}
	return c.answer(w, http.StatusOK, c.operatorRow(op))
}

// changeOperator is PATCH /api/operators/{id}.
func (c *call) changeOperator(w http.ResponseWriter) error {
	var body struct {
		Role *control.Role `json:"role"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Role == nil {
		return required(given{"role", false})
	}
	op, err := c.api.Registry.Operators.SetRole(c.acting(), c.request.PathValue("id"), *body.Role)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.operatorRow(op))
}

// deleteOperator is DELETE /api/operators/{id}.
func (c *call) deleteOperator(w http.ResponseWriter) error {
	if err := c.api.Registry.Operators.Delete(c.acting(), c.request.PathValue("id")); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// resetPassword is POST /api/operators/{id}/password.
func (c *call) resetPassword(w http.ResponseWriter) error {
	var body struct {
		Password *string `json:"password"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Password == nil {
		return required(given{"password", false})
	}
	if err := c.api.Registry.Operators.SetPassword(c.acting(), c.request.PathValue("id"), *body.Password); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// revokeTokens is POST /api/operators/{id}/revoke_tokens. Everyone may log themselves out everywhere.
func (c *call) revokeTokens(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if err := c.api.Registry.Operators.RevokeTokens(c.acting(), id); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, nil)
}

// grant is PUT /api/operators/{id}/grants/{instance}.
func (c *call) grant(w http.ResponseWriter) error {
	return c.changeGrant(w, c.api.Registry.Operators.Grant)
}

// withdraw is DELETE /api/operators/{id}/grants/{instance}.
func (c *call) withdraw(w http.ResponseWriter) error {
	return c.changeGrant(w, c.api.Registry.Operators.Withdraw)
}

func (c *call) changeGrant(w http.ResponseWriter, change func(ctx context.Context, operatorID, instanceID string) (control.Operator, error)) error {
	op, err := change(c.acting(), c.request.PathValue("id"), c.request.PathValue("instance"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.operatorRow(op))
}
