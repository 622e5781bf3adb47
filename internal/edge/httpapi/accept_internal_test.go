package httpapi

import (
	"net/http"
	"testing"
)

// TestAccept asks for GeoJSON beside JSON, more and less than for it.
func TestAccept(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                                       false,
		"*/*":                                    false,
		"application/*":                          false,
		"application/json":                       false,
		"application/geo+json":                   true,
		"Application/Geo+JSON ; charset=utf-8":   true,
		"application/geo+json;q=0.5":             true,
		"application/geo+json;q=0":               false,
		"application/geo+json; Q = 0.000":        false,
		"application/geo+json;q=much":            true,
		"application/json, application/geo+json": true,
		"application/json;q=0.9, application/geo+json":            true,
		"application/geo+json;q=0.5, application/json":            false,
		"application/geo+json;q=0.5,application/json;q=0.5":       true,
		"application/geo+json;q=0.5, application/json;q=0":        true,
		"application/geo+json;q=0.9, */*;q=0.8":                   true,
		"application/geo+json;q=0.5, */*":                         false,
		"application/geo+json;q=0.5, application/*;q=0.6":         false,
		"application/geo+json;q=0.5, application/json;q=0.1, */*": true,
		"text/html, application/geo+json;q=0.1":                   true,
	} {
		if got := accepts(http.Header{"Accept": {accept}}, typeGeo); got != want {
			t.Errorf("%q: %t", accept, got)
		}
	}
	if accepts(http.Header{"Accept": {"application/geo+json;q=0.5", "application/json"}}, typeGeo) {
		t.Error("the second field does not count")
	}
}
