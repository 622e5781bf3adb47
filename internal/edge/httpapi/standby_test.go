package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/edge/httpapi"
)

// TestStandby asks a node that waits for something of each kind.
func TestStandby(t *testing.T) {
	t.Parallel()
	works := ""
	h := httpapi.Standby(func() string { return works })
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{}")))
		return w
	}
	if w := ask("GET", "/livez"); w.Code != http.StatusOK || w.Body.String() != `{"ok":true}` {
		t.Errorf("/livez: %d %s", w.Code, w.Body)
	}
	for _, works = range []string{"", "node-1"} {
		for _, path := range []string{"/readyz", "/", "/order/a", "/metrics", "/livez/"} {
			w := ask("GET", path)
			var p struct {
				Code   j17.Code `json:"code"`
				Detail string   `json:"detail"`
				Status int      `json:"status"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
				p.Code != j17.CodeStandby || p.Status != w.Code || !strings.Contains(p.Detail, works) {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
	if w := ask("POST", "/livez"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("POST /livez: %d", w.Code)
	}
}

// TestWorking lets a server lose touch with its database: whatever it knows by heart is refused too.
func TestWorking(t *testing.T) {
	t.Parallel()
	var idle atomic.Bool
	f := newFixture(t, func(o *httpapi.Options) { o.Working = func() bool { return !idle.Load() } })
	idle.Store(true)
	for _, path := range []string{"/", "/readyz"} {
		if r := f.do(t, "GET", path, ""); r.status != http.StatusServiceUnavailable ||
			!strings.Contains(r.body, `"code":"unavailable"`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := f.do(t, "GET", "/livez", ""); r.status != http.StatusOK {
		t.Errorf("/livez: %d %s", r.status, r.body)
	}
	idle.Store(false)
	if r := f.do(t, "GET", "/", ""); r.status != http.StatusOK {
		t.Errorf("/: %d %s", r.status, r.body)
	}
}
