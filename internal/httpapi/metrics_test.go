package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"j17/internal/clock"
	"j17/internal/httpapi"
	"j17/internal/worker"
)

// TestBackgroundWorkIsShown lets a loop fail once and looks at the metrics.
func TestBackgroundWorkIsShown(t *testing.T) {
	kit := worker.New(clock.System{}, slog.New(slog.DiscardHandler))
	f := newFixture(t, func(o *httpapi.Options) { o.Worker = kit })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	kit.Every(ctx, worker.Loop{Name: "made_up", Every: 1, Final: true, Do: func(context.Context) error { return errors.New("no luck") }})
	w := httptest.NewRecorder()
	f.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, want := range []string{
		`j17_background_failed_total{work="made_up"} 1`, `j17_background_done_total{work="made_up"} 0`, `j17_background_dead_total{work="made_up"} 0`,
		`j17_background_lost_total{work="made_up"} 0`, `j17_background_running{work="made_up"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
