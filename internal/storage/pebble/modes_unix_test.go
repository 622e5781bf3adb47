//go:build unix

package pebble_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"j17/internal/storage/pebble"
	"j17/internal/storage/store"
)

// TestFilesAreTheirOwners looks at the modes of all files of a store: nobody else may read those that it makes, nor
// those that were made otherwise.
func TestFilesAreTheirOwners(t *testing.T) {
	dir := t.TempDir()
	each := func(do func(path string, mode fs.FileMode)) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err == nil {
				do(path, info.Mode().Perm())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s, err := pebble.Open(pebble.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write(t.Context(), "ins_a/prod", []store.Side{
			{Op: store.Put, Space: "a", Key: "k", Value: []byte("v")},
		}); err != nil {
			t.Fatal(err)
		}
		each(func(path string, mode fs.FileMode) {
			if mode&0o077 != 0 {
				t.Errorf("%s has the mode %o", filepath.Base(path), mode)
			}
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		each(func(path string, _ fs.FileMode) {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}
