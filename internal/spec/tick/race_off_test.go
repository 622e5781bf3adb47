//go:build !race

package tick_test

const raceEnabled = false
