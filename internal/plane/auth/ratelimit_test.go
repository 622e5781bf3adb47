package auth_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/plane/auth"
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
	for i := range 5 { // one each second
		take("a", 0, auth.Budget{Limit: 5, Left: 4 - i, Full: time.Minute})
		now = now.Add(time.Second)
	}
	take("a", 0, auth.Budget{Limit: 5, Wait: 55 * time.Second, Full: 59 * time.Second})
	take("b", 0, auth.Budget{Limit: 5, Left: 4, Full: time.Minute})
	now = now.Add(55 * time.Second) // A request counts for a minute, and those that were refused for nothing.
	take("a", 0, auth.Budget{Limit: 5, Full: time.Minute})
	take("a", 0, auth.Budget{Limit: 5, Wait: time.Second, Full: time.Minute})
	now = now.Add(time.Minute)
	take("a", 0, auth.Budget{Limit: 5, Left: 4, Full: time.Minute})

	// Looking counts nothing.
	for range 3 {
		if diff := cmp.Diff(auth.Budget{Limit: 5, Left: 4, Full: time.Minute}, l.Look("a", now)); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff(auth.Budget{Limit: 5, Left: 5}, l.Look("unknown", now)); diff != "" {
		t.Error(diff)
	}

	// A caller with a number of their own.
	take("c", 2, auth.Budget{Limit: 2, Left: 1, Full: time.Minute})
	now = now.Add(time.Second)
	take("c", 2, auth.Budget{Limit: 2, Full: time.Minute})
	take("c", 2, auth.Budget{Limit: 2, Wait: 59 * time.Second, Full: time.Minute})
	take("c", 60, auth.Budget{Limit: 60, Left: 57, Full: time.Minute}) // A larger plan counts at once,
	take("c", 1, auth.Budget{Limit: 1, Wait: time.Minute, Full: time.Minute})
	take("c", 2, auth.Budget{Limit: 2, Wait: time.Minute, Full: time.Minute}) // and so does a smaller one.
	// A clock that is set back neither opens anything nor closes it for longer than a minute.
	now = now.Add(-time.Hour)
	take("c", 3, auth.Budget{Limit: 3, Wait: time.Minute, Full: time.Minute})
}

// TestRateLimitHoldsInEveryMinute compares with a count over all requests that were let in.
func TestRateLimitHoldsInEveryMinute(t *testing.T) {
	const limit = 20
	l := auth.NewRateLimit(limit)
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_700_000_000, 0)
	var in []time.Time
	refused := 0
	for range 20_000 {
		now = now.Add(time.Duration(random.Int64N(int64(4 * time.Second))))
		if random.IntN(50) == 0 {
			now = now.Add(time.Minute)
		}
		inLastMinute := 0
		for i := len(in) - 1; i >= 0 && now.Sub(in[i]) < time.Minute; i-- {
			inLastMinute++
		}
		b := l.Take("a", 0, now)
		if (b.Wait == 0) != (inLastMinute < limit) {
			t.Fatalf("with %d requests in the last minute: %+v", inLastMinute, b)
		}
		if b.Wait == 0 {
			in = append(in, now)
			continue
		}
		refused++
		// Who waits as long as they were told is let in, and not before.
		if early := l.Take("a", 0, now.Add(b.Wait-1)); early.Wait != 1 {
			t.Fatalf("a nanosecond early: %+v", early)
		}
		now = now.Add(b.Wait)
		if b = l.Take("a", 0, now); b.Wait != 0 {
			t.Fatalf("after the wait: %+v", b)
		}
		in = append(in, now)
	}
	if refused == 0 {
		t.Error("the limit was never reached")
	}
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

	// It ends so too where the clock is set back meanwhile.
	for i := range 100_000 {
		l.Take(fmt.Sprint("another", i), 0, now)
	}
	now = now.Add(-time.Hour)
	l.Take("one more", 0, now)
	now = now.Add(2 * time.Minute)
	if b := l.Take("newer", 0, now); b.Wait != 0 || b.Left != 1 {
		t.Errorf("after another flood: %+v", b)
	}
}
