package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// untouched is input that nobody is to read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the input is read")
	return 0, io.EOF
}

// TestTestDataForProdIsRefusedFirst: where test data would go into prod that is said before the input is read and the
// server is asked.
func TestTestDataForProdIsRefusedFirst(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	home := t.TempDir()
	for _, flags := range []string{"", " --env prod"} {
		var said strings.Builder
		getenv := func(name string) string { return map[string]string{"J17_TOKEN": "a-token", "HOME": home}[name] }
		code := run(
			t.Context(), strings.Fields("data inject - --url "+s.URL+flags), getenv, untouched{t}, io.Discard, &said,
		)
		if code != exitUsage || !strings.Contains(said.String(), "name one of them, such as --env test.") ||
			asked.Load() != 0 {
			t.Errorf("%q: exit code %d, %d requests: %s", flags, code, asked.Load(), said.String())
		}
	}
}
