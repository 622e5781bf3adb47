package index_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
	"j17/internal/storage/testopen"
)

// copied is a store whose environment is copied, as a backup is made of it, when a build has come to it for the nth
// time.
type copied struct {
	store.Store
	left *atomic.Int64
	copy func()
}

// Streams lists streams.
func (c copied) Streams(ctx context.Context, t j17.Tenant, aggregateType, after string, limit int) ([]string, error) {
	c.come()
	return c.Store.Streams(ctx, t, aggregateType, after, limit)
}

// Write writes side items.
func (c copied) Write(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	c.come()
	return c.Store.Write(ctx, t, side, fences...)
}

func (c copied) come() {
	if c.left.Add(-1) == 0 {
		c.copy()
	}
}

// TestARestorationMeetsABuild restores what an environment held at each moment of the build of an index: where that was
// under way it goes on, or begins again, and the index has all of what was restored and what comes later.
func TestARestorationMeetsABuild(t *testing.T) {
	moments := 0
	for ended := false; !ended; moments++ {
		t.Run(fmt.Sprint(moments), func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *house) {
				t.Helper()
				h.load(prod, 24)
				restored := testopen.Open(t, clock.System{})
				of, left := h.disk, &atomic.Int64{}
				left.Store(int64(moments) + 1)
				p := h.start(copied{of, left, func() {
					if err := storetest.Copy(t.Context(), of, prod, restored, prod); err != nil {
						t.Error(err)
					}
				}})
				h.ready(p, prod, source{of}.definition(nil))
				p.stop()
				if ended = left.Load() > 0; ended {
					return
				}

				// Another server goes on with it.
				h.disk = restored
				p = h.start(restored)
				defer p.stop()
				h.ready(p, prod, source{restored}.definition(nil))
				h.at(p, prod)
				h.verify(p, prod)
				h.write(prod, event("item", "i000", `{"label":"a"}`), event("shop", "s", `{"name":"c"}`))
				h.at(p, prod)
				h.verify(p, prod)
			})
		})
	}
	if moments < 5 {
		t.Errorf("a build has only %d moments", moments)
	}
}
