//go:build race

package worktest

// RaceDetector reports whether the race detector watches.
const RaceDetector = true
