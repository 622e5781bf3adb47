package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/scrub"
	"j17/internal/edge/httpapi"
	"j17/internal/storage/store"
)

// restless is a clock on which nobody waits.
type restless struct{ clock.Clock }

// Wait returns at once.
func (restless) Wait(ctx context.Context, _ time.Time) error { return ctx.Err() }

// TestDamageIsTold has an item that contradicts what its owner knows of it: operators are told which, readiness and
// metrics that there is damage, until a later pass finds it whole.
func TestDamageIsTold(t *testing.T) {
	broken := true
	var s *scrub.Service
	p := newPlane(t, func(o *httpapi.Options) {
		whole, ok := o.Store.(scrub.Storage)
		if !ok {
			t.Fatal("the fixture's store cannot be scrubbed")
		}
		check := func(key string, _ []byte) error {
			if broken && key == "a" {
				return errors.New("it is not what it was")
			}
			return nil
		}
		s = scrub.New(scrub.Options{
			Store: whole, Log: o.Logs, Clock: restless{o.Clock}, Logger: o.Logger,
			Worker:    worker.New(o.Clock, slog.New(slog.DiscardHandler)),
			Committed: func() uint64 { return 0 },
			Spaces:    []part.Space{{Declared: store.Declared{Space: "looked.at"}, Check: check}},
		})
		o.Scrub = s
	})
	prod := j17.TenantOf(p.instance.ID, j17.Prod)
	if err := p.store.Write(t.Context(), prod, []store.Side{
		{Op: store.Put, Space: "looked.at", Key: "a"},
	}); err != nil {
		t.Fatal(err)
	}
	state := func() string { return fmt.Sprint(p.must(t, 200, "GET", "/api/scrub", "")["scrub"]) }
	pass := func() {
		t.Helper()
		p.must(t, 200, "POST", "/api/scrub", "")
		for range 1000 {
			if err := s.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st := s.Status(); st.Last != nil && st.Last.Number == st.Pass.Number {
				return
			}
		}
		t.Fatal("the pass has no end")
	}

	pass()
	if said := state(); !strings.Contains(said, "looked.at/a") || !strings.Contains(said, "it is not what it was") ||
		!strings.Contains(said, string(prod)) {
		t.Errorf("what was found: %s", said)
	}
	for target, want := range map[string]int{"/readyz": 503, "/readyz?for=writes": 503, "/readyz?for=reads": 200} {
		got := p.do(t, "GET", target, "")
		if got.status != want || want == 503 && !strings.Contains(got.body, "damaged") ||
			strings.Contains(got.body, "looked.at") {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	w := httptest.NewRecorder()
	p.Internal().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, "j17_scrub_damaged 1\n") {
		t.Error("metrics do not tell of it")
	}

	// A pass that finds it whole takes all of that back.
	broken = false
	pass()
	if said := state(); strings.Contains(said, "looked.at") {
		t.Errorf("afterwards: %s", said)
	}
	if got := p.do(t, "GET", "/readyz", ""); got.status != 200 {
		t.Errorf("afterwards: %d %s", got.status, got.body)
	}
}
