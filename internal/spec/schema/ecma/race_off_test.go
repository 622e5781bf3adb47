//go:build !race

package ecma_test

const raceEnabled = false
