package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
)

// Secured answers a request as the public listener does.
func Secured(next http.Handler, encrypted bool, proxies []netip.Prefix, r *http.Request) (int, http.Header) {
	w := httptest.NewRecorder()
	secured(next, encrypted, proxies).ServeHTTP(w, r)
	return w.Code, w.Header()
}
