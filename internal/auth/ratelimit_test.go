package auth_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/auth"
)

func TestRateLimit(t *testing.T) {
	l := auth.NewRateLimit(5)
	now := time.Unix(1_700_000_000, 0)
	take := func(caller string, perMinute int, want auth.Budget) {
		t.Helper()
		if diff := cmp.Diff(want, l.Take(caller, perMinute, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", caller, diff)
		}
	}
	for left := 4; left >= 0; left-- {
		take("a", 0, auth.Budget{Limit: 5, Left: left, Full: time.Duration(5-left) * 12 * time.Second})
	}
	take("a", 0, auth.Budget{Limit: 5, Wait: 12 * time.Second, Full: time.Minute})
	take("b", 0, auth.Budget{Limit: 5, Left: 4, Full: 12 * time.Second})
	now = now.Add(12 * time.Second)
	take("a", 0, auth.Budget{Limit: 5, Full: time.Minute})
	take("a", 0, auth.Budget{Limit: 5, Wait: 12 * time.Second, Full: time.Minute})
	now = now.Add(time.Hour)
	take("a", 0, auth.Budget{Limit: 5, Left: 4, Full: 12 * time.Second})

	// A caller with a number of their own.
	take("c", 2, auth.Budget{Limit: 2, Left: 1, Full: 30 * time.Second})
	take("c", 2, auth.Budget{Limit: 2, Full: time.Minute})
	take("c", 2, auth.Budget{Limit: 2, Wait: 30 * time.Second, Full: time.Minute})
	take("c", 60, auth.Budget{Limit: 60, Wait: time.Second, Full: time.Minute}) // A larger plan counts at once.
	now = now.Add(time.Second)
	take("c", 60, auth.Budget{Limit: 60, Full: time.Minute})
}

// TestRateLimitUnderAFlood checks that a flood of callers neither exempts nor blocks those who were there before.
func TestRateLimitUnderAFlood(t *testing.T) {
	l := auth.NewRateLimit(2)
	now := time.Unix(1_700_000_000, 0)
	l.Take("a", 0, now)
	l.Take("a", 0, now)
	refused := 0
	for i := range 300_000 {
		if l.Take(fmt.Sprint("flood", i), 0, now).Wait > 0 {
			refused++
		}
	}
	if l.Take("a", 0, now).Wait == 0 {
		t.Error("a caller without budget was let in")
	}
	if refused == 0 {
		t.Error("callers beyond the table were not limited")
	}
	now = now.Add(2 * time.Minute)
	if b := l.Take("new", 0, now); b.Wait != 0 || b.Left != 1 {
		t.Errorf("after the flood: %+v", b)
	}
}
