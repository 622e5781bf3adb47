package index

import (
	"testing"

	"j17"
)

// TestTurnsAreLetGo: nothing is kept of a slot for which nobody waits any more, whether it has got on or not.
func TestTurnsAreLetGo(t *testing.T) {
	t.Parallel()
	const of = j17.Tenant("i/prod")
	for name, do := range map[string]func(s *Service){
		"before it has got on": func(s *Service) {
			first, second := s.awaited(of, "a"), s.awaited(of, "a")
			if first.leave(); first != second || len(s.crowds) != 1 {
				t.Error("who still waits is forgotten")
			}
			second.leave()
		},
		"behind that": func(s *Service) {
			first, second := s.awaited(of, "a"), s.awaited(of, "a")
			s.tell(of, "a")
			first.leave()
			if !s.look(of, "a", func() {}) {
				t.Error("who has not looked is forgotten")
			}
			second.leave()
		},
		"who waits again": func(s *Service) {
			first := s.awaited(of, "a")
			s.tell(of, "a")
			next := s.awaited(of, "a")
			first.leave()
			if len(s.crowds) != 1 {
				t.Error("who waits again is forgotten")
			}
			next.leave()
		},
		"who leaves while another looks": func(s *Service) {
			first := s.awaited(of, "a")
			s.tell(of, "a")
			s.awaited(of, "a").leave()
			looked := false
			if !s.look(of, "a", func() { looked = true }) {
				t.Error("who has not looked is forgotten")
			}
			if first.leave(); !looked {
				t.Error("that all have looked is not told")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Service{crowds: map[place]*crowd{}}
			if do(s); len(s.crowds) > 0 {
				t.Errorf("%d crowds are kept", len(s.crowds))
			}
		})
	}
}
