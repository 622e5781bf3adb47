package feed_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/follow/feed"
	"j17/internal/storage/store"
)

// slowCheckpoints is a store in which writes that only move checkpoints take as long as somebody wants.
type slowCheckpoints struct {
	store.Store
	begun, over chan struct{}
}

// Write waits before it stores a checkpoint.
func (s *slowCheckpoints) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	if sides[0].Space == "feed.subscriptions" && sides[0].Cond == store.IfRev {
		s.begun <- struct{}{}
		<-s.over
	}
	return s.Store.Write(ctx, t, sides, fences...)
}

// TestStatusWhileACheckpointIsStored asks how far a subscription is while its checkpoint is on its way to the disk.
func TestStatusWhileACheckpointIsStored(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		slow := &slowCheckpoints{h.Store, make(chan struct{}), make(chan struct{})}
		s := h.set(
			feed.Kind{Do: func(context.Context, *feed.Batch) error { return nil }},
			func(o *feed.Options) { o.Store = slow },
		)
		look := func(when string, count uint64) {
			t.Helper()
			<-slow.begun
			synctest.Wait()
			if !s.Reachable(shop) {
				t.Errorf("%s whoever asks has to wait for the commit", when)
			} else if got := h.status(s, "a"); got.Count != count || got.Lag != 0 {
				t.Errorf("%s the subscription is %+v", when, got)
			}
			slow.over <- struct{}{}
		}
		h.subscribe(s, shop, "a", feed.Beginning())
		stop := h.run(s)
		h.append(shop, 3)
		look("while its checkpoint is stored", 3)

		// The next one goes with the lease.
		h.append(shop, 2)
		pass(t, time.Millisecond)
		stopped := make(chan struct{})
		go func() {
			stop()
			close(stopped)
		}()
		look("while its tenant is given back", 5)
		<-stopped
		if got := h.status(s, "a"); got.Count != 5 {
			t.Errorf("stored was %+v", got)
		}
	})
}
