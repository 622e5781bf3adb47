package build_test

import (
	"context"
	"log/slog"
	"testing"

	"j17/internal/core/worker"
	"j17/internal/derived/build"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestAnotherProcessGoesOnAtOnce ends a process in the middle of a build. Another one leaves that alone until the lease
// is over, and goes on with it at once where the claim was given back.
func TestAnotherProcessGoesOnAtOnce(t *testing.T) {
	h := newHouse(t)
	h.streams(prod, "a", 23)
	other := h.service(h.store, adding(5))
	h.begin(other, prod, "one", "a")
	// The last that the process does.
	_ = h.service(storetest.NewCrashing(h.store, 2, false), adding(5)).Settle(t.Context())
	if err := other.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.status(other, "one"); got.State != build.Running {
		t.Fatalf("the process has not ended in the middle: %+v", got)
	}

	if n, err := h.store.ReleaseClaims(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d claims were given back, %v", n, err)
	}
	log := slog.New(slog.DiscardHandler)
	sole := build.New(build.Options{Store: h.store, Clock: h.clock, Worker: worker.New(h.clock, log), Logger: log})
	k := adding(5)
	k.Name = kind
	sole.Handle(k)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sole.Run(ctx) }()
	if got, err := sole.Await(ctx, prod, kind, "one"); err != nil || got.State != build.Done {
		t.Errorf("%+v, %v", got, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for space, want := range map[store.Space]int{"build.jobs": 0, "made": 23} {
		if n, err := h.store.Count(t.Context(), prod, space, store.Range{}, 100); err != nil || n != want {
			t.Errorf("%d items in %s, %v", n, space, err)
		}
	}
}
