//go:build unix

package pebble

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// hold locks a folder itself, whatever becomes of the files in it, until what it returns is closed or the process ends.
// Where the file system has no such locks it does nothing. A folder that somebody else holds is errInUse.
func hold(dir string) (io.Closer, error) {
	f, err := os.Open(dir) //nolint:gosec // it is the folder of the store
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(errInUse, f.Close())
	}
	return f, nil
}
