//go:build !race

package value

import "testing"

// TestSlabsHaveNoMoreThanTheyNeed parses the body of a write: its members take the one slab that they fill.
func TestSlabsHaveNoMoreThanTheyNeed(t *testing.T) {
	const body = `{"data":{"customer":"a","currency":"EUR","lines":[{"sku":"LAMP-2","title":"Desk lamp","unit_price":39.90,"quantity":1},` +
		`{"sku":"BULB-E27","title":"Bulb, warm white","unit_price":4.35,"quantity":3}]},"metadata":{"actor":{"type":"customer","id":"a"}}}`
	p := &parser{src: body, depth: 10, exponent: 10, digits: 10}
	if _, err := p.document(); err != nil {
		t.Fatal(err)
	}
	if p.spare == nil || len(p.spare) > 0 {
		t.Errorf("room for %d members is left over", len(p.spare))
	}
}
