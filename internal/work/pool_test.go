package work_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/work"
)

func TestAPoolIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(10, 10)
		var wg sync.WaitGroup
		var mu sync.Mutex
		most := int64(0)
		for range 50 {
			wg.Go(func() {
				n, err := p.Take(t.Context(), "a", 3)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				most = max(most, p.Used())
				mu.Unlock()
				p.Give("a", n)
			})
		}
		wg.Wait()
		if most > 10 || most == 0 || p.Used() != 0 {
			t.Errorf("%d of 10 were taken at once, %d are left taken", most, p.Used())
		}
	})
}

// TestOneTenantCannotTakeAll fills its share and lets another tenant come.
func TestOneTenantCannotTakeAll(t *testing.T) {
	p := work.NewPool(10, 6)
	if n, ok := p.TryTake("a", 100); !ok || n != 6 {
		t.Fatal(n, ok)
	}
	if _, ok := p.TryTake("a", 1); ok {
		t.Error("a tenant has more than its share")
	}
	if n, ok := p.TryTake("b", 4); !ok || n != 4 {
		t.Error("another tenant finds nothing")
	}
}

// TestWhoHasLeastIsNext lets tenants wait: a, which has much, before b, which has nothing.
func TestWhoHasLeastIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(4, 3)
		for range 2 {
			p.TryTake("a", 1)
		}
		p.TryTake("c", 2)
		order := make(chan string, 4)
		for _, tenant := range []string{"a", "b"} {
			go func() {
				_, _ = p.Take(t.Context(), tenant, 1)
				order <- tenant
			}()
			synctest.Wait()
		}
		p.Give("c", 1)
		if got := <-order; got != "b" {
			t.Errorf("%s goes first", got)
		}
		p.Give("c", 1)
		if got := <-order; got != "a" {
			t.Errorf("%s goes second", got)
		}
	})
}

// TestALargeRequestIsNotOvertakenForEver lets small ones of another tenant come while a large one waits.
func TestALargeRequestIsNotOvertakenForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(10, 8)
		p.TryTake("b", 4)
		got := make(chan int64)
		go func() {
			n, _ := p.Take(t.Context(), "a", 8)
			got <- n
		}()
		synctest.Wait()
		if _, ok := p.TryTake("b", 1); ok {
			t.Error("a tenant that has something overtakes one that has nothing")
		}
		p.Give("b", 4)
		if n := <-got; n != 8 {
			t.Error(n)
		}
	})
}

func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(4, 4)
		p.TryTake("a", 4)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := p.Take(ctx, "b", 4)
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		p.Give("a", 3)
		if n, ok := p.TryTake("c", 3); !ok || n != 3 {
			t.Error("who has left is still waited for")
		}
	})
}

// slotted is a context with a slot.
type slotted struct {
	context.Context
	slot *work.Slot
}

func (s slotted) Value(key any) any {
	if key == work.SlotKey() {
		return s.slot
	}
	return s.Context.Value(key)
}

func TestHeavyRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(2, 1)
		var a, b work.Slot
		a.Open(p, "a")
		b.Open(p, "a")
		first := work.New(slotted{t.Context(), &a}, work.Command)
		if !first.Spend(work.HeavyAfter-1) || p.Used() != 0 {
			t.Error("a light request has a turn")
		}
		if !first.Spend(1<<17) || p.Used() != 1 {
			t.Error("a heavy request has no turn")
		}

		// Many small budgets one after the other are as heavy as a large one.
		second := work.New(slotted{t.Context(), &b}, work.Replay)
		spent := 0
		for second.Spend(1000) && spent < 2*work.HeavyAfter {
			spent += 1000
			second.Renew(work.Replay)
		}
		if j17.CodeOf(second.Err()) != j17.CodeBusy {
			t.Errorf("a second heavy request of the tenant goes on after %d units: %v", spent, second.Err())
		}
		a.End()
		if p.Used() != 0 {
			t.Error("the turn is not given back")
		}
		if err := b.Take(t.Context()); err != nil || p.Used() != 1 {
			t.Error(err, p.Used())
		}
		b.End()
		if err := b.Take(t.Context()); err != nil || p.Used() != 0 {
			t.Error("a request that has ended takes a turn")
		}
	})
}

// TestRestingGivesTheTurnBack: who waits for something else lets others have their turn, and takes it again afterwards.
func TestRestingGivesTheTurnBack(t *testing.T) {
	p := work.NewPool(2, 2)
	var s work.Slot
	s.Open(p, "a")
	ctx := slotted{t.Context(), &s}
	b := work.New(ctx, work.Command)
	if !b.Spend(2*work.HeavyAfter) || p.Used() != 1 {
		t.Fatalf("a heavy request has %d turns: %v", p.Used(), b.Err())
	}
	if b.Rest(); p.Used() != 0 {
		t.Errorf("a request that rests has %d turns", p.Used())
	}
	if b.Renew(work.Command); !b.Spend(2*work.HeavyAfter) || p.Used() != 1 {
		t.Errorf("a request that goes on has %d turns: %v", p.Used(), b.Err())
	}
	s.End()

	// What goes on without the request takes no turn in its name.
	var other work.Slot
	other.Open(p, "a")
	alone := work.New(work.WithoutSlot(slotted{t.Context(), &other}), work.Command)
	if !alone.Spend(2*work.HeavyAfter) || p.Used() != 0 {
		t.Errorf("work without a request has %d turns: %v", p.Used(), alone.Err())
	}
}
