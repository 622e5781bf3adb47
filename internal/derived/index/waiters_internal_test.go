package index

import (
	"testing"

	"j17"
)

// TestWaitersAreForgotten: nothing is kept of a slot for which nobody waits any longer, whether it has got on or not.
func TestWaitersAreForgotten(t *testing.T) {
	t.Parallel()
	const of = j17.Tenant("i/prod")
	for name, do := range map[string]func(s *waiters){
		"before it has got on": func(s *waiters) {
			first, second := s.next(of, "a"), s.next(of, "a")
			if first.leave(); first != second || len(s.slots) != 1 {
				t.Error("who still waits is forgotten")
			}
			second.leave()
		},
		"behind that": func(s *waiters) {
			first, second := s.next(of, "a"), s.next(of, "a")
			s.wake(of, "a")
			first.leave()
			if !s.onLooked(of, "a", func() {}) {
				t.Error("who has not looked is forgotten")
			}
			second.leave()
		},
		"who waits again": func(s *waiters) {
			first := s.next(of, "a")
			s.wake(of, "a")
			next := s.next(of, "a")
			first.leave()
			if len(s.slots) != 1 {
				t.Error("who waits again is forgotten")
			}
			next.leave()
		},
		"who leaves while another looks": func(s *waiters) {
			first := s.next(of, "a")
			s.wake(of, "a")
			s.next(of, "a").leave()
			looked := false
			if !s.onLooked(of, "a", func() { looked = true }) {
				t.Error("who has not looked is forgotten")
			}
			if first.leave(); !looked {
				t.Error("that all have looked is not told")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &waiters{slots: map[place]*slotWaiters{}}
			if do(s); len(s.slots) > 0 {
				t.Errorf("%d slots are kept", len(s.slots))
			}
		})
	}
}
