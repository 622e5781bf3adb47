//go:build race

package spec_test

const raceDetector = true
