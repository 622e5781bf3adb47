package httpapi

import (
	"net/http"
	"time"

	"j17"
	"j17/internal/control"
)

// instanceRow is an instance as people see it.
type instanceRow struct {
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Plan         string           `json:"plan"`
	Node         string           `json:"node,omitempty"`
	CreatedAt    time.Time        `json:"created_at"`
	Environments []environmentRow `json:"environments"`
}

type environmentRow struct {
	Name j17.Environment `json:"name"`
	Host string          `json:"host"`
}

func (c *call) instanceRow(i control.Instance) instanceRow {
	row := instanceRow{ID: i.ID, Name: i.Name, Plan: i.Plan, Node: i.Node, CreatedAt: i.CreatedAt}
	for _, env := range j17.Environments() {
		row.Environments = append(row.Environments, environmentRow{Name: env, Host: c.api.hostOf(i.Name, env)})
	}
	return row
}

// listInstances is GET /api/instances: those that the operator may see.
func (c *call) listInstances(w http.ResponseWriter) error {
	l := c.listing()
	var visible []control.Instance
	for _, i := range c.api.Registry.Instances.All() {
		if c.api.Registry.Operators.May(c.principal.ID, i.ID, control.RightView) {
			visible = append(visible, i)
		}
	}
	rows := make([]instanceRow, 0)
	for _, i := range part(visible, l) {
		rows = append(rows, c.instanceRow(i))
	}
	return list(c, w, "instances", l, rows)
}

// createInstance is POST /api/instances.
func (c *call) createInstance(w http.ResponseWriter) error {
	var body struct {
		Name *string `json:"name"`
		Plan string  `json:"plan"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Name == nil {
		return j17.Errorf(j17.CodeMissingField, "'name' must be given as a string").At("name")
	}
	i, err := c.api.Registry.Instances.Add(c.acting(), control.NewInstance{Name: *body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, c.instanceRow(i))
}

// getInstance is GET /api/instances/{id}: the instance, its plan, and what it has used of it.
func (c *call) getInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	i, _ := c.api.Registry.Instances.ByID(id)
	members := []member{{"limits", c.api.Registry.Instances.PlanOf(id)}}
	if n, ok := c.api.elsewhere(id); ok {
		members = append(members, member{"usage", c.usageElsewhere(n, id)})
	} else if c.api.Usage != nil {
		used, err := c.api.Usage.Month(c.request.Context(), id)
		if err != nil {
			return err
		}
		members = append(members, member{"usage", used})
	}
	return c.answer(w, http.StatusOK, c.instanceRow(i), members...)
}

// changeInstance is PATCH /api/instances/{id}. Who has an instance may rename it; the plan is the platform's to decide.
func (c *call) changeInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body struct {
		Name *string `json:"name"`
		Plan *string `json:"plan"`
	}
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if body.Plan != nil {
		if err := c.needRight("", control.RightManage); err != nil {
			return err
		}
	}
	i, err := c.api.Registry.Instances.Change(c.acting(), id, control.InstanceChange{Name: body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.instanceRow(i))
}

// deleteInstance is DELETE /api/instances/{id}.
func (c *call) deleteInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if id == c.api.DefaultInstance {
		return j17.Errorf(j17.CodeConflict, "This is the server's default instance. Configure another one before you delete it.")
	}
	var body struct {
		Confirm string `json:"confirm"`
	}
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	if err := c.api.Registry.Instances.Delete(c.acting(), id, body.Confirm); err != nil {
		return err
	}
	if c.api.Deploy != nil {
		c.api.Deploy.Forget(id)
	}
	if c.api.Usage != nil {
		if err := c.api.Usage.Forget(c.request.Context(), id); err != nil {
			return err
		}
	}
	return c.answer(w, http.StatusOK, nil)
}

// listPlans is GET /api/plans.
func (c *call) listPlans(w http.ResponseWriter) error {
	return c.answer(w, http.StatusOK, nil, member{"plans", c.api.Registry.Instances.Plans()})
}
