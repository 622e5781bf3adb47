package main

import (
	"encoding/json"
	"testing"
)

func TestHandleAddsUp(t *testing.T) {
	var in HandlerInput
	text := `{"state":{"lines":[],"total":5},"event":{"data":{"sku":"PEN","unit_price":10,"quantity":3}}}`
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	out := handle(in)
	if out.Error != nil || out.State.Total != 35 || len(out.State.Lines) != 1 {
		t.Errorf("%+v", out)
	}
}

func TestHandleRejectsQuantities(t *testing.T) {
	for _, quantity := range []json.Number{"", "0", "-5", "1.5", "1000001"} {
		var in HandlerInput
		in.Event.Data.Quantity, in.Event.Data.UnitPrice = quantity, "1"
		if out := handle(in); out.Error == nil || out.Error.Code != "INVALID_QUANTITY" {
			t.Errorf("%q: %+v", quantity, out)
		}
	}
}
