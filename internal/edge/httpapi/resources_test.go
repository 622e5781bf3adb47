package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// stalled is a body that stops in its middle until it is let go.
type stalled struct {
	io.Reader
	more chan struct{}
	rest io.Reader
}

func (s *stalled) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); err == nil {
		return n, nil
	}
	<-s.more
	return s.rest.Read(p)
}

// batchOf is a batch of one event of about size bytes.
func batchOf(size int) string {
	return fmt.Sprintf(`{"events":[{"type":"was_written","data":{"t":%q}}],%s}`, strings.Repeat("x", size), actor)
}

func (f *fixture) request(t *testing.T, target, key string, body io.Reader, length int64) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, body)
	r.ContentLength = length
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestABodyTakesMemoryAsItArrives announces bodies and sends little of them.
func TestABodyTakesMemoryAsItArrives(t *testing.T) {
	f := newFixture(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, f.request(
			t, "http://app.j17.example/note/global", f.key, strings.NewReader(strings.Repeat(" ", 20_000)), 10<<20,
		))
		if w.Code != http.StatusBadRequest {
			t.Fatal(w.Code, w.Body)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 20*300_000 {
		t.Errorf("%d bytes were allocated for 20 bodies of which 20,000 bytes came", got)
	}
}

// TestABodyHasABoundedNumberOfValues: what stands in texts is none.
func TestABodyHasABoundedNumberOfValues(t *testing.T) {
	f := newFixture(t, nil)
	batch := func(data string) string {
		return fmt.Sprintf(`{"events":[{"type":"was_written","data":{"t":%s}}],%s}`, data, actor)
	}
	for name, tc := range map[string]struct {
		data string
		want int
	}{
		"many digits":           {"[" + strings.Repeat("0,", 2<<20) + "0]", http.StatusRequestEntityTooLarge},
		"many empty arrays":     {"[" + strings.Repeat("[],", 1<<20) + "0]", http.StatusRequestEntityTooLarge},
		"a text full of commas": {`"` + strings.Repeat(`,[{\"`, 1<<20) + `"`, http.StatusCreated},
	} {
		if a := f.do(t, http.MethodPost, "/note/global", batch(tc.data)); a.status != tc.want {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
}
