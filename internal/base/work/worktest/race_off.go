//go:build !race

package worktest

// RaceDetector tells whether the race detector watches.
const RaceDetector = false
