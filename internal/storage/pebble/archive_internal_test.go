package pebble

import (
	"testing"

	"j17/internal/base/clock"
)

// TestArchivesMoveToYoungerViewsOnly moves an archive to two views in the wrong order, as two calls of Purge do of
// which the later one is quicker. It lets go of the older view, which another call would wait for as long as the
// archive is open.
func TestArchivesMoveToYoungerViewsOnly(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]bool{"between two pages": false, "while a page is copied": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := opened(t, clock.System{})
			if _, err := s.Append(t.Context(), "a/prod", smallUnits(0, 1)); err != nil {
				t.Fatal(err)
			}
			opened, err := s.Archive(t.Context(), "a/prod")
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			a, ok := opened.(*archive)
			if !ok {
				t.Fatalf("the archive is a %T", opened)
			}

			// Two views, each younger than the one before.
			var to [2]*moment
			for i := range to {
				if _, err := s.Append(t.Context(), "b/prod", smallUnits(i, 1)); err != nil {
					t.Fatal(err)
				}
				v, err := s.acquire()
				if err != nil {
					t.Fatal(err)
				}
				to[i] = &moment{
					reader: reader{view: v, store: s.core, tenant: a.tenant}, name: a.name, position: a.position,
				}
				defer to[i].Close() // where the archive has not got it
			}
			move := func(*moment) error {
				a.move(to[1])
				a.move(to[0])
				return nil
			}
			if during {
				err = a.use(move)
			} else {
				err = move(nil)
			}
			if err != nil {
				t.Fatal(err)
			}

			s.mu.Lock()
			defer s.mu.Unlock()
			if shown := a.moment.number; shown != to[1].number || !s.idleBefore(to[1].view) {
				t.Errorf("view %d is shown instead of %d, and older ones are let go of: %v", shown, to[1].number, s.idleBefore(to[1].view))
			}
			if to[0].number >= to[1].number || to[1].readers != 1 {
				t.Errorf("%d readers of view %d, after %d", to[1].readers, to[1].number, to[0].number)
			}
		})
	}
}
