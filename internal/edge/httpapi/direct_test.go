package httpapi_test

import (
	"net/http"
	"testing"

	"j17/internal/edge/httpapi"
)

// TestDirect checks which requests may be answered without net/http.
func TestDirect(t *testing.T) {
	for method, paths := range map[string][]string{
		http.MethodGet:  {"/order/1", "/_projections/basket/1"},
		http.MethodPost: {"/order/1/was_placed", "/order/_new/was_placed", "/order/1", "/order/_new", "/_transaction"},
	} {
		for _, yes := range paths {
			if !httpapi.Direct(method, yes) {
				t.Errorf("%s %s goes to net/http", method, yes)
			}
		}
	}
	for method, paths := range map[string][]string{
		http.MethodGet: {
			"/", "/order", "/order/1/events", "/order/1/events/stream", "/_events/stream", "/_transaction", "/order/",
			"/api/instances", "/internal/x", "//1",
			"/_projections/basket", "/_projections/basket/_stream", "/_projections/basket/_count",
			"/_projections/basket/1/stream", "/_projections//1",
		},
		http.MethodPost: {
			"/order", "/_admin/data/import", "/_dev/clock/advance", "/api/login", "/api/keys/rotate",
			"/order//was_placed", "/order/1/was_placed/",
			"/order/1/was_placed/x", "/_projections/basket/1",
		},
		http.MethodPut: {"/order/1/was_placed", "/order/1", "/_transaction"},
	} {
		for _, no := range paths {
			if httpapi.Direct(method, no) {
				t.Errorf("%s %s is answered directly", method, no)
			}
		}
	}
}
