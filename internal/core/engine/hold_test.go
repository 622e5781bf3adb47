package engine_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
)

// TestHold lets writers write one event after the other, and now and then holds them back: nothing is stored meanwhile,
// and nothing is refused for it.
func TestHold(t *testing.T) {
	const writers, rounds = 4, 20
	f := newFixture(t, engine.Options{})
	var mu sync.Mutex
	acknowledged := 0
	ended := make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			// One of them shares an aggregate with another one, so that they take turns.
			path := "counter/" + enginetest.ID + "/was_counted"
			if w > 1 {
				path = fmt.Sprintf("counter/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f%02d/was_counted", w+20)
			}
			for {
				select {
				case <-ended:
					return
				default:
				}
				if _, err := f.Execute(
					t.Context(), enginetest.Command(t, path, enginetest.Body(`{"by":1}`)),
				); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged++
				mu.Unlock()
			}
		})
	}
	stored := func() uint64 {
		extent, err := f.Store.Extent(t.Context(), tenant)
		if err != nil {
			t.Error(err)
		}
		return extent.Events
	}
	for range rounds {
		for before := stored(); stored() == before && !t.Failed(); {
			runtime.Gosched()
		}
		if err := f.Hold(tenant, func() error {
			before := stored()
			for range 200 {
				runtime.Gosched()
			}
			if after := stored(); after != before {
				t.Errorf("%d events were stored while writers were held back", after-before)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	close(ended)
	writing.Wait()
	if int(stored()) != acknowledged {
		t.Errorf("%d events are stored and %d were acknowledged", stored(), acknowledged)
	}

	// Where nothing is deployed there is nobody to hold back.
	called := false
	if err := f.Hold(j17.Tenant("ins_test/test"), func() error { called = true; return nil }); err != nil || !called {
		t.Errorf("called: %v, %v", called, err)
	}
}
