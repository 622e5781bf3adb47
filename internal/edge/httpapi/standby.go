package httpapi

import (
	"net/http"
	"strings"

	"j17"
	"j17/internal/base/wire"
)

// Standby returns the handler of a node that waits while another one is active: it answers /livez, and refuses all
// other requests. works returns the name of the active node, "" if that is not known.
func Standby(works func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Access-Control-Allow-Origin", "*")
		if r.URL.Path == "/livez" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			h.Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"ok":true}`)) // the client may be gone
			return
		}

		// All other requests are refused with the name of the active node.
		e := j17.Errorf(j17.CodeStandby, "This server waits, and another one works. Send requests to that one.")
		if name := works(); name != "" {
			e = j17.Errorf(j17.CodeStandby, "This server waits, and %s works. Send requests to that one.", name)
		}
		p := problemOf(e.Code)
		raw, err := marshal(&wire.Problem{
			Type: "urn:j17:error:" + string(e.Code), Title: p.title, Status: p.status, Code: e.Code,
			Detail: e.Message, Error: e.Message,
		})
		if err != nil {
			raw = nil // strings and numbers can always be encoded
		}
		h.Set("Content-Type", "application/problem+json")
		h.Set("Retry-After", "1")
		w.WriteHeader(p.status)
		_, _ = w.Write(raw)
	})
}

// whileWorking refuses requests while this server may not answer because another node may be active. What it has in
// memory may be outdated then.
func (a *API) whileWorking(next http.Handler) http.Handler {
	if a.Working == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.Working() && !strings.HasSuffix(r.URL.Path, "/livez") {
			callOf(r).fail(w, j17.Errorf(j17.CodeUnavailable, "This server has lost touch with the database, and another one may work by now. Nothing was done. Try again."))
			return
		}
		next.ServeHTTP(w, r)
	})
}
