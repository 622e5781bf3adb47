package httpapi

import (
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
)

// instanceShape is an instance as people see it.
func (c *call) instanceShape(i control.Instance) wire.Instance {
	shape := wire.Instance{ID: i.ID, Name: i.Name, Plan: i.Plan, Node: i.Node, CreatedAt: i.CreatedAt}
	for _, env := range j17.Environments() {
		shape.Environments = append(shape.Environments, wire.Environment{Name: env, Host: c.api.hostOf(i.Name, env)})
	}
	return shape
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
	rows := make([]wire.Instance, 0)
	for _, i := range portion(visible, l) {
		rows = append(rows, c.instanceShape(i))
	}
	return list(c, w, "instances", l, rows)
}

// createInstance is POST /api/instances.
func (c *call) createInstance(w http.ResponseWriter) error {
	var body wire.NewInstance
	if err := c.decode(w, &body); err != nil {
		return err
	}
	i, err := c.api.Registry.Instances.Add(c.actorContext(), control.NewInstance{Name: body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, c.instanceShape(i))
}

// getInstance is GET /api/instances/{id}: the instance, its plan, and what it has used of it.
func (c *call) getInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	i, _ := c.api.Registry.Instances.ByID(id)
	answer := wire.InstanceUse{Instance: c.instanceShape(i), Limits: wire.Plan(c.api.Registry.Instances.PlanOf(id))}
	if n, ok := c.api.workerOf(id); ok {
		answer.Usage = c.usageElsewhere(n, id)
	} else if c.api.Usage != nil {
		used, err := c.api.Usage.Month(c.request.Context(), id)
		if err != nil {
			return err
		}
		answer.Usage = &used
	}
	return c.answer(w, http.StatusOK, answer)
}

// changeInstance is PATCH /api/instances/{id}. Who has an instance may rename it; the plan is the platform's to decide.
func (c *call) changeInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body wire.InstanceChange
	if err := c.decodeChange(w, &body); err != nil {
		return err
	}
	if body.Plan != nil {
		if err := c.needRight("", control.RightManage); err != nil {
			return err
		}
	}
	i, err := c.api.Registry.Instances.Change(c.actorContext(), id, control.InstanceChange{Name: body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, c.instanceShape(i))
}

// deleteInstance is DELETE /api/instances/{id}.
func (c *call) deleteInstance(w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if id == c.api.DefaultInstance {
		return j17.Errorf(j17.CodeConflict, "This is the server's default instance. Configure another one before you delete it.")
	}
	var body wire.Deletion
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	if err := c.api.Registry.Instances.Delete(c.actorContext(), id, body.Confirm); err != nil {
		return err
	}
	if c.api.Deploy != nil {
		c.api.Deploy.Forget(id)
	}
	if c.api.Indexes != nil {
		for _, env := range j17.Environments() {
			c.api.Indexes.Forget(j17.TenantOf(id, env))
		}
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
	var answer wire.Plans
	for _, p := range c.api.Registry.Instances.Plans() {
		answer.Plans = append(answer.Plans, wire.Plan(p))
	}
	return c.answer(w, http.StatusOK, answer)
}
