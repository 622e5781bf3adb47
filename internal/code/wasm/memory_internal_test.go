package wasm

import (
	"context"
	"errors"
	"testing"
)

// ImageBytes is how much memory the first state of a module's instances takes.
func (m *Module) ImageBytes() int { return len(m.image.blocks) * block }

// Idle is how much memory the instances take that wait for their next call.
func (rt *Runtime) Idle() int64 {
	rt.pool.mu.Lock()
	defer rt.pool.mu.Unlock()
	n := int64(0)
	for at := rt.pool.order.Front(); at != nil; at = at.Next() {
		if i, ok := at.Value.(*instance); ok {
			n += i.bytes()
		}
	}
	return n
}

// TestMemoriesAreWaitedFor: who begins waits for room, who has some already does not, and one that is alone gets any
// amount.
func TestMemoriesAreWaitedFor(t *testing.T) {
	m := &memories{limit: 10}
	if err := m.acquire(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if !m.extend(3) || m.extend(1) {
		t.Error("ten bytes are not ten bytes")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.acquire(cancelled, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	const others = 8
	done := make(chan error, others)
	for range others {
		go func() {
			err := m.acquire(t.Context(), 5)
			if err == nil {
				m.mu.Lock()
				taken := m.taken
				m.mu.Unlock()
				if taken > m.limit {
					err = errors.New("more is taken than there is")
				}
				m.release(5)
			}
			done <- err
		}()
	}
	m.release(7)
	for range others {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	m.release(3)
	if err := m.acquire(t.Context(), 11); err != nil || m.taken != 11 {
		t.Errorf("alone: %d, %v", m.taken, err)
	}
	m.release(11)
}
