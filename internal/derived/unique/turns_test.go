package unique_test

import (
	"fmt"
	"sync"
	"testing"
)

// TestManyWritersOfOneAggregate lets many writers take values for one aggregate, at whose state nobody looks. They take
// turns, and nobody is refused, also where all take the same value. A write is overtaken at most once before it takes
// turns, and who gets ahead of others without a turn does so once: so there are no more plans that were overtaken than
// writes.
func TestManyWritersOfOneAggregate(t *testing.T) {
	const writers, rounds = 200, 3
	for name, email := range map[string]func(n, round int) string{
		"other values":   func(n, round int) string { return fmt.Sprintf("a%d-%d", n, round) },
		"the same value": func(_, round int) string { return fmt.Sprint("a", round) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, unlike)
			var all sync.WaitGroup
			for n := range writers {
				all.Go(func() {
					for round := range rounds {
						if err := h.post(1, "was_registered", `{"email":"`+email(n, round)+`"}`); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if n := h.Written(t, "user", id(1)); n != writers*rounds {
				t.Errorf("%d of %d events are stored", n, writers*rounds)
			}
			if s := h.Stats(); s.Replanned > writers*rounds || s.Busy > 0 {
				t.Errorf("%d writes were overtaken %d times, and %d were given up", writers*rounds, s.Replanned, s.Busy)
			}
			held, _ := h.replay()
			h.check(held, "in the end")
		})
	}
}
