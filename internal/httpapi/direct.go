package httpapi

import (
	"net/http"
	"strings"
)

// Direct reports whether a request, by its method and path, writes an event or reads the state of an aggregate. Their answers are put together
// at once, and they are carried out to their end whether their client waits or not.
func Direct(method, path string) bool {
	segments := 0
	for s := range strings.SplitSeq(path, "/") {
		if segments > 0 && s == "" {
			return false
		}
		segments++
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "", "api", "internal":
		return false // the control plane, which has other routes
	}
	if first[0] == '_' {
		return false
	}
	return segments == 3 && method == http.MethodGet || segments == 4 && method == http.MethodPost
}
