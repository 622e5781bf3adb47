package typegen_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17/internal/spec/typegen"
	"j17/internal/value"
)

// A definition that all schemas share is one component, whatever event type is called as it is.
func TestSharedDefinitionsAreComponentsOnce(t *testing.T) {
	root, err := value.ParseString(`{"$defs": {"positive": {"type": "number"}, "money": {"properties": {"amount": {"$ref": "#/$defs/positive"}, "of": {"$ref": "#/$defs/money"}}}},
		"aggregate_types": {
			"shared": {"events": {"money": {"schema": {"properties": {"a": {"$ref": "#/$defs/money"}, "b": {"$ref": "#/$defs/own"}}, "$defs": {"own": {"type": "string"}}}}}},
			"order": {"events": {
				"was_paid": {"schema": {"$ref": "#/$defs/money"}},
				"was_sent": {"schema": {"properties": {"n": {"$ref": "#/$defs/positive"}, "m": {"$ref": "#/$defs/money"}}, "$defs": {"positive": {"type": "integer"}}}}}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range typegen.Components(root) {
		if got[c.Name] != "" {
			t.Errorf("%s is there twice", c.Name)
		}
		got[c.Name] = string(c.Schema)
	}
	want := map[string]string{
		"shared.money":            `{"properties":{"a":{"$ref":"#/components/schemas/shared.money2"},"b":{"$ref":"#/components/schemas/shared.money.own"}}}`,
		"shared.money.own":        `{"type":"string"}`,
		"shared.money2":           `{"properties":{"amount":{"$ref":"#/components/schemas/shared.positive"},"of":{"$ref":"#/components/schemas/shared.money2"}}}`,
		"shared.positive":         `{"type":"number"}`,
		"order.was_paid":          `{"$ref":"#/components/schemas/shared.money2"}`,
		"order.was_sent":          `{"properties":{"n":{"$ref":"#/components/schemas/order.was_sent.positive"},"m":{"$ref":"#/components/schemas/shared.money2"}}}`,
		"order.was_sent.positive": `{"type":"integer"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
