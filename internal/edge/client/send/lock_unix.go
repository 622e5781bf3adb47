//go:build unix

package send

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a file for as long as it is open. Where the file system has no locks it does nothing.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errRunning
	}
	return nil
}
