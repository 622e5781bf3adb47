package schedule

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/decider"
	"j17/internal/core/worker"
	"j17/internal/lang/spec"
	"j17/internal/storage/testopen"
)

// TestWhatIsKnownIsBounded looks at more environments than are kept.
func TestWhatIsKnownIsBounded(t *testing.T) {
	c := clock.NewManual(time.Unix(1_700_000_000, 0))
	log := slog.New(slog.DiscardHandler)
	s := New(Options{Store: testopen.Open(t, c), Clock: c, Logger: log, Worker: worker.New(c, log)})
	d := &decider.Decider{Compiled: &spec.Compiled{}}
	for n := range 2*maxKnown + 1 {
		tenant := j17.Tenant(fmt.Sprintf("ins_%d/prod", n))
		w, err := s.watchOf(t.Context(), tenant, d)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := s.watchOf(t.Context(), tenant, d); again != w || len(s.known) > maxKnown {
			t.Fatalf("after %d environments %d are kept", n+1, len(s.known))
		}
	}
	for n := range 2*maxContended + 1 {
		if s.contend("ins_1/prod", fmt.Sprintf("job:%d/was_closed/sch_1", n)); len(s.contended) > maxContended {
			t.Fatalf("%d names are kept", len(s.contended))
		}
	}
}
