package main

import (
	"runtime"
	"runtime/debug"

	"j17/internal/server"
)

const (
	// backgroundThreads is the number of jobs that can keep a processor busy while requests wait: a flush and a
	// compaction.
	backgroundThreads = 2
	// fewProcessors is up to how many processors the two are missed.
	fewProcessors = 4
	// memoryShare is the part of the machine's memory that the collector keeps the heap below, if it can: four fifths.
	// The rest is for modules, threads and the system's own cache.
	memoryShare, memoryOf = 4, 5
)

// tuneRuntime adapts Go's runtime to a server and its machine, unless the environment says otherwise. Go lets a busy
// goroutine keep its processor for 10 ms. On a small machine a flush and a compaction of the store occupy all
// processors, and requests wait that long; with more threads than processors the system's scheduler shares them out in
// finer slices.
func tuneRuntime(getenv func(string) string, o *server.Options) {
	if n := runtime.NumCPU(); getenv("GOMAXPROCS") == "" && n <= fewProcessors && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + backgroundThreads)
	}
	o.FitCollector = getenv("GOGC") == ""
	if memory := server.Memory(); getenv("GOMEMLIMIT") == "" && memory > 0 {
		debug.SetMemoryLimit(memory / memoryOf * memoryShare)
	}
}
