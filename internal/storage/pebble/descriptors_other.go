//go:build !unix

package pebble

// descriptorLimit returns how many files the process may have open at present; 0 where that is unknown.
func descriptorLimit() uint64 { return 0 }
