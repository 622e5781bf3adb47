package index_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"j17"
	"j17/internal/derived/index"
	"j17/internal/storage/store"
)

// looking marks the context of who verifies.
type looking struct{}

// TestVerifyDuringErasures: events are rewritten between the view of rows that are compared and the rows that they are
// compared with, and once more while the row that differs is looked at again. A sound index is not found to be wrong by
// that, one that is wrong still is.
func TestVerifyDuringErasures(t *testing.T) {
	for _, scrub := range []bool{false, true} {
		for _, harmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("scrub %t, harmed %t", scrub, harmed), func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *house) {
					t.Helper()
					h.scrub = 10 * time.Second
					for n := range 20 {
						h.write(prod, event("item", fmt.Sprintf("i%02d", n), `{"label":"a"}`))
					}
					var left atomic.Int64
					p := h.start(h.disk)
					h.ready(p, prod, source{h.disk}.definition(func(ctx context.Context, ids []string) error {
						upkeep := len(ids) == 1 && ctx.Value(looking{}) == nil
						if n := left.Load(); n > 0 && !upkeep {
							left.Store(n - 1)
							h.rewrite(prod, "i01", fmt.Sprintf(`{"label":"rewritten %d"}`, n))
						}
						return ctx.Err()
					}))
					if harmed {
						items, err := h.disk.Scan(t.Context(), prod, "index.rows", store.Range{}, 6)
						if err != nil {
							t.Fatal(err)
						}
						harm := store.Side{Op: store.Delete, Space: "index.rows", Key: items[5].Key}
						if err := h.disk.Write(t.Context(), prod, []store.Side{harm}); err != nil {
							t.Fatal(err)
						}
					}

					// Those in the background look for themselves once, since they cannot be told from the upkeep.
					if scrub {
						left.Store(1)
						h.pass(11 * time.Second)
						if told := p.Stats().Differences; told > 0 != harmed {
							t.Errorf("%d differences\n%s", told, h.log)
						}
					} else {
						left.Store(3)
						difference, err := p.Verify(context.WithValue(t.Context(), looking{}, true), prod, "one", nil)
						if err != nil || (difference != nil) != harmed || harmed && difference.ID != "i05" {
							t.Errorf("%+v, %v", difference, err)
						}
					}
					if n := left.Load(); n > 0 {
						t.Errorf("%d times nothing was rewritten: the test shows nothing", n)
					}
					if v, err := p.At(t.Context(), prod, "one", j17.StreamID{}); err == nil {
						v.Close()
					} else if !harmed {
						t.Errorf("a reader: %v", err)
					}
					p.stop()
				})
			})
		}
	}
}

// TestADifferenceIsNotServed: who compares an index finds that it differs. Nobody reads it from then on, until another
// one is there that is as it should be; nothing has to be asked for.
func TestADifferenceIsNotServed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *house) {
		t.Helper()
		for n := range 20 {
			h.write(prod, event("item", fmt.Sprintf("i%02d", n), `{"label":"a"}`))
		}
		p := h.start(h.disk)
		h.ready(p, prod, source{h.disk}.definition(nil))
		items, err := h.disk.Scan(t.Context(), prod, "index.entries", store.Range{}, 1)
		if err != nil || len(items) != 1 {
			t.Fatal(items, err)
		}
		if err := h.disk.Write(t.Context(), prod, []store.Side{
			{Op: store.Delete, Space: "index.entries", Key: items[0].Key},
		}); err != nil {
			t.Fatal(err)
		}
		difference, err := p.Verify(t.Context(), prod, "one", nil)
		if err != nil || difference == nil || difference.ID == "" {
			t.Fatalf("%+v, %v", difference, err)
		}
		_, err = p.At(t.Context(), prod, "one", j17.StreamID{})
		if _, is := errors.AsType[*index.NotReadyError](err); !is {
			t.Errorf("a reader: %v", err)
		}
		if n := p.Stats().Differences; n != 1 {
			t.Errorf("%d differences", n)
		}
		h.pass(time.Minute)
		h.mended(p)
		p.stop()
	})
}
