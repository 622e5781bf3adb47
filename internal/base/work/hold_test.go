package work_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/base/work"
)

// TestWhatIsHeldIsWaitedFor lets one request hold memory that another one waits for: in vain, then until it is
// released. It gives its turn on a processor back meanwhile.
func TestWhatIsHeldIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, turns := work.NewPool(10, 8), work.NewPool(2, 1)
		var slot work.Slot
		slot.Open(turns, "a")
		first, second := work.New(t.Context(), work.Command), work.New(slotted{t.Context(), &slot}, work.Command)
		if !first.TryHold(memory, "a", 100) || !first.Holds() || memory.Used() != 8 {
			t.Fatalf("it holds %d", memory.Used())
		}
		if second.TryHold(memory, "a", 1) || second.Holds() {
			t.Error("there is more than the share")
		}

		if !second.Spend(work.HeavyAfter+1<<17) || turns.Used() != 1 {
			t.Fatal("it has no turn")
		}
		if err := second.Hold(memory, "a", 1, "memory"); j17.CodeOf(err) != j17.CodeBusy {
			t.Errorf("in vain: %v", err)
		}
		if turns.Used() != 0 {
			t.Error("it waits for memory with a turn on a processor")
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := work.New(gone, work.Command).Hold(memory, "a", 1, "memory"); !errors.Is(err, context.Canceled) {
			t.Errorf("one who has left: %v", err)
		}

		got := make(chan error)
		go func() { got <- second.Hold(memory, "a", 5, "memory") }()
		synctest.Wait()
		first.Release()
		if err := <-got; err != nil || memory.Used() != 5 || first.Holds() {
			t.Errorf("%v, %d are held", err, memory.Used())
		}
		second.Release()
		second.Release()
		if memory.Used() != 0 {
			t.Errorf("%d are left held", memory.Used())
		}
	})
}
