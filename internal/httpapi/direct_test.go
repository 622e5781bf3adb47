package httpapi_test

import (
	"net/http"
	"testing"

	"j17/internal/httpapi"
)

// TestDirect checks which requests may be answered without net/http.
func TestDirect(t *testing.T) {
	for _, yes := range [][2]string{{http.MethodPost, "/order/1/was_placed"}, {http.MethodPost, "/order/_new/was_placed"}, {http.MethodGet, "/order/1"}} {
		if !httpapi.Direct(yes[0], yes[1]) {
			t.Errorf("%s %s goes to net/http", yes[0], yes[1])
		}
	}
	for method, paths := range map[string][]string{
		http.MethodGet:  {"/", "/order", "/order/1/events", "/_events/stream", "/order/", "/api/instances", "/internal/x", "order/1", "//1"},
		http.MethodPost: {"/order/1", "/_admin/data/import", "/_dev/clock/advance", "/api/keys/rotate", "/order//was_placed", "/order/1/was_placed/"},
		http.MethodPut:  {"/order/1/was_placed", "/order/1"},
	} {
		for _, no := range paths {
			if httpapi.Direct(method, no) {
				t.Errorf("%s %s is answered directly", method, no)
			}
		}
	}
}
