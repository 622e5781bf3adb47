//go:build unix

package pebble

import "syscall"

// descriptorLimit returns how many files the process may have open at present; 0 where that is unknown. It can change
// while the process runs.
func descriptorLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // some systems have a signed one
}
