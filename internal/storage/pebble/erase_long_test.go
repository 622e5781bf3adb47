//go:build !race

package pebble_test

import (
	"testing"

	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestErasedBytes looks through all files for what was erased, whatever the way of the bytes was: only in a log, in
// tables of several levels, in a table that holds both versions because somebody read the old one, or in an old log
// that is kept for reuse.
func TestErasedBytes(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string, s *pebble.Store) *pebble.Store{
		"log": func(_ *testing.T, _ string, s *pebble.Store) *pebble.Store { return s },
		"table": func(t *testing.T, dir string, s *pebble.Store) *pebble.Store {
			t.Helper()
			closeStore(t, s)
			return open(t, pebble.Options{Dir: dir})
		},
		"many files": func(t *testing.T, dir string, s *pebble.Store) *pebble.Store {
			t.Helper()
			for n := range 4 {
				closeStore(t, s)
				s = open(t, pebble.Options{Dir: dir})
				fillLog(t, s, n, 300<<10)
				// A rewrite of something else compacts, and leaves logs for reuse.
				if err := storetest.Erase(t.Context(), s, tenant, key("other"), erase(1)); err != nil {
					t.Fatal(err)
				}
			}
			return s
		},
		"recycled logs": func(t *testing.T, _ string, s *pebble.Store) *pebble.Store {
			t.Helper()
			for n := range 8 {
				fillLog(t, s, n, 3<<20)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, pebble.Options{Dir: dir})
			list := append(
				events(key("a"), `"before"`, `"`+secret+`"`, `"between"`, `{"again":"`+secret+`"}`),
				events(key("other"), `1`)...,
			)
			if _, err := s.Append(t.Context(), tenant, []store.Append{{Events: list}}); err != nil {
				t.Fatal(err)
			}
			s = prepare(t, dir, s)
			if len(holding(t, dir)) == 0 {
				t.Fatal("the secret was nowhere before it was erased")
			}
			eraseAndLook(t, dir, s)
			closeStore(t, s)
			closeStore(t, open(t, pebble.Options{Dir: dir}))
			if found := holding(t, dir); len(found) > 0 {
				t.Errorf("after another opening the secret is in %v", found)
			}
		})
	}
}
