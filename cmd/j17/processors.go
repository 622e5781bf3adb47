package main

import (
	"runtime"
	"runtime/debug"
)

const (
	// backgroundThreads is the number of jobs that can keep a processor busy while requests wait: a flush and a compaction.
	backgroundThreads = 2
	// fewProcessors is up to where they are missed.
	fewProcessors = 4
	// gcPercent lets the heap grow to three times what is in use before the garbage collector runs. States and tables are
	// bounded by caches of their own, and what is in use is small.
	gcPercent = 200
)

// tuneRuntime fits Go's runtime to a server, unless the environment says otherwise. Go lets a busy goroutine keep its
// processor for 10 ms. On a small machine a flush and a compaction of the store hold all there are, and requests wait that
// long; with more threads than processors the system's scheduler shares them out in finer slices.
func tuneRuntime(getenv func(string) string) {
	if n := runtime.NumCPU(); getenv("GOMAXPROCS") == "" && n <= fewProcessors && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + backgroundThreads)
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
