package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
)

// instanceHandlers manage instances and show what they use.
type instanceHandlers struct {
	defaultInstance string
	deploy          *deploy.Service
	registry        *control.Registry
	usage           *usage.Meter
}

// routes manage instances.
func (h *instanceHandlers) routes() []route {
	view, manage := need{control.RightView, instance}, need{control.RightManage, instance}
	create, del := need{control.RightManage, aServer}, need{control.RightManage, instanceOfServer}
	return []route{
		{controlSite, get, "/api/instances", operator, need{in: oneself}, "", h.listInstances, operation{
			id: "listInstances", about: "List the instances that you may see", query: paged(),
			gives: rows{"instances", wire.Instance{}},
		}},
		{controlSite, post, "/api/instances", operator, create, "instance.create", h.createInstance, operation{
			id: "createInstance", about: "Create an instance", body: wire.NewInstance{}, gives: wire.Instance{},
			made: true,
		}},
		{controlSite, get, "/api/instances/{id}", operator, view, "", h.getInstance, operation{
			id: "getInstance", about: "Get an instance, its plan and its usage", gives: wire.InstanceUse{},
		}},
		{controlSite, patch, "/api/instances/{id}", operator, manage, "instance.change", h.changeInstance, operation{
			id: "changeInstance", about: "Rename an instance, or give it another plan", body: wire.InstanceChange{},
			gives: wire.Instance{},
		}},
		{controlSite, remove, "/api/instances/{id}", operator, del, "instance.delete", h.deleteInstance, operation{
			id: "deleteInstance", about: "Delete an instance and all its data", body: wire.Deletion{},
			optional: true,
		}},
		{controlSite, get, "/api/instances/{id}/operators", operator, manage, "", h.instanceOperators, operation{
			id: "listInstanceOperators", about: "List the operators of an instance", query: paged(),
			gives: rows{"operators", wire.Operator{}},
		}},
		{controlSite, get, "/api/instances/{id}/usage", operator, view, "", onWorker("usage", h.usageDays), operation{
			id: "getUsage", about: "Get the usage of an instance, by day", query: span(), gives: wire.Days{},
		}},
		{controlSite, get, "/api/plans", operator, need{in: oneself}, "", h.listPlans, operation{
			id: "listPlans", about: "List the plans of the server", gives: wire.Plans{},
		}},
	}
}

// listInstances is GET /api/instances: those that the operator may see.
func (h *instanceHandlers) listInstances(c *call, w http.ResponseWriter) error {
	l := c.listing()
	var visible []control.Instance
	for _, i := range h.registry.Instances.All() {
		if h.registry.Operators.May(c.principal.ID, i.ID, control.RightView) {
			visible = append(visible, i)
		}
	}
	return list(
		c, w, "instances", l, wire.Each(
			portion(visible, l), func(i *control.Instance) wire.Instance { return i.Wire(c.api.hostOf) },
		), nil,
	)
}

func (h *instanceHandlers) createInstance(c *call, w http.ResponseWriter) error {
	var body wire.NewInstance
	if err := c.decode(w, &body); err != nil {
		return err
	}
	i, err := h.registry.Instances.Add(c.actorContext(), control.NewInstance{Name: body.Name, Plan: body.Plan})
	return c.done(w, http.StatusCreated, i.Wire(c.api.hostOf), err)
}

// getInstance is GET /api/instances/{id}: the instance, its plan, and what it has used of it.
func (h *instanceHandlers) getInstance(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	i, _ := h.registry.Instances.ByID(id)
	answer := wire.InstanceUse{Instance: i.Wire(c.api.hostOf), Limits: wire.Plan(h.registry.Instances.PlanOf(id))}
	if n, ok := c.api.workerOf(id); ok {
		answer.Usage = h.usageElsewhere(c, n, id)
	} else if h.usage != nil {
		used, err := h.usage.Month(c.request.Context(), id)
		if err != nil {
			return err
		}
		answer.Usage = &used
	}
	return c.answer(w, http.StatusOK, answer)
}

// changeInstance is PATCH /api/instances/{id}. Who has an instance may rename it; the plan is the platform's to decide.
func (h *instanceHandlers) changeInstance(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	var body wire.InstanceChange
	if err := c.decodeChange(w, &body); err != nil {
		return err
	}
	if body.Plan != nil {
		if err := c.api.guard.needRight(c, "", control.RightManage); err != nil {
			return err
		}
	}
	i, err := h.registry.Instances.Change(c.actorContext(), id, control.InstanceChange{
		Name: body.Name, Plan: body.Plan,
	})
	return c.done(w, http.StatusOK, i.Wire(c.api.hostOf), err)
}

func (h *instanceHandlers) deleteInstance(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("id")
	if id == h.defaultInstance {
		return j17.Errorf(j17.CodeConflict, "This is the server's default instance. Configure another one before you delete it.")
	}
	var body wire.Deletion
	if err := c.decodeOptional(w, &body); err != nil {
		return err
	}
	if err := h.registry.Instances.Delete(c.actorContext(), id, body.Confirm); err != nil {
		return err
	}
	if h.deploy != nil {
		h.deploy.Forget(id)
	}
	if h.usage != nil {
		if err := h.usage.Forget(c.request.Context(), id); err != nil {
			return err
		}
	}
	return c.answer(w, http.StatusOK, nil)
}

func (h *instanceHandlers) listPlans(c *call, w http.ResponseWriter) error {
	var answer wire.Plans
	for _, p := range h.registry.Instances.Plans() {
		answer.Plans = append(answer.Plans, wire.Plan(p))
	}
	return c.answer(w, http.StatusOK, answer)
}

// usageDays is GET /api/instances/{id}/usage: what each environment has used on each day, by default those of this
// month.
func (h *instanceHandlers) usageDays(c *call, w http.ResponseWriter) error {
	from, to := c.query.day("from"), c.query.day("to")
	if c.query["to"] == "" {
		to = c.api.Clock.Now().UTC()
	}
	if c.query["from"] == "" {
		from = time.Date(to.Year(), to.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	if to.Before(from) {
		return j17.Errorf(j17.CodeInvalidParameter, "'to' must not be before 'from'").At("to")
	}
	if h.usage == nil {
		return c.answer(w, http.StatusOK, wire.Days{Days: []wire.Day{}})
	}
	days, err := h.usage.Days(c.request.Context(), c.instance, from, to)
	if err != nil {
		return err
	}
	answer := wire.Days{Days: make([]wire.Day, len(days))}
	for i, d := range days {
		answer.Days[i] = wire.Day(d)
	}
	return c.answer(w, http.StatusOK, answer)
}

// usageElsewhere is the usage that a worker knows of; nil where it cannot be had now.
func (*instanceHandlers) usageElsewhere(c *call, n control.Node, instance string) *wire.Month {
	if n.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	var used wire.Used
	path := "/internal/control/instances/" + url.PathEscape(instance) + "/month"
	if err := c.api.forward.askShape(ctx, http.MethodGet, n, path, maxSmallBody, &used); err != nil {
		c.api.Logger.LogAttrs(ctx, slog.LevelDebug, "the usage of an instance cannot be had from its worker",
			slog.String("node", n.Name), slog.Any("error", err))
		return nil
	}
	return &used.Usage
}

func (h *instanceHandlers) usageMonth(c *call, w http.ResponseWriter) error {
	if h.usage == nil {
		return j17.Errorf(j17.CodeNotFound, "This worker does not count usage.")
	}
	used, err := h.usage.Month(c.request.Context(), c.instance)
	return c.done(w, http.StatusOK, wire.Used{Usage: used}, err)
}

// instanceOperators is GET /api/instances/{id}/operators: those with a grant for the instance. Only what concerns the
// instance is shown of them.
func (h *instanceHandlers) instanceOperators(c *call, w http.ResponseWriter) error {
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
