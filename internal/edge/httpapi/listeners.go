package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/follow/listener"
	"j17/internal/plane/control"
)

// listenerHandlers administer listeners and their deliveries.
type listenerHandlers struct {
	listeners *listener.Service
	registry  *control.Registry
}

// routes administer listeners and their deliveries.
func (h *listenerHandlers) routes() []route {
	inspect, operate := need{control.RightInspect, instance}, need{control.RightOperate, instance}
	return []route{
		{0, get, "listeners", operator, inspect, "", h.listListeners, operation{
			id: "listListeners", about: "List the listeners of the spec, with their secrets and their progress", query: paged(),
			gives: rows{"listeners", wire.Listener{}},
		}},
		{0, post, "listeners/{name}/pause", operator, operate, "listener.pause", h.pauseListener, operation{
			id: "pauseListener", about: "Pause a listener", body: struct{}{},
			optional: true, gives: wire.ListenerChanged{},
		}},
		{0, post, "listeners/{name}/resume", operator, operate, "listener.resume", h.resumeListener, operation{
			id: "resumeListener", about: "Resume a listener where it was paused", body: struct{}{}, optional: true,
			gives: wire.ListenerChanged{},
		}},
		{
			0, post, "listeners/{name}/rotate_secret", operator, operate, "listener.rotate_secret", h.rotateListener,
			operation{
				id: "rotateListenerSecret", about: "Rotate the secret of a listener", body: struct{}{}, optional: true,
				gives: wire.ListenerChanged{},
			},
		},
		{0, post, "listeners/{name}/replay", operator, operate, "listener.replay", h.replayListener, operation{
			id: "replayListener", about: "Replay events to a listener, or count them", body: wire.ListenerReplay{},
			gives: wire.ListenerReplayed{}, accepted: wire.ListenerReplayed{},
		}},
		{0, post, "listeners/{name}/trigger", operator, operate, "listener.trigger", h.triggerListener, operation{
			id: "triggerListener", about: "Send a test event to a listener", body: struct{}{}, optional: true,
			gives: wire.Triggered{},
		}},
		{0, get, "deliveries", operator, inspect, "", h.listDeliveries, operation{
			id: "listDeliveries", about: "List the deliveries, newest first", query: pagedDeliveries(),
			gives: rows{"deliveries", wire.Delivery{}},
		}},
		{0, get, "deliveries/{delivery}", operator, inspect, "", h.getDelivery, operation{
			id: "getDelivery", about: "Get a delivery and its attempts", gives: wire.DeliveryShown{},
		}},
		{0, post, "deliveries/{delivery}/retry", operator, operate, "delivery.retry", h.retryDelivery, operation{
			id: "retryDelivery", about: "Send the message of a delivery again", body: struct{}{}, optional: true,
			gives: wire.DeliveryShown{},
		}},
	}
}

func (h *listenerHandlers) listListeners(c *call, w http.ResponseWriter) error {
	l := c.listing()
	all, err := h.listeners.List(c.request.Context(), c.tenant, l.offset, l.limit+1)
	return list(c, w, "listeners", l, wire.Each(all, (*listener.Listener).Wire), err)
}

func (h *listenerHandlers) pauseListener(c *call, w http.ResponseWriter) error {
	return h.changeListener(c, w, "listener.pause", h.listeners.Pause)
}

func (h *listenerHandlers) resumeListener(c *call, w http.ResponseWriter) error {
	return h.changeListener(c, w, "listener.resume", h.listeners.Resume)
}

func (h *listenerHandlers) rotateListener(c *call, w http.ResponseWriter) error {
	return h.changeListener(c, w, "listener.rotate_secret", h.listeners.Rotate)
}

// changeListener changes a listener, records it and answers with what the listener is then.
func (h *listenerHandlers) changeListener(
	c *call, w http.ResponseWriter, action string, change func(context.Context, j17.Tenant, string) error,
) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	// A change that has begun is finished and recorded even if the client has gone.
	ctx, name := context.WithoutCancel(c.actorContext()), c.request.PathValue("name")
	if err := change(ctx, c.tenant, name); err != nil {
		return err
	}
	if err := h.recordListener(c, action, name, nil); err != nil {
		return err
	}
	l, err := h.listeners.Get(ctx, c.tenant, name)
	return c.done(w, http.StatusOK, wire.ListenerChanged{Listener: l.Wire()}, err)
}

// recordListener adds what was done to a listener to the audit log.
func (h *listenerHandlers) recordListener(c *call, action, target string, details map[string]string) error {
	return h.registry.Audit.Add(context.WithoutCancel(c.actorContext()), control.Record{
		Action: action, Instance: c.instance, Environment: c.env, Target: target, Details: details,
	})
}

func (h *listenerHandlers) replayListener(c *call, w http.ResponseWriter) error {
	var body wire.ListenerReplay
	if err := c.decode(w, &body); err != nil {
		return err
	}

	// Which events are to be delivered again.
	r := listener.Replay{OnlyFailed: body.Only == "failed"}
	for _, at := range []struct {
		name, value, none string
		into              *j17.StreamID
	}{{"after", body.After, "0", &r.After}, {"until", body.Until, "", &r.Until}} {
		if at.value == at.none {
			continue
		}
		id, err := j17.ParseStreamID(at.value)
		if err != nil || at.none == "" && id.IsZero() {
			// before the first event there is nothing, and it must not be taken for no end at all
			return j17.Errorf(j17.CodeInvalidField, "'%s' must be the stream_id of an event, such as 1706789012345-0", at.name).At(at.name)
		}
		*at.into = id
	}
	if body.Only != "" && body.Only != "failed" {
		return j17.Errorf(j17.CodeInvalidField, "'only' must be \"failed\", or be left out").At("only")
	}

	// A dry run only counts them.
	name := c.request.PathValue("name")
	if body.DryRun {
		n, err := h.listeners.CountReplay(c.request.Context(), c.tenant, name, r)
		if err != nil {
			return err
		}
		return c.answer(w, http.StatusOK, wire.ListenerReplayed{DryRun: true, Count: n})
	}

	// Begin the replay, and record it.
	n, err := h.listeners.Replay(c.request.Context(), c.tenant, name, r)
	if err != nil {
		return err
	}
	details := map[string]string{"after": body.After}
	for key, value := range map[string]string{"until": body.Until, "only": body.Only} {
		if value != "" {
			details[key] = value
		}
	}
	if err := h.recordListener(c, "listener.replay", name, details); err != nil {
		return err
	}
	return c.answer(w, http.StatusAccepted, wire.ListenerReplayed{Count: n})
}

func (h *listenerHandlers) triggerListener(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	name := c.request.PathValue("name")
	d, try, err := h.listeners.Trigger(c.request.Context(), c.tenant, name)
	if err != nil {
		return err
	}
	if err := h.recordListener(c, "listener.trigger", name, nil); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.Triggered{Delivered: d.Status == listener.Delivered, Try: try.Wire()})
}

func (h *listenerHandlers) listDeliveries(c *call, w http.ResponseWriter) error {
	l := c.listing()
	f := listener.Filter{Listener: c.query["listener"], Status: listener.DeliveryStatus(c.query["status"])}
	if key, ok := c.query["key"]; ok {
		k, ok := j17.ParseKey(key)
		if !ok {
			return j17.Errorf(j17.CodeInvalidParameter, "'key' must be the key of an aggregate, such as order:550e8400-e29b-41d4-a716-446655440000").At("key")
		}
		f.Key = k.String()
	}
	all, err := h.listeners.Deliveries(c.request.Context(), c.tenant, f, l.offset, l.limit+1)
	return list(c, w, "deliveries", l, wire.Each(all, (*listener.Delivery).Wire), err)
}

func (h *listenerHandlers) getDelivery(c *call, w http.ResponseWriter) error {
	d, tries, err := h.listeners.Delivery(c.request.Context(), c.tenant, c.request.PathValue("delivery"))
	if err != nil {
		return err
	}
	shape := d.Wire()
	shape.Log = wire.Each(tries, (*listener.Try).Wire)
	return c.answer(w, http.StatusOK, wire.DeliveryShown{Delivery: shape})
}

func (h *listenerHandlers) retryDelivery(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	ctx := context.WithoutCancel(c.actorContext())
	d, err := h.listeners.Retry(ctx, c.tenant, c.request.PathValue("delivery"))
	if err != nil {
		return err
	}
	if err := h.recordListener(c, "delivery.retry", d.ID, map[string]string{"listener": d.Listener}); err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, wire.DeliveryShown{Delivery: d.Wire()})
}
