package auth_test

import (
	"fmt"
	"testing"
	"time"

	"j17/internal/auth"
)

func TestRateLimit(t *testing.T) {
	l := auth.NewRateLimit(5)
	now := time.Unix(1_700_000_000, 0)
	for want := 4; want >= 0; want-- {
		if left, wait := l.Take("a", now); left != want || wait != 0 {
			t.Fatalf("left %d, wait %v; want %d left", left, wait, want)
		}
	}
	if _, wait := l.Take("a", now); wait != 12*time.Second {
		t.Errorf("wait %v", wait)
	}
	if left, wait := l.Take("b", now); left != 4 || wait != 0 {
		t.Errorf("another caller: left %d, wait %v", left, wait)
	}
	now = now.Add(12 * time.Second)
	if left, wait := l.Take("a", now); left != 0 || wait != 0 {
		t.Errorf("after its share of the minute: left %d, wait %v", left, wait)
	}
	if _, wait := l.Take("a", now); wait != 12*time.Second {
		t.Errorf("wait %v", wait)
	}
	now = now.Add(time.Hour)
	if left, _ := l.Take("a", now); left != 4 {
		t.Errorf("a budget grew to %d", left+1)
	}
}

// TestRateLimitUnderAFlood checks that a flood of callers neither exempts nor blocks those who were there before.
func TestRateLimitUnderAFlood(t *testing.T) {
	l := auth.NewRateLimit(2)
	now := time.Unix(1_700_000_000, 0)
	l.Take("a", now)
	l.Take("a", now)
	refused := 0
	for i := range 300_000 {
		if _, wait := l.Take(fmt.Sprint("flood", i), now); wait > 0 {
			refused++
		}
	}
	if _, wait := l.Take("a", now); wait == 0 {
		t.Error("a caller without budget was let in")
	}
	if refused == 0 {
		t.Error("callers beyond the table were not limited")
	}
	now = now.Add(2 * time.Minute)
	if left, wait := l.Take("new", now); wait != 0 || left != 1 {
		t.Errorf("after the flood: left %d, wait %v", left, wait)
	}
}
