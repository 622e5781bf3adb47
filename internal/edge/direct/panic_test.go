package direct_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAPanicEndsItsConnection lets the reading of a request panic: its connection ends, that is logged, and others are
// served.
func TestAPanicEndsItsConnection(t *testing.T) {
	f := start(t, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	broken, other := f.dial(t), f.dial(t)
	broken.send(t, get(faultyPath))
	if _, err := io.ReadAll(broken.in); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	other.send(t, get("/text"))
	if got := other.answer(t, http.MethodGet); !strings.Contains(got, "hello") {
		t.Errorf("another connection: %s", got)
	}
	if log := f.logged.String(); !strings.Contains(log, "panic: a fault") {
		t.Errorf("the log has %q", log)
	}
}
