//go:build unix

// Package worktest holds what budgets count against what the processor takes. It is for tests.
package worktest

import (
	"math"
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

// Since returns what the process has used since ProcessorTime has returned start, on a machine of moderate speed: on a
// slower one it is less than what was used. What is so short that it is within all bounds is not compared.
func Since(f Failer, start time.Duration) time.Duration {
	f.Helper()
	used := ProcessorTime(f) - start
	if used < 50*time.Millisecond {
		return used
	}
	return time.Duration(float64(used) / max(1, slowness(f)))
}

// slowness tells how many times as long as on a machine of moderate speed this one takes for the same work: simple
// steps, and looks at more memory than its caches hold. Of several measurements the fastest counts, since others use
// caches and memory as well.
func slowness(f Failer) float64 {
	f.Helper()
	const moderate = 4 * time.Millisecond
	memory, least := make([]uint64, 1<<20), time.Duration(math.MaxInt64)
	for range 5 {
		before := ProcessorTime(f)
		wander(memory)
		least = min(least, ProcessorTime(f)-before)
	}
	return float64(least) / float64(moderate)
}

// wander looks at memory here and there. The race detector would make it slower than anything else.
//
//go:norace
func wander(memory []uint64) {
	at := uint64(88172645463325252)
	for range len(memory) {
		at ^= at << 13
		at ^= at >> 7
		at ^= at << 17
		memory[at%uint64(len(memory))] += at
	}
}

// What a unit of work may take of the processor's time, so that the budget of a command ends within a second, and what
// something may take that spends next to nothing. Both leave room for what else the process does meanwhile.
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
