package httpapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
)

// deadlines takes down until when a connection may be read.
type deadlines struct {
	http.ResponseWriter
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.last = t
	return nil
}

// TestASteadyBodyEnds: each read has a minute, and none of them more than is left for the whole.
func TestASteadyBodyEnds(t *testing.T) {
	now := clock.System{}.Now()
	for _, left := range []time.Duration{-time.Hour, steadyTime / 2, 10 * time.Hour} {
		w := &deadlines{}
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
		b := &steadyBody{c: &call{request: r}, control: http.NewResponseController(w), until: now.Add(left)}
		if _, err := io.ReadAll(b); err != nil {
			t.Fatal(err)
		}
		if w.last.After(b.until) || left < steadyTime && !w.last.Equal(b.until) || w.last.Sub(now) > 5*time.Hour {
			t.Errorf("with %s left a read may take until %s", left, w.last)
		}
	}
}
