package listener_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/core/part"
	"j17/internal/follow/listener"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// meeting is a way to the store on which something else may happen before a write or a look.
type meeting struct {
	store.Store
	mu     sync.Mutex
	before func(sides []store.Side) (now bool)
	do     func() error
	space  store.Space
	then   func()
}

// once lets do happen before the first write that before tells of.
func (m *meeting) once(before func(sides []store.Side) bool, do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.do = before, func() error {
		do()
		return nil
	}
}

// lose lets the first write that which tells of fail.
func (m *meeting) lose(which func(sides []store.Side) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.do = which, func() error { return store.ErrBusy }
}

// onGet lets do happen before the first item of a space is read by its key.
func (m *meeting) onGet(space store.Space, do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.space, m.then = space, do
}

func (m *meeting) Get(ctx context.Context, t j17.Tenant, s store.Space, key string) (store.Item, error) {
	m.mu.Lock()
	var then func()
	if m.then != nil && s == m.space {
		then, m.then = m.then, nil
	}
	m.mu.Unlock()
	if then != nil {
		then()
	}
	return m.Store.Get(ctx, t, s, key)
}

func (m *meeting) Write(ctx context.Context, t j17.Tenant, sides []store.Side, fences ...store.Fence) error {
	m.mu.Lock()
	var do func() error
	if m.before != nil && m.before(sides) {
		do, m.before = m.do, nil
	}
	m.mu.Unlock()
	if do != nil {
		if err := do(); err != nil {
			return err
		}
	}
	return m.Store.Write(ctx, t, sides, fences...)
}

// TestResumeMeetsATry pauses a listener while a try is under way, and resumes it at the moment at which the try ends:
// the delivery does not stay aside, where it would hold up its aggregate for good.
func TestResumeMeetsATry(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		way := &meeting{Store: h.Store}
		s := h.serveOn(way)
		defer s.stop()
		h.answer("hook", func(message) (int, time.Duration) { return 500, 3 * time.Second })

		// A try is under way that is going to fail; the next one would not.
		h.write("order:a", "was_placed", 1)
		h.rest()
		if err := s.Pause(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		h.answer("hook", nil)

		// The try ends when what is to go on was looked up, and before that is written.
		way.once(func(sides []store.Side) bool {
			return sides[0].Space == "listener.states" && strings.Contains(string(sides[0].Value), `"active"`)
		}, func() { h.endOf(5 * time.Second) })
		if err := s.Resume(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}

		// Both events have been told of, in their order.
		h.write("order:a", "was_paid", 2)
		h.pass(10 * time.Minute)
		same(t, h.numbers("hook", "order:a"), []int{1, 1, 2})
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Pending})), 0)
	})
}

// endOf lets time go by in which something ends.
func (h *house) endOf(d time.Duration) { _ = clock.System{}.Wait(h.tb.Context(), time.Now().Add(d)) }

// TestRemovedWhilePaused removes a paused listener for which a delivery waits, and the server ends before all of it has
// come to pass: the next start makes up for it.
func TestRemovedWhilePaused(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		way := &meeting{Store: h.Store}
		s := h.serveOn(way)
		h.answer("hook", always(500))

		// A delivery waits until the listener is resumed.
		h.write("order:a", "was_placed", 1)
		h.rest()
		if err := s.Pause(t.Context(), shop, "hook"); err != nil {
			t.Fatal(err)
		}
		h.pass(time.Minute)
		h.one(s, listener.Filter{Status: listener.Pending})

		// The write of what waits is lost.
		way.lose(func(sides []store.Side) bool { return sides[0].Space == "listener.lanes" })
		h.deploy(s, `{}`)
		s.stop()
		s = h.serve()
		defer s.stop()
		h.pass(time.Minute)
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Pending})), 0)
	})
}

// TestRetryMeetsTheNextDelivery asks for another try of a delivery that is over by the time its place is looked at:
// what has its place by then keeps it.
func TestRetryMeetsTheNextDelivery(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		way := &meeting{Store: h.Store}
		s := h.serveOn(way)
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.rest()
		d := h.one(s, listener.Filter{Status: listener.Pending})

		// Somebody else asks for it too. It is told, and the next event's first try is under way.
		way.onGet("listener.lanes", func() {
			h.answer("hook", nil)
			if _, err := s.Retry(t.Context(), shop, d.ID); err != nil {
				t.Error(err)
			}
			h.endOf(time.Second)
			h.answer("hook", func(message) (int, time.Duration) { return 500, 3 * time.Second })
			h.write("order:a", "was_paid", 2)
			h.endOf(time.Second)
			h.answer("hook", nil)
		})
		if _, err := s.Retry(t.Context(), shop, d.ID); err != nil {
			t.Fatal(err)
		}
		h.pass(10 * time.Minute)
		same(t, h.numbers("hook", "order:a"), []int{1, 1, 2, 2})
		same(t, len(h.deliveries(s, listener.Filter{Status: listener.Delivered})), 2)
	})
}

// TestRetryMeetsAnErasure asks for another try of a delivery that is erased once it was looked up: what the endpoint
// has said of it does not come back.
func TestRetryMeetsAnErasure(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		way := &meeting{Store: h.Store}
		s := h.serveOn(way)
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.pass(10 * time.Minute)
		d := h.one(s, listener.Filter{Status: listener.Failed})
		key := j17.Key{Type: "order", ID: "a"}
		way.onGet("listener.states", func() {
			gone := []store.Rewritten{{Version: 1, Type: "_was_tombstoned", Data: []byte(`{}`), Metadata: []byte(`{}`)}}
			if err := storetest.Erase(t.Context(), h.Store, shop, key, gone); err != nil {
				t.Error(err)
			}
			if err := s.Erase(t.Context(), shop, part.Erased{Keys: []j17.Key{key}}); err != nil {
				t.Error(err)
			}
		})
		again, err := s.Retry(t.Context(), shop, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		same(t, again.LastError, "")
	})
}

// TestRetryUnderARetry asks for another try of a delivery whose try was asked for before and is under way: it is made
// once.
func TestRetryUnderARetry(t *testing.T) {
	inBubble(t, hook, func(t *testing.T, h *house) {
		t.Helper()
		s := h.serve()
		defer s.stop()
		h.answer("hook", always(500))
		h.write("order:a", "was_placed", 1)
		h.rest()
		d := h.one(s, listener.Filter{Status: listener.Pending})
		h.answer("hook", func(message) (int, time.Duration) { return 200, 2 * time.Second })
		for range 3 {
			if _, err := s.Retry(t.Context(), shop, d.ID); err != nil {
				t.Fatal(err)
			}
			h.pass(500 * time.Millisecond)
		}
		h.pass(10 * time.Minute)
		same(t, h.numbers("hook", ""), []int{1, 1})
		same(t, h.one(s, listener.Filter{}).Status, listener.Delivered)
	})
}
