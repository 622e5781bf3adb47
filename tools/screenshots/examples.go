package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"j17/bench/devserver"
)

// orders are pages about one order, and those around it.
func orders(ctx context.Context, server *devserver.Server) ([]picture, error) {
	const order = "order/7d2f1c3a-5b64-4c8e-9a10-2f6f0c5d8e01"
	first, err := firstEvent(ctx, server, order)
	return []picture{
		{
			name: "aggregate", path: "aggregates/" + order + "?length=3", heading: "order/",
			do: verify, until: verified,
		},
		{name: "overview", path: "overview", heading: "Overview"},
		{name: "events", path: "events", heading: "Events"},
		{name: "event", path: "events/" + first, heading: "order.was_placed"},
		{name: "aggregates", path: "aggregates/order", heading: "order"},
		{name: "spec", path: "spec", heading: "Spec"},
		{name: "keys", path: "keys", heading: "API keys"},
		{name: "usage", path: "usage", heading: "Usage"},
	}, err
}

// checkout are the causes of a saga that was undone, and what waits for a person because of it.
func checkout(ctx context.Context, server *devserver.Server) ([]picture, error) {
	raw, err := server.Administer(ctx, &http.Client{}, http.MethodGet, "sagas?status=failed", nil)
	if err != nil {
		return nil, err
	}
	var list struct {
		Sagas []struct {
			Trigger struct {
				StreamID string `json:"stream_id"`
			}
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	if len(list.Sagas) == 0 {
		return nil, errors.New("no saga has failed")
	}
	return []picture{
		{name: "causes", path: "events/" + list.Sagas[0].Trigger.StreamID, heading: "cart."},
		{name: "attention", path: "attention", heading: "Needs attention"},
	}, nil
}
