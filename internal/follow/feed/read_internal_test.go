package feed

import (
	"testing"
	"time"

	"j17/internal/base/clock"
)

// TestAWakeIsNotTakenBack: a pause that somebody has ended does not begin again when its subscription is read again,
// and another one does.
func TestAWakeIsNotTakenBack(t *testing.T) {
	t.Parallel()
	now := clock.NewManual(time.Unix(1_700_000_000, 0))
	h := &holding{s: &Subscriptions{o: Options{Clock: now}}, work: t.Context(), wakeUp: make(chan struct{}, 1)}
	r := &reader{h: h}
	failed := func(n int, after time.Duration) *item {
		return &item{checkpoint: checkpoint{ID: "one", Failures: n, Error: "away", RetryAt: now.Now().Add(after)}}
	}
	first := failed(1, time.Minute)
	r.adopt(first)
	if !r.until.Equal(first.RetryAt) {
		t.Fatalf("it waits until %v", r.until)
	}

	// As step does when somebody wakes it.
	r.until = time.Time{}
	r.adopt(first)
	if !r.until.IsZero() {
		t.Errorf("it waits again, until %v", r.until)
	}
	second := failed(2, 2*time.Minute)
	if r.adopt(second); !r.until.Equal(second.RetryAt) {
		t.Errorf("after the next failure it waits until %v", r.until)
	}
}
