package main

import (
	"encoding/json"
	"strconv"
)

// Line is one line of an order. Amounts are in cents.
type Line struct {
	SKU       string `json:"sku"`
	UnitPrice int64  `json:"unit_price"`
	Quantity  int64  `json:"quantity"`
	Total     int64  `json:"line_total"`
}

// State is the state of an order.
type State struct {
	Lines []Line `json:"lines"`
	Total int64  `json:"total"`
}

// HandlerInput is what j17 passes to a handler.
type HandlerInput struct {
	State State `json:"state"`
	Event struct {
		Data struct {
			SKU       string      `json:"sku"`
			UnitPrice json.Number `json:"unit_price"`
			Quantity  json.Number `json:"quantity"`
		} `json:"data"`
	} `json:"event"`
}

// HandlerOutput is the new state, or why there is none.
type HandlerOutput struct {
	State *State     `json:"state,omitempty"`
	Error *Rejection `json:"error,omitempty"`
}

// Rejection reaches the writer of the event as an error 422.
type Rejection struct {
	Type    string            `json:"type"`
	Message string            `json:"message"`
	Code    string            `json:"code"`
	Context map[string]string `json:"context"`
}

func reject(code, field, message string) HandlerOutput {
	return HandlerOutput{Error: &Rejection{"validation_failed", message, code, map[string]string{"field": field}}}
}

// handle adds a line to an order and works out the totals.
func handle(in HandlerInput) HandlerOutput {
	data := in.Event.Data
	quantity, err := strconv.ParseInt(data.Quantity.String(), 10, 64)
	if err != nil || quantity < 1 || quantity > 1_000_000 {
		return reject("INVALID_QUANTITY", "quantity", "The quantity has to be a whole number from 1 to 1000000.")
	}
	price, err := strconv.ParseInt(data.UnitPrice.String(), 10, 64)
	if err != nil || price < 0 || price > 100_000_000 {
		return reject("INVALID_PRICE", "unit_price", "The unit price has to be a whole number of cents from 0 to 100000000.")
	}
	line := Line{data.SKU, price, quantity, price * quantity}
	return HandlerOutput{State: &State{append(in.State.Lines, line), in.State.Total + line.Total}}
}

// ImplicationInput is what j17 passes to an implication.
type ImplicationInput struct {
	Event struct {
		Key  string `json:"key"`
		Data struct {
			Items []struct {
				ProductID string      `json:"product_id"`
				Quantity  json.Number `json:"quantity"`
			} `json:"items"`
		} `json:"data"`
	} `json:"event"`
}

// ImplicationOutput lists the events to write together with the one that caused them.
type ImplicationOutput struct {
	Actions []Action `json:"actions"`
}

// Action is one of them.
type Action struct {
	Emit Emit `json:"emit"`
}

// Emit is an event for an aggregate.
type Emit struct {
	AggregateType string      `json:"aggregate_type"`
	ID            string      `json:"id"`
	EventType     string      `json:"event_type"`
	Data          Reservation `json:"data"`
}

// Reservation is the data of such an event.
type Reservation struct {
	Quantity json.Number `json:"quantity"`
	Order    string      `json:"order"`
}

// imply reserves every item of an order.
func imply(in ImplicationInput) ImplicationOutput {
	out := ImplicationOutput{Actions: []Action{}}
	for _, item := range in.Event.Data.Items {
		out.Actions = append(out.Actions, Action{
			Emit{"inventory", item.ProductID, "was_reserved", Reservation{item.Quantity, in.Event.Key}},
		})
	}
	return out
}
