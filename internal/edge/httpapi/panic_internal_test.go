package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/base/clock"
)

// none counts no alterations.
func none() uint64 { return 0 }

// TestAStreamThatCannotBeLookedAt lets the regular look at one live stream panic: that one is ended, and the others are
// looked at.
func TestAStreamThatCannotBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newStreams(&API{Options: Options{Logger: slog.New(slog.DiscardHandler)}}, none)
		now := clock.System{}.Now()
		var open []*stream
		for range 4 {
			conn, _ := net.Pipe()
			s := &stream{
				all: all, call: &call{}, control: http.NewResponseController(httptest.NewRecorder()), conn: conn,
				checked: now, pulse: make(chan struct{}, 1),
			}
			s.writing.Store(now.UnixNano())
			all.running[s] = struct{}{}
			open = append(open, s)
		}
		all.taken = func(c net.Conn) (uint64, bool) {
			if c == open[0].conn {
				panic("a fault")
			}
			return 7, true
		}
		ctx, stop := context.WithTimeout(t.Context(), checkInterval-time.Second)
		defer stop()
		all.watch(ctx)
		for i, s := range open {
			if broken := i == 0; s.over != broken || s.taken != 7 && !broken {
				t.Errorf("stream %d: ended %t, looked at %t", i, s.over, s.taken == 7)
			}
		}
	})
}
