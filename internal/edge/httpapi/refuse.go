package httpapi

import (
	"encoding/json"
	"net/http"

	"j17"
	"j17/internal/base/wire"
)

// Refuse answers a request that never reaches an API with an error in the form that all errors have.
func Refuse(w http.ResponseWriter, code j17.Code, message string) {
	p := problemOf(code)
	raw, _ := json.Marshal(wire.Problem{ // strings and numbers only
		Type: "urn:j17:error:" + string(code), Title: p.title, Status: p.status, Detail: message, Error: message,
		Code: code,
	})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.status)
	_, _ = w.Write(raw) // the client may be gone, there is nobody to tell
}
