package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/index"
	"j17/internal/plane/control"
	"j17/internal/plane/deploy"
	"j17/internal/plane/usage"
)

// instanceHandlers manage instances and show what they use.
type instanceHandlers struct {
	defaultInstance string
	deploy          *deploy.Service
	indexes         *index.Service
	registry        *control.Registry
	usage           *usage.Meter
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
	return list(c, w, "instances", l, wire.Each(portion(visible, l), func(i *control.Instance) wire.Instance { return i.Wire(c.api.hostOf) }), nil)
}

// createInstance is POST /api/instances.
func (h *instanceHandlers) createInstance(c *call, w http.ResponseWriter) error {
	var body wire.NewInstance
	if err := c.decode(w, &body); err != nil {
		return err
	}
	i, err := h.registry.Instances.Add(c.actorContext(), control.NewInstance{Name: body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusCreated, i.Wire(c.api.hostOf))
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
	i, err := h.registry.Instances.Change(c.actorContext(), id, control.InstanceChange{Name: body.Name, Plan: body.Plan})
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, i.Wire(c.api.hostOf))
}

// deleteInstance is DELETE /api/instances/{id}.
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
	if h.indexes != nil {
		for _, env := range j17.Environments() {
			h.indexes.Forget(j17.TenantOf(id, env))
		}
	}
	if h.usage != nil {
		if err := h.usage.Forget(c.request.Context(), id); err != nil {
			return err
		}
	}
	return c.answer(w, http.StatusOK, nil)
}

// listPlans is GET /api/plans.
func (h *instanceHandlers) listPlans(c *call, w http.ResponseWriter) error {
	var answer wire.Plans
	for _, p := range h.registry.Instances.Plans() {
		answer.Plans = append(answer.Plans, wire.Plan(p))
	}
	return c.answer(w, http.StatusOK, answer)
}

// usageDays is GET /api/instances/{id}/usage: what each environment has used on each day, by default those of this month.
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
	resp, err := c.api.forward.askNode(ctx, http.MethodGet, n, "/internal/control/instances/"+url.PathEscape(instance)+"/month")
	if err != nil {
		c.api.Logger.LogAttrs(ctx, slog.LevelDebug, "the usage of an instance cannot be had from its worker", slog.String("node", n.Name), slog.Any("error", err))
		return nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	var body struct {
		Usage *wire.Month `json:"usage"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxSmallBody)).Decode(&body) != nil {
		return nil
	}
	return body.Usage
}

// usageMonth is GET /internal/control/instances/{instance_}/month.
func (h *instanceHandlers) usageMonth(c *call, w http.ResponseWriter) error {
	if h.usage == nil {
		return j17.Errorf(j17.CodeNotFound, "This worker does not count usage.")
	}
	used, err := h.usage.Month(c.request.Context(), c.instance)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Used{Usage: used})
}
