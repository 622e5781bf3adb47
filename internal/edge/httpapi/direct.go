package httpapi

import (
	"net/http"
	"strings"
)

// Direct reports whether a request, by its method and path, writes events, or reads the state of an aggregate or a
// projection by its id. The answer to such a request is given in one go, and the request is carried out to its end
// whether its client waits or not.
func Direct(method, path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	second, third, deep := strings.Cut(rest, "/")
	get, post := method == http.MethodGet, method == http.MethodPost
	switch {
	case path == transactionPath:
		return post
	case strings.HasPrefix(path, viewPrefix):
		return get && second != "" && entry(third)
	case !entry(first) || first == "api" || first == "internal" || second == "": // the control plane has other routes
		return false
	case deep:
		return post && entry(third)
	default:
		return get || post
	}
}

// entry reports whether a part of a path, which is one segment, may be the name or the id of something.
func entry(segment string) bool {
	return segment != "" && segment[0] != '_' && !strings.Contains(segment, "/")
}
