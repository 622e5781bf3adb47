package pebble

import (
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// InUse reports whether somebody, of this process or another one, has the store in a folder open.
func InUse(dir string) bool {
	name := filepath.Join(dir, "LOCK")
	if _, err := vfs.Default.Stat(name); err != nil {
		return false
	}
	lock, err := vfs.Default.Lock(name)
	if err != nil {
		return true
	}
	return lock.Close() != nil
}
