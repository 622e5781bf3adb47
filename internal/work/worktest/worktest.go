//go:build unix

// Package worktest holds what budgets count against what the processor takes. It is for tests.
package worktest

import (
	"syscall"
	"time"
)

// Failer is what *testing.T and *rapid.T have in common.
type Failer interface {
	Helper()
	Fatal(args ...any)
}

// ProcessorTime returns what the process has used so far.
func ProcessorTime(f Failer) time.Duration {
	f.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		f.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What a unit of work may take of the processor's time, so that the budget of a command ends within a second, and what something may
// take that spends next to nothing. Both leave room for what else the process does meanwhile.
const (
	dearest = 200 * time.Nanosecond
	few     = 500 * time.Millisecond
)

// Allowed returns how much of the processor's time so many units may take.
func Allowed(units int64) time.Duration { return Watched(time.Duration(units*int64(dearest)) + few) }

// Watched returns how long something takes that takes so long without the race detector.
func Watched(d time.Duration) time.Duration {
	if RaceDetector {
		return 10 * d
	}
	return d
}
