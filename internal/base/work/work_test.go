package work_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"j17"
	"j17/internal/base/work"
)

func TestBudgetIsCounted(t *testing.T) {
	b := work.New(t.Context(), 10)
	if !b.Spend(4) || !b.Spend(6) || b.Err() != nil || b.Spent() != 10 || b.Left() != 0 {
		t.Fatalf("a budget of 10 has %d left after 10, %v", b.Left(), b.Err())
	}
	if b.Spend(1) || j17.CodeOf(b.Err()) != j17.CodeWorkLimit {
		t.Errorf("an eleventh unit of 10: %v", b.Err())
	}
	if b.Spend(0) {
		t.Error("a budget that was used up goes on")
	}
	if b.Renew(1); !b.Spend(1) || b.Err() != nil {
		t.Error("a renewed budget is used up")
	}
}

func TestBudgetEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := work.New(ctx, math.MaxInt64)
	if !b.Spend(1 << 20) {
		t.Fatal(b.Err())
	}
	cancel()
	n := 0
	for b.Spend(1) {
		if n++; n > 1<<20 {
			t.Fatal("nobody looks at the context")
		}
	}
	if !errors.Is(b.Err(), context.Canceled) {
		t.Errorf("the budget ended with %v", b.Err())
	}
}

func TestBudgetIsEnded(t *testing.T) {
	b, cause := work.Counted(100), errors.New("enough")
	if !b.Spend(1) {
		t.Fatal(b.Err())
	}
	b.End(cause)
	b.End(errors.New("later"))
	if b.Spend(0) || !errors.Is(b.Err(), cause) {
		t.Errorf("it goes on, or ended with %v", b.Err())
	}
	if b.Renew(1); !b.Spend(1) || b.Err() != nil {
		t.Error("a renewed budget is ended")
	}
}

func BenchmarkSpend(b *testing.B) {
	budget := work.New(b.Context(), math.MaxInt64)
	for b.Loop() {
		budget.Spend(1)
	}
}
