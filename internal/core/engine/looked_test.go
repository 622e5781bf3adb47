package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/storage/testopen"
)

const heavySpec = `{"agent_types": ["user"], "aggregate_types": {"account": {"events": {
	"was_filled": {"schema": {}, "handler": [{"set": {"target": "text", "value": "$.data.text"}}]},
	"was_seen": {"schema": {}, "handler": [], "implications": [
		{"condition": {"gte": ["$.state.count", 1]}, "emit": {"aggregate_type": "account", "id": "$.key", "event_type": "was_noted", "data": {}}}]},
	"was_noted": {"schema": {}, "handler": []}
}}}}`

// heavy is a fixture with aggregates whose states are large, and room for one of them among writes that look at them. A
// write in the test's hands waits at the gate once it has looked.
type heavy struct {
	*fixture
	looked, gate chan struct{}
}

// atGate is the correlation id of the write that waits at the gate.
const atGate = "3d0c7e9a-5a51-4c5c-9a5e-0d6c1f0a7b11"

func newHeavy(t *testing.T, ids ...string) *heavy {
	t.Helper()
	h := &heavy{looked: make(chan struct{}), gate: make(chan struct{})}
	h.fixture = newFixture(t, engine.Options{CacheBytes: 1, LookedBytes: 1 << 20},
		enginetest.Effects(func(_ context.Context, d *part.Decided) (part.Effects, error) {
			if d.CorrelationID == atGate {
				h.looked <- struct{}{}
				<-h.gate
			}
			return part.Effects{}, nil
		})...)
	h.DeploySource(t, heavySpec)
	for _, id := range ids {
		size := 500_000
		if strings.HasPrefix(id, "0") {
			size = 1000
		}
		h.Post(t, "account/"+id+"/was_filled", fmt.Sprintf(`{"data":{"text":%q},%s}`, strings.Repeat("x", size), meta))
	}
	return h
}

func (h *heavy) see(t *testing.T, id string) *engine.Command {
	t.Helper()
	return enginetest.Command(t, "account/"+id+"/was_seen", `{"data":{},`+meta+`}`)
}

const (
	first, second = "10000000-0000-4000-8000-000000000001", "10000000-0000-4000-8000-000000000002"
	small         = "00000000-0000-4000-8000-000000000003"
)

// TestLargeStatesThatWritesLookAtAreAccountedFor lets one write hold the state that it looks at. Another one that looks
// at a large state waits for room in vain, one that looks at a small state does not; when the first has ended, there is
// room again.
func TestLargeStatesThatWritesLookAtAreAccountedFor(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		h := newHeavy(t, first, second, small)
		holds := h.see(t, first)
		holds.CorrelationID = atGate
		done := make(chan error)
		go func() {
			_, err := h.Execute(t.Context(), holds)
			done <- err
		}()
		<-h.looked

		if _, err := h.Execute(t.Context(), h.see(t, small)); err != nil {
			t.Errorf("a small state: %v", err)
		}
		if _, err := h.Execute(t.Context(), h.see(t, second)); j17.CodeOf(err) != j17.CodeBusy {
			t.Errorf("a second large state beside the first: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := h.Execute(gone, h.see(t, second)); err == nil || j17.CodeOf(err) == j17.CodeBusy {
			t.Errorf("of one who has left: %v", err)
		}

		close(h.gate)
		if err := <-done; err != nil {
			t.Errorf("the first: %v", err)
		}
		for range 3 {
			for _, id := range []string{first, second} {
				if _, err := h.Execute(t.Context(), h.see(t, id)); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			}
		}
	})
}

// TestWritesInOrderDoNotWaitForEachOthersMemory looks at more large states in one row than there is room for. It ends
// without waiting: nothing moves the clock of the bubble but waiting.
func TestWritesInOrderDoNotWaitForEachOthersMemory(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		h := newHeavy(t, first, second, small)
		start := time.Now()
		var row []*engine.Command
		for range 3 {
			row = append(row, h.see(t, first), h.see(t, small), h.see(t, second))
		}
		for i, o := range h.ExecuteInOrder(t.Context(), tenant, row) {
			if o.Err != nil {
				t.Errorf("%d: %v", i, o.Err)
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("they waited for %v", took)
		}
	})
}
