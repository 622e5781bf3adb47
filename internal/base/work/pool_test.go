package work_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17"
	"j17/internal/base/work"
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

// TestHeavyRequestsGiveWay lets a request that may do four turns' work meet another one that waits: that one has its
// turn before the first one ends, and then it goes on.
func TestHeavyRequestsGiveWay(t *testing.T) {
	for _, tenant := range []string{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			p := work.NewPool(1, 1)
			var first, second work.Slot
			first.Open(p, "a")
			second.Open(p, tenant)
			b := work.New(slotted{t.Context(), &first}, 4*work.Turn)
			if !spend(b, heavy) || p.Used() != 1 {
				t.Fatalf("it has %d turns: %v", p.Used(), b.Err())
			}

			// Another one waits, in vain as long as the turn lasts.
			light := work.New(slotted{t.Context(), &second}, work.Command)
			done := make(chan int64)
			go func() {
				if !spend(light, heavy) {
					t.Error(light.Err())
				}
				at := b.Spent()
				second.End()
				done <- at
			}()
			synctest.Wait()
			if !p.Wanted() {
				t.Fatal("the other one does not wait")
			}

			// The first one goes on to its end, and gives way on its way.
			go func() {
				if !spend(b, 4*work.Turn-heavy) {
					t.Error(b.Err())
				}
			}()
			if at := <-done; at < work.Turn || at > work.Turn+heavy {
				t.Errorf("the other one has had its turn when the first one had done %d units; a turn has %d", at, work.Turn)
			}
			synctest.Wait()
			if b.Left() != 0 || p.Used() != 1 {
				t.Errorf("%d units are left, %d turns are taken", b.Left(), p.Used())
			}
			if first.End(); p.Used() != 0 {
				t.Error("the turn is not given back")
			}
		})
	}
}

// TestManyBudgetsGiveWay lets a request do four turns' work with budgets of which each is light, one after the other,
// or several at a time: another one that waits has its turn before the first one ends.
func TestManyBudgetsGiveWay(t *testing.T) {
	for _, each := range []int{300, 1000, 100_000} {
		for _, atOnce := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				p := work.NewPool(1, 1)
				var first, second work.Slot
				first.Open(p, "a")
				second.Open(p, "b")
				var done atomic.Int64
				some := func(most int64) {
					var all sync.WaitGroup
					for range atOnce {
						all.Go(func() {
							for done.Load() < most {
								b := work.New(slotted{t.Context(), &first}, work.Command)
								if !b.Spend(each/2) || !b.Spend(each-each/2) {
									t.Error(b.Err())
									return
								}
								done.Add(int64(each))
							}
						})
					}
					all.Wait()
				}
				if some(work.HeavyAfter / 2); p.Used() != 0 {
					t.Errorf("%d units of %d at a time take a turn", done.Load(), each)
				}
				if some(3 * work.HeavyAfter); p.Used() != 1 {
					t.Errorf("%d units of %d at a time take no turn", done.Load(), each)
				}

				// The Slot knows at least half of it.
				had := make(chan int64)
				go func() {
					if err := second.Take(t.Context()); err != nil {
						t.Error(err)
					}
					at := done.Load() // as long as it has the turn nobody else works
					second.End()
					had <- at
				}()
				synctest.Wait()
				go some(4 * work.Turn)
				if at := <-had; at > 2*work.Turn+3*work.HeavyAfter+int64(atOnce*each) {
					t.Errorf("the other one has had its turn when %d units were done, %d at a time; a turn has %d", at, each, work.Turn)
				}
				synctest.Wait()
				if first.End(); p.Used() != 0 {
					t.Error("the turn is not given back")
				}
			})
		}
	}
}

// TestARequestThatLastsIsCountedAnew gives the turn back in two ways: what was done before counts for who goes on, and
// not for who begins again.
func TestARequestThatLastsIsCountedAnew(t *testing.T) {
	p := work.NewPool(1, 1)
	var s work.Slot
	s.Open(p, "a")
	some := func(units int) int64 {
		t.Helper()
		if b := work.New(slotted{t.Context(), &s}, work.Command); !b.Spend(units) {
			t.Error(b.Err())
		}
		return p.Used()
	}
	if some(heavy) != 1 {
		t.Error("a heavy request has no turn")
	}
	if s.Give(); some(1000) != 1 {
		t.Error("a request that was heavy goes on without a turn")
	}
	if s.Renew(); some(1000) != 0 {
		t.Error("a request that is counted anew has a turn")
	}
	if some(heavy) != 1 {
		t.Error("a request that is heavy again has no turn")
	}
}

// TestWhoWaitsGoesInBetween lets requests of several tenants work four turns each, in the one turn that there is: none
// of them has its second one before all had their first.
func TestWhoWaitsGoesInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(1, 1)
		const requests, turns = 4, 4
		var before work.Slot
		before.Open(p, "z")
		if err := before.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		for i := range requests {
			var slot work.Slot
			slot.Open(p, string(rune('a'+i%3)))
			b := work.New(slotted{t.Context(), &slot}, math.MaxInt64)
			wg.Go(func() {
				defer slot.End()
				for range turns {
					if !spend(b, work.Turn) {
						t.Error(b.Err())
					}
					order = append(order, i) // one at a time: the others wait
				}
			})
			synctest.Wait()
		}
		before.End() // all of them wait by now
		wg.Wait()
		for n, i := range order {
			for other := range requests {
				if ahead := count(order[:n+1], i) - count(order[:n+1], other); ahead > 2 {
					t.Fatalf("%d is %d turns ahead of %d: %v", i, ahead, other, order)
				}
			}
		}
	})
}

// TestWhoGaveWayGoesOn lets the others never end: who gave way to them goes on when it has waited long enough, beyond
// what there is, and is not refused, and neither is what else is done for it. Who has not begun yet is.
func TestWhoGaveWayGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(1, 1)
		var slot, other, late work.Slot
		slot.Open(p, "a")
		other.Open(p, "b")
		late.Open(p, "c")
		b, beside := work.New(slotted{t.Context(), &slot}, 4*work.Turn),
			work.New(slotted{t.Context(), &slot}, work.Command)
		if !spend(b, heavy) {
			t.Fatal(b.Err())
		}
		took, refused := make(chan error, 1), make(chan error, 1)
		go func() { took <- other.Take(t.Context()) }() // and keeps it
		synctest.Wait()
		var wg sync.WaitGroup
		wg.Go(func() { spend(b, 2*work.Turn) })
		synctest.Wait()
		wg.Go(func() { spend(beside, heavy) })
		wg.Wait()
		if b.Err() != nil || beside.Err() != nil || p.Used() != 2 {
			t.Errorf("it has ended: %v, %v; %d turns are taken", b.Err(), beside.Err(), p.Used())
		}
		if err := <-took; err != nil {
			t.Error(err)
		}
		go func() { refused <- late.Take(t.Context()) }()
		if err := <-refused; j17.CodeOf(err) != j17.CodeBusy {
			t.Errorf("who has not begun: %v", err)
		}
		other.End()
		if slot.End(); p.Used() != 0 || p.Wanted() {
			t.Errorf("%d turns are left taken", p.Used())
		}
	})
}

// TestWhoGaveWayAndLeaves ends a request while it waits for its next turn, and another goroutine of it.
func TestWhoGaveWayAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(1, 1)
		ctx, leave := context.WithCancel(t.Context())
		var slot, other work.Slot
		slot.Open(p, "a")
		other.Open(p, "b")
		b, beside := work.New(slotted{ctx, &slot}, 4*work.Turn), work.New(slotted{ctx, &slot}, work.Command)
		if !spend(b, heavy) {
			t.Fatal(b.Err())
		}
		go func() { _ = other.Take(t.Context()) }()
		synctest.Wait()
		ended := make(chan error, 2)
		for _, of := range []*work.Budget{b, beside} {
			go func() {
				spend(of, 2*work.Turn)
				ended <- of.Err()
			}()
			synctest.Wait()
		}
		if len(ended) > 0 || p.Used() != 1 {
			t.Fatal("it does not wait")
		}
		leave()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		}
		slot.End()
		if other.End(); p.Used() != 0 || p.Wanted() {
			t.Errorf("%d turns are left taken", p.Used())
		}
	})
}

// heavy is how many units a request has spent when it surely has a turn.
const heavy = work.HeavyAfter + 1<<17

// spend takes n units one step after the other, as whoever works does.
func spend(b *work.Budget, n int) bool {
	const step = 1 << 10
	for ; n >= step && b.Spend(step); n -= step {
		continue
	}
	return n < step && b.Spend(n)
}

func count(all []int, one int) (n int) {
	for _, i := range all {
		if i == one {
			n++
		}
	}
	return n
}

// TestPartsOfARequestShareItsTurn lets three goroutines of a request find at the same moment that it needs a turn: they
// have one, or wait for one in vain, together.
func TestPartsOfARequestShareItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := work.NewPool(1, 1)
		var s, other work.Slot
		s.Open(p, "a")
		other.Open(p, "b")
		together := func(wanted j17.Code) {
			t.Helper()
			began := time.Now()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if err := s.Take(t.Context()); j17.CodeOf(err) != wanted {
						t.Errorf("%v, want %q", err, wanted)
					}
				})
			}
			all.Wait()
			if waited := time.Since(began); waited > work.Wait || wanted == "" && waited > 0 {
				t.Errorf("they have waited for %s", waited)
			}
		}
		together("")
		s.Give()
		if err := other.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		together(j17.CodeBusy)
		other.End()
		together("")
		if s.End(); p.Used() != 0 {
			t.Errorf("%d turns are left taken", p.Used())
		}
	})
}
